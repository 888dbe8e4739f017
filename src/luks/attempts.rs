//! What to say when no key slot opened: the reason that helps most.

use crate::error::{Error, ErrorKind, Result};

/// The outcome of trying key slots one after another.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    tried: u32,
    memory: Option<Error>,
    unusable: Option<Error>,
}

impl Attempts {
    /// Takes the result of one key slot: the opened thing, `None` where the passphrase doesn't
    /// fit, or an error, which is kept while the other slots are tried.
    pub(crate) fn take<T>(&mut self, slot: u32, result: Result<Option<T>>) -> Option<T> {
        match result {
            Ok(opened) => {
                self.tried += 1;
                opened
            }
            Err(e) => {
                let kept = match e.kind() {
                    ErrorKind::Memory => &mut self.memory,
                    _ => &mut self.unusable,
                };
                kept.get_or_insert(e.within(format!("key slot {slot}")));
                None
            }
        }
    }

    /// Why nothing opened. A slot that needed too much memory may have been the right one, and so
    /// may one that isn't supported: a wrong passphrase is only claimed when every slot was tried.
    pub(crate) fn failure(self) -> Error {
        if let Some(error) = self.memory.or(self.unusable) {
            return error;
        }
        match self.tried {
            0 => Error::permission("no key slot can be opened by a passphrase"),
            _ => Error::permission("no key slot opens with this passphrase or key file"),
        }
    }
}

/// The error for a key slot that was named and isn't there.
pub(crate) fn no_such_keyslot(slot: u32) -> Error {
    Error::permission(format!("key slot {slot} is not in use"))
        .hint("`luks dump` shows the key slots")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_helpful_reason_wins() {
        let kind = |results: Vec<Result<Option<()>>>| {
            let mut attempts = Attempts::default();
            for (slot, result) in (0..).zip(results) {
                assert!(attempts.take(slot, result).is_none());
            }
            attempts.failure().kind()
        };
        assert_eq!(kind(vec![]), ErrorKind::Permission);
        assert_eq!(kind(vec![Ok(None)]), ErrorKind::Permission);
        assert_eq!(
            kind(vec![Ok(None), Err(Error::device("x"))]),
            ErrorKind::Device
        );
        assert_eq!(
            kind(vec![
                Err(Error::device("x")),
                Err(Error::memory("y")),
                Ok(None)
            ]),
            ErrorKind::Memory
        );
    }
}
