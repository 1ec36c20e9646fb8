//! `volume erase-now` and `volume restore`: end a quarantine.

use drivebay_common::pick::Part;
use drivebay_proto::{
    agent::{EndQuarantineRequest, InventoryUpdate, Volume},
    words::VolumeState,
};

use super::{
    args::QuarantineArgs,
    client::Client,
    manual::{DELETE_DEADLINE, ManualError, described},
    name,
    table::printable,
};

/// The two ends of a quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Erase,
    Restore,
}

/// Next step for a volume.
#[derive(Debug)]
enum Step<'a> {
    /// The request is confirmed.
    Do(&'a Volume),
    /// Already done; the text to print.
    Done(String),
}

/// Ends the quarantine if confirmed, and returns the text to print. Errs with a preview if `confirm` is None.
pub async fn end(args: &QuarantineArgs, end: End) -> Result<String, ManualError> {
    let mut client = Client::connect(&args.socket.socket).await?;
    let inventory = client.inventory().await?;
    let volume = match step(&inventory, &args.name, args.confirm.as_deref(), end)? {
        Step::Do(volume) => volume,
        Step::Done(text) => return Ok(text),
    };
    let name = printable(&volume.name);
    let request = EndQuarantineRequest {
        id: volume.id.clone(),
    };
    Ok(match end {
        End::Erase => {
            let call = client.manual_volumes.erase_quarantined(request);
            client.agent.answered_within(DELETE_DEADLINE, call).await?;
            format!("volume {name} is being erased; its space is offered again afterwards\n")
        }
        End::Restore => {
            let call = client.manual_volumes.restore_volume(request);
            client.agent.answered_within(DELETE_DEADLINE, call).await?;
            format!("volume {name} is restored: {}\n", described(volume))
        }
    })
}

/// Returns the next step for the volume of this name; a quarantined one takes precedence over a live one. Pure.
fn step<'a>(
    inventory: &'a InventoryUpdate,
    named: &str,
    confirm: Option<&str>,
    end: End,
) -> Result<Step<'a>, ManualError> {
    let quarantined = |volume: &&Volume| volume.known_state() == Some(VolumeState::Quarantined);
    let called = |volume: &&Volume| {
        let uuid = volume.id.split('@').next();
        volume.name == named || volume.id == named || uuid == Some(named)
    };
    let all = inventory.volumes.iter();
    let volume = match all.filter(quarantined).filter(called).collect::<Vec<_>>()[..] {
        [volume] => volume,
        _ => match name::volume(inventory, named, Part::Whole) {
            Ok(volume) => volume,
            Err(error) if error.is_none() && end == End::Erase => {
                let text = format!("there is no volume {named:?}; nothing to erase\n");
                return Ok(Step::Done(text));
            }
            Err(error) if error.is_none() => {
                return Err(ManualError::NoSuchVolume(named.to_owned()));
            }
            Err(error) => return Err(error.into()),
        },
    };
    let name = printable(&volume.name);
    match (volume.known_state(), end) {
        (Some(VolumeState::Quarantined), _) => {}
        (Some(VolumeState::Erasing), End::Erase) => {
            return Ok(Step::Done(format!("volume {name} is being erased\n")));
        }
        (Some(VolumeState::Erasing), End::Restore) => return Err(ManualError::Erasing(name)),
        (_, End::Erase) => return Err(ManualError::NotQuarantined(name)),
        (_, End::Restore) => {
            let text = format!("volume {name} is in no quarantine; nothing to restore\n");
            return Ok(Step::Done(text));
        }
    }
    if end == End::Erase && volume.published {
        return Err(ManualError::InUse {
            name,
            at: volume.mounts.clone(),
        });
    }
    match confirm {
        Some(typed) if typed == volume.name => Ok(Step::Do(volume)),
        Some(typed) => Err(ManualError::WrongConfirmation {
            typed: typed.to_owned(),
            name: volume.name.clone(),
        }),
        None => {
            let (what, command) = match end {
                End::Erase => ("erasing destroys what is in this volume:", "erase-now"),
                End::Restore => (
                    "this volume was deleted, and is live again afterwards:",
                    "restore",
                ),
            };
            Err(ManualError::NotConfirmed(format!(
                "{what}\n\n  volume  {name} ({})\n  id      {}\n\nNothing was changed. To do it, spell out its name:\n\n  drivebay-agent volume {command} {} --confirm {name}",
                described(volume),
                printable(&volume.id),
                printable(named),
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use drivebay_common::cli::{NOT_FOUND, USAGE, WRONG};

    use super::*;

    fn inventory(volumes: &[(&str, &str, &str)]) -> InventoryUpdate {
        let volumes = volumes.iter().map(|(name, uuid, state)| Volume {
            name: (*name).into(),
            id: format!("{uuid}@n1"),
            state: (*state).into(),
            ..Volume::default()
        });
        InventoryUpdate {
            volumes: volumes.collect(),
            ..InventoryUpdate::default()
        }
    }

    #[test]
    fn only_a_quarantined_volume_whose_name_is_confirmed_is_changed_and_a_repeat_succeeds() {
        let all = inventory(&[
            ("db", "1", "quarantined"),
            ("db", "2", "ready"),
            ("old", "3", "erasing"),
            ("live", "4", "ready"),
        ]);
        for end in [End::Erase, End::Restore] {
            for named in ["db", "1", "1@n1"] {
                let done = step(&all, named, Some("db"), end);
                assert!(matches!(done, Ok(Step::Do(volume)) if volume.id == "1@n1"));
                for confirm in [None, Some("d"), Some("")] {
                    assert_eq!(step(&all, named, confirm, end).unwrap_err().code(), USAGE);
                }
            }
        }
        let message = step(&all, "db", None, End::Restore)
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("volume restore db --confirm db"),
            "{message}"
        );
        let erase = |named| step(&all, named, Some(named), End::Erase);
        let restore = |named| step(&all, named, Some(named), End::Restore);
        assert!(matches!(erase("old"), Ok(Step::Done(_))));
        assert!(matches!(erase("none"), Ok(Step::Done(_))));
        assert_eq!(erase("live").unwrap_err().code(), WRONG);
        assert!(matches!(restore("live"), Ok(Step::Done(_))));
        assert_eq!(restore("old").unwrap_err().code(), WRONG);
        assert_eq!(restore("none").unwrap_err().code(), NOT_FOUND);
    }

    #[test]
    fn one_in_use_is_restored_and_not_erased() {
        let mut all = inventory(&[("db", "1", "quarantined")]);
        all.volumes[0].published = true;
        all.volumes[0].mounts = vec!["/srv/db".into()];
        let error = step(&all, "db", Some("db"), End::Erase).unwrap_err();
        assert!(error.to_string().contains("at /srv/db"), "{error}");
        assert!(step(&all, "db", Some("db"), End::Restore).is_ok());
    }
}
