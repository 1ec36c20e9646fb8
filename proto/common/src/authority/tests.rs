//! Tests over a real socket, served by tonic.

use std::{path::Path, sync::Arc, time::Duration};

use drivebay_proto::csi::{
    GetPluginInfoRequest, identity_client::IdentityClient, identity_server::IdentityServer,
};
use loona_hpack::{Decoder, Encoder};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::watch,
    task::JoinSet,
};
use tonic::service::Routes;

use super::{
    frame::{CONTINUATION, END_HEADERS, END_STREAM, FRAME_HEADER, FrameHeader, HEADERS},
    testing::{Fields, PATH_AUTHORITY, PREFACE, borrowed, frame, request},
    *,
};
use crate::{IdentityConfig, IdentityService, dial, socket};

const DATA: u8 = 0;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const PROTOCOL_ERROR: u32 = 1;
const FRAME_SIZE_ERROR: u32 = 6;
const ENHANCE_YOUR_CALM: u32 = 11;
const GET_PLUGIN_INFO: &str = "/csi.v1.Identity/GetPluginInfo";
/// Limits a test that fails.
const DEADLINE: Duration = Duration::from_secs(20);

async fn serve() -> (TempDir, UnixStream) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("csi.sock");
    let (_, ready) = watch::channel(true);
    let identity = IdentityService::new(IdentityConfig {
        driver_name: "csi.drivebay.io".into(),
        version: "1".into(),
        controller: true,
        ready,
    });
    let routes = Routes::new(IdentityServer::new(identity));
    let bound = socket::bind(&path).await.unwrap();
    tokio::spawn(socket::serve(
        routes,
        bound,
        std::future::pending(),
        DEADLINE,
    ));
    let client = connect(&path).await;
    (dir, client)
}

async fn connect(path: &Path) -> UnixStream {
    let mut client = UnixStream::connect(path).await.unwrap();
    let hello = [PREFACE, &frame(SETTINGS, 0, 0, b"")].concat();
    client.write_all(&hello).await.unwrap();
    client
}

/// Encodes a unary call with an empty message.
fn call(encoder: &mut Encoder<'static>, stream: u32, fields: &Fields) -> Vec<u8> {
    let block = encoder.encode(borrowed(fields));
    [
        frame(HEADERS, END_HEADERS, stream, &block),
        frame(DATA, END_STREAM, stream, &[0; 5]),
    ]
    .concat()
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Status(u32, String),
    Http(u32, String),
    Reset(u32, u32),
    GoAway(u32),
    End,
}

struct Answers {
    client: UnixStream,
    decoder: Decoder<'static>,
}

impl Answers {
    fn of(client: UnixStream) -> Self {
        let decoder = Decoder::new();
        Self { client, decoder }
    }

    async fn next(&mut self) -> Answer {
        tokio::time::timeout(DEADLINE, self.read()).await.unwrap()
    }

    async fn read(&mut self) -> Answer {
        loop {
            let mut header = [0; FRAME_HEADER];
            if self.client.read_exact(&mut header).await.is_err() {
                return Answer::End;
            }
            let header = FrameHeader::parse(header);
            let mut payload = vec![0; header.len];
            self.client.read_exact(&mut payload).await.unwrap();
            let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
            match header.kind {
                HEADERS => {
                    let list = self.decoder.decode(&payload).unwrap();
                    for (name, value) in list {
                        let value = String::from_utf8(value).unwrap();
                        match name.as_slice() {
                            b"grpc-status" => return Answer::Status(header.stream, value),
                            b":status" if value != "200" => {
                                return Answer::Http(header.stream, value);
                            }
                            _ => {}
                        }
                    }
                }
                RST_STREAM => return Answer::Reset(header.stream, number(0)),
                GOAWAY => return Answer::GoAway(number(4)),
                _ => {}
            }
        }
    }
}

fn ok(stream: u32) -> Answer {
    Answer::Status(stream, "0".to_owned())
}

#[tokio::test]
async fn a_path_as_authority_is_answered_on_every_request_of_a_connection() {
    let (_dir, mut client) = serve().await;
    let mut encoder = Encoder::new();
    for stream in [1, 3, 5] {
        let sent = call(
            &mut encoder,
            stream,
            &request(PATH_AUTHORITY, GET_PLUGIN_INFO),
        );
        client.write_all(&sent).await.unwrap();
    }
    let mut answers = Answers::of(client);
    for stream in [1, 3, 5] {
        assert_eq!(answers.next().await, ok(stream));
    }
}

