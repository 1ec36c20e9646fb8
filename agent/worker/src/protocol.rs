//! The protocol of jobs: length-prefixed JSON over a socket pair.
//!
//! A frame is its length in bytes (u32, little endian) and that many bytes of JSON. The worker
//! reads and writes blocking, the agent with tokio. Invalid input from the other side leads to an
//! error, never to a panic or unlimited memory.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::job::Outcome;
use drivebay_model::units::size_beside;

/// Largest frame in bytes, on both sides. The largest one in practice is the contents of a drive
/// with 128 volumes, well under 1 MiB.
pub const MAX_FRAME: usize = 16 * 1024 * 1024;

const PREFIX: usize = 4;

/// Request of the agent to run a job. The worker answers with any number of `Reply::Step`, then one
/// `Reply::Done` or `Reply::Broken`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Call {
    /// Grows with every call on this connection.
    pub id: u64,
    /// Name of the job (`Job::NAME`); the worker answers an unknown one with `Reply::Broken`.
    pub name: String,
    pub arguments: Value,
}

/// Message of the worker about the call that it runs.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The job begins a step (`Context::step`).
    Step {
        /// `Call::id` of the call; the agent stops using a worker that sends another one.
        id: u64,
        name: String,
    },
    /// The job returned, with its answer or with an error of its own.
    Done {
        /// `Call::id` of the call; the agent stops using a worker that sends another one.
        id: u64,
        /// Answer (Ok) or typed error (Err) of the job, as JSON.
        outcome: Outcome,
        /// The worker takes no more calls: it could not get rid of a tool that it ran.
        retire: bool,
    },
    /// The call made no sense to this worker, or the job panicked.
    Broken {
        /// `Call::id` of the call; the agent stops using a worker that sends another one.
        id: u64,
        message: String,
    },
}

/// Reading or writing a frame failed. The connection must not be used afterwards.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    #[error("the connection between agent and worker failed")]
    Io(#[source] io::Error),
    /// The frame exceeds `MAX_FRAME`.
    #[error("a frame of {} is over the limit of {}", size_beside(*len as u64, MAX_FRAME as u64), size_beside(MAX_FRAME as u64, *len as u64))]
    TooLarge {
        /// Bytes announced by the other side, or to be written.
        len: usize,
    },
    /// The other side hung up in the middle of a frame.
    #[error("the connection between agent and worker ended inside a frame")]
    Truncated,
    /// The body is not JSON, or not a message of the expected type.
    #[error("a frame is not the message that was expected")]
    Json(#[source] serde_json::Error),
}

/// Returns the frame of a message: prefix and JSON. Errs with `TooLarge` above `MAX_FRAME`.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, ProtocolError> {
    let mut frame = vec![0; PREFIX];
    serde_json::to_writer(&mut frame, message).map_err(ProtocolError::Json)?;
    let len = frame.len() - PREFIX;
    match u32::try_from(len) {
        Ok(prefix) if len <= MAX_FRAME => {
            frame[..PREFIX].copy_from_slice(&prefix.to_le_bytes());
            Ok(frame)
        }
        _ => Err(ProtocolError::TooLarge { len }),
    }
}

/// Writes one message, blocking.
pub fn write<T: Serialize>(out: &mut impl Write, message: &T) -> Result<(), ProtocolError> {
    out.write_all(&encode(message)?).map_err(ProtocolError::Io)
}

/// Reads one message, blocking. None: the other side hung up between two frames.
pub fn read<T: DeserializeOwned>(input: &mut impl Read) -> Result<Option<T>, ProtocolError> {
    let mut prefix = Vec::with_capacity(PREFIX);
    let mut limited = input.by_ref().take(PREFIX as u64);
    limited
        .read_to_end(&mut prefix)
        .map_err(ProtocolError::Io)?;
    if prefix.is_empty() {
        return Ok(None);
    }
    let len = announced(&prefix)?.ok_or(ProtocolError::Truncated)?;
    // The buffer grows with the bytes that arrive, not with the announced length.
    let mut body = Vec::new();
    input
        .take(len as u64)
        .read_to_end(&mut body)
        .map_err(ProtocolError::Io)?;
    if body.len() < len {
        return Err(ProtocolError::Truncated);
    }
    serde_json::from_slice(&body)
        .map(Some)
        .map_err(ProtocolError::Json)
}

