//! What formats that are older than dm-crypt, or not Linux's, put around a mode: several keys used
//! in turn, and transformations of whole sectors. dm-crypt hides the latter behind names of IVs.

use cipher::inout::InOutBuf;
use zeroize::Zeroizing;

use super::block::Blocks;
use super::run::{IvNumbers, Run, RunCipher};

/// The sectors' size that lmk and tcw are made for, in bytes.
pub(super) const SECTOR_BYTES: usize = 512;

/// Sectors that are transformed while they are in cache.
const SECTORS_AT_ONCE: usize = 32;

/// Several keys, used in turn from sector to sector.
/// Source: dm-crypt.rst, `cipher[:keycount]-chainmode-ivmode`.
pub(super) struct MultiKey {
    /// A power of two of them.
    pub(super) ciphers: Vec<Box<dyn RunCipher>>,
}

impl MultiKey {
    fn each(&self, mut run: Run<'_, '_>, with: impl Fn(&dyn RunCipher, Run<'_, '_>)) {
        while !run.data.is_empty() {
            // The number in 512-byte units chooses, whatever the IV counts.
            let key = run.numbers.first_unit & (self.ciphers.len() as u64 - 1);
            let (sector, rest) = run.split(1);
            run = rest;
            with(&*self.ciphers[key as usize], sector);
        }
    }
}

impl RunCipher for MultiKey {
    fn encrypt(&self, run: Run<'_, '_>) {
        self.each(run, |cipher, sector| cipher.encrypt(sector));
    }

    fn decrypt(&self, run: Run<'_, '_>) {
        self.each(run, |cipher, sector| cipher.decrypt(sector));
    }
}

/// A cipher with a transformation of whole sectors before or behind it.
pub(super) struct Wrapped<W> {
    pub(super) inner: Box<dyn RunCipher>,
    pub(super) wrap: W,
}

/// A transformation of whole sectors of plaintext or ciphertext. What encryption does on one side,
/// decryption takes back there.
pub(super) trait Wrap: Send + Sync {
    /// Before encryption.
    fn seal_plain(&self, _sector: &mut [u8], _number: u64) {}
    /// After encryption.
    fn seal_cipher(&self, _sector: &mut [u8], _number: u64) {}
    /// Before decryption.
    fn open_cipher(&self, _sector: &mut [u8], _number: u64) {}
    /// After decryption.
    fn open_plain(&self, _sector: &mut [u8], _number: u64) {}
}

impl<W: Wrap> RunCipher for Wrapped<W> {
    fn encrypt(&self, run: Run<'_, '_>) {
        for_pieces(run, |data, sector_bytes, numbers| {
            for_sectors(data, sector_bytes, numbers, |s, n| {
                self.wrap.seal_plain(s, n)
            });
            self.inner.encrypt(again(data, sector_bytes, numbers));
            for_sectors(data, sector_bytes, numbers, |s, n| {
                self.wrap.seal_cipher(s, n)
            });
        });
    }

    fn decrypt(&self, run: Run<'_, '_>) {
        for_pieces(run, |data, sector_bytes, numbers| {
            for_sectors(data, sector_bytes, numbers, |s, n| {
                self.wrap.open_cipher(s, n)
            });
            self.inner.decrypt(again(data, sector_bytes, numbers));
            for_sectors(data, sector_bytes, numbers, |s, n| {
                self.wrap.open_plain(s, n)
            });
        });
    }
}

fn for_pieces(mut run: Run<'_, '_>, each: impl Fn(&mut [u8], usize, IvNumbers)) {
    while !run.data.is_empty() {
        let (piece, rest) = run.split(SECTORS_AT_ONCE);
        run = rest;
        let (sector_bytes, numbers) = (piece.sector_bytes, piece.numbers);
        each(piece.data.into_out_with_copied_in(), sector_bytes, numbers);
    }
}

fn for_sectors(
    data: &mut [u8],
    sector_bytes: usize,
    numbers: IvNumbers,
    each: impl Fn(&mut [u8], u64),
) {
    for (index, sector) in data.chunks_exact_mut(sector_bytes).enumerate() {
        each(sector, numbers.at(index));
    }
}

