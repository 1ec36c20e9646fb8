//! The inventory stream of a node. Each message's decoded size is computed before it is decoded.

use std::{error::Error as _, sync::Arc, time::Duration};

use drivebay_proto::agent::{InventoryUpdate, WatchInventoryRequest};
use prost::{Message, bytes::Buf};
use tonic::{
    Code, Request, Status, Streaming,
    client::Grpc,
    codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::http::uri::PathAndQuery,
};

use super::{AgentChannel, session_error::SessionError};
use crate::bounds::{Bound, MAX_MESSAGE_MEMORY, decoded_update_bytes};

/// Timeout of opening the stream.
const DEADLINE: Duration = Duration::from_secs(5);
/// Initial size of a stream's buffer, bytes. It grows to the largest message and keeps that size for the whole session, for
/// each of thousands of agents: tonic's default of 8 KiB is twice what an agent's parts need.
const BUFFER: usize = 1 << 10;
/// Size at which encoded requests are flushed, bytes; there is only one request.
const YIELD: usize = 1 << 10;

/// Size limits of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessageLimit {
    /// Largest message as received, bytes. A larger one is [`Bound::Message`].
    pub encoded: usize,
    /// Most memory of the decoded message, bytes; computed from the received bytes before they are decoded.
    pub decoded: usize,
}

impl MessageLimit {
    /// For an agent that dialled in.
    pub(super) const REMOTE: Self = Self {
        encoded: crate::bounds::MAX_MESSAGE_BYTES,
        decoded: MAX_MESSAGE_MEMORY,
    };
    /// For the single agent behind a root-only socket, which sends a whole inventory in one message.
    pub(super) const LOCAL: Self = Self {
        encoded: super::MAX_MESSAGE_BYTES,
        decoded: usize::MAX,
    };
}

/// Opens the stream. Fails if the agent does not answer within the timeout.
pub(super) async fn open(
    channel: &AgentChannel,
    limit: MessageLimit,
) -> Result<Streaming<InventoryUpdate>, SessionError> {
    let mut grpc = Grpc::new(channel.clone()).max_decoding_message_size(limit.encoded);
    let path = PathAndQuery::from_static("/drivebay.agent.v1.Agent/WatchInventory");
    let opening = async {
        let ready = grpc.ready().await;
        ready.map_err(|error| Status::unavailable(error.to_string()))?;
        let request = Request::new(WatchInventoryRequest {});
        grpc.server_streaming(request, path, Measured(limit)).await
    };
    match tokio::time::timeout(DEADLINE, opening).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(SessionError::Stream(status)),
        Err(_) => Err(SessionError::Stream(Status::deadline_exceeded(
            "the agent does not begin to tell its inventory",
        ))),
    }
}

/// Receives the next update. A message beyond the limits is [`SessionError::Bound`].
pub(super) async fn next(
    stream: &mut Streaming<InventoryUpdate>,
) -> Result<InventoryUpdate, SessionError> {
    match stream.message().await {
        Ok(Some(update)) => Ok(update),
        Ok(None) => Err(SessionError::Ended),
        Err(status) => {
            let measured = status.source().and_then(|source| source.downcast_ref());
            // tonic's code for a message that exceeds `max_decoding_message_size`.
            let long = (status.code() == Code::OutOfRange).then_some(Bound::Message);
            match measured.copied().or(long) {
                Some(bound) => Err(SessionError::Bound(bound)),
                None => Err(SessionError::Stream(status)),
            }
        }
    }
}

struct Measured(MessageLimit);

impl Codec for Measured {
    type Encode = WatchInventoryRequest;
    type Decode = InventoryUpdate;
    type Encoder = RequestEncoder;
    type Decoder = Measured;

    fn encoder(&mut self) -> Self::Encoder {
        RequestEncoder
    }

    fn decoder(&mut self) -> Self::Decoder {
        Self(self.0)
    }
}

struct RequestEncoder;

impl Encoder for RequestEncoder {
    type Item = WatchInventoryRequest;
    type Error = Status;

    fn encode(&mut self, item: Self::Item, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(into)
            .map_err(|error| Status::internal(error.to_string()))
    }
}

impl Decoder for Measured {
    type Item = InventoryUpdate;
    type Error = Status;

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER, YIELD)
    }

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<InventoryUpdate>, Status> {
        // A message is contiguous here. If it were not, it would be measured too small, so it is copied into one piece.
        let whole = if from.chunk().len() == from.remaining() {
            None
        } else {
            Some(from.copy_to_bytes(from.remaining()))
        };
        let encoded = whole.as_deref().unwrap_or_else(|| from.chunk());
        if decoded_update_bytes(encoded) > self.0.decoded {
            let mut status = Status::resource_exhausted(Bound::Message.to_string());
            status.set_source(Arc::new(Bound::Message));
            return Err(status);
        }
        let decoded = match whole {
            Some(whole) => InventoryUpdate::decode(whole),
            None => InventoryUpdate::decode(from),
        };
        decoded
            .map(Some)
            .map_err(|error| Status::internal(error.to_string()))
    }
}
