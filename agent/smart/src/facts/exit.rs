//! smartctl's exit status, a bit mask.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The eight bits of smartctl's exit status. None of them is a verdict by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ExitStatus(u8);

/// Names of the bits.
const NAMES: [(u8, &str); 8] = [
    (ExitStatus::USAGE, "usage"),
    (ExitStatus::OPEN, "open"),
    (ExitStatus::COMMAND, "command"),
    (ExitStatus::FAILING, "failing"),
    (ExitStatus::ATTRIBUTE_NOW, "attribute-now"),
    (ExitStatus::ATTRIBUTE_PAST, "attribute-past"),
    (ExitStatus::ERROR_LOG, "error-log"),
    (ExitStatus::SELF_TEST, "self-test"),
];

impl ExitStatus {
    /// Bit 0: the command line was not understood, or the device's type not detected.
    pub const USAGE: u8 = 1;
    /// Bit 1: the device could not be opened, did not identify itself, or is in standby.
    pub const OPEN: u8 = 1 << 1;
    /// Bit 2: a command to the drive failed, or a checksum was wrong: lowers the confidence only.
    pub const COMMAND: u8 = 1 << 2;
    /// Bit 3: the drive's status is "failing".
    pub const FAILING: u8 = 1 << 3;
    /// Bit 4: a prefail attribute is at or below its threshold.
    pub const ATTRIBUTE_NOW: u8 = 1 << 4;
    /// Bit 5: an attribute was at or below its threshold in the past.
    pub const ATTRIBUTE_PAST: u8 = 1 << 5;
    /// Bit 6: the error log has entries. Alone, no sign of ill health.
    pub const ERROR_LOG: u8 = 1 << 6;
    /// Bit 7: the self-test log has failures.
    pub const SELF_TEST: u8 = 1 << 7;

    /// Takes the number as reported; bits above the lowest eight are dropped.
    pub fn new(status: u64) -> Self {
        Self((status & 0xff) as u8)
    }

    /// Returns the exit status as a mask of the constants of this type.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// True if one of these bits is set.
    pub fn has(self, bits: u8) -> bool {
        self.0 & bits != 0
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0");
        }
        write!(f, "{} (", self.0)?;
        let set = NAMES.iter().filter(|(bit, _)| self.has(*bit));
        for (index, (_, name)) in set.enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            f.write_str(name)?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_is_named() {
        assert_eq!(ExitStatus::new(0).to_string(), "0");
        assert_eq!(
            ExitStatus::new(64 | 4).to_string(),
            "68 (command, error-log)"
        );
        assert_eq!(ExitStatus::new(255).to_string().matches(", ").count(), 7);
        assert_eq!(ExitStatus::new(256 + 8).bits(), 8);
    }
}
