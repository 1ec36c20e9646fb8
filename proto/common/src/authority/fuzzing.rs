//! Fuzz target: the bytes that h2 receives for any bytes of a client.

use loona_hpack::{Decoder, Encoder};

use super::{
    frame::{CONTINUATION, END_HEADERS, HEADERS, MAX_FRAME, PADDED, PRIORITY},
    rewrite::{Rewriter, Step},
    testing::{PATH_AUTHORITY, PREFACE, borrowed, frame, request, split},
};
use crate::fuzzing::Target;

/// Largest output of one step: a list of headers at the limit, or the replacement of one that exceeds it, with their frames.
const MOST_OUTPUT: usize = 24 << 10;

pub fn targets() -> Vec<Target> {
    vec![Target {
        name: "authority",
        run: rewritten,
        seeds: connections,
        replays: 1000,
    }]
}

fn connections() -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new();
    let mut block = |path: &str| encoder.encode(borrowed(&request(PATH_AUTHORITY, path)));
    let (first, second) = (block("/csi.v1.Identity/Probe"), block("/csi.v1.Node/X"));
    let whole = frame(HEADERS, END_HEADERS, 1, &first);
    let parts = [
        frame(HEADERS, 0, 3, &second[..9]),
        frame(CONTINUATION, END_HEADERS, 3, &second[9..]),
    ]
    .concat();
    let padded = [&[3, 0, 0, 0, 0, 16][..], &first, &[0; 3]].concat();
    let padded = frame(HEADERS, END_HEADERS | PADDED | PRIORITY, 1, &padded);
    let settings = frame(4, 0, 0, &[0, 1, 0, 0, 16, 0]);
    let seed = |frames: &[&[u8]]| [PREFACE, &frames.concat()].concat();
    let other = frame(CONTINUATION, END_HEADERS, 5, &second[9..]);
    vec![
        seed(&[&frame(HEADERS, 0, 3, &second[..9]), &other]),
        seed(&[&settings, &whole, &frame(0, 1, 1, b"\0\0\0\0\0"), &parts]),
        seed(&[&padded]),
        seed(&[&frame(5, 4, 1, &first)]),
        seed(&[&frame(HEADERS, END_HEADERS, 1, &[0x3f, 0xe1, 0x1f, 0x82])]),
        PREFACE.to_vec(),
    ]
}

/// Returns the whole output when the input arrives in pieces of `piece` bytes.
fn output(data: &[u8], piece: usize) -> Vec<u8> {
    let mut rewriter = Rewriter::new();
    let mut output = Vec::new();
    for piece in data.chunks(piece) {
        let mut input = piece;
        while !input.is_empty() {
            let before = output.len();
            let used = match rewriter.step(input, &mut output) {
                Step::Pass(passed) => {
                    output.extend_from_slice(&input[..passed]);
                    passed
                }
                Step::Take(taken) => {
                    assert!(output.len() - before <= MOST_OUTPUT, "not bounded");
                    taken
                }
                Step::End => return output,
            };
            assert!(used > 0, "no progress");
            input = &input[used..];
        }
    }
    rewriter.finish(&mut output);
    output
}

/// Checks that the output does not depend on how the input is split, and that every header block in it decodes without an earlier dynamic
/// table and has no authority but `localhost`.
fn rewritten(data: &[u8]) {
    let whole = output(data, usize::MAX);
    for piece in [1, 7] {
        assert!(output(data, piece) == whole, "in pieces of {piece}");
    }
    let Some((_, rest)) = whole.split_at_checked(PREFACE.len()) else {
        return;
    };
    let (frames, _) = split(rest);
    let mut block: Option<(u32, Vec<u8>)> = None;
    for (header, payload) in frames {
        // The frame that causes an error is passed unchanged, and h2 decodes none of it, e.g. a part of another stream's block.
        let is_ours = header.len <= MAX_FRAME && header.flags & (PADDED | PRIORITY) == 0;
        match (header.kind, &mut block) {
            (HEADERS, None) if is_ours => block = Some((header.stream, payload)),
            (CONTINUATION, Some((stream, block))) if is_ours && *stream == header.stream => {
                block.extend(payload);
            }
            _ => block = None,
        }
        if header.flags & END_HEADERS == 0 {
            continue;
        }
        let fields = block.take().map(|(_, block)| Decoder::new().decode(&block));
        if let Some(Ok(fields)) = fields {
            for (name, value) in fields {
                assert!(name != b":authority" || value == b"localhost");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn changed_http2_keeps_its_properties() {
        crate::fuzzing::replay_all(&super::targets());
    }
}
