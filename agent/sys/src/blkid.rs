//! libblkid: low-level probing of one opened device for superblocks and partition tables.
//!
//! Reads the device itself, never libblkid's cache, /run/blkid or udev's database. A GPT is found without its protective MBR too
//! (`BLKID_PARTS_FORCE_GPT`), and superblocks with a wrong checksum count as found (`BLKID_SUBLKS_BADCSUM`): a damaged filesystem is not
//! emptiness.

use std::{
    ffi::{CStr, c_char, c_int},
    fs::{File, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{FileTypeExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    ptr,
};

use libblkid_rs_sys as ffi;

use drivebay_model::{Signature, Signatures};

/// USAGE of a partition table in `Signature::usage`; libblkid itself gives tables none.
pub const USAGE_TABLE: &str = "partition-table";

/// Signatures that are reported of one device at most: libblkid has about a hundred kinds, and a device with two is refused already.
const MOST: usize = 128;

/// Probing failed. The content of the device is unknown then.
#[derive(Debug, thiserror::Error)]
pub enum BlkidError {
    #[error("cannot open {path} to probe it")]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} is not a block device; nothing was probed")]
    NotBlock { path: PathBuf },
    /// libblkid failed, mostly because of a read error.
    #[error("libblkid failed on {path} ({what}); check the kernel log for read errors")]
    Probe {
        path: PathBuf,
        /// libblkid function that failed.
        what: &'static str,
        #[source]
        source: io::Error,
    },
}

/// Probes a block device by its node, for superblocks and partition tables. Opens it O_RDONLY, since closing a writable descriptor makes
/// udev probe again, and without O_EXCL, so that mounted devices can be probed too.
pub fn probe_device(path: &Path) -> Result<Signatures, BlkidError> {
    let open = |source| BlkidError::Open {
        path: path.to_owned(),
        source,
    };
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(path)
        .map_err(open)?;
    if !file.metadata().map_err(open)?.file_type().is_block_device() {
        return Err(BlkidError::NotBlock {
            path: path.to_owned(),
        });
    }
    probe_file(&file, path)
}

/// Probes an opened device or image file; `path` is for messages only.
pub fn probe_file(file: &File, path: &Path) -> Result<Signatures, BlkidError> {
    probe_from(file, path, 0)
}

/// Probes an opened device or image file from byte `start` on. Offsets in the result count from the beginning of the file.
pub fn probe_from(file: &File, path: &Path, start: u64) -> Result<Signatures, BlkidError> {
    let verdict = Prober::new(file, path, start)?.safe()?;
    let mut signatures = Prober::new(file, path, start)?.walk()?;
    for one in &mut signatures {
        one.offset = one.offset.map(|offset| offset + start);
    }
    Ok(combine(verdict, signatures))
}

/// Result of `blkid_do_safeprobe`: no signature (1), a signature (0), or ambivalent signatures (-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Nothing,
    Found,
    Ambivalent,
}

/// Combines the result of the safe probe with the signatures of a full walk: Empty only if both find nothing, Ambiguous if they disagree or
/// libblkid reports ambivalent signatures.
fn combine(verdict: Verdict, signatures: Vec<Signature>) -> Signatures {
    match (verdict, signatures.is_empty()) {
        (Verdict::Nothing, true) => Signatures::Empty,
        (Verdict::Nothing | Verdict::Found, false) => Signatures::Found(signatures),
        // The safe probe found a signature and the walk found none: the content changes meanwhile, or reads differ.
        (Verdict::Found, true) | (Verdict::Ambivalent, _) => Signatures::Ambiguous(signatures),
    }
}

/// One libblkid probe. The file outlives it, since libblkid does not own the descriptor.
struct Prober<'a> {
    raw: ffi::blkid_probe,
    path: &'a Path,
    _file: &'a File,
}

