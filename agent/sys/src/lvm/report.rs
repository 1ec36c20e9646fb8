//! Typed `lvm fullreport` in JSON. LVM writes every number as a string.

use serde::{Deserialize, Deserializer, de};

/// Options: sizes in bytes, all LVs, JSON.
pub(super) const ARGUMENTS: [&str; 6] = [
    "--reportformat",
    "json",
    "--units",
    "b",
    "--nosuffix",
    "--all",
];

/// A VG as LVM reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VgReport {
    pub name: String,
    /// LVM uuid with hyphens.
    pub uuid: String,
    /// Version of the metadata.
    pub seqno: u64,
    pub extents: u64,
    /// PEs that no LV uses.
    pub free_extents: u64,
    /// LVs, sorted by name.
    pub lvs: Vec<LvReport>,
}

/// An LV as LVM reports it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct LvReport {
    #[serde(rename = "lv_name")]
    pub name: String,
    /// LVM uuid with hyphens.
    #[serde(rename = "lv_uuid")]
    pub uuid: String,
    /// Size of the LV, bytes.
    #[serde(rename = "lv_size", deserialize_with = "number")]
    pub bytes: u64,
}

#[derive(Deserialize)]
struct Whole {
    report: Vec<One>,
}

#[derive(Deserialize)]
struct One {
    vg: Vec<Vg>,
    #[serde(default)]
    lv: Vec<LvReport>,
}

#[derive(Deserialize)]
struct Vg {
    vg_name: String,
    vg_uuid: String,
    #[serde(deserialize_with = "number")]
    vg_seqno: u64,
    #[serde(deserialize_with = "number")]
    vg_extent_count: u64,
    #[serde(deserialize_with = "number")]
    vg_free_count: u64,
}

fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse()
        .map_err(|_| de::Error::custom(format!("{text:?} is no number")))
}

/// Parses a report of exactly one VG.
pub fn parse(text: &str) -> Result<VgReport, serde_json::Error> {
    let whole: Whole = serde_json::from_str(text)?;
    let mut vgs = whole
        .report
        .into_iter()
        .flat_map(|one| one.vg.into_iter().map(move |vg| (vg, one.lv.clone())));
    match (vgs.next(), vgs.next()) {
        (Some((vg, mut lvs)), None) => {
            lvs.sort();
            Ok(VgReport {
                name: vg.vg_name,
                uuid: vg.vg_uuid,
                seqno: vg.vg_seqno,
                extents: vg.vg_extent_count,
                free_extents: vg.vg_free_count,
                lvs,
            })
        }
        _ => Err(de::Error::custom("there is not exactly one VG in it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_and_anything_else_is_an_error() {
        let text = r#"{"report":[{"vg":[{"vg_fmt":"lvm2","vg_uuid":"a-b","vg_name":"v","vg_seqno":"7","vg_extent_count":"10","vg_free_count":"4"}],
            "pv":[],"lv":[{"lv_uuid":"l-2","lv_name":"b","lv_size":"1048576"},{"lv_uuid":"l-1","lv_name":"a","lv_size":"5242880"}],"pvseg":[],"seg":[]}]}"#;
        let report = parse(text).unwrap();
        assert_eq!(
            (report.name.as_str(), report.seqno, report.free_extents),
            ("v", 7, 4)
        );
        assert_eq!(
            (report.lvs[0].name.as_str(), report.lvs[0].bytes),
            ("a", 5 << 20)
        );
        assert!(parse(&text.replace("\"7\"", "\"x\"")).is_err());
        assert!(parse(r#"{"report":[]}"#).is_err());
        assert!(parse("").is_err());
    }
}
