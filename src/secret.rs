//! Bytes that must not leak: wiped on drop, locked in memory where the machine allows it, kept
//! out of core dumps, never printed.
#![allow(unsafe_code)] // The page mapping below; nothing else.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

use rustix::mm;
use zeroize::Zeroize;

/// A fixed-size secret on pages of its own: locked (as far as RLIMIT_MEMLOCK allows), excluded
/// from core dumps, not inherited by children, and wiped when dropped.
pub struct Secret {
    pages: NonNull<u8>,
    mapped_bytes: usize,
    len_bytes: usize,
}

// SAFETY: a Secret owns its mapping alone; shared references only read it.
unsafe impl Send for Secret {}
// SAFETY: as above; there is no interior mutability.
unsafe impl Sync for Secret {}

const PAGE_BYTES: usize = 4096;

impl Secret {
    /// A secret of `len_bytes` zero bytes.
    ///
    /// # Panics
    /// Where the kernel refuses a mapping of that size; callers bound `len_bytes` first.
    pub fn zeroed(len_bytes: usize) -> Self {
        let mapped_bytes = len_bytes.max(1).next_multiple_of(PAGE_BYTES);
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing else.
        let pages = unsafe {
            mm::mmap_anonymous(
                std::ptr::null_mut(),
                mapped_bytes,
                mm::ProtFlags::READ | mm::ProtFlags::WRITE,
                mm::MapFlags::PRIVATE,
            )
        }
        .expect("memory for a secret of bounded size");
        // SAFETY: the range is exactly the mapping just made. Locking may fail by RLIMIT_MEMLOCK:
        // the secret is then still wiped and undumpable, only swappable.
        unsafe {
            let _ = mm::mlock(pages, mapped_bytes);
            let _ = mm::madvise(pages, mapped_bytes, mm::Advice::LinuxDontDump);
            let _ = mm::madvise(pages, mapped_bytes, mm::Advice::LinuxWipeOnFork);
        }
        let pages = NonNull::new(pages.cast()).expect("mmap never returns null");
        Self {
            pages,
            mapped_bytes,
            len_bytes,
        }
    }

    /// A secret that holds a copy of `bytes`; the caller wipes the original.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut secret = Self::zeroed(bytes.len());
        secret.copy_from_slice(bytes);
        secret
    }

    /// Takes the bytes of a vector and wipes it.
    pub fn taking(mut bytes: Vec<u8>) -> Self {
        let secret = Self::copy_of(&bytes);
        bytes.zeroize();
        secret
    }
}

impl Clone for Secret {
    fn clone(&self) -> Self {
        Self::copy_of(self)
    }
}

impl Deref for Secret {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is at least `len_bytes` long, initialised by the kernel, and ours.
        unsafe { slice::from_raw_parts(self.pages.as_ptr(), self.len_bytes) }
    }
}

impl DerefMut for Secret {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { slice::from_raw_parts_mut(self.pages.as_ptr(), self.len_bytes) }
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.zeroize_in_place();
        // SAFETY: the mapping was made by `zeroed` with this length and is used no more.
        unsafe {
            let _ = mm::munmap(self.pages.as_ptr().cast(), self.mapped_bytes);
        }
    }
}

impl Secret {
    fn zeroize_in_place(&mut self) {
        let bytes: &mut [u8] = self;
        bytes.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.len_bytes)
    }
}

/// Overwrites the part of the stack that the functions just called have left: hashes and key
/// schedules keep there what a key determines. As good as can be had without the compiler's help.
#[inline(never)]
pub(crate) fn wipe_stack() {
    let mut stack = [0_u8; 8 << 10];
    stack.zeroize();
    std::hint::black_box(&stack);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_the_length_and_nothing_else() {
        let secret = Secret::copy_of(b"hunter2hunter2");
        assert_eq!(format!("{secret:?}"), "Secret(14 bytes)");
        assert_eq!(&*secret.clone(), b"hunter2hunter2");
    }
}
