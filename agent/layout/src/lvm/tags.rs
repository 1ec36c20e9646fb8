//! Converts records and labels to LVM tags and back.
//!
//! # Format
//! A tag of Drivebay is `drivebay.<key>=<value>`. LVM allows `[A-Za-z0-9_+.-/=!:#&]` in tags and at
//! most 1024 bytes. Every other byte of a value (UTF-8), and `:` itself, is written as `:` and two
//! upper-case hex digits. A value too long for one tag continues in `<key>+1`, `<key>+2`, …; an
//! escape is never split.
//!
//! | key of a VG | value                                                     |
//! |-------------|-----------------------------------------------------------|
//! | `v`         | `1`; a reader that knows only lower ones changes nothing  |
//! | `drive`     | UUID made at claim                                        |
//! | `cluster`, `node`, `class` | whom and what it was claimed for           |
//! | `id`        | the drive's identity at claim                             |
//! | `free`      | of earlier versions, and says nothing: what free space reads as is kept elsewhere (`zeroed`) |
//! | `cordon.at`, `cordon.by`, `cordon.reason` | only while the drive takes no new volumes: since when, seconds since 1970; the operator; the reason |
//! | `sum`       | see below                                                 |
//!
//! | key of an LV | value                                                    |
//! |--------------|----------------------------------------------------------|
//! | `v`          | `1`                                                      |
//! | `uuid`       | the volume's identity                                    |
//! | `name`       | the CSI name                                             |
//! | `class`      | class it was asked from                                  |
//! | `mode`       | `mount` or `block`                                       |
//! | `fs`         | filesystem asked for; none for block                     |
//! | `mkfs.<n>`   | further mkfs arguments, from 0                           |
//! | `opt.<n>`    | further mount options, from 0                            |
//! | `param.<n>`  | the request's parameters, `<name>=<value>`, from 0; a `=` in the name is escaped |
//! | `erase`      | `zero` or `signatures`                                   |
//! | `size`       | bytes asked for                                          |
//! | `state`      | `creating`, `new`, `fs` or `block`                       |
//! | `state.fs`, `state.fsuuid`, `state.mounted` | for `fs`: what it was made with, its UUID, `yes` or `no` |
//! | `place`, `place.gen` | only of a volume that moved or moves: `live`, `incoming`, `leaving` or `moved`; the generation |
//! | `place.drive`, `place.id` | the other drive of the move: the uuid in its label, its identity |
//! |              | An LV that stores a snapshot has `v`, `sum` and these:   |
//! | `uuid`, `name` | the snapshot's identity and CSI name                   |
//! | `snapshot.of`, `snapshot.at`, `size` | its volume; of which moment it is, seconds since 1970; bytes of the volume then |
//! | `mode`, `state.fs`, `state.fsuuid` | as of the volume then; the latter two only if it was mounted by then |
//! | `snapshot.until` | when it is deleted because of its age, seconds since 1970; none: never |
//! | `snapshot.lost` | `1`, only of one that does not hold its volume any more |
//! | `group`, `group.name`, `group.members` | only of one that was taken with others: identity and CSI name of the group; how many it has |
//! | `state`      | `creating` or `ready`                                    |
//! |              | Each LV of ours has                                      |
//! | `sum`        | CRC-32 (IEEE 802.3) of all other tags of ours, sorted, each with a newline behind it; 8 hex digits |
//!
//! Tags that were read are written again and must give the same set: if one is missing, changed or
//! unknown, all of them are rejected. Tags without the prefix belong to an administrator and are
//! ignored.

use std::{collections::BTreeMap, ffi::OsString, fmt::Write as _};

use uuid::Uuid;

use drivebay_model::{
    Cordon, DriveId, ErasePolicy, Extent, FsType, Label, Mode, Peer, PlaceState, Record,
    RecordState, SnapshotRecord, volume_snapshot::SnapshotGroup,
};

const PREFIX: &str = "drivebay.";
/// LVM's limit for a tag, bytes.
const MOST_BYTES: usize = 1024;
const VERSION: &str = "1";
/// Bytes besides letters and digits that are not escaped in a value.
const PLAIN: &[u8] = b"_+.-/=!#&";

/// Result of reading a set of tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read<T> {
    /// A valid set of Drivebay's tags.
    Ours(T),
    /// The set has no tag of Drivebay.
    Stranger,
    /// The set has tags of Drivebay and is not valid.
    Broken {
        /// A description of the defect.
        why: String,
        /// The `uuid` tag of an LV, if it can be read: only to show which volume it may be.
        uuid: Option<Uuid>,
        /// The `name` tag, for the same purpose.
        name: Option<String>,
    },
}

