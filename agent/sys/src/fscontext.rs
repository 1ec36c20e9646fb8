//! A filesystem context (fsopen(2), fsconfig(2); Linux 5.2): options are set one by one before the superblock exists.

use std::{
    ffi::{CStr, CString},
    fs::File,
    io::{self, Read},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

/// From linux/mount.h, as are the next four.
const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;
const FSCONFIG_SET_FLAG: libc::c_uint = 0;
const FSCONFIG_SET_STRING: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
/// Messages that are read from one context at most; the kernel keeps eight.
const MESSAGES: usize = 16;

/// A filesystem context. Its superblock lives as long.
#[derive(Debug)]
pub struct FsContext(File);

impl FsContext {
    /// Opens a context, which loads the filesystem's module.
    pub fn open(fs_type: &str) -> io::Result<Self> {
        let fs_type = text(fs_type)?;
        // SAFETY: a NUL-terminated string that outlives the call; the result is a new descriptor.
        let fd = unsafe { libc::syscall(libc::SYS_fsopen, fs_type.as_ptr(), FSOPEN_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just returned this descriptor, and it is owned only here.
        Ok(Self(unsafe { File::from_raw_fd(fd as libc::c_int) }))
    }

    /// Sets an option: `key`, or `key=value`.
    pub fn set(&self, key: &str, value: Option<&str>) -> io::Result<()> {
        let key = text(key)?;
        match value {
            None => self.configure(FSCONFIG_SET_FLAG, Some(&key), None),
            Some(value) => self.configure(FSCONFIG_SET_STRING, Some(&key), Some(&text(value)?)),
        }
    }

    /// Creates the superblock, which opens the device and replays its log.
    pub fn create(&self) -> io::Result<()> {
        self.configure(FSCONFIG_CMD_CREATE, None, None)
    }

    /// Mounts the created superblock read-only, at no path. The mount ends with the returned descriptor and those opened below it. Programs,
    /// device nodes and setuid bits have no effect in it, and access times are not updated.
    pub fn mount_read_only(&self) -> io::Result<OwnedFd> {
        let attributes = libc::MOUNT_ATTR_RDONLY
            | libc::MOUNT_ATTR_NOSUID
            | libc::MOUNT_ATTR_NODEV
            | libc::MOUNT_ATTR_NOEXEC
            | libc::MOUNT_ATTR_NOATIME;
        // SAFETY: the descriptor is open; the other arguments are flags.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_fsmount,
                self.0.as_raw_fd(),
                FSMOUNT_CLOEXEC,
                attributes as libc::c_uint,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just returned this descriptor, and it is owned only here.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
    }

    fn configure(
        &self,
        command: libc::c_uint,
        key: Option<&CStr>,
        value: Option<&CStr>,
    ) -> io::Result<()> {
        let pointer = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
        // SAFETY: key and value are NUL-terminated strings that outlive the call, or null where the command takes none.
        let result = unsafe {
            libc::syscall(
                libc::SYS_fsconfig,
                self.0.as_raw_fd(),
                command,
                pointer(key),
                pointer(value),
                0,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Returns the errors that the kernel logged for this context since the last call, without warnings.
    pub fn errors(&self) -> Vec<String> {
        let mut errors = Vec::new();
        let mut buffer = [0; 1024];
        for _ in 0..MESSAGES {
            // One message a read; ENODATA after the last.
            let Ok(length) = (&self.0).read(&mut buffer) else {
                break;
            };
            let message = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default());
            errors.extend(message.strip_prefix("e ").map(|it| it.trim().to_owned()));
        }
        errors
    }
}

fn text(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}
