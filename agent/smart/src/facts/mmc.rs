//! Wear of an eMMC, as the kernel shows it in sysfs: `life_time` and `pre_eol_info` of the card (JEDEC JESD84-B50, EXT_CSD bytes 267 to
//! 269). smartctl does not support eMMC.

use serde::{Deserialize, Serialize};

/// Highest defined number of `life_time`: the rated life time is exceeded. Higher ones are reserved.
const BEYOND: u8 = 11;
/// Highest defined number of `pre_eol_info`.
const URGENT: u8 = 3;

/// Facts of an eMMC. A value that it does not define (0, or a number without a meaning) is None.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mmc {
    /// Tenths of the rated life time that have been begun: 1 to 10, or 11 beyond it. Of two kinds of memory, that of the more worn one.
    pub life_time: Option<u8>,
    /// Reserved blocks: 1 normal, 2 four fifths of them are used up, 3 nine tenths.
    pub pre_eol: Option<u8>,
}

impl Mmc {
    /// Parses the contents of the two files, e.g. `0x02 0x01` and `0x01`.
    pub fn parse(life_time: &str, pre_eol: &str) -> Self {
        let numbers = |text: &str, most: u8| {
            let numbers = text.split_whitespace().filter_map(|word| {
                let digits = word.strip_prefix("0x")?;
                u8::from_str_radix(digits, 16).ok()
            });
            numbers.filter(|number| (1..=most).contains(number)).max()
        };
        Self {
            life_time: numbers(life_time, BEYOND),
            pre_eol: numbers(pre_eol, URGENT),
        }
    }

    /// Returns the rated endurance that is used at least, percent.
    pub fn used_percent(&self) -> Option<u64> {
        self.life_time
            .map(|tenths| u64::from(tenths.saturating_sub(1)) * 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_shows_is_read_and_what_is_not_defined_is_none() {
        let parsed = |life: &str, eol: &str| {
            let mmc = Mmc::parse(life, eol);
            (mmc.life_time, mmc.pre_eol, mmc.used_percent())
        };
        assert_eq!(parsed("0x01 0x01", "0x01"), (Some(1), Some(1), Some(0)));
        assert_eq!(parsed("0x02 0x0a", "0x02"), (Some(10), Some(2), Some(90)));
        assert_eq!(
            parsed("0x0b 0x01\n", "0x03"),
            (Some(11), Some(3), Some(100))
        );
        for (life, eol) in [
            ("0x00 0x00", "0x00"),
            ("", ""),
            ("0x0c", "0x04"),
            ("1 é", "-"),
        ] {
            assert_eq!(parsed(life, eol), (None, None, None), "{life:?}");
        }
    }
}
