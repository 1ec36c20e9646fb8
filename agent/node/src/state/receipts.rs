//! Receipts of erased volumes, and the key that signs them. Losing the file loses no data.

use std::io;

use base64::{Engine, prelude::BASE64_STANDARD};
use ring::{
    rand::SystemRandom,
    signature::{Ed25519KeyPair, KeyPair},
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Damage, Saved, StateDir, StateError, StateKind, Stored, parse, versioned};

/// Largest number of receipts, each less than 1 KiB without its ranges. The oldest are dropped.
const MOST: usize = 4096;
/// Largest number of ranges of all receipts, each less than 100 bytes in the file. A fragmented LV has many.
const MOST_RANGES: usize = 65_536;
/// DER encoding of the algorithm Ed25519, before the 32 bytes of a public key (RFC 8410).
const PUBLIC_KEY_PREFIX: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// What was erased.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    pub volume: Uuid,
    /// The volume's CSI name.
    pub name: String,
    pub class: String,
    /// Namespace and name of the PersistentVolumeClaim; empty if it was created for none.
    pub claim: String,
    pub node: String,
    /// Identity of the drive.
    pub drive: String,
    pub model: String,
    /// Serial number of the drive; empty if it has none.
    pub serial: String,
    /// Ranges of the drive, first byte and bytes.
    pub ranges: Vec<(u64, u64)>,
    /// True if the volume was encrypted.
    pub encrypted: bool,
    /// Unix time at which the last byte was erased, seconds.
    pub erased_at: u64,
}

/// A receipt with its signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// The receipt as JSON. The signature is one of exactly these bytes.
    pub document: String,
    /// Ed25519, 64 bytes, in base64.
    pub signature: String,
    /// Public key of this node, PEM.
    pub public_key: String,
}

/// The document that is signed.
#[derive(Serialize)]
struct Document<'a> {
    kind: &'static str,
    version: u32,
    #[serde(flatten)]
    receipt: &'a Receipt,
    method: &'static str,
    not_claimed: [&'static str; 4],
}

/// Contents of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct File {
    /// Key that signs, PKCS #8 in base64; created with the first receipt.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    key: String,
    receipts: Vec<Receipt>,
}

impl Stored for File {
    const KIND: StateKind = StateKind::Receipts;

    fn from_bytes(bytes: &[u8]) -> Result<Self, Damage> {
        parse(bytes)
    }

    fn to_bytes(&self) -> io::Result<Vec<u8>> {
        versioned(self)
    }
}

/// Receipts of this host.
#[derive(Debug)]
pub struct Receipts(Saved<File>);

impl Receipts {
    /// Creates an empty list; `load` reads the file.
    pub fn new(dir: &StateDir) -> Self {
        Self(Saved::new(dir))
    }

    /// Reads the file.
    pub async fn load(&self) {
        self.0.load().await;
    }

    /// Retries reading the file if it could not be read, when due.
    pub async fn read_again(&self) {
        self.0.read_again().await;
    }

    /// Returns all receipts, the oldest first.
    pub fn all(&self) -> Vec<Receipt> {
        self.0.inspect(|file| file.receipts.clone())
    }

    /// Adds a receipt durably.
    ///
    /// # Errors
    /// It could not be saved, and was not added.
    pub async fn add(&self, receipt: Receipt) -> Result<(), StateError> {
        let add = |file: &mut File| {
            if file.key.is_empty() {
                // Without one the receipts are kept all the same, and the next one tries again.
                file.key = new_key().unwrap_or_default();
            }
            file.receipts.push(receipt);
            file.receipts.drain(..dropped(&file.receipts));
        };
        self.0.change(add).await
    }

    /// Returns the signed receipts of a volume: one, or several if it was moved. Empty if there is none, or no key.
    pub fn signed(&self, volume: Uuid) -> Vec<Signed> {
        self.0.inspect(|file| {
            let of = file.receipts.iter().filter(|one| one.volume == volume);
            of.filter_map(|receipt| sign(&file.key, receipt)).collect()
        })
    }
}

/// Returns the number of receipts, of the oldest, that the file has no room for. Pure.
fn dropped(receipts: &[Receipt]) -> usize {
    let mut ranges = 0;
    let newest = receipts.iter().rev().take(MOST);
    let kept = newest.take_while(|one| {
        ranges += one.ranges.len();
        ranges <= MOST_RANGES
    });
    receipts.len() - kept.count()
}

