//! HCTR2 with AES: a whole sector is one block of a wide cipher, made of a hash (POLYVAL), one AES
//! block and a stream (XCTR, AES in a counter mode). Constant time, as long as AES and POLYVAL are.
//! Source: Crowley, Huckleberry and Biggers, "Length-preserving encryption with HCTR2", section 2.
//!
//! A sector's first 16 bytes go through AES, what is behind them ("bulk") through the stream:
//! encryption adds a hash of tweak and bulk to the first block, encrypts it with AES, takes the sum
//! of that block before and after and a constant as the nonce of the stream over the bulk, and adds
//! a hash of tweak and new bulk. Decryption is the same with AES the other way round.

use cipher::consts::U16;
use cipher::{BlockCipherDecrypt, BlockCipherEncrypt};
use polyval::Polyval;
use polyval::universal_hash::UniversalHash;
use zeroize::Zeroize;

use super::batch::{encrypt_blocks, xor};
use super::run::{Block, Run, RunCipher};
use super::wide_iv::WideIv;

/// Sectors whose first blocks pass AES together.
const SECTORS_AT_ONCE: usize = 16;

/// Blocks of the stream made at a time: 2 KiB on the stack, two batches of the widest backend.
const STREAM_BLOCKS: usize = 128;

/// HCTR2 with block cipher `C`.
pub(super) struct Hctr2<C> {
    cipher: C,
    iv: WideIv,
    /// The hash after its first block, which holds the tweak's length.
    hash: Polyval,
    /// The constant in every nonce.
    nonce_mask: Block,
}

#[derive(Clone, Copy)]
enum Direction {
    Encrypt,
    Decrypt,
}

impl<C: BlockCipherEncrypt<BlockSize = U16>> Hctr2<C> {
    pub(super) fn new(cipher: C, iv: WideIv) -> Self {
        let mut keys = [0_u128, 1].map(|number| Block::from(number.to_le_bytes()));
        encrypt_blocks(&cipher, &mut keys);
        let [hash_key, nonce_mask] = &mut keys;
        let mut hash = Polyval::new(hash_key);
        // Twice the tweak's length in bits, and 2 for a bulk that is whole blocks.
        let length = 2 * 256 + 2_u128;
        hash.update(&[length.to_le_bytes().into()]);
        hash_key.zeroize();
        Self {
            cipher,
            iv,
            hash,
            nonce_mask: *nonce_mask,
        }
    }

    fn bulk_hash(&self, tweaked: &Polyval, bulk: &[Block]) -> Block {
        let mut hash = tweaked.clone();
        hash.update(bulk);
        hash.finalize()
    }
}

impl<C> Hctr2<C>
where
    C: BlockCipherEncrypt<BlockSize = U16> + BlockCipherDecrypt,
{
    /// Up to [`SECTORS_AT_ONCE`] sectors.
    fn group(&self, run: Run<'_, '_>, direction: Direction) {
        let (numbers, sectors) = (run.numbers, run.sectors());
        let sector_blocks = run.sector_blocks();
        let mut data = run.into_blocks();
        let mut before = [Block::default(); SECTORS_AT_ONCE];
        let before = &mut before[..sectors];
        let tweaked: [Polyval; SECTORS_AT_ONCE] = std::array::from_fn(|index| {
            let mut hash = self.hash.clone();
            let tweak = self.iv.halves(numbers, index);
            hash.update(&tweak.map(|half| Block::from(half.to_le_bytes())));
            hash
        });

        for (index, sector) in data.get_in().chunks_exact(sector_blocks).enumerate() {
            before[index] = sector[0];
            let hash = self.bulk_hash(&tweaked[index], &sector[1..]);
            xor(&mut before[index..=index], &[hash]);
        }
        let mut after = [Block::default(); SECTORS_AT_ONCE];
        let after = &mut after[..sectors];
        after.copy_from_slice(before);
        match direction {
            Direction::Encrypt => encrypt_blocks(&self.cipher, after),
            Direction::Decrypt => self.cipher.decrypt_blocks(after),
        }
        let nonces = before;
        xor(nonces, after);
        for nonce in &mut *nonces {
            xor(std::slice::from_mut(nonce), &[self.nonce_mask]);
        }

        // The stream's block `i` belongs to the sector's block `i`, from 1; what block 0 gets is
        // written over below.
        let mut stream = [Block::default(); STREAM_BLOCKS];
        let mut first = 0;
        let mut rest = data.reborrow();
        while !rest.is_empty() {
            let count = rest.len().min(STREAM_BLOCKS);
            let (mut piece, more) = rest.split_at(count);
            for (index, block) in stream[..count].iter_mut().enumerate() {
                let at = first + index;
                let nonce = u128::from_le_bytes(nonces[at / sector_blocks].into());
                *block = (nonce ^ (at % sector_blocks) as u128).to_le_bytes().into();
            }
            encrypt_blocks(&self.cipher, &mut stream[..count]);
            xor(&mut stream[..count], piece.get_in());
            piece.get_out().copy_from_slice(&stream[..count]);
            first += count;
            rest = more;
        }

        for (index, sector) in data.get_out().chunks_exact_mut(sector_blocks).enumerate() {
            let hash = self.bulk_hash(&tweaked[index], &sector[1..]);
            xor(&mut after[index..=index], &[hash]);
            sector[0] = after[index];
        }
    }

    fn for_groups(&self, mut run: Run<'_, '_>, direction: Direction) {
        while !run.data.is_empty() {
            let (group, rest) = run.split(SECTORS_AT_ONCE);
            run = rest;
            self.group(group, direction);
        }
    }
}

