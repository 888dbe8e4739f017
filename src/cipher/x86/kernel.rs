//! The AES kernels: XTS and CBC over many sectors, generic in the register's width.
//!
//! Eight registers of data are in flight, which covers the latency of a round on every CPU. In
//! XTS the tweak is folded into the first and the last round key, so it costs no instruction of
//! its own there, and the tweaks of the next registers are made while the rounds run: times x^8 is
//! a byte shift and one carry-less multiplication. Where there are registers to spare, the next
//! sector's are made then, too: otherwise the AES unit waits for them at every sector's start.
#![allow(unsafe_code)] // Raw pointers to sectors whose bounds the caller has checked.

use super::vector::Vector;

/// Registers of data in flight.
const WIDE: usize = 8;

/// Sectors whose tweaks or IVs come in one call; a whole number of every kernel's batches.
pub(super) const SECTORS_MAX: usize = 64;

/// Tweaks or IVs of a call's sectors. Those past the sectors are scratch.
pub(super) type Ivs = [[u8; 16]; SECTORS_MAX];

/// Whole sectors, in one place or from one to another.
#[derive(Clone, Copy)]
pub(super) struct Sectors {
    pub(super) source: *const u8,
    pub(super) target: *mut u8,
    pub(super) sector_bytes: usize,
    /// At most [`SECTORS_MAX`].
    pub(super) count: usize,
}

/// Round keys, 16 bytes each, in the order of use.
pub(super) type RoundKeys = *const u8;

/// `ROUNDS` rounds over registers that already have the first round key in them. The last round
/// key is xored with `last` first.
///
/// # Safety
/// As of [`Vector`]; `keys` has `ROUNDS` + 1 round keys.
#[inline(always)]
unsafe fn rounds<V: Vector, const N: usize, const ROUNDS: usize, const ENCRYPT: bool>(
    data: &mut [V; N],
    keys: RoundKeys,
    last: &[V; N],
) {
    // SAFETY: as the caller promises.
    unsafe {
        for round in 1..ROUNDS {
            let key = V::splat(keys.add(16 * round));
            for data in data.iter_mut() {
                *data = if ENCRYPT {
                    data.enc(key)
                } else {
                    data.dec(key)
                };
            }
        }
        let key = V::splat(keys.add(16 * ROUNDS));
        for (data, last) in data.iter_mut().zip(last) {
            let key = key.xor(*last);
            *data = if ENCRYPT {
                data.enc_last(key)
            } else {
                data.dec_last(key)
            };
        }
    }
}

/// Encrypts each of the first `count` blocks by itself; those up to the next multiple of a batch
/// are scratch.
///
/// # Safety
/// As of [`Vector`]; `keys` has `ROUNDS` + 1 round keys.
#[inline(always)]
pub(super) unsafe fn ecb<V: Vector, const ROUNDS: usize>(
    keys: RoundKeys,
    blocks: &mut Ivs,
    count: usize,
) {
    const N: usize = 4;
    // SAFETY: a batch is at most 16 blocks, and SECTORS_MAX is a multiple of it.
    unsafe {
        let first_key = V::splat(keys);
        let zero = first_key.xor(first_key);
        let blocks = blocks.as_mut_ptr().cast::<u8>();
        let mut at = 0;
        while at < count {
            let mut data = [zero; N];
            for (i, data) in data.iter_mut().enumerate() {
                *data = V::load(blocks.add((at + i * V::BLOCKS) * 16)).xor(first_key);
            }
            rounds::<V, N, ROUNDS, true>(&mut data, keys, &[zero; N]);
            for (i, data) in data.iter().enumerate() {
                data.store(blocks.add((at + i * V::BLOCKS) * 16));
            }
            at += N * V::BLOCKS;
        }
    }
}

/// The tweaks of a sector's first pass, from its first one.
///
/// # Safety
/// As of [`Vector`].
#[inline(always)]
unsafe fn first_tweaks<V: Vector>(tweak: &[u8; 16]) -> [V; WIDE] {
    let chains = 8 / V::BLOCKS;
    // SAFETY: as the caller promises.
    unsafe {
        let first = V::splat(tweak.as_ptr());
        let mut tweaks = [first; WIDE];
        for i in 0..WIDE {
            tweaks[i] = if i < chains {
                first.spread((i * V::BLOCKS) as u32)
            } else {
                tweaks[i - chains].times_x8()
            };
        }
        tweaks
    }
}

