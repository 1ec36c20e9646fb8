//! A gRPC channel over one connection that an agent has dialled: it never reconnects, and whoever has the token can end it with
//! all calls on it.

use std::time::Duration;

use hyper::client::conn::http2::Builder;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use drivebay_common::breakable::Breakable;
use drivebay_service::agents::AgentChannel;

/// A ping after so much silence …
const PING_EVERY: Duration = Duration::from_secs(4);
/// … has to be answered within this: a dead peer is found within ten seconds.
const PING_ANSWER: Duration = Duration::from_secs(5);
/// What an agent may send ahead, bytes: a snapshot of a few hundred volumes in one go.
const WINDOW: u32 = 1 << 20;

/// The channel. When its connection is lost, or `end` is cancelled, what is asked over it fails: a call must not be answered
/// by an agent whose session is over.
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
    // Until the connection ends, or the last clone of the channel is gone.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection of an agent ended");
        }
    });
    Ok(AgentChannel::Connection(requests))
}
