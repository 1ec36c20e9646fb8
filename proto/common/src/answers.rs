//! Layer of every gRPC server of both programs that makes error answers fit for clients, whether they come from a handler, from an agent
//! through a controller, or from the gRPC library. CSI requires a message in each error; a message travels in a header and ends in logs,
//! events and terminals.

use hyper::http::Response;
use tonic::{Code, Status, body::Body};
use tower::util::MapResponseLayer;

use crate::text;

/// Longest message of a status, bytes. Clients refuse headers that are much longer.
pub const MAX_MESSAGE_BYTES: usize = 2048;

/// Prefix of the message that tonic sends with INTERNAL when a request cannot be decoded; it comes from prost.
const UNDECODABLE: &str = "failed to decode Protobuf message";
/// Message that tonic sends with INTERNAL when a request has no message.
const NO_MESSAGE: &str = "Missing request message.";

pub type Layer = MapResponseLayer<fn(Response<Body>) -> Response<Body>>;

/// Returns the layer for `Server::layer`; `socket::serve` adds it already.
pub fn layer() -> Layer {
    MapResponseLayer::new(tidy)
}

/// Returns an error that is safe to show: its message escaped, at most [`MAX_MESSAGE_BYTES`] long and never empty; without details.
/// Requests that cannot be decoded become INVALID_ARGUMENT.
pub fn fit(code: Code, message: &str) -> Status {
    let (code, message) = match (code, message) {
        (Code::Unimplemented, "") => (
            code,
            "this method is not served here; GetPluginCapabilities and GetCapabilities of each service say what is",
        ),
        (_, "") => (code, code.description()),
        (Code::Internal, NO_MESSAGE) => (Code::InvalidArgument, "the request has no message"),
        (Code::Internal, text) if text.starts_with(UNDECODABLE) => (Code::InvalidArgument, text),
        plain => plain,
    };
    // Cut before and after: a character may become ten.
    let short = text::both_ends(message, MAX_MESSAGE_BYTES);
    let clean = text::escaped(&short);
    Status::new(code, text::both_ends(&clean, MAX_MESSAGE_BYTES))
}

