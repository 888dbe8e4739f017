//! What each of the ciphers is given without writing it again.

/// Makes `$cipher`, with fields `keys` and `kernel: KernelChoice`, a block cipher of the `cipher`
/// crate and gives it its constructors. Besides
/// `portable::Portable` it has x86 kernels for the [`Registers`] listed. `$keys` makes the keys, or
/// `None` where the key's length isn't one of `$lengths`.
macro_rules! block_cipher {
    ($cipher:ident, $keys:expr, $lengths:literal, [$($registers:ident: $token:ty),*]) => {
        impl $cipher {
            /// With the fastest registers that go with the engine in use.
            #[doc = concat!("`None` where the key isn't of ", $lengths, " bytes.")]
            pub fn new(key: &[u8]) -> Option<Self> {
                let engine = $crate::cipher::CpuEngine::in_use();
                Self::up_to($crate::cipher::many_blocks::Registers::of(engine), key)
            }

            /// As [`Self::new`], with registers no faster than `widest`.
            pub fn up_to(widest: $crate::cipher::many_blocks::Registers, key: &[u8]) -> Option<Self> {
                let mut narrower = $crate::cipher::many_blocks::Registers::ALL
                    .into_iter()
                    .filter(|&registers| registers <= widest);
                let kernel = narrower.find_map(KernelChoice::of)?;
                Some(Self {
                    keys: $keys(key)?,
                    kernel,
                })
            }

            /// As [`Self::new`], with just these registers; `None` also where the CPU lacks them
            /// or the instructions that go with them.
            pub fn on(registers: $crate::cipher::many_blocks::Registers, key: &[u8]) -> Option<Self> {
                let kernel = KernelChoice::of(registers)?;
                Some(Self {
                    keys: $keys(key)?,
                    kernel,
                })
            }

            /// What it runs on.
            pub fn registers(&self) -> $crate::cipher::many_blocks::Registers {
                self.kernel.registers()
            }
        }

        impl ::cipher::KeySizeUser for $cipher {
            type KeySize = ::cipher::consts::U32;
        }

        #[doc = concat!("Keys of ", $lengths, " bytes; the type's own size is the longest.")]
        impl ::cipher::KeyInit for $cipher {
            fn new(key: &::cipher::Key<Self>) -> Self {
                $cipher::new(key).expect("a key of 32 bytes fits")
            }

            fn new_from_slice(key: &[u8]) -> Result<Self, ::cipher::InvalidLength> {
                $cipher::new(key).ok_or(::cipher::InvalidLength)
            }
        }

        impl ::cipher::BlockSizeUser for $cipher {
            type BlockSize = ::cipher::consts::U16;
        }

        impl ::cipher::BlockCipherEncrypt for $cipher {
            #[inline]
            fn encrypt_with_backend(
                &self,
                mode: impl ::cipher::BlockCipherEncClosure<BlockSize = Self::BlockSize>,
            ) {
                match self.kernel {
                    KernelChoice::Portable(kernel) => kernel.lend_to_encrypt(&self.keys, mode),
                    $(
                        #[cfg(target_arch = "x86_64")]
                        KernelChoice::$registers(kernel) => {
                            kernel.lend_to_encrypt(&self.keys, mode);
                        }
                    )*
                }
            }
        }

        impl ::cipher::BlockCipherDecrypt for $cipher {
            #[inline]
            fn decrypt_with_backend(
                &self,
                mode: impl ::cipher::BlockCipherDecClosure<BlockSize = Self::BlockSize>,
            ) {
                match self.kernel {
                    KernelChoice::Portable(kernel) => kernel.lend_to_decrypt(&self.keys, mode),
                    $(
                        #[cfg(target_arch = "x86_64")]
                        KernelChoice::$registers(kernel) => {
                            kernel.lend_to_decrypt(&self.keys, mode);
                        }
                    )*
                }
            }
        }

        impl $crate::cipher::many_blocks::ManyBlocks for $cipher {
            fn encrypt_piece(&self, piece: $crate::cipher::xts::Piece<'_, '_, '_>) {
                match self.kernel {
                    KernelChoice::Portable(kernel) => kernel.encrypt_piece(&self.keys, piece),
                    $(
                        #[cfg(target_arch = "x86_64")]
                        KernelChoice::$registers(kernel) => kernel.encrypt_piece(&self.keys, piece),
                    )*
                }
            }

            fn decrypt_piece(&self, piece: $crate::cipher::xts::Piece<'_, '_, '_>) {
                match self.kernel {
                    KernelChoice::Portable(kernel) => kernel.decrypt_piece(&self.keys, piece),
                    $(
                        #[cfg(target_arch = "x86_64")]
                        KernelChoice::$registers(kernel) => kernel.decrypt_piece(&self.keys, piece),
                    )*
                }
            }
        }

        /// Names the registers, not the keys.
        impl std::fmt::Debug for $cipher {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let registers = self.registers().name();
                write!(f, concat!(stringify!($cipher), "({})"), registers)
            }
        }

        impl ::zeroize::ZeroizeOnDrop for $cipher {}

        /// The kernel, on registers that the CPU has.
        #[derive(Clone, Copy)]
        enum KernelChoice {
            Portable(portable::Portable),
            $(
                #[cfg(target_arch = "x86_64")]
                $registers($token),
            )*
        }

        impl KernelChoice {
            fn of(registers: $crate::cipher::many_blocks::Registers) -> Option<Self> {
                use $crate::cipher::many_blocks::Registers;
                match registers {
                    Registers::Portable => Some(Self::Portable(portable::Portable)),
                    $(
                        #[cfg(target_arch = "x86_64")]
                        Registers::$registers => <$token>::here().map(Self::$registers),
                    )*
                    #[allow(unreachable_patterns)] // where the cipher has a kernel for each
                    _ => None,
                }
            }

            fn registers(self) -> $crate::cipher::many_blocks::Registers {
                use $crate::cipher::many_blocks::Registers;
                match self {
                    Self::Portable(_) => Registers::Portable,
                    $(
                        #[cfg(target_arch = "x86_64")]
                        Self::$registers(_) => Registers::$registers,
                    )*
                }
            }
        }
    };
}

