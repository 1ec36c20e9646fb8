//! `volume rekey`, `check-key` and `recovery-key`, and reading secrets from files.

use std::{
    fmt::Write as _,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use drivebay_common::{
    cli::{USAGE, WRONG},
    pick::{Part, PickError},
    progress::waiting,
    query::QueryError,
};
use drivebay_proto::agent::{
    AddRecoveryKeyRequest, ChangeSecretRequest, CheckSecretRequest, Volume,
};
use drivebay_sys::{
    cmd::{self, CmdError, Tool},
    process,
};

use super::{args::KeyFile, client::Client, name, table::printable};

/// Limit of a call. Deriving a key takes less than a second, on a slow host a few, and there are several key slots.
const DEADLINE: Duration = Duration::from_secs(120);
/// Longest secret with a newline, bytes; the agent's limit is 4096.
const MOST: u64 = 4097;
/// Bytes of a recovery key: as many as the volume's own key is worth against guessing.
const RECOVERY_BYTES: usize = 32;
const STDIN: &str = "-";
/// Ending of the name of a file that `systemd-creds encrypt` wrote.
const CREDENTIAL: &str = "cred";
const SYSTEMD_CREDS: &str = "systemd-creds";
/// Limit of decrypting. A TPM takes about a second.
const DECRYPT_DEADLINE: Duration = Duration::from_secs(60);

/// Error of a command on the keys of an encrypted volume.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error(transparent)]
    Client(#[from] QueryError),
    #[error(transparent)]
    Pick(#[from] PickError),
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error("only one of the two secrets can be read from the standard input")]
    BothFromStdin,
    #[error("cannot read random bytes")]
    Random(#[source] io::Error),
}

/// A secret could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("cannot read the secret from {}", named(.0))]
    Read(PathBuf, #[source] io::Error),
    #[error("cannot run systemd-creds, which decrypts {}; it is part of systemd since version 250", named(.0))]
    NoSystemd(PathBuf, #[source] CmdError),
    #[error("systemd-creds cannot decrypt {}: {output}", named(path))]
    Sealed {
        path: PathBuf,
        /// Error output of systemd-creds.
        output: String,
    },
    #[error("the secret in {} must be text (UTF-8) of 1 to 4096 bytes", named(.0))]
    Unfit(PathBuf),
}

impl KeyError {
    /// Returns the exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Client(error) => error.code(),
            Self::Pick(error) => error.code(),
            Self::Secret(_) | Self::Random(_) => WRONG,
            Self::BothFromStdin => USAGE,
        }
    }
}

fn named(path: &Path) -> String {
    match path.as_os_str() == STDIN {
        true => "the standard input".to_owned(),
        false => printable(&path.display().to_string()),
    }
}

/// Reads a secret, without the newline at its end. systemd decrypts a file whose name ends with `.cred`.
pub(super) fn read_secret(path: &Path) -> Result<String, SecretError> {
    let failed = |error| SecretError::Read(path.to_owned(), error);
    if let Err(error) = process::keep_memory_out_of_core_dumps() {
        eprintln!("a core dump of this command would have the secret in it: {error}");
    }
    let mut bytes = Vec::new();
    if path.as_os_str() == STDIN {
        let read = io::stdin().take(MOST + 1).read_to_end(&mut bytes);
        read.map_err(failed)?;
    } else if path.extension().is_some_and(|end| end == CREDENTIAL) {
        bytes = decrypted(path)?;
    } else {
        let file = File::open(path).map_err(failed)?;
        let read = file.take(MOST + 1).read_to_end(&mut bytes);
        read.map_err(failed)?;
    }
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    let text = String::from_utf8(bytes).ok();
    // The replacement character stands for what is not UTF-8 in the output of systemd-creds.
    let text =
        text.filter(|text| (1..MOST as usize).contains(&text.len()) && !text.contains('\u{fffd}'));
    text.ok_or_else(|| SecretError::Unfit(path.to_owned()))
}

/// Has systemd decrypt a credential, with the key of this host, its TPM, or both.
fn decrypted(path: &Path) -> Result<Vec<u8>, SecretError> {
    let tool = Tool {
        program: SYSTEMD_CREDS,
        args: vec!["decrypt".into(), path.into(), "-".into()],
        env: Vec::new(),
        only: None,
        deadline: DECRYPT_DEADLINE,
    };
    let output = cmd::run(&tool).map_err(|error| SecretError::NoSystemd(path.to_owned(), error))?;
    match output.code {
        Some(0) => Ok(output.stdout.into_bytes()),
        _ => Err(SecretError::Sealed {
            path: path.to_owned(),
            output: printable(output.stderr.trim()),
        }),
    }
}

async fn meant(client: &mut Client, typed: &str) -> Result<Volume, KeyError> {
    let inventory = client.inventory().await?;
    Ok(name::volume(&inventory, typed, Part::Whole)?.clone())
}

/// Changes the secret, and returns the text to print.
pub(super) async fn rekey(
    socket: &Path,
    typed: &str,
    key: &KeyFile,
    new: &Path,
) -> Result<String, KeyError> {
    if key.key_file.as_os_str() == STDIN && new.as_os_str() == STDIN {
        return Err(KeyError::BothFromStdin);
    }
    let (previous, secret) = (read_secret(&key.key_file)?, read_secret(new)?);
    let mut client = Client::connect(socket).await?;
    let volume = meant(&mut client, typed).await?;
    let call = client.manual_volumes.change_secret(ChangeSecretRequest {
        id: volume.id.clone(),
        previous,
        secret,
    });
    let name = printable(&volume.name);
    let answer = client.agent.answered_within(DEADLINE, call);
    waiting(&format!("changing the secret of volume {name}"), answer).await?;
    let mut text = format!("volume {name} opens with the new secret only\n");
    if !volume.snapshots.is_empty() {
        text.push_str(
            "its snapshots, and copies of them, still open with the earlier one: delete them if that one is compromised\n",
        );
    }
    Ok(text)
}

/// Verifies a secret, and returns the text to print.
pub(super) async fn check(socket: &Path, typed: &str, key: &KeyFile) -> Result<String, KeyError> {
    let secret = read_secret(&key.key_file)?;
    let mut client = Client::connect(socket).await?;
    let volume = meant(&mut client, typed).await?;
    let id = volume.id.clone();
    let request = CheckSecretRequest { id, secret };
    let call = client.manual_volumes.check_secret(request);
    let name = printable(&volume.name);
    let answer = client.agent.answered_within(DEADLINE, call);
    let answer = waiting(&format!("trying the secret of volume {name}"), answer).await?;
    let checked = answer.into_inner();
    let what = match (checked.is_recovery_key, checked.slots) {
        (true, _) => "the recovery key".to_owned(),
        (false, 1) => {
            "the secret, by one key slot only; `volume rekey` with the same secret as the new one makes the other one again".to_owned()
        }
        (false, slots) => format!("the secret, by {slots} key slots"),
    };
    let recovery = match checked.has_recovery_key {
        true => "",
        false => "; there is no recovery key",
    };
    Ok(format!("volume {name} opens with {what}{recovery}\n"))
}

/// Adds a recovery key, and returns it.
pub(super) async fn recovery_key(
    socket: &Path,
    typed: &str,
    key: &KeyFile,
) -> Result<String, KeyError> {
    let secret = read_secret(&key.key_file)?;
    let recovery_key = random().map_err(KeyError::Random)?;
    let mut client = Client::connect(socket).await?;
    let volume = meant(&mut client, typed).await?;
    let call = client
        .manual_volumes
        .add_recovery_key(AddRecoveryKeyRequest {
            id: volume.id.clone(),
            secret,
            recovery_key: recovery_key.clone(),
        });
    let name = printable(&volume.name);
    let answer = client.agent.answered_within(DEADLINE, call);
    waiting(&format!("adding a recovery key to volume {name}"), answer).await?;
    eprintln!("recovery key of volume {name}; keep it where this host's disks are not:");
    Ok(recovery_key + "\n")
}

/// Returns a random key, in hexadecimal digits with a hyphen after each eight.
fn random() -> io::Result<String> {
    let mut bytes = [0; RECOVERY_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let mut text = String::new();
    for (at, byte) in bytes.iter().enumerate() {
        if at > 0 && at % 4 == 0 {
            text.push('-');
        }
        // A String accepts everything.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_the_file_without_the_newline_at_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            read_secret(&path)
        };
        assert_eq!(read(b"sword fish\n").unwrap(), "sword fish");
        assert_eq!(read(b"sword\n\n").unwrap(), "sword\n");
        assert_eq!(read(&[b'x'; 4096]).unwrap().len(), 4096);
        for unfit in [
            &b""[..],
            b"\n",
            &[b'x'; 4097],
            &[0xff, 0xfe],
            "a\u{fffd}".as_bytes(),
        ] {
            assert!(matches!(read(unfit), Err(SecretError::Unfit(_))));
        }
        let none = read_secret(&dir.path().join("none"));
        assert!(matches!(none, Err(SecretError::Read(..))));
    }

    #[test]
    fn a_recovery_key_is_random_and_can_be_typed() {
        let [one, other] = [random().unwrap(), random().unwrap()];
        assert_ne!(one, other);
        assert_eq!(one.len(), 64 + 7);
        assert!(one.split('-').all(|part| part.len() == 8));
        assert!(
            one.bytes()
                .all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
        );
    }
}
