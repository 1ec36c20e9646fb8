//! statmount(2) and listmount(2): one mount at a time, by ids that are never used again.
//!
//! Only on a kernel that says of itself that it fills every field that a row of mountinfo has (Linux 6.15). On any other
//! one, and where a filter of system calls forbids these, mountinfo is read.

use std::{
    ffi::{CStr, CString, OsString},
    io,
    os::{
        fd::{AsRawFd, BorrowedFd, RawFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Path, PathBuf},
    sync::OnceLock,
};

use super::{MountEntry, unescape};

/// A mount's id of its own: no later mount has it.
pub(super) type UniqueId = u64;

/// One mount, and the id of its own of the one that it sits on.
pub(super) struct Stated {
    pub(super) entry: MountEntry,
    pub(super) parent: UniqueId,
}

// linux/mount.h; libc has them for one architecture. The numbers are the same on all but alpha.
const SYS_STATMOUNT: libc::c_long = 457;
const SYS_LISTMOUNT: libc::c_long = 458;
const LSMT_ROOT: u64 = u64::MAX;
const SB_BASIC: u64 = 0x1;
const MNT_BASIC: u64 = 0x2;
const PROPAGATE_FROM: u64 = 0x4;
const MNT_ROOT: u64 = 0x8;
const MNT_POINT: u64 = 0x10;
const FS_TYPE: u64 = 0x20;
const MNT_OPTS: u64 = 0x80;
const FS_SUBTYPE: u64 = 0x100;
const SB_SOURCE: u64 = 0x200;
const SUPPORTED_MASK: u64 = 0x1000;
/// What a row of mountinfo is made of.
const ROW: u64 = SB_BASIC
    | MNT_BASIC
    | PROPAGATE_FROM
    | MNT_ROOT
    | MNT_POINT
    | FS_TYPE
    | MNT_OPTS
    | FS_SUBTYPE
    | SB_SOURCE;
/// What every mount has; the others are strings, left out where they are empty, and what private mounts lack.
const ALWAYS: u64 = SB_BASIC | MNT_BASIC | MNT_ROOT | MNT_POINT | FS_TYPE;
/// name_to_handle_at(2): an id of its own; any filesystem, also one that cannot be exported.
const AT_HANDLE_MNT_ID_UNIQUE: libc::c_int = 0x1;
const AT_HANDLE_FID: libc::c_int = 0x200;

/// Where the strings begin.
const STRINGS: usize = 512;
/// Strings of more bytes are asked for again with more room, up to the second.
const ROOM: usize = STRINGS + 4096;
const MOST_ROOM: usize = 1 << 20;
/// Ids in one call.
const IDS: usize = 4096;

/// struct mnt_id_req.
#[repr(C)]
struct MountIdRequest {
    size: u32,
    spare: u32,
    id: UniqueId,
    param: u64,
}

impl MountIdRequest {
    fn new(id: UniqueId, param: u64) -> Self {
        Self {
            size: size_of::<Self>() as u32,
            spare: 0,
            id,
            param,
        }
    }
}

/// Whether the kernel tells a row's every field of one mount.
pub fn is_supported() -> bool {
    static SUPPORTED: OnceLock<bool> = OnceLock::new();
    *SUPPORTED.get_or_init(|| {
        let supported = mount_of(Path::new("/")).and_then(|id| {
            let answer = ask(id, SUPPORTED_MASK)?;
            Ok(answer.u64(144))
        });
        supported.is_ok_and(|supported| supported & ROW == ROW)
    })
}

/// The ids of all mounts of the namespace that the process's root reaches, ascending.
pub(super) fn list() -> io::Result<Vec<UniqueId>> {
    let mut all = Vec::new();
    let mut ids = vec![0_u64; IDS];
    loop {
        let request = MountIdRequest::new(LSMT_ROOT, all.last().copied().unwrap_or(0));
        // SAFETY: the kernel reads a request of the size that it says, and writes at most as many ids as there is room for.
        let got = unsafe {
            libc::syscall(
                SYS_LISTMOUNT,
                &raw const request,
                ids.as_mut_ptr(),
                ids.len(),
                0,
            )
        };
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        all.extend_from_slice(&ids[..got]);
        if got < ids.len() {
            return Ok(all);
        }
    }
}

/// One mount; an error of the kind NotFound when it is gone.
pub(super) fn stat(id: UniqueId) -> io::Result<Stated> {
    let answer = ask(id, ROW)?;
    if answer.mask() & ALWAYS != ALWAYS {
        return Err(io::Error::other("statmount left out what every mount has"));
    }
    let fs_type = lossy(answer.string(FS_TYPE, 36));
    let subtype = lossy(answer.string(FS_SUBTYPE, 120));
    Ok(Stated {
        parent: answer.u64(48),
        entry: MountEntry {
            id: u64::from(answer.u32(56)),
            parent: u64::from(answer.u32(60)),
            dev: (answer.u32(16), answer.u32(20)),
            root: path(answer.string(MNT_ROOT, 104)),
            mount_point: path(answer.string(MNT_POINT, 108)),
            options: options(answer.u64(64)),
            propagation: propagation(&answer),
            fs_type: match subtype.is_empty() {
                true => fs_type,
                false => format!("{fs_type}.{subtype}"),
            },
            source: path(answer.string(SB_SOURCE, 124)),
            super_options: super_options(answer.u32(32), answer.string(MNT_OPTS, 4)),
        },
    })
}

/// The mount that a path lies on; a symbolic link in its last component is not followed. No filesystem is asked for
/// anything that it does not hold in memory: for a handle it gives an inode's number.
pub(super) fn mount_of(path: &Path) -> io::Result<UniqueId> {
    let path = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    id_of(libc::AT_FDCWD, &path, 0)
}

/// The mount that an open file lies on.
pub(super) fn mount_of_file(file: BorrowedFd<'_>) -> io::Result<UniqueId> {
    id_of(file.as_raw_fd(), c"", libc::AT_EMPTY_PATH)
}

fn id_of(dir: RawFd, path: &CStr, flags: libc::c_int) -> io::Result<UniqueId> {
    // struct file_handle without room for a handle, which the kernel refuses after it has told the mount.
    let mut handle = [0_u32; 2];
    let mut id: UniqueId = 0;
    // SAFETY: the path is NUL-terminated; the handle says that it has no room; with UNIQUE the id has 64 bits.
    let result = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            dir,
            path.as_ptr(),
            handle.as_mut_ptr(),
            &raw mut id,
            AT_HANDLE_MNT_ID_UNIQUE | AT_HANDLE_FID | flags,
        )
    };
    let error = io::Error::last_os_error();
    match result {
        0 => Ok(id),
        _ if error.raw_os_error() == Some(libc::EOVERFLOW) && id != 0 => Ok(id),
        _ => Err(error),
    }
}