/// Makes `$token`, a private unit struct of an x86 file, the kernel of CPUs that have the features
/// listed: it exists only where all were detected. Single blocks go to `$scalar`.
#[cfg(target_arch = "x86_64")]
macro_rules! kernel {
    (
        $token:ident: $keys:ty, $width:ty, $features:literal = [$($feature:tt),*],
        $encrypt:expr, $decrypt:expr, $scalar:expr
    ) => {
        impl $token {
            /// `None` where the CPU lacks an instruction that it takes.
            pub(in crate::cipher) fn here() -> Option<Self> {
                ($(std::is_x86_feature_detected!($feature))&&*).then_some(Self(()))
            }

            #[target_feature(enable = $features)]
            fn encrypt_here(
                keys: &$keys,
                blocks: InOutBuf<'_, '_, Block>,
                masks: Option<&[Block]>,
            ) {
                $encrypt(keys, blocks, masks);
            }

            #[target_feature(enable = $features)]
            fn encrypt_piece_here(self, keys: &$keys, piece: $crate::cipher::xts::Piece<'_, '_, '_>) {
                let keyed = $crate::cipher::many_blocks::Keyed { kernel: self, keys };
                keyed.encrypt_piece(piece);
            }

            #[target_feature(enable = $features)]
            fn decrypt_here(
                keys: &$keys,
                blocks: InOutBuf<'_, '_, Block>,
                masks: Option<&[Block]>,
            ) {
                $decrypt(keys, blocks, masks);
            }

            #[target_feature(enable = $features)]
            fn decrypt_piece_here(self, keys: &$keys, piece: $crate::cipher::xts::Piece<'_, '_, '_>) {
                let keyed = $crate::cipher::many_blocks::Keyed { kernel: self, keys };
                keyed.decrypt_piece(piece);
            }

            #[target_feature(enable = $features)]
            fn lend_encrypt_here<F>(self, keys: &$keys, mode: F)
            where
                F: ::cipher::BlockCipherEncClosure<BlockSize = ::cipher::consts::U16>,
            {
                mode.call(&$crate::cipher::many_blocks::Keyed { kernel: self, keys });
            }

            #[target_feature(enable = $features)]
            fn lend_decrypt_here<F>(self, keys: &$keys, mode: F)
            where
                F: ::cipher::BlockCipherDecClosure<BlockSize = ::cipher::consts::U16>,
            {
                mode.call(&$crate::cipher::many_blocks::Keyed { kernel: self, keys });
            }
        }

        impl Kernel for $token {
            type Keys = $keys;
            type Width = $width;

            #[inline(always)]
            fn encrypt(
                self,
                keys: &$keys,
                blocks: InOutBuf<'_, '_, Block>,
                masks: Option<&[Block]>,
            ) {
                // SAFETY: `self` exists, so `here` has detected the features.
                unsafe { Self::encrypt_here(keys, blocks, masks) }
            }

            #[inline(always)]
            fn decrypt(
                self,
                keys: &$keys,
                blocks: InOutBuf<'_, '_, Block>,
                masks: Option<&[Block]>,
            ) {
                // SAFETY: as in `encrypt`.
                unsafe { Self::decrypt_here(keys, blocks, masks) }
            }

            #[inline(always)]
            fn encrypt_one(self, keys: &$keys, block: InOut<'_, '_, Block>) {
                $scalar.encrypt_one(keys, block);
            }

            #[inline(always)]
            fn decrypt_one(self, keys: &$keys, block: InOut<'_, '_, Block>) {
                $scalar.decrypt_one(keys, block);
            }

            fn lend_to_encrypt<F>(self, keys: &$keys, mode: F)
            where
                F: ::cipher::BlockCipherEncClosure<BlockSize = ::cipher::consts::U16>,
            {
                // SAFETY: as in `encrypt`.
                unsafe { self.lend_encrypt_here(keys, mode) }
            }

            fn encrypt_piece(self, keys: &$keys, piece: $crate::cipher::xts::Piece<'_, '_, '_>) {
                // SAFETY: as in `encrypt`.
                unsafe { self.encrypt_piece_here(keys, piece) }
            }

            fn lend_to_decrypt<F>(self, keys: &$keys, mode: F)
            where
                F: ::cipher::BlockCipherDecClosure<BlockSize = ::cipher::consts::U16>,
            {
                // SAFETY: as in `encrypt`.
                unsafe { self.lend_decrypt_here(keys, mode) }
            }

            fn decrypt_piece(self, keys: &$keys, piece: $crate::cipher::xts::Piece<'_, '_, '_>) {
                // SAFETY: as in `encrypt`.
                unsafe { self.decrypt_piece_here(keys, piece) }
            }
        }
    };
}

/// An array of 4, 8 or 16, each element by its index, written out: a closure's code may be compiled
/// without the CPU features of the kernel that it stands in.
#[cfg(target_arch = "x86_64")]
macro_rules! unrolled {
    (4, $i:ident => $value:expr) => {
        unrolled!(@ $i => $value; 0 1 2 3)
    };
    (8, $i:ident => $value:expr) => {
        unrolled!(@ $i => $value; 0 1 2 3 4 5 6 7)
    };
    (16, $i:ident => $value:expr) => {
        unrolled!(@ $i => $value; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    (@ $i:ident => $value:expr; $($index:literal)*) => {
        [$({ let $i: usize = $index; $value }),*]
    };
}

pub(in crate::cipher) use block_cipher;
#[cfg(target_arch = "x86_64")]
pub(in crate::cipher) use kernel;
#[cfg(target_arch = "x86_64")]
pub(in crate::cipher) use unrolled;
