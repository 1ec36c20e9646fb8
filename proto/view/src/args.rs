//! Options that both command lines share.

use clap::{Args, ValueEnum};
use drivebay_proto::agent::{Drive, LocateDriveResponse};

pub mod drive;
pub mod moves;

use super::{
    document::Document,
    kube::{self, ClaimRef},
    table::printable,
};

/// State to which a drive's light is switched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Light {
    On,
    Off,
}

impl Light {
    pub fn is_on(self) -> bool {
        self == Self::On
    }

    /// Returns a message with the drive, its bay, the light's state, and the method that switched it.
    pub fn outcome(self, drive: &Drive, answer: &LocateDriveResponse) -> String {
        let light = if self.is_on() { "on" } else { "off" };
        let bay = match drive.bay().as_str() {
            "" => String::new(),
            bay => format!(" ({bay})"),
        };
        printable(&format!(
            "the light of drive {}{bay} is {light}, by {}",
            answer.drive, answer.by
        )) + "\n"
    }
}

/// Returns the filter for the log service: None to query it, empty to reset it.
pub fn log_filter(level: Option<&str>) -> Option<&str> {
    level.map(|level| if level == "reset" { "" } else { level })
}

/// Output format of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Table
    Table,
    /// Table with all columns
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

impl Format {
    /// Returns the format for programs; None for a table.
    pub fn document(self) -> Option<Document> {
        match self {
            Self::Json => Some(Document::Json),
            Self::Yaml => Some(Document::Yaml),
            Self::Table | Self::Wide => None,
        }
    }
}

/// Output format of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// Table, with fewer columns on a narrow terminal
    Table,
    /// Table with all columns
    Wide,
    /// JSON, with stable field names and sizes in bytes
    Json,
    /// YAML, with the same fields as JSON
    Yaml,
    /// Names only, one per line
    Name,
}

impl ListFormat {
    /// True if it shows every column.
    pub fn is_wide(self) -> bool {
        self == Self::Wide
    }

    /// Returns the format for programs; None for a table or names.
    pub fn document(self) -> Option<Document> {
        match self {
            Self::Json => Some(Document::Json),
            Self::Yaml => Some(Document::Yaml),
            Self::Table | Self::Wide | Self::Name => None,
        }
    }
}

/// Output options of a list.
#[derive(Debug, Clone, Args)]
pub struct ListArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t = ListFormat::Table)]
    pub output: ListFormat,
    /// Omit the header and notes
    #[arg(long)]
    pub no_headers: bool,
}

/// Sort key of a list of drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DriveSort {
    /// Kernel name
    Device,
    /// Largest first
    Size,
    /// Most free first
    Free,
    /// Class
    Class,
    /// State
    State,
    /// Worst first
    Health,
    /// Hottest first
    Temperature,
    /// Most worn first
    Wear,
}

/// Sort key of a list of volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum VolumeSort {
    /// Name
    Name,
    /// Class
    Class,
    /// Drive
    Drive,
    /// Largest first
    Size,
    /// Most used first
    Used,
    /// Fullest first
    Full,
    /// Oldest first
    Age,
    /// Worst first
    Condition,
}

/// For whom a PersistentVolume is, and how it is printed.
#[derive(Debug, Args)]
pub struct PvClaimArgs {
    /// Claim to reserve it for
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = kube::claim_ref)]
    pub pvc: Option<ClaimRef>,
    /// The claim's StorageClass
    #[arg(long, value_name = "NAME", value_parser = kube::subdomain)]
    pub storage_class: Option<String>,
    /// Output format; instructions are printed to stderr
    #[arg(short, long, value_enum, default_value_t = PvFormat::Json)]
    pub output: PvFormat,
}

/// Output format of a manifest for kubectl.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PvFormat {
    /// JSON
    Json,
    /// YAML
    Yaml,
}

impl PvFormat {
    /// Returns the format for programs.
    pub fn document(self) -> Document {
        match self {
            Self::Json => Document::Json,
            Self::Yaml => Document::Yaml,
        }
    }
}