fn again(data: &mut [u8], sector_bytes: usize, numbers: IvNumbers) -> Run<'_, '_> {
    Run {
        data: InOutBuf::from(data),
        sector_bytes,
        numbers,
    }
}

/// Loop-AES's IV, around CBC with an IV of zeros: MD5 of all of a sector but its first 16 bytes,
/// added to the first block. Source: J. Ruusu on linux-crypto, "How does loop-aes IV computation
/// v2&3 work?" (2005), with the bit count in front of MD5's padding that loop-AES has.
pub(super) struct Lmk {
    /// Goes in front (loop-AES version 3): the 65th key's first 16 bytes, and zeros.
    pub(super) seed: Option<Zeroizing<[u8; 64]>>,
    /// A block of the cipher.
    pub(super) iv_bytes: usize,
}

impl Lmk {
    fn add_iv(&self, sector: &mut [u8], number: u64) {
        let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
        if let Some(seed) = &self.seed {
            md5::block_api::compress(&mut state, &[**seed]);
        }
        // 496 bytes of the sector and 16 that end in the number of bits: whole blocks of MD5, and
        // no padding after them.
        let mut message = Zeroizing::new([0; SECTOR_BYTES]);
        let (data, end) = message.split_at_mut(SECTOR_BYTES - 16);
        data.copy_from_slice(&sector[16..]);
        let number = (number & (u64::MAX >> 8)) | 0x80 << 56;
        end[..8].copy_from_slice(&number.to_le_bytes());
        end[8..12].copy_from_slice(&4024_u32.to_le_bytes());
        let (blocks, _) = message.as_chunks();
        md5::block_api::compress(&mut state, blocks);
        let iv = state.map(u32::to_le_bytes);
        xor(&mut sector[..self.iv_bytes], iv.as_flattened());
    }
}

impl Wrap for Lmk {
    fn seal_plain(&self, sector: &mut [u8], number: u64) {
        self.add_iv(sector, number);
    }

    fn open_plain(&self, sector: &mut [u8], number: u64) {
        self.add_iv(sector, number);
    }
}

/// TrueCrypt's whitening of CBC volumes: the same 8 bytes over all the ciphertext of a sector,
/// from a part of the key and the number. Source: TrueCrypt 4.0's documentation, "Whitening".
pub(super) struct Tcw {
    pub(super) whitening: Zeroizing<[u8; 16]>,
}

impl Tcw {
    fn whiten(&self, sector: &mut [u8], number: u64) {
        let mut words = [0; 4];
        let number = number.to_le_bytes();
        let halves = number.iter().cycle();
        let mixed: [u8; 16] = {
            let mut mixed = *self.whitening;
            mixed.iter_mut().zip(halves).for_each(|(a, b)| *a ^= b);
            mixed
        };
        for (word, bytes) in words.iter_mut().zip(mixed.as_chunks::<4>().0) {
            *word = crc32(*bytes);
        }
        let first = (words[0] ^ words[3]).to_le_bytes();
        let second = (words[1] ^ words[2]).to_le_bytes();
        for eight in sector.chunks_exact_mut(8) {
            xor(&mut eight[..4], &first);
            xor(&mut eight[4..], &second);
        }
    }
}

impl Wrap for Tcw {
    fn seal_cipher(&self, sector: &mut [u8], number: u64) {
        self.whiten(sector, number);
    }

    fn open_cipher(&self, sector: &mut [u8], number: u64) {
        self.whiten(sector, number);
    }
}

/// CRC-32 (IEEE 802.3) that begins with 0 and isn't inverted at the end. By shifts: the bytes are
/// a part of the key, and a table would tell of them.
fn crc32(bytes: [u8; 4]) -> u32 {
    (0..32).fold(u32::from_le_bytes(bytes), |crc, _| {
        (crc >> 1) ^ ((crc & 1) * 0xedb8_8320)
    })
}

/// BitLocker's diffuser, on the plaintext.
/// Source: N. Ferguson, "AES-CBC + Elephant diffuser" (2006), sections 4.2 to 4.5.
pub(super) struct Elephant {
    /// AES with the sector key.
    pub(super) sector_key: Box<dyn Blocks>,
}