fn new_key() -> Option<String> {
    let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).ok()?;
    Some(BASE64_STANDARD.encode(key.as_ref()))
}

/// Signs a receipt. Pure: Ed25519 uses no random numbers.
fn sign(key: &str, receipt: &Receipt) -> Option<Signed> {
    let key = BASE64_STANDARD.decode(key).ok()?;
    let pair = Ed25519KeyPair::from_pkcs8(&key).ok()?;
    let document = Document {
        kind: "receipt of an erased volume",
        version: 1,
        receipt,
        method: "all ranges were overwritten with zeros, or zeroed by the drive on command; their ends and 64 samples of each were read back as zeros",
        not_claimed: [
            "what the drive keeps below its own translation of addresses (flash, remapped sectors)",
            "copies elsewhere: snapshots that were restored, clones, backups, places on other drives without a receipt of their own",
            "copies of an encrypted volume's header",
            "the time, beyond this host's clock",
        ],
    };
    let document = serde_json::to_string(&document).ok()?;
    let public_key = [&PUBLIC_KEY_PREFIX[..], pair.public_key().as_ref()].concat();
    Some(Signed {
        signature: BASE64_STANDARD.encode(pair.sign(document.as_bytes())),
        public_key: format!(
            "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
            BASE64_STANDARD.encode(public_key)
        ),
        document,
    })
}

#[cfg(test)]
mod tests {
    use ring::signature::{ED25519, UnparsedPublicKey};

    use super::*;

    fn receipt(n: u128) -> Receipt {
        Receipt {
            volume: Uuid::from_u128(n),
            name: format!("pvc-{n}"),
            class: "bulk".into(),
            claim: "shop/data".into(),
            node: "n1".into(),
            drive: "wwn-a".into(),
            model: "M".into(),
            serial: "S".into(),
            ranges: vec![(1 << 20, 1 << 30)],
            encrypted: false,
            erased_at: 1_796_000_000,
        }
    }

    #[tokio::test]
    async fn a_receipt_is_signed_by_a_key_that_outlives_the_agent() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        let receipts = Receipts::new(&state);
        receipts.load().await;
        assert!(receipts.signed(Uuid::from_u128(1)).is_empty());
        receipts.add(receipt(1)).await.unwrap();
        let again = Receipts::new(&state);
        again.load().await;
        again.add(receipt(2)).await.unwrap();
        let [first, second] = [1, 2].map(|n| again.signed(Uuid::from_u128(n)).remove(0));
        assert_eq!(first.public_key, second.public_key);
        assert_eq!(receipts.signed(Uuid::from_u128(1)).first(), Some(&first));

        let pem: String = first
            .public_key
            .lines()
            .filter(|l| !l.starts_with('-'))
            .collect();
        let key = BASE64_STANDARD.decode(pem).unwrap();
        let key = UnparsedPublicKey::new(&ED25519, &key[PUBLIC_KEY_PREFIX.len()..]);
        let signature = BASE64_STANDARD.decode(&first.signature).unwrap();
        key.verify(first.document.as_bytes(), &signature).unwrap();
        let forged = first.document.replace("pvc-1", "pvc-3");
        assert!(key.verify(forged.as_bytes(), &signature).is_err());
        assert!(first.document.contains("not_claimed"), "{}", first.document);
    }

    #[tokio::test]
    async fn the_oldest_receipts_are_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let receipts = Receipts::new(&StateDir::new(dir.path()));
        receipts.load().await;
        let many = File {
            key: String::new(),
            receipts: (0..MOST as u128).map(receipt).collect(),
        };
        receipts.0.change(|file| *file = many).await.unwrap();
        receipts.add(receipt(9999)).await.unwrap();
        let all = receipts.all();
        assert_eq!(all.len(), MOST);
        assert_eq!(all[0].volume, Uuid::from_u128(1));
        let fragmented = Receipt {
            ranges: vec![(u64::MAX >> 1, 1 << 20); MOST_RANGES - 10],
            ..receipt(10_000)
        };
        receipts.add(fragmented).await.unwrap();
        assert_eq!(receipts.all().len(), 11);
        let bytes = std::fs::metadata(dir.path().join("receipts.json"))
            .unwrap()
            .len();
        assert!(bytes < StateKind::Receipts.max_bytes(), "{bytes}");
    }
}
