//! Opens encrypted volumes with cryptsetup: LUKS2 on the volume's own device, and a mapped device over it.
//!
//! `guard` is the only place where making a header is decided: for a device that was probed and is Empty, or whose header was never
//! finished, of a volume that was never acknowledged as used. The header's UUID is in the record before that. Everything else is refused.
//!
//! The volume's key is random and made by cryptsetup. The secret opens two key slots, which lie apart, so that one bad sector loses neither.
//! The key is in the kernel's table of the mapped device, and not in a keyring of the process that opened it: so the device grows, and a
//! worker that ends leaves nothing behind.

use std::{ffi::OsString, path::Path};

use serde::Deserialize;
use uuid::Uuid;

use super::{
    backend::StageBackend,
    device::{self, Partition, io_error},
    jobs::FsError,
    stage::describe,
    tools::{self, Program},
};
use drivebay_model::{
    Cause, DriveRef, Encryption, Mapping, Placed, RecordState, Secret, Signature, Signatures,
    cause::chain, encryption::HEADER_BYTES,
};
use drivebay_sys::{
    cmd::{self, Output},
    dm::{self, DmDevice},
};
use drivebay_worker::Context;

const CRYPTSETUP: Program = Program {
    name: "cryptsetup",
    package: "cryptsetup-bin",
};
/// Target of device-mapper, in the module dm-crypt.
const TARGET: &str = "crypt";
/// Key slots that the secret opens.
const SLOTS: usize = 2;
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
/// Signature of a header, as libblkid names it.
const SIGNATURE: &str = "crypto_LUKS";

/// Returns why this host cannot have encrypted volumes; None: it can.
pub fn unavailable() -> Option<String> {
    match dm::has_target(TARGET) {
        Ok(true) => {}
        Ok(false) => {
            return Some(
                "the kernel has no dm-crypt; load its module (modprobe dm_crypt)".to_owned(),
            );
        }
        Err(error) => {
            return Some(format!(
                "device-mapper does not answer ({error}); load its module (modprobe dm_mod), and give the agent /dev/mapper/control"
            ));
        }
    }
    (!cmd::is_installed(CRYPTSETUP.name)).then(|| {
        format!(
            "{} is not installed; install package {}",
            CRYPTSETUP.name, CRYPTSETUP.package
        )
    })
}

/// A volume to open.
#[derive(Clone, Copy)]
pub(super) struct Opening<'a> {
    pub(super) backend: &'a dyn StageBackend,
    pub(super) drive: &'a DriveRef,
    pub(super) placed: &'a Placed,
    pub(super) encryption: Encryption,
    pub(super) secret: &'a Secret,
    /// True: a header may be made if there never was one.
    pub(super) may_format: bool,
}

/// Decision about the header of an encrypted volume.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Guard {
    /// Make it: there is none, and the volume was never acknowledged as used.
    Format,
    /// The volume's header is there.
    Open,
    /// There was a header, and there is none now.
    Gone,
    /// The device holds something else.
    Unexpected(String),
}

/// Decides from the record and a probe of the volume's own device. Pure.
fn guard(state: &RecordState, header: Uuid, probed: &Signatures) -> Guard {
    let is_ours = |one: &Signature| {
        one.kind == SIGNATURE && !header.is_nil() && Uuid::parse_str(&one.uuid) == Ok(header)
    };
    match probed {
        Signatures::Empty if was_used(state) => Guard::Gone,
        Signatures::Empty if header.is_nil() => {
            Guard::Unexpected("no header, and no UUID of one in its record".to_owned())
        }
        Signatures::Empty => Guard::Format,
        Signatures::Found(all) if matches!(all.as_slice(), [one] if is_ours(one)) => Guard::Open,
        Signatures::Found(all) | Signatures::Ambiguous(all) => Guard::Unexpected(describe(all)),
    }
}

/// True if the volume may hold data of its user.
fn was_used(state: &RecordState) -> bool {
    !matches!(
        state,
        RecordState::New | RecordState::Fs { mounted: false, .. }
    )
}

