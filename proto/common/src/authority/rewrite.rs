//! The bytes of an HTTP/2 client, with every `:authority` replaced: a state machine without I/O.
//!
//! Header blocks are decoded and written again as literals that are not indexed, so the dynamic table lives here
//! and h2's stays empty. Everything else passes unchanged. A protocol error is left for h2 to answer: it
//! gets the frame that is in error, or one it answers with the error that is due. What follows is dropped, since
//! a header block that was not decoded leaves the dynamic table unknown.

use loona_hpack::Decoder;

use super::{
    frame::{
        CONTINUATION, END_HEADERS, END_STREAM, FRAME_HEADER, FrameHeader, HEADERS, MAX_FRAME,
        PADDED, PRIORITY, PUSH_PROMISE,
    },
    plain::plain,
};

/// The authority that grpc sends for a unix socket, which has no host.
const AUTHORITY: &[u8] = b"localhost";
/// "PRI * HTTP/2.0…": h2 checks it.
const PREFACE: usize = 24;
/// The default of SETTINGS_HEADER_TABLE_SIZE, which hyper's server leaves as it is.
const HEADER_TABLE: usize = 4096;
/// The limit of hyper's server for a header list, counted as in RFC 9113, 6.5.2. h2 answers 431 to a longer one.
const MAX_HEADER_LIST: usize = 16 * 1024;
/// Twice what a list at the limit takes without compression. A longer block is not decoded.
const MAX_BLOCK: usize = 2 * MAX_HEADER_LIST;
/// h2's limit for a block of this size.
const MAX_CONTINUATIONS: usize = 6;
/// Indexed `accept-encoding: gzip, deflate`, counted as 60 bytes.
const FILLER: u8 = 0x80 | 16;
/// Over the limit, and not over four times the limit, together with the fields that are within it.
const OVERSIZE: [u8; 512] = [FILLER; 512];
/// Over four times the limit, which h2 answers with ENHANCE_YOUR_CALM.
const WAY_OVERSIZE: [u8; 2048] = [FILLER; 2048];
/// No index is 0: h2 answers with a connection error.
const UNDECODABLE: [u8; 1] = [0x80];

/// Result of one step for the front of its input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Output this many bytes of the input unchanged.
    Pass(usize),
    /// Consumed this many bytes of the input; their replacement is appended to the output.
    Take(usize),
    /// Read no more of the connection.
    End,
}

#[derive(Debug)]
enum State {
    /// In the preface or in a frame that passes unchanged, with this many bytes left.
    Pass(usize),
    /// In a frame's header.
    Header,
    /// In the payload of a frame with a part of a header block, with this many bytes left.
    Block(usize),
}

impl State {
    fn pass(left: usize) -> Self {
        match left {
            0 => Self::Header,
            left => Self::Pass(left),
        }
    }
}

/// Replaces the authority of every request on one connection.
pub(super) struct Rewriter {
    state: State,
    // Bytes of the next frame's header that were read so far.
    header: Vec<u8>,
    // HEADERS frame of the block that is being read.
    open: Option<FrameHeader>,
    last_part: bool,
    block: Vec<u8>,
    continuations: usize,
    decoder: Decoder<'static>,
    // After a protocol error only the rest of the current frame is passed.
    failed: bool,
}

impl Rewriter {
    pub(super) fn new() -> Self {
        let mut decoder = Decoder::new();
        decoder.set_max_allowed_table_size(HEADER_TABLE);
        Self {
            state: State::Pass(PREFACE),
            header: Vec::with_capacity(FRAME_HEADER),
            open: None,
            last_part: false,
            block: Vec::new(),
            continuations: 0,
            decoder,
            failed: false,
        }
    }

    /// Processes the front of `input`, which must not be empty: at least one byte, and at most one header block, which bounds the bytes
    /// appended to `output`.
    pub(super) fn step(&mut self, input: &[u8], output: &mut Vec<u8>) -> Step {
        match self.state {
            State::Header if self.failed => Step::End,
            State::Header => {
                let taken = input.len().min(FRAME_HEADER - self.header.len());
                self.header.extend_from_slice(&input[..taken]);
                if let Ok(header) = <[u8; FRAME_HEADER]>::try_from(self.header.as_slice()) {
                    self.header.clear();
                    self.begin(FrameHeader::parse(header), output);
                }
                Step::Take(taken)
            }
            State::Pass(left) => {
                let passed = input.len().min(left);
                self.state = State::pass(left - passed);
                Step::Pass(passed)
            }
            State::Block(left) => {
                let taken = input.len().min(left);
                self.block.extend_from_slice(&input[..taken]);
                self.state = State::Block(left - taken);
                if left == taken {
                    self.end_part(output);
                }
                Step::Take(taken)
            }
        }
    }

    /// Handles the end of the input. A frame that was cut off stays incomplete in the output, since h2 distinguishes that from an orderly
    /// end.
    pub(super) fn finish(&mut self, output: &mut Vec<u8>) {
        match self.open {
            // A frame without its only byte.
            Some(open) => {
                output.extend_from_slice(&FrameHeader::new(HEADERS, 0, open.stream, 1).bytes());
            }
            None => output.append(&mut self.header),
        }
    }