/// Contents of a VG's tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VgMark {
    pub label: Label,
}

/// Returns the tags of an LV with this record. They do not contain its place, which is in LVM's
/// metadata, or that it is being erased, which is in its name: such a record gives the tags of
/// `RecordState::New`.
pub fn of_record(record: &Record) -> Vec<String> {
    let mut tags = Tags::default();
    tags.put("uuid", &record.uuid.to_string());
    tags.put("name", &record.name);
    tags.put("class", &record.class);
    tags.put("mode", record.mode.as_str());
    if let Some(fs) = record.fs_type {
        tags.put("fs", fs.as_str());
    }
    for (n, option) in record.mkfs_options.iter().enumerate() {
        tags.put(&format!("mkfs.{n}"), option);
    }
    for (n, option) in record.mount_options.iter().enumerate() {
        tags.put(&format!("opt.{n}"), option);
    }
    for (n, (name, value)) in record.parameters.iter().enumerate() {
        let mut units = escaped(name, b"=");
        units.push("=".to_owned());
        units.extend(escaped(value, b""));
        tags.put_escaped(&format!("param.{n}"), &units);
    }
    tags.put("erase", erase_word(record.erase));
    tags.put("size", &record.requested_bytes.to_string());
    let state = match &record.state {
        RecordState::Creating => "creating",
        RecordState::New | RecordState::Erasing { .. } => "new",
        RecordState::Block => "block",
        RecordState::Fs {
            fs_type,
            fs_uuid,
            mounted,
        } => {
            tags.put("state.fs", fs_type.as_str());
            tags.put("state.fsuuid", &fs_uuid.to_string());
            tags.put("state.mounted", if *mounted { "yes" } else { "no" });
            "fs"
        }
    };
    tags.put("state", state);
    put_place(&mut tags, &record.place);
    tags.finish()
}

fn put_place(tags: &mut Tags, place: &PlaceState) {
    if place.is_first() {
        return;
    }
    tags.put("place", place.as_str());
    tags.put("place.gen", &place.generation().to_string());
    if let Some(peer) = place.peer() {
        tags.put("place.drive", &peer.label.to_string());
        tags.put("place.id", &peer.drive.0);
    }
}

fn place_of(values: &Values) -> Result<PlaceState, String> {
    let Some(word) = values.get("place") else {
        return Ok(PlaceState::default());
    };
    let generation = parsed(values, "place.gen")?;
    let peer = || {
        Ok::<_, String>(Peer {
            label: parsed(values, "place.drive")?,
            drive: DriveId(get(values, "place.id")?.clone()),
        })
    };
    Ok(match word.as_str() {
        "live" => PlaceState::Live {
            generation,
            from: values.contains_key("place.drive").then(peer).transpose()?,
        },
        "incoming" => PlaceState::Incoming {
            generation,
            from: peer()?,
        },
        "leaving" => PlaceState::Leaving {
            generation,
            to: peer()?,
        },
        "moved" => PlaceState::Moved {
            generation,
            to: peer()?,
        },
        other => return Err(unknown("place", other)),
    })
}

/// Reads the record in the tags of an LV at this extent. It is never `Erasing`, and has no
/// `growing_to`: these are in the LV's name and in the view.
pub fn record(tags: &[String], extent: Extent) -> Read<Record> {
    read(tags, |values| record_of(values, extent), of_record)
}

/// Returns the tags of the LV that stores this snapshot.
pub fn of_snapshot(record: &SnapshotRecord) -> Vec<String> {
    let mut tags = Tags::default();
    tags.put("uuid", &record.uuid.to_string());
    tags.put("name", &record.name);
    tags.put("snapshot.of", &record.volume.to_string());
    tags.put("snapshot.at", &record.created_at.to_string());
    tags.put("size", &record.size_bytes.to_string());
    tags.put("mode", record.mode.as_str());
    if let Some((fs_type, fs_uuid)) = &record.fs {
        tags.put("state.fs", fs_type.as_str());
        tags.put("state.fsuuid", &fs_uuid.to_string());
    }
    if let Some(until) = record.expires_at {
        tags.put("snapshot.until", &until.to_string());
    }
    if record.is_lost {
        tags.put("snapshot.lost", "1");
    }
    if let Some(group) = &record.group {
        tags.put("group", &group.uuid.to_string());
        tags.put("group.name", &group.name);
        tags.put("group.members", &group.members.to_string());
    }
    let state = if record.is_complete {
        "ready"
    } else {
        "creating"
    };
    tags.put("state", state);
    tags.finish()
}

