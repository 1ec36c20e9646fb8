//! Writes data into volumes and verifies it: each volume holds exactly what was written to it, and a raw volume reads zeros elsewhere.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Write,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use drivebay_hwtests::digest;

use super::{
    states::{Access, State, Volume},
    steps::{Kind, NAMES},
    testbed::Testbed,
};

/// Bytes of one write.
const PIECE: usize = 4096;
/// Offset of the second place of a raw volume, bytes.
const MIDDLE: u64 = 256 * 1024;

/// Returns the bytes that a seed stands for.
fn piece(seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; PIECE];
    random.fill(&mut bytes);
    bytes
}

fn place_of(volume: &Volume, place: u8) -> u64 {
    match (volume.kind, place) {
        (Kind::Block, 0) => 0,
        (Kind::Block, 1) => MIDDLE,
        (Kind::Block, _) => end_of(volume),
        (_, file) => file.into(),
    }
}

fn end_of(volume: &Volume) -> u64 {
    volume.bytes - PIECE as u64
}

fn file(target: &Path, place: u64) -> PathBuf {
    target.join(format!("file-{place}"))
}

/// Returns the volume of a name and its targets, or None if it does not exist. All possible states agree on this after an observation.
fn published(bed: &Testbed, name: u8) -> Option<(Volume, Vec<(PathBuf, Access)>)> {
    let State::Present(volume) = bed.states(name).first()? else {
        return None;
    };
    let at = (0u8..)
        .zip(volume.published)
        .filter_map(|(target, access)| Some((bed.target(name, target), access?)));
    let at: Vec<_> = at.collect();
    (!at.is_empty()).then(|| (volume.clone(), at))
}

/// Writes the data of a seed to a place and syncs it, if the volume is published writable.
pub(crate) fn write(bed: &mut Testbed, name: u8, place: u8, seed: u64) -> Result<(), String> {
    let Some((volume, at)) = published(bed, name) else {
        return Ok(());
    };
    let Some((target, _)) = at.into_iter().find(|of| of.1 == Access::Writable) else {
        return Ok(());
    };
    let place = place_of(&volume, place);
    let bytes = piece(seed);
    let written = if volume.kind == Kind::Block {
        File::options().write(true).open(&target).and_then(|node| {
            node.write_all_at(&bytes, place)
                .and_then(|()| node.sync_all())
        })
    } else {
        File::create(file(&target, place))
            .and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_all()))
    };
    written.map_err(|error| format!("writing to {}: {error}", target.display()))?;
    for volume in bed.each_here(name) {
        volume.data.insert(place, seed);
    }
    *bed.tally.entry("write".to_owned()).or_default() += 1;
    Ok(())
}

/// Verifies the contents of every published volume.
pub(crate) fn check(bed: &Testbed) -> Result<(), String> {
    for name in 0..NAMES {
        let Some((volume, at)) = published(bed, name) else {
            continue;
        };
        for (target, _) in at {
            let checked = if volume.kind == Kind::Block {
                check_block(&volume, &target)
            } else {
                check_files(&volume, &target)
            };
            checked.map_err(|why| format!("data at {}: {why}; {volume:?}", target.display()))?;
        }
    }
    Ok(())
}

fn check_block(volume: &Volume, target: &Path) -> Result<(), String> {
    let node = File::open(target).map_err(|error| error.to_string())?;
    let mut places = volume
        .data
        .clone()
        .into_iter()
        .map(|(at, seed)| (at, Some(seed)))
        .collect::<BTreeMap<_, _>>();
    for place in [0, MIDDLE, end_of(volume)] {
        places.entry(place).or_insert(None);
    }
    let mut bytes = vec![0; PIECE];
    for (place, seed) in places {
        node.read_exact_at(&mut bytes, place)
            .map_err(|error| format!("reading at {place}: {error}"))?;
        let right = match seed {
            Some(seed) => bytes == piece(seed),
            None => digest::is_zeros(&bytes),
        };
        if !right {
            return Err(format!("other bytes at {place} than {seed:?}"));
        }
    }
    Ok(())
}

fn check_files(volume: &Volume, target: &Path) -> Result<(), String> {
    let entries = fs::read_dir(target).map_err(|error| error.to_string())?;
    let mut names: Vec<PathBuf> = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| error.to_string())?;
        if entry.file_name() != "lost+found" {
            names.push(entry.path());
        }
    }
    names.sort();
    let wanted: Vec<PathBuf> = volume
        .data
        .keys()
        .map(|place| file(target, *place))
        .collect();
    if names != wanted {
        return Err(format!("found {names:?}"));
    }
    for (place, seed) in &volume.data {
        let bytes = fs::read(file(target, *place)).map_err(|error| error.to_string())?;
        if bytes != piece(*seed) {
            return Err(format!("file {place} has other contents"));
        }
    }
    Ok(())
}
