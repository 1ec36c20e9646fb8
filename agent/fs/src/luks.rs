//! Runs cryptsetup on the own device of an encrypted volume. Decides nothing: `crypt` does.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
};

use serde::{Deserialize, de::IgnoredAny};
use uuid::Uuid;

use super::{
    backend::StageBackend,
    device::{Partition, io_error},
    jobs::FsError,
    tools::{self, Program},
};
use drivebay_model::{Secret, encryption::HEADER_BYTES};
use drivebay_sys::{cmd::Output, scratch::Scratch};
use drivebay_worker::Context;

pub(super) const CRYPTSETUP: Program = Program {
    name: "cryptsetup",
    package: "cryptsetup-bin",
};
/// Bytes of a sector that is encrypted as a whole. A multiple of every drive's logical sector.
const SECTOR: u32 = 4096;
/// Cost of deriving a key from the secret: memory in KiB, and passes. Fixed, where cryptsetup would measure for two seconds and take up to
/// 1 GiB, which a container may not have. Argon2id with 19 MiB and two passes is what OWASP asks of stored passwords at least.
const PBKDF: [&str; 8] = [
    "--pbkdf",
    "argon2id",
    "--pbkdf-memory",
    "65536",
    "--pbkdf-parallel",
    "1",
    "--pbkdf-force-iterations",
    "4",
];
/// The program's exit code if no key slot opens with the secret (its manual page).
const NO_PERMISSION: i32 = 2;
/// Exit code for a device that has no valid header, or does not read; a lack of memory (3), a signal and others are not about the header.
const WRONG: i32 = 1;
/// Type of the token by which systemd-cryptenroll marks the key slot of a recovery key.
const RECOVERY: &str = "systemd-recovery";

/// The own device of an encrypted volume.
#[derive(Clone, Copy)]
pub(super) struct Luks<'a> {
    pub(super) backend: &'a dyn StageBackend,
    pub(super) own: &'a Partition,
}

/// Answer to a secret.
#[derive(Debug)]
pub(super) enum Tried {
    Opens,
    WrongSecret,
    /// A key slot cannot be used, e.g. since it does not read.
    Unusable(Output),
    /// The program did not come as far as to judge it, e.g. for a lack of memory.
    Failed(Output),
}

/// A header as the program read it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Header {
    Slots(Slots),
    /// Reason why it cannot be used, worded to stand after "the header is".
    Unusable(String),
}

/// Key slots of a header, by number.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Slots {
    /// Slots of secrets.
    pub(super) secret: BTreeSet<u32>,
    /// Slots of recovery keys, each with the token that marks it.
    pub(super) recovery: BTreeMap<u32, u32>,
}

impl Slots {
    /// Returns all of them.
    pub(super) fn all(&self) -> BTreeSet<u32> {
        let recovery = self.recovery.keys();
        self.secret.iter().chain(recovery).copied().collect()
    }
}

/// Metadata of a LUKS2 header, as cryptsetup prints it.
#[derive(Debug, Deserialize)]
struct Metadata {
    keyslots: BTreeMap<u32, IgnoredAny>,
    #[serde(default)]
    tokens: BTreeMap<u32, Token>,
}

#[derive(Debug, Deserialize)]
struct Token {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    keyslots: Vec<String>,
}

