//! Serpent's S-boxes as circuits of three-input functions, which AVX-512 has as one instruction.
//!
//! Found by exhaustive search: seven functions where there is such a circuit (there is none of six
//! for any box), else eight. The tests compare them with the tables.

use super::x86::Zmm;

/// S-box `BOX`, 0 to 7.
#[inline(always)]
pub(super) fn forward<const BOX: usize>([a, b, c, d]: [Zmm; 4]) -> [Zmm; 4] {
    match BOX {
        0 => {
            let t1 = a.any3::<0x36>(b, d);
            let t2 = a.any3::<0x66>(c, t1);
            let t3 = a.any3::<0x78>(b, d);
            let t4 = a.any3::<0x2b>(b, d);
            let t5 = c.any3::<0x63>(t3, t4);
            let t6 = t2.any3::<0x69>(t4, t5);
            let t7 = t1.any3::<0xe1>(t5, t6);
            [t6, t5, t7, t2]
        }
        1 => {
            let t1 = a.any3::<0x59>(b, c);
            let t2 = a.any3::<0x66>(d, t1);
            let t3 = a.any3::<0x69>(b, t2);
            let t4 = a.any3::<0x27>(b, d);
            let t5 = t1.any3::<0xb8>(t3, t4);
            let t6 = t1.any3::<0x36>(t3, t4);
            let t7 = t1.any3::<0x6c>(t3, t4);
            [t5, t6, t2, t7]
        }
        2 => {
            let t1 = a.any3::<0x59>(b, c);
            let t2 = a.any3::<0x53>(c, d);
            let t3 = a.any3::<0x36>(b, d);
            let t4 = a.any3::<0x69>(t2, t3);
            let t5 = t1.any3::<0x4b>(t3, t4);
            let t6 = t1.any3::<0x9c>(t2, t3);
            let t7 = t2.any3::<0x78>(t3, t5);
            [t4, t5, t6, t7]
        }
        3 => {
            let t1 = b.any3::<0x6a>(c, d);
            let t2 = b.any3::<0x72>(c, t1);
            let t3 = a.any3::<0x38>(b, t1);
            let t4 = a.any3::<0xb4>(t2, t3);
            let t5 = c.any3::<0x96>(t1, t3);
            let t6 = a.any3::<0x36>(t2, t5);
            let t7 = a.any3::<0x36>(t1, t6);
            let t8 = c.any3::<0x6c>(t6, t7);
            [t4, t8, t5, t7]
        }
        4 => {
            let t1 = a.any3::<0x6c>(c, d);
            let t2 = a.any3::<0x69>(b, d);
            let t3 = d.any3::<0x39>(t1, t2);
            let t4 = a.any3::<0x65>(t2, t3);
            let t5 = b.any3::<0xd2>(t1, t3);
            let t6 = t1.any3::<0xc6>(t2, t4);
            let t7 = b.any3::<0x36>(t2, t4);
            [t4, t5, t6, t7]
        }
        5 => {
            let t1 = a.any3::<0x59>(b, c);
            let t2 = c.any3::<0x36>(d, t1);
            let t3 = b.any3::<0x78>(d, t1);
            let t4 = a.any3::<0x96>(t1, t3);
            let t5 = t2.any3::<0xe1>(t3, t4);
            let t6 = d.any3::<0x9c>(t1, t4);
            let t7 = t3.any3::<0x4b>(t5, t6);
            [t6, t4, t7, t5]
        }
        6 => {
            let t1 = a.any3::<0x6c>(c, d);
            let t2 = a.any3::<0x99>(b, t1);
            let t3 = a.any3::<0x39>(d, t2);
            let t4 = a.any3::<0x72>(d, t2);
            let t5 = b.any3::<0x93>(t3, t4);
            let t6 = t1.any3::<0x69>(t4, t5);
            let t7 = t1.any3::<0xb1>(t4, t5);
            [t5, t2, t6, t7]
        }
        7 => {
            let t1 = a.any3::<0x19>(b, c);
            let t2 = a.any3::<0x6c>(c, d);
            let t3 = a.any3::<0x63>(t1, t2);
            let t4 = a.any3::<0x1a>(b, d);
            let t5 = c.any3::<0x56>(t3, t4);
            let t6 = b.any3::<0x17>(t4, t5);
            let t7 = d.any3::<0x69>(t1, t6);
            let t8 = t2.any3::<0x6d>(t4, t6);
            [t7, t5, t8, t3]
        }
        _ => unreachable!("there are eight S-boxes"),
    }
}

