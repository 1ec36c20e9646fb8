//! statmount(2) and listmount(2): query single mounts, by ids that are never reused.
//!
//! Used only if the kernel reports support for every field of a mountinfo row (Linux 6.15). On other kernels, and where a system call
//! filter forbids these calls, mountinfo is read.

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

/// Unique id of a mount, never reused.
pub(super) type UniqueId = u64;

/// A mount, and the unique id of the mount that it is on.
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
/// Fields of a mountinfo row.
const ROW: u64 = SB_BASIC
    | MNT_BASIC
    | PROPAGATE_FROM
    | MNT_ROOT
    | MNT_POINT
    | FS_TYPE
    | MNT_OPTS
    | FS_SUBTYPE
    | SB_SOURCE;
/// Fields that every mount has; the others are strings, omitted if empty, and fields that private mounts lack.
const ALWAYS: u64 = SB_BASIC | MNT_BASIC | MNT_ROOT | MNT_POINT | FS_TYPE;
/// Flags of name_to_handle_at(2): return the unique id; accept any filesystem, also one that cannot be exported.
const AT_HANDLE_MNT_ID_UNIQUE: libc::c_int = 0x1;
const AT_HANDLE_FID: libc::c_int = 0x200;

/// Offset of the strings in `struct statmount`.
const STRINGS: usize = 512;
/// Initial buffer size, and the largest one that is tried when the strings do not fit.
const ROOM: usize = STRINGS + 4096;
const MOST_ROOM: usize = 1 << 20;
/// Ids that one call returns at most.
const IDS: usize = 4096;

/// `struct mnt_id_req`, the argument of listmount(2) and statmount(2).
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

/// True if the kernel returns every field of a mountinfo row for a single mount. Checked once.
pub fn is_supported() -> bool {
    static SUPPORTED: OnceLock<bool> = OnceLock::new();
    *SUPPORTED.get_or_init(|| {
        let supported = mount_of(Path::new("/")).and_then(|id| {
            let answer = query(id, SUPPORTED_MASK)?;
            Ok(answer.u64(144))
        });
        supported.is_ok_and(|supported| supported & ROW == ROW)
    })
}

/// Returns the ids of all mounts of the namespace below the process's root, ascending.
pub(super) fn list() -> io::Result<Vec<UniqueId>> {
    let mut all = Vec::new();
    let mut ids = vec![0_u64; IDS];
    loop {
        let request = MountIdRequest::new(LSMT_ROOT, all.last().copied().unwrap_or(0));
        // SAFETY: the kernel reads a request of the size that it states, and writes at most as many ids as the buffer holds.
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

/// Returns one mount; NotFound if it is gone.
pub(super) fn stat(id: UniqueId) -> io::Result<Stated> {
    let answer = query(id, ROW)?;
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

/// Returns the mount that contains a path; a symbolic link in its last component is not followed. Filesystems use cached data only: a
/// handle needs an inode's number.
pub(super) fn mount_of(path: &Path) -> io::Result<UniqueId> {
    let path = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    id_of(libc::AT_FDCWD, &path, 0)
}

/// Returns the mount that contains an open file.
pub(super) fn mount_of_file(file: BorrowedFd<'_>) -> io::Result<UniqueId> {
    id_of(file.as_raw_fd(), c"", libc::AT_EMPTY_PATH)
}

fn id_of(dir: RawFd, path: &CStr, flags: libc::c_int) -> io::Result<UniqueId> {
    // struct file_handle with size 0: the kernel refuses the handle, but returns the mount.
    let mut handle = [0_u32; 2];
    let mut id: UniqueId = 0;
    // SAFETY: the path is NUL-terminated; the handle states size 0; with UNIQUE the id has 64 bits.
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

fn query(id: UniqueId, mask: u64) -> io::Result<Answer> {
    let request = MountIdRequest::new(id, mask);
    let mut room = ROOM;
    loop {
        let mut bytes = vec![0_u8; room];
        // SAFETY: the kernel reads a request of the size that it states, and writes at most the given buffer size.
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

/// struct statmount. Numbers passed to its methods are offsets of fields.
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

    /// Returns the string of this field; empty if there is none.
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

/// Returns a mount's own options, in the words and order of mountinfo.
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

/// Returns a superblock's options: its flags first, then those of the filesystem.
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
        // The only string with mountinfo's escapes.
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
