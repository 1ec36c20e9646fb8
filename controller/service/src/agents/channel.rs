//! Transport of calls to an agent.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use hyper::client::conn::http2::SendRequest;
use tonic::{
    body::Body,
    codegen::{
        StdError,
        http::{
            Request, Response, Uri,
            uri::{Authority, Scheme},
        },
    },
    transport::Channel,
};
use tower::Service;

/// Channel to an agent. Cheap to clone.
#[derive(Debug, Clone)]
pub enum AgentChannel {
    /// One connection, which is not reestablished. It uses hyper directly: tonic's channel would add a queue, a task
    /// and a reconnecting service to each of thousands of sessions.
    Connection(SendRequest<Body>),
    /// A channel that reconnects by itself.
    Lasting(Channel),
}

impl From<Channel> for AgentChannel {
    fn from(channel: Channel) -> Self {
        Self::Lasting(channel)
    }
}

impl Service<Request<Body>> for AgentChannel {
    type Response = Response<Body>;
    type Error = StdError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, StdError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        match self {
            Self::Connection(connection) => connection.poll_ready(context).map_err(Into::into),
            Self::Lasting(channel) => channel.poll_ready(context).map_err(Into::into),
        }
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        match self {
            Self::Connection(connection) => {
                *request.uri_mut() = at_agent(std::mem::take(request.uri_mut()));
                let sent = connection.send_request(request);
                Box::pin(async move { Ok(sent.await?.map(Body::new)) })
            }
            Self::Lasting(channel) => {
                let sent = channel.call(request);
                Box::pin(async move { Ok(sent.await?) })
            }
        }
    }
}

// HTTP/2 requires an authority. It is never resolved; the node's id is in the agent's hello.
fn at_agent(uri: Uri) -> Uri {
    let mut parts = uri.into_parts();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(Authority::from_static("agent"));
    // The path is always present; if it were not, hyper would reject the request.
    Uri::from_parts(parts).unwrap_or_default()
}
