//! Converts the text metadata of a VG to values. Everything that Drivebay does not create itself is
//! described in `strange`.

use std::collections::{BTreeMap, HashSet};

use super::{
    name,
    text::{self, Section, Value},
};

/// The VG of a PV, according to its committed metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vg {
    pub name: String,
    /// LVM uuid with hyphens, e.g. `GnZDwX-7tEZ-…`.
    pub uuid: String,
    /// Increases by one with every committed change.
    pub seqno: u64,
    pub tags: Vec<String>,
    /// Bytes of a physical extent (PE).
    pub extent_bytes: u64,
    /// True if the host activates its LVs at boot (no `--setautoactivation n`).
    pub autoactivation: bool,
    /// The PV whose metadata was read.
    pub pv: Pv,
    /// LVs in the order of the text, without those that link a snapshot of Drivebay to its origin.
    pub lvs: Vec<Lv>,
    /// Reasons why Drivebay cannot have created this VG, or must not use it (several PVs, a missing
    /// PV, a lock type, an unknown status flag). Empty for a VG of Drivebay.
    pub strange: Vec<String>,
}

/// A PV within its VG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pv {
    /// LVM uuid with hyphens.
    pub uuid: String,
    /// Bytes from the start of the drive to its first PE.
    pub pe_start: u64,
    /// Number of PEs. The end of the last one, bytes from the start of the drive, fits in a u64.
    pub pe_count: u64,
}

/// An LV of the VG, and the PEs of this PV that it occupies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lv {
    pub name: String,
    /// LVM uuid with hyphens.
    pub uuid: String,
    pub tags: Vec<String>,
    /// Runs of its bytes, in the order of the LV. Empty if it is `strange`.
    pub segments: Vec<Segment>,
    /// All PEs on this PV that the LV or a part of it occupies, also if it is `strange`.
    pub occupies: Vec<Segment>,
    /// Reason why it is not a plain visible linear LV on this PV.
    pub strange: Option<String>,
    /// The LV whose snapshot it stores, if it is a snapshot of Drivebay. That LV does not become
    /// strange.
    pub snapshot_of: Option<String>,
}

/// A run of PEs of an LV.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Segment {
    /// First PE on the PV.
    pub start: u64,
    /// Number of PEs; at least 1 in `Lv::segments`.
    pub count: u64,
}

/// Unit of sizes in the text, bytes.
const SECTOR: u64 = 512;

/// Parses the text of a VG, from the perspective of one of its PVs. Also for a copy of a text.
pub fn parse(text: &[u8], pv_uuid: &str) -> Result<Vg, String> {
    let config =
        text::parse(text).map_err(|why| format!("its metadata text does not parse: {why}"))?;
    if config.get("contents").and_then(Value::text) != Some("Text Format Volume Group")
        || config.get("version").and_then(Value::number) != Some(1)
    {
        return Err("its metadata text is not LVM's, or of another version".into());
    }
    let mut sections = config
        .0
        .iter()
        .filter_map(|(name, value)| Some((name, value.section()?)));
    let (Some((name, section)), None) = (sections.next(), sections.next()) else {
        return Err("its metadata text describes not one VG".into());
    };
    vg(name, section, pv_uuid)
}

/// Returns uuid and bytes of the PV in a text with one PV; None for other texts. The zero that ends
/// the text may be included.
pub fn only_pv(text: &[u8]) -> Option<(String, u64)> {
    let end = text.iter().rposition(|byte| *byte != 0)? + 1;
    let config = text::parse(text.get(..end)?).ok()?;
    let mut sections = config.0.iter().filter_map(|(_, value)| value.section());
    let pvs = sections.next()?.get("physical_volumes")?.section()?;
    let [(_, pv)] = pvs.0.as_slice() else {
        return None;
    };
    let pv = pv.section()?;
    let bytes = number(pv, "dev_size").ok()?.checked_mul(SECTOR)?;
    Some((text_of(pv, "id").ok()?, bytes))
}

