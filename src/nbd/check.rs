//! The one place where a request is checked, with the errno the specification wants.

use super::export::Export;
use super::handshake::Terms;
use super::wire::{Errno, RequestHeader, command, command_flag as flag};
use crate::queue::Operation;

/// A request that was checked: its range lies inside the export, its flags are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// The device does it.
    Device(Operation),
    /// The device is asked for extents.
    BlockStatus {
        /// The client wants one extent.
        one: bool,
    },
    /// Nothing is to be done: the range is empty.
    Nothing,
    /// The client leaves.
    Disconnect,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The wire's error.
    pub(super) errno: Errno,
    /// A line for people.
    pub(super) message: &'static str,
}

const fn refuse(errno: Errno, message: &'static str) -> Refusal {
    Refusal { errno, message }
}

/// Checks a request against the export and what was negotiated.
/// Source: NBD protocol, "Request types", "Command flags" and "Error values".
pub(super) fn check(
    header: &RequestHeader,
    export: &Export,
    terms: Terms,
) -> Result<Command, Refusal> {
    if header.command == command::DISC {
        return Ok(Command::Disconnect);
    }
    if header.command > command::BLOCK_STATUS {
        return Err(refuse(Errno::Inval, "unknown command"));
    }
    if export.read_only && Export::writes(header.command) {
        return Err(refuse(Errno::Perm, "the export is read-only"));
    }
    if header.command == command::TRIM && !export.can_trim {
        return Err(refuse(Errno::Inval, "trim is not offered"));
    }
    if header.command == command::BLOCK_STATUS && !terms.allocation {
        return Err(refuse(Errno::Inval, "no metadata context was negotiated"));
    }
    if header.flags & !flags_allowed(header.command, terms) != 0 {
        return Err(refuse(
            Errno::Inval,
            "a flag that this command does not take",
        ));
    }
    check_range(header, export, terms)?;
    let fua = header.flags & flag::FUA != 0;
    if header.command == command::WRITE_ZEROES && header.flags & flag::FAST_ZERO != 0 {
        // Zeros are encrypted and written like any other data.
        return Err(refuse(Errno::NotSup, "zeroing is no faster than writing"));
    }
    if header.len_bytes == 0 && header.command == command::BLOCK_STATUS {
        return Err(refuse(Errno::Inval, "the status of no bytes"));
    }
    if header.len_bytes == 0 && header.command != command::FLUSH {
        return Ok(Command::Nothing);
    }
    Ok(match header.command {
        command::READ => Command::Device(Operation::Read),
        command::WRITE => Command::Device(Operation::Write { fua }),
        command::FLUSH => Command::Device(Operation::Flush),
        command::TRIM => Command::Device(Operation::Trim { fua }),
        command::CACHE => Command::Device(Operation::Cache),
        command::WRITE_ZEROES => Command::Device(Operation::WriteZeroes { fua }),
        _ => Command::BlockStatus {
            one: header.flags & flag::REQ_ONE != 0,
        },
    })
}

/// FUA is accepted everywhere, since clients are known to set it on commands that write nothing.
fn flags_allowed(command: u16, terms: Terms) -> u16 {
    flag::FUA
        | match command {
            command::READ if terms.structured_replies => flag::DF,
            command::WRITE_ZEROES => flag::NO_HOLE | flag::FAST_ZERO,
            command::BLOCK_STATUS => flag::REQ_ONE,
            _ => 0,
        }
}

