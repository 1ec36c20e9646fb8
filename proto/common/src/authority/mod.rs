//! Connections on unix sockets whose clients may send any `:authority`.
//!
//! grpc-go sends the socket's path, percent-encoded, when a caller gives it the bare path: the kubelet's plugin watcher does
//! (kubernetes#108254, #109081), and so does Python's grpcio. h2, the HTTP/2 of hyper and tonic, resets every request whose authority it
//! cannot parse with PROTOCOL_ERROR, and has no option for it (hyperium/h2#442). So the authority is replaced before h2 reads it; a unix
//! socket has no host, and no service here uses the authority.
//!
//! This module can go when h2 accepts such an authority, or lets a server ignore it.

mod frame;
mod plain;
mod rewrite;

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{UnixListener, UnixStream},
};
use tokio_stream::{Stream, StreamExt, wrappers::UnixListenerStream};
use tonic::transport::server::{Connected, UdsConnectInfo};

use rewrite::{Rewriter, Step};

const INPUT: usize = 8 * 1024;

/// Returns the connections of a socket, for tonic to serve.
pub fn incoming(listener: UnixListener) -> impl Stream<Item = io::Result<AnyAuthority>> {
    #[allow(clippy::disallowed_methods, reason = "the one place")]
    let connections = UnixListenerStream::new(listener);
    connections.map(|accepted| accepted.map(AnyAuthority::new))
}

/// A connection from which h2 reads the authority `localhost`, whatever the client sends.
pub struct AnyAuthority {
    socket: UnixStream,
    rewriter: Rewriter,
    input: Buffer,
    output: Buffer,
    // End of input: nothing more is read from the socket.
    ended: bool,
}

#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    // Bytes before this index are consumed.
    at: usize,
}

impl Buffer {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    fn clear(&mut self) {
        self.at = 0;
        self.bytes.clear();
    }
}

impl AnyAuthority {
    fn new(socket: UnixStream) -> Self {
        Self {
            socket,
            rewriter: Rewriter::new(),
            input: Buffer::default(),
            output: Buffer::default(),
            ended: false,
        }
    }

    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.input.at = 0;
        self.input.bytes.resize(INPUT, 0);
        let mut room = ReadBuf::new(&mut self.input.bytes);
        let read = Pin::new(&mut self.socket).poll_read(cx, &mut room);
        let filled = room.filled().len();
        self.input.bytes.truncate(filled);
        ready!(read)?;
        if filled == 0 {
            self.ended = true;
            self.rewriter.finish(&mut self.output.bytes);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for AnyAuthority {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        while buf.remaining() > 0 {
            let output = this.output.rest();
            if !output.is_empty() {
                let copied = output.len().min(buf.remaining());
                buf.put_slice(&output[..copied]);
                this.output.at += copied;
                continue;
            }
            this.output.clear();
            if this.ended {
                break;
            }
            let input = this.input.rest();
            if input.is_empty() {
                if buf.filled().len() > before {
                    break;
                }
                ready!(this.poll_input(cx))?;
                continue;
            }
            let input = &input[..input.len().min(buf.remaining())];
            match this.rewriter.step(input, &mut this.output.bytes) {
                Step::Pass(passed) => {
                    buf.put_slice(&input[..passed]);
                    this.input.at += passed;
                }
                Step::Take(taken) => this.input.at += taken,
                Step::End => this.ended = true,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for AnyAuthority {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }
}

impl Connected for AnyAuthority {
    type ConnectInfo = UdsConnectInfo;

    fn connect_info(&self) -> UdsConnectInfo {
        self.socket.connect_info()
    }
}

#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(any(test, feature = "fuzzing"))]
mod testing;
#[cfg(test)]
mod tests;
