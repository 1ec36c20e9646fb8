//! Nomad's request in its variables. Names and parameters come from users who may create volumes in Nomad, so they are validated, and not
//! used in paths or volume names.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use drivebay_csi::validate::{self, InvalidRequest};
use drivebay_proto::agent::CreatedFor;
use drivebay_view::args::Format;
use serde::Deserialize;
use uuid::Uuid;

use crate::args::{CreateArgs, Show, SocketArg};
use drivebay_config::DEFAULT_AGENT_SOCKET;

/// A variable is invalid.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("{0} is not set; this program is executed by Nomad")]
    NotSet(&'static str),
    #[error("{variable} is not usable: {text:?}")]
    Unusable {
        variable: &'static str,
        text: String,
    },
    #[error("capacity_min and capacity_max are needed: a volume has a size of its own")]
    NoSize,
    #[error(
        "parameters are not usable; they are class, fsType, mkfsOptions, mountOptions, uid, gid, mode"
    )]
    Parameters(#[from] serde_json::Error),
    #[error("parameters: {name} {text:?} is not usable")]
    Number { name: &'static str, text: String },
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
}

/// A volume of Nomad.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Name on the drive, derived from Nomad's id: `delete` may be called without Nomad's name.
    pub volume: String,
    /// Mount point, an absolute path: the directory of the volume's uuid in Nomad's `DHV_VOLUMES_DIR`.
    pub at: PathBuf,
}

impl Target {
    /// Reads the variables of any operation.
    pub fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, RequestError> {
        let id = text(&variable, "DHV_VOLUME_ID")?;
        let uuid = Uuid::try_parse(&id).map_err(|_| RequestError::Unusable {
            variable: "DHV_VOLUME_ID",
            text: id,
        })?;
        let dir = text(&variable, "DHV_VOLUMES_DIR")?;
        if !Path::new(&dir).is_absolute() {
            return Err(RequestError::Unusable {
                variable: "DHV_VOLUMES_DIR",
                text: dir,
            });
        }
        Ok(Self {
            volume: format!("nomad-{uuid}"),
            at: Path::new(&dir).join(uuid.to_string()),
        })
    }

    /// Returns the mount point as text. Errs if it is not UTF-8.
    pub fn path(&self) -> Result<&str, RequestError> {
        self.at.to_str().ok_or_else(|| RequestError::Unusable {
            variable: "DHV_VOLUMES_DIR",
            text: self.at.display().to_string(),
        })
    }
}

/// Validated request of Nomad's operation `create`.
#[derive(Debug, Clone, PartialEq)]
pub struct Create {
    pub target: Target,
    /// Nomad's `capacity_min`, bytes; at least 1.
    pub smallest: u64,
    /// capacity_max, in bytes; 0 if not set.
    pub largest: u64,
    pub parameters: Parameters,
    /// Nomad's name of the volume, for display: the agent drops values that it cannot keep.
    pub created_for: CreatedFor,
}

/// The parameters of a StorageClass that apply to one volume, and the owner of the root directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parameters {
    pub class: Option<String>,
    pub fs_type: Option<String>,
    pub mkfs_options: Option<String>,
    pub mount_options: Option<String>,
    pub owner: Owner,
}

/// Owner and mode of a new volume's root directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Owner {
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub mode: Option<u32>,
}

/// Nomad's parameters are texts.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Texts {
    class: Option<String>,
    fs_type: Option<String>,
    mkfs_options: Option<String>,
    mount_options: Option<String>,
    uid: Option<String>,
    gid: Option<String>,
    mode: Option<String>,
}

