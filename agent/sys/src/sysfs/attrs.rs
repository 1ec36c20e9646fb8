//! Reads sysfs attributes, and distinguishes missing and unreadable ones from errors.

use std::{
    fmt,
    fs::File,
    io::{self, ErrorKind},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
};

use nix::{
    dir::Dir,
    errno::Errno,
    fcntl::{AtFlags, OFlag, openat},
    sys::stat::{Mode, fstatat},
};

use crate::attribute;

/// A directory of sysfs.
#[derive(Debug, Clone)]
pub struct Node {
    path: PathBuf,
    /// A parent directory that is open, and the path from it to this one. The kernel checks each directory on the way to a file, and from
    /// the root to a partition's are a dozen with the links: most of the time that reading its attributes takes.
    open: Option<(Arc<OwnedFd>, PathBuf)>,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

impl Node {
    pub fn at(path: PathBuf) -> Self {
        Self { path, open: None }
    }

    /// Opens a directory once for all reads in and below it, which therefore concern the same device.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let dir = nix::fcntl::open(&path, flags, Mode::empty())?;
        Ok(Self {
            path,
            open: Some((Arc::new(dir), PathBuf::new())),
        })
    }

    pub fn child(&self, name: &str) -> Self {
        let open = self.open.as_ref();
        Self {
            path: self.path.join(name),
            open: open.map(|(dir, way)| (Arc::clone(dir), way.join(name))),
        }
    }

    /// Returns the directory that a link in this one refers to.
    pub fn resolved(&self, link: &str) -> io::Result<Self> {
        Ok(Self::at(self.path.join(link).canonicalize()?))
    }

    pub fn parent(&self) -> Self {
        Self::at(self.path.parent().unwrap_or(&self.path).to_owned())
    }

    /// Returns the last component of the path.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the names in the directory, without hidden ones.
    pub fn list(&self) -> io::Result<Vec<String>> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let dir = match &self.open {
            Some((dir, way)) if way.as_os_str().is_empty() => {
                Dir::openat(dir, ".", flags, Mode::empty())
            }
            Some((dir, way)) => Dir::openat(dir, way, flags, Mode::empty()),
            None => Dir::open(&self.path, flags, Mode::empty()),
        };
        let named = |error: Errno| {
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("cannot list {self}: {error}"))
        };
        let mut names = Vec::new();
        for entry in dir.map_err(named)?.iter() {
            let entry = entry.map_err(named)?;
            let name = entry.file_name().to_string_lossy();
            if !name.starts_with('.') {
                names.push(name.into_owned());
            }
        }
        Ok(names)
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let Some((dir, way)) = &self.open else {
            return attribute::read(&self.path.join(name));
        };
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let file = openat(dir, &way.join(name), flags, Mode::empty())?;
        attribute::read_open(File::from(file))
    }

    /// Reads an attribute as trimmed text, and returns every error: unlike `text`, which treats several of them as a missing attribute.
    pub fn strictly(&self, name: &str) -> io::Result<String> {
        let bytes = self.read(name)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Reads an optional attribute; None if the device does not have it or gives no value.
    pub fn bytes(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        match self.read(name) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(io::Error::new(
                error.kind(),
                format!("cannot read {name} of {self}: {error}"),
            )),
        }
    }

    /// Reads an optional attribute as trimmed text; None if it is missing or empty.
    pub fn text(&self, name: &str) -> io::Result<Option<String>> {
        Ok(self.bytes(name)?.and_then(|bytes| {
            let text = String::from_utf8_lossy(&bytes)
                .trim_matches(|c: char| c.is_whitespace() || c == '\0')
                .to_owned();
            (!text.is_empty()).then_some(text)
        }))
    }

    /// Reads an attribute that every such device has; NotFound if it is missing or empty.
    pub fn required(&self, name: &str) -> io::Result<String> {
        self.text(name)?
            .ok_or_else(|| io::Error::new(ErrorKind::NotFound, format!("{self} has no {name}")))
    }

    pub fn number(&self, name: &str) -> io::Result<Option<u64>> {
        self.text(name)?
            .map(|text| self.parse(name, &text))
            .transpose()
    }

    pub fn required_number(&self, name: &str) -> io::Result<u64> {
        self.parse(name, &self.required(name)?)
    }

    /// Reads an optional 0/1 attribute; false if it is missing (in older kernels).
    pub fn flag(&self, name: &str) -> io::Result<bool> {
        Ok(self.number(name)?.is_some_and(|value| value != 0))
    }

    pub fn required_flag(&self, name: &str) -> io::Result<bool> {
        Ok(self.required_number(name)? != 0)
    }

    pub fn exists(&self, name: &str) -> io::Result<bool> {
        let Some((dir, way)) = &self.open else {
            return self.path.join(name).try_exists();
        };
        match fstatat(dir, &way.join(name), AtFlags::empty()) {
            Ok(_) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn parse(&self, name: &str, text: &str) -> io::Result<u64> {
        text.parse().map_err(|_| {
            io::Error::new(
                ErrorKind::InvalidData,
                format!("{name} of {self} is {text:?}, not a number"),
            )
        })
    }
}

/// True if this read error means that the device has no such attribute. Drivers return ENODEV, ENXIO, EINVAL or EOPNOTSUPP for one that a
/// device lacks; ENOTDIR: a part of the path is no directory.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ENOENT
                | libc::ENOTDIR
                | libc::ENODEV
                | libc::ENXIO
                | libc::EINVAL
                | libc::EOPNOTSUPP
                | libc::EIO
                | libc::EISDIR
        )
    )
}
