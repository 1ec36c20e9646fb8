//! Suspends and resumes devices and swaps their tables, through a control node that is open already: while a device is suspended, nothing
//! may be opened, started or written to a file, since that may wait for the device.

use std::{fs::File, io};

use super::control::{
    self, DmIoctl, DmStatus, HEAD, NO_FLUSH, SUSPENDED, TABLE_STATUS, open_control, put, send,
    send_table,
};

/// DM_DEV_CREATE.
const CREATE: libc::Ioctl = nix::request_code_readwrite!(0xfd, 3, HEAD) as libc::Ioctl;

/// DM_DEV_SUSPEND: suspends with DM_SUSPEND_FLAG, else resumes.
const SUSPEND: libc::Ioctl = nix::request_code_readwrite!(0xfd, 6, HEAD) as libc::Ioctl;
const TABLE_LOAD: libc::Ioctl = nix::request_code_readwrite!(0xfd, 9, HEAD) as libc::Ioctl;
const TABLE_CLEAR: libc::Ioctl = nix::request_code_readwrite!(0xfd, 10, HEAD) as libc::Ioctl;
/// DM_STATUS_TABLE_FLAG: the table instead of the status.
const TABLE: u32 = 1 << 4;
/// Flags for udev's rules, in the upper half of the cookie that an event carries (libdevmapper.h): no links by name, no scan of the
/// contents, no rules of other programs. A copy of a filesystem would take over the links of its original.
const NO_UDEV_RULES: u32 = (0x01 | 0x02 | 0x04 | 0x08 | 0x20) << 16;
/// DM_BUFFER_FULL_FLAG: the answer is longer than the room for it.
const BUFFER_FULL: u32 = 1 << 8;
/// DM_SKIP_LOCKFS_FLAG: no filesystem is frozen.
const SKIP_LOCKFS: u32 = 1 << 10;
/// Bytes of `struct dm_target_spec`: start (u64), length (u64), status (i32), next (u32), type ([u8; 16]). Its parameters follow as text.
const SPEC: usize = 40;

/// Device-mapper's control node, held open. Every device is addressed by its device-mapper uuid; ENXIO: there is none.
#[derive(Debug)]
pub struct Control(File);

/// A target of a device's table. It begins where the one before it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Length, in sectors of 512 bytes.
    pub sectors: u64,
    /// Name of the target in the kernel, e.g. `snapshot`; at most 15 bytes.
    pub kind: String,
    pub params: String,
}

impl Control {
    pub fn open() -> io::Result<Self> {
        open_control().map(Self)
    }

    /// Returns the status of the device; None if there is none. Waits for no I/O.
    pub fn status(&self, uuid: &str) -> io::Result<Option<DmStatus>> {
        control::status(&self.0, uuid)
    }

    /// Returns the active table of the device.
    ///
    /// # Errors
    /// InvalidData: the table has several targets, or is too long.
    pub fn table(&self, uuid: &str) -> io::Result<Target> {
        let mut arg = DmIoctl::about(uuid, TABLE | NO_FLUSH)?;
        send(&self.0, TABLE_STATUS, &mut arg)?;
        let is_whole = arg.target_count == 1 && arg.flags & BUFFER_FULL == 0;
        let target = is_whole.then(|| parse_target(&arg.answer)).flatten();
        target.ok_or_else(|| {
            let why = "its table is not of one target";
            io::Error::new(io::ErrorKind::InvalidData, why)
        })
    }

    /// Suspends the device: freezes its filesystem, if it has one that can be frozen, writes what is pending, and makes all further I/O
    /// wait. Takes as long as the drive takes for that. Has no effect on a suspended device.
    pub fn suspend(&self, uuid: &str) -> io::Result<()> {
        self.change(SUSPEND, uuid, SUSPENDED)
    }

    /// Resumes the device, with the table that was loaded last if there is one. A device that is not suspended gets that table in the same
    /// call, without waiting for queued I/O and without freezing a filesystem.
    pub fn resume(&self, uuid: &str) -> io::Result<()> {
        self.change(SUSPEND, uuid, NO_FLUSH | SKIP_LOCKFS)
    }

    /// Loads another table for the device, in use from the next `resume` on.
    pub fn load(&self, uuid: &str, targets: &[Target]) -> io::Result<()> {
        let mut arg = DmIoctl::about(uuid, 0)?;
        let mut table = Vec::new();
        let mut start = 0;
        for target in targets {
            put_target(start, target, &mut table)?;
            start += target.sectors;
            arg.target_count += 1;
        }
        send_table(&self.0, TABLE_LOAD, arg, table)
    }

