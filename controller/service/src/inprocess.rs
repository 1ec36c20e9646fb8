//! A gRPC channel to services of the same process, over memory instead of a socket.

use std::io;

use hyper_util::rt::TokioIo;
use tokio::{io::DuplexStream, sync::mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint, server::Router};
use tower::service_fn;

// Buffer per direction and connection, bytes. Larger messages pass in pieces.
const BUFFER: usize = 64 * 1024;

/// Serves the router in this process and returns a channel to it.
///
/// The channel connects on first use and reconnects like any other: each connection is a new pair of pipes that the same server accepts.
/// The server ends when the last clone of the channel is dropped. Must be called within a tokio runtime.
pub fn in_process_channel(router: Router) -> Channel {
    let (connect, accept) = mpsc::channel::<Result<DuplexStream, io::Error>>(1);
    tokio::spawn(async move {
        if let Err(error) = router
            .serve_with_incoming(ReceiverStream::new(accept))
            .await
        {
            tracing::error!(%error, "in-process gRPC server ended");
        }
    });
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(service_fn(
        move |_: tonic::transport::Uri| {
            let connect = connect.clone();
            async move {
                let (ours, theirs) = tokio::io::duplex(BUFFER);
                connect
                    .send(Ok(theirs))
                    .await
                    .map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
                Ok::<_, io::Error>(TokioIo::new(ours))
            }
        },
    ))
}
