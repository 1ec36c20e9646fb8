//! The worker server: a process of one thread that forks workers, which share its memory until they write to it.
//!
//! It is this program, executed by the agent like a worker, and accesses no drive. The agent sends the descriptors of a new worker's socket
//! and log, and its title in the process list. The server forks twice and waits for the intermediate process, so that the worker is the
//! agent's child when the reply, its process id, arrives. The worker itself sends the reply, when it has its session and its descriptors.
//! The server ends when the agent does.

use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut, Read, Write},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    path::Path,
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    sys::{
        socket::{
            AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType,
            recvmsg, sendmsg, socketpair,
        },
        wait::waitpid,
    },
    unistd::{ForkResult, dup2_stderr, dup3, fork, pipe2, setsid, write},
};

use super::{
    child::{Child, Starting},
    start::{Started, execute, started},
};

/// Name of the hidden command.
pub const COMMAND: &str = "worker-server";
/// Limit for a fork. It takes a millisecond; the machine may be busy.
const ANSWER: Duration = Duration::from_secs(5);
/// Bytes for the title of a worker in the process list.
const TITLE: usize = 160;
/// Bytes that are kept of the server's last output.
const LOG: u64 = 4096;

/// The agent's connection to a server.
#[derive(Debug)]
pub(super) struct Line {
    socket: UnixStream,
    log: File,
    server: Child,
    answered: bool,
}

impl Line {
    /// Executes a server. Needs a tokio runtime.
    pub(super) fn start(program: &Path) -> io::Result<Self> {
        let (ours, theirs) = socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )?;
        let (log, theirs_log) = pipe2(OFlag::O_CLOEXEC)?;
        fcntl(&log, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let socket = UnixStream::from(ours);
        socket.set_read_timeout(Some(ANSWER))?;
        socket.set_write_timeout(Some(ANSWER))?;
        let starting = Starting::begin();
        // The kernel shows arguments from their initial address: reserve space for a worker's.
        let room = " ".repeat(TITLE);
        let server = execute(program, &[COMMAND, &room], theirs, theirs_log, &starting)?;
        Ok(Self {
            socket,
            log: log.into(),
            server,
            answered: false,
        })
    }

    pub(super) fn pid(&self) -> i32 {
        self.server.pid()
    }

    /// True if the server has replied at least once.
    pub(super) fn has_answered(&self) -> bool {
        self.answered
    }

    /// Has the server fork a worker. After an error the server is unusable, and a worker that it may still have forked finds its socket
    /// closed.
    pub(super) fn fork(&mut self, args: &[&str]) -> io::Result<Started> {
        let (ours, theirs) = UnixStream::pair()?;
        let (log, theirs_log) = pipe2(OFlag::O_CLOEXEC)?;
        let title = ["worker"]
            .iter()
            .chain(args)
            .copied()
            .collect::<Vec<_>>()
            .join("\0");
        let starting = Starting::begin();
        sendmsg::<()>(
            self.socket.as_raw_fd(),
            &[IoSlice::new(title.as_bytes())],
            &[ControlMessage::ScmRights(&[
                theirs.as_raw_fd(),
                theirs_log.as_raw_fd(),
            ])],
            MsgFlags::MSG_NOSIGNAL,
            None,
        )?;
        drop((theirs, theirs_log));
        let mut answer = [0; 4];
        self.socket.read_exact(&mut answer)?;
        let pid = i32::from_ne_bytes(answer);
        if pid <= 0 {
            return Err(io::Error::other("it could not fork a worker"));
        }
        self.answered = true;
        started(starting.child(pid)?, ours, log)
    }

    /// Kills the server and returns its last output.
    pub(super) fn end(&mut self) -> String {
        self.server.kill();
        let mut log = Vec::new();
        // Does not wait: output that is not written yet is lost.
        let _ = (&self.log).take(LOG).read_to_end(&mut log);
        String::from_utf8_lossy(&log).trim().to_owned()
    }
}

/// Message from the agent.
struct ForkRequest {
    title: Vec<u8>,
    socket: OwnedFd,
    log: OwnedFd,
}

