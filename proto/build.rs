//! Compiles the protocol files, without needing protoc on the machine.

use tonic_prost_build::Builder;

/// Messages that command lines print as JSON and YAML, in the order of their fields in the .proto file, each with the fields whose printed
/// form differs from the message.
type Printed = &'static [(&'static str, &'static [(&'static str, &'static str)])];

const AGENT: Printed = &[
    ("Drive", &[]),
    ("Cordon", &[]),
    ("Reject", &[]),
    (
        "DriveHealth",
        &[("unreadable", UNLESS_EMPTY), ("unreadable_more", LEFT_OUT)],
    ),
    ("UnreadableRange", &[]),
    ("Finding", &[("since", OR_NULL)]),
    ("Overridden", &[("until", OR_NULL)]),
    (
        "SmartReport",
        &[
            ("answered_at", OR_NULL),
            ("verdict_since", OR_NULL),
            ("readings", BY_NAME),
        ],
    ),
    ("SmartFinding", &[("threshold", OR_NULL)]),
    ("Acknowledged", &[("until", OR_NULL)]),
    ("Condition", &[("since", OR_NULL)]),
    (
        "Volume",
        &[
            ("published", r#"#[serde(rename = "in_use")]"#),
            ("erase_eta_seconds", OR_NULL),
            ("created_at", OR_NULL),
            ("unreadable", UNLESS_EMPTY),
            ("generation", OR_NULL),
            ("snapshots", UNLESS_EMPTY),
            ("source_snapshot", UNLESS_EMPTY_TEXT),
            ("source_volume", UNLESS_EMPTY_TEXT),
        ],
    ),
    ("VolumePlace", &[]),
    (
        "VolumeSnapshot",
        &[
            ("used_bytes", UNLESS_NONE),
            ("expires_at", OR_NULL),
            ("group", UNLESS_NONE),
        ],
    ),
    ("SnapshotGroup", &[]),
    (
        "VolumeCopy",
        &[
            ("volume_id", r#"#[serde(rename = "volume")]"#),
            ("source_snapshot", UNLESS_EMPTY_TEXT),
            ("source_volume", UNLESS_EMPTY_TEXT),
            ("bytes_per_second", OR_NULL),
            ("eta_seconds", OR_NULL),
        ],
    ),
    ("VolumeUsage", &[]),
    ("ErasedVolume", &[]),
    ("ErasureReceipt", &[]),
    ("CreatedFor", &[]),
    ("FilesystemCheck", &[]),
    ("RunningCheck", &[]),
    (
        "HandMount",
        &[
            ("volume_id", r#"#[serde(rename = "volume")]"#),
            ("mount_flags", r#"#[serde(rename = "options")]"#),
            ("key_file", UNLESS_EMPTY_TEXT),
        ],
    ),
    (
        "DriveLatencyResponse",
        &[("at", OR_NULL), ("read", OR_ZEROS), ("write", OR_ZEROS)],
    ),
    (
        "Move",
        &[
            ("volume_id", r#"#[serde(rename = "volume")]"#),
            ("bytes_per_second", OR_NULL),
            ("eta_seconds", OR_NULL),
            ("requested_at", OR_NULL),
        ],
    ),
    ("NotEvacuated", &[]),
    ("DirectionLatency", &[("history_ms", EACH_OR_NULL)]),
    ("Slowdown", &[]),
    ("Class", &[]),
];

const CONTROLLER: Printed = &[
    (
        "Node",
        &[
            ("node_id", r#"#[serde(rename = "node")]"#),
            ("history", LEFT_OUT),
            ("findings", OF_HOST),
        ],
    ),
    ("Connection", &[]),
];

const OR_NULL: &str =
    r#"#[serde(serialize_with = "crate::json::or_null")] #[schemars(with = "Option<u64>")]"#;
const EACH_OR_NULL: &str = r#"#[serde(serialize_with = "crate::json::each_or_null")] #[schemars(with = "Vec<Option<f64>>")]"#;
const OR_ZEROS: &str =
    r#"#[serde(serialize_with = "crate::json::or_zeros")] #[schemars(with = "DirectionLatency")]"#;
const BY_NAME: &str = r#"#[serde(serialize_with = "crate::json::by_name")]
    #[schemars(with = "std::collections::BTreeMap<String, i64>")]"#;
const OF_HOST: &str = r#"#[serde(serialize_with = "crate::json::of_host")]"#;
const UNLESS_EMPTY: &str = r#"#[serde(skip_serializing_if = "Vec::is_empty")]"#;
const UNLESS_NONE: &str = r#"#[serde(skip_serializing_if = "Option::is_none")]"#;
const UNLESS_EMPTY_TEXT: &str = r#"#[serde(skip_serializing_if = "String::is_empty")]"#;
const LEFT_OUT: &str = "#[serde(skip)]";

/// Returns a code generator whose messages can be printed.
fn printing() -> Builder {
    let schema = "#[derive(serde::Serialize, schemars::JsonSchema)]";
    let mut builder = tonic_prost_build::configure()
        .build_transport(true)
        .btree_map(".drivebay.agent.v1.Volume.parameters");
    for (package, derive, messages) in [
        (".drivebay.agent.v1", schema, AGENT),
        (
            ".drivebay.controller.v1",
            "#[derive(serde::Serialize)]",
            CONTROLLER,
        ),
    ] {
        for (message, fields) in messages {
            let message = format!("{package}.{message}");
            builder = builder.type_attribute(&message, derive);
            for (field, attribute) in *fields {
                builder = builder.field_attribute(format!("{message}.{field}"), attribute);
            }
        }
    }
    builder
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let alone = [
        "csi/v1/csi.proto",
        "agent/v1/agent.proto",
        "agent/v1/manual_volumes.proto",
        "log/v1/log.proto",
        "pluginregistration/v1/api.proto",
    ];
    // Its messages contain the agent's.
    let over_agents = "controller/v1/controller.proto";
    for file in alone.iter().chain([&over_agents]) {
        println!("cargo::rerun-if-changed={file}");
    }
    // Extensions of descriptors (csi_secret and others) are for readers; no code is generated for them.
    printing().compile_fds(protox::compile(alone, ["."])?)?;
    // In its own directory, since its file for the agent's package, without messages, would overwrite the first one.
    let folder = std::path::PathBuf::from(std::env::var("OUT_DIR")?).join("over_agents");
    std::fs::create_dir_all(&folder)?;
    printing()
        .out_dir(folder)
        .extern_path(".drivebay.agent.v1", "crate::agent")
        .compile_fds(protox::compile([over_agents], ["."])?)?;
    // The Controller service again, for a server whose lists have entries that are encoded already.
    let mut csi = protox::compile(["csi/v1/csi.proto"], ["."])?;
    for file in &mut csi.file {
        file.service
            .retain(|service| service.name() == "Controller");
        // Comments refer to services by index, which has changed.
        file.source_code_info = None;
    }
    let folder = std::path::PathBuf::from(std::env::var("OUT_DIR")?).join("encoded");
    std::fs::create_dir_all(&folder)?;
    tonic_prost_build::configure()
        .build_client(false)
        .out_dir(folder)
        .extern_path(
            ".csi.v1.ListVolumesResponse",
            "crate::encoded::ListVolumesResponse",
        )
        .extern_path(".csi.v1", "crate::csi")
        .compile_fds(csi)?;
    Ok(())
}