/// Reads the snapshot's record in the tags of an LV.
pub fn snapshot(tags: &[String]) -> Read<SnapshotRecord> {
    read(tags, snapshot_of, of_snapshot)
}

fn snapshot_of(values: &Values) -> Result<SnapshotRecord, String> {
    let fs = || {
        let word = get(values, "state.fs")?;
        let fs_type = FsType::parse(word).ok_or_else(|| unknown("state.fs", word))?;
        Ok::<_, String>((fs_type, parsed(values, "state.fsuuid")?))
    };
    let group = || {
        Ok::<_, String>(SnapshotGroup {
            uuid: parsed(values, "group")?,
            name: get(values, "group.name")?.clone(),
            members: parsed(values, "group.members")?,
        })
    };
    let until = || parsed(values, "snapshot.until");
    Ok(SnapshotRecord {
        uuid: parsed(values, "uuid")?,
        name: get(values, "name")?.clone(),
        volume: parsed(values, "snapshot.of")?,
        created_at: parsed(values, "snapshot.at")?,
        size_bytes: parsed(values, "size")?,
        mode: mode_of(values)?,
        fs: values.contains_key("state.fs").then(fs).transpose()?,
        expires_at: values
            .contains_key("snapshot.until")
            .then(until)
            .transpose()?,
        group: values.contains_key("group").then(group).transpose()?,
        is_complete: match get(values, "state")?.as_str() {
            "ready" => true,
            "creating" => false,
            other => return Err(unknown("state", other)),
        },
        is_lost: match values.get("snapshot.lost").map(String::as_str) {
            None => false,
            Some("1") => true,
            Some(other) => return Err(unknown("snapshot.lost", other)),
        },
    })
}

/// Returns the tags of a VG.
pub fn of_vg(mark: &VgMark) -> Vec<String> {
    vg_tags(mark, None)
}

fn vg_tags(mark: &VgMark, free: Option<&str>) -> Vec<String> {
    let mut tags = Tags::default();
    tags.put("drive", &mark.label.drive_uuid.to_string());
    tags.put("cluster", &mark.label.cluster);
    tags.put("node", &mark.label.node);
    tags.put("class", &mark.label.class);
    tags.put("id", &mark.label.drive_id.0);
    if let Some(cordon) = &mark.label.cordon {
        tags.put("cordon.at", &cordon.at.to_string());
        tags.put("cordon.by", &cordon.by);
        tags.put("cordon.reason", &cordon.reason);
    }
    if let Some(free) = free {
        tags.put("free", free);
    }
    tags.finish()
}

/// Reads the mark in the tags of a VG.
pub fn vg(tags: &[String]) -> Read<VgMark> {
    let free = tags
        .iter()
        .find_map(|tag| tag.strip_prefix("drivebay.free="));
    read(tags, mark_of, |mark| vg_tags(mark, free))
}

/// Returns the tags to remove and the tags to add, to change one set into another.
pub fn difference(now: &[String], wanted: &[String]) -> (Vec<String>, Vec<String>) {
    let not_in =
        |a: &[String], b: &[String]| a.iter().filter(|tag| !b.contains(tag)).cloned().collect();
    (not_in(now, wanted), not_in(wanted, now))
}

/// Returns the options of `lvchange` and `vgchange` that change Drivebay's tags from those in `now` to `wanted`.
/// An administrator's tags are kept.
pub fn options(now: &[String], wanted: &[String]) -> Vec<OsString> {
    let (away, new) = difference(&ours(now), wanted);
    let all = [("--deltag", away), ("--addtag", new)];
    all.into_iter()
        .flat_map(|(option, tags)| {
            tags.into_iter()
                .flat_map(move |tag| [OsString::from(option), OsString::from(tag)])
        })
        .collect()
}

/// Returns the tags with Drivebay's prefix; an administrator may have added others.
pub fn ours(tags: &[String]) -> Vec<String> {
    tags.iter()
        .filter(|tag| tag.starts_with(PREFIX))
        .cloned()
        .collect()
}

type Values = BTreeMap<String, String>;

