//! Camellia's byte slices in AVX2 and AVX-512 registers: S-boxes by GFNI, or by AES-NI.

#![allow(unsafe_code)] // the CPU's vector instructions

use std::arch::x86_64::*;

use cipher::consts::{U32, U64};
use cipher::inout::{InOut, InOutBuf};

use super::portable::Portable;
use super::sboxes::*;
use super::schedule::{Bytes, Keys};
use super::slices::{Slice, through};
use crate::cipher::many_blocks::{Kernel, kernel, unrolled};
use crate::cipher::run::Block;

/// The kernel of CPUs with AVX2 and AES-NI. Only [`Self::here`] makes one.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

/// The kernel of CPUs with AVX2 and GFNI. Only [`Self::here`] makes one.
#[derive(Clone, Copy)]
pub(super) struct Avx2Gfni(());

/// The kernel of CPUs with AVX-512 and GFNI. Only [`Self::here`] makes one.
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

kernel!(
    Avx2: Keys, U32, "avx2,aes" = ["avx2", "aes"],
    |keys: &Keys, blocks, masks| through::<YmmAes>(&keys.encrypt_bytes, blocks, masks),
    |keys: &Keys, blocks, masks| through::<YmmAes>(&keys.decrypt_bytes, blocks, masks),
    Portable
);
kernel!(
    Avx2Gfni: Keys, U32, "avx2,gfni" = ["avx2", "gfni"],
    |keys: &Keys, blocks, masks| through::<Ymm>(&keys.encrypt_bytes, blocks, masks),
    |keys: &Keys, blocks, masks| through::<Ymm>(&keys.decrypt_bytes, blocks, masks),
    Portable
);
kernel!(
    Avx512: Keys, U64, "avx512f,avx512bw,gfni" = ["avx512f", "avx512bw", "gfni"],
    |keys: &Keys, blocks, masks| through::<Zmm>(&keys.encrypt_bytes, blocks, masks),
    |keys: &Keys, blocks, masks| through::<Zmm>(&keys.decrypt_bytes, blocks, masks),
    Portable
);

/// Instructions of the register types.
macro_rules! cpu {
    ($value:expr) => {
        // SAFETY: the register types are only named by the kernels above, whose values only exist
        // on CPUs with their instructions. Loads and stores need no alignment and stay in the
        // blocks, which is checked before.
        unsafe { $value }
    };
}

/// With GFNI.
#[derive(Clone, Copy)]
struct Zmm(__m512i);

/// With GFNI.
#[derive(Clone, Copy)]
struct Ymm(__m256i);

/// With AES-NI.
#[derive(Clone, Copy)]
struct YmmAes(__m256i);

impl Zmm {
    /// Any function of three bits: bit `4a + 2b + c` of `TABLE`, with `a` of `self`.
    #[inline(always)]
    fn any3<const TABLE: i32>(self, b: Self, c: Self) -> Self {
        Self(cpu!(_mm512_ternarylogic_epi32::<TABLE>(self.0, b.0, c.0)))
    }

    #[inline(always)]
    fn affine<const ADDED: i32>(self, matrix: Matrix) -> Self {
        Self(cpu!(_mm512_gf2p8affine_epi64_epi8::<ADDED>(
            self.0,
            _mm512_set1_epi64(matrix as i64)
        )))
    }

    #[inline(always)]
    fn affine_of_inverse<const ADDED: i32>(self, matrix: Matrix) -> Self {
        Self(cpu!(_mm512_gf2p8affineinv_epi64_epi8::<ADDED>(
            self.0,
            _mm512_set1_epi64(matrix as i64)
        )))
    }
}

impl Ymm {
    #[inline(always)]
    fn affine<const ADDED: i32>(self, matrix: Matrix) -> Self {
        Self(cpu!(_mm256_gf2p8affine_epi64_epi8::<ADDED>(
            self.0,
            _mm256_set1_epi64x(matrix as i64)
        )))
    }

    #[inline(always)]
    fn affine_of_inverse<const ADDED: i32>(self, matrix: Matrix) -> Self {
        Self(cpu!(_mm256_gf2p8affineinv_epi64_epi8::<ADDED>(
            self.0,
            _mm256_set1_epi64x(matrix as i64)
        )))
    }
}

