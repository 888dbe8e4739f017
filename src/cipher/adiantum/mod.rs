//! Adiantum: a whole sector is one block of a wide cipher, made of a hash (NH and Poly1305), one
//! AES block and an XChaCha stream. Constant time, as long as AES is.
//! Source: Crowley and Biggers, "Adiantum: length-preserving encryption for entry-level
//! processors", section 2; Linux `crypto/adiantum.c` is what dm-crypt calls `adiantum`.
//!
//! A sector's last 16 bytes go through AES, what is before them ("bulk") through the stream:
//! encryption adds a hash of tweak and bulk to the last block, encrypts it with AES, takes the
//! result as the nonce of the stream over the bulk, and subtracts a hash of tweak and new bulk.
//! Decryption is the same with AES the other way round, and the nonce taken before it.
//!
//! Some sectors go together: their nonces' subkeys are derived, and their last blocks pass AES,
//! in one go each.

mod chacha;
#[cfg(target_arch = "x86_64")]
mod chacha_x86;
mod kernel;
mod nh;
#[cfg(target_arch = "x86_64")]
mod nh_x86;
mod poly1305;
#[cfg(test)]
mod tests;

use zeroize::Zeroize;

use self::kernel::Kernel;
use self::nh::Digest;
use self::poly1305::{BLOCKS_MAX, Poly1305, Sum};
use super::block::{self, Blocks};
use super::cpu::CpuEngine;
use super::run::{Block, IvNumbers, Run, RunCipher};
use super::wide_iv::WideIv;

/// The one size of key it takes.
pub(super) const KEY_BYTES: usize = 32;

/// What is worked on together: half of a usual first-level cache.
const GROUP_BYTES: usize = 16 << 10;

/// Adiantum over XChaCha with `ROUNDS` rounds and AES-256.
pub(super) struct Adiantum<const ROUNDS: usize> {
    iv: WideIv,
    kernel: Kernel,
    stream: chacha::Key,
    block: Box<dyn Blocks>,
    tweak: Poly1305,
    bulk: Poly1305,
    nh: nh::Key,
}

#[derive(Clone, Copy)]
enum Direction {
    Encrypt,
    Decrypt,
}

impl<const ROUNDS: usize> Adiantum<ROUNDS> {
    pub(super) fn new(engine: CpuEngine, key: &[u8; KEY_BYTES], iv: WideIv) -> Self {
        Self::on(engine, Kernel::of(engine), key, iv)
    }

    fn on(engine: CpuEngine, kernel: Kernel, key: &[u8; KEY_BYTES], iv: WideIv) -> Self {
        let stream = chacha::key_words(key);
        let mut keys = [0; 32 + 16 + 16 + nh::KEY_BYTES];
        chacha::derive::<ROUNDS>(&stream, &mut keys);
        let (block, rest) = keys.split_first_chunk::<32>().expect("the first of four");
        let (tweak, rest) = rest.split_first_chunk::<16>().expect("the second of four");
        let (bulk, rest) = rest.split_first_chunk::<16>().expect("the third of four");
        let adiantum = Self {
            iv,
            kernel,
            stream,
            block: block::new(engine, "aes", block)
                .unwrap_or_else(|_| unreachable!("AES takes 32 bytes")),
            tweak: Poly1305::new(tweak),
            bulk: Poly1305::new(bulk),
            nh: nh::Key::new(rest.try_into().expect("the last of four")),
        };
        keys.zeroize();
        adiantum
    }

    fn run(&self, mut run: Run<'_, '_>, direction: Direction) {
        let header = self.header(run.sector_bytes);
        let group = (GROUP_BYTES / run.sector_bytes).min(self.kernel.sectors_max());
        while !run.data.is_empty() {
            let (now, rest) = run.split(group);
            run = rest;
            self.group(now, header, direction);
        }
    }

