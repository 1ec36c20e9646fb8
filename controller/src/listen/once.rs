//! A gRPC channel over one connection that somebody else dialled: it never reconnects, its end is known, and whoever
//! has the token can end it with all calls on it.

use std::{io, time::Duration};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

use drivebay_common::breakable::Breakable;

/// A ping after so much silence …
const PING_EVERY: Duration = Duration::from_secs(4);
/// … has to be answered within this: a dead peer is found within ten seconds.
const PING_ANSWER: Duration = Duration::from_secs(5);
/// What an agent may send ahead, bytes: a snapshot of a few hundred volumes in one go.
const WINDOW: u32 = 1 << 20;

/// The channel. Asked to connect a second time, it has lost its connection: that cancels `end`. When `end` is cancelled, the
/// connection is lost, and what is asked over it fails: a call must not be answered by an agent whose session is over.
pub(super) async fn channel_over(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    end: CancellationToken,
) -> Result<Channel, tonic::transport::Error> {
    let mut given = Some(TokioIo::new(Breakable::new(stream, end.clone())));
    // Never resolved; what a node is called is said in its hello.
    Endpoint::from_static("http://agent")
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_ANSWER)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .connect_with_connector(service_fn(move |_: Uri| {
            let stream = given.take();
            if stream.is_none() {
                end.cancel();
            }
            async move { stream.ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionReset)) }
        }))
        .await
}