/// What all registers do alike, each by its own instruction.
macro_rules! common {
    (
        $count:literal, $load:ident, $store:ident, $splat:ident, $low:ident, $high:ident,
        $xor:ident, $and:ident, $or:ident
    ) => {
        const COUNT: usize = $count;

        #[inline(always)]
        fn splat(bytes: u32) -> Self {
            Self(cpu!($splat(bytes as i32)))
        }

        #[inline(always)]
        fn load(blocks: &[Block], index: usize) -> Self {
            let source = blocks[index..][..$count / 16].as_ptr();
            Self(cpu!($load(source.cast())))
        }

        #[inline(always)]
        fn store(self, blocks: &mut [Block], index: usize) {
            let target = blocks[index..][..$count / 16].as_mut_ptr();
            cpu!($store(target.cast(), self.0));
        }

        #[inline(always)]
        fn interleave_low(self, other: Self) -> Self {
            Self(cpu!($low(self.0, other.0)))
        }

        #[inline(always)]
        fn interleave_high(self, other: Self) -> Self {
            Self(cpu!($high(self.0, other.0)))
        }

        #[inline(always)]
        fn xor(self, other: Self) -> Self {
            Self(cpu!($xor(self.0, other.0)))
        }

        #[inline(always)]
        fn and(self, other: Self) -> Self {
            Self(cpu!($and(self.0, other.0)))
        }

        #[inline(always)]
        fn or(self, other: Self) -> Self {
            Self(cpu!($or(self.0, other.0)))
        }
    };
}

/// S-boxes and shifts by GFNI.
macro_rules! by_gfni {
    () => {
        #[inline(always)]
        fn shift_left_1(self) -> Self {
            self.affine::<0>(0x0001_0204_0810_2040)
        }

        #[inline(always)]
        fn top_bit(self) -> Self {
            self.affine::<0>(0x8000_0000_0000_0000)
        }

        #[inline(always)]
        fn sbox<const BOX: usize>(self) -> Self {
            let x = self.affine::<{ IN_ADDED as i32 }>(if BOX == 3 { IN_ROTATED } else { IN });
            match BOX {
                1 => x.affine_of_inverse::<{ OUT_2_ADDED as i32 }>(OUT_2),
                2 => x.affine_of_inverse::<{ OUT_3_ADDED as i32 }>(OUT_3),
                _ => x.affine_of_inverse::<{ OUT_ADDED as i32 }>(OUT),
            }
        }
    };
}

impl Slice for Zmm {
    common!(
        64,
        _mm512_loadu_si512,
        _mm512_storeu_si512,
        _mm512_set1_epi32,
        _mm512_unpacklo_epi8,
        _mm512_unpackhi_epi8,
        _mm512_xor_si512,
        _mm512_and_si512,
        _mm512_or_si512
    );
    by_gfni!();

    #[inline(always)]
    fn xor3(self, b: Self, c: Self) -> Self {
        self.any3::<0x96>(b, c)
    }

    /// Sums of three at a time, the key among them: 22 instructions.
    #[inline(always)]
    fn add_p(half: &mut [Self; 8], [a, b, c, d, e, f, g, h]: [Self; 8], key: &Bytes) {
        let key: [Self; 8] = unrolled!(8, i => Self::splat(key[i]));
        let fgh = f.xor3(g, h);
        let egh = e.xor3(g, h);
        let efh = e.xor3(f, h);
        let efg = e.xor3(f, g);
        let ab = a.xor(b);
        let cd = c.xor(d);
        half[0] = half[0].xor3(fgh, key[0]).xor3(a, cd);
        half[1] = half[1].xor3(egh, key[1]).xor3(ab, d);
        half[2] = half[2].xor3(efh, key[2]).xor3(ab, c);
        half[3] = half[3].xor3(efg, key[3]).xor3(b, cd);
        half[4] = half[4].xor3(fgh, key[4]).xor3(a, b);
        half[5] = half[5].xor3(egh, key[5]).xor3(b, c);
        half[6] = half[6].xor3(efh, key[6]).xor3(c, d);
        half[7] = half[7].xor3(efg, key[7]).xor3(a, d);
    }
}

impl Slice for Ymm {
    common!(
        32,
        _mm256_loadu_si256,
        _mm256_storeu_si256,
        _mm256_set1_epi32,
        _mm256_unpacklo_epi8,
        _mm256_unpackhi_epi8,
        _mm256_xor_si256,
        _mm256_and_si256,
        _mm256_or_si256
    );
    by_gfni!();
}

