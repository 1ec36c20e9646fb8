//! `drivebay-agent volume prefer`: selects the place of a volume that is served.

use std::{fmt::Write as _, time::Duration};

use drivebay_common::{
    cli::{NOBODY, USAGE, operator},
    pick::{Part, PickError},
    query::QueryError,
};
use drivebay_proto::agent::{PreferPlaceRequest, Volume};

use super::{
    args::PreferArgs,
    client::Client,
    name,
    table::{human_size, printable},
};

/// Limit of the call, in which the agent writes to that drive.
const DEADLINE: Duration = Duration::from_secs(60);

/// Error of `volume prefer`. Nothing was changed, except possibly after `Client`.
#[derive(Debug, thiserror::Error)]
pub enum PreferError {
    #[error(transparent)]
    Client(#[from] QueryError),
    #[error(transparent)]
    Pick(#[from] PickError),
    /// No confirmation was given; the text is the preview.
    #[error("{0}")]
    NotConfirmed(String),
    #[error("--confirm says {typed:?}, but the id of volume {name} is {id:?}; nothing was changed")]
    WrongConfirmation {
        typed: String,
        name: String,
        id: String,
    },
    #[error("{NOBODY}")]
    Nobody,
}

impl PreferError {
    /// Returns the exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Client(error) => error.code(),
            Self::Pick(error) => error.code(),
            Self::NotConfirmed(_) | Self::WrongConfirmation { .. } | Self::Nobody => USAGE,
        }
    }
}

/// Selects the place if the volume's id is confirmed, and returns the text to print. Errs with a preview if `confirm` is None.
pub(super) async fn run(args: &PreferArgs) -> Result<String, PreferError> {
    let mut client = Client::connect(&args.socket.socket).await?;
    let inventory = client.inventory().await?;
    let volume = name::volume(&inventory, &args.volume, Part::Whole)?;
    let drive = name::drive(&inventory, &args.drive, Part::Whole)?;
    confirmed(volume, &drive.id, args.confirm.as_deref())?;
    let request = PreferPlaceRequest {
        volume_id: volume.id.clone(),
        drive: drive.id.clone(),
        by: operator(args.by.as_deref()).ok_or(PreferError::Nobody)?,
    };
    let call = client.raw.prefer_place(request);
    let answer = client.agent.answered_within(DEADLINE, call).await?;
    let answer = answer.into_inner();
    Ok(format!(
        "volume {} is served from drive {} now, generation {}\n",
        printable(&volume.name),
        printable(&answer.drive),
        answer.generation
    ))
}

/// Errs unless `confirm` is the volume's id; with a preview if it is None. Pure.
fn confirmed(volume: &Volume, drive: &str, confirm: Option<&str>) -> Result<(), PreferError> {
    match confirm {
        Some(typed) if typed == volume.id => Ok(()),
        Some(typed) => Err(PreferError::WrongConfirmation {
            typed: typed.to_owned(),
            name: volume.name.clone(),
            id: volume.id.clone(),
        }),
        None => Err(PreferError::NotConfirmed(shown(volume, drive))),
    }
}

fn shown(volume: &Volume, drive: &str) -> String {
    let (name, id) = (printable(&volume.name), printable(&volume.id));
    let drive = printable(drive);
    let mut text = format!(
        "volume {name} ({}) would be served from drive {drive} from now on. What was written to it elsewhere is not there, and is lost:\n\n",
        human_size(volume.size_bytes)
    );
    let first = format!("{}: {}", volume.drive, volume.state);
    let places = volume.places.iter();
    let places = places.map(|place| format!("{}: {}", place.drive, place.describe()));
    for place in std::iter::once(first).chain(places) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  drive {}", printable(&place));
    }
    let _ = write!(
        text,
        "\nNothing was changed. To decide so, spell out the volume's id:\n\n  drivebay-agent volume prefer {id} --drive {drive} --confirm {id}"
    );
    text
}

#[cfg(test)]
mod tests {
    use drivebay_proto::agent::VolumePlace;

    use super::*;

    #[test]
    fn a_place_is_preferred_only_with_the_volumes_id_spelled_out() {
        let volume = Volume {
            id: "v@n".into(),
            name: "db".into(),
            drive: "wwn-a".into(),
            state: "ambiguous".into(),
            size_bytes: 1 << 30,
            places: vec![VolumePlace {
                drive: "wwn-b".into(),
                is: "incoming".into(),
                generation: 2,
            }],
            ..Volume::default()
        };
        assert!(confirmed(&volume, "wwn-b", Some("v@n")).is_ok());
        for typed in ["", "db", "v"] {
            let error = confirmed(&volume, "wwn-b", Some(typed)).unwrap_err();
            assert_eq!(error.code(), USAGE);
            assert!(error.to_string().contains("nothing was changed"), "{error}");
        }
        let error = confirmed(&volume, "wwn-b", None).unwrap_err();
        assert_eq!(error.code(), USAGE);
        assert_eq!(
            error.to_string(),
            "\
volume db (1 GiB) would be served from drive wwn-b from now on. What was written to it elsewhere is not there, and is lost:

  drive wwn-a: ambiguous
  drive wwn-b: incoming, generation 2

Nothing was changed. To decide so, spell out the volume's id:

  drivebay-agent volume prefer v@n --drive wwn-b --confirm v@n"
        );
    }
}
