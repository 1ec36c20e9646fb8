//! Client of qemu's control socket: commands and events, each with a deadline. Blocking; one client per socket.

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

/// Default limit of a command: qemu answers in milliseconds, under TCG on a busy machine in seconds.
pub const SOON: Duration = Duration::from_secs(30);

/// qemu was not reached, or did not execute a command.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// No process listens there yet, or any more.
    #[error("no qemu answers on {}", path.display())]
    Connect {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the last attempt.
        #[source]
        source: io::Error,
    },
    /// Reading from or writing to the socket failed, other than by a timeout or the end of the connection.
    #[error("qemu's control socket failed during {what}")]
    Io {
        /// Awaited message, e.g. "the answer to query-status".
        what: String,
        /// Error of the socket.
        #[source]
        source: io::Error,
    },
    /// qemu closed the connection, as it does when it ends.
    #[error("qemu closed its control socket during {what}: it has ended")]
    Closed {
        /// Awaited message, e.g. "the answer to query-status".
        what: String,
    },
    /// The deadline passed, e.g. because the machine is frozen.
    #[error("qemu did not come up with {what} within {} s", limit.as_secs_f64())]
    Deadline {
        /// Awaited message, e.g. "the answer to query-status".
        what: String,
        /// Limit of the operation.
        limit: Duration,
    },
    /// A command was refused.
    #[error("qemu refused {command}: {description} ({class})")]
    Refused {
        /// Name of the command, e.g. "device_add".
        command: String,
        /// `class` of qemu's error, e.g. "GenericError"; empty if it has none.
        class: String,
        /// `desc` of qemu's error, a text for humans; empty if it has none.
        description: String,
    },
    /// A message violates the protocol.
    #[error("qemu's control socket said what is not understood: {line}")]
    NotUnderstood {
        /// Message as received, trimmed; reformatted if it is valid JSON.
        line: String,
        /// Error of parsing it as JSON, if that failed.
        #[source]
        source: Option<serde_json::Error>,
    },
}

/// An event of qemu.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Name, e.g. "DEVICE_DELETED", "SHUTDOWN", "STOP".
    pub name: String,
    /// Data; Null if it has none.
    pub data: Value,
}

/// A connection after the negotiation of capabilities, which accepts commands. Events that arrive during a command are kept until they are
/// read or forgotten.
#[derive(Debug)]
pub struct Qmp {
    stream: UnixStream,
    received: Vec<u8>,
    events: VecDeque<Event>,
    commands: u64,
}

impl Qmp {
    /// Connects, retrying until the limit since qemu may be starting, and negotiates.
    ///
    /// # Errors
    /// No process answers in time, or not with QMP.
    pub fn connect(path: &Path, limit: Duration) -> Result<Self, QmpError> {
        let until = Instant::now() + limit;
        let mut refused = None;
        let connected = crate::wait::poll(limit, || {
            UnixStream::connect(path)
                .map_err(|error| refused = Some(error))
                .ok()
        });
        let stream = connected.ok_or_else(|| QmpError::Connect {
            path: path.to_owned(),
            source: refused.unwrap_or_else(|| io::ErrorKind::TimedOut.into()),
        })?;
        let mut qmp = Self {
            stream,
            received: Vec::new(),
            events: VecDeque::new(),
            commands: 0,
        };
        qmp.greeting(limit, until)?;
        qmp.execute_within("qmp_capabilities", Value::Null, limit)?;
        Ok(qmp)
    }

