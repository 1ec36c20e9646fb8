use std::collections::VecDeque;

use loona_hpack::Encoder;
use proptest::prelude::*;

use super::*;
use crate::authority::{
    frame::MAX_FRAME,
    testing::{
        Fields, PATH_AUTHORITY, PREFACE, borrowed, decode_stateless, fields, frame, request, split,
    },
};

const DATA: u8 = 0;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const LARGEST: usize = MAX_HEADER_LIST + WAY_OVERSIZE.len() + 4 * FRAME_HEADER;

/// Returns the whole output, and true if the connection was ended before the end of the input.
fn rewrite(chunks: &[&[u8]]) -> (Vec<u8>, bool) {
    let mut rewriter = Rewriter::new();
    let mut output = Vec::new();
    for chunk in chunks {
        let mut input = *chunk;
        while !input.is_empty() {
            let before = output.len();
            let used = match rewriter.step(input, &mut output) {
                Step::Pass(passed) => {
                    output.extend_from_slice(&input[..passed]);
                    passed
                }
                Step::Take(taken) => {
                    assert!(output.len() - before <= LARGEST, "output is not bounded");
                    taken
                }
                Step::End => return (output, true),
            };
            assert!(used > 0, "no progress");
            input = &input[used..];
        }
        assert!(rewriter.block.capacity() <= 4 * MAX_BLOCK);
    }
    rewriter.finish(&mut output);
    (output, false)
}

fn rewrite_frames(frames: &[Vec<u8>]) -> (Vec<(FrameHeader, Vec<u8>)>, bool) {
    let (output, ended) = rewrite(&[&[PREFACE, &frames.concat()].concat()]);
    let (whole, rest) = split(output.strip_prefix(PREFACE).unwrap());
    assert_eq!(rest, b"", "output ends within a frame");
    (whole, ended)
}

/// Returns the header lists that h2 would read: stream, true if the stream ends, fields.
fn lists(frames: Vec<(FrameHeader, Vec<u8>)>) -> Vec<(u32, bool, Fields)> {
    let mut lists = Vec::new();
    let mut frames = VecDeque::from(frames);
    while let Some((header, payload)) = frames.pop_front() {
        if header.kind != HEADERS {
            continue;
        }
        let mut block = payload;
        let mut last = header;
        while last.flags & END_HEADERS == 0 {
            let (next, payload) = frames.pop_front().unwrap();
            assert_eq!((next.kind, next.stream), (CONTINUATION, header.stream));
            assert!(next.len <= MAX_FRAME);
            block.extend(payload);
            last = next;
        }
        let ends = header.flags & END_STREAM != 0;
        lists.push((header.stream, ends, decode_stateless(&block)));
    }
    lists
}

fn encode(encoder: &mut Encoder<'static>, fields: &Fields) -> Vec<u8> {
    encoder.encode(borrowed(fields))
}

fn block_of(fields: &Fields) -> Vec<u8> {
    encode(&mut Encoder::new(), fields)
}

fn kubelet_request() -> Fields {
    request(PATH_AUTHORITY, "/x/Y")
}

#[test]
fn authority_is_replaced_and_other_fields_are_kept() {
    for authority in [
        PATH_AUTHORITY,
        "/csi/csi.sock",
        "",
        "a b",
        "localhost",
        "\u{fc}",
    ] {
        let block = block_of(&request(authority, "/x/Y"));
        let (frames, ended) = rewrite_frames(&[frame(HEADERS, END_HEADERS, 1, &block)]);
        assert!(!ended);
        assert_eq!(
            lists(frames),
            [(1, false, request("localhost", "/x/Y"))],
            "{authority}"
        );
    }
}

#[test]
fn huffman_coded_authority_is_replaced() {
    // RFC 7541, C.4.1: GET http://www.example.com/
    let block = [
        0x82, 0x86, 0x84, 0x41, 0x8c, 0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90,
        0xf4, 0xff,
    ];
    let (frames, _) = rewrite_frames(&[frame(HEADERS, END_HEADERS, 1, &block)]);
    let expected = [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "localhost"),
    ];
    assert_eq!(lists(frames), [(1, false, fields(&expected))]);
}

#[test]
fn requests_that_refer_to_the_dynamic_table_are_decoded() {
    let mut encoder = Encoder::new();
    let mut frames = Vec::new();
    let mut expected = Vec::new();
    for n in 0..300_u32 {
        // Evicts older entries, since the table holds 4 KiB.
        let fresh = (format!("x-fresh-{n}"), "v".repeat(100));
        let mut sent = request(PATH_AUTHORITY, "/x/Y");
        sent.push(fresh.clone());
        let mut read = request("localhost", "/x/Y");
        read.push(fresh);
        let block = encode(&mut encoder, &sent);
        frames.push(frame(HEADERS, END_HEADERS, 2 * n + 1, &block));
        expected.push((2 * n + 1, false, read));
    }
    let (frames, ended) = rewrite_frames(&frames);
    assert!(!ended);
    assert_eq!(lists(frames), expected);
}

