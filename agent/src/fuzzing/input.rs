//! An input of a fuzz target, with the operations that consume it.

/// An input that is consumed from its front; it continues with zeros.
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl<'a> Input<'a> {
    /// Takes up to `len` bytes.
    pub(super) fn take(&mut self, len: usize) -> &'a [u8] {
        let (first, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        first
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    /// Takes a little-endian number of `len` bytes.
    pub(super) fn number(&mut self, len: usize) -> u64 {
        let mut raw = [0; 8];
        let bytes = self.take(len.min(8));
        raw[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(raw)
    }

    /// Takes a run that begins with its length.
    pub(super) fn run(&mut self) -> &'a [u8] {
        let len = self.byte();
        self.take(usize::from(len))
    }

    /// Takes a run as text.
    pub(super) fn text(&mut self) -> String {
        String::from_utf8_lossy(self.run()).into_owned()
    }
}