impl Luks<'_> {
    /// Makes the header, with this UUID, a new random key, and one key slot.
    pub(super) fn format(
        &self,
        header: Uuid,
        secret: &Secret,
        context: &mut Context,
    ) -> Result<(), FsError> {
        self.own.must_be_free()?;
        let header = header.to_string();
        let (offset, sector) = ((HEADER_BYTES / 512).to_string(), SECTOR.to_string());
        let options = [
            "luksFormat",
            "--batch-mode",
            "--type",
            "luks2",
            "--cipher",
            "aes-xts-plain64",
            "--key-size",
            "512",
            "--sector-size",
            &sector,
            "--offset",
            &offset,
            "--uuid",
            &header,
        ];
        let options = [&options[..], &PBKDF].concat();
        let output = self.run(&options, &[], Some(secret), context)?;
        self.done("luksFormat", &output)
    }

    /// Adds a key slot for `new`. `secret` opens one already.
    pub(super) fn add_slot(
        &self,
        secret: &Secret,
        new: &Secret,
        context: &mut Context,
    ) -> Result<Tried, FsError> {
        let file = Scratch::of(new.expose()).map_err(|source| {
            io_error(
                "passing the new secret to cryptsetup for",
                &self.own.node,
                source,
            )
        })?;
        let options = [&["luksAddKey", "--batch-mode"][..], &PBKDF].concat();
        let path = file.path();
        let output = self.run(&options, &[path.as_os_str()], Some(secret), context)?;
        Ok(tried(output))
    }

    /// Destroys a key slot. `secret` opens another one.
    pub(super) fn kill_slot(
        &self,
        slot: u32,
        secret: &Secret,
        context: &mut Context,
    ) -> Result<(), FsError> {
        let slot = OsString::from(slot.to_string());
        let output = self.run(&["luksKillSlot"], &[&slot], Some(secret), context)?;
        self.done("luksKillSlot", &output)
    }

    /// Marks a key slot as that of a recovery key, as systemd-cryptenroll does.
    pub(super) fn mark_recovery(&self, slot: u32, context: &mut Context) -> Result<(), FsError> {
        let token = format!(r#"{{"type":"{RECOVERY}","keyslots":["{slot}"]}}"#);
        let file = Scratch::of(token.as_bytes()).map_err(|source| {
            io_error("passing a token to cryptsetup for", &self.own.node, source)
        })?;
        let from = format!("--json-file={}", file.path().display());
        let output = self.run(&["token", "import", &from], &[], None, context)?;
        self.done("token import", &output)
    }

    /// Removes a token. Key slots stay.
    pub(super) fn remove_token(&self, token: u32, context: &mut Context) -> Result<(), FsError> {
        let id = format!("--token-id={token}");
        let output = self.run(&["token", "remove", &id], &[], None, context)?;
        self.done("token remove", &output)
    }

    /// Tries the secret, on one key slot or all of them. Maps nothing.
    pub(super) fn test(
        &self,
        slot: Option<u32>,
        secret: &Secret,
        context: &mut Context,
    ) -> Result<Tried, FsError> {
        self.unlock(slot, &["--test-passphrase"], &[], secret, context)
    }

    /// Maps the device under this name, by one key slot or the first that opens.
    pub(super) fn open(
        &self,
        slot: Option<u32>,
        name: &str,
        secret: &Secret,
        context: &mut Context,
    ) -> Result<Tried, FsError> {
        self.unlock(slot, &[], &[name.as_ref()], secret, context)
    }

    fn unlock(
        &self,
        slot: Option<u32>,
        more: &[&str],
        behind: &[&std::ffi::OsStr],
        secret: &Secret,
        context: &mut Context,
    ) -> Result<Tried, FsError> {
        let slot = slot.map(|slot| format!("--key-slot={slot}"));
        let mut options = vec!["open", "--type", "luks2", "--disable-keyring"];
        options.extend(slot.as_deref());
        options.extend(more);
        let output = self.run(&options, behind, Some(secret), context)?;
        Ok(tried(output))
    }

    /// Gives the header another UUID.
    pub(super) fn rename(&self, header: Uuid, context: &mut Context) -> Result<(), FsError> {
        self.own.must_be_free()?;
        let header = header.to_string();
        let options = ["luksUUID", "--batch-mode", "--uuid", &header];
        let output = self.run(&options, &[], None, context)?;
        self.done("luksUUID", &output)
    }

    /// Reads the header.
    ///
    /// # Errors
    /// `Cryptsetup`: the program did not come as far as to judge it, which says nothing about the header.
    pub(super) fn header(&self, context: &mut Context) -> Result<Header, FsError> {
        let options = ["luksDump", "--dump-json-metadata"];
        let output = self.run(&options, &[], None, context)?;
        header_of(&output).ok_or_else(|| self.failed("luksDump", &output))
    }

    /// Runs the program on the device, with the secret as its input. `behind`: arguments that follow the device.
    fn run(
        &self,
        options: &[&str],
        behind: &[&std::ffi::OsStr],
        secret: Option<&Secret>,
        context: &mut Context,
    ) -> Result<Output, FsError> {
        let mut args: Vec<OsString> = options.iter().map(OsString::from).collect();
        args.push("--disable-locks".into());
        if secret.is_some() {
            args.push("--key-file=/dev/stdin".into());
        }
        args.push(self.own.node.clone().into());
        args.extend(behind.iter().map(OsString::from));
        tools::run_mapper(
            self.backend,
            CRYPTSETUP,
            args,
            &self.own.device,
            secret,
            context,
        )
    }

    fn done(&self, action: &str, output: &Output) -> Result<(), FsError> {
        match output.code {
            Some(0) => Ok(()),
            _ => Err(self.failed(action, output)),
        }
    }

    pub(super) fn failed(&self, action: &str, output: &Output) -> FsError {
        self.unconfirmed(action, &tools::excerpt(output))
    }

    /// Returns the error for an action that had not the effect that it should have.
    pub(super) fn unconfirmed(&self, action: &str, why: &str) -> FsError {
        FsError::Cryptsetup {
            action: action.to_owned(),
            device: self.own.device.clone(),
            output: why.to_owned(),
        }
    }
}