#[test]
fn continuations_are_joined() {
    let block = block_of(&kubelet_request());
    let (first, rest) = block.split_at(1);
    let (second, third) = rest.split_at(7);
    let (frames, ended) = rewrite_frames(&[
        frame(HEADERS, END_STREAM, 1, first),
        frame(CONTINUATION, 0, 1, second),
        frame(CONTINUATION, 0, 1, b""),
        frame(CONTINUATION, END_HEADERS, 1, third),
        frame(PING, 0, 0, b"12345678"),
    ]);
    assert!(!ended);
    assert_eq!(frames[1].0.kind, PING);
    assert_eq!(lists(frames), [(1, true, request("localhost", "/x/Y"))]);
}

#[test]
fn each_block_may_have_all_its_continuations() {
    let block = block_of(&kubelet_request());
    let mut frames = Vec::new();
    for stream in [1, 3] {
        frames.push(frame(HEADERS, 0, stream, &block));
        frames.extend(vec![
            frame(CONTINUATION, 0, stream, b"");
            MAX_CONTINUATIONS - 1
        ]);
        frames.push(frame(CONTINUATION, END_HEADERS, stream, b""));
    }
    let (frames, ended) = rewrite_frames(&frames);
    assert!(!ended);
    let list = request("localhost", "/x/Y");
    assert_eq!(lists(frames), [(1, false, list.clone()), (3, false, list)]);
}

#[test]
fn padding_and_priority_are_removed() {
    let block = block_of(&kubelet_request());
    let payload = |block: &[u8]| [&[3][..], &[0x80, 0, 0, 7, 15], block, &[0; 3]].concat();
    let flags = END_STREAM | PADDED | PRIORITY;
    let (first, rest) = block.split_at(20);
    let (frames, ended) = rewrite_frames(&[
        frame(HEADERS, flags | END_HEADERS, 1, &payload(&block)),
        frame(HEADERS, flags, 3, &payload(first)),
        frame(CONTINUATION, END_HEADERS, 3, rest),
    ]);
    assert!(!ended);
    let list = request("localhost", "/x/Y");
    assert_eq!(lists(frames), [(1, true, list.clone()), (3, true, list)]);
}

#[test]
fn trailers_share_the_dynamic_table_with_requests() {
    let mut encoder = Encoder::new();
    let trailers = fields(&[("x-checksum", "1"), ("user-agent", "grpc-go/1.81.1")]);
    let (frames, ended) = rewrite_frames(&[
        frame(
            HEADERS,
            END_HEADERS,
            1,
            &encode(&mut encoder, &kubelet_request()),
        ),
        frame(DATA, 0, 1, b"\0\0\0\0\0"),
        frame(
            HEADERS,
            END_HEADERS | END_STREAM,
            1,
            &encode(&mut encoder, &trailers),
        ),
    ]);
    assert!(!ended);
    assert_eq!(lists(frames)[1], (1, true, trailers));
}

#[test]
fn other_frames_pass_unchanged() {
    // The last one has an undefined type and the reserved bit.
    let mut unknown = frame(200, 0xff, 5, b"payload");
    unknown[5] |= 0x80;
    let sent = [
        frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1]),
        frame(DATA, PADDED, 1, &vec![7; MAX_FRAME]),
        frame(SETTINGS, 1, 0, b""),
        unknown,
    ]
    .concat();
    let sent = [PREFACE, &sent].concat();
    assert_eq!(rewrite(&[&sent]), (sent, false));
}

#[test]
fn end_of_input_within_a_frame_passes_what_was_read() {
    let sent = [PREFACE, &frame(DATA, 0, 1, b"12345")].concat();
    for length in 0..sent.len() {
        let sent = &sent[..length];
        assert_eq!(rewrite(&[sent]), (sent.to_vec(), false));
    }
}

#[test]
fn end_of_input_within_a_header_block_leaves_a_frame_unfinished() {
    let block = block_of(&kubelet_request());
    let sent = [
        frame(HEADERS, 0, 1, &block[..9]),
        frame(CONTINUATION, 4, 1, &block[9..]),
    ]
    .concat();
    for length in 9..sent.len() {
        let (output, _) = rewrite(&[&[PREFACE, &sent[..length]].concat()]);
        let (whole, rest) = split(&output[PREFACE.len()..]);
        assert_eq!((whole.len(), rest.len()), (0, FRAME_HEADER), "{length}");
    }
}

