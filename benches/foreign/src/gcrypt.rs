//! libgcrypt, a sector a call.
#![allow(unsafe_code)] // Calls of a C library.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use crate::Direction;

const MODE_XTS: c_int = 13;

/// Ciphers by libgcrypt's numbers. Source: its manual, "Available ciphers".
#[derive(Clone, Copy)]
pub enum Algorithm {
    Serpent256 = 306,
    Twofish256 = 10,
    Camellia256 = 312,
}

#[link(name = "gcrypt")]
unsafe extern "C" {
    fn gcry_check_version(version: *const c_void) -> *const c_void;
    fn gcry_cipher_open(h: *mut *mut c_void, algo: c_int, mode: c_int, flags: c_uint) -> c_uint;
    fn gcry_cipher_setkey(h: *mut c_void, key: *const u8, len: usize) -> c_uint;
    fn gcry_cipher_setiv(h: *mut c_void, iv: *const u8, len: usize) -> c_uint;
    fn gcry_cipher_encrypt(
        h: *mut c_void,
        out: *mut u8,
        n: usize,
        i: *const u8,
        m: usize,
    ) -> c_uint;
    fn gcry_cipher_decrypt(
        h: *mut c_void,
        out: *mut u8,
        n: usize,
        i: *const u8,
        m: usize,
    ) -> c_uint;
    fn gcry_cipher_close(h: *mut c_void);
}

pub struct Xts(*mut c_void);

impl Xts {
    pub fn new(algorithm: Algorithm, key: &[u8]) -> Self {
        let mut handle = ptr::null_mut();
        // SAFETY: the library is initialised by the first call; the handle is its own; the key is
        // as long as it says.
        unsafe {
            gcry_check_version(ptr::null());
            assert_eq!(
                gcry_cipher_open(&mut handle, algorithm as c_int, MODE_XTS, 0),
                0
            );
            assert_eq!(gcry_cipher_setkey(handle, key.as_ptr(), key.len()), 0);
        }
        Self(handle)
    }

    pub fn sector(&mut self, direction: Direction, iv: &[u8; 16], sector: &mut [u8]) {
        let crypt = match direction {
            Direction::Encrypt => gcry_cipher_encrypt,
            Direction::Decrypt => gcry_cipher_decrypt,
        };
        // SAFETY: handle, IV and sector are there, as long as they say; no input means in place.
        unsafe {
            gcry_cipher_setiv(self.0, iv.as_ptr(), iv.len());
            let error = crypt(self.0, sector.as_mut_ptr(), sector.len(), ptr::null(), 0);
            assert_eq!(error, 0);
        }
    }
}

impl Drop for Xts {
    fn drop(&mut self) {
        // SAFETY: nobody uses the handle any more.
        unsafe { gcry_cipher_close(self.0) }
    }
}