impl Slice for YmmAes {
    common!(
        32,
        _mm256_loadu_si256,
        _mm256_storeu_si256,
        _mm256_set1_epi32,
        _mm256_unpacklo_epi8,
        _mm256_unpackhi_epi8,
        _mm256_xor_si256,
        _mm256_and_si256,
        _mm256_or_si256
    );

    #[inline(always)]
    fn shift_left_1(self) -> Self {
        Self(cpu!(_mm256_add_epi8(self.0, self.0)))
    }

    #[inline(always)]
    fn top_bit(self) -> Self {
        // Nothing is less than zero but a byte with its topmost bit; "yes" is minus one.
        Self(cpu!({
            let zero = _mm256_setzero_si256();
            _mm256_sub_epi8(zero, _mm256_cmpgt_epi8(zero, self.0))
        }))
    }

    #[inline(always)]
    fn sbox<const BOX: usize>(self) -> Self {
        let x = self.by_nibbles(if BOX == 3 { &BEFORE_ROTATED } else { &BEFORE });
        x.aes_sbox().by_nibbles(match BOX {
            1 => &AFTER_2,
            2 => &AFTER_3,
            _ => &AFTER,
        })
    }
}

impl YmmAes {
    /// The AES S-box of all bytes.
    #[inline(always)]
    fn aes_sbox(self) -> Self {
        Self(cpu!({
            // The instruction shifts the rows of the AES state, too; this undoes it before.
            let rows = _mm_setr_epi8(0, 13, 10, 7, 4, 1, 14, 11, 8, 5, 2, 15, 12, 9, 6, 3);
            let x = _mm256_shuffle_epi8(self.0, _mm256_broadcastsi128_si256(rows));
            let zero = _mm_setzero_si128();
            let low = _mm_aesenclast_si128(_mm256_castsi256_si128(x), zero);
            let high = _mm_aesenclast_si128(_mm256_extracti128_si256::<1>(x), zero);
            _mm256_set_m128i(high, low)
        }))
    }

    /// An affine map of all bytes.
    #[inline(always)]
    fn by_nibbles(self, map: &Nibbles) -> Self {
        Self(cpu!({
            let low_table = _mm_loadu_si128(map.low.as_ptr().cast());
            let high_table = _mm_loadu_si128(map.high.as_ptr().cast());
            let nibble = _mm256_set1_epi8(15);
            let low = _mm256_and_si256(self.0, nibble);
            let high = _mm256_and_si256(_mm256_srli_epi16::<4>(self.0), nibble);
            _mm256_xor_si256(
                _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(low_table), low),
                _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(high_table), high),
            )
        }))
    }
}

/// An affine map, as what it makes of either nibble.
struct Nibbles {
    low: [u8; 16],
    high: [u8; 16],
}

/// From Camellia's S-boxes to that of AES, which inverts and then maps by `AES`.
static BEFORE: Nibbles = nibbles(IN, IN_ADDED, None);
static BEFORE_ROTATED: Nibbles = nibbles(IN_ROTATED, IN_ADDED, None);
static AFTER: Nibbles = nibbles(OUT, OUT_ADDED, Some(AES_UNDONE));
static AFTER_2: Nibbles = nibbles(OUT_2, OUT_2_ADDED, Some(AES_UNDONE));
static AFTER_3: Nibbles = nibbles(OUT_3, OUT_3_ADDED, Some(AES_UNDONE));

/// Undoes the linear map of the AES S-box: the sum of a byte rotated left by 1, 3 and 6. The S-box
/// adds 0x63 besides. Source: FIPS 197, section 5.3.2.
const AES_UNDONE: Matrix = 0xa449_9225_4a94_2952;
const AES_ADDED: u8 = 0x63;

/// The map by `matrix` of `x`, or of what the AES S-box has made of `x`, plus `added`.
const fn nibbles(matrix: Matrix, added: u8, of_aes: Option<Matrix>) -> Nibbles {
    let mut map = Nibbles {
        low: [0; 16],
        high: [0; 16],
    };
    let mut x = 0;
    while x < 16 {
        let (low, high) = match of_aes {
            None => (x, x << 4),
            Some(undo) => (affine(undo, x ^ AES_ADDED), affine(undo, x << 4)),
        };
        map.low[x as usize] = affine(matrix, low) ^ added;
        map.high[x as usize] = affine(matrix, high);
        x += 1;
    }
    map
}