#[test]
fn list_over_the_limit_is_left_to_h2_and_keeps_the_table() {
    let mut encoder = Encoder::new();
    let mut large = kubelet_request();
    large.push(("x-large".to_owned(), "v".repeat(MAX_HEADER_LIST)));
    let (frames, ended) = rewrite_frames(&[
        frame(HEADERS, 0, 1, &encode(&mut encoder, &large)[..MAX_FRAME]),
        frame(
            CONTINUATION,
            END_HEADERS,
            1,
            &{
                let mut again = Encoder::new();
                encode(&mut again, &large)
            }[MAX_FRAME..],
        ),
        frame(
            HEADERS,
            END_HEADERS,
            3,
            &encode(&mut encoder, &kubelet_request()),
        ),
    ]);
    assert!(!ended);
    let lists = lists(frames);
    let size = |(_, _, fields): &(u32, bool, Fields)| {
        let sizes = fields
            .iter()
            .map(|(name, value)| name.len() + value.len() + 32);
        sizes.sum::<usize>()
    };
    assert!((MAX_HEADER_LIST..4 * MAX_HEADER_LIST).contains(&size(&lists[0])));
    assert_eq!(lists[1], (3, false, request("localhost", "/x/Y")));
}

#[test]
fn a_block_longer_than_a_frame_is_written_with_continuations() {
    let mut sent = kubelet_request();
    sent.push(("x-large".to_owned(), "v".repeat(15_800)));
    let (within, _) = rewrite_frames(&[frame(HEADERS, END_HEADERS, 1, &block_of(&sent))]);
    sent.push(("x-over".to_owned(), "v".repeat(300)));
    let (over, _) = rewrite_frames(&[frame(HEADERS, END_HEADERS, 1, &block_of(&sent))]);
    assert_eq!((within.len(), over.len()), (1, 2));
    assert_eq!(over[0].0.len, MAX_FRAME);
    assert!(lists(over)[0].2.starts_with(&lists(within)[0].2));
}

#[test]
fn references_to_one_large_entry_do_not_grow_the_output() {
    let entry = fields(&[("x-large", &"v".repeat(4000))]);
    let mut block = block_of(&entry);
    block.resize(MAX_FRAME, 0x80 | 62);
    let (frames, ended) = rewrite_frames(&[frame(HEADERS, END_HEADERS, 1, &block)]);
    assert!(!ended);
    let total: usize = frames.iter().map(|(header, _)| header.len).sum();
    assert!(total < MAX_HEADER_LIST + OVERSIZE.len(), "{total}");
}

