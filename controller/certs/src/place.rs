//! Files of certificates and keys: written whole and durably, and never over existing files except by renewal.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

use tempfile::NamedTempFile;

use super::error::CertsError;

const KEY_MODE: u32 = 0o600;
const CERTIFICATE_MODE: u32 = 0o644;

/// A certificate and its key, in PEM form.
pub(super) struct Leaf {
    pub(super) certificate: String,
    pub(super) key: String,
    pub(super) until: SystemTime,
    /// True if the validity was shortened to the end of its CA's.
    pub(super) shortened: bool,
}

/// Paths of a certificate and its key.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

impl Pair {
    /// Returns the paths of the CA in its directory.
    pub(super) fn ca(dir: &Path) -> Self {
        Self::named(dir, "ca")
    }

    /// Returns the paths of the controller's files in the CA's directory.
    pub(super) fn controller(dir: &Path) -> Self {
        Self::named(dir, "controller")
    }

    /// Returns the paths of a node's files in that node's directory.
    pub(super) fn node(dir: &Path) -> Self {
        Self::named(dir, "node")
    }

    fn named(dir: &Path, stem: &str) -> Self {
        Self {
            certificate: dir.join(format!("{stem}.pem")),
            key: dir.join(format!("{stem}-key.pem")),
        }
    }

    /// Returns `refusal` if both files exist, and [`CertsError::HalfAPair`] if one does.
    pub(super) fn refuse_if_there(
        &self,
        refusal: impl Fn(PathBuf) -> CertsError,
    ) -> Result<(), CertsError> {
        let (certificate, key) = (self.certificate.clone(), self.key.clone());
        match (exists(&certificate)?, exists(&key)?) {
            (false, false) => Ok(()),
            (true, true) => Err(refusal(certificate)),
            (true, false) => Err(CertsError::HalfAPair {
                there: certificate,
                missing: key,
            }),
            (false, true) => Err(CertsError::HalfAPair {
                there: key,
                missing: certificate,
            }),
        }
    }

    /// Checks whether [`Self::write`] would be refused: without `renew` neither file may exist, with it at least one must.
    pub(super) fn check(&self, renew: bool) -> Result<(), CertsError> {
        if !renew {
            return self.refuse_if_there(CertsError::needs_renew);
        }
        if exists(&self.certificate)? || exists(&self.key)? {
            return Ok(());
        }
        Err(CertsError::NothingToRenew {
            path: self.certificate.clone(),
        })
    }

    pub(super) fn write(&self, leaf: &Leaf, renew: bool) -> Result<(), CertsError> {
        if renew {
            self.replace(leaf)
        } else {
            self.create(leaf)
        }
    }

    /// Creates both files. Fails if either exists, also if it was created since it was checked.
    pub(super) fn create(&self, leaf: &Leaf) -> Result<(), CertsError> {
        let (key, certificate) = self.prepare(leaf)?;
        // The key is first: of two concurrent runs, only one gets past it.
        create(key, &self.key)?;
        create(certificate, &self.certificate)
    }

    /// Replaces both files. In between, the new key is next to the former certificate. A running process treats such a mismatched pair as
    /// files that are being replaced, and keeps the loaded ones. After a crash there, the same command makes both again.
    fn replace(&self, leaf: &Leaf) -> Result<(), CertsError> {
        let (key, certificate) = self.prepare(leaf)?;
        replace(key, &self.key)?;
        replace(certificate, &self.certificate)
    }

    // Both are synced to disk before either is renamed, so that only the renames can be interrupted.
    fn prepare(&self, leaf: &Leaf) -> Result<(NamedTempFile, NamedTempFile), CertsError> {
        Ok((
            prepare(&self.key, leaf.key.as_bytes(), KEY_MODE)?,
            prepare(
                &self.certificate,
                leaf.certificate.as_bytes(),
                CERTIFICATE_MODE,
            )?,
        ))
    }
}

/// Creates or replaces a file, durably. A key's mode is 0600, a certificate's 0644.
pub(super) fn put(path: &Path, bytes: &[u8], is_key: bool) -> Result<(), CertsError> {
    let mode = if is_key { KEY_MODE } else { CERTIFICATE_MODE };
    replace(prepare(path, bytes, mode)?, path)
}

