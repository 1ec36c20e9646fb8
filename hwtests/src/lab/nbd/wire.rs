//! Encoding of the NBD protocol: the fixed newstyle handshake, requests and simple replies. Numbers are those of the NBD project's
//! `doc/proto.md`.

use std::io::{self, Read, Write};

const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;

const OPT_EXPORT_NAME: u32 = 1;
const OPT_ABORT: u32 = 2;
const OPT_LIST: u32 = 3;
const OPT_INFO: u32 = 6;
const OPT_GO: u32 = 7;
const REP_ACK: u32 = 1;
const REP_SERVER: u32 = 2;
const REP_INFO: u32 = 3;
const REP_ERR_UNSUP: u32 = 0x8000_0001;
const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;

/// NBD_FLAG_HAS_FLAGS, SEND_TRIM, SEND_WRITE_ZEROES, and CAN_MULTI_CONN, since all connections share one cache.
const FLAGS: u16 = 1 | 1 << 5 | 1 << 6 | 1 << 8;
/// NBD_FLAG_SEND_FLUSH and SEND_FUA, for a volatile cache.
const FLAGS_VOLATILE: u16 = 1 << 2 | 1 << 3;

const CMD_FLAG_FUA: u16 = 1;

/// Longest read or write, bytes; the protocol's default, 32 MiB.
pub(super) const MAX_PAYLOAD: u32 = 32 << 20;
/// Longest option, bytes: an export name of at most 4096 bytes and a few numbers.
const MAX_OPTION: u32 = 8192;

/// Errors of simple replies; the discriminant is the number that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Errno {
    Eio = 5,
    Einval = 22,
    Enospc = 28,
}

/// Command of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// NBD_CMD_READ.
    Read,
    /// NBD_CMD_WRITE.
    Write,
    /// NBD_CMD_DISC: the client disconnects.
    Disconnect,
    /// NBD_CMD_FLUSH.
    Flush,
    /// NBD_CMD_TRIM.
    Trim,
    /// NBD_CMD_WRITE_ZEROES.
    WriteZeroes,
    /// Any other command, by number.
    Unknown(u16),
}

/// A request as the client sent it; offset and length are not checked against the drive yet.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) command: Command,
    pub(super) fua: bool,
    pub(super) cookie: u64,
    /// Offset, bytes.
    pub(super) offset: u64,
    /// Length, bytes.
    pub(super) length: u32,
    /// The data of a write.
    pub(super) data: Vec<u8>,
}

/// Properties of the drive that clients are offered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Export {
    pub(super) bytes: u64,
    pub(super) volatile: bool,
    /// Smallest block that a client may read or write, bytes: 512 or 4096.
    pub(super) block: u32,
}

impl Export {
    fn flags(&self) -> u16 {
        FLAGS | if self.volatile { FLAGS_VOLATILE } else { 0 }
    }
}

/// Performs the handshake; returns true if transmission follows, false if the client disconnects.
pub(super) fn handshake(stream: &mut (impl Read + Write), export: &Export) -> io::Result<bool> {
    // NBD_FLAG_FIXED_NEWSTYLE and NBD_FLAG_NO_ZEROES.
    stream.write_all(b"NBDMAGICIHAVEOPT\x00\x03")?;
    let no_zeroes = u32::from_be_bytes(take(stream)?) & 2 != 0;
    loop {
        let magic: [u8; 8] = take(stream)?;
        if &magic != b"IHAVEOPT" {
            return Err(malformed("an option does not start with IHAVEOPT"));
        }
        let option = u32::from_be_bytes(take(stream)?);
        let length = u32::from_be_bytes(take(stream)?);
        if length > MAX_OPTION {
            return Err(malformed("an option is too long"));
        }
        take_vec(stream, length)?;
        match option {
            OPT_EXPORT_NAME => {
                let mut answer = export.bytes.to_be_bytes().to_vec();
                answer.extend(export.flags().to_be_bytes());
                if !no_zeroes {
                    answer.extend([0; 124]);
                }
                stream.write_all(&answer)?;
                return Ok(true);
            }
            OPT_INFO | OPT_GO => {
                let mut info = INFO_EXPORT.to_be_bytes().to_vec();
                info.extend(export.bytes.to_be_bytes());
                info.extend(export.flags().to_be_bytes());
                reply_option(stream, option, REP_INFO, &info)?;
                let mut sizes = INFO_BLOCK_SIZE.to_be_bytes().to_vec();
                for size in [export.block, 4096, MAX_PAYLOAD] {
                    sizes.extend(size.to_be_bytes());
                }
                reply_option(stream, option, REP_INFO, &sizes)?;
                reply_option(stream, option, REP_ACK, &[])?;
                if option == OPT_GO {
                    return Ok(true);
                }
            }
            OPT_LIST => {
                // There is one export, with an empty name.
                reply_option(stream, option, REP_SERVER, &[0; 4])?;
                reply_option(stream, option, REP_ACK, &[])?;
            }
            OPT_ABORT => {
                reply_option(stream, option, REP_ACK, &[])?;
                return Ok(false);
            }
            _ => reply_option(stream, option, REP_ERR_UNSUP, &[])?,
        }
    }
}

fn reply_option(stream: &mut impl Write, option: u32, reply: u32, data: &[u8]) -> io::Result<()> {
    let length = u32::try_from(data.len()).map_err(io::Error::other)?;
    let mut answer = REPLY_MAGIC.to_be_bytes().to_vec();
    for number in [option, reply, length] {
        answer.extend(number.to_be_bytes());
    }
    answer.extend(data);
    stream.write_all(&answer)
}

/// Reads the next request.
pub(super) fn request(stream: &mut impl Read) -> io::Result<Request> {
    let magic = u32::from_be_bytes(take(stream)?);
    if magic != REQUEST_MAGIC {
        return Err(malformed("a request does not start with its magic"));
    }
    let flags = u16::from_be_bytes(take(stream)?);
    let command = match u16::from_be_bytes(take(stream)?) {
        0 => Command::Read,
        1 => Command::Write,
        2 => Command::Disconnect,
        3 => Command::Flush,
        4 => Command::Trim,
        6 => Command::WriteZeroes,
        other => Command::Unknown(other),
    };
    let cookie = u64::from_be_bytes(take(stream)?);
    let offset = u64::from_be_bytes(take(stream)?);
    let length = u32::from_be_bytes(take(stream)?);
    let data = if command == Command::Write {
        if length > MAX_PAYLOAD {
            return Err(malformed("a write is longer than was offered"));
        }
        take_vec(stream, length)?
    } else {
        Vec::new()
    };
    Ok(Request {
        command,
        fua: flags & CMD_FLAG_FUA != 0,
        cookie,
        offset,
        length,
        data,
    })
}

/// Sends a simple reply: data of a read, or an error.
pub(super) fn reply(
    stream: &mut impl Write,
    cookie: u64,
    answer: &Result<Vec<u8>, Errno>,
) -> io::Result<()> {
    let (error, data) = match answer {
        Ok(data) => (0, data.as_slice()),
        Err(errno) => (*errno as u32, &[][..]),
    };
    let mut bytes = Vec::with_capacity(16 + data.len());
    bytes.extend(SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes.extend(error.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(data);
    stream.write_all(&bytes)
}

fn take<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn take_vec(stream: &mut impl Read, length: u32) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
