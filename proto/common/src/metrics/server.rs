//! A small HTTP server for /metrics, /healthz and /readyz. Nothing else depends on it: where it cannot listen, that is
//! logged and tried again, and everything else runs on.
//!
//! Each connection is for one request and ends within [`DEADLINE`]. Beyond [`CONNECTIONS`] the oldest is closed:
//! clients that open connections and send nothing must not keep a liveness probe waiting until it fails.

use std::{collections::VecDeque, convert::Infallible, io, sync::Arc, time::Duration};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ALLOW, CONTENT_TYPE},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixStream},
    task::AbortHandle,
};
use tokio_util::sync::CancellationToken;

use super::{
    Families, Listen,
    families::{content_type, truth},
    rpc,
};
use crate::{
    liveness::Liveness,
    socket::{self, Bound},
};

/// Connections at a time.
pub const CONNECTIONS: usize = 16;
/// A connection ends within this; Prometheus itself gives up after 10 s unless told otherwise.
pub const DEADLINE: Duration = Duration::from_secs(10);
/// The request has come within this.
const HEADER: Duration = Duration::from_secs(5);
/// A request's header is no larger, bytes; the library's least.
const HEADER_BYTES: usize = 8 << 10;
/// /healthz is answered within this: less than the timeout of a probe, so that the probe gets the answer.
const LIVENESS: Duration = Duration::from_secs(3);
/// An address that is taken is tried again after this.
const RETRY: Duration = Duration::from_secs(5);

/// What is served. Both methods answer from memory, at once.
pub trait Exposed: Send + Sync + 'static {
    /// Puts every series in.
    fn collect(&self, into: &mut Families);
    /// Whether the program can do its work yet.
    fn ready(&self) -> bool;
}

/// What is served at one address.
#[derive(Clone)]
pub struct Pages {
    exposed: Arc<dyn Exposed>,
    liveness: Liveness,
    metrics: bool,
}

impl Pages {
    /// /metrics, /healthz and /readyz.
    pub fn all(exposed: Arc<dyn Exposed>, liveness: Liveness) -> Self {
        Self {
            exposed,
            liveness,
            metrics: true,
        }
    }

    /// /healthz and /readyz of these pages, for an address that more clients can reach than may read metrics.
    pub fn probes(&self) -> Self {
        Self {
            metrics: false,
            ..self.clone()
        }
    }

    fn paths(&self) -> &'static str {
        if self.metrics {
            "/metrics, /healthz or /readyz\n"
        } else {
            "/healthz or /readyz\n"
        }
    }
}

enum Listener {
    Tcp(TcpListener),
    Unix(Bound),
}

/// Why there is no listening, in one line.
type Why = String;

/// Serves until `stop`. An address that cannot be had is tried again for as long.
pub async fn serve(listen: Listen, pages: Pages, stop: CancellationToken) {
    if listen == Listen::Off {
        return;
    }
    let mut said: Option<Why> = None;
    let paths = pages.paths().trim_end();
    loop {
        let ended = match bind(&listen).await {
            Ok(listener) => {
                tracing::info!(%listen, paths, "serving HTTP");
                said = None;
                tokio::select! {
                    () = stop.cancelled() => return,
                    error = accept(listener, &pages) => format!("no connections can be taken: {error}"),
                }
            }
            Err(why) => why,
        };
        // Once, and again when it is another reason.
        if said.as_ref() != Some(&ended) {
            tracing::error!(
                %listen,
                paths,
                reason = ended,
                "cannot serve HTTP; will retry"
            );
            said = Some(ended);
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RETRY) => {}
        }
    }
}

