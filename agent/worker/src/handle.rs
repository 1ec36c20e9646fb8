//! One worker process as the agent sees it: its socket, its log, and its exit.

use std::{path::PathBuf, process::ExitStatus, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf, pipe},
    },
    task::JoinError,
};
use tracing::field::display;

use super::{
    PoolConfig, Slot, WorkerKey,
    job::Outcome,
    notes::{self, Note},
    protocol::{self, Call, FrameReader, Reply},
};
use drivebay_model::cause::chain;
use drivebay_sys::{
    child::{Child, any_has_ended, reap_orphans},
    offload::blocking,
    process,
    start::Starter,
};

/// Longest piece of a log line that is passed on as one message, in bytes.
const LINE: usize = 8 * 1024;

/// A worker process that was started; it may have exited since.
#[derive(Debug)]
pub(super) struct Worker {
    pub pid: i32,
    start_ticks: u64,
    child: Child,
    reader: FrameReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    calls: u64,
    note: PathBuf,
}

/// Result of [`Worker::run`]: the result of the job, or the reason why there is none. Only after
/// `Done` may the worker run another job.
#[derive(Debug)]
pub(super) enum WorkerAnswer {
    /// The job returned; the worker can run further jobs.
    Done(Outcome),
    /// The job returned; the worker exits, because a tool that it ran cannot be killed.
    Last(Outcome),
    /// No result: the worker sent something invalid, or could not run the job. It must not run
    /// further jobs.
    Nonsense(String),
    /// The connection was closed before a result arrived.
    Died,
}

impl Worker {
    /// Starts a worker and writes its record. Blocks for some milliseconds; for `spawn_blocking`.
    /// Errs if the record cannot be written (except for `Unmount`); the worker is killed then.
    pub(super) fn start(
        starter: &Starter,
        config: &PoolConfig,
        key: &WorkerKey,
    ) -> std::io::Result<Self> {
        let boot_id = process::boot_id()?;
        // The argument only identifies the worker in the process list; the worker ignores it.
        let started = starter.start(&[key.slot.as_str(), &key.address()])?;
        let pid = started.child.pid();
        let note = notes::path(&config.notes_dir, key);
        let content = Note {
            boot_id,
            pid,
            start_ticks: started.start_ticks,
            key: key.clone(),
        };
        let noted = match notes::write(&note, &content) {
            // Unmounting must work without free space. Without the record the next agent may start
            // a second unmount worker, which does no harm.
            Err(error) if key.slot == Slot::Unmount => {
                tracing::warn!(path = %note.display(), %error, "cannot write a worker record; unmounting without it");
                Ok(())
            }
            Err(error) => {
                let path = note.display();
                let why = format!(
                    "cannot write worker record {path}: {error}; make room in the runtime directory"
                );
                Err(std::io::Error::new(error.kind(), why))
            }
            Ok(()) => Ok(()),
        };
        let socket = noted.and_then(|()| UnixStream::from_std(started.socket));
        let socket = match socket {
            Ok(socket) => socket,
            Err(error) => {
                // It has no job yet: killing it leaves no change half done.
                started.child.kill();
                return Err(error);
            }
        };
        let (reader, writer) = socket.into_split();
        tokio::spawn(pass_on(started.stderr, key.clone(), pid));
        Ok(Self {
            pid,
            start_ticks: started.start_ticks,
            child: started.child,
            reader: FrameReader::new(reader),
            writer,
            calls: 0,
            note,
        })
    }

    /// Sends a job and waits for its result. If the future is dropped before it is ready, the
    /// worker must not be used again.
    pub(super) async fn run(
        &mut self,
        job: &str,
        arguments: Value,
        mut on_step: impl FnMut(String),
    ) -> WorkerAnswer {
        self.calls += 1;
        let call = Call {
            id: self.calls,
            name: job.to_owned(),
            arguments,
        };
        match protocol::write_async(&mut self.writer, &call).await {
            Ok(()) => {}
            Err(protocol::ProtocolError::Io(_)) => return WorkerAnswer::Died,
            Err(error) => return WorkerAnswer::Nonsense(chain(&error)),
        }
        loop {
            let reply = match self.reader.next::<Reply>().await {
                Ok(Some(reply)) => reply,
                Ok(None) | Err(protocol::ProtocolError::Io(_)) => return WorkerAnswer::Died,
                Err(error) => return WorkerAnswer::Nonsense(chain(&error)),
            };
            match reply {
                Reply::Step { id, name } if id == call.id => on_step(name),
                Reply::Done {
                    id,
                    outcome,
                    retire,
                } if id == call.id => {
                    return if retire {
                        WorkerAnswer::Last(outcome)
                    } else {
                        WorkerAnswer::Done(outcome)
                    };
                }
                Reply::Broken { id, message } if id == call.id => {
                    return WorkerAnswer::Nonsense(message);
                }
                _ => return WorkerAnswer::Nonsense("it answered another call".to_owned()),
            }
        }
    }