/// The tweaks of the pass after that of `tweaks`, in the same sector.
///
/// # Safety
/// As of [`Vector`].
#[inline(always)]
unsafe fn next_tweaks<V: Vector>(tweaks: &[V; WIDE]) -> [V; WIDE] {
    let chains = 8 / V::BLOCKS;
    let mut next = *tweaks;
    for i in 0..WIDE {
        let before = if i < chains {
            WIDE - chains + i
        } else {
            i - chains
        };
        // SAFETY: as the caller promises.
        next[i] = unsafe { next[before].times_x8() };
    }
    next
}

/// XTS over whole sectors, each with its first tweak (already encrypted). Source: IEEE 1619-2018,
/// section 5.3.
///
/// # Safety
/// As of [`Vector`]; `keys` has `ROUNDS` + 1 round keys; the sectors may be read and written.
#[inline(always)]
pub(super) unsafe fn xts<V: Vector, const ROUNDS: usize, const ENCRYPT: bool>(
    keys: RoundKeys,
    firsts: &Ivs,
    sectors: Sectors,
) {
    let register_bytes = V::BLOCKS * 16;
    // SAFETY: a sector is a multiple of the 128, 256 or 512 bytes of WIDE registers, and all of a
    // pass is loaded before it is stored.
    unsafe {
        let first_key = V::splat(keys);
        let mut tweaks = first_tweaks::<V>(&firsts[0]);
        for n in 0..sectors.count {
            let source = sectors.source.add(n * sectors.sector_bytes);
            let target = sectors.target.add(n * sectors.sector_bytes);
            // After the last sector, some other one's: they aren't used.
            let following = &firsts[(n + 1) % SECTORS_MAX];
            let mut at = 0;
            loop {
                let mut data = [first_key; WIDE];
                for i in 0..WIDE {
                    data[i] =
                        V::load(source.add(at + i * register_bytes)).xor3(tweaks[i], first_key);
                }
                let is_last = at + WIDE * register_bytes >= sectors.sector_bytes;
                let mut next = tweaks;
                if V::SPARE && is_last {
                    next = first_tweaks(following);
                } else if V::SPARE {
                    next = next_tweaks(&tweaks);
                }
                rounds::<V, WIDE, ROUNDS, ENCRYPT>(&mut data, keys, &tweaks);
                for (i, data) in data.iter().enumerate() {
                    data.store(target.add(at + i * register_bytes));
                }
                at += WIDE * register_bytes;
                tweaks = next;
                if is_last {
                    break;
                }
                if !V::SPARE {
                    tweaks = next_tweaks(&tweaks);
                }
            }
            if !V::SPARE {
                tweaks = first_tweaks(following);
            }
        }
    }
}

/// CBC decryption, straight through each sector: parallel by nature. Source: NIST SP 800-38A.
///
/// # Safety
/// As of [`xts`], with the decryption's round keys.
#[inline(always)]
pub(super) unsafe fn cbc_decrypt<V: Vector, const ROUNDS: usize>(
    keys: RoundKeys,
    ivs: &Ivs,
    sectors: Sectors,
) {
    let register_bytes = V::BLOCKS * 16;
    // SAFETY: as in `xts`; ciphertext that is needed later is kept in registers.
    unsafe {
        let first_key = V::splat(keys);
        for (n, iv) in ivs.iter().take(sectors.count).enumerate() {
            let source = sectors.source.add(n * sectors.sector_bytes);
            let target = sectors.target.add(n * sectors.sector_bytes);
            let mut before = V::splat(iv.as_ptr());
            let mut at = 0;
            while at < sectors.sector_bytes {
                let mut data = [first_key; WIDE];
                let mut chained = [first_key; WIDE];
                for i in 0..WIDE {
                    let ciphertext = V::load(source.add(at + i * register_bytes));
                    chained[i] = ciphertext.behind(before);
                    before = ciphertext;
                    data[i] = ciphertext.xor(first_key);
                }
                rounds::<V, WIDE, ROUNDS, false>(&mut data, keys, &chained);
                for (i, data) in data.iter().enumerate() {
                    data.store(target.add(at + i * register_bytes));
                }
                at += WIDE * register_bytes;
            }
        }
    }
}