fn vg(name: &str, section: &Section, pv_uuid: &str) -> Result<Vg, String> {
    let mut strange = Vec::new();
    let mut flags = Vec::new();
    let none = Section::default();
    let (mut pvs, mut lvs) = (&none, &none);
    for (key, value) in &section.0 {
        let odd = match (key.as_str(), value) {
            (
                "id" | "seqno" | "extent_size" | "tags" | "max_pv" | "metadata_copies" | "status",
                _,
            ) => None,
            ("physical_volumes", Value::Section(section)) => {
                pvs = section;
                None
            }
            ("logical_volumes", Value::Section(section)) => {
                lvs = section;
                None
            }
            ("flags", value) => {
                flags = value.texts().ok_or("the flags of its VG are no texts")?;
                None
            }
            ("format", value) => {
                (value.text() != Some("lvm2")).then(|| "its format is not lvm2".to_owned())
            }
            ("max_lv", value) => {
                (value.number() != Some(0)).then(|| "the number of its LVs is limited".to_owned())
            }
            ("lock_type", value) => {
                (value.text() != Some("none")).then(|| "it is locked over a network".to_owned())
            }
            ("system_id", value) => Some(format!(
                "it belongs to the host {:?}",
                value.text().unwrap_or_default()
            )),
            (key, _) => Some(format!("it has {key}")),
        };
        strange.extend(odd);
    }
    strange.extend(odd_words(
        "status",
        &list(section, "status")?,
        &["RESIZEABLE", "READ", "WRITE"],
    ));
    let autoactivation = !flags.contains(&"NOAUTOACTIVATE");
    flags.retain(|flag| *flag != "NOAUTOACTIVATE");
    strange.extend(odd_words("flags", &flags, &[]));
    let extent_bytes = number(section, "extent_size")?
        .checked_mul(SECTOR)
        .filter(|bytes| *bytes > 0)
        .ok_or("the extent size of its VG is none")?;
    if pvs.0.len() != 1 {
        strange.push(format!("it has {} PVs", pvs.0.len()));
    }
    let (pv_name, pv) = pv(pvs, pv_uuid, extent_bytes, &mut strange)?;
    let snapshots = snapshots(lvs);
    let parts = parts(lvs, &snapshots);
    let lvs: Vec<Lv> = lvs
        .0
        .iter()
        .filter(|(name, _)| !snapshots.contains_key(name.as_str()))
        .map(|(name, value)| {
            let section = value
                .section()
                .ok_or_else(|| format!("LV {name} is no section"))?;
            let mut lv = lv(name, section, &pv_name)?;
            if let Some(whole) = parts.get(name.as_str()) {
                // Its own segments do not show that: the origin of a snapshot looks like any other
                // LV.
                let why = format!("it is a part of {whole}");
                lv.strange = Some(match lv.strange {
                    Some(strange) => format!("{strange}; {why}"),
                    None => why,
                });
                lv.segments.clear();
            }
            lv.snapshot_of = snapshots
                .values()
                .find(|(_, store)| store == name)
                .map(|(origin, _)| (*origin).to_owned());
            Ok(lv)
        })
        .collect::<Result<_, String>>()?;
    strange.extend(bad_places(&lvs, pv.pe_count));
    if lvs.iter().map(|lv| &lv.uuid).collect::<HashSet<_>>().len() != lvs.len() {
        strange.push("two of its LVs have one uuid".into());
    }
    Ok(Vg {
        name: name.to_owned(),
        uuid: text_of(section, "id")?,
        seqno: number(section, "seqno")?,
        tags: tags(section)?,
        extent_bytes,
        autoactivation,
        pv,
        lvs,
        strange,
    })
}

/// Returns the PV of this uuid, and its name within the text.
fn pv(
    pvs: &Section,
    uuid: &str,
    extent_bytes: u64,
    strange: &mut Vec<String>,
) -> Result<(String, Pv), String> {
    let (name, section) = pvs
        .0
        .iter()
        .filter_map(|(name, value)| Some((name, value.section()?)))
        .find(|(_, section)| section.get("id").and_then(Value::text) == Some(uuid))
        .ok_or("the metadata on this PV does not know it")?;
    for (key, _) in &section.0 {
        const KEYS: &[&str] = &[
            "id",
            "device",
            "device_id",
            "device_id_type",
            "status",
            "flags",
            "tags",
            "dev_size",
            "pe_start",
            "pe_count",
            "ba_start",
            "ba_size",
        ];
        if !KEYS.contains(&key.as_str()) {
            strange.push(format!("its PV has {key}"));
        }
    }
    strange.extend(odd_words(
        "PV status",
        &list(section, "status")?,
        &["ALLOCATABLE"],
    ));
    strange.extend(odd_words("PV flags", &list(section, "flags")?, &[]));
    let pv = Pv {
        uuid: uuid.to_owned(),
        pe_start: number(section, "pe_start")?
            .checked_mul(SECTOR)
            .ok_or("its PV starts nowhere")?,
        pe_count: number(section, "pe_count")?,
    };
    // From here on arithmetic with its extents cannot overflow.
    pv.pe_count
        .checked_mul(extent_bytes)
        .and_then(|bytes| bytes.checked_add(pv.pe_start))
        .ok_or("its PV has no end")?;
    Ok((name.clone(), pv))
}

