//! Unreadable ranges of a drive or volume as text. Pure.

use drivebay_proto::{
    agent::{Drive, UnreadableRange, Volume},
    words::RangeContent,
};

use super::table::printable;
use drivebay_common::units::count;

fn sectors(bytes: u64, sector: u64) -> String {
    count(bytes.div_ceil(sector.max(512)), "sector")
}

/// Returns the location of a range in words.
fn place(range: &UnreadableRange) -> String {
    let Some(content) = range.known_content() else {
        return format!("in {}", range.holds);
    };
    match content {
        RangeContent::Files => format!("in {}", files(range)),
        RangeContent::FilesystemMetadata => "in filesystem metadata".to_owned(),
        RangeContent::FilesystemFree => "in free space of the filesystem".to_owned(),
        RangeContent::RawBlock => {
            "in the raw block volume, whose user knows what is there".to_owned()
        }
        RangeContent::Unformatted => "in a volume that has no filesystem yet".to_owned(),
        RangeContent::Erasing => "in a deleted volume that is being erased".to_owned(),
        RangeContent::DrivebayMetadata => format!("in Drivebay's own metadata: {}", range.detail),
        RangeContent::Unallocated => "in free space of the drive".to_owned(),
        RangeContent::Foreign => format!("in {:?}, which Drivebay did not make", range.detail),
        RangeContent::NotClaimed => "where no volume is known".to_owned(),
        RangeContent::Unknown => format!("cannot tell in which file: {}", range.detail),
    }
}

fn files(range: &UnreadableRange) -> String {
    let mut names: Vec<String> = range.files.clone();
    if range.more_files > 0 {
        names.push(count(range.more_files, "more file"));
    }
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        Some((last, _)) => last.clone(),
        None => "a file".to_owned(),
    }
}

/// Returns the unreadable ranges of a volume, a line for each affected object: "3 sectors unreadable, in /db/base/16384/2619".
pub fn of_volume(volume: &Volume, its_drive: Option<&Drive>) -> Vec<String> {
    let sector = its_drive.map_or(0, |drive| u64::from(drive.logical_sector_bytes));
    let mut places: Vec<(String, u64)> = Vec::new();
    for range in &volume.unreadable {
        let place = place(range);
        match places.iter_mut().find(|(other, _)| *other == place) {
            Some((_, bytes)) => *bytes += range.len,
            None => places.push((place, range.len)),
        }
    }
    let lines = places.iter().map(|(place, bytes)| {
        let many = sectors(*bytes, sector);
        printable(&format!("{many} unreadable, {place}"))
    });
    lines.collect()
}

/// Returns the unreadable ranges of a drive, one per line.
pub fn of_drive(drive: &Drive, volumes: &[&Volume]) -> Vec<String> {
    let Some(health) = &drive.health else {
        return Vec::new();
    };
    let sector = u64::from(drive.logical_sector_bytes).max(512);
    let lines = health.unreadable.iter().map(|range| {
        let many = sectors(range.len, sector);
        let first = range.start / sector;
        let named = volumes.iter().find(|volume| volume.id == range.volume);
        let volume = match (named, range.volume.as_str()) {
            (_, "") => String::new(),
            (Some(volume), _) => format!("volume {}, ", volume.name),
            (None, id) => format!("volume {id}, "),
        };
        printable(&format!("{many} from {first}: {volume}{}", place(range)))
    });
    let more = health
        .unreadable_more
        .then(|| "and further ranges, which are not kept".to_owned());
    lines.chain(more).collect()
}

#[cfg(test)]
mod tests {
    use drivebay_proto::agent::DriveHealth;

    use super::*;

    fn range(start: u64, len: u64, holds: &str, files: &[&str]) -> UnreadableRange {
        UnreadableRange {
            start,
            len,
            volume: "v@n".into(),
            holds: holds.into(),
            files: files.iter().map(|file| (*file).to_owned()).collect(),
            ..UnreadableRange::default()
        }
    }

    #[test]
    fn a_volume_names_each_file_once_with_its_sectors() {
        let mut several = range(8192, 4096, "files", &["/a", "/b"]);
        several.more_files = 3;
        let mut unknown = range(0, 512, "unknown", &[]);
        unknown.detail = "no reverse mapping".into();
        let volume = Volume {
            unreadable: vec![
                range(4096, 1024, "files", &["/db/base/16384/2619"]),
                range(16384, 512, "files", &["/db/base/16384/2619"]),
                several,
                range(0, 512, "filesystem-metadata", &[]),
                range(0, 512, "filesystem-free", &[]),
                range(0, 512, "files", &["/evil\u{1b}[2J"]),
                unknown,
            ],
            ..Volume::default()
        };
        assert_eq!(
            of_volume(&volume, None),
            [
                "3 sectors unreadable, in /db/base/16384/2619",
                "8 sectors unreadable, in /a, /b and 3 more files",
                "1 sector unreadable, in filesystem metadata",
                "1 sector unreadable, in free space of the filesystem",
                "1 sector unreadable, in /evil\\u{1b}[2J",
                "1 sector unreadable, cannot tell in which file: no reverse mapping",
            ]
        );
        let drive = Drive {
            logical_sector_bytes: 4096,
            ..Drive::default()
        };
        assert_eq!(
            of_volume(&volume, Some(&drive))[1],
            "1 sector unreadable, in /a, /b and 3 more files"
        );
    }

    #[test]
    fn a_drive_lists_its_ranges_and_whose_they_are() {
        let mut label = range(1 << 20, 512, "drivebay-metadata", &[]);
        label.volume.clear();
        label.detail = "label".into();
        let drive = Drive {
            logical_sector_bytes: 512,
            health: Some(DriveHealth {
                unreadable: vec![label, range(8 << 20, 1536, "files", &["/a"])],
                unreadable_more: true,
                ..DriveHealth::default()
            }),
            ..Drive::default()
        };
        let volume = Volume {
            id: "v@n".into(),
            name: "pvc-1".into(),
            ..Volume::default()
        };
        assert_eq!(
            of_drive(&drive, &[&volume]),
            [
                "1 sector from 2048: in Drivebay's own metadata: label",
                "3 sectors from 16384: volume pvc-1, in /a",
                "and further ranges, which are not kept",
            ]
        );
        assert_eq!(
            of_drive(&drive, &[])[1],
            "3 sectors from 16384: volume v@n, in /a"
        );
    }
}
