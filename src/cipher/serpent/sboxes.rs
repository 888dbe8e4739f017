//! Serpent's S-boxes as circuits of AND, OR, XOR and NOT, bit 0 of the box's input and output
//! first. Source: Osvik, "Speeding up Serpent" (AES3, 2000), in single assignment.

use super::rounds::Lanes;

/// S-box `BOX`, 0 to 7.
#[inline(always)]
pub(super) fn forward<const BOX: usize, W: Lanes>([a, b, c, d]: [W; 4]) -> [W; 4] {
    match BOX {
        0 => {
            let t1 = d ^ a;
            let t2 = b & t1;
            let t3 = b ^ c;
            let t4 = t2 ^ a;
            let t5 = a | t1;
            let t6 = t5 ^ t3;
            let t7 = t3 ^ t1;
            let t8 = t1 ^ c;
            let t9 = c | t4;
            let t10 = t9 ^ t7;
            let t11 = !t7;
            let t12 = t11 | t4;
            let t13 = t4 ^ t8;
            let t14 = t13 ^ t12;
            let t15 = t8 | t6;
            let t16 = t14 ^ t15;
            let t17 = t12 ^ t15;
            [t16, t17, t10, t6]
        }
        1 => {
            let t1 = !a;
            let t2 = !c;
            let t3 = t1 & b;
            let t4 = t2 ^ t3;
            let t5 = t3 | d;
            let t6 = d ^ t4;
            let t7 = b ^ t5;
            let t8 = t5 ^ t1;
            let t9 = t1 | t7;
            let t10 = t7 ^ t6;
            let t11 = t4 | t8;
            let t12 = t11 & t9;
            let t13 = t8 ^ t10;
            let t14 = t10 & t12;
            let t15 = t14 ^ t13;
            let t16 = t13 & t12;
            let t17 = t9 ^ t16;
            [t12, t17, t6, t15]
        }
        2 => {
            let t1 = a & c;
            let t2 = t1 ^ d;
            let t3 = c ^ b;
            let t4 = t3 ^ t2;
            let t5 = d | a;
            let t6 = t5 ^ b;
            let t7 = a ^ t4;
            let t8 = t6 | t7;
            let t9 = t8 ^ t2;
            let t10 = t2 & t6;
            let t11 = t7 ^ t10;
            let t12 = t6 ^ t9;
            let t13 = t12 ^ t11;
            let t14 = !t11;
            [t4, t9, t13, t14]
        }
        3 => {
            let t1 = a | d;
            let t2 = d ^ b;
            let t3 = b & a;
            let t4 = a ^ c;
            let t5 = c ^ t2;
            let t6 = t2 & t1;
            let t7 = t4 | t3;
            let t8 = t6 ^ t7;
            let t9 = t1 ^ t3;
            let t10 = t7 & t9;
            let t11 = t3 ^ t8;
            let t12 = t10 ^ t5;
            let t13 = t11 | t9;
            let t14 = t13 ^ t5;
            let t15 = t9 ^ t8;
            let t16 = t14 | t8;
            let t17 = t15 ^ t16;
            [t17, t14, t8, t12]
        }
        4 => {
            let t1 = b ^ d;
            let t2 = !d;
            let t3 = c ^ t2;
            let t4 = t2 ^ a;
            let t5 = t1 & t4;
            let t6 = t5 ^ t3;
            let t7 = t1 ^ t4;
            let t8 = a ^ t7;
            let t9 = t3 & t7;
            let t10 = t9 ^ t8;
            let t11 = t8 & t6;
            let t12 = t4 ^ t11;
            let t13 = t7 | t6;
            let t14 = t13 ^ t11;
            let t15 = t11 | t12;
            let t16 = t15 ^ t10;
            let t17 = t10 & t12;
            let t18 = !t16;
            let t19 = t14 ^ t17;
            [t6, t19, t18, t12]
        }
        5 => {
            let t1 = a ^ b;
            let t2 = b ^ d;
            let t3 = !d;
            let t4 = t2 & t1;
            let t5 = c ^ t3;
            let t6 = t4 ^ t5;
            let t7 = t5 | t2;
            let t8 = t2 ^ t3;
            let t9 = t3 & t6;
            let t10 = t9 ^ t1;
            let t11 = t8 ^ t6;
            let t12 = t11 ^ t7;
            let t13 = t7 ^ t1;
            let t14 = t1 & t10;
            let t15 = !t13;
            let t16 = t14 ^ t12;
            let t17 = t12 | t10;
            let t18 = t17 ^ t15;
            [t6, t10, t16, t18]
        }
        6 => {
            let t1 = !c;
            let t2 = d & a;
            let t3 = a ^ d;
            let t4 = t2 ^ t1;
            let t5 = t1 | d;
            let t6 = b ^ t4;
            let t7 = t5 ^ t3;
            let t8 = t3 | t6;
            let t9 = t7 ^ t6;
            let t10 = d ^ t8;
            let t11 = t8 | t4;
            let t12 = t11 ^ t9;
            let t13 = t10 ^ t4;
            let t14 = t13 ^ t12;
            let t15 = !t4;
            let t16 = t9 & t14;
            let t17 = t15 ^ t16;
            [t12, t6, t14, t17]
        }
        7 => {
            let t1 = b | c;
            let t2 = t1 ^ d;
            let t3 = b ^ c;
            let t4 = c ^ t2;
            let t5 = d | t3;
            let t6 = t5 & a;
            let t7 = t3 ^ t4;
            let t8 = t6 ^ t2;
            let t9 = t2 | t7;
            let t10 = t9 ^ a;
            let t11 = a | t7;
            let t12 = t11 ^ t4;
            let t13 = t10 ^ t7;
            let t14 = t4 ^ t13;
            let t15 = t13 & t12;
            let t16 = t15 ^ t7;
            let t17 = !t14;
            let t18 = t17 | t12;
            let t19 = t7 ^ t18;
            [t19, t8, t16, t12]
        }
        _ => unreachable!("there are eight S-boxes"),
    }
}