impl<'a> Prober<'a> {
    fn new(file: &'a File, path: &'a Path, start: u64) -> Result<Self, BlkidError> {
        // SAFETY: no arguments; null is checked below.
        let raw = unsafe { ffi::blkid_new_probe() };
        if raw.is_null() {
            return Err(BlkidError::Probe {
                path: path.to_owned(),
                what: "blkid_new_probe",
                source: io::Error::from(io::ErrorKind::OutOfMemory),
            });
        }
        let prober = Self {
            raw,
            path,
            _file: file,
        };
        let superblocks = ffi::BLKID_SUBLKS_USAGE
            | ffi::BLKID_SUBLKS_MAGIC
            | ffi::BLKID_SUBLKS_TYPE
            | ffi::BLKID_SUBLKS_UUID
            | ffi::BLKID_SUBLKS_LABEL
            | ffi::BLKID_SUBLKS_VERSION
            | ffi::BLKID_SUBLKS_BADCSUM;
        let tables = ffi::BLKID_PARTS_FORCE_GPT | ffi::BLKID_PARTS_MAGIC;
        // SAFETY: `raw` is a live probe; the descriptor stays open while `prober` borrows the file.
        // A size of 0 means up to the end of the device.
        unsafe {
            prober.check("blkid_probe_set_device", || {
                ffi::blkid_probe_set_device(raw, file.as_raw_fd(), start.cast_signed(), 0)
            })?;
            prober.check("blkid_probe_enable_superblocks", || {
                ffi::blkid_probe_enable_superblocks(raw, 1)
            })?;
            prober.check("blkid_probe_set_superblocks_flags", || {
                ffi::blkid_probe_set_superblocks_flags(raw, superblocks as c_int)
            })?;
            prober.check("blkid_probe_enable_partitions", || {
                ffi::blkid_probe_enable_partitions(raw, 1)
            })?;
            prober.check("blkid_probe_set_partitions_flags", || {
                ffi::blkid_probe_set_partitions_flags(raw, tables as c_int)
            })?;
        }
        Ok(prober)
    }

    /// Runs libblkid's safe probe over all kinds, which checks for contradicting signatures.
    fn safe(&self) -> Result<Verdict, BlkidError> {
        clear_errno();
        // SAFETY: `raw` is a live probe with a device.
        match unsafe { ffi::blkid_do_safeprobe(self.raw) } {
            0 => Ok(Verdict::Found),
            1 => Ok(Verdict::Nothing),
            -2 => Ok(Verdict::Ambivalent),
            code => Err(self.failed("blkid_do_safeprobe", code)),
        }
    }

    /// Returns the signatures of all kinds, `MOST` at most.
    fn walk(&self) -> Result<Vec<Signature>, BlkidError> {
        let mut signatures = Vec::new();
        while signatures.len() < MOST {
            clear_errno();
            // SAFETY: `raw` is a live probe with a device; each call continues where the last one ended.
            match unsafe { ffi::blkid_do_probe(self.raw) } {
                0 => signatures.push(self.current()),
                1 => break,
                code => return Err(self.failed("blkid_do_probe", code)),
            }
        }
        Ok(signatures)
    }

    fn current(&self) -> Signature {
        let table = self.value(c"PTTYPE");
        let superblock = self.value(c"TYPE");
        let offset = |name| self.value(name).and_then(|text| text.parse().ok());
        match (superblock, table) {
            (None, Some(kind)) => Signature {
                kind,
                usage: USAGE_TABLE.to_owned(),
                uuid: self.value(c"PTUUID").unwrap_or_default(),
                label: String::new(),
                offset: offset(c"PTMAGIC_OFFSET"),
            },
            (kind, _) => Signature {
                kind: kind.unwrap_or_else(|| "unknown".to_owned()),
                usage: self.value(c"USAGE").unwrap_or_default(),
                uuid: self.value(c"UUID").unwrap_or_default(),
                label: self.value(c"LABEL").unwrap_or_default(),
                offset: offset(c"SBMAGIC_OFFSET"),
            },
        }
    }

