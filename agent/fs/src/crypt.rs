//! Opens encrypted volumes with cryptsetup: LUKS2 on the volume's own device, and a mapped device over it.
//!
//! `guard` is the only place where making a header is decided: for a device that was probed and is Empty, or whose header was never
//! finished, of a volume that was never acknowledged as used. The header's UUID is in the record before that. Everything else is refused.
//!
//! The volume's key is random and made by cryptsetup. The secret opens two key slots, which lie apart, so that one bad sector loses neither.
//! The key is in the kernel's table of the mapped device, and not in a keyring of the process that opened it: so the device grows, and a
//! worker that ends leaves nothing behind.

use std::{collections::BTreeSet, ffi::OsString, path::Path};

use uuid::Uuid;

use super::{
    backend::StageBackend,
    device::{self, Partition, io_error},
    jobs::{CheckedSecret, FsError},
    luks::{CRYPTSETUP, Header, Luks, Slots, Tried},
    stage::describe,
    tools,
};
use drivebay_model::{
    DriveRef, Encryption, Mapping, Placed, RecordState, Secret, Signature, Signatures,
    StageSecrets, cause::chain, copied::Copied, encryption::HEADER_BYTES,
};
use drivebay_sys::dm::{self, DmDevice};
use drivebay_worker::Context;

/// Target of device-mapper, in the module dm-crypt.
const TARGET: &str = "crypt";
/// Key slots that the secret opens.
const SLOTS: usize = 2;
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
    CRYPTSETUP.missing()
}

/// A volume to open.
#[derive(Clone, Copy)]
pub(super) struct Opening<'a> {
    pub(super) backend: &'a dyn StageBackend,
    pub(super) drive: &'a DriveRef,
    pub(super) placed: &'a Placed,
    pub(super) encryption: Encryption,
    pub(super) secrets: &'a StageSecrets,
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
    /// The header of a copy, which still has its source's UUID, is there.
    Rename,
    /// There was a header, and there is none now.
    Gone,
    /// The device holds something else.
    Unexpected(String),
}