/// What undoes S-box `BOX`.
#[inline(always)]
pub(super) fn inverse<const BOX: usize, W: Lanes>([a, b, c, d]: [W; 4]) -> [W; 4] {
    match BOX {
        0 => {
            let t1 = !c;
            let t2 = b | a;
            let t3 = !b;
            let t4 = t2 ^ t1;
            let t5 = t1 | t3;
            let t6 = t4 ^ d;
            let t7 = a ^ t3;
            let t8 = t5 ^ t7;
            let t9 = t7 & d;
            let t10 = t3 ^ t9;
            let t11 = t9 | t6;
            let t12 = t11 ^ t8;
            let t13 = d ^ t10;
            let t14 = t8 ^ t6;
            let t15 = t13 ^ t12;
            let t16 = t15 ^ t6;
            let t17 = t14 & t16;
            let t18 = t10 ^ t17;
            [t12, t18, t6, t16]
        }
        1 => {
            let t1 = b ^ d;
            let t2 = d & t1;
            let t3 = b ^ c;
            let t4 = t2 ^ a;
            let t5 = a | t1;
            let t6 = c ^ t4;
            let t7 = t5 ^ t3;
            let t8 = t7 | t6;
            let t9 = t1 ^ t4;
            let t10 = t8 ^ t9;
            let t11 = t9 | t4;
            let t12 = t11 ^ t10;
            let t13 = !t3;
            let t14 = t13 ^ t12;
            let t15 = t12 | t10;
            let t16 = t15 ^ t10;
            let t17 = t16 | t14;
            let t18 = t4 ^ t17;
            [t14, t10, t18, t6]
        }
        2 => {
            let t1 = c ^ d;
            let t2 = d ^ a;
            let t3 = t2 & t1;
            let t4 = t3 ^ b;
            let t5 = b | t1;
            let t6 = t5 ^ t2;
            let t7 = t2 & t4;
            let t8 = t1 ^ t4;
            let t9 = t7 & a;
            let t10 = t9 ^ t8;
            let t11 = t8 & t6;
            let t12 = t11 | a;
            let t13 = !t4;
            let t14 = t12 ^ t13;
            let t15 = a ^ t13;
            let t16 = t15 & t6;
            let t17 = t13 ^ t10;
            let t18 = t17 ^ t16;
            [t6, t10, t14, t18]
        }
        3 => {
            let t1 = c ^ b;
            let t2 = a ^ t1;
            let t3 = c & t1;
            let t4 = t3 ^ t2;
            let t5 = t2 & b;
            let t6 = b ^ d;
            let t7 = d | t4;
            let t8 = t1 ^ t7;
            let t9 = t5 ^ t7;
            let t10 = t6 ^ t4;
            let t11 = t7 & t8;
            let t12 = t11 ^ t10;
            let t13 = t10 ^ t9;
            let t14 = t13 | t8;
            let t15 = t9 ^ t12;
            let t16 = t14 ^ t4;
            let t17 = t15 ^ t16;
            [t8, t16, t12, t17]
        }
        4 => {
            let t1 = c & d;
            let t2 = t1 ^ b;
            let t3 = b | d;
            let t4 = t3 & a;
            let t5 = c ^ t2;
            let t6 = t5 ^ t4;
            let t7 = t4 & t2;
            let t8 = !a;
            let t9 = d ^ t6;
            let t10 = t7 ^ t9;
            let t11 = t9 & t8;
            let t12 = t11 ^ t2;
            let t13 = t8 ^ t10;
            let t14 = t2 & t13;
            let t15 = t12 ^ t13;
            let t16 = t14 ^ t6;
            let t17 = t16 | t15;
            let t18 = t15 ^ t13;
            let t19 = t17 ^ t10;
            [t13, t18, t19, t6]
        }
        5 => {
            let t1 = !b;
            let t2 = c ^ t1;
            let t3 = d | a;
            let t4 = t3 ^ t2;
            let t5 = t2 | t1;
            let t6 = t5 & a;
            let t7 = d ^ t4;
            let t8 = t6 ^ t7;
            let t9 = t7 | a;
            let t10 = t9 ^ t1;
            let t11 = t1 & t8;
            let t12 = t11 ^ t4;
            let t13 = t10 ^ t8;
            let t14 = t4 & t13;
            let t15 = t13 ^ t12;
            let t16 = t14 ^ t15;
            let t17 = !t15;
            let t18 = t16 ^ a;
            [t12, t17, t18, t8]
        }
        6 => {
            let t1 = a ^ c;
            let t2 = c & t1;
            let t3 = c ^ d;
            let t4 = !t2;
            let t5 = d ^ b;
            let t6 = t4 ^ t5;
            let t7 = t3 | t1;
            let t8 = t1 ^ t6;
            let t9 = t5 ^ t7;
            let t10 = t7 ^ b;
            let t11 = b & t9;
            let t12 = t11 ^ t8;
            let t13 = t8 ^ t9;
            let t14 = t13 | t6;
            let t15 = t9 ^ t12;
            let t16 = t10 ^ t14;
            [t12, t6, t16, t15]
        }
        7 => {
            let t1 = c ^ a;
            let t2 = a & d;
            let t3 = c | d;
            let t4 = !t1;
            let t5 = d ^ b;
            let t6 = b | t2;
            let t7 = t2 ^ t4;
            let t8 = t4 & t3;
            let t9 = t5 & t3;
            let t10 = t6 ^ t8;
            let t11 = t8 ^ t7;
            let t12 = t7 | t11;
            let t13 = t3 ^ t10;
            let t14 = t12 ^ t9;
            let t15 = t9 ^ t13;
            let t16 = t13 | t14;
            let t17 = t15 ^ t11;
            let t18 = t16 ^ t11;
            [t17, t14, t10, t18]
        }
        _ => unreachable!("there are eight S-boxes"),
    }
}

/// The S-boxes as tables. Source: the proposal, appendix A.5.
#[cfg(test)]
pub(super) const TABLES: [[u8; 16]; 8] = [
    [3, 8, 15, 1, 10, 6, 5, 11, 14, 13, 4, 2, 7, 0, 9, 12],
    [15, 12, 2, 7, 9, 0, 5, 10, 1, 11, 14, 8, 6, 13, 3, 4],
    [8, 6, 7, 9, 3, 12, 10, 15, 13, 1, 14, 4, 0, 11, 5, 2],
    [0, 15, 11, 8, 12, 9, 6, 3, 13, 1, 2, 4, 10, 7, 5, 14],
    [1, 15, 8, 3, 12, 0, 11, 6, 2, 5, 4, 10, 9, 14, 7, 13],
    [15, 5, 2, 11, 4, 10, 9, 12, 0, 3, 14, 8, 13, 6, 7, 1],
    [7, 2, 12, 5, 8, 4, 6, 11, 14, 9, 1, 15, 13, 3, 10, 0],
    [1, 13, 15, 0, 14, 8, 2, 11, 7, 4, 12, 10, 9, 3, 5, 6],
];
