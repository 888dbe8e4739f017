//! Generic netlink, as much as the kernel's nbd driver needs: find a family, send a command, read
//! the answer. Source: Linux `Documentation/userspace-api/netlink/intro.rst`, linux/genetlink.h.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
    sockopt,
};

const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLA_F_NESTED: u16 = 0x8000;
/// The two upper bits of an attribute's type are flags.
const NLA_TYPE_MASK: u16 = 0x3fff;

const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const CTRL_ATTR_MCAST_GROUPS: u16 = 7;
const CTRL_ATTR_MCAST_GRP_NAME: u16 = 1;
const CTRL_ATTR_MCAST_GRP_ID: u16 = 2;

/// Larger than any message that nbd or the controller sends.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// How long the kernel may take to answer. It answers within the call that sends.
const ANSWER_SECONDS: u64 = 30;

/// A family of commands, found by name.
#[derive(Debug)]
pub(crate) struct Family {
    socket: OwnedFd,
    id: u16,
    version: u8,
    groups: Vec<(String, u32)>,
    sequence: u32,
}

/// A message's command and attributes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) command: u8,
    pub(crate) attributes: Attributes,
}

impl Family {
    /// The family `name`; `NotFound` where no driver has registered it.
    pub(crate) fn find(name: &str, version: u8) -> io::Result<Self> {
        let mut family = Self {
            socket: socket()?,
            id: GENL_ID_CTRL,
            version: 1,
            groups: Vec::new(),
            sequence: 0,
        };
        let request = Attributes::default().text(CTRL_ATTR_FAMILY_NAME, name);
        let answer = family
            .call(CTRL_CMD_GETFAMILY, &request)?
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?
            .attributes;
        family.id = answer
            .u16(CTRL_ATTR_FAMILY_ID)
            .ok_or(io::ErrorKind::InvalidData)?;
        family.version = version;
        family.groups = answer
            .nested(CTRL_ATTR_MCAST_GROUPS)
            .map_or_else(Vec::new, groups);
        Ok(family)
    }

    /// Sends a command and waits for the kernel's answer: a message, or only its consent.
    pub(crate) fn call(
        &mut self,
        command: u8,
        attributes: &Attributes,
    ) -> io::Result<Option<Message>> {
        self.sequence += 1;
        let flags = NLM_F_REQUEST | NLM_F_ACK;
        let bytes = encode(
            self.id,
            flags,
            self.sequence,
            command,
            self.version,
            attributes,
        );
        send(&self.socket, &bytes, SendFlags::empty())?;
        let mut answer = None;
        let mut buf = vec![0; MESSAGE_BYTES_MAX];
        loop {
            let (_, len) = retry(|| recv(&self.socket, &mut buf[..], RecvFlags::empty()))?;
            for packet in packets(buf.get(..len).unwrap_or_default()) {
                if packet.sequence != self.sequence {
                    continue;
                }
                if packet.kind != NLMSG_ERROR {
                    answer = Message::decode(packet.body);
                    continue;
                }
                // NLMSG_ERROR with code 0 is the acknowledgement.
                let code = packet
                    .body
                    .first_chunk()
                    .map_or(-libc::EBADMSG, |b| i32::from_ne_bytes(*b));
                return match code {
                    0 => Ok(answer),
                    code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
                };
            }
        }
    }

    /// A socket that hears what the family tells the group `name`.
    pub(crate) fn listen(&self, name: &str) -> io::Result<Listener> {
        let group = self.groups.iter().find(|(group, _)| group == name);
        let &(_, id) = group.ok_or(io::ErrorKind::NotFound)?;
        // The groups of a netlink address are a set of bits, the first group being bit 0.
        let bit = id.checked_sub(1).and_then(|bit| 1_u32.checked_shl(bit));
        let bit = bit.ok_or(io::ErrorKind::InvalidData)?;
        let socket = unbound_socket()?;
        bind(&socket, &SocketAddrNetlink::new(0, bit))?;
        Ok(Listener {
            socket,
            family_id: self.id,
        })
    }
}

/// A socket of a family's group.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    family_id: u16,
}

impl Listener {
    /// What has come in since; never waits.
    pub(crate) fn messages(&self) -> Vec<Message> {
        let mut messages = Vec::new();
        let mut buf = vec![0; MESSAGE_BYTES_MAX];
        while let Ok((_, len)) = retry(|| recv(&self.socket, &mut buf[..], RecvFlags::DONTWAIT)) {
            let ours = packets(buf.get(..len).unwrap_or_default())
                .filter(|packet| packet.kind == self.family_id);
            messages.extend(ours.filter_map(|packet| Message::decode(packet.body)));
        }
        messages
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn unbound_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        flags,
        Some(GENERIC),
    )?)
}

fn socket() -> io::Result<OwnedFd> {
    let socket = unbound_socket()?;
    bind(&socket, &SocketAddrNetlink::new(0, 0))?;
    let timeout = Some(std::time::Duration::from_secs(ANSWER_SECONDS));
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, timeout)?;
    Ok(socket)
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            result => return result,
        }
    }
}

