//! A worker's end of its socket to the agent.

use std::{
    fs, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{fs::FileTypeExt, net::UnixStream},
    },
};

use nix::{
    fcntl::{FcntlArg, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

/// Takes the socket of a worker, or of the worker server, from descriptor 0 and replaces that by /dev/null, so that no tool inherits the
/// socket.
pub fn socket_from_stdin() -> io::Result<OwnedFd> {
    let stdin = io::stdin();
    // SAFETY: F_DUPFD_CLOEXEC returns a new descriptor, which has no other owner.
    let socket = unsafe {
        use std::os::fd::FromRawFd;
        OwnedFd::from_raw_fd(fcntl(&stdin, FcntlArg::F_DUPFD_CLOEXEC(3))?)
    };
    let file = fs::File::from(socket);
    if !file.metadata()?.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "descriptor 0 is no socket; workers are started by the agent only",
        ));
    }
    let null = fs::File::open("/dev/null")?;
    nix::unistd::dup2_stdin(&null)?;
    Ok(file.into())
}

/// True if the peer has closed its end of a socket. A peer that only stopped sending has not.
pub fn is_hung_up(socket: &UnixStream) -> bool {
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::empty())];
    poll(&mut fds, PollTimeout::ZERO).is_ok()
        && fds.iter().any(|fd| {
            fd.revents()
                .is_some_and(|events| events.contains(PollFlags::POLLHUP))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_peer_that_is_gone_has_hung_up() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        assert!(!is_hung_up(&ours));
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(!is_hung_up(&ours));
        drop(theirs);
        assert!(is_hung_up(&ours));
    }
}