/// What undoes S-box `BOX`.
#[inline(always)]
pub(super) fn inverse<const BOX: usize>([a, b, c, d]: [Zmm; 4]) -> [Zmm; 4] {
    match BOX {
        0 => {
            let t1 = a.any3::<0x36>(b, d);
            let t2 = a.any3::<0x4e>(b, d);
            let t3 = a.any3::<0x56>(b, c);
            let t4 = a.any3::<0x99>(d, t3);
            let t5 = t1.any3::<0xd2>(t2, t4);
            let t6 = t2.any3::<0x8d>(t3, t5);
            let t7 = t2.any3::<0x96>(t3, t5);
            [t5, t6, t4, t7]
        }
        1 => {
            let t1 = a.any3::<0x63>(b, d);
            let t2 = a.any3::<0x2d>(b, d);
            let t3 = a.any3::<0x99>(c, t2);
            let t4 = a.any3::<0x17>(b, d);
            let t5 = c.any3::<0xc9>(t1, t4);
            let t6 = t3.any3::<0x96>(t4, t5);
            let t7 = t2.any3::<0xd2>(t5, t6);
            [t5, t6, t7, t3]
        }
        2 => {
            let t1 = a.any3::<0x77>(b, d);
            let t2 = b.any3::<0x72>(c, d);
            let t3 = a.any3::<0x39>(d, t2);
            let t4 = c.any3::<0x96>(t1, t3);
            let t5 = a.any3::<0x69>(t2, t4);
            let t6 = t2.any3::<0x2d>(t3, t5);
            let t7 = t2.any3::<0x36>(t3, t5);
            [t7, t4, t5, t6]
        }
        3 => {
            let t1 = a.any3::<0x6a>(c, d);
            let t2 = a.any3::<0x56>(b, d);
            let t3 = a.any3::<0x4b>(b, c);
            let t4 = b.any3::<0x1e>(t1, t3);
            let t5 = c.any3::<0x69>(t1, t4);
            let t6 = t3.any3::<0xb4>(t4, t5);
            let t7 = t2.any3::<0x39>(t3, t5);
            let t8 = t1.any3::<0xb4>(t6, t7);
            [t5, t6, t8, t7]
        }
        4 => {
            let t1 = a.any3::<0x6d>(c, d);
            let t2 = b.any3::<0x2d>(c, t1);
            let t3 = a.any3::<0x76>(d, t2);
            let t4 = a.any3::<0x9a>(t1, t3);
            let t5 = a.any3::<0x93>(t2, t4);
            let t6 = c.any3::<0x69>(t3, t5);
            let t7 = t1.any3::<0x78>(t2, t4);
            [t5, t6, t7, t4]
        }
        5 => {
            let t1 = a.any3::<0x73>(b, c);
            let t2 = a.any3::<0x39>(c, d);
            let t3 = d.any3::<0x69>(t1, t2);
            let t4 = a.any3::<0x2d>(b, t3);
            let t5 = b.any3::<0x69>(t2, t4);
            let t6 = t2.any3::<0xb4>(t3, t4);
            let t7 = t4.any3::<0xd2>(t5, t6);
            [t5, t6, t7, t3]
        }
        6 => {
            let t1 = a.any3::<0x6c>(c, d);
            let t2 = a.any3::<0x2b>(c, d);
            let t3 = a.any3::<0x59>(c, d);
            let t4 = a.any3::<0x66>(b, t3);
            let t5 = t1.any3::<0x4b>(t2, t4);
            let t6 = b.any3::<0x69>(t2, t5);
            let t7 = t3.any3::<0x87>(t5, t6);
            [t6, t4, t7, t5]
        }
        7 => {
            let t1 = a.any3::<0x63>(b, c);
            let t2 = a.any3::<0x14>(b, d);
            let t3 = a.any3::<0x4e>(c, d);
            let t4 = a.any3::<0x1e>(c, t2);
            let t5 = d.any3::<0x96>(t1, t4);
            let t6 = b.any3::<0xa6>(t3, t4);
            let t7 = t3.any3::<0xd2>(t5, t6);
            let t8 = t1.any3::<0x78>(t3, t5);
            [t8, t5, t6, t7]
        }
        _ => unreachable!("there are eight S-boxes"),
    }
}