fn read<T>(
    tags: &[String],
    parse: impl Fn(&Values) -> Result<T, String>,
    write: impl Fn(&T) -> Vec<String>,
) -> Read<T> {
    let mut ours = ours(tags);
    if ours.is_empty() {
        return Read::Stranger;
    }
    ours.sort();
    let values = values(&ours);
    let shown = values.as_ref().ok();
    let broken = |why: String| Read::Broken {
        why,
        uuid: shown
            .and_then(|values| values.get("uuid"))
            .and_then(|uuid| uuid.parse().ok()),
        name: shown.and_then(|values| values.get("name")).cloned(),
    };
    let values = match &values {
        Ok(values) => values,
        Err(why) => return broken(why.clone()),
    };
    match values.get("v").map(String::as_str) {
        Some(VERSION) => {}
        Some(other) if other.parse::<u64>().is_ok_and(|version| version > 1) => {
            return broken(format!(
                "it was made by a newer version of Drivebay (its tags are version {other})"
            ));
        }
        Some(other) => return broken(format!("its tags are of version {other:?}")),
        None => return broken("its tag drivebay.v is gone".into()),
    }
    let value = match parse(values) {
        Ok(value) => value,
        Err(why) => return broken(why),
    };
    let mut again = write(&value);
    again.sort();
    if again == ours {
        return Read::Ours(value);
    }
    let (extra, missing) = difference(&ours, &again);
    // If only the sum is wrong, another tag was changed to a valid value.
    if extra.iter().all(|tag| tag.starts_with("drivebay.sum=")) {
        return broken("one of its tags was changed: their checksum is wrong".into());
    }
    broken(format!(
        "its tags are not as we write them (has {}, lacks {})",
        shorten(&extra),
        shorten(&missing)
    ))
}

fn shorten(tags: &[String]) -> String {
    let text = tags.join(" ");
    match text.char_indices().nth(200) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None if text.is_empty() => "nothing".into(),
        None => text,
    }
}

/// Returns keys and joined values.
fn values(tags: &[String]) -> Result<Values, String> {
    let mut parts: BTreeMap<&str, BTreeMap<u32, &str>> = BTreeMap::new();
    for tag in tags {
        let odd = || {
            format!(
                "its tag {} is not one of Drivebay's",
                shorten(std::slice::from_ref(tag))
            )
        };
        let (key, value) = tag
            .strip_prefix(PREFIX)
            .and_then(|tag| tag.split_once('='))
            .ok_or_else(odd)?;
        let (key, part) = match key.split_once('+') {
            None => (key, 0),
            Some((key, part)) => (
                key,
                part.parse().ok().filter(|part| *part > 0).ok_or_else(odd)?,
            ),
        };
        if parts.entry(key).or_default().insert(part, value).is_some() {
            return Err(format!("it has two tags {PREFIX}{key}"));
        }
    }
    parts
        .into_iter()
        .map(|(key, parts)| {
            if !parts.keys().copied().eq(0..parts.len() as u32) {
                return Err(format!("a part of its tag {PREFIX}{key} is gone"));
            }
            let whole: String = parts.into_values().collect();
            // Names in `param` are separated from their values before the escapes are decoded.
            let value = if key.starts_with("param.") {
                Some(whole)
            } else {
                unescaped(&whole)
            };
            value
                .map(|value| (key.to_owned(), value))
                .ok_or_else(|| format!("its tag {PREFIX}{key} is not escaped as we do it"))
        })
        .collect()
}

fn mark_of(values: &Values) -> Result<VgMark, String> {
    Ok(VgMark {
        label: Label {
            drive_uuid: parsed(values, "drive")?,
            cluster: get(values, "cluster")?.clone(),
            node: get(values, "node")?.clone(),
            class: get(values, "class")?.clone(),
            drive_id: DriveId(get(values, "id")?.clone()),
            cordon: cordon_of(values)?,
        },
    })
}

fn cordon_of(values: &Values) -> Result<Option<Cordon>, String> {
    if !values.contains_key("cordon.at") {
        return Ok(None);
    }
    Ok(Some(Cordon {
        at: parsed(values, "cordon.at")?,
        by: get(values, "cordon.by")?.clone(),
        reason: get(values, "cordon.reason")?.clone(),
    }))
}

