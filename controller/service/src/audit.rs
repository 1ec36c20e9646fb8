//! Audit log: one JSON object per line with the caller, the operation, and whether it was allowed.
//!
//! Records the CSI calls that change something, and the start and end of each agent session. A record that cannot be queued
//! or written is counted as lost; callers never wait.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::SystemTime,
};

use serde::Serialize;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tonic::{Code, Status};

use crate::peer_log::printable_sentence;

/// Most records that wait to be written.
const QUEUE: usize = 4096;

/// The audit log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error("cannot append to {path}; see --audit-log")]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot start the thread that writes the audit log")]
    Thread(#[source] io::Error),
}

/// One record. Field names are stable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Record {
    /// When, RFC 3339 in UTC.
    at: String,
    /// `csi`: whoever may open the CSI socket. `agent`: who is in `node` and `address`. `drive-task`: the author of the task in `on`, as the
    /// cluster's admission policy has verified it.
    who: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    /// Proof of the node: `certificate` or `service-account`; `none` over a unix socket, and before the node is proved.
    #[serde(skip_serializing_if = "Option::is_none")]
    proof: Option<&'static str>,
    /// The call, or `session` and `session-end`.
    what: &'static str,
    /// The volume's id, or the name that one was asked for by.
    #[serde(skip_serializing_if = "Option::is_none")]
    on: Option<String>,
    allowed: bool,
    /// The call's code, or the reason why a session was refused or ended.
    result: String,
}

fn now() -> String {
    let now = OffsetDateTime::from(SystemTime::now());
    now.format(&Rfc3339).unwrap_or_default()
}

impl Record {
    /// Returns the record of a CSI call. A call counts as refused if its code is InvalidArgument, PermissionDenied or
    /// Unauthenticated; one that failed for another reason was allowed.
    pub fn call(what: &'static str, on: &str, result: Result<(), &Status>) -> Self {
        let code = result.map_or_else(Status::code, |()| Code::Ok);
        let refused = matches!(
            code,
            Code::InvalidArgument | Code::PermissionDenied | Code::Unauthenticated
        );
        Self {
            at: now(),
            who: "csi",
            node: None,
            address: None,
            proof: None,
            what,
            on: Some(printable_sentence(on)),
            allowed: !refused,
            result: format!("{code:?}"),
        }
    }

    /// Returns the record of an operation that a DriveTask requested from an agent. `on`: the drive, the task and its author.
    pub fn drive_task(what: &'static str, on: &str, allowed: bool, result: &str) -> Self {
        Self {
            at: now(),
            who: "drive-task",
            node: None,
            address: None,
            proof: None,
            what,
            on: Some(printable_sentence(on)),
            allowed,
            result: printable_sentence(result),
        }
    }

    /// Returns the record of an agent session's start, end or refusal.
    pub fn session(
        what: &'static str,
        node: &str,
        address: &str,
        proof: Option<&'static str>,
        allowed: bool,
        result: &str,
    ) -> Self {
        Self {
            at: now(),
            who: "agent",
            node: Some(node.to_owned()),
            address: Some(address.to_owned()),
            proof: Some(proof.unwrap_or("none")),
            what,
            on: None,
            allowed,
            result: printable_sentence(result),
        }
    }
}

/// Handle to the audit log; the default one discards records. Clones share one queue.
#[derive(Debug, Clone, Default)]
pub struct Audit {
    queue: Option<SyncSender<Record>>,
    lost: Arc<AtomicU64>,
}

