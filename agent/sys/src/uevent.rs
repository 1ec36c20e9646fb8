//! The kernel's own uevents from netlink: group 1 reaches every network namespace and needs no udevd. libudev's monitor does not report
//! lost events; this does (`Event::Lost`).

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use nix::{
    errno::Errno,
    sys::socket::{
        AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recvfrom, setsockopt,
        socket, sockopt,
    },
};

/// The kernel's multicast group; 2 is udevd's.
const KERNEL_GROUP: u32 = 1;
/// Receive buffer for a burst (a returning JBOD causes some thousand events), as large as libudev's.
const RECEIVE_BYTES: usize = 8 << 20;
/// Bytes of the largest message: the kernel's events are at most 2 KiB of environment and a path.
const LARGEST: usize = 16 << 10;

/// Result of receiving from the kernel's uevent group: a message, or the loss of some.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An event of the block subsystem.
    Block(Uevent),
    /// Another subsystem's event, or a message that is not the kernel's.
    Other,
    /// The socket's buffer overflowed: events were lost, and everything has to be scanned.
    Lost,
}

/// An event of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uevent {
    /// `add`, `remove`, `change`, …
    pub action: String,
    /// Path in sysfs, from `/devices`.
    pub devpath: String,
    /// `disk` or `partition`; empty if the message has no DEVTYPE.
    pub devtype: String,
}

/// A socket that receives the kernel's group.
#[derive(Debug)]
pub struct KernelUevents {
    socket: OwnedFd,
}

impl KernelUevents {
    /// Opens the socket; needs no privilege.
    pub fn open() -> io::Result<Self> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            SockProtocol::NetlinkKObjectUEvent,
        )?;
        if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BYTES).is_err() {
            // Without CAP_NET_ADMIN only as much as the system allows; lost events are reported anyway.
            let _ = setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BYTES);
        }
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, KERNEL_GROUP))?;
        Ok(Self { socket })
    }

    /// Returns the next event; None if none is queued.
    pub fn next(&self) -> io::Result<Option<Event>> {
        let mut buffer = vec![0_u8; LARGEST];
        let (len, sender) = loop {
            match recvfrom::<NetlinkAddr>(self.socket.as_raw_fd(), &mut buffer) {
                Ok(received) => break received,
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR) => {}
                Err(Errno::ENOBUFS) => return Ok(Some(Event::Lost)),
                Err(error) => return Err(error.into()),
            }
        };
        // Any process may send to this socket; only the kernel's port is 0.
        let from_kernel = sender.is_some_and(|sender| sender.pid() == 0);
        Ok(Some(if from_kernel {
            parse(&buffer[..len])
        } else {
            Event::Other
        }))
    }
}

impl AsFd for KernelUevents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Parses `action@devpath`, then `KEY=value` entries, all ending with a NUL.
pub fn parse(message: &[u8]) -> Event {
    let mut parts = message
        .split(|byte| *byte == 0)
        .map(String::from_utf8_lossy);
    let head = parts.next().unwrap_or_default().into_owned();
    let values: BTreeMap<String, String> = parts
        .filter_map(|part| {
            part.split_once('=')
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
        })
        .collect();
    let value = |key: &str| values.get(key).cloned().unwrap_or_default();
    match head.split_once('@') {
        Some((action, devpath)) if value("SUBSYSTEM") == "block" => Event::Block(Uevent {
            action: action.to_owned(),
            devpath: devpath.to_owned(),
            devtype: value("DEVTYPE"),
        }),
        _ => Event::Other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_event_of_a_partition_is_understood_and_others_are_left_alone() {
        let text = b"change@/devices/virtual/block/loop0/loop0p1\0ACTION=change\0SUBSYSTEM=block\0DEVTYPE=partition\0";
        assert_eq!(
            parse(text),
            Event::Block(Uevent {
                action: "change".into(),
                devpath: "/devices/virtual/block/loop0/loop0p1".into(),
                devtype: "partition".into()
            })
        );
        assert_eq!(parse(b"add@/devices/x\0SUBSYSTEM=net\0"), Event::Other);
        assert_eq!(parse(b"libudev\0\xfe\xed\xca\xfe"), Event::Other);
        assert_eq!(parse(b""), Event::Other);
    }
}
