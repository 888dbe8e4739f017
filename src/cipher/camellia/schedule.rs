//! Camellia's subkeys, in the order of use, for both directions. Source: RFC 3713, section 2.2.

use zeroize::{Zeroize, ZeroizeOnDrop};

use super::portable::f;

/// Everything that is made of a key.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub(super) struct Keys {
    pub(super) encrypt: Subkeys,
    pub(super) decrypt: Subkeys,
    #[cfg(target_arch = "x86_64")]
    pub(super) encrypt_bytes: SubkeyBytes,
    #[cfg(target_arch = "x86_64")]
    pub(super) decrypt_bytes: SubkeyBytes,
}

/// The subkeys of one direction.
#[derive(Clone, Default, Zeroize, ZeroizeOnDrop)]
pub(super) struct Subkeys {
    /// Added to the halves before the first round.
    pub(super) start: [u64; 2],
    /// Of six rounds each; three groups for keys of 128 bits, else four.
    pub(super) groups: [[u64; 6]; 4],
    pub(super) group_count: usize,
    /// For FL and its inverse before each group but the first.
    pub(super) between: [[u64; 2]; 3],
    /// Added to the halves after the last round.
    pub(super) end: [u64; 2],
}

/// Eight bytes of a subkey, each four times over, so that a vector register can be filled with one
/// while it is loaded.
#[cfg(target_arch = "x86_64")]
pub(super) type Bytes = [u32; 8];

/// The subkeys for rounds on bytes. A half has its next round's key added already when it comes
/// out of the round before, so the key costs no instruction of its own there.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Default, Zeroize, ZeroizeOnDrop)]
pub(super) struct SubkeyBytes {
    pub(super) start: [Bytes; 2],
    /// Of each six rounds, what is added: to the left half before; to the half that each round
    /// changes; to the right half after.
    pub(super) groups: [[Bytes; 8]; 4],
    pub(super) group_count: usize,
    pub(super) between: [[Bytes; 2]; 3],
    pub(super) end: [Bytes; 2],
}

/// RFC 3713, section 2.2, Sigma1 to Sigma6.
const SIGMA: [u64; 6] = [
    0xa09e_667f_3bcc_908b,
    0xb67a_e858_4caa_73b2,
    0xc6ef_372f_e94f_82be,
    0x54ff_53a5_f1d3_6f1c,
    0x10e5_27fa_de68_2d1d,
    0xb056_88c2_b3e6_c1fd,
];

impl Keys {
    /// `None` where the key isn't of 16, 24 or 32 bytes.
    pub(super) fn new(key: &[u8]) -> Option<Self> {
        let (left, rest) = key.split_at_checked(16)?;
        let mut left = u128::from_be_bytes(left.try_into().expect("16 bytes"));
        let mut right = match rest.len() {
            0 => 0,
            8 => {
                let half = u64::from_be_bytes(rest.try_into().expect("8 bytes"));
                u128::from(half) << 64 | u128::from(!half)
            }
            16 => u128::from_be_bytes(rest.try_into().expect("16 bytes")),
            _ => return None,
        };
        let mut a = two_rounds(left ^ right, SIGMA[0], SIGMA[1]) ^ left;
        a = two_rounds(a, SIGMA[2], SIGMA[3]);
        let mut b = two_rounds(a ^ right, SIGMA[4], SIGMA[5]);

        let encrypt = if rest.is_empty() {
            short(left, a)
        } else {
            long(left, right, a, b)
        };
        for secret in [&mut left, &mut right, &mut a, &mut b] {
            secret.zeroize();
        }
        let decrypt = encrypt.reversed();
        Some(Self {
            #[cfg(target_arch = "x86_64")]
            encrypt_bytes: SubkeyBytes::new(&encrypt),
            #[cfg(target_arch = "x86_64")]
            decrypt_bytes: SubkeyBytes::new(&decrypt),
            encrypt,
            decrypt,
        })
    }
}

fn two_rounds(block: u128, first: u64, second: u64) -> u128 {
    let [mut left, mut right] = halves(block, 0);
    right ^= f(left ^ first);
    left ^= f(right ^ second);
    u128::from(left) << 64 | u128::from(right)
}

/// Both halves of `key`, rotated left.
fn halves(key: u128, bits: u32) -> [u64; 2] {
    let key = key.rotate_left(bits);
    [(key >> 64) as u64, key as u64]
}

/// The subkeys of a key of 128 bits.
fn short(left: u128, a: u128) -> Subkeys {
    let groups = [
        six(halves(a, 0), halves(left, 15), halves(a, 15)),
        six(
            halves(left, 45),
            [halves(a, 45)[0], halves(left, 60)[1]],
            halves(a, 60),
        ),
        six(halves(left, 94), halves(a, 94), halves(left, 111)),
        [0; 6],
    ];
    Subkeys {
        start: halves(left, 0),
        groups,
        group_count: 3,
        between: [halves(a, 30), halves(left, 77), [0; 2]],
        end: halves(a, 111),
    }
}

/// The subkeys of a key of 192 or 256 bits.
fn long(left: u128, right: u128, a: u128, b: u128) -> Subkeys {
    let groups = [
        six(halves(b, 0), halves(right, 15), halves(a, 15)),
        six(halves(b, 30), halves(left, 45), halves(a, 45)),
        six(halves(right, 60), halves(b, 60), halves(left, 77)),
        six(halves(right, 94), halves(a, 94), halves(left, 111)),
    ];
    Subkeys {
        start: halves(left, 0),
        groups,
        group_count: 4,
        between: [halves(right, 30), halves(left, 60), halves(a, 77)],
        end: halves(b, 111),
    }
}

fn six([a, b]: [u64; 2], [c, d]: [u64; 2], [e, f]: [u64; 2]) -> [u64; 6] {
    [a, b, c, d, e, f]
}

impl Subkeys {
    /// Those of the other direction. Source: RFC 3713, section 2.3.3.
    fn reversed(&self) -> Self {
        let mut groups = self.groups;
        groups[..self.group_count].reverse();
        for group in &mut groups {
            group.reverse();
        }
        let mut between = self.between;
        between[..self.group_count - 1].reverse();
        for pair in &mut between {
            pair.reverse();
        }
        let reversed = Self {
            start: self.end,
            groups,
            group_count: self.group_count,
            between,
            end: self.start,
        };
        groups.zeroize();
        between.zeroize();
        reversed
    }
}

#[cfg(target_arch = "x86_64")]
impl SubkeyBytes {
    fn new(keys: &Subkeys) -> Self {
        Self {
            start: keys.start.map(bytes),
            groups: keys
                .groups
                .map(|[a, b, c, d, e, f]| [a, b, a ^ c, b ^ d, c ^ e, d ^ f, e, f].map(bytes)),
            group_count: keys.group_count,
            between: keys.between.map(|pair| pair.map(bytes)),
            end: keys.end.map(bytes),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn bytes(key: u64) -> Bytes {
    key.to_be_bytes().map(|byte| u32::from_ne_bytes([byte; 4]))
}