/// Forks workers, in the server, until the agent closes its socket; returns None then. In each worker it returns the worker's socket.
pub fn serve(mut agent: OwnedFd) -> io::Result<Option<UnixStream>> {
    while let Some(request) = receive(&agent)? {
        let (answer, report) = pipe2(OFlag::O_CLOEXEC)?;
        // SAFETY: this process has one thread, so the child may do what it could do before.
        match unsafe { fork() } {
            Ok(ForkResult::Child) => match unsafe { fork() } {
                Ok(ForkResult::Child) => {
                    drop(answer);
                    become_worker(&mut agent, request, report.into())?;
                    return Ok(Some(UnixStream::from(agent)));
                }
                // SAFETY: ends the intermediate process without running the server's exit handlers.
                other => unsafe { libc::_exit(i32::from(other.is_err())) },
            },
            Ok(ForkResult::Parent { child: between }) => {
                drop((report, request));
                let mut pid = [0; 4];
                // No reply: the worker ended before, or was not forked.
                if File::from(answer).read_exact(&mut pid).is_err() {
                    pid = 0_i32.to_ne_bytes();
                }
                waitpid(between, None)?;
                write(&agent, &pid)?;
            }
            Err(_) => drop(write(&agent, &0_i32.to_ne_bytes())?),
        }
    }
    Ok(None)
}

/// Gives the worker its session and descriptors; then reports its process id.
fn become_worker(agent: &mut OwnedFd, request: ForkRequest, mut report: File) -> io::Result<()> {
    let pid = setsid()?;
    dup2_stderr(&request.log)?;
    // Replaces the server's own socket, which a worker must not have.
    dup3(&request.socket, agent, OFlag::O_CLOEXEC)?;
    set_title(&request.title);
    report.write_all(&pid.as_raw().to_ne_bytes())
}

/// Receives a request; None if the agent has closed its socket.
fn receive(agent: &OwnedFd) -> io::Result<Option<ForkRequest>> {
    let mut title = vec![0; TITLE];
    let mut buffers = [IoSliceMut::new(&mut title)];
    let mut space = nix::cmsg_space!([RawFd; 2]);
    let message = loop {
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        match recvmsg::<()>(agent.as_raw_fd(), &mut buffers, Some(&mut space), flags) {
            Err(Errno::EINTR) => {}
            other => break other?,
        }
    };
    let mut passed = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(numbers) = control {
            // SAFETY: the kernel has just made these for this process, which owns them from here on.
            passed.extend(
                numbers
                    .into_iter()
                    .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }),
            );
        }
    }
    let len = message.bytes;
    if len == 0 {
        return Ok(None);
    }
    title.truncate(len);
    match <[OwnedFd; 2]>::try_from(passed) {
        Ok([socket, log]) => Ok(Some(ForkRequest { title, socket, log })),
        Err(_) => Err(io::Error::other("a request without two descriptors")),
    }
}

/// Replaces the server's arguments in the process list by the worker's.
fn set_title(title: &[u8]) {
    let Ok(stat) = procfs::process::Process::myself().and_then(|own| own.stat()) else {
        return;
    };
    let (Some(start), Some(end)) = (stat.arg_start, stat.arg_end) else {
        return;
    };
    let (Ok(start), Ok(end)) = (usize::try_from(start), usize::try_from(end)) else {
        return;
    };
    if start == 0 || end <= start {
        return;
    }
    // SAFETY: the address of this process's arguments from the kernel: mapped, writable, and not accessed elsewhere, since there is one
    // thread. The last byte, which ends the last argument, stays NUL.
    let arguments = unsafe {
        std::slice::from_raw_parts_mut(
            std::ptr::with_exposed_provenance_mut::<u8>(start),
            end - start,
        )
    };
    place(arguments, title);
}

/// Writes the title after the program's name. Pure.
fn place(arguments: &mut [u8], title: &[u8]) {
    let name = arguments.iter().position(|byte| *byte == 0);
    let Some((last, rest)) = name.and_then(|name| arguments[name + 1..].split_last_mut()) else {
        return;
    };
    *last = 0;
    let len = title.len().min(rest.len());
    rest.fill(0);
    rest[..len].copy_from_slice(&title[..len]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_title_replaces_all_arguments_but_the_name_and_stays_within_their_room() {
        let mut arguments = *b"agent\0worker-server\0   \0";
        place(&mut arguments, b"worker\0stage\0d");
        assert_eq!(&arguments, b"agent\0worker\0stage\0d\0\0\0\0");
        place(&mut arguments, &[b'x'; 40]);
        assert_eq!(&arguments, b"agent\0xxxxxxxxxxxxxxxxx\0");
        let mut nothing = *b"agent\0";
        place(&mut nothing, b"worker");
        assert_eq!(&nothing, b"agent\0");
    }
}
