//! OpenSSL and AWS-LC by the interface that they share, a sector a call.
#![allow(unsafe_code)] // Calls of C libraries.

use std::ffi::c_int;
use std::ptr;

use crate::Direction;

/// What of OpenSSL's we compare with.
#[derive(Clone, Copy)]
pub enum Algorithm {
    Aes128Xts,
    Aes256Xts,
    Aes256Cbc,
}

/// OpenSSL's few functions that are needed here; AWS-LC's come from its crate, under other names.
mod openssl {
    #![allow(non_camel_case_types)] // As the library spells them.

    use std::ffi::{c_int, c_void};

    pub type EVP_CIPHER_CTX = c_void;
    pub type EVP_CIPHER = c_void;

    #[link(name = "crypto")]
    unsafe extern "C" {
        pub fn EVP_CIPHER_CTX_new() -> *mut EVP_CIPHER_CTX;
        pub fn EVP_CIPHER_CTX_free(ctx: *mut EVP_CIPHER_CTX);
        pub fn EVP_CIPHER_CTX_set_padding(ctx: *mut EVP_CIPHER_CTX, pad: c_int) -> c_int;
        pub fn EVP_aes_128_xts() -> *const EVP_CIPHER;
        pub fn EVP_aes_256_xts() -> *const EVP_CIPHER;
        pub fn EVP_aes_256_cbc() -> *const EVP_CIPHER;
        pub fn EVP_CipherInit_ex(
            ctx: *mut EVP_CIPHER_CTX,
            cipher: *const EVP_CIPHER,
            engine: *mut c_void,
            key: *const u8,
            iv: *const u8,
            encrypt: c_int,
        ) -> c_int;
        pub fn EVP_CipherUpdate(
            ctx: *mut EVP_CIPHER_CTX,
            out: *mut u8,
            out_len: *mut c_int,
            input: *const u8,
            in_len: c_int,
        ) -> c_int;
    }
}

macro_rules! library {
    ($name:ident, $library:ident, $what:literal) => {
        #[doc = $what]
        pub struct $name {
            context: *mut $library::EVP_CIPHER_CTX,
        }

        impl $name {
            /// `cipher` takes a key of that length.
            fn with(cipher: *const $library::EVP_CIPHER, direction: Direction, key: &[u8]) -> Self {
                let encrypt = c_int::from(matches!(direction, Direction::Encrypt));
                let (engine, iv) = (ptr::null_mut(), ptr::null());
                let key = key.as_ptr();
                // SAFETY: the context is new and checked; the key is as long as the cipher takes.
                unsafe {
                    let context = $library::EVP_CIPHER_CTX_new();
                    assert!(!context.is_null());
                    let done =
                        $library::EVP_CipherInit_ex(context, cipher, engine, key, iv, encrypt);
                    assert_eq!(done, 1);
                    $library::EVP_CIPHER_CTX_set_padding(context, 0);
                    Self { context }
                }
            }

            pub fn sector(&mut self, iv: &[u8; 16], sector: &mut [u8]) {
                let mut written = 0;
                let len = sector.len() as c_int;
                let data = sector.as_mut_ptr();
                let iv = iv.as_ptr();
                let (same, engine, key) = (ptr::null(), ptr::null_mut(), ptr::null());
                // SAFETY: the context stands; IV and sector are as long as they say; in place.
                let done = unsafe {
                    $library::EVP_CipherInit_ex(self.context, same, engine, key, iv, -1)
                        & $library::EVP_CipherUpdate(self.context, data, &mut written, data, len)
                };
                assert!(done == 1 && written == len);
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: nobody uses the context any more.
                unsafe { $library::EVP_CIPHER_CTX_free(self.context) }
            }
        }
    };
}

library!(
    OpenSsl,
    openssl,
    "OpenSSL's libcrypto, as the system has it."
);
library!(AwsLc, aws_lc_sys, "AWS-LC, as its crate builds it.");

impl OpenSsl {
    pub fn new(algorithm: Algorithm, direction: Direction, key: &[u8]) -> Self {
        // SAFETY: constants of the library.
        let (cipher, key_bytes) = unsafe {
            match algorithm {
                Algorithm::Aes128Xts => (openssl::EVP_aes_128_xts(), 32),
                Algorithm::Aes256Xts => (openssl::EVP_aes_256_xts(), 64),
                Algorithm::Aes256Cbc => (openssl::EVP_aes_256_cbc(), 32),
            }
        };
        assert_eq!(key.len(), key_bytes);
        Self::with(cipher, direction, key)
    }
}

impl AwsLc {
    /// AES-256-XTS; AWS-LC has none with AES-128.
    pub fn new(direction: Direction, key: &[u8]) -> Self {
        assert_eq!(key.len(), 64);
        // SAFETY: a constant of the library.
        Self::with(unsafe { aws_lc_sys::EVP_aes_256_xts() }, direction, key)
    }
}