    /// Reads up to qemu's greeting. It may be preceded by an event, or the rest of one, that the former client did not read: qemu keeps
    /// unwritten output for the next client (`monitor_flush_locked`, `outbuf`).
    fn greeting(&mut self, limit: Duration, until: Instant) -> Result<(), QmpError> {
        loop {
            match self.message("its greeting", limit, until) {
                Ok(message) if message.get("QMP").is_some() => return Ok(()),
                Ok(message) if as_event(&message).is_none() => {
                    return Err(not_understood(&message));
                }
                Ok(_) | Err(QmpError::NotUnderstood { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Runs a command (arguments Null: none) and returns its result, within `SOON`.
    ///
    /// # Errors
    /// The command was refused, or not answered in time.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value, QmpError> {
        self.execute_within(command, arguments, SOON)
    }

    /// Like `execute`, with another limit.
    ///
    /// # Errors
    /// The command was refused, or not answered in time.
    pub fn execute_within(
        &mut self,
        command: &str,
        arguments: Value,
        limit: Duration,
    ) -> Result<Value, QmpError> {
        let until = Instant::now() + limit;
        self.commands += 1;
        let id = self.commands;
        let mut request = json!({"execute": command, "id": id});
        if !arguments.is_null() {
            request["arguments"] = arguments;
        }
        let what = format!("the answer to {command}");
        self.stream
            .set_write_timeout(Some(limit))
            .and_then(|()| self.stream.write_all(format!("{request}\n").as_bytes()))
            .map_err(|source| io_error(&what, limit, source))?;
        loop {
            let mut message = self.message(&what, limit, until)?;
            if let Some(event) = as_event(&message) {
                self.events.push_back(event);
            } else if message["id"] != id {
                // The late answer to a command whose deadline had passed.
                if message.get("id").is_none() {
                    return Err(not_understood(&message));
                }
            } else if let Some(error) = message.get("error") {
                let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
                return Err(QmpError::Refused {
                    command: command.to_owned(),
                    class: text("class"),
                    description: text("desc"),
                });
            } else {
                return Ok(message["return"].take());
            }
        }
    }

    /// Returns the next event that fits; earlier ones that do not fit are kept.
    ///
    /// # Errors
    /// Not within the limit, or qemu has ended.
    pub fn event(
        &mut self,
        what: &str,
        limit: Duration,
        mut fits: impl FnMut(&Event) -> bool,
    ) -> Result<Event, QmpError> {
        if let Some(at) = self.events.iter().position(&mut fits) {
            return Ok(self.events.remove(at).expect("just found"));
        }
        let until = Instant::now() + limit;
        loop {
            let message = self.message(what, limit, until)?;
            if let Some(event) = as_event(&message) {
                if fits(&event) {
                    return Ok(event);
                }
                self.events.push_back(event);
            }
        }
    }

    /// Returns the next event of this name, e.g. "SHUTDOWN".
    ///
    /// # Errors
    /// Not within the limit, or qemu has ended.
    pub fn event_named(&mut self, name: &str, limit: Duration) -> Result<Event, QmpError> {
        self.event(name, limit, |event| event.name == name)
    }

    /// Drops all events received so far.
    pub fn forget_events(&mut self) {
        self.events.clear();
    }

    /// Reads one message, a line of JSON.
    fn message(&mut self, what: &str, limit: Duration, until: Instant) -> Result<Value, QmpError> {
        loop {
            if let Some(end) = self.received.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                return serde_json::from_slice(&line).map_err(|source| QmpError::NotUnderstood {
                    line: String::from_utf8_lossy(&line).trim().to_owned(),
                    source: Some(source),
                });
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(QmpError::Deadline {
                    what: what.to_owned(),
                    limit,
                });
            }
            let mut buffer = [0; 4096];
            let read = self
                .stream
                .set_read_timeout(Some(left))
                .and_then(|()| self.stream.read(&mut buffer));
            match read {
                Ok(0) => {
                    return Err(QmpError::Closed {
                        what: what.to_owned(),
                    });
                }
                Ok(length) => self.received.extend(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(io_error(what, limit, source)),
            }
        }
    }
}

fn io_error(what: &str, limit: Duration, source: io::Error) -> QmpError {
    let what = what.to_owned();
    match source.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => QmpError::Deadline { what, limit },
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => QmpError::Closed { what },
        _ => QmpError::Io { what, source },
    }
}

fn not_understood(message: &Value) -> QmpError {
    QmpError::NotUnderstood {
        line: message.to_string(),
        source: None,
    }
}

fn as_event(message: &Value) -> Option<Event> {
    Some(Event {
        name: message.get("event")?.as_str()?.to_owned(),
        data: message.get("data").cloned().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixListener, thread};

    use super::*;

    /// Starts a fake qemu that sends these lines to a client, and reads on.
    fn fake_qemu(dir: &Path, lines: &'static str) -> PathBuf {
        let path = dir.join("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(lines.as_bytes()).unwrap();
            let _ = io::copy(&mut stream, &mut io::sink());
        });
        path
    }

    const HELLO: &str = "{\"QMP\": {}}\r\n{\"return\": {}, \"id\": 1}\r\n";
    const SHORT: Duration = Duration::from_millis(200);

    #[test]
    fn events_between_answers_are_kept_until_they_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let lines = concat!(
            "{\"QMP\": {}}\r\n{\"return\": {}, \"id\": 1}\r\n",
            "{\"event\": \"STOP\"}\r\n{\"event\": \"DEVICE_DELETED\", \"data\": {\"device\": \"a\"}}\r\n",
            "{\"return\": {\"running\": true}, \"id\": 2}\r\n",
        );
        let mut qmp = Qmp::connect(&fake_qemu(dir.path(), lines), SOON).unwrap();
        let status = qmp.execute("query-status", Value::Null).unwrap();
        assert_eq!(status["running"], true);
        let gone = qmp.event_named("DEVICE_DELETED", SHORT).unwrap();
        assert_eq!(gone.data["device"], "a");
        assert_eq!(qmp.event_named("STOP", SHORT).unwrap().data, Value::Null);
    }

    #[test]
    fn events_that_the_former_client_did_not_read_come_before_the_greeting() {
        let dir = tempfile::tempdir().unwrap();
        let lines = concat!(
            "ion\": \"read\"}, \"event\": \"BLOCK_IO_ERROR\"}\r\n",
            "{\"event\": \"BLOCK_IO_ERROR\", \"data\": {\"node-name\": \"disk\"}}\r\n",
            "{\"QMP\": {}}\r\n{\"return\": {}, \"id\": 1}\r\n",
        );
        let mut qmp = Qmp::connect(&fake_qemu(dir.path(), lines), SOON).unwrap();
        let event = qmp.event_named("BLOCK_IO_ERROR", SHORT);
        assert!(matches!(event, Err(QmpError::Deadline { .. })), "{event:?}");
    }

    #[test]
    fn what_is_neither_a_greeting_nor_an_event_is_not_qemu() {
        let dir = tempfile::tempdir().unwrap();
        let refused = Qmp::connect(&fake_qemu(dir.path(), "{\"hello\": 1}\n"), SOON);
        assert!(
            matches!(refused, Err(QmpError::NotUnderstood { .. })),
            "{refused:?}"
        );
    }

    #[test]
    fn a_silent_qemu_is_a_deadline_and_its_late_answer_is_not_anothers() {
        let dir = tempfile::tempdir().unwrap();
        let mut qmp = Qmp::connect(&fake_qemu(dir.path(), HELLO), SOON).unwrap();
        let late = qmp.execute_within("stop", Value::Null, SHORT);
        assert!(matches!(late, Err(QmpError::Deadline { .. })), "{late:?}");
        qmp.received
            .extend(b"{\"return\": 1, \"id\": 2}\n{\"return\": 3, \"id\": 3}\n");
        assert_eq!(qmp.execute("cont", Value::Null).unwrap(), 3);
    }

    #[test]
    fn a_refusal_has_qemus_words() {
        let dir = tempfile::tempdir().unwrap();
        let mut qmp = Qmp::connect(&fake_qemu(dir.path(), HELLO), SOON).unwrap();
        qmp.received.extend(
            b"{\"id\": 2, \"error\": {\"class\": \"GenericError\", \"desc\": \"no such bus\"}}\n",
        );
        let refused = qmp.execute("device_add", Value::Null).unwrap_err();
        let text = refused.to_string();
        assert_eq!(text, "qemu refused device_add: no such bus (GenericError)");
    }

    #[test]
    fn a_missing_socket_is_reported_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("none");
        let error = Qmp::connect(&path, SHORT).unwrap_err();
        assert!(matches!(error, QmpError::Connect { .. }), "{error:?}");
    }
}