/// Returns the length at the start of `bytes`; None if they are fewer than a prefix. Errs above
/// `MAX_FRAME`.
fn announced(bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
    let Some(prefix) = bytes.first_chunk::<PREFIX>() else {
        return Ok(None);
    };
    let len = usize::try_from(u32::from_le_bytes(*prefix)).unwrap_or(usize::MAX);
    if len > MAX_FRAME {
        return Err(ProtocolError::TooLarge { len });
    }
    Ok(Some(len))
}

/// Reads frames with tokio. `next` is cancel safe: dropping its future loses no bytes.
#[derive(Debug)]
pub struct FrameReader<R> {
    input: R,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub fn new(input: R) -> Self {
        Self {
            input,
            buffer: Vec::new(),
        }
    }

    /// Returns the next message. None: the other side hung up between two frames.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ProtocolError> {
        loop {
            if let Some(len) = announced(&self.buffer)? {
                let end = PREFIX + len;
                if let Some(body) = self.buffer.get(PREFIX..end) {
                    let message = serde_json::from_slice(body).map_err(ProtocolError::Json);
                    self.buffer.drain(..end);
                    self.buffer.shrink_to(64 * 1024);
                    return message.map(Some);
                }
            }
            let count = self.input.read_buf(&mut self.buffer).await;
            match count.map_err(ProtocolError::Io)? {
                0 if self.buffer.is_empty() => return Ok(None),
                0 => return Err(ProtocolError::Truncated),
                _ => {}
            }
        }
    }
}

/// Writes one message with tokio. If the future is dropped before it is ready, the connection must
/// not be used any more.
pub async fn write_async<T: Serialize>(
    out: &mut (impl AsyncWrite + Unpin),
    message: &T,
) -> Result<(), ProtocolError> {
    let frame = encode(message)?;
    out.write_all(&frame).await.map_err(ProtocolError::Io)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn call(id: u64) -> Call {
        Call {
            id,
            name: "look".into(),
            arguments: serde_json::json!({"a": [1, 2, 3]}),
        }
    }

    #[test]
    fn messages_survive_the_way_and_a_hang_up_between_them_is_no_error() {
        let mut bytes = encode(&call(1)).unwrap();
        bytes.extend(encode(&call(2)).unwrap());
        let mut input = bytes.as_slice();
        assert_eq!(read::<Call>(&mut input).unwrap().unwrap().id, 1);
        let second = read::<Call>(&mut input).unwrap().unwrap();
        assert_eq!((second.id, second.arguments), (2, call(2).arguments));
        assert!(read::<Call>(&mut input).unwrap().is_none());
    }

    #[test]
    fn a_huge_length_is_refused_before_anything_is_allocated() {
        let mut input: &[u8] = &[0xff, 0xff, 0xff, 0xff, b'{'];
        assert!(matches!(
            read::<Call>(&mut input),
            Err(ProtocolError::TooLarge { .. })
        ));
    }

    #[test]
    fn a_message_over_the_limit_is_not_written() {
        let message = "x".repeat(MAX_FRAME);
        let mut out = Vec::new();
        assert!(matches!(
            write(&mut out, &message),
            Err(ProtocolError::TooLarge { .. })
        ));
        assert!(out.is_empty());
    }

    #[test]
    fn an_end_inside_a_frame_is_distinguished_from_a_hang_up() {
        let bytes = encode(&call(1)).unwrap();
        for cut in 1..bytes.len() {
            assert!(matches!(
                read::<Call>(&mut &bytes[..cut]),
                Err(ProtocolError::Truncated)
            ));
        }
    }

    #[tokio::test]
    async fn a_reader_that_is_dropped_while_waiting_loses_nothing() {
        let (mut far, near) = tokio::io::duplex(64);
        let mut reader = FrameReader::new(near);
        let bytes = encode(&call(7)).unwrap();
        for byte in bytes {
            let pending =
                tokio::time::timeout(std::time::Duration::from_millis(1), reader.next::<Call>());
            assert!(pending.await.is_err());
            far.write_all(&[byte]).await.unwrap();
        }
        assert_eq!(reader.next::<Call>().await.unwrap().unwrap().id, 7);
        drop(far);
        assert!(reader.next::<Call>().await.unwrap().is_none());
    }

    proptest! {
        #[test]
        fn garbage_is_an_error_and_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let sync = read::<Reply>(&mut bytes.as_slice());
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let both = runtime.block_on(FrameReader::new(bytes.as_slice()).next::<Reply>());
            prop_assert_eq!(matches!(sync, Ok(None)), bytes.is_empty());
            prop_assert_eq!(matches!(both, Ok(None)), bytes.is_empty());
        }
    }
}
