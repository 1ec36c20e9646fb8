//! The listening socket for agents: a TCP address with TLS, or a unix socket, whose peers the kernel identifies.

use std::{fmt, io, net::SocketAddr, path::PathBuf, str::FromStr};

use drivebay_common::local::{NotASocketPath, unix_path};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixStream};

use super::{Security, limit::Source};
use crate::socket::{self, BindError, Bound};

/// Length of the kernel's accept queue, limited by net.core.somaxconn: 4096 by default since Linux 5.4.
const BACKLOG: u32 = 4096;

/// Value of `--listen`: `ADDRESS:PORT`, or `unix:` and an absolute path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    /// For agents that authenticate by certificate or token.
    Tcp(SocketAddr),
    /// For agents of the same machine.
    Unix(PathBuf),
}

/// The value of --listen is malformed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoListenAddress {
    #[error("{0:?} is neither ADDRESS:PORT (0.0.0.0:9443, [::]:9443) nor unix:/PATH")]
    Neither(String),
    #[error(transparent)]
    Path(#[from] NotASocketPath),
}

impl FromStr for ListenAddress {
    type Err = NoListenAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = unix_path(text) {
            return Ok(Self::Unix(path?));
        }
        let address = text.parse().map(Self::Tcp);
        address.map_err(|_| NoListenAddress::Neither(text.to_owned()))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("cannot listen for agents on {address}; see --listen")]
    Tcp {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("cannot listen for agents; see --listen")]
    Unix(#[from] BindError),
}

/// A listening TCP socket or unix socket.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener, Security),
    /// No authentication; the peer must run as root or as the user of this process.
    Unix(Bound),
}

/// A connection before its handshake.
pub(super) struct Accepted {
    pub(super) connection: Connection,
    /// Address of the peer, for logs and lists.
    pub(super) address: String,
    pub(super) source: Source,
}

pub(super) enum Connection {
    Tcp(TcpStream, Security),
    Unix(UnixStream),
}

impl Listener {
    /// Listens on a TCP address. Called before anything else starts, so that a wrong address is reported at once.
    pub async fn tcp(address: SocketAddr, security: Security) -> Result<Self, ListenError> {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()
        } else {
            TcpSocket::new_v6()
        };
        let listener = socket.and_then(|socket| {
            // After a restart, the former connections remain in TIME_WAIT for a minute.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            socket.listen(BACKLOG)
        });
        match listener {
            Ok(listener) => Ok(Self::Tcp(listener, security)),
            Err(source) => Err(ListenError::Tcp { address, source }),
        }
    }

    /// Listens on a unix socket, which is created with mode 0600.
    pub async fn unix(path: PathBuf) -> Result<Self, ListenError> {
        Ok(Self::Unix(socket::bind(&path).await?))
    }

    pub(super) async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener, security) => {
                let (stream, address) = listener.accept().await?;
                Ok(Accepted {
                    connection: Connection::Tcp(stream, security.clone()),
                    address: address.to_string(),
                    source: Source::from(address.ip()),
                })
            }
            Self::Unix(bound) => {
                let (stream, _) = bound.listener.accept().await?;
                Ok(Accepted {
                    connection: Connection::Unix(stream),
                    address: ListenAddress::Unix(bound.file.path().to_owned()).to_string(),
                    source: Source::Local,
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_or_a_unix_socket_is_listened_on() {
        for (text, expected) in [
            ("127.0.0.1:9443", Some("127.0.0.1:9443")),
            ("[::]:9443", Some("[::]:9443")),
            ("unix:/run/a.sock", Some("unix:/run/a.sock")),
            ("unix:///run/a.sock", Some("unix:/run/a.sock")),
            ("/run/a.sock", None),
            ("unix:a.sock", None),
            ("localhost:9443", None),
            ("9443", None),
        ] {
            let parsed = text.parse::<ListenAddress>().ok();
            let parsed = parsed.map(|address| address.to_string());
            assert_eq!(parsed.as_deref(), expected, "{text}");
        }
    }
}
