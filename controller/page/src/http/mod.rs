//! The page over HTTP/1.1: connections and their bounds (`server`), checks of headers (`guard`), answers by path (`route`), streams of
//! changes (`stream`).

pub mod assets;
pub mod guard;
mod query;
mod route;
mod server;
mod stream;

pub use server::{ListenError, PageListen, serve, serve_on};

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{access::Access, live::Live, source::Source};

/// Most open streams of changes.
pub const STREAMS: usize = 64;
/// Most requests for data that are computed at a time, reviews of tokens included. A request's permit is dropped before its answer is
/// sent, so that slow clients do not keep it; connections bound the answers that are being sent.
pub const REQUESTS: usize = 32;

/// The page, shared by all connections. Clones are one page.
#[derive(Clone)]
pub struct Page {
    source: Arc<dyn Source>,
    live: Arc<Live>,
    access: Access,
    streams: Arc<Semaphore>,
    requests: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Page {
    /// Returns the page of this source, and starts to follow it. Must be called within a tokio runtime.
    pub fn new(source: Arc<dyn Source>, access: Access, stop: CancellationToken) -> Self {
        Self {
            live: Live::start(source.clone(), stop.clone()),
            source,
            access,
            streams: Arc::new(Semaphore::new(STREAMS)),
            requests: Arc::new(Semaphore::new(REQUESTS)),
            stop,
        }
    }
}
