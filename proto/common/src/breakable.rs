//! A connection that can be broken by a token at any time.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

/// A stream whose reads fail with `ConnectionAborted` once its token is cancelled. HTTP/2 reads all the time, so all calls on it end then.
#[derive(Debug)]
pub struct Breakable<S, F = fn(&io::Error)> {
    stream: S,
    over: Pin<Box<WaitForCancellationFutureOwned>>,
    failed: F,
}

impl<S> Breakable<S> {
    /// Wraps a stream; `over` breaks it.
    pub fn new(stream: S, over: CancellationToken) -> Self {
        Self::observed(stream, over, |_| ())
    }
}

impl<S, F: FnMut(&io::Error)> Breakable<S, F> {
    /// Like `new`; `failed` is called with each read error, and dropped with the connection.
    pub fn observed(stream: S, over: CancellationToken, failed: F) -> Self {
        Self {
            stream,
            over: Box::pin(over.cancelled_owned()),
            failed,
        }
    }
}

impl<S, F> Connected for Breakable<S, F> {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl<S: AsyncRead + Unpin, F: FnMut(&io::Error) + Unpin> AsyncRead for Breakable<S, F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = match self.over.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
            Poll::Pending => Pin::new(&mut self.stream).poll_read(context, buffer),
        };
        if let Poll::Ready(Err(error)) = &read {
            (self.failed)(error);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin, F: Unpin> AsyncWrite for Breakable<S, F> {
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn one_who_waits_for_bytes_hears_of_the_break() {
        let (near, _far) = tokio::io::duplex(1);
        let over = CancellationToken::new();
        let mut near = Breakable::new(near, over.clone());
        let reading = tokio::spawn(async move { near.read_u8().await });
        tokio::task::yield_now().await;
        assert!(!reading.is_finished());
        over.cancel();
        let read = tokio::time::timeout(Duration::from_secs(10), reading).await;
        let error = read.unwrap().unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    }
}
