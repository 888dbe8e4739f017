//! IVs of 32 bytes, which the wide-block modes take as their tweak.
//! Source: Linux `Documentation/admin-guide/device-mapper/dm-crypt.rst`, the list of IV modes.

use super::CipherSpec;
use super::run::IvNumbers;
use crate::error::Result;

/// A rule that makes a sector's 32-byte IV from its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WideIv {
    /// The number's low 32 bits, little-endian, at the IV's start.
    Plain,
    /// The number in 64 bits, little-endian, at the IV's start.
    Plain64,
    /// The number in 64 bits, big-endian, at the IV's end.
    Plain64Be,
    /// 32 times the number and 1 more, in 64 bits, big-endian, at the IV's end: the number of the
    /// sector's first 16-byte block, counted from 1.
    Benbi,
    /// Zeros.
    Null,
    /// The same for every sector: how vectors' tweaks get in.
    #[cfg(test)]
    Fixed([u128; 2]),
}

impl WideIv {
    /// The rule that `spec` names.
    ///
    /// Errors: `Device`, naming the cipher, for rules that aren't supported.
    pub(super) fn new(spec: &CipherSpec) -> Result<Self> {
        match (spec.iv(), spec.iv_options()) {
            (Some("plain"), None) => Ok(Self::Plain),
            (Some("plain64"), None) => Ok(Self::Plain64),
            (Some("plain64be"), None) => Ok(Self::Plain64Be),
            (Some("benbi"), None) => Ok(Self::Benbi),
            (Some("null"), None) => Ok(Self::Null),
            _ => Err(super::sector::unsupported(spec)),
        }
    }

    /// The IV of a run's sector `index`, as two little-endian halves.
    #[inline(always)]
    pub(super) fn halves(self, numbers: IvNumbers, index: usize) -> [u128; 2] {
        let number = numbers.at(index);
        match self {
            Self::Plain => [u128::from(number as u32), 0],
            Self::Plain64 => [u128::from(number), 0],
            Self::Plain64Be => [0, u128::from(number.swap_bytes()) << 64],
            Self::Benbi => {
                let number = (number << 5).wrapping_add(1);
                [0, u128::from(number.swap_bytes()) << 64]
            }
            Self::Null => [0, 0],
            #[cfg(test)]
            Self::Fixed(halves) => halves,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_stands_where_the_rule_says() {
        let iv = |name: &str| {
            let spec = CipherSpec::parse(&format!("xchacha12,aes-adiantum-{name}")).expect(name);
            let numbers = IvNumbers {
                first_unit: 0x0001_0203_8090_a0b0,
                sector_units: 1,
                large_sectors: false,
            };
            let halves = WideIv::new(&spec).expect(name).halves(numbers, 0);
            hex::encode(halves.map(u128::to_le_bytes).concat())
        };
        let zeros = "00".repeat(24);
        assert_eq!(iv("plain"), format!("b0a0908000000000{zeros}"));
        assert_eq!(iv("plain64"), format!("b0a0908003020100{zeros}"));
        assert_eq!(iv("plain64be"), format!("{zeros}000102038090a0b0"));
        assert_eq!(iv("benbi"), format!("{zeros}0020407012141601"));
        assert_eq!(iv("null"), format!("0000000000000000{zeros}"));
    }

    #[test]
    fn rules_for_blocks_are_refused_by_name() {
        let spec = CipherSpec::parse("xchacha12,aes-adiantum-essiv:sha256").expect("a good one");
        let error = WideIv::new(&spec).expect_err("a 16-byte IV");
        assert!(error.what().contains("adiantum-essiv:sha256"), "{error}");
    }
}