fn lv(name: &str, section: &Section, pv: &str) -> Result<Lv, String> {
    let within = |why: String| format!("LV {name}: {why}");
    let mut strange = Vec::new();
    let mut segments = BTreeMap::new();
    for (key, value) in &section.0 {
        const KEYS: &[&str] = &[
            "id",
            "status",
            "flags",
            "tags",
            "creation_time",
            "creation_host",
            "segment_count",
            "read_ahead",
        ];
        let number = key
            .strip_prefix("segment")
            .and_then(|n| n.parse::<u64>().ok());
        match (number, value) {
            (Some(number), Value::Section(section)) => {
                segments.insert(number, section);
            }
            _ if KEYS.contains(&key.as_str()) => {}
            _ => strange.push(format!("it has {key}")),
        }
    }
    strange.extend(odd_words(
        "status",
        &list(section, "status").map_err(within)?,
        &["READ", "WRITE", "VISIBLE"],
    ));
    let mut flags = list(section, "flags").map_err(within)?;
    flags.retain(|flag| *flag != "NOAUTOACTIVATE");
    strange.extend(odd_words("flags", &flags, &[]));
    if number(section, "segment_count").map_err(within)? != segments.len() as u64
        || segments.is_empty()
    {
        strange.push("its segments are not all there".into());
    }
    let mut linear = Vec::new();
    let mut occupies = Vec::new();
    let mut next = 0_u64;
    for section in segments.values() {
        let (first, count) = (
            number(section, "start_extent").map_err(within)?,
            number(section, "extent_count").map_err(within)?,
        );
        if first != next || count == 0 {
            strange.push("its segments do not follow each other".into());
        }
        next = first.saturating_add(count);
        occupies.extend(places(section, count, pv));
        match segment(section, count, pv) {
            Ok(segment) => linear.push(segment),
            Err(why) => strange.push(why),
        }
    }
    if !strange.is_empty() {
        linear.clear();
    }
    Ok(Lv {
        name: name.to_owned(),
        uuid: text_of(section, "id").map_err(within)?,
        tags: tags(section).map_err(within)?,
        segments: linear,
        occupies,
        strange: (!strange.is_empty()).then(|| strange.join("; ")),
        snapshot_of: None,
    })
}

/// Returns Drivebay's snapshots, including those for checks: origin and storing LV by the name of
/// the LV that links them. They are recognised by the name of the storing LV.
fn snapshots(lvs: &Section) -> BTreeMap<&str, (&str, &str)> {
    let tie = |lv: &Value| -> Option<(String, String)> {
        let Some(Value::Section(segment)) = lv.section()?.get("segment1") else {
            return None;
        };
        let text = |key| segment.get(key).and_then(Value::text);
        (text("type") == Some("snapshot"))
            .then(|| Some((text("origin")?.to_owned(), text("cow_store")?.to_owned())))?
    };
    let lv_name = |name: &str| {
        lvs.0
            .iter()
            .map(|(name, _)| name.as_str())
            .find(|candidate| *candidate == name)
    };
    lvs.0
        .iter()
        .filter_map(|(name, lv)| {
            let (origin, store) = tie(lv)?;
            let uuid = name::checked(&store).or_else(|| name::snapshot_uuid(&store));
            uuid.and_then(|_| Some((name.as_str(), (lv_name(&origin)?, lv_name(&store)?))))
        })
        .collect()
}

/// Returns the LVs that are named in the segments of other LVs, each with one of those.
fn parts<'a>(
    lvs: &'a Section,
    snapshots: &BTreeMap<&str, (&str, &str)>,
) -> BTreeMap<&'a str, &'a str> {
    let mut parts = BTreeMap::new();
    for (name, lv) in &lvs.0 {
        if snapshots.contains_key(name.as_str()) {
            continue;
        }
        let segments = lv.section().into_iter().flat_map(|lv| &lv.0);
        let values = segments
            .filter_map(|(_, segment)| segment.section())
            .flat_map(|segment| &segment.0)
            .filter(|(key, _)| key != "type")
            .flat_map(|(_, value)| match value {
                Value::Array(values) => values.as_slice(),
                one => std::slice::from_ref(one),
            });
        for part in values.filter_map(Value::text) {
            parts.insert(part, name.as_str());
        }
    }
    // A PV may have the name of an LV (`pv0`): then that LV counts as a part, and is not used.
    parts
}

