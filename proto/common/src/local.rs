//! Sessions between programs on one machine: addresses `unix:/PATH`, and the users that are trusted as peers.

use std::{io, path::PathBuf};

use nix::unistd::geteuid;
use tokio::net::UnixStream;

/// Longest path of a socket, bytes: sockaddr_un has 108 with the final NUL.
pub const MAX_SOCKET_PATH: usize = 107;

/// An address that begins with `unix:` and has no usable path after that.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{given:?} is not a unix socket: write unix: and an absolute path without '..', of at most {MAX_SOCKET_PATH} bytes, such as unix:/run/drivebay-controller/agents.sock"
)]
pub struct NotASocketPath {
    given: String,
}

/// Returns the path of `unix:/PATH` or `unix:///PATH`; None for an address of another kind. Errs if [`is_socket_path`] is false for it.
pub fn unix_path(address: &str) -> Option<Result<PathBuf, NotASocketPath>> {
    let path = address.strip_prefix("unix:")?;
    let path = path.strip_prefix("//").unwrap_or(path);
    Some(if is_socket_path(path) {
        Ok(path.into())
    } else {
        Err(NotASocketPath {
            given: address.to_owned(),
        })
    })
}

/// True if this can be the path of a unix socket: absolute, no `..`, no control characters, at most [`MAX_SOCKET_PATH`] bytes.
pub fn is_socket_path(path: &str) -> bool {
    path.starts_with('/')
        && !path.ends_with('/')
        && !path.split('/').any(|part| part == "..")
        && !path.chars().any(char::is_control)
        && path.len() <= MAX_SOCKET_PATH
}

/// The peer of a unix socket is not trusted.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The kernel does not report the peer's user.
    #[error("cannot tell which user is at the other end of the unix socket: {0}")]
    Unknown(#[source] io::Error),
    /// The peer runs as another user than root and this process.
    #[error(
        "user {peer} is at the other end of the unix socket; only root and user {own} are trusted there"
    )]
    OtherUser {
        peer: u32,
        /// User id of this process.
        own: u32,
    },
}

/// Errs unless the peer runs as root or as the user of this process. The kernel reports the user of a client as of connect(2), and of a
/// server as of listen(2).
pub fn check_peer(stream: &UnixStream) -> Result<(), PeerError> {
    let peer = stream.peer_cred().map_err(PeerError::Unknown)?.uid();
    judge(peer, geteuid().as_raw())
}

fn judge(peer: u32, own: u32) -> Result<(), PeerError> {
    if peer == 0 || peer == own {
        Ok(())
    } else {
        Err(PeerError::OtherUser { peer, own })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unix_address_has_a_plain_absolute_path() {
        let path = |text: &str| unix_path(text).map(|path| path.ok());
        let run = Some(Some(PathBuf::from("/run/a.sock")));
        assert_eq!(path("unix:/run/a.sock"), run);
        assert_eq!(path("unix:///run/a.sock"), run);
        assert_eq!(path("/run/a.sock"), None);
        assert_eq!(path("10.0.0.1:9443"), None);
        let long = format!("unix:/{}", "x".repeat(107));
        for text in [
            "unix:",
            "unix:a.sock",
            "unix:/run/",
            "unix:/../a",
            "unix:/\n",
            &long,
        ] {
            assert_eq!(path(text), Some(None), "{text}");
        }
    }

    #[test]
    fn root_and_the_own_user_are_trusted_and_nobody_else() {
        for (peer, own, trusted) in [
            (0, 0, true),
            (0, 1000, true),
            (1000, 1000, true),
            (1000, 0, false),
            (1000, 1001, false),
        ] {
            assert_eq!(judge(peer, own).is_ok(), trusted, "{peer} {own}");
        }
    }

    #[tokio::test]
    async fn the_kernel_names_the_user_of_a_connection() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert!(check_peer(&one).is_ok());
    }
}
