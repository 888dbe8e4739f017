//! One SIMD register of AES blocks, in three widths.
//!
//! Everything here is `inline(always)` and compiled into the entry points of `kernel`, which carry
//! the `target_feature`s.
#![allow(unsafe_code)] // Loads, stores and AES instructions.
#![allow(clippy::undocumented_unsafe_blocks)] // Each rests on the one promise of `Vector`.

use std::arch::x86_64::*;

/// A register of 1, 2 or 4 AES blocks.
///
/// # Safety
/// All functions: the CPU has the instructions of this width. Those that take pointers: a whole
/// register (`splat`: a block) may be read or written there, at any alignment.
pub(super) trait Vector: Copy {
    /// Blocks in one register.
    const BLOCKS: usize;
    /// Whether the CPU has 32 such registers, not 16: room for one more set of tweaks.
    const SPARE: bool;

    unsafe fn load(from: *const u8) -> Self;
    unsafe fn store(self, to: *mut u8);
    /// The same block in every lane.
    unsafe fn splat(from: *const u8) -> Self;
    /// Exchanges rows and columns of the first `BLOCKS` registers: block `j` of register `i` and
    /// block `i` of register `j`.
    unsafe fn transpose(rows: [Self; 4]) -> [Self; 4];
    unsafe fn xor(self, other: Self) -> Self;
    unsafe fn xor3(self, b: Self, c: Self) -> Self;
    unsafe fn enc(self, key: Self) -> Self;
    unsafe fn enc_last(self, key: Self) -> Self;
    unsafe fn dec(self, key: Self) -> Self;
    unsafe fn dec_last(self, key: Self) -> Self;
    /// Each lane times x^8 in XTS's field.
    unsafe fn times_x8(self) -> Self;
    /// Lane i times x^(i+START): the tweaks of consecutive blocks from a splat first tweak.
    unsafe fn spread(self, start: u32) -> Self;
    /// The blocks one place later in a chain: the last of `before`, then all but the last here.
    unsafe fn behind(self, before: Self) -> Self;
}

/// The reduction polynomial of XTS, x^128 = x^7 + x^2 + x + 1.
const POLY: i64 = 0x87;

impl Vector for __m128i {
    const BLOCKS: usize = 1;
    const SPARE: bool = false;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        unsafe { _mm_loadu_si128(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        unsafe { _mm_storeu_si128(to.cast(), self) }
    }
    #[inline(always)]
    unsafe fn splat(from: *const u8) -> Self {
        unsafe { _mm_loadu_si128(from.cast()) }
    }
    #[inline(always)]
    unsafe fn transpose(rows: [Self; 4]) -> [Self; 4] {
        rows
    }
    #[inline(always)]
    unsafe fn xor(self, o: Self) -> Self {
        unsafe { _mm_xor_si128(self, o) }
    }
    #[inline(always)]
    unsafe fn xor3(self, b: Self, c: Self) -> Self {
        unsafe { _mm_xor_si128(self, _mm_xor_si128(b, c)) }
    }
    #[inline(always)]
    unsafe fn enc(self, k: Self) -> Self {
        unsafe { _mm_aesenc_si128(self, k) }
    }
    #[inline(always)]
    unsafe fn enc_last(self, k: Self) -> Self {
        unsafe { _mm_aesenclast_si128(self, k) }
    }
    #[inline(always)]
    unsafe fn dec(self, k: Self) -> Self {
        unsafe { _mm_aesdec_si128(self, k) }
    }
    #[inline(always)]
    unsafe fn dec_last(self, k: Self) -> Self {
        unsafe { _mm_aesdeclast_si128(self, k) }
    }
    #[inline(always)]
    unsafe fn times_x8(self) -> Self {
        unsafe {
            let carry = _mm_clmulepi64_si128(_mm_srli_si128(self, 15), _mm_set_epi64x(0, POLY), 0);
            _mm_xor_si128(_mm_slli_si128(self, 1), carry)
        }
    }
    #[inline(always)]
    unsafe fn spread(self, start: u32) -> Self {
        unsafe {
            let mut t = self;
            for _ in 0..start {
                let carries = _mm_srai_epi32(_mm_shuffle_epi32(t, 0x13), 31);
                let carries = _mm_and_si128(carries, _mm_set_epi32(0, 1, 0, POLY as i32));
                t = _mm_xor_si128(_mm_add_epi64(t, t), carries);
            }
            t
        }
    }
    #[inline(always)]
    unsafe fn behind(self, before: Self) -> Self {
        before
    }
}

impl Vector for __m256i {
    const BLOCKS: usize = 2;
    const SPARE: bool = false;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        unsafe { _mm256_storeu_si256(to.cast(), self) }
    }
    #[inline(always)]
    unsafe fn splat(from: *const u8) -> Self {
        unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(from.cast())) }
    }
    #[inline(always)]
    unsafe fn transpose([a, b, c, d]: [Self; 4]) -> [Self; 4] {
        unsafe {
            [
                _mm256_permute2x128_si256(a, b, 0x20),
                _mm256_permute2x128_si256(a, b, 0x31),
                c,
                d,
            ]
        }
    }
    #[inline(always)]
    unsafe fn xor(self, o: Self) -> Self {
        unsafe { _mm256_xor_si256(self, o) }
    }
    #[inline(always)]
    unsafe fn xor3(self, b: Self, c: Self) -> Self {
        unsafe { _mm256_xor_si256(self, _mm256_xor_si256(b, c)) }
    }
    #[inline(always)]
    unsafe fn enc(self, k: Self) -> Self {
        unsafe { _mm256_aesenc_epi128(self, k) }
    }
    #[inline(always)]
    unsafe fn enc_last(self, k: Self) -> Self {
        unsafe { _mm256_aesenclast_epi128(self, k) }
    }
    #[inline(always)]
    unsafe fn dec(self, k: Self) -> Self {
        unsafe { _mm256_aesdec_epi128(self, k) }
    }
    #[inline(always)]
    unsafe fn dec_last(self, k: Self) -> Self {
        unsafe { _mm256_aesdeclast_epi128(self, k) }
    }
    #[inline(always)]
    unsafe fn times_x8(self) -> Self {
        unsafe {
            let poly = _mm256_set1_epi64x(POLY);
            let carry = _mm256_clmulepi64_epi128(_mm256_srli_si256(self, 15), poly, 0);
            _mm256_xor_si256(_mm256_slli_si256(self, 1), carry)
        }
    }
    #[inline(always)]
    unsafe fn spread(self, start: u32) -> Self {
        unsafe {
            let s = i64::from(start);
            let up = _mm256_set_epi64x(s + 1, s + 1, s, s);
            let down = _mm256_sub_epi64(_mm256_set1_epi64x(64), up);
            let carries = _mm256_shuffle_epi32(_mm256_srlv_epi64(self, down), 0x4e);
            // The low qword's carry enters the high one; the high one's comes back reduced.
            let reduced = _mm256_clmulepi64_epi128(carries, _mm256_set1_epi64x(POLY), 0);
            let kept = _mm256_blend_epi32(reduced, carries, 0b1100_1100);
            _mm256_xor_si256(_mm256_sllv_epi64(self, up), kept)
        }
    }
    #[inline(always)]
    unsafe fn behind(self, before: Self) -> Self {
        unsafe { _mm256_permute2x128_si256(before, self, 0x21) }
    }
}