/// CBC encryption: serial in a sector and free across them, so each block of a register belongs to
/// another sector. Rows of a register are loaded whole and transposed: sectors of 4096 bytes all
/// fall into one set of the first-level cache, which would lose a line before its next block is
/// due.
///
/// # Safety
/// As of [`xts`].
#[inline(always)]
pub(super) unsafe fn cbc_encrypt<V: Vector, const ROUNDS: usize>(
    keys: RoundKeys,
    ivs: &Ivs,
    sectors: Sectors,
) {
    let mut first = 0;
    // SAFETY: as the caller promises; each call takes sectors that are there.
    unsafe {
        while first < sectors.count {
            let rest = sectors.count - first;
            let (group, lanes) = match rest.div_ceil(V::BLOCKS) {
                0 | 1 => (1, V::BLOCKS),
                2 | 3 => (2, 2 * V::BLOCKS),
                4..8 => (4, 4 * V::BLOCKS),
                _ if V::BLOCKS < 4 => (8, 8 * V::BLOCKS),
                _ => (4, 4 * V::BLOCKS),
            };
            match group {
                1 => cbc_encrypt_lanes::<V, ROUNDS, 1>(keys, ivs, sectors, first),
                2 => cbc_encrypt_lanes::<V, ROUNDS, 2>(keys, ivs, sectors, first),
                4 => cbc_encrypt_lanes::<V, ROUNDS, 4>(keys, ivs, sectors, first),
                _ => cbc_encrypt_lanes::<V, ROUNDS, 8>(keys, ivs, sectors, first),
            }
            first += lanes;
        }
    }
}

/// `N` registers of sectors side by side, from sector `first` on. Lanes past the last sector do
/// that one again: the same bytes to the same place.
#[inline(always)]
unsafe fn cbc_encrypt_lanes<V: Vector, const ROUNDS: usize, const N: usize>(
    keys: RoundKeys,
    ivs: &Ivs,
    sectors: Sectors,
    first: usize,
) {
    let sector_of = |lane: usize| (first + lane).min(sectors.count - 1);
    // SAFETY: `sector_of` names sectors that are there; a row is loaded before it is stored.
    unsafe {
        let first_key = V::splat(keys);
        let zero = first_key.xor(first_key);
        let mut chain = [zero; N];
        for (group, chain) in chain.iter_mut().enumerate() {
            let mut block = [[0u8; 16]; 4];
            for (lane, block) in block.iter_mut().enumerate().take(V::BLOCKS) {
                *block = ivs[sector_of(group * V::BLOCKS + lane)];
            }
            *chain = V::load(block.as_ptr().cast());
        }
        let mut at = 0;
        while at < sectors.sector_bytes {
            let mut squares = [[zero; 4]; N];
            for (group, square) in squares.iter_mut().enumerate() {
                for (lane, row) in square.iter_mut().enumerate().take(V::BLOCKS) {
                    let sector = sector_of(group * V::BLOCKS + lane) * sectors.sector_bytes;
                    *row = V::load(sectors.source.add(sector + at));
                }
                *square = V::transpose(*square);
            }
            for column in 0..V::BLOCKS {
                for (chain, square) in chain.iter_mut().zip(&squares) {
                    *chain = chain.xor3(square[column], first_key);
                }
                rounds::<V, N, ROUNDS, true>(&mut chain, keys, &[zero; N]);
                for (chain, square) in chain.iter().zip(&mut squares) {
                    square[column] = *chain;
                }
            }
            for (group, square) in squares.iter_mut().enumerate() {
                *square = V::transpose(*square);
                for (lane, row) in square.iter().enumerate().take(V::BLOCKS) {
                    let sector = sector_of(group * V::BLOCKS + lane) * sectors.sector_bytes;
                    row.store(sectors.target.add(sector + at));
                }
            }
            at += V::BLOCKS * 16;
        }
    }
}
