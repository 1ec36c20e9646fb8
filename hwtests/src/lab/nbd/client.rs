//! A small NBD client, for the tests of the server.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

use super::NbdDrive;

pub(super) const READ: u16 = 0;
pub(super) const WRITE: u16 = 1;
pub(super) const FLUSH: u16 = 3;
pub(super) const TRIM: u16 = 4;
pub(super) const ZEROES: u16 = 6;

pub(super) struct Client {
    stream: UnixStream,
    pub(super) bytes: u64,
    pub(super) flags: u16,
}

impl Client {
    /// Connects with EXPORT_NAME, as the oldest clients do.
    pub(super) fn connect(drive: &NbdDrive) -> Self {
        let mut stream = UnixStream::connect(drive.socket()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting, b"NBDMAGICIHAVEOPT\x00\x03");
        stream.write_all(&3u32.to_be_bytes()).unwrap();
        stream
            .write_all(b"IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x00")
            .unwrap();
        let mut export = [0; 10];
        stream.read_exact(&mut export).unwrap();
        Self {
            stream,
            bytes: u64::from_be_bytes(export[..8].try_into().unwrap()),
            flags: u16::from_be_bytes(export[8..].try_into().unwrap()),
        }
    }

    pub(super) fn send(&mut self, flags: u16, command: u16, offset: u64, length: u32, data: &[u8]) {
        let mut request = 0x2560_9513u32.to_be_bytes().to_vec();
        request.extend(flags.to_be_bytes());
        request.extend(command.to_be_bytes());
        request.extend(offset.to_be_bytes()); // The cookie, which identifies the answer.
        request.extend(offset.to_be_bytes());
        request.extend(length.to_be_bytes());
        request.extend(data);
        self.stream.write_all(&request).unwrap();
    }

    /// Reads the answer to the request with this offset: data, or an error number.
    pub(super) fn answer(&mut self, offset: u64, length: u32) -> io::Result<Result<Vec<u8>, u32>> {
        let mut head = [0; 16];
        self.stream.read_exact(&mut head)?;
        assert_eq!(head[..4], 0x6744_6698u32.to_be_bytes());
        assert_eq!(head[8..], offset.to_be_bytes());
        let error = u32::from_be_bytes(head[4..8].try_into().unwrap());
        if error != 0 {
            return Ok(Err(error));
        }
        let mut data = vec![0; length as usize];
        self.stream.read_exact(&mut data)?;
        Ok(Ok(data))
    }

    /// True if an answer arrives within this time.
    pub(super) fn answered_within(&mut self, limit: Duration) -> bool {
        use std::os::fd::AsFd;

        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let mut fds = [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::try_from(limit).unwrap()).unwrap() > 0
    }

    pub(super) fn read(&mut self, offset: u64, length: u32) -> Result<Vec<u8>, u32> {
        self.send(0, READ, offset, length, &[]);
        self.answer(offset, length).unwrap()
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), u32> {
        self.send(0, WRITE, offset, u32::try_from(data.len()).unwrap(), data);
        self.answer(offset, 0).unwrap().map(drop)
    }

    pub(super) fn write_fua(&mut self, offset: u64, data: &[u8]) -> Result<(), u32> {
        self.send(1, WRITE, offset, u32::try_from(data.len()).unwrap(), data);
        self.answer(offset, 0).unwrap().map(drop)
    }

    pub(super) fn without_data(
        &mut self,
        command: u16,
        offset: u64,
        length: u32,
    ) -> Result<(), u32> {
        self.send(0, command, offset, length, &[]);
        self.answer(offset, 0).unwrap().map(drop)
    }

    pub(super) fn flush(&mut self) -> Result<(), u32> {
        self.without_data(FLUSH, 0, 0)
    }
}
