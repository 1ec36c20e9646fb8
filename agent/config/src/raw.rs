//! The file as written: its keys and their types. Defaults and consistency are checked later.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, IntoDeserializer, MapAccess, Visitor},
};

use super::{
    controller::DriveVerb,
    report::{At, Given},
    units::Period,
};
use drivebay_model::{
    ClaimPolicy, ErasePolicy, Evacuation, FsType, Layout, Media, Placement, RawSpace, Transport,
};
use drivebay_smart::{Thresholds, collect::DeviceType};

type List<T> = Given<Vec<At<T>>>;

/// All sections of the file, before any check. A key or section that the file does not have is empty here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Raw {
    pub(super) node: Node,
    pub(super) csi: Csi,
    pub(super) kubelet: Kubelet,
    pub(super) agent: Agent,
    pub(super) discovery: Discovery,
    pub(super) erase: Erase,
    pub(super) moves: Moves,
    pub(super) workers: Workers,
    pub(super) checks: Checks,
    pub(super) metrics: Http,
    pub(super) probes: Http,
    pub(super) controller: Controller,
    pub(super) smart: Smart,
    pub(super) health: Health,
    #[serde(rename = "class")]
    pub(super) classes: Vec<At<Class>>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Node {
    pub(super) name: Given<String>,
    pub(super) cluster: Given<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Csi {
    pub(super) driver_name: Given<String>,
    pub(super) socket: Given<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Kubelet {
    pub(super) dir: Given<String>,
    pub(super) registration: Given<bool>,
    pub(super) csi_socket: Given<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Agent {
    pub(super) socket: Given<String>,
    pub(super) state_dir: Given<String>,
    pub(super) runtime_dir: Given<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Discovery {
    pub(super) allow_loop: Given<bool>,
    pub(super) rescan: Given<Period<10>>,
    pub(super) boot_grace: Given<Period<0>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Erase {
    pub(super) max_bytes_per_second: Given<Size>,
    pub(super) quarantine: Given<Period<0>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Moves {
    pub(super) max_bytes_per_second: Given<Size>,
    pub(super) old_place_delay: Given<Period<0>>,
    pub(super) automatic_drives_per_day: Given<i32>,
    pub(super) automatic_delay: Given<Period<1>>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Workers {
    pub(super) idle: Given<Period<1>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Checks {
    pub(super) enabled: Given<bool>,
    pub(super) after_unstage: Given<bool>,
    pub(super) window: Given<String>,
    pub(super) interval: Given<Period<0>>,
    pub(super) timeout: Given<Period<60>>,
    pub(super) method: Given<Method>,
    pub(super) repeats: Given<i32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Method {
    Trusted,
    Repeated,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Http {
    pub(super) listen: Given<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Controller {
    pub(super) addresses: List<String>,
    pub(super) ca: Given<String>,
    pub(super) cert: Given<String>,
    pub(super) key: Given<String>,
    pub(super) token: Given<String>,
    pub(super) drive_verbs: List<DriveVerb>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct Smart {
    pub(super) smartctl: Given<String>,
    pub(super) interval_hdd: Given<Period<60>>,
    pub(super) interval_ssd: Given<Period<60>>,
    pub(super) interval_deep: Given<Period<60>>,
    pub(super) thresholds: GivenThresholds,
    #[serde(rename = "device")]
    pub(super) devices: Vec<At<Device>>,
}

/// Thresholds that the file sets.
#[derive(Debug, Default)]
pub(super) struct GivenThresholds(pub(super) Vec<(String, At<i32>)>);

impl<'de> Deserialize<'de> for GivenThresholds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = GivenThresholds;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut given = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    given.push(entry);
                }
                Ok(GivenThresholds(given))
            }
        }
        // A struct's keys are known ones; a map's could be any.
        deserializer.deserialize_struct("Thresholds", Thresholds::KEYS, Entries)
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Device {
    #[serde(rename = "match")]
    pub(super) pattern: Given<String>,
    #[serde(rename = "type")]
    pub(super) kind: Given<DeviceType>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Health {
    #[serde(rename = "latency-interval")]
    pub(super) latency_interval: Given<Period<1>>,
    #[serde(rename = "override")]
    pub(super) overrides: Vec<At<Override>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Override {
    pub(super) drive: Given<String>,
    pub(super) verdict: Given<Verdict>,
    pub(super) reason: Given<String>,
    pub(super) until: Given<String>,
}

/// Verdict on a drive that an operator can configure.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Good,
    Suspect,
    Bad,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Class {
    pub(super) name: Given<String>,
    pub(super) layout: Given<Layout>,
    pub(super) placement: Given<Placement>,
    pub(super) priority: Given<i32>,
    pub(super) claim: Given<ClaimPolicy>,
    pub(super) erase: Given<ErasePolicy>,
    pub(super) raw_space: Given<RawSpace>,
    pub(super) evacuate: Given<Evacuation>,
    pub(super) fs: Given<FsType>,
    pub(super) mkfs_options: List<String>,
    pub(super) mount_options: List<String>,
    pub(super) allow_removable: Given<bool>,
    pub(super) xfs_retry_forever: Given<bool>,
    pub(super) check_reserve: Given<Size>,
    #[serde(default)]
    pub(super) select: Select,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Select {
    pub(super) media: List<Media>,
    pub(super) transport: List<LocalTransport>,
    pub(super) model: List<String>,
    pub(super) drive: List<String>,
    pub(super) path: List<String>,
    pub(super) min_size: Given<Size>,
    pub(super) max_size: Given<Size>,
}

/// A transport that a class can name.
#[derive(Debug, Clone, Copy)]
pub(super) struct LocalTransport(pub(super) Transport);

#[derive(Deserialize)]
#[serde(remote = "Transport", rename_all = "kebab-case")]
enum Local {
    Sata,
    Sas,
    Nvme,
    Usb,
    Virtio,
    Mmc,
    Scsi,
    Loop,
    Unknown,
}

impl<'de> Deserialize<'de> for LocalTransport {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        if matches!(word.as_str(), "iscsi" | "fc" | "nvme-of") {
            let remote = format!("{word:?} is remote storage; only local drives are ever used");
            return Err(D::Error::custom(remote));
        }
        Local::deserialize(word.into_deserializer()).map(Self)
    }
}

/// A size as it is written, or a number of bytes.
#[derive(Debug)]
pub(super) struct Size(pub(super) String);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrNumber;
        impl Visitor<'_> for TextOrNumber {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size in quotes or a number of bytes")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
                Ok(Size(text.to_owned()))
            }
        }
        deserializer.deserialize_any(TextOrNumber)
    }
}

impl AsRef<str> for Size {
    fn as_ref(&self) -> &str {
        &self.0
    }
}
