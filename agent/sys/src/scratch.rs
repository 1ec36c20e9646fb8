//! Files in memory: a sparse one of any size, for tools that read the size of a device, and the input of a tool.

use std::{
    fs::File,
    io::{self, Seek, Write},
    os::fd::AsRawFd,
    path::PathBuf,
};

use nix::sys::memfd::{MFdFlags, memfd_create};

/// A file in memory, which is released when this is dropped.
#[derive(Debug)]
pub struct Scratch(File);

impl Scratch {
    /// Creates a file of this many zero bytes.
    pub fn new(bytes: u64) -> io::Result<Self> {
        let file = File::from(memfd_create("drivebay-scratch", MFdFlags::MFD_CLOEXEC)?);
        file.set_len(bytes)?;
        Ok(Self(file))
    }

    /// Creates a file of these bytes.
    pub fn of(bytes: &[u8]) -> io::Result<Self> {
        file_of(bytes).map(Self)
    }

    /// Returns the path by which child processes can open it until it is dropped.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()).into()
    }
}

/// Returns a file in memory that holds these bytes, at its start.
pub(super) fn file_of(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("drivebay-input", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_huge_one_takes_no_memory() {
        let scratch = Scratch::new(20 << 40).unwrap();
        let metadata = std::fs::metadata(scratch.path()).unwrap();
        assert_eq!((metadata.len(), metadata.blocks()), (20 << 40, 0));
        let path = scratch.path();
        drop(scratch);
        assert!(std::fs::metadata(path).is_err());
    }
}