    /// Creates a device with this name and device-mapper uuid, which udevd leaves alone. Returns its status.
    ///
    /// # Errors
    /// EBUSY: the name or the uuid is used.
    pub fn create(&self, name: &str, uuid: &str, targets: &[Target]) -> io::Result<DmStatus> {
        let mut arg = DmIoctl::about(uuid, 0)?;
        put(name, &mut arg.name)?;
        let made = send(&self.0, CREATE, &mut arg).and_then(|()| {
            let mapped = self.load(uuid, targets).and_then(|()| self.begin(uuid));
            mapped.inspect_err(|_| {
                // Nothing can have opened a device without a table in use.
                let _ = control::remove(uuid);
            })
        });
        made?;
        let status = self.status(uuid)?;
        status.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Decrypts another device with the key of a mapped device that is open (target `crypt`), under this name and device-mapper uuid: of
    /// what that device decrypts, it has to be a copy. The key is in no file and in no argument of a program.
    ///
    /// # Errors
    /// EBUSY: the name or the uuid is used. InvalidData: `like` is no device of that kind.
    pub fn map_like(
        &self,
        like: &str,
        over: (u32, u32),
        name: &str,
        uuid: &str,
    ) -> io::Result<DmStatus> {
        let target = moved(&self.table(like)?, over).ok_or_else(|| {
            let why = "it is not a mapped device of an encrypted volume";
            io::Error::new(io::ErrorKind::InvalidData, why)
        })?;
        self.create(name, uuid, &[target])
    }

    /// Resumes a new device, which udevd leaves alone.
    fn begin(&self, uuid: &str) -> io::Result<()> {
        let mut arg = DmIoctl::about(uuid, 0)?;
        arg.event_nr = NO_UDEV_RULES;
        send(&self.0, SUSPEND, &mut arg)
    }

    /// Drops a table that was loaded and is not in use.
    pub fn clear(&self, uuid: &str) -> io::Result<()> {
        self.change(TABLE_CLEAR, uuid, 0)
    }

    fn change(&self, request: libc::Ioctl, uuid: &str, flags: u32) -> io::Result<()> {
        send(&self.0, request, &mut DmIoctl::about(uuid, flags)?)
    }
}

/// Returns a table of target `crypt` over another device; None if it is of another target. Its parameters are cipher, key, offset of the
/// initialisation vector, device, offset on the device, and options.
fn moved(target: &Target, over: (u32, u32)) -> Option<Target> {
    let (major, minor) = over;
    let device = format!("{major}:{minor}");
    let mut words: Vec<&str> = target.params.split_whitespace().collect();
    *words.get_mut(3)? = &device;
    (target.kind == "crypt").then(|| Target {
        sectors: target.sectors,
        kind: target.kind.clone(),
        params: words.join(" "),
    })
}

/// Adds a target's spec and its parameters to a table. `start`: its first sector.
///
/// # Errors
/// InvalidInput: the kernel could not read it.
fn put_target(start: u64, target: &Target, table: &mut Vec<u8>) -> io::Result<()> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    if target.params.contains('\0') {
        return Err(invalid());
    }
    let mut kind = [0; 16];
    put(&target.kind, &mut kind)?;
    // Offset at which another spec begins: behind the NUL that ends the parameters, a multiple of 8.
    let next = (SPEC + target.params.len() + 1).next_multiple_of(8);
    let end = table.len() + next;
    let next = u32::try_from(next).map_err(|_| invalid())?;
    let parts: [&[u8]; 6] = [
        &start.to_ne_bytes(),
        &target.sectors.to_ne_bytes(),
        &0_i32.to_ne_bytes(),
        &next.to_ne_bytes(),
        &kind,
        target.params.as_bytes(),
    ];
    for part in parts {
        table.extend_from_slice(part);
    }
    table.resize(end, 0);
    Ok(())
}

