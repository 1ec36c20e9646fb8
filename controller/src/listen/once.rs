//! A gRPC channel over one connection that somebody else dialled: it never reconnects, its end is known, and whoever
//! has the token can end it with all calls on it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

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
    let mut given = Some(TokioIo::new(Ending {
        stream,
        over: Box::pin(end.clone().cancelled_owned()),
    }));
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

/// A connection that breaks when its session is over.
struct Ending<S> {
    stream: S,
    over: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Ending<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.over.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Ending<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