    fn begin(&mut self, frame: FrameHeader, output: &mut Vec<u8>) {
        let expected = self.open.map(|open| open.stream);
        if frame.len > MAX_FRAME {
            // h2 refuses it by its length alone.
            self.fail(&[], frame, 0, output);
        } else if let Some(stream) = expected {
            if frame.kind != CONTINUATION || frame.stream != stream {
                let unfinished = FrameHeader::new(HEADERS, 0, stream, 0);
                self.fail(&unfinished.bytes(), frame, frame.len, output);
            } else if self.continuations == MAX_CONTINUATIONS
                || self.block.len() + frame.len > MAX_BLOCK
            {
                self.fail_block(stream, &WAY_OVERSIZE, output);
            } else {
                self.continuations += 1;
                self.begin_part(frame, output);
            }
        } else {
            match frame.kind {
                HEADERS => {
                    self.open = Some(frame);
                    self.continuations = 0;
                    self.begin_part(frame, output);
                }
                // Both are errors of a client, and have header blocks.
                CONTINUATION | PUSH_PROMISE => self.fail(&[], frame, frame.len, output),
                _ => {
                    output.extend_from_slice(&frame.bytes());
                    self.state = State::pass(frame.len);
                }
            }
        }
    }

    fn begin_part(&mut self, frame: FrameHeader, output: &mut Vec<u8>) {
        self.last_part = frame.flags & END_HEADERS != 0;
        self.state = State::Block(frame.len);
        if frame.len == 0 {
            self.end_part(output);
        }
    }

    fn end_part(&mut self, output: &mut Vec<u8>) {
        self.state = State::Header;
        let Some(open) = self.open else {
            return;
        };
        if self.continuations == 0 && !strip(open.flags, &mut self.block) {
            output.extend_from_slice(&open.bytes());
            output.append(&mut self.block);
            self.failed = true;
        } else if self.last_part {
            self.open = None;
            self.end_block(open, output);
            self.block = Vec::new();
        }
    }

    fn end_block(&mut self, open: FrameHeader, output: &mut Vec<u8>) {
        let mut encoded = Vec::with_capacity(self.block.len() + AUTHORITY.len());
        let mut size = 0_usize;
        let plain = plain(&self.block);
        let block = plain.as_ref().unwrap_or(&self.block);
        let decoded = self.decoder.decode_with_cb(block, |name, value| {
            let value = match &*name {
                b":authority" => AUTHORITY,
                _ => &*value,
            };
            size += name.len() + value.len() + 32;
            if size < MAX_HEADER_LIST {
                // A literal without indexing, with a new name.
                encoded.push(0);
                write_string(&name, &mut encoded);
                write_string(value, &mut encoded);
            }
        });
        if decoded.is_err() {
            self.fail_block(open.stream, &UNDECODABLE, output);
            return;
        }
        if size >= MAX_HEADER_LIST {
            encoded.extend_from_slice(&OVERSIZE);
        }
        write_block(open.stream, open.flags & END_STREAM, &encoded, output);
    }

    /// Passes `before`, and then the frame with `len` bytes of payload, as the last one.
    fn fail(&mut self, before: &[u8], frame: FrameHeader, len: usize, output: &mut Vec<u8>) {
        output.extend_from_slice(before);
        output.extend_from_slice(&frame.bytes());
        self.state = State::pass(len);
        self.open = None;
        self.failed = true;
    }

    fn fail_block(&mut self, stream: u32, block: &[u8], output: &mut Vec<u8>) {
        write_block(stream, 0, block, output);
        self.state = State::Header;
        self.open = None;
        self.block = Vec::new();
        self.failed = true;
    }
}

/// Reduces the payload of a HEADERS frame to its fragment: removes padding and priority, which h2 ignores. Returns false if they do not fit
/// in the payload.
fn strip(flags: u8, payload: &mut Vec<u8>) -> bool {
    let padded = usize::from(flags & PADDED != 0);
    let prefix = padded + if flags & PRIORITY != 0 { 5 } else { 0 };
    let padding = match payload.first() {
        Some(length) if padded == 1 => usize::from(*length),
        _ => 0,
    };
    match payload.len().checked_sub(prefix + padding) {
        Some(fragment) => {
            payload.truncate(prefix + fragment);
            payload.drain(..prefix);
            true
        }
        None => false,
    }
}

fn write_block(stream: u32, flags: u8, block: &[u8], output: &mut Vec<u8>) {
    let mut kind = HEADERS;
    let mut flags = flags;
    let mut rest = block;
    loop {
        let (part, after) = rest.split_at(rest.len().min(MAX_FRAME));
        if after.is_empty() {
            flags |= END_HEADERS;
        }
        output.extend_from_slice(&FrameHeader::new(kind, flags, stream, part.len()).bytes());
        output.extend_from_slice(part);
        if after.is_empty() {
            return;
        }
        (kind, flags, rest) = (CONTINUATION, 0, after);
    }
}

/// Appends a string literal without Huffman coding (RFC 7541, section 5.2).
pub(super) fn write_string(string: &[u8], output: &mut Vec<u8>) {
    const PREFIX: usize = 127;
    if string.len() < PREFIX {
        output.push(low_byte(string.len()));
    } else {
        output.push(low_byte(PREFIX));
        let mut rest = string.len() - PREFIX;
        while rest >= 128 {
            output.push(low_byte(rest) | 0x80);
            rest >>= 7;
        }
        output.push(low_byte(rest));
    }
    output.extend_from_slice(string);
}

fn low_byte(number: usize) -> u8 {
    number.to_le_bytes()[0]
}

#[cfg(test)]
mod tests;
