//! HTTP/2 of a client, encoded by hand, since no client crate can send such an authority.

#[cfg(test)]
use loona_hpack::Decoder;

use super::frame::{FRAME_HEADER, FrameHeader};

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The authority that the kubelet's plugin watcher sends.
pub(super) const PATH_AUTHORITY: &str = "%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fx-reg.sock";

pub(super) type Fields = Vec<(String, String)>;

pub(super) fn fields(list: &[(&str, &str)]) -> Fields {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    list.iter().map(owned).collect()
}

/// Returns the fields of a gRPC request in the order of grpc-go.
pub(super) fn request(authority: &str, path: &str) -> Fields {
    fields(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", authority),
        ("content-type", "application/grpc"),
        ("user-agent", "grpc-go/1.81.1"),
        ("te", "trailers"),
    ])
}

pub(super) fn borrowed(fields: &Fields) -> impl Iterator<Item = (&[u8], &[u8])> {
    fields
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = FrameHeader::new(kind, flags, stream, payload.len())
        .bytes()
        .to_vec();
    bytes.extend_from_slice(payload);
    bytes
}

/// Splits bytes into whole frames and the rest.
pub(super) fn split(mut bytes: &[u8]) -> (Vec<(FrameHeader, Vec<u8>)>, Vec<u8>) {
    let mut frames = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<FRAME_HEADER>() {
        let header = FrameHeader::parse(*header);
        let Some((payload, rest)) = rest.split_at_checked(header.len) else {
            break;
        };
        frames.push((header, payload.to_vec()));
        bytes = rest;
    }
    (frames, bytes.to_vec())
}

/// Decodes a block, and checks that it neither reads the dynamic table nor writes to it.
#[cfg(test)]
pub(super) fn decode_stateless(block: &[u8]) -> Fields {
    const FIRST_DYNAMIC: u8 = 0x80 | 62;
    let mut decoder = Decoder::new();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let list = decoder.decode(block).unwrap();
    assert!(decoder.decode(&[FIRST_DYNAMIC]).is_err());
    list.into_iter()
        .map(|(name, value)| (text(name), text(value)))
        .collect()
}
