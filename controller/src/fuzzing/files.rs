//! The controller's state files and configuration, as changed by a power failure, a later version or a person.

use std::{fs, path::Path, time::SystemTime};

use tempfile::TempDir;

use super::{Target, agents, seeds};
use crate::{
    last_known::Store,
    settings::{Settings, edit},
};
use drivebay_service::notes::Notes;

pub(super) fn targets() -> Vec<Target> {
    vec![
        Target {
            name: "notes",
            run: notes,
            seeds: || {
                seeds([
                    include_str!("../../service/tests/golden/notes.json"),
                    "{\"format\":2}",
                ])
            },
            replays: 300,
        },
        Target {
            name: "last-known",
            run: last_known,
            seeds: || seeds([&include_bytes!("seeds/golden0.known")[..], &[0x08, 0x02]]),
            replays: 300,
        },
        Target {
            name: "settings",
            run: settings,
            seeds: || {
                seeds([
                    "# c\n[[forgotten]]\nnode = \"n1\"\nat = 2026-11-21T10:00:00Z\n\n[[forgotten]]\nnode = 'n2' # x\nat = \"2026-11-21T10:00:00.5+01:00\"\n",
                    "forgotten = [{ node = \"n1\", at = 2026-11-21T10:00:00Z }]\n",
                ])
            },
            replays: 1000,
        },
    ]
}

/// Returns a directory in memory if /dev/shm exists.
fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => TempDir::new_in(memory).unwrap(),
        false => TempDir::new().unwrap(),
    }
}

/// State files of a newer format are refused and kept, damaged ones are moved aside; the contents of neither are lost.
fn notes(data: &[u8]) {
    let dir = directory();
    let path = dir.path().join("notes.json");
    fs::write(&path, data).unwrap();
    let opened = Notes::open(dir.path());
    let aside = dir.path().join("notes.json.damaged");
    let kept = if aside.exists() { &aside } else { &path };
    assert_eq!(fs::read(kept).unwrap(), data);
    if let Ok(notes) = opened {
        let _ = (
            notes.all_doubts(),
            notes.doubts("v"),
            notes.undelivered_deletes("n1"),
        );
    } else {
        assert!(!aside.exists(), "a newer format is left as it is");
    }
}

fn last_known(data: &[u8]) {
    let dir = directory();
    let store = Store::open(dir.path()).unwrap();
    let path = dir.path().join("nodes/golden0.known");
    fs::write(&path, data).unwrap();
    let (_keep, agents) = agents::with_node(None);
    let _ = store.load(&agents);
    assert_eq!(fs::read(&path).unwrap(), data, "reading changes no file");
}

/// Adding a node and removing it again restores the former text.
fn settings(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(before) = Settings::parse(text) else {
        return;
    };
    let at = SystemTime::UNIX_EPOCH;
    if let Ok(more) = edit::with(text, "fuzz", at) {
        let with = Settings::parse(&more).unwrap();
        assert_eq!(with.forgotten.len(), before.forgotten.len() + 1);
        let less = edit::without(&more, "fuzz").unwrap();
        assert_eq!(Settings::parse(&less).unwrap(), before);
    }
    for (node, _) in before.forgotten.iter() {
        if let Ok(less) = edit::without(text, node) {
            let without = Settings::parse(&less).unwrap();
            assert_eq!(without.forgotten.len() + 1, before.forgotten.len());
        }
    }
}
