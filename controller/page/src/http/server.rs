//! Connections of the page, over loopback or a unix socket.
//!
//! Each connection is for one request. Beyond [`CONNECTIONS`] new ones are closed, not the oldest: that may be a stream in use.

use std::{
    convert::Infallible,
    fmt, io,
    net::SocketAddr,
    path::PathBuf,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use drivebay_common::{
    cli,
    metrics::{Connection, Listen, Listener},
};
use hyper::{
    Request, Response, body::Incoming, header::CONTENT_TYPE, server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, sync::Semaphore, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{
    Page,
    guard::{Hosts, is_loopback},
    route::{Body, respond},
    stream,
};

/// Most open connections: all streams, all requests, and as many that have not sent a request yet.
const CONNECTIONS: usize = 192;
/// Longest time for a request's header to arrive.
const HEADER: Duration = Duration::from_secs(5);
/// Largest request header, bytes, with a token of 8 KiB in it.
const HEADER_BYTES: usize = 16 << 10;
/// Longest lifetime of a connection that is no stream: a fleet of some megabytes over a slow forwarded port.
const DEADLINE: Duration = Duration::from_secs(60);
/// Pause before listening is retried.
const RETRY: Duration = Duration::from_secs(5);

/// Address of the page: loopback, a unix socket, or none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PageListen {
    /// A loopback address; parsing refuses any other one.
    Tcp(SocketAddr),
    /// Path of a unix socket, created with mode 0600.
    Unix(PathBuf),
    #[default]
    Off,
}

/// The page cannot be served at this address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    #[error(
        "{given:?} is not an address to serve the page at: give a loopback address and a port (127.0.0.1:9813, [::1]:9813), an absolute \
         path of a unix socket, or \"off\""
    )]
    NoAddress { given: String },
    #[error(
        "the page is not served at {address}, which other machines can reach: give a loopback address such as 127.0.0.1:{port}, and \
         forward the port (`ssh -L {port}:127.0.0.1:{port} HOST`, `kubectl port-forward POD {port}`)",
        port = .address.port()
    )]
    NotLoopback { address: SocketAddr },
}

impl PageListen {
    /// Returns the address for [`Listener::bind`].
    pub fn listen(&self) -> Listen {
        match self {
            Self::Tcp(address) => Listen::Tcp(*address),
            Self::Unix(path) => Listen::Unix(path.clone()),
            Self::Off => Listen::Off,
        }
    }
}

impl FromStr for PageListen {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Self, ListenError> {
        match text.parse::<Listen>() {
            Ok(Listen::Off) => Ok(Self::Off),
            Ok(Listen::Unix(path)) => Ok(Self::Unix(path)),
            Ok(Listen::Tcp(address)) if is_loopback(&address) => Ok(Self::Tcp(address)),
            Ok(Listen::Tcp(address)) => Err(ListenError::NotLoopback { address }),
            Err(_) => Err(ListenError::NoAddress {
                given: text.to_owned(),
            }),
        }
    }
}

impl fmt::Display for PageListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}/"),
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Off => f.write_str("off"),
        }
    }
}

/// Serves until `stop`; retries as long as the address cannot be bound. Returns at once for [`PageListen::Off`]. `forwarded`: clients
/// come over forwarded ports, so that Host may name any port.
pub async fn serve(listen: PageListen, page: Page, forwarded: bool, stop: CancellationToken) {
    if listen == PageListen::Off {
        return;
    }
    let mut reported: Option<String> = None;
    loop {
        let reason = match Listener::bind(&listen.listen()).await {
            Ok(listener) => {
                tracing::info!(%listen, "serving the page");
                reported = None;
                let hosts = match listen {
                    PageListen::Tcp(address) if !forwarded => Hosts::Port(address.port()),
                    _ => Hosts::AnyPort,
                };
                tokio::select! {
                    () = stop.cancelled() => return,
                    error = accept(&listener, &page, hosts) => format!("cannot accept connections: {error}"),
                }
            }
            Err(error) => cli::chain(&error),
        };
        // Log each reason once until it changes.
        if reported.as_ref() != Some(&reason) {
            tracing::error!(%listen, reason, "cannot serve the page; will retry");
            reported = Some(reason);
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(RETRY) => {}
        }
    }
}

/// Serves on a bound loopback listener until it fails. Host must name its port.
pub async fn serve_on(listener: TcpListener, page: Page) -> io::Error {
    match listener.local_addr() {
        Ok(address) => {
            let hosts = Hosts::Port(address.port());
            accept(&listener.into(), &page, hosts).await
        }
        Err(error) => error,
    }
}

/// Serves connections until no more can be accepted.
async fn accept(listener: &Listener, page: &Page, hosts: Hosts) -> io::Error {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let stream = match listener.accept().await {
            Ok(stream) => stream,
            Err(error) => return error,
        };
        let Ok(permit) = permits.clone().try_acquire_owned() else {
            tracing::debug!("page connection limit reached; new connection closed");
            continue;
        };
        let page = page.clone();
        tokio::spawn(async move {
            if let Err(error) = connection(stream, &page, hosts).await {
                tracing::debug!(%error, "page connection failed");
            }
            drop(permit);
        });
    }
}

async fn connection(stream: Box<dyn Connection>, page: &Page, hosts: Hosts) -> hyper::Result<()> {
    let is_stream = AtomicBool::new(false);
    let answer = service_fn(|request: Request<Incoming>| {
        let is_stream = &is_stream;
        async move {
            let response = respond(request, page, hosts).await;
            is_stream.store(is_event_stream(&response), Ordering::Relaxed);
            Ok::<_, Infallible>(response)
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER)
        .keep_alive(false)
        .max_buf_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), answer);
    tokio::pin!(served);
    tokio::select! {
        ended = &mut served => return ended,
        () = sleep(DEADLINE) => {}
        () = page.stop.cancelled() => return Ok(()),
    }
    if !is_stream.load(Ordering::Relaxed) {
        tracing::debug!("page connection timed out; closed");
        return Ok(());
    }
    // The stream has limits of its own.
    tokio::select! {
        ended = &mut served => ended,
        () = page.stop.cancelled() => Ok(()),
    }
}

fn is_event_stream(response: &Response<Body>) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE);
    content_type.is_some_and(|it| it.as_bytes() == stream::CONTENT_TYPE.as_bytes())
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod server_tests;
