//! The three PEM files: read whole, bounded in size and time, never half-parsed.

use std::{
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use rustls::pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject},
};
use tokio::io::AsyncReadExt;

use super::error::TlsError;

/// More than any chain or bundle that is meant: a certificate has some 1 to 4 KiB.
pub(super) const MAX_BYTES: u64 = 1 << 20;
/// The files are small and near; whatever takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(10);

/// Where certificates and key are, each in PEM form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The CA certificates that are trusted: one, or several while one CA follows another.
    pub ca: PathBuf,
    /// The own certificate, followed by intermediate ones if the CA did not sign it itself.
    pub cert: PathBuf,
    /// The own certificate's private key; nobody but this process's user should be able to read it.
    pub key: PathBuf,
}

/// The same, or the CA certificates alone: of an agent that shows by a token who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSource {
    pub ca: PathBuf,
    pub own: Option<OwnFiles>,
}

/// Where a certificate of one's own is, and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl From<TlsFiles> for TlsSource {
    fn from(TlsFiles { ca, cert, key }: TlsFiles) -> Self {
        let own = Some(OwnFiles { cert, key });
        Self { ca, own }
    }
}

/// The files' bytes as they were read.
#[derive(PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) ca: Vec<u8>,
    pub(super) own: Option<OwnContents>,
}

#[derive(PartialEq, Eq)]
pub(super) struct OwnContents {
    pub(super) cert: Vec<u8>,
    pub(super) key: Vec<u8>,
}

impl TlsSource {
    /// The file to name when something is wrong with what TLS presents or trusts.
    pub(super) fn first(&self) -> &Path {
        self.own.as_ref().map_or(&self.ca, |own| &own.cert)
    }

    pub(super) async fn read(&self) -> Result<Contents, TlsError> {
        let own = match &self.own {
            None => None,
            Some(own) => Some(OwnContents {
                cert: read(&own.cert).await?,
                key: read(&own.key).await?,
            }),
        };
        Ok(Contents {
            ca: read(&self.ca).await?,
            own,
        })
    }

    /// Says so in the log if more users than need to can read the key.
    pub(super) async fn warn_if_exposed(&self) {
        let Some(own) = &self.own else { return };
        // Only a note: that the file can be read was seen just now.
        let Ok(file) = tokio::fs::metadata(&own.key).await else {
            return;
        };
        let process = tokio::fs::metadata("/proc/self").await;
        let user = process.ok().map(|process| process.uid());
        if is_exposed(file.mode(), file.uid(), user) {
            tracing::warn!(
                path = %own.key.display(),
                mode = format!("{:o}", file.mode() & 0o777),
                "private key is readable by other users; chmod 600 it"
            );
        }
    }
}

/// Whether others than the one who needs the key can read or replace it. A file that belongs to somebody else
/// is read through its group: that is how Kubernetes hands a secret to a process that is not root.
fn is_exposed(mode: u32, owner: u32, own: Option<u32>) -> bool {
    mode & 0o007 != 0 || (mode & 0o070 != 0 && own.is_none_or(|own| own == owner))
}

async fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |source| TlsError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let reading = async {
        // A pipe would make the open wait for its other end.
        if !tokio::fs::metadata(path).await?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let file = tokio::fs::File::open(path).await?;
        let mut bytes = Vec::new();
        // One more than allowed, to tell "just fits" from "cut off".
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).await?;
        Ok(bytes)
    };
    let bytes = tokio::time::timeout(DEADLINE, reading)
        .await
        .map_err(|_| {
            unreadable(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("not read within {} s", DEADLINE.as_secs()),
            ))
        })?
        .map_err(unreadable)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_BYTES {
        return Err(TlsError::TooLong {
            path: path.to_owned(),
        });
    }
    Ok(bytes)
}

/// All certificates in a file, at least one.
pub(super) fn certificates(
    path: &Path,
    bytes: &[u8],
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates = CertificateDer::pem_slice_iter(bytes)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| damaged(path, &error))?;
    if certificates.is_empty() {
        return Err(TlsError::NoPem {
            path: path.to_owned(),
            wanted: "certificate",
        });
    }
    Ok(certificates)
}

/// The private key in a file.
pub(super) fn private_key(path: &Path, bytes: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(bytes).map_err(|error| match error {
        pem::Error::NoItemsFound => TlsError::NoPem {
            path: path.to_owned(),
            wanted: "private key",
        },
        error => damaged(path, &error),
    })
}

// Only what is wrong: a key's lines must not reach a log.
fn damaged(path: &Path, error: &pem::Error) -> TlsError {
    let why = match error {
        pem::Error::MissingSectionEnd { .. } => "a -----BEGIN has no -----END".to_owned(),
        pem::Error::IllegalSectionStart { .. } => "a -----BEGIN line is cut off".to_owned(),
        pem::Error::Base64Decode(_) => {
            "what is between -----BEGIN and -----END is no base64".to_owned()
        }
        _ => "it is no PEM".to_owned(),
    };
    TlsError::Damaged {
        path: path.to_owned(),
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_others_can_read_is_exposed() {
        for (mode, owner, own, exposed) in [
            (0o100_600, 7, Some(7), false),
            (0o100_400, 0, Some(0), false),
            (0o100_644, 0, Some(0), true),
            (0o100_604, 0, Some(7), true),
            (0o100_640, 0, Some(0), true),
            (0o100_640, 0, None, true),
            // A secret volume with fsGroup.
            (0o100_640, 0, Some(65532), false),
            (0o100_602, 0, Some(0), true),
        ] {
            assert_eq!(
                is_exposed(mode, owner, own),
                exposed,
                "{mode:o} {owner} {own:?}"
            );
        }
    }
}