/// Decides from the record and a probe of the volume's own device. `copied`: the UUIDs that the header of a copy can have. Pure.
fn guard(state: &RecordState, header: Uuid, copied: &[Uuid], probed: &Signatures) -> Guard {
    let is = |one: &Signature, uuid: Uuid| {
        one.kind == SIGNATURE && !uuid.is_nil() && Uuid::parse_str(&one.uuid) == Ok(uuid)
    };
    let is_ours = |one: &Signature| is(one, header);
    let is_copied = |one: &Signature| !header.is_nil() && copied.iter().any(|uuid| is(one, *uuid));
    match probed {
        Signatures::Empty if was_used(state) => Guard::Gone,
        Signatures::Empty if header.is_nil() => {
            Guard::Unexpected("no header, and no UUID of one in its record".to_owned())
        }
        Signatures::Empty => Guard::Format,
        Signatures::Found(all) if matches!(all.as_slice(), [one] if is_ours(one)) => Guard::Open,
        Signatures::Found(all) if matches!(all.as_slice(), [one] if is_copied(one)) => {
            Guard::Rename
        }
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

/// Opens the volume, after making its header if there never was one, and changing its key slots to a new secret if the earlier one is given,
/// too. Does nothing more than verifying the secret if it is open. `own`: the device with the header. Returns the mapped device.
///
/// # Errors
/// `WrongSecret`: no key slot opens with it.
pub(super) fn open(
    opening: &Opening<'_>,
    own: Partition,
    context: &mut Context,
) -> Result<Partition, FsError> {
    let luks = opening.luks(&own);
    let StageSecrets { secret, previous } = opening.secrets;
    let state = &opening.placed.record.state;
    match opening.guard(&own, context)? {
        Guard::Format => opening.format(&luks, context)?,
        // Two headers with one UUID cannot be distinguished.
        Guard::Rename => luks.rename(opening.encryption.header, context)?,
        _ => {}
    }
    let slots = match luks.header(context)? {
        Header::Slots(slots) if !slots.all().is_empty() => slots.secret,
        // Without a key slot it was never open, and a volume that was never used holds nothing.
        _ if !was_used(state) => {
            opening.format(&luks, context)?;
            BTreeSet::from([0])
        }
        Header::Slots(_) => return Err(opening.damaged(&own, "without key slots")),
        Header::Unusable(why) => return Err(opening.damaged(&own, &why)),
    };
    if let Some(previous) = previous {
        opening.change_secret(&luks, previous, secret, context)?;
    }
    let uuid = opening.placed.record.uuid;
    let mapped = match opening.mapped(&own)? {
        Some(mapped) => {
            opening.unlock(&luks, None, context)?;
            if mapped.size_bytes < own.bytes.saturating_sub(HEADER_BYTES) {
                grow(opening.backend, opening.encryption, &own.device, context)?;
            }
            mapped
        }
        None => {
            let name = opening.encryption.mapping_name();
            opening.unlock(&luks, Some(&name), context)?;
            opening.mapped(&own)?.ok_or(FsError::NotOpen { uuid })?
        }
    };
    if slots.len() < SLOTS
        && previous.is_none()
        && let Err(error) = opening.add_slot(&luks, secret, secret, context)
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

/// Changes the secret of a volume that has a header, from the previous one; does nothing if it is changed. The volume may be in use.
///
/// # Errors
/// `WrongSecret`: neither of them opens it.
pub(super) fn rekey(opening: &Opening<'_>, context: &mut Context) -> Result<(), FsError> {
    let own = device::open(opening.drive, opening.placed)?;
    let luks = opening.existing(&own, context)?;
    let StageSecrets { secret, previous } = opening.secrets;
    let previous = previous.as_ref().unwrap_or(secret);
    opening.change_secret(&luks, previous, secret, context)
}

/// Verifies that the secret opens a volume that has a header, which may be in use.
///
/// # Errors
/// `WrongSecret`: it opens no key slot.
pub(super) fn check_secret(
    opening: &Opening<'_>,
    context: &mut Context,
) -> Result<CheckedSecret, FsError> {
    let own = device::open(opening.drive, opening.placed)?;
    let luks = opening.existing(&own, context)?;
    opening.unlock(&luks, None, context)?;
    let slots = opening.slots(&luks, context)?;
    let opened = opened_by(&luks, &opening.secrets.secret, &slots.all(), context)?;
    Ok(CheckedSecret {
        slots: u32::try_from(opened.len()).unwrap_or(u32::MAX),
        is_recovery_key: opened.iter().all(|slot| slots.recovery.contains_key(slot)),
        has_recovery_key: !slots.recovery.is_empty(),
    })
}

/// Adds a recovery key, and then removes earlier ones. Makes the header of a volume that has none yet.
///
/// # Errors
/// `WrongSecret`: the secret opens no key slot.
pub(super) fn add_recovery_key(
    opening: &Opening<'_>,
    recovery: &Secret,
    context: &mut Context,
) -> Result<(), FsError> {
    let own = device::open(opening.drive, opening.placed)?;
    let luks = opening.luks(&own);
    let secret = &opening.secrets.secret;
    if opening.guard(&own, context)? == Guard::Format {
        opening.format(&luks, context)?;
        opening.add_slot(&luks, secret, secret, context)?;
    }
    let earlier = opening.slots(&luks, context)?.recovery;
    let slot = opening.add_slot(&luks, secret, recovery, context)?;
    luks.mark_recovery(slot, context)?;
    let marked = opening.slots(&luks, context)?.recovery;
    if !marked.contains_key(&slot) {
        return Err(luks.unconfirmed("token import", "the header does not have it"));
    }
    for (slot, token) in earlier {
        luks.kill_slot(slot, recovery, context)?;
        luks.remove_token(token, context)?;
    }
    Ok(())
}

/// Returns the key slots that the secret opens, of these. Not among them: those that cannot be used.
///
/// # Errors
/// `Cryptsetup`: one of them could not be tried.
fn opened_by(
    luks: &Luks<'_>,
    secret: &Secret,
    slots: &BTreeSet<u32>,
    context: &mut Context,
) -> Result<BTreeSet<u32>, FsError> {
    let mut opened = BTreeSet::new();
    for slot in slots {
        match luks.test(Some(*slot), secret, context)? {
            Tried::Opens => {
                opened.insert(*slot);
            }
            Tried::WrongSecret => {}
            Tried::Failed(output) => return Err(luks.failed("open", &output)),
            Tried::Unusable(output) => {
                tracing::warn!(
                    device = luks.own.device,
                    slot,
                    output = tools::excerpt(&output),
                    "a key slot of an encrypted volume cannot be used"
                );
            }
        }
    }
    Ok(opened)
}

impl Opening<'_> {
    fn luks<'o>(&'o self, own: &'o Partition) -> Luks<'o> {
        Luks {
            backend: self.backend,
            own,
        }
    }

    /// Probes the volume's own device and decides about its header: `Format`, `Open` or `Rename`. Changes nothing.
    fn guard(&self, own: &Partition, context: &mut Context) -> Result<Guard, FsError> {
        context.step(&format!("probing {}", own.device));
        let uuid = self.placed.record.uuid;
        let probed = self.backend.probe(&own.node);
        let probed = probed.map_err(|source| FsError::Probe {
            uuid,
            device: own.device.clone(),
            source,
        })?;
        let (record, header) = (&self.placed.record, self.encryption.header);
        let copied = Copied::Header.of(&record.parameters);
        match guard(&record.state, header, &copied, &probed) {
            Guard::Gone => Err(self.damaged(own, "gone")),
            Guard::Unexpected(found) => Err(FsError::Unexpected {
                uuid,
                device: own.device.clone(),
                found,
                expected: format!("a LUKS2 header with UUID {header}"),
            }),
            decided => Ok(decided),
        }
    }

    /// Like `luks`, for a volume whose header was made.
    fn existing<'o>(
        &'o self,
        own: &'o Partition,
        context: &mut Context,
    ) -> Result<Luks<'o>, FsError> {
        match self.guard(own, context)? {
            Guard::Format => Err(self.not_formatted("a key")),
            _ => Ok(self.luks(own)),
        }
    }

    fn not_formatted(&self, requested: &str) -> FsError {
        FsError::Incompatible {
            uuid: self.placed.record.uuid,
            is: "not formatted yet".to_owned(),
            requested: requested.to_owned(),
        }
    }

    fn damaged(&self, own: &Partition, what: &str) -> FsError {
        FsError::HeaderDamaged {
            uuid: self.placed.record.uuid,
            device: own.device.clone(),
            what: what.to_owned(),
        }
    }

    fn wrong_secret(&self) -> FsError {
        FsError::WrongSecret {
            uuid: self.placed.record.uuid,
        }
    }

    fn mapped(&self, own: &Partition) -> Result<Option<DmDevice>, FsError> {
        dm::mapped_over(Path::new("/sys"), &own.device, &self.encryption.dm_uuid())
            .map_err(|error| io_error("finding what is mapped over", &own.node, error))
    }

    /// Makes the header with its first key slot, with a new random key.
    fn format(&self, luks: &Luks<'_>, context: &mut Context) -> Result<(), FsError> {
        if !self.may_format {
            return Err(self.not_formatted("read-only"));
        }
        luks.format(self.encryption.header, &self.secrets.secret, context)
    }

    fn slots(&self, luks: &Luks<'_>, context: &mut Context) -> Result<Slots, FsError> {
        match luks.header(context)? {
            Header::Slots(slots) => Ok(slots),
            Header::Unusable(why) => Err(self.damaged(luks.own, &why)),
        }
    }

    /// Adds a key slot for `new`, and opens it. Returns its number. `secret` opens one already.
    fn add_slot(
        &self,
        luks: &Luks<'_>,
        secret: &Secret,
        new: &Secret,
        context: &mut Context,
    ) -> Result<u32, FsError> {
        let before = self.slots(luks, context)?.all();
        match luks.add_slot(secret, new, context)? {
            Tried::Opens => {}
            Tried::WrongSecret => return Err(self.wrong_secret()),
            Tried::Unusable(output) | Tried::Failed(output) => {
                return Err(luks.failed("luksAddKey", &output));
            }
        }
        let after = self.slots(luks, context)?.all();
        let added: BTreeSet<u32> = after.difference(&before).copied().collect();
        let opened = opened_by(luks, new, &added, context)?;
        let slot = opened.first().copied();
        slot.ok_or_else(|| {
            luks.unconfirmed("luksAddKey", "the key slot that it added does not open")
        })
    }

    /// Makes `new` the secret that opens the volume, in `SLOTS` key slots, and destroys the other slots, but not those of recovery keys. Each
    /// new one is opened before an old one is destroyed, and each step can be repeated: meanwhile both secrets open the volume.
    fn change_secret(
        &self,
        luks: &Luks<'_>,
        previous: &Secret,
        new: &Secret,
        context: &mut Context,
    ) -> Result<(), FsError> {
        let slots = self.slots(luks, context)?.secret;
        let mut opened = opened_by(luks, new, &slots, context)?;
        if opened.len() == slots.len() && opened.len() >= SLOTS {
            return Ok(());
        }
        let opens = match opened.is_empty() {
            true => previous,
            false => new,
        };
        while opened.len() < SLOTS {
            opened.insert(self.add_slot(luks, opens, new, context)?);
        }
        for slot in self.slots(luks, context)?.secret.difference(&opened) {
            luks.kill_slot(*slot, new, context)?;
        }
        tracing::info!(volume = %self.placed.record.uuid, device = luks.own.device, "secret of an encrypted volume changed");
        Ok(())
    }

    /// Opens the volume with the secret, as this mapped device; None: only verifies the secret.
    fn unlock(
        &self,
        luks: &Luks<'_>,
        name: Option<&str>,
        context: &mut Context,
    ) -> Result<(), FsError> {
        let secret = &self.secrets.secret;
        // An unreadable key slot ends the program's search; each is then tried by itself.
        let first = self.try_slot(luks, None, name, secret, context)?;
        let output = match first {
            Tried::Opens => return Ok(()),
            Tried::WrongSecret => return Err(self.wrong_secret()),
            Tried::Unusable(output) | Tried::Failed(output) => output,
        };
        let mut is_wrong = false;
        for slot in self.slots(luks, context)?.all() {
            match self.try_slot(luks, Some(slot), name, secret, context)? {
                Tried::Opens => {
                    tracing::error!(volume = %self.placed.record.uuid, device = luks.own.device, output = tools::excerpt(&output), "a key slot of an encrypted volume cannot be used; it was opened by another one");
                    return Ok(());
                }
                Tried::WrongSecret => is_wrong = true,
                Tried::Unusable(_) | Tried::Failed(_) => {}
            }
        }
        match is_wrong {
            true => Err(self.wrong_secret()),
            false => Err(luks.failed("open", &output)),
        }
    }

    fn try_slot(
        &self,
        luks: &Luks<'_>,
        slot: Option<u32>,
        name: Option<&str>,
        secret: &Secret,
        context: &mut Context,
    ) -> Result<Tried, FsError> {
        match name {
            Some(name) => luks.open(slot, name, secret, context),
            None => luks.test(slot, secret, context),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::FsType;

    const HEADER: Uuid = Uuid::from_u128(7);
    /// The header of the source of a copy.
    const COPIED: Uuid = Uuid::from_u128(6);

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
            assert_eq!(
                guard(&state, HEADER, &[COPIED], &Signatures::Empty),
                made,
                "{state:?}"
            );
            // The volume's own header is opened in any state, and another one never.
            let own = found("crypto_LUKS", HEADER);
            assert_eq!(guard(&state, HEADER, &[COPIED], &own), Guard::Open);
            let copied = found("crypto_LUKS", COPIED);
            assert_eq!(guard(&state, HEADER, &[COPIED], &copied), Guard::Rename);
            for other in [
                found("crypto_LUKS", Uuid::from_u128(9)),
                found("ext4", HEADER),
                Signatures::Ambiguous(vec![]),
            ] {
                let decided = guard(&state, HEADER, &[COPIED], &other);
                assert!(matches!(decided, Guard::Unexpected(_)), "{other:?}");
            }
        }
    }

    #[test]
    fn a_record_whose_header_is_not_understood_makes_and_opens_nothing() {
        for probed in [
            Signatures::Empty,
            found("crypto_LUKS", Uuid::nil()),
            found("crypto_LUKS", COPIED),
        ] {
            let decided = guard(&RecordState::New, Uuid::nil(), &[COPIED], &probed);
            assert!(matches!(decided, Guard::Unexpected(_)), "{probed:?}");
        }
    }
}