impl Elephant {
    /// Adds what the sector's place makes of the key, 32 bytes over and over.
    fn add_key(&self, sector: &mut [u8], number: u64) {
        let offset_bytes = number.wrapping_mul(sector.len() as u64);
        let mut key = Zeroizing::new([0; 32]);
        key[..8].copy_from_slice(&offset_bytes.to_le_bytes());
        key[16..24].copy_from_slice(&offset_bytes.to_le_bytes());
        key[31] = 0x80;
        self.sector_key.encrypt(&mut *key);
        for part in sector.chunks_exact_mut(32) {
            xor(part, &*key);
        }
    }
}

impl Wrap for Elephant {
    fn seal_plain(&self, sector: &mut [u8], number: u64) {
        self.add_key(sector, number);
        with_words(sector, |words| {
            let n = words.len();
            for i in (0..A_CYCLES * n).rev() {
                words[i % n] = words[i % n].wrapping_sub(a_term(words, i));
            }
            for i in (0..B_CYCLES * n).rev() {
                words[i % n] = words[i % n].wrapping_sub(b_term(words, i));
            }
        });
    }

    fn open_plain(&self, sector: &mut [u8], number: u64) {
        with_words(sector, |words| {
            let n = words.len();
            for i in 0..B_CYCLES * n {
                words[i % n] = words[i % n].wrapping_add(b_term(words, i));
            }
            for i in 0..A_CYCLES * n {
                words[i % n] = words[i % n].wrapping_add(a_term(words, i));
            }
        });
        self.add_key(sector, number);
    }
}

const A_CYCLES: usize = 5;
const B_CYCLES: usize = 3;
const A_ROTATIONS: [u32; 4] = [9, 0, 13, 0];
const B_ROTATIONS: [u32; 4] = [0, 10, 0, 25];

/// What diffuser A adds to word `i` of `words`, which go round.
fn a_term(words: &[u32], i: usize) -> u32 {
    let n = words.len();
    words[(i + n - 2) % n] ^ words[(i + n - 5) % n].rotate_left(A_ROTATIONS[i % 4])
}

/// What diffuser B adds.
fn b_term(words: &[u32], i: usize) -> u32 {
    let n = words.len();
    words[(i + 2) % n] ^ words[(i + 5) % n].rotate_left(B_ROTATIONS[i % 4])
}

/// A sector as little-endian words.
fn with_words(sector: &mut [u8], work: impl FnOnce(&mut [u32])) {
    let mut words = Zeroizing::new([0_u32; 1024]);
    let words = &mut words[..sector.len() / 4];
    for (word, bytes) in words.iter_mut().zip(sector.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    work(words);
    for (word, bytes) in words.iter().zip(sector.as_chunks_mut().0) {
        *bytes = word.to_le_bytes();
    }
}

fn xor(a: &mut [u8], b: &[u8]) {
    for (a, b) in a.iter_mut().zip(b) {
        *a ^= b;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of CRC-32 is for "123456789"; of four bytes, from 0 and not inverted, by
    /// `zlib.crc32(b"abcd", 0xffffffff) ^ 0xffffffff` in Python.
    #[test]
    fn crc_of_four_bytes() {
        assert_eq!(crc32(*b"abcd"), CRC_OF_ABCD);
    }
    const CRC_OF_ABCD: u32 = 0xccc6120d;

    #[test]
    fn wraps_are_taken_back() {
        let wraps: [&dyn Wrap; 3] = [
            &Lmk {
                seed: Some(Zeroizing::new([3; 64])),
                iv_bytes: 16,
            },
            &Tcw {
                whitening: Zeroizing::new(*b"0123456789abcdef"),
            },
            &Elephant {
                sector_key: super::super::block::new(
                    super::super::CpuEngine::in_use(),
                    "aes",
                    &[5; 16],
                )
                .unwrap_or_else(|_| panic!("a key for AES")),
            },
        ];
        let plain: [u8; SECTOR_BYTES] = std::array::from_fn(|i| (i * 7) as u8);
        for wrap in wraps {
            let mut sector = plain;
            wrap.seal_plain(&mut sector, 77);
            wrap.seal_cipher(&mut sector, 77);
            assert_ne!(sector, plain);
            wrap.open_cipher(&mut sector, 77);
            wrap.open_plain(&mut sector, 77);
            assert_eq!(sector, plain);
        }
    }
}