/// Parses one target; None if it does not begin at the device's first sector, or is cut off.
fn parse_target(answer: &[u8]) -> Option<Target> {
    let number = |at: usize| {
        let bytes = answer.get(at..)?.first_chunk::<8>()?;
        Some(u64::from_ne_bytes(*bytes))
    };
    let text = |bytes: &[u8]| {
        let end = bytes.iter().position(|byte| *byte == 0)?;
        String::from_utf8(bytes.get(..end)?.to_vec()).ok()
    };
    let target = Target {
        sectors: number(8)?,
        kind: text(answer.get(24..SPEC)?)?,
        params: text(answer.get(SPEC..)?)?,
    };
    (number(0)? == 0).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Target {
        Target {
            sectors: 2_097_152,
            kind: "snapshot".to_owned(),
            params: "254:5 254:7 P 128".to_owned(),
        }
    }

    #[test]
    fn a_target_is_laid_out_as_the_kernel_reads_it() {
        let mut room = Vec::new();
        put_target(0, &snapshot(), &mut room).unwrap();
        assert_eq!(room[..8], [0; 8], "first sector");
        assert_eq!(room[8..16], 2_097_152_u64.to_ne_bytes());
        assert_eq!(room[16..20], [0; 4], "status");
        // 40 + 17 + 1, at the next multiple of 8.
        assert_eq!(room[20..24], 64_u32.to_ne_bytes());
        assert_eq!(&room[24..40], b"snapshot\0\0\0\0\0\0\0\0");
        assert_eq!(&room[40..], b"254:5 254:7 P 128\0\0\0\0\0\0\0");
        assert_eq!(parse_target(&room), Some(snapshot()));
        put_target(2_097_152, &snapshot(), &mut room).unwrap();
        assert_eq!(room[64..72], 2_097_152_u64.to_ne_bytes());
        assert_eq!(room[72..], room[8..64]);
    }

    #[test]
    fn a_target_without_parameters_has_the_zero_that_ends_them() {
        let error = Target {
            kind: "error".to_owned(),
            params: String::new(),
            ..snapshot()
        };
        let mut room = Vec::new();
        put_target(0, &error, &mut room).unwrap();
        assert_eq!(room[20..24], 48_u32.to_ne_bytes());
        assert_eq!(parse_target(&room), Some(error));
    }

    #[test]
    fn another_device_is_decrypted_with_everything_else_the_same() {
        let open = Target {
            kind: "crypt".to_owned(),
            params: "aes-xts-plain64 c0ffee 0 254:3 32768 2 allow_discards sector_size:4096"
                .to_owned(),
            ..snapshot()
        };
        let copy = moved(&open, (254, 9)).unwrap();
        let params = "aes-xts-plain64 c0ffee 0 254:9 32768 2 allow_discards sector_size:4096";
        assert_eq!((copy.sectors, copy.params.as_str()), (2_097_152, params));
        assert_eq!(moved(&snapshot(), (254, 9)), None);
    }

    #[test]
    fn a_target_that_the_kernel_could_not_read_is_refused() {
        let with = |kind: &str, params: &str| {
            let target = Target {
                kind: kind.to_owned(),
                params: params.to_owned(),
                ..snapshot()
            };
            put_target(0, &target, &mut Vec::new()).is_ok()
        };
        assert!(with("fifteen-letters", &"a".repeat(512)));
        assert!(!with("sixteen--letters", ""));
        assert!(!with("snapshot", "a\0b"));
    }

    #[test]
    fn a_table_that_is_cut_off_or_begins_elsewhere_is_no_target() {
        let mut room = Vec::new();
        put_target(0, &snapshot(), &mut room).unwrap();
        assert_eq!(parse_target(&room[..57]), None, "no zero at its end");
        assert_eq!(parse_target(&room[..20]), None);
        room[..8].copy_from_slice(&8_u64.to_ne_bytes());
        assert_eq!(parse_target(&room), None);
    }

    #[test]
    fn requests_and_flags_are_those_of_the_kernels_header() {
        let numbers =
            [CREATE, SUSPEND, TABLE_LOAD, TABLE_CLEAR, TABLE_STATUS].map(|one| one as u32);
        assert_eq!(
            numbers,
            [
                0xc138_fd03,
                0xc138_fd06,
                0xc138_fd09,
                0xc138_fd0a,
                0xc138_fd0c
            ]
        );
        assert_eq!((SUSPENDED, TABLE, BUFFER_FULL), (0x2, 0x10, 0x100));
        assert_eq!((SKIP_LOCKFS, NO_FLUSH), (0x400, 0x800));
        assert_eq!(std::mem::offset_of!(DmIoctl, target_count), 20);
        assert_eq!(std::mem::offset_of!(DmIoctl, flags), 28);
        assert_eq!(HEAD % 8, 0, "the first target is aligned");
    }

    #[test]
    fn a_request_names_its_device_by_uuid_alone() {
        let arg = DmIoctl::about("LVM-abc", SUSPENDED).unwrap();
        assert_eq!(arg.flags, SUSPENDED);
        assert_eq!((arg.target_count, arg.answer), (0, [0; 512]));
        assert!(DmIoctl::about(&"x".repeat(129), 0).is_err());
    }
}