impl Create {
    /// Reads and validates the variables of `create`, of which only the volume's name and namespace may be missing. Errs also if
    /// capacity_min is 0.
    pub fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, RequestError> {
        let target = Target::read(&variable)?;
        let smallest = bytes(&variable, "DHV_CAPACITY_MIN_BYTES")?;
        if smallest == 0 {
            return Err(RequestError::NoSize);
        }
        Ok(Self {
            target,
            smallest,
            largest: bytes(&variable, "DHV_CAPACITY_MAX_BYTES")?,
            parameters: parameters(&text(&variable, "DHV_PARAMETERS")?)?,
            created_for: CreatedFor {
                nomad_volume: text(&variable, "DHV_VOLUME_NAME").unwrap_or_default(),
                nomad_namespace: text(&variable, "DHV_NAMESPACE").unwrap_or_default(),
                ..CreatedFor::default()
            },
        })
    }
}

/// Parses the parameters; `null` if the volume's specification has none.
fn parameters(json: &str) -> Result<Parameters, RequestError> {
    let texts: Option<Texts> = serde_json::from_str(json)?;
    let texts = texts.unwrap_or_default();
    if let Some(named) = &texts.fs_type {
        validate::filesystem("parameters.fsType", named)?;
    }
    let nonempty = |text: Option<String>| text.filter(|text| !text.is_empty());
    Ok(Parameters {
        class: nonempty(texts.class),
        fs_type: nonempty(texts.fs_type),
        mkfs_options: nonempty(texts.mkfs_options),
        mount_options: nonempty(texts.mount_options),
        owner: Owner {
            uid: number("uid", texts.uid, 10)?,
            gid: number("gid", texts.gid, 10)?,
            mode: number("mode", texts.mode, 8)?,
        },
    })
}

fn number(
    name: &'static str,
    text: Option<String>,
    radix: u32,
) -> Result<Option<u32>, RequestError> {
    let Some(text) = text else { return Ok(None) };
    let largest = if radix == 8 { 0o7777 } else { u32::MAX - 1 };
    let parsed = u32::from_str_radix(&text, radix).ok();
    match parsed.filter(|number| *number <= largest) {
        Some(number) => Ok(Some(number)),
        None => Err(RequestError::Number { name, text }),
    }
}

fn text(
    variable: &impl Fn(&str) -> Option<OsString>,
    name: &'static str,
) -> Result<String, RequestError> {
    let value = variable(name).ok_or(RequestError::NotSet(name))?;
    value.into_string().map_err(|raw| RequestError::Unusable {
        variable: name,
        text: raw.to_string_lossy().into_owned(),
    })
}

fn bytes(
    variable: &impl Fn(&str) -> Option<OsString>,
    name: &'static str,
) -> Result<u64, RequestError> {
    let text = text(variable, name)?;
    text.parse().map_err(|_| RequestError::Unusable {
        variable: name,
        text,
    })
}

