//! Journal of changes to the initial volumes of a fleet, in a file, so that drives persist when the fleet is killed.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader, Write},
    path::Path,
    sync::{Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::contents::{Contents, SimVolume};
use crate::Trouble;

/// One line: a volume of a node as it is now; without one it is gone.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    node: String,
    uuid: Uuid,
    volume: Option<SimVolume>,
}

/// The file, appended to before a change is sent or answered. It survives the process, not a power failure.
#[derive(Debug)]
pub struct Journal(Mutex<File>);

/// Recorded changes of each node.
pub type Past = BTreeMap<String, Vec<(Uuid, Option<SimVolume>)>>;

impl Journal {
    /// Reads the file, and appends to it from there on. Ignores a last line that is incomplete after a kill: its change was not answered.
    ///
    /// # Errors
    /// The file cannot be used, or a line cannot be parsed.
    pub fn open(path: &Path) -> Result<(Self, Past), Trouble> {
        let file = File::options()
            .create(true)
            .read(true)
            .append(true)
            .open(path)?;
        let mut past = Past::new();
        let (mut whole, mut line) = (0, String::new());
        let mut reader = BufReader::new(&file);
        while reader.read_line(&mut line)? > 0 && line.ends_with('\n') {
            let Line { node, uuid, volume } = serde_json::from_str(&line)
                .map_err(|error| Trouble::doing(format!("reading {}", path.display()), &error))?;
            past.entry(node).or_default().push((uuid, volume));
            whole += line.len() as u64;
            line.clear();
        }
        file.set_len(whole)?;
        Ok((Self(Mutex::new(file)), past))
    }

    /// Records the differences between `before` and `now`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn note(&self, node: &str, before: &Contents, now: &Contents) -> Result<(), Trouble> {
        let mut lines = Vec::new();
        let gone = before.volumes.keys();
        let gone = gone.filter(|uuid| !now.volumes.contains_key(*uuid));
        let changed = now.volumes.iter();
        let changed = changed.filter(|(uuid, volume)| before.volumes.get(*uuid) != Some(*volume));
        let all = gone
            .map(|uuid| (uuid, None))
            .chain(changed.map(|(uuid, volume)| (uuid, Some(volume.as_ref().clone()))));
        for (uuid, volume) in all {
            let line = Line {
                node: node.to_owned(),
                uuid: *uuid,
                volume,
            };
            serde_json::to_writer(&mut lines, &line)
                .map_err(|error| Trouble::doing("writing the volumes file", &error))?;
            lines.push(b'\n');
        }
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(file.write_all(&lines)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Plan;

    #[test]
    fn what_was_noted_is_read_again_and_a_cut_line_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volumes");
        let plan = Plan {
            volumes: 3,
            ..Plan::default()
        };
        let before = Contents::planned(&plan, 0);
        let mut now = before.clone();
        let uuids: Vec<Uuid> = now.volumes.keys().copied().collect();
        now.delete(&uuids[0]);
        now.erase(&uuids[0]);
        now.toggle_published(&uuids[1]);

        let (journal, past) = Journal::open(&path).unwrap();
        assert!(past.is_empty());
        journal.note("n0", &before, &now).unwrap();
        let file = File::options().append(true).open(&path);
        file.unwrap().write_all(b"{\"node\":\"n1\",\"uu").unwrap();

        for _ in 0..2 {
            let (_, past) = Journal::open(&path).unwrap();
            let mut again = Contents::planned(&plan, 0);
            again.recall(past["n0"].clone());
            assert_eq!(again, now);
            assert_eq!(past.len(), 1);
        }
    }
}