fn record_of(values: &Values, extent: Extent) -> Result<Record, String> {
    let fs = |key: &str| -> Result<FsType, String> {
        let word = get(values, key)?;
        FsType::parse(word).ok_or_else(|| unknown(key, word))
    };
    let list = |key: &str| -> Vec<String> {
        (0..)
            .map_while(|n| values.get(&format!("{key}.{n}")).cloned())
            .collect()
    };
    let parameters = list("param")
        .iter()
        .map(|parameter| {
            parameter
                .split_once('=')
                .and_then(|(name, value)| Some((unescaped(name)?, unescaped(value)?)))
                .ok_or_else(|| unknown("param", parameter))
        })
        .collect::<Result<_, _>>()?;
    let state = match get(values, "state")?.as_str() {
        "creating" => RecordState::Creating,
        "new" => RecordState::New,
        "block" => RecordState::Block,
        "fs" => RecordState::Fs {
            fs_type: fs("state.fs")?,
            fs_uuid: parsed(values, "state.fsuuid")?,
            mounted: match get(values, "state.mounted")?.as_str() {
                "yes" => true,
                "no" => false,
                other => return Err(unknown("state.mounted", other)),
            },
        },
        other => return Err(unknown("state", other)),
    };
    Ok(Record {
        uuid: parsed(values, "uuid")?,
        name: get(values, "name")?.clone(),
        class: get(values, "class")?.clone(),
        mode: mode_of(values)?,
        fs_type: values.contains_key("fs").then(|| fs("fs")).transpose()?,
        mkfs_options: list("mkfs"),
        mount_options: list("opt"),
        parameters,
        erase: match get(values, "erase")?.as_str() {
            "zero" => ErasePolicy::Zero,
            "signatures" => ErasePolicy::Signatures,
            other => return Err(unknown("erase", other)),
        },
        requested_bytes: parsed(values, "size")?,
        extent,
        growing_to: None,
        state,
        place: place_of(values)?,
    })
}

fn mode_of(values: &Values) -> Result<Mode, String> {
    let mode = get(values, "mode")?;
    Mode::parse(mode).ok_or_else(|| unknown("mode", mode))
}

fn erase_word(policy: ErasePolicy) -> &'static str {
    match policy {
        ErasePolicy::Zero => "zero",
        ErasePolicy::Signatures => "signatures",
    }
}

fn get<'a>(values: &'a Values, key: &str) -> Result<&'a String, String> {
    values
        .get(key)
        .ok_or_else(|| format!("its tag {PREFIX}{key} is gone"))
}

fn parsed<T: std::str::FromStr>(values: &Values, key: &str) -> Result<T, String> {
    let value = get(values, key)?;
    value.parse().map_err(|_| unknown(key, value))
}

fn unknown(key: &str, value: &str) -> String {
    format!("its tag {PREFIX}{key} is {}", shorten(&[value.to_owned()]))
}

#[derive(Default)]
struct Tags(Vec<String>);

impl Tags {
    fn put(&mut self, key: &str, value: &str) {
        self.put_escaped(key, &escaped(value, b""));
    }

    /// Adds a value, split into tags of at most `MOST_BYTES`. A unit is a character or an escape.
    fn put_escaped(&mut self, key: &str, units: &[String]) {
        let mut tag = format!("{PREFIX}{key}=");
        let mut part = 0;
        for unit in units {
            if tag.len() + unit.len() > MOST_BYTES {
                part += 1;
                let next = format!("{PREFIX}{key}+{part}=");
                self.0.push(std::mem::replace(&mut tag, next));
            }
            tag.push_str(unit);
        }
        self.0.push(tag);
    }

    fn finish(mut self) -> Vec<String> {
        self.put("v", VERSION);
        self.0.sort();
        let mut hasher = crc32fast::Hasher::new();
        for tag in &self.0 {
            hasher.update(tag.as_bytes());
            hasher.update(b"\n");
        }
        self.put("sum", &format!("{:08x}", hasher.finalize()));
        self.0
    }
}

fn escaped(text: &str, also: &[u8]) -> Vec<String> {
    text.bytes()
        .map(|c| {
            if (c.is_ascii_alphanumeric() || PLAIN.contains(&c)) && !also.contains(&c) {
                char::from(c).to_string()
            } else {
                let mut unit = String::new();
                // Writing to a String does not fail.
                let _ = write!(unit, ":{c:02X}");
                unit
            }
        })
        .collect()
}

fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(c) = rest.next() {
        bytes.push(if c == b':' {
            let digit = |c: u8| char::from(c).to_digit(16);
            let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
            u8::try_from(high * 16 + low).ok()?
        } else {
            c
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
#[path = "tags_tests.rs"]
mod tests;
