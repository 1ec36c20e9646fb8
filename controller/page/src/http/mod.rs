//! The page over HTTP/1.1: bounds of connections (`server`), which requests are answered (`guard`), with what (`route`), and streams of
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

/// Most streams of changes at a time.
pub const STREAMS: usize = 64;
/// Most requests for data that are answered at a time; streams do not count.
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