/// Returns the run of a linear segment on this PV. Err: the reason why it is not one.
fn segment(section: &Section, count: u64, pv: &str) -> Result<Segment, String> {
    let kind = section.get("type").and_then(Value::text).unwrap_or("none");
    if kind != "striped" || section.get("stripe_count").and_then(Value::number) != Some(1) {
        return Err(format!("it is not linear (type {kind})"));
    }
    const KEYS: &[&str] = &[
        "start_extent",
        "extent_count",
        "type",
        "stripe_count",
        "stripes",
    ];
    if let Some((key, _)) = section
        .0
        .iter()
        .find(|(key, _)| !KEYS.contains(&key.as_str()))
    {
        return Err(format!("its segment has {key}"));
    }
    match section.get("stripes") {
        Some(Value::Array(stripes)) => match stripes.as_slice() {
            [Value::Text(name), start] if name == pv => start
                .number()
                .map(|start| Segment { start, count })
                .ok_or_else(|| "its segment starts nowhere".to_owned()),
            [Value::Text(name), _] => Err(format!("it lies on {name}")),
            _ => Err("its segment has not one stripe".into()),
        },
        _ => Err("its segment has no stripes".into()),
    }
}

/// Returns every run on this PV that a segment of any type names; a run may be too long, but not
/// too short.
fn places<'a>(section: &'a Section, count: u64, pv: &'a str) -> impl Iterator<Item = Segment> + 'a {
    let stripes = section
        .get("stripe_count")
        .and_then(Value::number)
        .filter(|stripes| *stripes > 0)
        .unwrap_or(1);
    section
        .0
        .iter()
        .filter_map(|(_, value)| match value {
            Value::Array(values) => Some(values.windows(2)),
            _ => None,
        })
        .flatten()
        .filter_map(move |pair| match pair {
            [Value::Text(name), start] if name == pv => start.number().map(|start| Segment {
                start,
                count: count.div_ceil(stripes),
            }),
            _ => None,
        })
}

/// Describes runs that are not within the PV, or overlap.
fn bad_places(lvs: &[Lv], pe_count: u64) -> Vec<String> {
    let mut places: Vec<(Segment, &str)> = lvs
        .iter()
        .flat_map(|lv| lv.occupies.iter().map(|place| (*place, lv.name.as_str())))
        .collect();
    places.sort_unstable();
    let mut bad = Vec::new();
    let mut last: Option<(u64, &str)> = None;
    for (place, name) in places {
        let end = place.start.saturating_add(place.count);
        if end > pe_count {
            bad.push(format!("LV {name} does not lie on the PV"));
        }
        if let Some((_, other)) = last.filter(|(until, _)| *until > place.start) {
            bad.push(format!("LVs {other} and {name} lie on each other"));
        }
        if last.is_none_or(|(until, _)| end > until) {
            last = Some((end, name));
        }
    }
    bad
}

/// Describes a set of words that differs from the expected one; None if both have the same words in any order. `what`: its name in the
/// message.
fn odd_words(what: &str, words: &[&str], wanted: &[&str]) -> Option<String> {
    let same = words.len() == wanted.len() && wanted.iter().all(|word| words.contains(word));
    (!same).then(|| match words {
        [] => format!("its {what} is empty"),
        words => format!("its {what} is {}", words.join(" ")),
    })
}

fn tags(section: &Section) -> Result<Vec<String>, String> {
    Ok(list(section, "tags")?
        .into_iter()
        .map(str::to_owned)
        .collect())
}

/// Returns a list of strings; empty if the key is missing.
fn list<'a>(section: &'a Section, key: &str) -> Result<Vec<&'a str>, String> {
    match section.get(key) {
        None => Ok(Vec::new()),
        Some(value) => value
            .texts()
            .ok_or_else(|| format!("its {key} is no list of texts")),
    }
}

fn number(section: &Section, key: &str) -> Result<u64, String> {
    section
        .get(key)
        .and_then(Value::number)
        .ok_or_else(|| format!("its {key} is no number"))
}

fn text_of(section: &Section, key: &str) -> Result<String, String> {
    section
        .get(key)
        .and_then(Value::text)
        .map(str::to_owned)
        .ok_or_else(|| format!("its {key} is no text"))
}