impl Audit {
    /// Opens this file for appending, or standard output for `-`, and starts the thread that writes to it. Does not create
    /// the directory, which has to be set up together with log rotation. Blocks.
    ///
    /// # Errors
    /// The file cannot be opened, or the thread cannot be started.
    pub fn open(path: &Path) -> Result<Self, AuditError> {
        let to: Box<dyn Write + Send> = if path == Path::new("-") {
            Box::new(io::stdout())
        } else {
            let file = File::options().create(true).append(true).open(path);
            Box::new(file.map_err(|source| AuditError::Open {
                path: path.to_owned(),
                source,
            })?)
        };
        let (queue, records) = sync_channel(QUEUE);
        let lost = Arc::<AtomicU64>::default();
        let counted = lost.clone();
        thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || write(to, &records, &counted))
            .map_err(AuditError::Thread)?;
        Ok(Self {
            queue: Some(queue),
            lost,
        })
    }

    /// Queues a record without blocking. Counts it as lost if the queue is full.
    pub fn record(&self, record: impl FnOnce() -> Record) {
        let Some(queue) = &self.queue else { return };
        if queue.try_send(record()).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of lost records since the start; None without an audit log.
    pub fn lost(&self) -> Option<u64> {
        let queue = self.queue.as_ref();
        queue.map(|_| self.lost.load(Ordering::Relaxed))
    }
}

fn write(mut to: Box<dyn Write + Send>, records: &Receiver<Record>, lost: &AtomicU64) {
    let mut failing = false;
    for record in records {
        let line = serde_json::to_vec(&record).map_err(io::Error::other);
        // One write per line, so that two replicas that share a file do not mix their lines.
        let written = line.and_then(|mut line| {
            line.push(b'\n');
            to.write_all(&line)?;
            to.flush()
        });
        if let Err(error) = &written {
            lost.fetch_add(1, Ordering::Relaxed);
            if !failing {
                tracing::error!(%error, "cannot write the audit log; records are lost until it can be written");
            }
        }
        failing = written.is_err();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{
        fs,
        time::{Duration, Instant},
    };

    use super::*;

    fn lines(path: &Path, count: usize) -> Vec<serde_json::Value> {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let text = fs::read_to_string(path).unwrap();
            let lines: Vec<_> = text.lines().map(str::to_owned).collect();
            if lines.len() >= count {
                let read = |line: &String| serde_json::from_str(line).unwrap();
                return lines.iter().map(read).collect();
            }
            assert!(Instant::now() < until, "{text}");
            thread::yield_now();
        }
    }

    #[test]
    fn a_call_and_a_refused_session_are_a_line_each_whatever_their_texts_hold() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.json");
        let audit = Audit::open(&path).unwrap();
        audit.record(|| Record::call("CreateVolume", "pvc-1\n{\"who\":\"x\"}", Ok(())));
        let refused = Status::invalid_argument("no");
        audit.record(|| Record::call("DeleteVolume", "v", Err(&refused)));
        let busy = Status::unavailable("away");
        audit.record(|| Record::call("DeleteVolume", "v", Err(&busy)));
        audit.record(|| {
            Record::session(
                "session",
                "n1",
                "1.2.3.4:5",
                Some("service-account"),
                false,
                "another",
            )
        });
        let lines = lines(&path, 4);
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[0]["on"], "pvc-1\\n{\"who\":\"x\"}");
        let allowed: Vec<_> = lines
            .iter()
            .map(|line| line["allowed"].as_bool().unwrap())
            .collect();
        assert_eq!(allowed, [true, false, true, false]);
        assert_eq!(
            (&lines[2]["result"], &lines[3]["proof"]),
            (&"Unavailable".into(), &"service-account".into())
        );
        assert_eq!(audit.lost(), Some(0));
    }

    #[test]
    fn without_a_file_nothing_is_made_and_one_that_cannot_be_opened_is_an_error() {
        let off = Audit::default();
        off.record(|| panic!("made for nobody"));
        assert_eq!(off.lost(), None);
        let error = Audit::open(Path::new("/nonexistent/audit")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/audit"));
    }

    #[test]
    fn a_disk_that_takes_nothing_keeps_nobody_waiting_and_what_is_lost_is_counted() {
        let audit = Audit::open(Path::new("/dev/full")).unwrap();
        for _ in 0..10 {
            audit.record(|| Record::call("CreateVolume", "v", Ok(())));
        }
        let until = Instant::now() + Duration::from_secs(20);
        while audit.lost() != Some(10) {
            assert!(Instant::now() < until, "{:?}", audit.lost());
            thread::yield_now();
        }
    }
}