/// Each case is a frame that h2 answers with an error, then the end; the frames after it are not passed.
#[test]
fn protocol_errors_are_passed_on_for_h2_to_answer_and_end_the_connection() {
    let block = block_of(&kubelet_request());
    let headers = frame(HEADERS, END_HEADERS, 1, &block);
    let unfinished = frame(HEADERS, 0, 1, b"");
    let oversized = |kind| FrameHeader::new(kind, END_HEADERS, 1, MAX_FRAME + 1).bytes();
    let ping = frame(PING, 0, 0, b"12345678");
    let undecodable = |block: &[u8]| {
        let sent = frame(HEADERS, END_HEADERS, 1, block);
        (sent, frame(HEADERS, END_HEADERS, 1, &UNDECODABLE))
    };
    let calm = frame(HEADERS, END_HEADERS, 1, &WAY_OVERSIZE);
    let same = |bytes: Vec<u8>| (bytes.clone(), bytes);
    let cases = [
        ("frame type in a block", {
            let sent = [frame(HEADERS, 0, 1, &block), ping.clone()].concat();
            (sent, [unfinished.clone(), ping.clone()].concat())
        }),
        ("data of the same stream in a block", {
            let data = frame(DATA, 0, 1, b"12345");
            let sent = [frame(HEADERS, 0, 1, &block), data.clone()].concat();
            (sent, [unfinished.clone(), data].concat())
        }),
        ("stream in a block", {
            let other = frame(CONTINUATION, END_HEADERS, 3, b"");
            let sent = [frame(HEADERS, 0, 1, &block), other.clone()].concat();
            (sent, [unfinished.clone(), other].concat())
        }),
        (
            "continuation of nothing",
            same(frame(CONTINUATION, 4, 1, b"12")),
        ),
        ("push", same(frame(PUSH_PROMISE, 4, 1, b"\0\0\0\x02\x82"))),
        ("long data", same(oversized(DATA).to_vec())),
        ("long headers", same(oversized(HEADERS).to_vec())),
        ("padding", same(frame(HEADERS, 4 | PADDED, 1, b"\x09\x82"))),
        ("no padding", same(frame(HEADERS, 4 | PADDED, 1, b""))),
        ("priority", same(frame(HEADERS, 4 | PRIORITY, 1, b"\0\0\0"))),
        ("index 0", undecodable(&[0x80])),
        ("unknown index", undecodable(&[0x80 | 62])),
        (
            "integer",
            undecodable(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        ),
        ("string", undecodable(&[0x41, 0x09, b'x'])),
        ("huffman padding", undecodable(&[0x41, 0x81, 0x00])),
        (
            "huffman end",
            undecodable(&[0x41, 0x84, 0xff, 0xff, 0xff, 0xff]),
        ),
        (
            "table of 4097 bytes",
            undecodable(&[0x3f, 0xe2, 0x1f, 0x82]),
        ),
        ("many continuations", {
            let empty = frame(CONTINUATION, 0, 1, b"");
            let flood = vec![empty; MAX_CONTINUATIONS + 1].concat();
            ([frame(HEADERS, 0, 1, b""), flood].concat(), calm.clone())
        }),
        ("large block", {
            let part = vec![0x82; MAX_FRAME];
            let more = frame(CONTINUATION, 0, 1, &part);
            let sent = [frame(HEADERS, 0, 1, &part), more.clone(), more].concat();
            (sent, calm.clone())
        }),
    ];
    for (case, (sent, expected)) in cases {
        let all = [PREFACE, &sent, &headers, &ping].concat();
        let (output, ended) = rewrite(&[&all]);
        assert!(ended, "{case}: goes on");
        assert_eq!(output[PREFACE.len()..], expected, "{case}");
    }
}

#[test]
fn table_of_4096_bytes_is_allowed() {
    let block = [&[0x3f, 0xe1, 0x1f][..], &block_of(&kubelet_request())].concat();
    let (frames, ended) = rewrite_frames(&[frame(HEADERS, END_HEADERS, 1, &block)]);
    assert!(!ended);
    assert_eq!(lists(frames), [(1, false, request("localhost", "/x/Y"))]);
}

#[test]
fn strings_of_any_length_survive() {
    for length in [0, 1, 126, 127, 128, 254, 255, 256, 1000, 16_000] {
        let mut sent = request("localhost", "/x/Y");
        sent.push(("x".to_owned(), "v".repeat(length)));
        let (frames, _) = rewrite_frames(&[frame(HEADERS, END_HEADERS, 1, &block_of(&sent))]);
        assert_eq!(lists(frames), [(1, false, sent)], "{length}");
    }
}

/// Generates frames that are mostly valid, so that the deeper states are reached.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![
        4 => Just(HEADERS), 4 => Just(CONTINUATION), 1 => 0..12_u8,
    ];
    let payload = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..60),
        2 => Just(block_of(&kubelet_request())),
        1 => (any::<u8>(), 0..MAX_FRAME + 2).prop_map(|(byte, length)| vec![byte; length]),
    ];
    (kind, any::<u8>(), 0..4_u32, payload)
        .prop_map(|(kind, flags, stream, payload)| frame(kind, flags, stream, &payload))
}

fn chunks<'a>(mut bytes: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let mut chunks = Vec::new();
    for length in lengths.iter().cycle() {
        let (chunk, rest) = bytes.split_at(bytes.len().min(*length));
        chunks.push(chunk);
        if rest.is_empty() {
            break;
        }
        bytes = rest;
    }
    chunks
}

proptest! {
    #[test]
    fn any_chunking_yields_the_same_bytes(
        frames in prop::collection::vec(any_frame(), 0..12),
        lengths in prop::collection::vec(1..40_usize, 1..8),
    ) {
        let sent = [PREFACE, &frames.concat()].concat();
        let whole = rewrite(&[&sent]);
        prop_assert_eq!(rewrite(&chunks(&sent, &lengths)), whole);
    }

    #[test]
    fn arbitrary_bytes_neither_panic_nor_grow(
        bytes in prop::collection::vec(any::<u8>(), 0..4096),
        frames in prop::collection::vec(any_frame(), 0..12),
    ) {
        rewrite(&[&bytes]);
        rewrite(&[PREFACE, &frames.concat(), &bytes]);
    }

    #[test]
    fn arbitrary_header_blocks_neither_panic_nor_grow(
        blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..8),
    ) {
        let frames: Vec<_> = blocks.iter().map(|block| frame(HEADERS, END_HEADERS, 1, block)).collect();
        rewrite(&[PREFACE, &frames.concat()]);
    }
}
