//! Encryption of a volume with LUKS2: a header at the start of its partition or LV, and a mapped device of dm-crypt over the rest, which is
//! what is formatted, mounted and published.
//!
//! That a volume is encrypted, and the UUID of its header, are kept among its parameters, which both layouts preserve: they are on the
//! drive before anything is written to the volume. So a header that is missing or another one is damage, and never an empty volume.

use std::collections::BTreeMap;

use drivebay_proto::names;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Record, lost};

/// Bytes of the header, and so the offset of the data.
pub const HEADER_BYTES: u64 = names::ENCRYPTION_HEADER_BYTES;

/// Encryption of one volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Encryption {
    /// UUID of the LUKS2 header, chosen when the volume was created. Nil: what is recorded is no UUID, and no header fits.
    pub header: Uuid,
}

/// The mapped device over a volume's own one, as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// Kernel name, e.g. `dm-3`.
    pub device: String,
    /// Major and minor number.
    pub dev: (u32, u32),
}

/// Names of a mapped device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappingNames {
    /// Name in /dev/mapper.
    pub name: String,
    pub dm_uuid: String,
}

impl Encryption {
    /// Returns the encryption by the parameters that are kept with a volume; None if it is not encrypted.
    pub fn of(kept: &BTreeMap<String, String>) -> Option<Self> {
        let header = kept.get(names::KEPT_ENCRYPTION_HEADER)?;
        Some(Self {
            header: header.parse().unwrap_or_default(),
        })
    }

    /// Adds it to the parameters that are kept with a volume.
    pub fn keep(self, parameters: &mut BTreeMap<String, String>) {
        let header = self.header.to_string();
        parameters.insert(names::KEPT_ENCRYPTION_HEADER.to_owned(), header);
    }

    /// Returns the name in /dev/mapper.
    pub fn mapping_name(self) -> String {
        format!("{MAPPING_NAME}{}", self.header)
    }

    /// Returns the device-mapper uuid that cryptsetup gives the mapped device: `CRYPT-LUKS2-`, the UUID of the header without hyphens, and
    /// the name.
    pub fn dm_uuid(self) -> String {
        format!(
            "CRYPT-LUKS2-{}-{}",
            self.header.simple(),
            self.mapping_name()
        )
    }
}

/// Prefix of the name of a mapped device.
const MAPPING_NAME: &str = "drivebay-crypt-";

/// Returns the device-mapper name, and uuid, of the device that decrypts the snapshot by which a volume is checked.
pub fn checked_mapping(volume: Uuid) -> String {
    format!("drivebay-check-crypt-{volume}")
}

/// Returns the UUID of the header from the name of a mapped device; None: it is not one of an encrypted volume.
pub fn header_of(mapping_name: &str) -> Option<Uuid> {
    mapping_name.strip_prefix(MAPPING_NAME)?.parse().ok()
}

impl Record {
    /// Returns how the volume is encrypted; None: it is not.
    pub fn encryption(&self) -> Option<Encryption> {
        Encryption::of(&self.parameters)
    }

    /// Returns names of the mapped devices over the volume's own one, from the top: that of an encrypted volume, and below it that of one with
    /// lost sectors.
    pub fn mappings(&self) -> Vec<MappingNames> {
        let encrypted = self.encryption().map(|encryption| MappingNames {
            name: encryption.mapping_name(),
            dm_uuid: encryption.dm_uuid(),
        });
        let lost = self.lost().map(|_| {
            let name = lost::device_name(self.uuid);
            MappingNames {
                dm_uuid: name.clone(),
                name,
            }
        });
        encrypted.into_iter().chain(lost).collect()
    }

    /// Returns names of the topmost one, which is what is mounted and published; None if the volume has none.
    pub fn mapping(&self) -> Option<MappingNames> {
        self.mappings().into_iter().next()
    }

    /// Returns the record of the volume as it would be without encryption, whose data is what is encrypted.
    pub fn without_encryption(&self) -> Self {
        let mut record = self.clone();
        record.parameters.remove(names::KEPT_ENCRYPTION_HEADER);
        record
    }

    /// Returns its device-mapper uuid.
    pub fn mapping_uuid(&self) -> Option<String> {
        self.mapping().map(|names| names.dm_uuid)
    }

    /// Returns the bytes at the volume's start that are not its user's: 0, or those of the header of an encrypted one.
    pub fn header_bytes(&self) -> u64 {
        self.encryption().map_or(0, |_| HEADER_BYTES)
    }

    /// Returns the bytes of a drive that a new volume needs: those requested, and its header.
    pub fn room_bytes(&self) -> u64 {
        self.requested_bytes.saturating_add(self.header_bytes())
    }

    /// Returns the size that the volume has for its user, bytes.
    pub fn size_bytes(&self) -> u64 {
        self.extent.len.saturating_sub(self.header_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RecordState, samples};

    #[test]
    fn a_volume_is_encrypted_by_what_is_kept_and_its_header_is_not_its_users() {
        let mut record = samples::placed(1, RecordState::New).record;
        assert_eq!(record.encryption(), None);
        let all = record.size_bytes();
        assert_eq!(all, record.extent.len);
        let encryption = Encryption {
            header: Uuid::from_u128(7),
        };
        encryption.keep(&mut record.parameters);
        assert_eq!(record.encryption(), Some(encryption));
        assert_eq!(record.size_bytes(), all - HEADER_BYTES);
        assert_eq!(record.without_encryption().size_bytes(), all);
        // No parameter of a request.
        assert!(
            !crate::created_for::requested(&record.parameters).contains_key("encryptionHeader")
        );
    }

    #[test]
    fn what_is_mounted_of_an_encrypted_volume_with_lost_sectors_is_the_device_that_decrypts() {
        let mut record = samples::placed(1, RecordState::New).record;
        assert_eq!(record.mapping(), None);
        lost::keep(Some(&[]), &mut record.parameters);
        let below = record.mapping().unwrap();
        let encryption = Encryption {
            header: Uuid::from_u128(7),
        };
        encryption.keep(&mut record.parameters);
        let mappings = record.mappings();
        assert_eq!(mappings[0].dm_uuid, encryption.dm_uuid());
        assert_eq!(mappings.get(1), Some(&below));
        assert_eq!(record.mapping().as_ref(), mappings.first());
        assert_eq!(record.without_encryption().mapping(), Some(below));
    }

    #[test]
    fn a_header_that_is_not_understood_does_not_make_a_volume_a_plain_one() {
        let kept = BTreeMap::from([("encryptionHeader".to_owned(), "x".to_owned())]);
        let encryption = Encryption::of(&kept).unwrap();
        assert_eq!(encryption.header, Uuid::nil());
    }

    #[test]
    fn the_mapped_device_is_named_as_cryptsetup_names_it() {
        let encryption = Encryption {
            header: Uuid::from_u128(0x1234),
        };
        assert_eq!(
            encryption.dm_uuid(),
            "CRYPT-LUKS2-00000000000000000000000000001234-drivebay-crypt-00000000-0000-0000-0000-000000001234"
        );
        // The kernel's limits, with the NUL at the end: DM_UUID_LEN and DM_NAME_LEN of linux/dm-ioctl.h.
        assert!(encryption.dm_uuid().len() < 129 && encryption.mapping_name().len() < 128);
    }
}