fn groups(list: Attributes) -> Vec<(String, u32)> {
    list.all()
        .filter_map(|(_, group)| {
            let group = Attributes(group.to_vec());
            Some((
                group.string(CTRL_ATTR_MCAST_GRP_NAME)?,
                group.u32(CTRL_ATTR_MCAST_GRP_ID)?,
            ))
        })
        .collect()
}

fn encode(
    kind: u16,
    flags: u16,
    sequence: u32,
    command: u8,
    version: u8,
    attributes: &Attributes,
) -> Vec<u8> {
    let len = 16 + 4 + attributes.0.len();
    let mut bytes = Vec::with_capacity(len);
    bytes.extend((len as u32).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    // The kernel fills in who sends.
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend([command, version, 0, 0]);
    bytes.extend(&attributes.0);
    bytes
}

/// One netlink message: its header's fields, and what follows.
struct Packet<'a> {
    kind: u16,
    sequence: u32,
    body: &'a [u8],
}

fn packets(mut bytes: &[u8]) -> impl Iterator<Item = Packet<'_>> {
    std::iter::from_fn(move || {
        let header: &[u8; 16] = bytes.first_chunk()?;
        let [l0, l1, l2, l3, k0, k1, _, _, s0, s1, s2, s3, ..] = *header;
        let len = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
        let body = bytes.get(16..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        let kind = u16::from_ne_bytes([k0, k1]);
        Some(Packet {
            kind,
            sequence: u32::from_ne_bytes([s0, s1, s2, s3]),
            body,
        })
    })
}

impl Message {
    fn decode(body: &[u8]) -> Option<Self> {
        let (&[command, ..], attributes) = body.split_first_chunk::<4>()?;
        Some(Self {
            command,
            attributes: Attributes(attributes.to_vec()),
        })
    }
}

/// A list of attributes in wire form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributes(Vec<u8>);

impl Attributes {
    pub(crate) fn add(mut self, kind: u16, value: &[u8]) -> Self {
        let len = 4 + value.len();
        self.0.extend((len as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Text with the NUL that the kernel wants.
    pub(crate) fn text(self, kind: u16, value: &str) -> Self {
        self.add(kind, &[value.as_bytes(), b"\0"].concat())
    }

    pub(crate) fn number32(self, kind: u16, value: u32) -> Self {
        self.add(kind, &value.to_ne_bytes())
    }

    pub(crate) fn number64(self, kind: u16, value: u64) -> Self {
        self.add(kind, &value.to_ne_bytes())
    }

    pub(crate) fn list(self, kind: u16, value: &Self) -> Self {
        self.add(kind | NLA_F_NESTED, &value.0)
    }

    fn all(&self) -> impl Iterator<Item = (u16, &[u8])> {
        let mut bytes: &[u8] = &self.0;
        std::iter::from_fn(move || {
            let &[l0, l1, k0, k1] = bytes.first_chunk()?;
            let len = u16::from_ne_bytes([l0, l1]) as usize;
            let value = bytes.get(4..len)?;
            bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
            Some((u16::from_ne_bytes([k0, k1]) & NLA_TYPE_MASK, value))
        })
    }

    fn get(&self, kind: u16) -> Option<&[u8]> {
        self.all()
            .find(|&(found, _)| found == kind)
            .map(|(_, value)| value)
    }

    fn u16(&self, kind: u16) -> Option<u16> {
        Some(u16::from_ne_bytes(*self.get(kind)?.first_chunk()?))
    }

    pub(crate) fn u32(&self, kind: u16) -> Option<u32> {
        Some(u32::from_ne_bytes(*self.get(kind)?.first_chunk()?))
    }

    fn string(&self, kind: u16) -> Option<String> {
        let bytes = self.get(kind)?;
        let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        Some(String::from_utf8_lossy(text).into_owned())
    }

    fn nested(&self, kind: u16) -> Option<Self> {
        self.get(kind).map(|bytes| Self(bytes.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_found_again() {
        let inner = Attributes::default().number32(1, 7);
        let list = Attributes::default()
            .text(2, "nbd")
            .number64(3, 9)
            .list(4, &inner);
        assert_eq!(list.0.len(), 8 + 12 + 12);
        assert_eq!(list.string(2).as_deref(), Some("nbd"));
        assert_eq!(list.nested(4).and_then(|inner| inner.u32(1)), Some(7));
        assert_eq!(list.u32(5), None);
    }

    #[test]
    fn cut_or_lying_messages_end_the_list() {
        assert_eq!(packets(&[0xff; 15]).count(), 0);
        // A length below the header's, and one past the end.
        assert_eq!(packets(&[0; 16]).count(), 0);
        assert_eq!(packets(&[0xff; 64]).count(), 0);
        let list = Attributes(vec![3, 0, 1, 0]);
        assert_eq!(list.get(1), None);
        let list = Attributes(vec![9, 0, 1, 0, 1]);
        assert_eq!(list.get(1), None);
    }

    /// The kernel itself as the judge: its controller is a family that is always there.
    #[test]
    fn the_kernel_answers() {
        let Ok(family) = Family::find("nlctrl", 2) else {
            eprintln!("skipped: needs generic netlink");
            return;
        };
        assert_eq!(family.id, GENL_ID_CTRL);
        assert!(
            family
                .groups
                .iter()
                .any(|(name, id)| name == "notify" && *id > 0)
        );
        let missing = Family::find("no-such-family", 1).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