/// Opens the volume, after making its header if there never was one. Does nothing more than verifying the secret if it is open. Returns the
/// mapped device.
///
/// # Errors
/// `WrongSecret`: no key slot opens with it.
pub(super) fn open(opening: &Opening<'_>, context: &mut Context) -> Result<Partition, FsError> {
    let own = device::open(opening.drive, opening.placed)?;
    context.step(&format!("probing {}", own.device));
    let uuid = opening.placed.record.uuid;
    let probed = opening.backend.probe(&own.node);
    let probed = probed.map_err(|source| FsError::Probe {
        uuid,
        device: own.device.clone(),
        source,
    })?;
    let (state, header) = (&opening.placed.record.state, opening.encryption.header);
    match guard(state, header, &probed) {
        Guard::Format => opening.format(&own, context)?,
        Guard::Open => {}
        Guard::Gone => return Err(opening.damaged(&own, "gone")),
        Guard::Unexpected(found) => {
            return Err(FsError::Unexpected {
                uuid,
                device: own.device,
                found,
                expected: format!("a LUKS2 header with UUID {header}"),
            });
        }
    }
    let slots = match opening.slots(&own, context)? {
        Header::Slots(slots) if slots > 0 => slots,
        // Without a key slot it was never open, and a volume that was never used holds nothing.
        _ if !was_used(state) => {
            opening.format(&own, context)?;
            1
        }
        Header::Slots(_) => return Err(opening.damaged(&own, "without key slots")),
        Header::Unusable(why) => return Err(opening.damaged(&own, &why)),
    };
    let mapped = match opening.mapped(&own)? {
        Some(mapped) => {
            opening.unlock(&own, true, context)?;
            if mapped.size_bytes < own.bytes.saturating_sub(HEADER_BYTES) {
                grow(opening.backend, opening.encryption, &own.device, context)?;
            }
            mapped
        }
        None => {
            opening.unlock(&own, false, context)?;
            opening.mapped(&own)?.ok_or(FsError::NotOpen { uuid })?
        }
    };
    if slots < SLOTS
        && let Err(error) = opening.add_slot(&own, context)
    {
        // One that is used has its data, by the slot that it has.
        if !was_used(state) {
            return Err(error);
        }
        tracing::error!(volume = %uuid, device = own.device, error = %chain(&error), "cannot add the second key slot of an encrypted volume; a bad sector in the other one loses it");
    }
    let placed = Placed {
        mapping: Some(Mapping {
            device: mapped.kernel_name,
            dev: mapped.dev,
        }),
        ..opening.placed.clone()
    };
    device::open_mapped(opening.drive, &placed)
}

