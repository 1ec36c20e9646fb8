//! A small HTTP server for /metrics, /healthz and /readyz. Nothing else depends on it: if it cannot listen, it logs that and retries.
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
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::{
    Families, Listen,
    families::{content_type, truth},
    listener::{Connection, Listener},
    rpc,
};
use crate::{cli, liveness::Liveness};

/// Largest number of open connections.
pub const CONNECTIONS: usize = 16;
/// Longest lifetime of a connection; Prometheus' default scrape timeout is 10 s.
pub const DEADLINE: Duration = Duration::from_secs(10);
/// Longest time for the request's header to arrive.
const HEADER: Duration = Duration::from_secs(5);
/// Largest request header, bytes; the smallest limit that the library accepts.
const HEADER_BYTES: usize = 8 << 10;
/// Limit of the liveness check of /healthz: shorter than a probe's timeout, so that the probe gets the answer.
const LIVENESS: Duration = Duration::from_secs(3);
/// Pause before listening is retried.
const RETRY: Duration = Duration::from_secs(5);

/// State that the server exposes. Both methods must return at once, from memory.
pub trait Exposed: Send + Sync + 'static {
    /// Puts every series in.
    fn collect(&self, into: &mut Families);
    /// True if the program is ready to serve.
    fn ready(&self) -> bool;
}

/// Pages that are served at one address.
#[derive(Clone)]
pub struct Pages {
    exposed: Arc<dyn Exposed>,
    liveness: Liveness,
    metrics: bool,
}

impl Pages {
    /// Serves /metrics, /healthz and /readyz.
    pub fn all(exposed: Arc<dyn Exposed>, liveness: Liveness) -> Self {
        Self {
            exposed,
            liveness,
            metrics: true,
        }
    }

    /// Returns /healthz and /readyz of these pages, for an address reachable by clients that must not read metrics.
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

/// Serves until `stop`; retries as long as the address cannot be bound. Returns at once for `Listen::Off`.
pub async fn serve(listen: Listen, pages: Pages, stop: CancellationToken) {
    if listen == Listen::Off {
        return;
    }
    let mut reported: Option<String> = None;
    let paths = pages.paths().trim_end();
    loop {
        let reason = match Listener::bind(&listen).await {
            Ok(listener) => {
                tracing::info!(%listen, paths, "serving HTTP");
                reported = None;
                tokio::select! {
                    () = stop.cancelled() => return,
                    error = accept(&listener, &pages) => format!("cannot accept connections: {error}"),
                }
            }
            Err(error) => cli::chain(&error),
        };
        // Log each reason once until it changes.
        if reported.as_ref() != Some(&reason) {
            tracing::error!(%listen, paths, reason, "cannot serve HTTP; will retry");
            reported = Some(reason);
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RETRY) => {}
        }
    }
}

/// Serves connections until no more can be accepted.
async fn accept(listener: &Listener, pages: &Pages) -> io::Error {
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok(stream) => stream,
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
            match tokio::time::timeout(DEADLINE, connection(stream, pages)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "HTTP connection failed"),
                Err(_) => tracing::debug!("HTTP connection timed out; closed"),
            }
        });
        open.push_back(served.abort_handle());
    }
}

async fn connection(stream: Box<dyn Connection>, pages: Pages) -> hyper::Result<()> {
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
            // The reason is logged, and not shown to clients of this address.
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

/// Returns all families of a scrape.
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
