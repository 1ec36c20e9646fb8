//! Checks of Node requests, before anything is looked up. Pure.

use std::{
    collections::HashMap,
    path::{Component, PathBuf},
};

use drivebay_proto::{
    csi::{
        VolumeCapability,
        volume_capability::{AccessType, access_mode::Mode as Access},
    },
    names::{POD_NAME, POD_NAMESPACE},
};

use crate::{
    fs::options::parse_mount_flags,
    model::{FsType, Mode},
    volumes::VolumeError,
};

/// A capability, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// Mount or block.
    pub mode: Mode,
    /// Filesystem that the request names.
    pub fs_type: Option<FsType>,
    /// Mount flags, checked one by one.
    pub flags: Vec<String>,
    /// The access mode, or a `ro` flag, says reader only.
    pub read_only: bool,
    /// One target only.
    pub exclusive: bool,
}

fn invalid(field: &'static str, why: impl Into<String>) -> VolumeError {
    VolumeError::Invalid {
        field,
        why: why.into(),
    }
}

/// A field that must be there.
pub fn required<'a>(field: &'static str, value: &'a str) -> Result<&'a str, VolumeError> {
    if value.is_empty() {
        return Err(invalid(field, "is missing"));
    }
    Ok(value)
}

/// A path that must be there, be absolute, and lead nowhere else than it says.
pub fn path(field: &'static str, value: &str) -> Result<PathBuf, VolumeError> {
    required(field, value)?;
    // PATH_MAX of Linux, its terminating zero included.
    if value.len() >= 4096 {
        return Err(invalid(field, "is longer than 4095 bytes"));
    }
    if value.chars().any(char::is_control) {
        return Err(invalid(field, "holds control characters"));
    }
    let path = PathBuf::from(value);
    if !path.is_absolute() {
        return Err(invalid(
            field,
            format!("must be an absolute path, got {value:?}"),
        ));
    }
    if path
        .components()
        .any(|part| matches!(part, Component::ParentDir))
    {
        return Err(invalid(
            field,
            format!("must not hold \"..\", got {value:?}"),
        ));
    }
    if path.parent().is_none() {
        return Err(invalid(field, "must not be the root directory"));
    }
    Ok(path)
}

/// What the capability asks for.
pub fn capability(capability: Option<&VolumeCapability>) -> Result<Use, VolumeError> {
    const FIELD: &str = "volume_capability";
    let capability = capability.ok_or_else(|| invalid(FIELD, "is missing"))?;
    let access = capability
        .access_mode
        .as_ref()
        .ok_or_else(|| invalid(FIELD, "access_mode is missing"))?;
    let access = Access::try_from(access.mode)
        .map_err(|_| invalid(FIELD, format!("access mode {} is not known", access.mode)))?;
    let (read_only, exclusive) = match access {
        Access::SingleNodeWriter | Access::SingleNodeMultiWriter => (false, false),
        Access::SingleNodeReaderOnly => (true, false),
        Access::SingleNodeSingleWriter => (false, true),
        other => {
            return Err(invalid(
                FIELD,
                format!(
                    "access mode {} is not supported: a local drive is on one node only",
                    other.as_str_name()
                ),
            ));
        }
    };
    match &capability.access_type {
        None => Err(invalid(FIELD, "neither block nor mount is set")),
        Some(AccessType::Block(_)) => Ok(Use {
            mode: Mode::Block,
            fs_type: None,
            flags: Vec::new(),
            read_only,
            exclusive,
        }),
        Some(AccessType::Mount(mount)) => {
            if !mount.volume_mount_group.is_empty() {
                return Err(invalid(
                    FIELD,
                    "volume_mount_group is not supported; use fsGroup",
                ));
            }
            let fs_type = match mount.fs_type.as_str() {
                "" => None,
                text => Some(FsType::parse(text).ok_or_else(|| {
                    invalid(
                        FIELD,
                        format!("filesystem {text:?} is not known; there are ext4, xfs, btrfs"),
                    )
                })?),
            };
            let parsed = parse_mount_flags(&mount.mount_flags)
                .map_err(|error| invalid(FIELD, error.to_string()))?;
            Ok(Use {
                mode: Mode::Mount,
                fs_type,
                flags: mount.mount_flags.clone(),
                read_only: read_only || parsed.read_only,
                exclusive,
            })
        }
    }
}

/// The pod that a volume is published to, NAMESPACE/NAME; none where the caller names none, or one that Kubernetes cannot have.
pub fn pod(context: &HashMap<String, String>) -> Option<String> {
    let is_name = |text: &&String| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
        (1..=253).contains(&text.len()) && text.bytes().all(allowed)
    };
    let namespace = context.get(POD_NAMESPACE).filter(is_name)?;
    let name = context.get(POD_NAME).filter(is_name)?;
    Some(format!("{namespace}/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_named_by_the_kubelets_words_and_by_nothing_else() {
        let named = |namespace: &str, name: &str| {
            let word = |key: &str, value: &str| (key.to_owned(), value.to_owned());
            pod(&HashMap::from([
                word(POD_NAMESPACE, namespace),
                word(POD_NAME, name),
                word("csi.storage.k8s.io/pod.uid", "1"),
            ]))
        };
        assert_eq!(named("shop", "db-0").as_deref(), Some("shop/db-0"));
        for (namespace, name) in [
            ("", "db-0"),
            ("shop", ""),
            ("shop", "a/b"),
            ("a\nb", "db-0"),
        ] {
            assert_eq!(named(namespace, name), None);
        }
        assert_eq!(named("shop", &"a".repeat(254)), None);
        assert_eq!(pod(&HashMap::new()), None);
    }

    #[test]
    fn only_plain_absolute_paths_are_taken() {
        for bad in ["", "a", "a/b", "../a", "/a/../b", "/", "/a\nb", "/a\u{0}b"] {
            assert!(path("p", bad).is_err(), "{bad:?}");
        }
        let long = format!("/{}", "a".repeat(200));
        for good in ["/a", "/a/b", "/a b/ü", long.as_str()] {
            assert!(path("p", good).is_ok(), "{good:?}");
        }
    }
}