impl Opening<'_> {
    fn damaged(&self, own: &Partition, what: &str) -> FsError {
        FsError::HeaderDamaged {
            uuid: self.placed.record.uuid,
            device: own.device.clone(),
            what: what.to_owned(),
        }
    }

    fn mapped(&self, own: &Partition) -> Result<Option<DmDevice>, FsError> {
        dm::mapped_over(Path::new("/sys"), &own.device, &self.encryption.dm_uuid())
            .map_err(|error| io_error("finding what is mapped over", &own.node, error))
    }

    /// Makes the header with its first key slot, with a new random key.
    fn format(&self, own: &Partition, context: &mut Context) -> Result<(), FsError> {
        if !self.may_format {
            return Err(FsError::Incompatible {
                uuid: self.placed.record.uuid,
                is: "not formatted yet".to_owned(),
                requested: "read-only".to_owned(),
            });
        }
        own.must_be_free()?;
        let header = self.encryption.header.to_string();
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
        let output = self.run(own, &[&options[..], &PBKDF].concat(), &[], context)?;
        match output.code {
            Some(0) => Ok(()),
            _ => Err(failed("luksFormat", own, &output)),
        }
    }

    /// Adds a second key slot for the same secret.
    fn add_slot(&self, own: &Partition, context: &mut Context) -> Result<(), FsError> {
        let options = [&["luksAddKey", "--batch-mode"][..], &PBKDF].concat();
        let output = self.run(own, &options, &["/dev/stdin"], context)?;
        match output.code {
            Some(0) => Ok(()),
            _ => Err(failed("luksAddKey", own, &output)),
        }
    }

    /// Opens the volume with the secret; with `only_test`, only verifies the secret.
    fn unlock(
        &self,
        own: &Partition,
        only_test: bool,
        context: &mut Context,
    ) -> Result<(), FsError> {
        let name = self.encryption.mapping_name();
        let options = ["open", "--type", "luks2", "--disable-keyring"];
        // An unreadable key slot ends the program's search; each is then tried by itself.
        let mut last = None;
        for slot in [None, Some("0"), Some("1")] {
            let slot: &[&str] = match &slot {
                Some(slot) => &["--key-slot", slot],
                None => &[],
            };
            let (test, name): (&[&str], &[&str]) = match only_test {
                true => (&["--test-passphrase"], &[]),
                false => (&[], &[&name]),
            };
            let output = self.run(own, &[&options[..], slot, test].concat(), name, context)?;
            match output.code {
                Some(0) => {
                    if let Some(output) = &last {
                        tracing::error!(volume = %self.placed.record.uuid, device = own.device, output = tools::excerpt(output), "a key slot of an encrypted volume cannot be used; it was opened by the other one");
                    }
                    return Ok(());
                }
                Some(NO_PERMISSION) => {
                    return Err(FsError::WrongSecret {
                        uuid: self.placed.record.uuid,
                    });
                }
                _ => last = Some(output),
            }
        }
        let output = last.unwrap_or(Output {
            code: None,
            stdout: String::new(),
            stderr: String::new(),
        });
        Err(failed("open", own, &output))
    }

    /// Reads the header.
    ///
    /// # Errors
    /// `Cryptsetup`: the program did not come as far as to judge it, which says nothing about the header.
    fn slots(&self, own: &Partition, context: &mut Context) -> Result<Header, FsError> {
        let args = ["luksDump", "--dump-json-metadata", "--disable-locks"].map(OsString::from);
        let args = args.into_iter().chain([own.node.clone().into()]).collect();
        let output = tools::run_mapper(self.backend, CRYPTSETUP, args, &own.device, None, context)?;
        header_of(&output).ok_or_else(|| failed("luksDump", own, &output))
    }

    /// Runs the program with the secret as its input, on the volume's own device. `behind`: arguments that follow the device.
    fn run(
        &self,
        own: &Partition,
        options: &[&str],
        behind: &[&str],
        context: &mut Context,
    ) -> Result<Output, FsError> {
        let options = options
            .iter()
            .chain(&["--disable-locks", "--key-file=/dev/stdin"]);
        let mut args: Vec<OsString> = options.map(OsString::from).collect();
        args.push(own.node.clone().into());
        args.extend(behind.iter().map(OsString::from));
        let secret = Some(self.secret);
        tools::run_mapper(self.backend, CRYPTSETUP, args, &own.device, secret, context)
    }
}

/// A header as the program read it.
#[derive(Debug, PartialEq, Eq)]
enum Header {
    /// Number of its key slots.
    Slots(usize),
    /// Reason why it cannot be used, worded to stand after "the header is".
    Unusable(String),
}

/// Metadata of a LUKS2 header, as cryptsetup prints it.
#[derive(Debug, Deserialize)]
struct Metadata {
    keyslots: std::collections::BTreeMap<String, serde::de::IgnoredAny>,
}

/// Interprets the answer of `luksDump --dump-json-metadata`; None: it says nothing about the header. Pure.
fn header_of(output: &Output) -> Option<Header> {
    match output.code {
        Some(0) => Some(match serde_json::from_str::<Metadata>(&output.stdout) {
            Ok(metadata) => Header::Slots(metadata.keyslots.len()),
            Err(error) => Header::Unusable(format!("not understood ({error})")),
        }),
        Some(WRONG) => Some(Header::Unusable(format!(
            "damaged ({})",
            tools::excerpt(output)
        ))),
        _ => None,
    }
}

fn failed(action: &str, own: &Partition, output: &Output) -> FsError {
    FsError::Cryptsetup {
        action: action.to_owned(),
        device: own.device.clone(),
        output: tools::excerpt(output),
    }
}

