//! The secret by which an encrypted volume is opened.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Longest secret, bytes. Far above what a person or a generator makes; cryptsetup would take 512 KiB.
const MOST: usize = 4096;

/// A secret of 1 to 4096 bytes, which is never printed. Its memory is zeroed when it is freed, as all of the agent's is (`main.rs`).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Takes a secret as it was given; None: it is empty or too long.
    pub fn new(text: String) -> Option<Self> {
        (1..=MOST).contains(&text.len()).then_some(Self(text))
    }

    /// Returns the bytes, for the program that needs them.
    pub fn expose(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// The secrets of a call that opens a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageSecrets {
    /// Opens the volume.
    pub secret: Secret,
    /// Opened the volume until now: its key slots are changed to `secret`. None: they are not changed.
    pub previous: Option<Secret>,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_has_bytes_and_is_not_printed() {
        assert_eq!(Secret::new(String::new()), None);
        assert_eq!(Secret::new("x".repeat(MOST + 1)), None);
        let secret = Secret::new("swordfish".to_owned()).unwrap();
        assert_eq!(secret.expose(), b"swordfish");
        assert!(!format!("{secret:?}").contains("sword"));
    }
}
