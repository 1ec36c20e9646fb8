//! `volume erased`: the volumes that were erased on this host, and their receipts.

use std::path::Path;

use drivebay_common::{
    cli::{NOT_FOUND, WRONG},
    query::QueryError,
    table::{Align, Table},
};
use drivebay_proto::agent::{ErasedVolume, ListErasedRequest, ListErasedResponse};
use schemars::JsonSchema;
use serde::Serialize;
use time::OffsetDateTime;

use super::{
    args::Format,
    client::Client,
    table::{human_size, printable},
};

/// Error of `volume erased`.
#[derive(Debug, thiserror::Error)]
pub enum ErasedError {
    #[error(transparent)]
    Client(#[from] QueryError),
    #[error(
        "no volume {0:?} was erased on this host, as far as it knows; `drivebay-agent volume erased` lists all"
    )]
    None(String),
    #[error("several erased volumes are named {name:?}; name one by its uuid: {uuids}")]
    Several { name: String, uuids: String },
    #[error("the receipt of volume {0} is not signed: this host has no key for that yet")]
    NotSigned(String),
    #[error("cannot write the answer as JSON")]
    Json(#[from] serde_json::Error),
}

impl ErasedError {
    /// Returns the exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Client(error) => error.code(),
            Self::None(_) => NOT_FOUND,
            Self::Several { .. } | Self::NotSigned(_) | Self::Json(_) => WRONG,
        }
    }
}

/// Output of `volume erased -o json`. Field names are stable; sizes are bytes, times Unix seconds.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ErasedList<'a> {
    /// In the order of their erasure; a volume that was moved is there once for each drive.
    volumes: &'a [ErasedVolume],
}

/// Returns the text to print. `receipt`: the signed receipts of the volume, as JSON in any format.
pub(super) async fn run(
    socket: &Path,
    name: Option<&str>,
    receipt: bool,
    format: Format,
) -> Result<String, ErasedError> {
    let mut client = Client::connect(socket).await?;
    let all = list(&mut client, String::new()).await?.volumes;
    let Some(name) = name else {
        return render(&all, format);
    };
    let meant: Vec<ErasedVolume> = all
        .into_iter()
        .filter(|one| one.name == name || one.uuid == name)
        .collect();
    let Some(first) = meant.first() else {
        return Err(ErasedError::None(name.to_owned()));
    };
    if !receipt {
        return render(&meant, format);
    }
    // A volume that was moved is there once for each drive.
    if meant.iter().any(|one| one.uuid != first.uuid) {
        let mut uuids: Vec<&str> = meant.iter().map(|one| one.uuid.as_str()).collect();
        uuids.dedup();
        return Err(ErasedError::Several {
            name: name.to_owned(),
            uuids: uuids.join(", "),
        });
    }
    let receipts = list(&mut client, first.uuid.clone()).await?.receipts;
    match receipts.is_empty() {
        true => Err(ErasedError::NotSigned(printable(name))),
        false => Ok(serde_json::to_string_pretty(&receipts)? + "\n"),
    }
}

async fn list(client: &mut Client, volume: String) -> Result<ListErasedResponse, ErasedError> {
    let request = ListErasedRequest { volume };
    let call = client.manual_volumes.list_erased(request);
    Ok(client.agent.answered(call).await?.into_inner())
}

fn render(erased: &[ErasedVolume], format: Format) -> Result<String, ErasedError> {
    match format.document() {
        Some(document) => Ok(document.write(&ErasedList { volumes: erased })?),
        None => Ok(table(erased)),
    }
}

fn table(erased: &[ErasedVolume]) -> String {
    if erased.is_empty() {
        return "no volume was erased on this host, as far as it knows\n".to_owned();
    }
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("ERASED", Align::Left),
        ("SIZE", Align::Right),
        ("SERIAL", Align::Left),
        ("CLAIM", Align::Left),
        ("UUID", Align::Left),
    ]);
    for one in erased {
        let dash = |text: &str| match text {
            "" => "-".to_owned(),
            text => printable(text),
        };
        let cells = vec![
            printable(&one.name),
            day_and_time(one.erased_at),
            human_size(one.bytes),
            dash(&one.serial),
            dash(&one.claim),
            printable(&one.uuid),
        ];
        table.row(cells, Vec::new());
    }
    table.render()
}

/// Returns the time in UTC, to the minute.
fn day_and_time(unix_seconds: u64) -> String {
    let at = i64::try_from(unix_seconds).ok();
    let at = at.and_then(|at| OffsetDateTime::from_unix_timestamp(at).ok());
    let at = at.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    format!("{} {:02}:{:02}Z", at.date(), at.hour(), at.minute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_erased_volume_is_a_row_with_its_time_and_its_drives_serial_number() {
        let one = ErasedVolume {
            uuid: "00000000-0000-4000-8000-000000000001".into(),
            name: "pvc-1".into(),
            claim: "shop/data".into(),
            drive: "wwn-a".into(),
            serial: "S1".into(),
            bytes: 1 << 30,
            erased_at: 1_796_000_000,
            encrypted: false,
        };
        let erased = [one];
        let text = table(&erased);
        for part in ["pvc-1", "2026-11-30", "1 GiB", "S1", "shop/data"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let json = render(&erased, Format::Json).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["volumes"][0]["erased_at"], 1_796_000_000);
        assert!(table(&[]).contains("no volume"));
    }
}
