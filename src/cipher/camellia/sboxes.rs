//! Camellia's S-boxes, as affine maps around the inversion in the field of AES.
//!
//! The standard's first S-box inverts in GF(2^8) written over GF(2^4), between two linear maps.
//! All fields of 256 elements are the same up to a linear map, so it is also an inversion in the
//! field of AES, which CPUs have as an instruction, between two other affine maps. The other three
//! boxes are the first with its output or input rotated. Source: RFC 3713, section 2.4.1; Aoki and
//! others, "Specification of Camellia", section 4.4; the maps here are derived from these.

/// Eight rows of a matrix over GF(2): the row of output bit `i` is byte `7 - i`, as
/// `gf2p8affineqb` has it.
pub(super) type Matrix = u64;

/// Before the inversion, in boxes 1, 2 and 3.
pub(super) const IN: Matrix = 0x3e8a_d8b5_2d81_a4c5;
/// Before the inversion, in box 4: of the input rotated left by one.
pub(super) const IN_ROTATED: Matrix = 0x1f45_6cda_96c0_52e2;
/// Added after either.
pub(super) const IN_ADDED: u8 = 0x0b;

/// After the inversion, in boxes 1 and 4, and what is added then.
pub(super) const OUT: Matrix = 0xc0ba_5f8c_8dfc_1e04;
pub(super) const OUT_ADDED: u8 = 0x6e;
/// The same for box 2: rotated left by one.
pub(super) const OUT_2: Matrix = 0x04c0_ba5f_8c8d_fc1e;
pub(super) const OUT_2_ADDED: u8 = OUT_ADDED.rotate_left(1);
/// The same for box 3: rotated right by one.
pub(super) const OUT_3: Matrix = 0xba5f_8c8d_fc1e_04c0;
pub(super) const OUT_3_ADDED: u8 = OUT_ADDED.rotate_right(1);

/// The four boxes as tables.
pub(super) const TABLES: [[u8; 256]; 4] = [
    table(IN, OUT, OUT_ADDED),
    table(IN, OUT_2, OUT_2_ADDED),
    table(IN, OUT_3, OUT_3_ADDED),
    table(IN_ROTATED, OUT, OUT_ADDED),
];

const fn table(input: Matrix, output: Matrix, added: u8) -> [u8; 256] {
    let mut table = [0; 256];
    let mut x = 0;
    while x < 256 {
        table[x] = affine(output, inverse(affine(input, x as u8) ^ IN_ADDED)) ^ added;
        x += 1;
    }
    table
}

pub(super) const fn affine(matrix: Matrix, x: u8) -> u8 {
    let rows = matrix.to_be_bytes();
    let mut y = 0;
    let mut bit = 0;
    while bit < 8 {
        y |= ((rows[bit] & x).count_ones() as u8 & 1) << bit;
        bit += 1;
    }
    y
}

/// In GF(2^8) modulo x^8 + x^4 + x^3 + x + 1; zero for zero.
const fn inverse(x: u8) -> u8 {
    // x^254: the product of x^2, x^4, …, x^128.
    let mut power = x;
    let mut product = 1;
    let mut bit = 1;
    while bit < 8 {
        power = multiply(power, power);
        product = multiply(product, power);
        bit += 1;
    }
    product
}

const fn multiply(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 == 1 {
            product ^= a;
        }
        a = a << 1 ^ if a & 0x80 == 0 { 0 } else { 0x1b };
        b >>= 1;
    }
    product
}