async fn bind(listen: &Listen) -> Result<Listener, Why> {
    match listen {
        Listen::Tcp(address) => match TcpListener::bind(address).await {
            Ok(listener) => Ok(Listener::Tcp(listener)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(format!(
                "{address} is in use by another process; stop that process, or choose another address"
            )),
            Err(error) => Err(error.to_string()),
        },
        Listen::Unix(path) => match socket::bind(path).await {
            Ok(bound) => Ok(Listener::Unix(bound)),
            Err(error) => Err(match std::error::Error::source(&error) {
                Some(source) => format!("{error}: {source}"),
                None => error.to_string(),
            }),
        },
        Listen::Off => Err("it is off".to_owned()),
    }
}

// Ends when no more connections can be taken.
async fn accept(listener: Listener, pages: &Pages) -> io::Error {
    enum Stream {
        Tcp(TcpStream),
        Unix(UnixStream),
    }
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let accepted = match &listener {
            Listener::Tcp(tcp) => tcp.accept().await.map(|(stream, _)| Stream::Tcp(stream)),
            Listener::Unix(unix) => {
                let accepted = unix.listener.accept().await;
                accepted.map(|(stream, _)| Stream::Unix(stream))
            }
        };
        let stream = match accepted {
            Ok(stream) => stream,
            // The other end was gone before it was taken.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => return error,
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() >= CONNECTIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let pages = pages.clone();
        let served = tokio::spawn(async move {
            let served = async {
                match stream {
                    Stream::Tcp(stream) => connection(stream, pages).await,
                    Stream::Unix(stream) => connection(stream, pages).await,
                }
            };
            match tokio::time::timeout(DEADLINE, served).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "HTTP connection failed"),
                Err(_) => tracing::debug!("HTTP connection timed out; closed"),
            }
        });
        open.push_back(served.abort_handle());
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    pages: Pages,
) -> hyper::Result<()> {
    let answer = service_fn(|request: Request<Incoming>| {
        let pages = &pages;
        async move {
            let response = respond(request.method(), request.uri().path(), pages).await;
            Ok::<_, Infallible>(response)
        }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER)
        .keep_alive(false)
        .max_buf_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), answer)
        .await
}

async fn respond(method: &Method, path: &str, pages: &Pages) -> Response<Full<Bytes>> {
    if method != Method::GET && method != Method::HEAD {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "GET or HEAD\n");
        response.headers_mut().insert(ALLOW, GET_OR_HEAD);
        return response;
    }
    match path {
        "/metrics" if pages.metrics => metrics(pages.exposed.as_ref()),
        "/healthz" => match pages.liveness.check_shared(LIVENESS).await {
            Ok(()) => text(StatusCode::OK, "ok\n"),
            // The reason is logged; whoever reaches this address need not read it.
            Err(_) => text(
                StatusCode::SERVICE_UNAVAILABLE,
                "the CSI socket does not answer\n",
            ),
        },
        "/readyz" if pages.exposed.ready() => text(StatusCode::OK, "ready\n"),
        "/readyz" => text(StatusCode::SERVICE_UNAVAILABLE, "starting\n"),
        _ => text(StatusCode::NOT_FOUND, pages.paths()),
    }
}

const GET_OR_HEAD: hyper::header::HeaderValue =
    hyper::header::HeaderValue::from_static("GET, HEAD");
const PLAIN: hyper::header::HeaderValue =
    hyper::header::HeaderValue::from_static("text/plain; charset=utf-8");

fn text(status: StatusCode, body: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, PLAIN);
    response
}

fn metrics(exposed: &dyn Exposed) -> Response<Full<Bytes>> {
    match scrape(exposed).encode() {
        Ok(body) => {
            let mut response = Response::new(Full::from(body));
            let format = content_type().parse().unwrap_or(PLAIN);
            response.headers_mut().insert(CONTENT_TYPE, format);
            response
        }
        Err(error) => {
            let why = std::error::Error::source(&error).map(ToString::to_string);
            tracing::error!(%error, why, "cannot answer a metrics scrape");
            text(StatusCode::INTERNAL_SERVER_ERROR, "see the log\n")
        }
    }
}

/// All that a scrape of this shows.
pub fn scrape(exposed: &dyn Exposed) -> Families {
    let mut families = Families::default();
    exposed.collect(&mut families);
    families.put(&super::READY, &[], truth(exposed.ready()));
    families.extend(rpc::gather());
    families
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
