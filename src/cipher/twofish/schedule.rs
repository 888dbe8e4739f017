//! Twofish's subkeys and key-dependent S-boxes. Source: Schneier and others, "Twofish: A 128-Bit
//! Block Cipher" (1998), section 4.3.

use zeroize::{Zeroize, ZeroizeOnDrop};

/// Everything that is made of a key. About 5 KiB.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub(super) struct Keys {
    /// Four words added before the rounds, four after, two in each round.
    pub(super) words: [u32; 40],
    /// The S-box of each byte of a word.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(super) sboxes: [[u8; 256]; 4],
    /// The same, with each entry multiplied by its column of the MDS matrix.
    pub(super) columns: [[u32; 256]; 4],
}

impl Keys {
    /// `None` where the key isn't of 16, 24 or 32 bytes.
    pub(super) fn new(key: &[u8]) -> Option<Self> {
        if !matches!(key.len(), 16 | 24 | 32) {
            return None;
        }
        let (pairs, _) = key.as_chunks::<8>();
        // The words of h's key, in the order that h takes them.
        let mut even = [[0; 4]; 4];
        let mut odd = [[0; 4]; 4];
        let mut sbox = [[0; 4]; 4];
        for (i, pair) in pairs.iter().enumerate() {
            let (words, _) = pair.as_chunks();
            [even[pairs.len() - 1 - i], odd[pairs.len() - 1 - i]] = [words[0], words[1]];
            sbox[i] = reed_solomon(pair);
        }
        let mut keys = Self {
            words: [0; 40],
            sboxes: [[0; 256]; 4],
            columns: [[0; 256]; 4],
        };
        for (i, words) in keys.words.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let a = h(2 * i as u8, &even[..pairs.len()]);
            let b = h(2 * i as u8 + 1, &odd[..pairs.len()]).rotate_left(8);
            let sum = a.wrapping_add(b);
            *words = [sum, sum.wrapping_add(b).rotate_left(9)];
        }
        for place in 0..4 {
            for x in 0..256 {
                let y = permuted(place, x as u8, &sbox[..pairs.len()]);
                keys.sboxes[place][x] = y;
                keys.columns[place][x] = mds_column(place, y);
            }
        }
        even.zeroize();
        odd.zeroize();
        sbox.zeroize();
        Some(keys)
    }
}

/// h of a word whose bytes are all `x`.
fn h(x: u8, key: &[[u8; 4]]) -> u32 {
    (0..4).fold(0, |sum, place| {
        sum ^ mds_column(place, permuted(place, x, key))
    })
}

/// Byte `place` of h before the MDS matrix: permutations with bytes of the key added in between.
fn permuted(place: usize, x: u8, key: &[[u8; 4]]) -> u8 {
    let mut order = ORDER[place][4 - key.len()..].iter();
    let mut permute = |x: u8| Q[*order.next().expect("one more than key words")][usize::from(x)];
    key.iter()
        .fold(permute(x), |x, word| permute(x ^ word[place]))
}

/// Which of the two permutations comes at each step of h, by byte; with fewer key words the first
/// steps are left out. Source: section 4.3.2, figure 2.
const ORDER: [[usize; 5]; 4] = [
    [1, 1, 0, 0, 1],
    [0, 1, 1, 0, 0],
    [0, 0, 0, 1, 1],
    [1, 0, 1, 1, 0],
];

/// The permutations q0 and q1. Source: section 4.3.5.
static Q: [[u8; 256]; 2] = [
    permutation([
        0x817d_6f32_0b59_eca4,
        0xecb8_1235_f4a6_709d,
        0xba5e_6d90_c8f3_2471,
        0xd7f4_126e_9b30_85ca,
    ]),
    permutation([
        0x28bd_f76e_3194_0ac5,
        0x1e2b_4c37_6da5_f908,
        0x4c75_169a_0ed8_2b3f,
        0xb951_c3de_647f_208a,
    ]),
];

/// A permutation of bytes of four permutations of nibbles, entry 0 in the highest four bits.
const fn permutation(tables: [u64; 4]) -> [u8; 256] {
    const fn nibble(table: u64, x: u8) -> u8 {
        (table >> (60 - 4 * x as u32)) as u8 & 15
    }
    /// The two nibbles mixed.
    const fn mix(a: u8, b: u8) -> (u8, u8) {
        let rotated = b >> 1 | b << 3;
        (a ^ b, (a ^ rotated ^ a << 3) & 15)
    }
    let mut permutation = [0; 256];
    let mut x = 0;
    while x < 256 {
        let (a, b) = mix(x as u8 >> 4, x as u8 & 15);
        let (a, b) = mix(nibble(tables[0], a), nibble(tables[1], b));
        permutation[x] = nibble(tables[3], b) << 4 | nibble(tables[2], a);
        x += 1;
    }
    permutation
}

/// MDS times the byte in row `place`, as a word of its column. Source: section 4.2.
fn mds_column(place: usize, x: u8) -> u32 {
    let x5b = multiply(x, 0x5b, MDS_POLYNOMIAL);
    let xef = multiply(x, 0xef, MDS_POLYNOMIAL);
    u32::from_le_bytes(match place {
        0 => [x, x5b, xef, xef],
        1 => [xef, xef, x5b, x],
        2 => [x5b, xef, x, xef],
        _ => [x5b, x, xef, x5b],
    })
}

/// A word of the S-boxes' key: eight bytes of the key times RS. Source: section 4.3.
fn reed_solomon(bytes: &[u8; 8]) -> [u8; 4] {
    RS.map(|row| {
        row.iter()
            .zip(bytes)
            .fold(0, |sum, (&a, &b)| sum ^ multiply(a, b, RS_POLYNOMIAL))
    })
}

const RS: [[u8; 8]; 4] = [
    [0x01, 0xa4, 0x55, 0x87, 0x5a, 0x58, 0xdb, 0x9e],
    [0xa4, 0x56, 0x82, 0xf3, 0x1e, 0xc6, 0x68, 0xe5],
    [0x02, 0xa1, 0xfc, 0xc1, 0x47, 0xae, 0x3d, 0x19],
    [0xa4, 0x55, 0x87, 0x5a, 0x58, 0xdb, 0x9e, 0x03],
];

/// x^8 + x^6 + x^3 + x^2 + 1, without its x^8.
const RS_POLYNOMIAL: u8 = 0x4d;

/// x^8 + x^6 + x^5 + x^3 + 1, without its x^8.
pub(super) const MDS_POLYNOMIAL: u8 = 0x69;

/// In GF(2^8) modulo `polynomial`.
pub(super) const fn multiply(mut a: u8, mut b: u8, polynomial: u8) -> u8 {
    let mut product = 0;
    let mut bit = 0;
    while bit < 8 {
        // Masks instead of branches: one of the factors is secret.
        product ^= a & (b & 1).wrapping_neg();
        a = a << 1 ^ polynomial & (a >> 7).wrapping_neg();
        b >>= 1;
        bit += 1;
    }
    product
}
