//! One error type: a kind that decides the exit code, and what failed, on what, what to do next.

use std::error::Error as StdError;
use std::fmt;

/// The result of everything on the control path.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, as far as a script can act on it. Each kind is one exit code, cryptsetup's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A wrong parameter or combination of parameters: exit 1.
    Usage,
    /// No key slot opens with this passphrase or key: exit 2.
    Permission,
    /// Not enough memory, usually for a KDF: exit 3.
    Memory,
    /// A wrong device or format: missing, not permitted, unknown, unsupported, damaged: exit 4.
    Device,
    /// Exists already, or busy: exit 5.
    Busy,
}

impl ErrorKind {
    /// The process's exit code for this kind, 1 to 5.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Usage => 1,
            Self::Permission => 2,
            Self::Memory => 3,
            Self::Device => 4,
            Self::Busy => 5,
        }
    }
}

/// An error that a person can act on. It displays as at most three lines: what failed (with its
/// cause), on what, what to do next. It never holds a secret.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    what: String,
    on: Option<String>,
    hint: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of `kind`; `what` says what failed, in one line without a full stop.
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
            on: None,
            hint: None,
            source: None,
        }
    }

    /// A wrong parameter (exit 1).
    pub fn usage(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, what)
    }

    /// No key slot opens (exit 2).
    pub fn permission(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Permission, what)
    }

    /// Not enough memory (exit 3).
    pub fn memory(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Memory, what)
    }

    /// A wrong device or format (exit 4).
    pub fn device(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Device, what)
    }

    /// Exists already, or busy (exit 5).
    pub fn busy(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Busy, what)
    }

    /// Names the thing it happened on (a path, a key slot); the innermost name stays.
    #[must_use]
    pub fn on(mut self, on: impl fmt::Display) -> Self {
        self.on.get_or_insert_with(|| on.to_string());
        self
    }

    /// Says within what it failed (`key slot 3`), in front of what failed.
    #[must_use]
    pub fn within(mut self, place: impl fmt::Display) -> Self {
        self.what = format!("{place}: {}", self.what);
        self
    }

    /// Says what to do next; the innermost hint stays.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint.get_or_insert_with(|| hint.into());
        self
    }

    /// Keeps the cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What kind it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What failed, without the object and the hint.
    pub fn what(&self) -> &str {
        &self.what
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        if let Some(on) = &self.on {
            write!(f, "\n  on: {on}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n  try: {hint}")?;
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source
            .as_ref()
            .map(|source| &**source as &(dyn StdError + 'static))
    }
}