impl Vector for __m512i {
    const BLOCKS: usize = 4;
    const SPARE: bool = true;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        unsafe { _mm512_storeu_si512(to.cast(), self) }
    }
    #[inline(always)]
    unsafe fn splat(from: *const u8) -> Self {
        unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(from.cast())) }
    }
    #[inline(always)]
    unsafe fn transpose([a, b, c, d]: [Self; 4]) -> [Self; 4] {
        unsafe {
            let ab_low = _mm512_shuffle_i32x4(a, b, 0x44); // a0 a1 b0 b1
            let ab_high = _mm512_shuffle_i32x4(a, b, 0xee); // a2 a3 b2 b3
            let cd_low = _mm512_shuffle_i32x4(c, d, 0x44);
            let cd_high = _mm512_shuffle_i32x4(c, d, 0xee);
            [
                _mm512_shuffle_i32x4(ab_low, cd_low, 0x88),
                _mm512_shuffle_i32x4(ab_low, cd_low, 0xdd),
                _mm512_shuffle_i32x4(ab_high, cd_high, 0x88),
                _mm512_shuffle_i32x4(ab_high, cd_high, 0xdd),
            ]
        }
    }
    #[inline(always)]
    unsafe fn xor(self, o: Self) -> Self {
        unsafe { _mm512_xor_si512(self, o) }
    }
    #[inline(always)]
    unsafe fn xor3(self, b: Self, c: Self) -> Self {
        unsafe { _mm512_ternarylogic_epi64(self, b, c, 0x96) }
    }
    #[inline(always)]
    unsafe fn enc(self, k: Self) -> Self {
        unsafe { _mm512_aesenc_epi128(self, k) }
    }
    #[inline(always)]
    unsafe fn enc_last(self, k: Self) -> Self {
        unsafe { _mm512_aesenclast_epi128(self, k) }
    }
    #[inline(always)]
    unsafe fn dec(self, k: Self) -> Self {
        unsafe { _mm512_aesdec_epi128(self, k) }
    }
    #[inline(always)]
    unsafe fn dec_last(self, k: Self) -> Self {
        unsafe { _mm512_aesdeclast_epi128(self, k) }
    }
    #[inline(always)]
    unsafe fn times_x8(self) -> Self {
        unsafe {
            let poly = _mm512_set1_epi64(POLY);
            let carry = _mm512_clmulepi64_epi128(_mm512_bsrli_epi128(self, 15), poly, 0);
            _mm512_xor_si512(_mm512_bslli_epi128(self, 1), carry)
        }
    }
    #[inline(always)]
    unsafe fn spread(self, start: u32) -> Self {
        unsafe {
            let s = i64::from(start);
            let up = _mm512_set_epi64(s + 3, s + 3, s + 2, s + 2, s + 1, s + 1, s, s);
            let down = _mm512_sub_epi64(_mm512_set1_epi64(64), up);
            let carries = _mm512_shuffle_epi32(_mm512_srlv_epi64(self, down), 0x4e);
            let reduced = _mm512_clmulepi64_epi128(carries, _mm512_set1_epi64(POLY), 0);
            let kept = _mm512_mask_blend_epi64(0b1010_1010, reduced, carries);
            _mm512_xor_si512(_mm512_sllv_epi64(self, up), kept)
        }
    }
    #[inline(always)]
    unsafe fn behind(self, before: Self) -> Self {
        unsafe { _mm512_alignr_epi64(self, before, 6) }
    }
}