impl<C> RunCipher for Hctr2<C>
where
    C: BlockCipherEncrypt<BlockSize = U16> + BlockCipherDecrypt + Send + Sync,
{
    fn encrypt(&self, run: Run<'_, '_>) {
        self.for_groups(run, Direction::Encrypt);
    }

    fn decrypt(&self, run: Run<'_, '_>) {
        self.for_groups(run, Direction::Decrypt);
    }
}

impl<C> Drop for Hctr2<C> {
    fn drop(&mut self) {
        self.nonce_mask.zeroize(); // The others wipe themselves.
    }
}

#[cfg(test)]
mod tests {
    use aes::{Aes128, Aes192, Aes256};
    use cipher::KeyInit;
    use cipher::inout::InOutBuf;

    use super::super::run::IvNumbers;
    use super::*;

    const VECTORS: &str = include_str!("../../tests/vectors/hctr2.txt");

    fn run<'inp, 'out>(data: InOutBuf<'inp, 'out, u8>, sector_bytes: usize) -> Run<'inp, 'out> {
        let numbers = IvNumbers {
            first_unit: 0,
            sector_units: 1,
            large_sectors: false,
        };
        Run {
            data,
            sector_bytes,
            numbers,
        }
    }

    fn check<C>(key: &[u8], tweak: &[u8], plain: &[u8], sealed: &[u8])
    where
        C: KeyInit + BlockCipherEncrypt<BlockSize = U16> + BlockCipherDecrypt + Send + Sync,
    {
        let half = |at: usize| u128::from_le_bytes(tweak[at..at + 16].try_into().expect("a half"));
        let cipher = C::new_from_slice(key).expect("a key of its length");
        let cipher = Hctr2::new(cipher, WideIv::Fixed([half(0), half(16)]));
        // A vector's message is shorter than a sector, which makes no difference to the code. Alone,
        // and as several sectors of a run.
        for count in [1, 2, 16, 17] {
            let mut data = plain.repeat(count);
            cipher.encrypt(run(data.as_mut_slice().into(), plain.len()));
            assert!(data == sealed.repeat(count), "{count} encrypted");
            let mut back = vec![0xee; data.len()];
            let pair = InOutBuf::new(&data, &mut back).expect("one length");
            cipher.decrypt(run(pair, plain.len()));
            assert!(back == plain.repeat(count), "{count} decrypted");
        }
    }

    #[test]
    fn the_authors_vectors() {
        let mut checked = 0;
        for line in VECTORS.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split(' ').collect();
            let bytes = |index: usize| hex::decode(fields[index]).expect("hexadecimal");
            let check = match fields[0] {
                "aes128" => check::<Aes128>,
                "aes192" => check::<Aes192>,
                "aes256" => check::<Aes256>,
                other => unreachable!("{other}"),
            };
            check(&bytes(1), &bytes(2), &bytes(3), &bytes(4));
            checked += 1;
        }
        assert_eq!(checked, 32, "all vectors are there");
    }
}
