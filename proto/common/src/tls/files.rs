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

/// Largest file, bytes. A certificate has about 1 to 4 KiB, so no chain or bundle comes near it.
pub(super) const MAX_BYTES: u64 = 1 << 20;
/// Limit of one read: the files are small, so a longer one is unresponsive storage.
const DEADLINE: Duration = Duration::from_secs(10);

/// Paths of certificates and key, each in PEM form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Trusted CA certificates: one, or several while one CA replaces another.
    pub ca: PathBuf,
    /// The own certificate, followed by intermediate ones if no CA signed it directly.
    pub cert: PathBuf,
    /// Private key of the own certificate; only this process's user should be able to read it.
    pub key: PathBuf,
}

/// The same, or the CA certificates alone, for an agent that authenticates with a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSource {
    pub ca: PathBuf,
    pub own: Option<OwnFiles>,
}

/// Paths of the own certificate and its key.
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

/// Contents of the files.
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
    /// Returns the file to name in errors of setting up TLS.
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

    /// Logs a warning if more users than necessary can read the key.
    pub(super) async fn warn_if_exposed(&self) {
        let Some(own) = &self.own else { return };
        // A failure is ignored: the file was readable just before.
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

/// True if users other than the process's can read or replace the file. A file of another owner may be readable through its group:
/// Kubernetes passes secrets to processes that are not root in this way.
fn is_exposed(mode: u32, owner: u32, own: Option<u32>) -> bool {
    mode & 0o007 != 0 || (mode & 0o070 != 0 && own.is_none_or(|own| own == owner))
}

async fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |source| TlsError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let reading = async {
        // Opening a FIFO would block until it has a writer.
        if !tokio::fs::metadata(path).await?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let file = tokio::fs::File::open(path).await?;
        let mut bytes = Vec::new();
        // One byte more than allowed, to detect a longer file.
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

/// Returns all certificates in a file, at least one.
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

/// Returns the first private key in a file.
pub(super) fn private_key(path: &Path, bytes: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(bytes).map_err(|error| match error {
        pem::Error::NoItemsFound => TlsError::NoPem {
            path: path.to_owned(),
            wanted: "private key",
        },
        error => damaged(path, &error),
    })
}

// Without any contents: lines of a key must not reach a log.
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