fn ask(id: UniqueId, mask: u64) -> io::Result<Answer> {
    let request = MountIdRequest::new(id, mask);
    let mut room = ROOM;
    loop {
        let mut bytes = vec![0_u8; room];
        // SAFETY: the kernel reads a request of the size that it says, and writes no more than the room that it is told.
        let result = unsafe {
            libc::syscall(
                SYS_STATMOUNT,
                &raw const request,
                bytes.as_mut_ptr(),
                bytes.len(),
                0,
            )
        };
        if result == 0 {
            return Ok(Answer(bytes));
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EOVERFLOW) || room >= MOST_ROOM {
            return Err(error);
        }
        room *= 8;
    }
}

/// struct statmount. The numbers are its fields' offsets.
struct Answer(Vec<u8>);

impl Answer {
    fn field<const N: usize>(&self, offset: usize) -> [u8; N] {
        let bytes = self.0.get(offset..offset + N);
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .unwrap_or([0; N])
    }

    fn u32(&self, offset: usize) -> u32 {
        u32::from_ne_bytes(self.field(offset))
    }

    fn u64(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(self.field(offset))
    }

    fn mask(&self) -> u64 {
        self.u64(8)
    }

    /// The string that this field places; empty when there is none.
    fn string(&self, bit: u64, offset: usize) -> &[u8] {
        if self.mask() & bit == 0 {
            return &[];
        }
        let begin = STRINGS + self.u32(offset) as usize;
        let rest = self.0.get(begin..).unwrap_or_default();
        let end = rest.iter().position(|&byte| byte == 0);
        &rest[..end.unwrap_or(rest.len())]
    }
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A mount's own options, in the words and the order of mountinfo.
fn options(attributes: u64) -> String {
    const ATIME: u64 = 0x70;
    let is = |bit: u64| attributes & bit != 0;
    let atime = attributes & ATIME;
    let words = [
        (is(libc::MOUNT_ATTR_NOSUID), ",nosuid"),
        (is(libc::MOUNT_ATTR_NODEV), ",nodev"),
        (is(libc::MOUNT_ATTR_NOEXEC), ",noexec"),
        (atime == libc::MOUNT_ATTR_NOATIME, ",noatime"),
        (is(libc::MOUNT_ATTR_NODIRATIME), ",nodiratime"),
        (atime == libc::MOUNT_ATTR_RELATIME, ",relatime"),
        (is(libc::MOUNT_ATTR_NOSYMFOLLOW), ",nosymfollow"),
        (is(libc::MOUNT_ATTR_IDMAP), ",idmapped"),
    ];
    let first = if is(libc::MOUNT_ATTR_RDONLY) {
        "ro"
    } else {
        "rw"
    };
    join(first, &words)
}

/// A superblock's options: its flags first, then what the filesystem shows.
fn super_options(flags: u32, shown: &[u8]) -> String {
    let is = |bit: libc::c_ulong| libc::c_ulong::from(flags) & bit != 0;
    let words = [
        (is(libc::MS_SYNCHRONOUS), ",sync"),
        (is(libc::MS_DIRSYNC), ",dirsync"),
        (is(libc::MS_LAZYTIME), ",lazytime"),
    ];
    let mut all = join(if is(libc::MS_RDONLY) { "ro" } else { "rw" }, &words);
    if !shown.is_empty() {
        all.push(',');
        // The only string that comes with mountinfo's escapes.
        all.push_str(&lossy(&unescape(shown)));
    }
    all
}

fn join(first: &str, words: &[(bool, &str)]) -> String {
    let rest = words.iter().filter(|(is, _)| *is).map(|(_, word)| *word);
    std::iter::once(first).chain(rest).collect()
}

fn propagation(answer: &Answer) -> Vec<String> {
    let flags = answer.u64(72);
    let is = |bit: libc::c_ulong| flags & bit != 0;
    let (group, master, from) = (answer.u64(80), answer.u64(88), answer.u64(96));
    let mut fields = Vec::new();
    if is(libc::MS_SHARED) {
        fields.push(format!("shared:{group}"));
    }
    if is(libc::MS_SLAVE) {
        fields.push(format!("master:{master}"));
        if from != 0 && from != master {
            fields.push(format!("propagate_from:{from}"));
        }
    }
    if is(libc::MS_UNBINDABLE) {
        fields.push("unbindable".to_owned());
    }
    fields
}
