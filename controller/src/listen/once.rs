//! A gRPC channel over a single connection that an agent has opened. It never reconnects, and cancelling its token ends it
//! together with all calls on it.

use std::time::Duration;

use hyper::client::conn::http2::Builder;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use drivebay_common::breakable::Breakable;
use drivebay_service::agents::AgentChannel;

/// Idle time after which a ping is sent.
const PING_EVERY: Duration = Duration::from_secs(4);
/// Timeout of the ping's answer: a dead peer is detected within ten seconds.
const PING_ANSWER: Duration = Duration::from_secs(5);
/// HTTP/2 flow-control window, bytes: enough for a snapshot of a few hundred volumes.
const WINDOW: u32 = 1 << 20;

/// Performs the HTTP/2 handshake and returns the channel. Calls fail once the connection is lost or `end` is cancelled, so that
/// an agent whose session has ended cannot answer them.
pub(super) async fn channel_over(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    end: CancellationToken,
) -> Result<AgentChannel, hyper::Error> {
    let stream = TokioIo::new(Breakable::new(stream, end));
    let (requests, connection) = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_ANSWER)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .handshake(stream)
        .await?;
    // Runs until the connection ends, or the last clone of the channel is dropped.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection of an agent ended");
        }
    });
    Ok(AgentChannel::Connection(requests))
}