/// Interprets the answer to a secret. Pure.
fn tried(output: Output) -> Tried {
    match output.code {
        Some(0) => Tried::Opens,
        Some(NO_PERMISSION) => Tried::WrongSecret,
        Some(WRONG) => Tried::Unusable(output),
        _ => Tried::Failed(output),
    }
}

/// Interprets the answer of `luksDump --dump-json-metadata`; None: it says nothing about the header. Pure.
fn header_of(output: &Output) -> Option<Header> {
    match output.code {
        Some(0) => Some(match serde_json::from_str::<Metadata>(&output.stdout) {
            Ok(metadata) => Header::Slots(metadata.slots()),
            Err(error) => Header::Unusable(format!("not understood ({error})")),
        }),
        Some(WRONG) => Some(Header::Unusable(format!(
            "damaged ({})",
            tools::excerpt(output)
        ))),
        _ => None,
    }
}

impl Metadata {
    fn slots(&self) -> Slots {
        let tokens = self.tokens.iter().filter(|(_, one)| one.kind == RECOVERY);
        let recovery = tokens.flat_map(|(id, token)| {
            let slots = token.keyslots.iter().filter_map(|slot| slot.parse().ok());
            slots.map(|slot| (slot, *id))
        });
        let recovery: BTreeMap<u32, u32> = recovery
            .filter(|(slot, _)| self.keyslots.contains_key(slot))
            .collect();
        let all = self.keyslots.keys().copied();
        Slots {
            secret: all.filter(|slot| !recovery.contains_key(slot)).collect(),
            recovery,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_killed_or_had_no_memory_says_nothing_about_a_header() {
        let answer = |code, stdout: &str| {
            header_of(&Output {
                code,
                stdout: stdout.to_owned(),
                stderr: "Device /dev/dm-3 is not a valid LUKS device.".to_owned(),
            })
        };
        let two = r#"{"keyslots":{"0":{"type":"luks2"},"3":{}},"segments":{}}"#;
        assert_eq!(
            answer(Some(0), two),
            Some(Header::Slots(Slots {
                secret: BTreeSet::from([0, 3]),
                recovery: BTreeMap::new(),
            }))
        );
        let none = r#"{"keyslots":{}}"#;
        assert_eq!(answer(Some(0), none), Some(Header::Slots(Slots::default())));
        for (code, stdout) in [(Some(1), ""), (Some(0), "")] {
            let header = answer(code, stdout);
            assert!(matches!(header, Some(Header::Unusable(_))), "{header:?}");
        }
        for code in [None, Some(3), Some(4), Some(5)] {
            assert_eq!(answer(code, two), None, "{code:?}");
        }
    }

    #[test]
    fn a_program_that_was_killed_or_had_no_memory_says_nothing_about_a_secret_or_a_key_slot() {
        let answer = |code| {
            tried(Output {
                code,
                stdout: String::new(),
                stderr: String::new(),
            })
        };
        assert!(matches!(answer(Some(0)), Tried::Opens));
        assert!(matches!(answer(Some(2)), Tried::WrongSecret));
        assert!(matches!(answer(Some(1)), Tried::Unusable(_)));
        for code in [None, Some(3), Some(4), Some(5)] {
            assert!(matches!(answer(code), Tried::Failed(_)), "{code:?}");
        }
    }

    #[test]
    fn the_key_slot_of_a_recovery_key_is_not_one_of_the_secret() {
        let header = r#"{"keyslots":{"0":{},"1":{},"2":{},"5":{}},"tokens":{
            "0":{"type":"systemd-recovery","keyslots":["1","7"]},
            "1":{"type":"clevis","keyslots":["5"]}}}"#;
        let metadata: Metadata = serde_json::from_str(header).unwrap();
        let slots = metadata.slots();
        assert_eq!(slots.secret, BTreeSet::from([0, 2, 5]));
        assert_eq!(slots.recovery, BTreeMap::from([(1, 0)]));
        assert_eq!(slots.all(), BTreeSet::from([0, 1, 2, 5]));
    }
}
