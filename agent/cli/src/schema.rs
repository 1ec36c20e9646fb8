//! `drivebay-agent schema`: the JSON Schema of a command's output, generated from its types. Pure.

use clap::ValueEnum;
use drivebay_view::{moves::list::MoveList, show::VolumeSheet, wrong::Health};
use schemars::generate::SchemaSettings;

use super::{
    claim_plan::Plan, drives::DriveList, erased::ErasedList, health::DriveWithLatency,
    snapshots::SnapshotList, volumes::VolumeList,
};

/// A command with `-o json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Of {
    /// drives
    Drives,
    /// volumes
    #[value(alias = "volume-list")]
    Volumes,
    /// health
    Health,
    /// drive show
    DriveShow,
    /// volume show, create and expand
    VolumeShow,
    /// claim-plan
    ClaimPlan,
    /// moves
    Moves,
    /// volume erased
    VolumeErased,
    /// snapshots, and snapshot create of several volumes
    #[value(alias = "snapshot-list")]
    Snapshots,
}

/// Returns the JSON Schema (draft 2020-12) of the command's `-o json` output, indented, with a newline at the end.
pub fn render(of: Of) -> serde_json::Result<String> {
    let generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    let schema = match of {
        Of::Drives => generator.into_root_schema_for::<DriveList<'_>>(),
        Of::Volumes => generator.into_root_schema_for::<VolumeList<'_>>(),
        Of::Health => generator.into_root_schema_for::<Health>(),
        Of::DriveShow => generator.into_root_schema_for::<DriveWithLatency<'_>>(),
        Of::VolumeShow => generator.into_root_schema_for::<VolumeSheet<'_>>(),
        Of::Snapshots => generator.into_root_schema_for::<SnapshotList<'_>>(),
        Of::VolumeErased => generator.into_root_schema_for::<ErasedList<'_>>(),
        Of::Moves => generator.into_root_schema_for::<MoveList<'_>>(),
        Of::ClaimPlan => generator.into_root_schema_for::<Plan<'_>>(),
    };
    Ok(serde_json::to_string_pretty(&schema)? + "\n")
}