/// Grows the mapped device of an open volume to the volume's own device, which has its new size already. Needs no secret.
pub(super) fn grow(
    backend: &dyn StageBackend,
    encryption: Encryption,
    device: &str,
    context: &mut Context,
) -> Result<(), FsError> {
    let args = ["resize", "--disable-locks", &encryption.mapping_name()].map(OsString::from);
    let output = tools::run_mapper(backend, CRYPTSETUP, args.into(), device, None, context)?;
    match output.code {
        Some(0) => Ok(()),
        _ => Err(FsError::Cryptsetup {
            action: "resize".to_owned(),
            device: device.to_owned(),
            output: tools::excerpt(&output),
        }),
    }
}

/// Removes the mapped device of a volume from the kernel; true if there was one.
///
/// # Errors
/// `MappingInUse`: it is open.
pub(super) fn close(uuid: Uuid, encryption: Encryption) -> Result<bool, FsError> {
    let failed = |source: std::io::Error| FsError::Io {
        what: "removing".to_owned(),
        path: encryption.mapping_name(),
        source: Cause::from(source),
    };
    match dm::remove_mapped(&encryption.dm_uuid()) {
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Err(FsError::MappingInUse {
            uuid,
            device: encryption.mapping_name(),
        }),
        done => done.map_err(failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::FsType;

    const HEADER: Uuid = Uuid::from_u128(7);

    fn found(kind: &str, uuid: Uuid) -> Signatures {
        Signatures::Found(vec![Signature {
            kind: kind.to_owned(),
            usage: "crypto".to_owned(),
            uuid: uuid.to_string(),
            label: String::new(),
            offset: None,
        }])
    }

    fn fs(mounted: bool) -> RecordState {
        RecordState::Fs {
            fs_type: FsType::Ext4,
            fs_uuid: Uuid::from_u128(8),
            mounted,
        }
    }

    #[test]
    fn a_header_is_made_only_where_none_ever_was() {
        for (state, made) in [
            (RecordState::New, Guard::Format),
            (fs(false), Guard::Format),
            (fs(true), Guard::Gone),
            (RecordState::Block, Guard::Gone),
        ] {
            assert_eq!(guard(&state, HEADER, &Signatures::Empty), made, "{state:?}");
            // The volume's own header is opened in any state, and another one never.
            let own = found("crypto_LUKS", HEADER);
            assert_eq!(guard(&state, HEADER, &own), Guard::Open);
            for other in [
                found("crypto_LUKS", Uuid::from_u128(9)),
                found("ext4", HEADER),
                Signatures::Ambiguous(vec![]),
            ] {
                let decided = guard(&state, HEADER, &other);
                assert!(matches!(decided, Guard::Unexpected(_)), "{other:?}");
            }
        }
    }

    #[test]
    fn a_program_that_was_killed_or_had_no_memory_says_nothing_about_a_header() {
        let answer = |code, stdout: &str| {
            header_of(&Output {
                code,
                stdout: stdout.to_owned(),
                stderr: "Device /dev/dm-3 is not a valid LUKS device.".to_owned(),
            })
        };
        let two = r#"{"keyslots":{"0":{"type":"luks2"},"1":{}},"segments":{}}"#;
        assert_eq!(answer(Some(0), two), Some(Header::Slots(2)));
        assert_eq!(
            answer(Some(0), r#"{"keyslots":{}}"#),
            Some(Header::Slots(0))
        );
        for (code, stdout) in [(Some(1), ""), (Some(0), "")] {
            let header = answer(code, stdout);
            assert!(matches!(header, Some(Header::Unusable(_))), "{header:?}");
        }
        for code in [None, Some(3), Some(4), Some(5)] {
            assert_eq!(answer(code, two), None, "{code:?}");
        }
    }

    #[test]
    fn a_record_whose_header_is_not_understood_makes_and_opens_nothing() {
        for probed in [Signatures::Empty, found("crypto_LUKS", Uuid::nil())] {
            let decided = guard(&RecordState::New, Uuid::nil(), &probed);
            assert!(matches!(decided, Guard::Unexpected(_)), "{probed:?}");
        }
    }
}