/// Replaces a response that is an error by its `fit` form. An error of a unary call has no body: its status is in the headers.
fn tidy(response: Response<Body>) -> Response<Body> {
    match Status::from_header_map(response.headers()) {
        Some(status) if status.code() != Code::Ok => {
            let (parts, ()) = fit(status.code(), status.message())
                .into_http::<()>()
                .into_parts();
            Response::from_parts(parts, Body::empty())
        }
        _ => response,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use drivebay_proto::csi::{
        GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest,
        GetPluginInfoResponse, ProbeRequest, ProbeResponse,
        identity_client::IdentityClient,
        identity_server::{Identity, IdentityServer},
    };
    use hyper::body::Buf;
    use tonic::{
        Request,
        codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
        codegen::Bytes,
        service::Routes,
        transport::{Channel, Endpoint},
    };

    use super::*;
    use crate::socket;

    /// Fails with a message that has control characters.
    struct Hostile;

    const TEXT: &str = "first\r\n\u{1b}[2J\u{202e}";

    fn words() -> String {
        format!("{TEXT}{}last", "x\u{1b}".repeat(400_000))
    }

    #[tonic::async_trait]
    impl Identity for Hostile {
        async fn get_plugin_info(
            &self,
            _: Request<GetPluginInfoRequest>,
        ) -> Result<tonic::Response<GetPluginInfoResponse>, Status> {
            Err(Status::with_details(
                Code::NotFound,
                words(),
                Bytes::from("details"),
            ))
        }

        async fn get_plugin_capabilities(
            &self,
            _: Request<GetPluginCapabilitiesRequest>,
        ) -> Result<tonic::Response<GetPluginCapabilitiesResponse>, Status> {
            Err(Status::internal(""))
        }

        async fn probe(
            &self,
            _: Request<ProbeRequest>,
        ) -> Result<tonic::Response<ProbeResponse>, Status> {
            Ok(tonic::Response::new(ProbeResponse { ready: Some(true) }))
        }
    }

    async fn served<T>(query: impl AsyncFnOnce(Channel) -> T) -> T {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("csi.sock");
        let bound = socket::bind(&path).await.unwrap();
        let routes = Routes::new(IdentityServer::new(Hostile));
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = tokio::spawn(socket::serve(
            routes,
            bound,
            async { drop(stopped.await) },
            Duration::ZERO,
        ));
        let channel = Endpoint::from_static("http://localhost")
            .connect_with_connector(tower::service_fn(move |_: tonic::transport::Uri| {
                let path = path.clone();
                async move {
                    let stream = tokio::net::UnixStream::connect(path).await?;
                    Ok::<_, std::io::Error>(hyper_util::rt::TokioIo::new(stream))
                }
            }))
            .await
            .unwrap();
        let answer = query(channel).await;
        drop(stop);
        serving.await.unwrap().unwrap();
        answer
    }

    /// Sends these bytes, and reads none.
    struct Bare(&'static [u8]);

    impl Codec for Bare {
        type Encode = ();
        type Decode = ();
        type Encoder = Self;
        type Decoder = Self;

        fn encoder(&mut self) -> Self {
            Self(self.0)
        }

        fn decoder(&mut self) -> Self {
            Self(self.0)
        }
    }

    impl Encoder for Bare {
        type Item = ();
        type Error = Status;

        fn encode(&mut self, (): (), buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
            use tokio_util::bytes::BufMut;
            buffer.put_slice(self.0);
            Ok(())
        }
    }

    impl Decoder for Bare {
        type Item = ();
        type Error = Status;

        fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
            buffer.advance(buffer.remaining());
            Ok(Some(()))
        }
    }

    /// A request of these bytes to a method.
    async fn raw(channel: Channel, method: &str, bytes: &'static [u8]) -> Result<(), Status> {
        let mut client = tonic::client::Grpc::new(channel);
        client.ready().await.unwrap();
        let path = method.parse().unwrap();
        let answer = client.unary(Request::new(()), path, Bare(bytes));
        answer.await.map(drop)
    }

    #[tokio::test]
    async fn a_message_of_anybody_is_cut_and_escaped_and_has_no_details() {
        let status = served(async |channel| {
            let mut client = IdentityClient::new(channel);
            client
                .get_plugin_info(GetPluginInfoRequest {})
                .await
                .unwrap_err()
        })
        .await;
        let message = status.message();
        assert_eq!(status.code(), Code::NotFound);
        assert!(message.len() <= MAX_MESSAGE_BYTES, "{}", message.len());
        assert!(!message.chars().any(text::acts), "{message:?}");
        assert!(
            message.starts_with("first\\r\\n\\u{1b}[2J\\u{202e}"),
            "{message}"
        );
        assert!(message.ends_with("last"), "{message}");
        assert!(status.details().is_empty());
    }

    #[tokio::test]
    async fn every_error_has_a_message() {
        let status = served(async |channel| {
            let mut client = IdentityClient::new(channel);
            let request = GetPluginCapabilitiesRequest {};
            client.get_plugin_capabilities(request).await.unwrap_err()
        })
        .await;
        assert_eq!(status.code(), Code::Internal);
        assert!(!status.message().is_empty());
        for method in ["/csi.v1.GroupController/X", "/csi.v1.Identity/Tomorrow"] {
            let status = served(async |channel| raw(channel, method, b"").await)
                .await
                .unwrap_err();
            assert_eq!(status.code(), Code::Unimplemented, "{method}");
            assert!(status.message().contains("not served"), "{status:?}");
        }
    }

    #[tokio::test]
    async fn a_request_that_cannot_be_decoded_is_the_callers_mistake() {
        let probe = "/csi.v1.Identity/Probe";
        for bytes in [&b"\xff\xff\xff"[..], b"\x0a\xff", b"\x00"] {
            let status = served(async |channel| raw(channel, probe, bytes).await)
                .await
                .unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        }
        served(async |channel| raw(channel, probe, b"").await)
            .await
            .unwrap();
    }
}