fn check_range(header: &RequestHeader, export: &Export, terms: Terms) -> Result<(), Refusal> {
    if header.command == command::FLUSH {
        return match (header.offset_bytes, header.len_bytes) {
            (0, 0) => Ok(()),
            _ => Err(refuse(Errno::Inval, "a flush has no range")),
        };
    }
    let end_bytes = header.offset_bytes.checked_add(u64::from(header.len_bytes));
    if end_bytes.is_none_or(|end| end > export.size_bytes) {
        return Err(match header.command {
            command::WRITE | command::WRITE_ZEROES => refuse(Errno::NoSpc, "past the end"),
            _ => refuse(Errno::Inval, "past the end"),
        });
    }
    if header.len_bytes > Export::payload_bytes_max() {
        return match header.command {
            command::READ if terms.structured_replies => {
                Err(refuse(Errno::Overflow, "longer than the maximum payload"))
            }
            command::READ | command::WRITE => {
                Err(refuse(Errno::Inval, "longer than the maximum payload"))
            }
            _ => Ok(()),
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn export() -> Export {
        Export {
            name: String::new(),
            description: String::new(),
            size_bytes: 64 * MIB,
            preferred_block_bytes: 4096,
            read_only: false,
            can_trim: true,
        }
    }

    const ALL: Terms = Terms {
        structured_replies: true,
        allocation: true,
    };

    fn header(command: u16, flags: u16, offset_bytes: u64, len_bytes: u32) -> RequestHeader {
        RequestHeader {
            flags,
            command,
            cookie: 7,
            offset_bytes,
            len_bytes,
        }
    }

    fn errno(header: RequestHeader, export: &Export, terms: Terms) -> Option<u32> {
        check(&header, export, terms)
            .err()
            .map(|refusal| refusal.errno as u32)
    }

    #[test]
    fn past_the_end_is_enospc_for_writes_and_einval_for_the_rest() {
        let size = 64 * MIB;
        for (command, expected) in [
            (command::READ, 22),
            (command::WRITE, 28),
            (command::TRIM, 22),
            (command::CACHE, 22),
            (command::WRITE_ZEROES, 28),
            (command::BLOCK_STATUS, 22),
        ] {
            for (offset, len) in [
                (size - 1, 2),
                (size, 1),
                (u64::MAX, 1),
                (u64::MAX - 1, u32::MAX),
            ] {
                let header = header(command, 0, offset, len);
                assert_eq!(errno(header, &export(), ALL), Some(expected), "{header:?}");
            }
            assert_eq!(errno(header(command, 0, size - 1, 1), &export(), ALL), None);
        }
    }

    #[test]
    fn read_only_is_eperm_before_anything_else() {
        let export = Export {
            read_only: true,
            ..export()
        };
        for command in [command::WRITE, command::TRIM, command::WRITE_ZEROES] {
            assert_eq!(
                errno(header(command, 0x8000, u64::MAX, 9), &export, ALL),
                Some(1)
            );
        }
        assert_eq!(errno(header(command::READ, 0, 0, 9), &export, ALL), None);
        assert_eq!(errno(header(command::FLUSH, 0, 0, 0), &export, ALL), None);
    }

    #[test]
    fn each_command_takes_its_own_flags_and_fua() {
        let known = [
            flag::FUA,
            flag::NO_HOLE,
            flag::DF,
            flag::REQ_ONE,
            flag::FAST_ZERO,
            1 << 5,
        ];
        for (command, own) in [
            (command::READ, flag::DF),
            (command::WRITE, 0),
            (command::FLUSH, 0),
            (command::TRIM, 0),
            (command::CACHE, 0),
            (command::WRITE_ZEROES, flag::NO_HOLE),
            (command::BLOCK_STATUS, flag::REQ_ONE),
        ] {
            let len = if command == command::FLUSH { 0 } else { 512 };
            for one in known {
                let fast = command == command::WRITE_ZEROES && one == flag::FAST_ZERO;
                let expected = match one {
                    _ if fast => Some(95),
                    one if one & (own | flag::FUA) != 0 => None,
                    _ => Some(22),
                };
                assert_eq!(
                    errno(header(command, one, 0, len), &export(), ALL),
                    expected
                );
            }
        }
        let plain = Terms::default();
        assert_eq!(
            errno(header(command::READ, flag::DF, 0, 1), &export(), plain),
            Some(22)
        );
    }

    #[test]
    fn lengths() {
        let long = (32 * MIB + 1) as u32;
        let plain = Terms::default();
        assert_eq!(
            errno(header(command::READ, 0, 0, long), &export(), ALL),
            Some(75)
        );
        assert_eq!(
            errno(header(command::READ, 0, 0, long), &export(), plain),
            Some(22)
        );
        assert_eq!(
            errno(header(command::WRITE, 0, 0, long), &export(), ALL),
            Some(22)
        );
        assert_eq!(
            errno(header(command::WRITE_ZEROES, 0, 0, long), &export(), ALL),
            None
        );
        assert_eq!(
            errno(header(command::READ, 0, 0, long - 1), &export(), ALL),
            None
        );
        let empty = |command| check(&header(command, 0, 0, 0), &export(), ALL);
        assert_eq!(empty(command::READ), Ok(Command::Nothing));
        assert_eq!(empty(command::WRITE), Ok(Command::Nothing));
        assert_eq!(empty(command::FLUSH), Ok(Command::Device(Operation::Flush)));
        assert!(empty(command::BLOCK_STATUS).is_err());
    }

    #[test]
    fn what_was_not_offered_is_einval() {
        let no_trim = Export {
            can_trim: false,
            ..export()
        };
        assert_eq!(
            errno(header(command::TRIM, 0, 0, 512), &no_trim, ALL),
            Some(22)
        );
        let no_context = Terms {
            structured_replies: true,
            allocation: false,
        };
        let status = header(command::BLOCK_STATUS, 0, 0, 512);
        assert_eq!(errno(status, &export(), no_context), Some(22));
        assert_eq!(errno(header(8, 0, 0, 0), &export(), ALL), Some(22));
        assert_eq!(errno(header(u16::MAX, 0, 0, 0), &export(), ALL), Some(22));
        assert_eq!(
            errno(header(command::FLUSH, 0, 512, 0), &export(), ALL),
            Some(22)
        );
        assert_eq!(
            errno(header(command::FLUSH, 0, 0, 512), &export(), ALL),
            Some(22)
        );
    }
}