#[tokio::test]
async fn bytes_that_arrive_one_by_one_are_answered() {
    let (_dir, mut client) = serve().await;
    let sent = call(
        &mut Encoder::new(),
        1,
        &request(PATH_AUTHORITY, GET_PLUGIN_INFO),
    );
    for byte in sent {
        client.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(Answers::of(client).next().await, ok(1));
}

#[tokio::test]
async fn a_header_list_over_the_limit_is_answered_with_431_and_the_connection_goes_on() {
    let (_dir, mut client) = serve().await;
    let mut encoder = Encoder::new();
    let mut large = request(PATH_AUTHORITY, GET_PLUGIN_INFO);
    large.push(("x-large".to_owned(), "v".repeat(20_000)));
    let block = encoder.encode(borrowed(&large));
    let (first, rest) = block.split_at(9000);
    let sent = [
        frame(HEADERS, END_STREAM, 1, first),
        frame(CONTINUATION, END_HEADERS, 1, rest),
        call(&mut encoder, 3, &request(PATH_AUTHORITY, GET_PLUGIN_INFO)),
    ];
    client.write_all(&sent.concat()).await.unwrap();
    let mut answers = Answers::of(client);
    let mut received = Vec::new();
    while received.last() != Some(&ok(3)) {
        received.push(answers.next().await);
        assert!(received.len() < 4, "{received:?}");
    }
    assert!(
        received.contains(&Answer::Http(1, "431".to_owned())),
        "{received:?}"
    );
}

#[tokio::test]
async fn protocol_errors_are_answered_with_goaway_and_the_end() {
    let headers = frame(HEADERS, 0, 1, &[0x82]);
    let empty = frame(CONTINUATION, 0, 1, b"");
    let cases = [
        (
            PROTOCOL_ERROR,
            [headers.clone(), frame(PING, 0, 0, &[0; 8])].concat(),
        ),
        (
            PROTOCOL_ERROR,
            [headers.clone(), frame(CONTINUATION, 4, 3, b"")].concat(),
        ),
        (PROTOCOL_ERROR, frame(CONTINUATION, 4, 1, &[0x82])),
        (PROTOCOL_ERROR, frame(HEADERS, END_HEADERS, 1, &[0x80])),
        (
            PROTOCOL_ERROR,
            frame(HEADERS, END_HEADERS | 8, 1, &[9, 0x82]),
        ),
        (PROTOCOL_ERROR, frame(HEADERS, END_HEADERS, 0, &[0x82])),
        (
            PROTOCOL_ERROR,
            frame(5, END_HEADERS, 1, &[0, 0, 0, 2, 0x82]),
        ),
        (FRAME_SIZE_ERROR, frame(DATA, 0, 1, &[0; 16_385])),
        (
            FRAME_SIZE_ERROR,
            frame(HEADERS, END_HEADERS, 1, &[0x82; 16_385]),
        ),
        (ENHANCE_YOUR_CALM, [headers, empty.repeat(10)].concat()),
    ];
    for (number, (code, sent)) in cases.into_iter().enumerate() {
        let (_dir, mut client) = serve().await;
        client.write_all(&sent).await.unwrap();
        let mut answers = Answers::of(client);
        assert_eq!(answers.next().await, Answer::GoAway(code), "case {number}");
        assert_eq!(answers.next().await, Answer::End, "case {number}");
    }
}

#[tokio::test]
async fn a_client_that_closes_within_a_header_block_ends_the_connection() {
    let (_dir, mut client) = serve().await;
    client
        .write_all(&frame(HEADERS, 0, 1, &[0x82]))
        .await
        .unwrap();
    client.shutdown().await.unwrap();
    let mut answers = Answers::of(client);
    while answers.next().await != Answer::End {}
}

#[tokio::test]
async fn many_calls_at_once_with_large_metadata_are_answered() {
    let (dir, _) = serve().await;
    let channel = dial::once(&dir.path().join("csi.sock")).await.unwrap();
    let mut calls = JoinSet::new();
    // Larger than the dynamic table.
    let large: Arc<str> = "v".repeat(6000).into();
    for n in 0..64 {
        let mut client = IdentityClient::new(channel.clone());
        let large = Arc::clone(&large);
        calls.spawn(async move {
            let mut request = tonic::Request::new(GetPluginInfoRequest {});
            let metadata = request.metadata_mut();
            metadata.insert("x-large", large.parse().unwrap());
            metadata.insert("x-number", n.into());
            client.get_plugin_info(request).await.unwrap().into_inner()
        });
    }
    for answer in calls.join_all().await {
        assert_eq!(answer.name, "csi.drivebay.io");
    }
}

#[tokio::test]
async fn reads_into_any_room_yield_the_same_bytes() {
    let block = Encoder::new().encode(borrowed(&request(PATH_AUTHORITY, GET_PLUGIN_INFO)));
    let sent = [
        PREFACE.to_vec(),
        frame(DATA, 0, 1, &vec![7; 16_384]),
        frame(HEADERS, END_HEADERS, 1, &block),
        frame(PING, 0, 0, b"12345678")[..5].to_vec(),
    ]
    .concat();
    let mut results = Vec::new();
    for room in [1, 2, 9, 4096, 100_000] {
        let (server, mut client) = UnixStream::pair().unwrap();
        let bytes = sent.clone();
        tokio::spawn(async move { client.write_all(&bytes).await });
        let mut server = AnyAuthority::new(server);
        let mut read = Vec::new();
        let mut part = vec![0; room];
        loop {
            let filled = server.read(&mut part).await.unwrap();
            if filled == 0 {
                break;
            }
            read.extend_from_slice(&part[..filled]);
        }
        results.push(read);
    }
    let (first, others) = results.split_first().unwrap();
    let (start, end) = (&sent[..24 + 9 + 16_384], &sent[sent.len() - 5..]);
    assert!(first.starts_with(start) && first.ends_with(end));
    for other in others {
        assert_eq!(other, first);
    }
}