    /// Up to as many sectors as the kernel takes.
    fn group(&self, run: Run<'_, '_>, header: Sum, direction: Direction) {
        let (sectors, sector_bytes) = (run.sectors(), run.sector_bytes);
        let Run {
            mut data, numbers, ..
        } = run;
        let mut tweaks = [0_u128; chacha::SECTORS_MAX];
        let mut middles = [Block::default(); chacha::SECTORS_MAX];
        let mut nonces = [0_u128; chacha::SECTORS_MAX];
        let tweaks = &mut tweaks[..sectors];
        let middles = &mut middles[..sectors];
        let nonces = &mut nonces[..sectors];

        for (index, sector) in data.get_in().chunks_exact(sector_bytes).enumerate() {
            tweaks[index] = self.tweak_hash(header, numbers, index);
            let last = sector.last_chunk().expect("a sector is at least a block");
            let middle = u128::from_le_bytes(*last)
                .wrapping_add(tweaks[index])
                .wrapping_add(self.bulk_hash(sector));
            middles[index] = middle.to_le_bytes().into();
        }
        let taken = |middles: &[Block], nonces: &mut [u128]| {
            for (nonce, middle) in nonces.iter_mut().zip(middles) {
                *nonce = u128::from_le_bytes((*middle).into());
            }
        };
        match direction {
            Direction::Encrypt => {
                self.block.encrypt(bytes_of(middles));
                taken(middles, nonces);
            }
            Direction::Decrypt => {
                taken(middles, nonces);
                self.block.decrypt(bytes_of(middles));
            }
        }
        // The stream runs over the sectors' last blocks, too; these are written next.
        self.kernel
            .xor_stream::<ROUNDS>(&self.stream, nonces, data.reborrow(), sector_bytes);
        for (index, sector) in data.get_out().chunks_exact_mut(sector_bytes).enumerate() {
            let last = u128::from_le_bytes(middles[index].into())
                .wrapping_sub(tweaks[index])
                .wrapping_sub(self.bulk_hash(sector));
            *sector
                .last_chunk_mut()
                .expect("a sector is at least a block") = last.to_le_bytes();
        }
    }

    /// What of the hash of bulk length and tweak is the same for every sector: the hash of the
    /// length in bits and a tweak of zeros.
    fn header(&self, sector_bytes: usize) -> Sum {
        let bulk_bits = 8 * (sector_bytes - size_of::<Block>());
        let mut sum = Sum::default();
        self.tweak.add(&mut sum, bulk_bits as u128, 3);
        self.tweak.add(&mut sum, 0, 2);
        self.tweak.add(&mut sum, 0, 1);
        sum
    }

    #[inline(always)]
    fn tweak_hash(&self, header: Sum, numbers: IvNumbers, index: usize) -> u128 {
        let mut sum = header;
        let halves = self.iv.halves(numbers, index);
        for (half, from_end) in halves.into_iter().zip([2, 1]) {
            if half != 0 {
                self.tweak.add_to_zero(&mut sum, half, from_end);
            }
        }
        sum.reduced()
    }

    /// The hash of all but the last 16 bytes.
    #[inline(always)]
    fn bulk_hash(&self, sector: &[u8]) -> u128 {
        let mut digests = [Digest::default(); BLOCKS_MAX / 2];
        let chunks = sector.len().div_ceil(nh::CHUNK_BYTES);
        for (index, chunk) in sector.chunks(nh::CHUNK_BYTES).enumerate() {
            digests[index] = self.kernel.nh(&self.nh, chunk, index + 1 == chunks);
        }
        self.bulk.hash(digests[..chunks].as_flattened())
    }
}

fn bytes_of(blocks: &mut [Block]) -> &mut [u8] {
    Block::cast_slice_to_core_mut(blocks).as_flattened_mut()
}

impl<const ROUNDS: usize> RunCipher for Adiantum<ROUNDS> {
    fn encrypt(&self, run: Run<'_, '_>) {
        self.run(run, Direction::Encrypt);
    }

    fn decrypt(&self, run: Run<'_, '_>) {
        self.run(run, Direction::Decrypt);
    }
}

impl<const ROUNDS: usize> Drop for Adiantum<ROUNDS> {
    fn drop(&mut self) {
        self.stream.zeroize(); // The others wipe themselves.
    }
}
