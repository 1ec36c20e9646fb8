//! Reading sysfs attributes: what is missing, what is unreadable, and what is an error.

use std::{
    fmt, fs,
    io::{self, ErrorKind},
    path::PathBuf,
};

use crate::sys::attribute;

/// A directory of sysfs.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    path: PathBuf,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

impl Node {
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    pub(crate) fn child(&self, name: &str) -> Self {
        Self::at(self.path.join(name))
    }

    /// Names in it, hidden ones left out.
    pub(crate) fn list(&self) -> io::Result<Vec<String>> {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("cannot list {self}: {error}"));
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(named)? {
            let name = entry
                .map_err(named)?
                .file_name()
                .to_string_lossy()
                .into_owned();
            if !name.starts_with('.') {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Raw bytes of an optional attribute: None when the device does not have it or has nothing to say.
    pub(crate) fn bytes(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        match attribute::read(&self.path.join(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(io::Error::new(
                error.kind(),
                format!("cannot read {name} of {self}: {error}"),
            )),
        }
    }

    /// Trimmed text of an optional attribute; an empty one is None.
    pub(crate) fn text(&self, name: &str) -> io::Result<Option<String>> {
        Ok(self.bytes(name)?.and_then(|bytes| {
            let text = String::from_utf8_lossy(&bytes)
                .trim_matches(|c: char| c.is_whitespace() || c == '\0')
                .to_owned();
            (!text.is_empty()).then_some(text)
        }))
    }

    /// Text of an attribute that every such device has.
    pub(crate) fn required(&self, name: &str) -> io::Result<String> {
        self.text(name)?
            .ok_or_else(|| io::Error::new(ErrorKind::NotFound, format!("{self} has no {name}")))
    }

    pub(crate) fn number(&self, name: &str) -> io::Result<Option<u64>> {
        self.text(name)?
            .map(|text| self.parse(name, &text))
            .transpose()
    }

    pub(crate) fn required_number(&self, name: &str) -> io::Result<u64> {
        self.parse(name, &self.required(name)?)
    }

    /// An optional 0/1 attribute; false when it is missing (the kernel is older than it).
    pub(crate) fn flag(&self, name: &str) -> io::Result<bool> {
        Ok(self.number(name)?.is_some_and(|value| value != 0))
    }

    pub(crate) fn required_flag(&self, name: &str) -> io::Result<bool> {
        Ok(self.required_number(name)? != 0)
    }

    pub(crate) fn exists(&self, name: &str) -> io::Result<bool> {
        self.path.join(name).try_exists()
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

/// Whether this read error means that the device has no such attribute. A driver answers ENODEV, ENXIO,
/// EINVAL or EOPNOTSUPP for one that its device lacks; ENOTDIR is a path through something else.
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