/// Creates a certificate's file. Fails if it exists.
pub(super) fn create_certificate(path: &Path, pem: &[u8]) -> Result<(), CertsError> {
    create(prepare(path, pem, CERTIFICATE_MODE)?, path)
}

/// True if a file of any type exists at this path, including a dangling symlink.
pub(super) fn exists(path: &Path) -> Result<bool, CertsError> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(CertsError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

/// Creates a directory and its missing parents with mode 0700. An existing one is not changed; if its group or
/// others can write to it, returns a warning for the operator, else an empty string.
pub(super) fn private_dir(dir: &Path) -> Result<String, CertsError> {
    make_dir(dir).map_err(|source| CertsError::Write {
        path: dir.to_owned(),
        source,
    })?;
    let mode = fs::metadata(dir)
        .map_err(|source| CertsError::Read {
            path: dir.to_owned(),
            source,
        })?
        .mode();
    Ok(if mode & 0o022 == 0 {
        String::new()
    } else {
        format!(
            "warning: others can write in {} (mode {:o}) and exchange what is in it; chmod 700 it\n",
            dir.display(),
            mode & 0o7777
        )
    })
}

fn make_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let parent = parent(dir);
    if parent != dir {
        make_dir(parent)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
        made => made?,
    }
    sync_dir(parent)
}

fn prepare(target: &Path, bytes: &[u8], mode: u32) -> Result<NamedTempFile, CertsError> {
    let prepared = (|| {
        let mut file = tempfile::Builder::new()
            .prefix(".drivebay-")
            .suffix(".tmp")
            .permissions(fs::Permissions::from_mode(mode))
            .tempfile_in(parent(target))?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        Ok(file)
    })();
    prepared.map_err(|source| CertsError::Write {
        path: target.to_owned(),
        source,
    })
}

fn create(file: NamedTempFile, target: &Path) -> Result<(), CertsError> {
    match file.persist_noclobber(target) {
        Ok(_) => synced(target),
        Err(refused) if refused.error.kind() == io::ErrorKind::AlreadyExists => {
            Err(CertsError::Exists {
                path: target.to_owned(),
                instead: "another process has just created it; check what it is",
            })
        }
        Err(failed) => Err(CertsError::Write {
            path: target.to_owned(),
            source: failed.error,
        }),
    }
}

fn replace(file: NamedTempFile, target: &Path) -> Result<(), CertsError> {
    file.persist(target).map_err(|failed| CertsError::Write {
        path: target.to_owned(),
        source: failed.error,
    })?;
    synced(target)
}

fn synced(target: &Path) -> Result<(), CertsError> {
    sync_dir(parent(target)).map_err(|source| CertsError::Write {
        path: target.to_owned(),
        source,
    })
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    fs::File::open(dir)?.sync_all()
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {

    use super::*;

    fn leaf(text: &str) -> Leaf {
        Leaf {
            certificate: format!("certificate {text}"),
            key: format!("key {text}"),
            until: SystemTime::UNIX_EPOCH,
            shortened: false,
        }
    }

    #[test]
    fn what_appeared_since_the_check_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let pair = Pair::node(dir.path());
        pair.check(false).unwrap();
        pair.create(&leaf("1")).unwrap();
        let error = pair.create(&leaf("2")).unwrap_err();
        assert!(matches!(error, CertsError::Exists { .. }), "{error}");
        assert_eq!(fs::read_to_string(&pair.key).unwrap(), "key 1");
        let certificate = fs::read_to_string(&pair.certificate).unwrap();
        assert_eq!(certificate, "certificate 1");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "no litter");
    }

    #[test]
    fn a_renewed_key_is_private_even_if_the_former_one_was_not() {
        let dir = tempfile::tempdir().unwrap();
        let pair = Pair::node(dir.path());
        pair.create(&leaf("1")).unwrap();
        fs::set_permissions(&pair.key, fs::Permissions::from_mode(0o644)).unwrap();
        pair.replace(&leaf("2")).unwrap();
        let mode = fs::metadata(&pair.key).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&pair.key).unwrap(), "key 2");
    }

    #[test]
    fn a_directory_that_others_can_write_in_is_warned_of() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(private_dir(dir.path()).unwrap(), "");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o770)).unwrap();
        assert!(private_dir(dir.path()).unwrap().contains("chmod 700"));
    }
}
