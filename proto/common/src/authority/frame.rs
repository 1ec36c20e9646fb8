//! The header of an HTTP/2 frame: RFC 9113, section 4.1.

pub(super) const FRAME_HEADER: usize = 9;
/// SETTINGS_MAX_FRAME_SIZE: the default, and what hyper's server announces.
pub(super) const MAX_FRAME: usize = 16_384;

pub(super) const HEADERS: u8 = 1;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
pub(super) const PADDED: u8 = 0x8;
pub(super) const PRIORITY: u8 = 0x20;

/// Kept with the reserved bit, so that a frame that passes is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) len: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    reserved: u32,
}

impl FrameHeader {
    pub(super) fn new(kind: u8, flags: u8, stream: u32, len: usize) -> Self {
        Self {
            len,
            kind,
            flags,
            stream,
            reserved: 0,
        }
    }

    pub(super) fn parse(bytes: [u8; FRAME_HEADER]) -> Self {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = bytes;
        let stream = u32::from_be_bytes([s0, s1, s2, s3]);
        Self {
            len: usize::from(l0) << 16 | usize::from(l1) << 8 | usize::from(l2),
            kind,
            flags,
            stream: stream & 0x7fff_ffff,
            reserved: stream & 0x8000_0000,
        }
    }

    pub(super) fn bytes(self) -> [u8; FRAME_HEADER] {
        let [l0, l1, l2, ..] = self.len.to_le_bytes();
        let [s0, s1, s2, s3] = (self.stream | self.reserved).to_be_bytes();
        [l2, l1, l0, self.kind, self.flags, s0, s1, s2, s3]
    }
}