    /// Returns when an idle worker becomes unusable: it exited, or sent a message without a call.
    pub(super) async fn spoils(&mut self) {
        let _ = self.reader.next::<Reply>().await;
    }

    /// Closes the connection for writing: the worker exits when it has no job left.
    pub(super) async fn hang_up(&mut self) {
        let _ = self.writer.shutdown().await;
    }

    /// Kills the worker process. Its tools are killed by `gone`.
    pub(super) fn kill(&self) {
        self.child.kill();
    }

    /// Returns when the worker is reaped, its tools are killed and gone, and its record is removed;
    /// the exit status is None if waiting failed. May be dropped and called again.
    pub(super) async fn gone(&mut self) -> Option<ExitStatus> {
        // After an error the search below decides.
        let status = self.child.wait().await.ok();
        let reaped = status.is_some();
        let alone = status.is_some_and(|status| status.success());
        let mut pause = Duration::from_millis(10);
        loop {
            let (pid, ticks) = (self.pid, self.start_ticks);
            let note = self.note.clone();
            let search = blocking(move || {
                // Once the worker is reaped, the processes that it left are children of the agent,
                // and exit code 0 means that there are none. All processes are searched only if one
                // may be left.
                let left = match reaped && (alone && !any_has_ended() || reap_orphans()) {
                    true => Vec::new(),
                    false => process::kill_remains(pid, ticks)?,
                };
                if left.is_empty() {
                    notes::remove(&note);
                }
                Ok::<_, std::io::Error>(left)
            });
            match search.await.map_err(join_failed).flatten() {
                Ok(left) if left.is_empty() => return status,
                Ok(left) => tracing::debug!(pid, ?left, "waiting for a worker's tools to exit"),
                Err(error) => {
                    tracing::warn!(pid, %error, "cannot determine whether a worker's tools exited")
                }
            }
            // The children of the agent change with each process that ends: search again.
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }
}

fn join_failed(error: JoinError) -> std::io::Error {
    std::io::Error::other(error)
}

/// Passes on the lines of a worker's stderr until the last of its processes closes it.
async fn pass_on(mut stderr: pipe::Receiver, key: WorkerKey, pid: i32) {
    let mut buffer = Vec::new();
    loop {
        let ended = !matches!(stderr.read_buf(&mut buffer).await, Ok(count) if count > 0);
        let mut from = 0;
        while let Some(len) = buffer[from..].iter().position(|byte| *byte == b'\n') {
            log(&key, pid, &buffer[from..from + len]);
            from += len + 1;
        }
        buffer.drain(..from);
        if buffer.len() >= LINE || (ended && !buffer.is_empty()) {
            log(&key, pid, &buffer);
            buffer.clear();
        }
        if ended {
            return;
        }
    }
}

/// Logs a line with the level that is its first word, as the worker's formatter writes it; a panic
/// has none.
fn log(key: &WorkerKey, pid: i32, line: &[u8]) {
    let (drive, slot) = (key.drive().map(display), key.slot.as_str());
    let line = String::from_utf8_lossy(line);
    let line = line.trim();
    match line.split_once(' ').unwrap_or((line, "")) {
        ("INFO", text) => tracing::info!(drive, slot, pid, "{text}"),
        ("DEBUG", text) => tracing::debug!(drive, slot, pid, "{text}"),
        ("TRACE", text) => tracing::trace!(drive, slot, pid, "{text}"),
        ("ERROR", text) => tracing::error!(drive, slot, pid, "{text}"),
        ("WARN", text) => tracing::warn!(drive, slot, pid, "{text}"),
        _ if line.is_empty() => {}
        _ => tracing::warn!(drive, slot, pid, "{line}"),
    }
}