/// Returns the arguments of `volume create` for the same volume.
pub fn create_args(spec: &Create) -> CreateArgs {
    let parameters = spec.parameters.clone();
    CreateArgs {
        name: spec.target.volume.clone(),
        size: spec.smallest,
        class: parameters.class,
        fs: parameters.fs_type,
        block: false,
        mkfs_options: parameters.mkfs_options,
        mount_options: parameters.mount_options,
        encrypt: false,
        show: Show {
            output: Format::Json,
            socket: SocketArg {
                socket: PathBuf::from(DEFAULT_AGENT_SOCKET),
            },
        },
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    const ID: &str = "8e1c7c0a-0b9d-4d52-9c3d-2f4a1b5c6d7e";

    /// Variables as Nomad sets them, with some replaced.
    fn variables<'a>(other: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<OsString> + 'a {
        move |name| {
            let usual = [
                ("DHV_OPERATION", "create"),
                ("DHV_VOLUMES_DIR", "/opt/nomad/data/host_volumes"),
                ("DHV_NAMESPACE", "default"),
                ("DHV_VOLUME_NAME", "db"),
                ("DHV_VOLUME_ID", ID),
                ("DHV_CAPACITY_MIN_BYTES", "67108864"),
                ("DHV_CAPACITY_MAX_BYTES", "134217728"),
                ("DHV_PARAMETERS", "null"),
            ];
            let all = other.iter().chain(usual.iter());
            let value = all.into_iter().find(|(key, _)| *key == name)?.1;
            (value != "unset").then(|| value.into())
        }
    }

    /// A create with these parameters.
    pub fn spec_with(parameters: &str) -> Create {
        Create::read(variables(&[("DHV_PARAMETERS", parameters)])).unwrap()
    }

    #[test]
    fn a_volume_is_named_and_mounted_by_the_id_alone() {
        let plain = spec_with("null");
        assert_eq!(plain.target.volume, format!("nomad-{ID}"));
        let at = Path::new("/opt/nomad/data/host_volumes").join(ID);
        assert_eq!(plain.target.at, at);
        assert_eq!((plain.smallest, plain.largest), (64 << 20, 128 << 20));
        assert_eq!(plain.parameters, Parameters::default());
        // Nomad deletes a volume that it could not record with neither its name nor its path.
        let after_failure = [
            ("DHV_VOLUME_NAME", ""),
            ("DHV_CREATED_PATH", "/opt/nomad/data/host_volumes"),
            ("DHV_PARAMETERS", "{\"class\":"),
        ];
        let target = Target::read(variables(&after_failure)).unwrap();
        assert_eq!(target, plain.target);
    }

    #[test]
    fn what_nomads_user_calls_it_is_for_people_and_may_be_missing() {
        let called = |other: &[(&str, &str)]| {
            let created_for = Create::read(variables(other)).unwrap().created_for;
            (created_for.nomad_namespace, created_for.nomad_volume)
        };
        assert_eq!(called(&[]), ("default".into(), "db".into()));
        let unnamed = [("DHV_VOLUME_NAME", "unset"), ("DHV_NAMESPACE", "unset")];
        assert_eq!(called(&unnamed), Default::default());
    }

    #[test]
    fn a_variable_that_is_missing_or_could_be_another_path_is_refused() {
        for (name, value, part) in [
            ("DHV_VOLUME_ID", "unset", "executed by Nomad"),
            ("DHV_VOLUME_ID", "../../etc", "DHV_VOLUME_ID"),
            ("DHV_VOLUME_ID", "", "DHV_VOLUME_ID"),
            ("DHV_VOLUMES_DIR", "data", "DHV_VOLUMES_DIR"),
            ("DHV_CAPACITY_MIN_BYTES", "0", "capacity_min"),
            ("DHV_CAPACITY_MAX_BYTES", "1GiB", "DHV_CAPACITY_MAX_BYTES"),
            ("DHV_PARAMETERS", "[]", "parameters"),
            ("DHV_PARAMETERS", r#"{"block":"true"}"#, "parameters"),
            ("DHV_PARAMETERS", r#"{"fsType":"zfs"}"#, "zfs"),
            ("DHV_PARAMETERS", r#"{"uid":"-1"}"#, "uid"),
            ("DHV_PARAMETERS", r#"{"uid":"4294967295"}"#, "uid"),
            ("DHV_PARAMETERS", r#"{"mode":"0899"}"#, "mode"),
            ("DHV_PARAMETERS", r#"{"mode":"17777"}"#, "mode"),
        ] {
            let refused = Create::read(variables(&[(name, value)])).unwrap_err();
            assert!(refused.to_string().contains(part), "{name}: {refused}");
        }
    }

    #[test]
    fn parameters_are_those_of_a_storage_class_and_of_the_root_directory() {
        let all = spec_with(
            r#"{"class":"fast","fsType":"xfs","mkfsOptions":"-m reflink=1","mountOptions":"noatime","uid":"1000","gid":"1001","mode":"0750"}"#,
        );
        let owner = Owner {
            uid: Some(1000),
            gid: Some(1001),
            mode: Some(0o750),
        };
        assert_eq!(all.parameters.owner, owner);
        let args = create_args(&all);
        assert_eq!(args.class.as_deref(), Some("fast"));
        assert_eq!(args.fs.as_deref(), Some("xfs"));
        assert_eq!(args.mkfs_options.as_deref(), Some("-m reflink=1"));
        assert_eq!(args.mount_options.as_deref(), Some("noatime"));
        assert_eq!((args.size, args.block), (64 << 20, false));
    }
}