    fn value(&self, name: &CStr) -> Option<String> {
        let mut data: *const c_char = ptr::null();
        let mut len = 0_usize;
        // SAFETY: `raw` is live, `name` ends with a zero, both results are written before they are read.
        let code = unsafe {
            ffi::blkid_probe_lookup_value(self.raw, name.as_ptr(), &raw mut data, &raw mut len)
        };
        if code != 0 || data.is_null() {
            return None;
        }
        // SAFETY: libblkid gives `len` readable bytes that live until the next probing call.
        let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) };
        let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        Some(String::from_utf8_lossy(text).into_owned())
    }

    fn check(&self, what: &'static str, call: impl FnOnce() -> c_int) -> Result<(), BlkidError> {
        clear_errno();
        match call() {
            0 => Ok(()),
            code => Err(self.failed(what, code)),
        }
    }

    fn failed(&self, what: &'static str, code: c_int) -> BlkidError {
        let errno = io::Error::last_os_error();
        BlkidError::Probe {
            path: self.path.to_owned(),
            what,
            source: match (errno.raw_os_error(), code) {
                (Some(number), _) if number != 0 => errno,
                // Some libblkid calls return -errno instead of setting it; -1 is only "an error".
                (_, ..-1) => io::Error::from_raw_os_error(-code),
                _ => io::Error::other("no error number was given"),
            },
        }
    }
}

impl Drop for Prober<'_> {
    fn drop(&mut self) {
        // SAFETY: `raw` came from blkid_new_probe and is freed once. The descriptor is not libblkid's.
        unsafe { ffi::blkid_free_probe(self.raw) }
    }
}

/// Sets errno to 0: libblkid does not set it on each failure, and an older value must not be reported as the cause.
fn clear_errno() {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = 0 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

    use super::*;

    fn image(bytes: &[(usize, &[u8])]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut image = vec![0_u8; 8 << 20];
        for (at, data) in bytes {
            image[*at..*at + data.len()].copy_from_slice(data);
        }
        std::fs::write(file.path(), image).unwrap();
        file
    }

    fn probe(file: &tempfile::NamedTempFile) -> Signatures {
        probe_file(file.as_file(), file.path()).unwrap()
    }

    #[test]
    fn zeros_are_empty() {
        assert_eq!(probe(&image(&[])), Signatures::Empty);
    }

    #[test]
    fn a_superblock_is_found_with_its_kind_and_usage() {
        let mut header = b"LUKS\xba\xbe\x00\x01".to_vec();
        header.resize(592, 0);
        let Signatures::Found(signatures) = probe(&image(&[(0, &header)])) else {
            panic!("nothing found")
        };
        assert_eq!(
            (signatures[0].kind.as_str(), signatures[0].usage.as_str()),
            ("crypto_LUKS", "crypto")
        );
        assert_eq!(signatures[0].offset, Some(0));
    }

    #[test]
    fn a_table_and_a_superblock_are_both_reported() {
        // An MBR with one Linux partition, and an ext journal device's superblock behind it.
        let mut entry = [0_u8; 16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&2048_u32.to_le_bytes());
        entry[12..16].copy_from_slice(&4096_u32.to_le_bytes());
        let file = image(&[
            (446, &entry),
            (510, &[0x55, 0xaa]),
            (1024 + 56, &[0x53, 0xef]),
            (1024 + 96, &[8]),
        ]);
        let signatures = match probe(&file) {
            Signatures::Found(signatures) | Signatures::Ambiguous(signatures) => signatures,
            Signatures::Empty => panic!("nothing found"),
        };
        assert!(
            signatures.iter().any(|one| one.kind == "jbd"),
            "{signatures:?}"
        );
        assert!(
            signatures
                .iter()
                .any(|one| one.kind == "dos" && one.usage == USAGE_TABLE),
            "{signatures:?}"
        );
    }

    #[test]
    fn disagreement_between_the_two_probes_is_never_empty() {
        assert_eq!(
            combine(Verdict::Found, Vec::new()),
            Signatures::Ambiguous(Vec::new())
        );
        assert_eq!(
            combine(Verdict::Ambivalent, Vec::new()),
            Signatures::Ambiguous(Vec::new())
        );
        assert_eq!(combine(Verdict::Nothing, Vec::new()), Signatures::Empty);
    }

    #[test]
    fn a_plain_file_is_not_probed_as_a_device() {
        let file = image(&[]);
        assert!(matches!(
            probe_device(file.path()),
            Err(BlkidError::NotBlock { .. })
        ));
        assert!(matches!(
            probe_device(Path::new("/dev/no-such")),
            Err(BlkidError::Open { .. })
        ));
    }
}
