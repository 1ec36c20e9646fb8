//! Listening sockets of HTTP servers, TCP or unix, whose connections have one type.

use std::{fmt, io, net::SocketAddr};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};

use super::Listen;
use crate::socket::{self, Bound};

/// Byte stream of an accepted connection, TCP or unix. Implemented for every type with these bounds.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// A listening socket. Closed on drop; the file of a unix socket is removed.
pub struct Listener(Kind);

enum Kind {
    Tcp(TcpListener),
    Unix(Bound),
}

/// Nothing listens at the address.
#[derive(Debug, thiserror::Error)]
pub enum NotBound {
    #[error("{address} is in use by another process; stop that process, or choose another address")]
    InUse { address: SocketAddr },
    #[error("cannot listen at {address}")]
    Tcp {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Unix(#[from] socket::BindError),
    #[error("the address is \"off\"")]
    Off,
}

impl Listener {
    /// Listens at this address. A unix socket is created with mode 0600 and replaces a stale one, as [`socket::bind`] does.
    ///
    /// # Errors
    /// [`NotBound`]
    pub async fn bind(listen: &Listen) -> Result<Self, NotBound> {
        match listen {
            Listen::Tcp(address) => {
                let address = *address;
                let bound = TcpListener::bind(address).await;
                let listener = bound.map_err(|source| match source.kind() {
                    io::ErrorKind::AddrInUse => NotBound::InUse { address },
                    _ => NotBound::Tcp { address, source },
                })?;
                Ok(listener.into())
            }
            Listen::Unix(path) => Ok(Self(Kind::Unix(socket::bind(path).await?))),
            Listen::Off => Err(NotBound::Off),
        }
    }

    /// Returns the next connection; TCP connections send small writes at once. Cancel safe.
    ///
    /// # Errors
    /// No more connections can be accepted until the address is bound again.
    pub async fn accept(&self) -> io::Result<Box<dyn Connection>> {
        loop {
            let accepted = match &self.0 {
                Kind::Tcp(listener) => listener.accept().await.map(|(stream, _)| {
                    // Without it each event of a stream would wait for the acknowledgement of the one before.
                    let _ = stream.set_nodelay(true);
                    Box::new(stream) as Box<dyn Connection>
                }),
                Kind::Unix(bound) => {
                    let accepted = bound.listener.accept().await;
                    accepted.map(|(stream, _)| Box::new(stream) as Box<dyn Connection>)
                }
            };
            match accepted {
                // The client closed the connection before it was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                accepted => return accepted,
            }
        }
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self(Kind::Tcp(listener))
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Tcp(listener) => listener.fmt(f),
            Kind::Unix(bound) => bound.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpStream, UnixStream},
    };

    use super::*;

    async fn assert_echoes(listener: &Listener, mut client: impl Connection) {
        let mut accepted = listener.accept().await.unwrap();
        client.write_all(b"request").await.unwrap();
        let mut request = [0; 7];
        accepted.read_exact(&mut request).await.unwrap();
        accepted.write_all(&request).await.unwrap();
        drop(accepted);
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "request");
    }

    #[tokio::test]
    async fn connections_over_tcp_and_unix_sockets_are_accepted_alike() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("h.sock");
        let listener = Listener::bind(&Listen::Unix(path.clone())).await.unwrap();
        let client = UnixStream::connect(&path).await.unwrap();
        assert_echoes(&listener, client).await;
        drop(listener);
        assert!(!path.exists());

        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let listener = Listener::from(tcp);
        let client = TcpStream::connect(address).await.unwrap();
        assert_echoes(&listener, client).await;
    }

    #[tokio::test]
    async fn an_address_that_cannot_be_bound_is_named_with_the_reason() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap();
        let error = Listener::bind(&Listen::Tcp(address)).await.unwrap_err();
        assert!(matches!(error, NotBound::InUse { .. }), "{error}");
        assert!(error.to_string().contains(&address.to_string()), "{error}");

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("missing/h.sock");
        let error = Listener::bind(&Listen::Unix(path)).await.unwrap_err();
        let reason = crate::cli::chain(&error);
        assert!(
            reason.contains("missing/h.sock") && reason.contains("No such file"),
            "{reason}"
        );

        let error = Listener::bind(&Listen::Off).await.unwrap_err();
        assert!(matches!(error, NotBound::Off), "{error}");
    }
}
