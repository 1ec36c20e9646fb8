//! Validates Node requests before any lookup. Pure.

use std::{
    collections::HashMap,
    path::{Component, PathBuf},
};

use drivebay_csi::validate::{self, Access, InvalidRequest};
use drivebay_proto::{
    csi::VolumeCapability,
    names::{POD_NAME, POD_NAMESPACE, SECRET_PASSPHRASE, SECRET_PREVIOUS},
};

use drivebay_fs::options::parse_mount_flags;
use drivebay_model::{FsType, Mode, Secret, StageSecrets};
use drivebay_node::volumes::VolumeError;

/// A validated volume capability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    pub mode: Mode,
    /// Filesystem named by the request.
    pub fs_type: Option<FsType>,
    /// Mount flags, each validated.
    pub flags: Vec<String>,
    /// True if the access mode is reader-only, or there is an `ro` flag.
    pub read_only: bool,
    /// True if only one target is allowed.
    pub exclusive: bool,
}

fn invalid(field: &'static str, why: impl Into<String>) -> VolumeError {
    VolumeError::Invalid {
        field,
        why: why.into(),
    }
}

/// Returns a mandatory field; errs if it is empty.
pub fn required<'a>(field: &'static str, value: &'a str) -> Result<&'a str, VolumeError> {
    if value.is_empty() {
        return Err(invalid(field, "is missing"));
    }
    Ok(value)
}

/// NAME_MAX of Linux, bytes.
const NAME_MAX: usize = 255;

/// Returns a mandatory path. Errs unless it is absolute, within Linux's limits, and without `..` or control characters; and for `/`.
pub fn path(field: &'static str, value: &str) -> Result<PathBuf, VolumeError> {
    required(field, value)?;
    // PATH_MAX of Linux, including the terminating NUL.
    if value.len() >= 4096 {
        return Err(invalid(field, "is longer than 4095 bytes"));
    }
    if value.split('/').any(|part| part.len() > NAME_MAX) {
        return Err(invalid(field, "has a component of more than 255 bytes"));
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

/// Returns the requested use. The capability is validated by the same code as for the controller.
pub fn capability(given: Option<&VolumeCapability>) -> Result<Use, VolumeError> {
    const FIELD: &str = "volume_capability";
    let given = given.ok_or_else(|| invalid(FIELD, "is missing"))?;
    let requested = validate::capability(given).map_err(|error| match error {
        InvalidRequest::MountFlag { .. } => invalid(FIELD, error.to_string()),
        error if error.is_unsupported() => VolumeError::Unsupported(error),
        error => invalid(FIELD, error.to_string()),
    })?;
    let (mode, fs_type, flags) = match requested.access {
        Access::Block => (Mode::Block, None, Vec::new()),
        Access::Mount { fs_type, flags } => (Mode::Mount, fs_type.and_then(FsType::parse), flags),
    };
    let parsed = parse_mount_flags(&flags).map_err(|error| invalid(FIELD, error.to_string()))?;
    Ok(Use {
        mode,
        fs_type,
        flags,
        read_only: requested.read_only || parsed.read_only,
        exclusive: requested.single_writer,
    })
}

/// Returns the secrets by which a volume is opened; None if the call brings none. Other keys are ignored, since a secret may serve several
/// drivers.
pub fn stage_secrets(
    secrets: &mut HashMap<String, String>,
) -> Result<Option<StageSecrets>, VolumeError> {
    let mut taken = |key| {
        secrets
            .remove(key)
            .map(|text| secret(key, text))
            .transpose()
    };
    let previous = taken(SECRET_PREVIOUS)?;
    let secret = taken(SECRET_PASSPHRASE)?;
    Ok(secret.map(|secret| StageSecrets { secret, previous }))
}

/// Returns a secret as it was given. `field`: its name, for the error.
pub fn secret(field: &'static str, text: String) -> Result<Secret, VolumeError> {
    let secret = Secret::new(text);
    secret.ok_or_else(|| invalid(field, "a secret must have 1 to 4096 bytes"))
}

/// Returns the pod that a volume is published to, as NAMESPACE/NAME; None if the request has none, or no valid name.
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
    fn a_secret_is_taken_under_its_name_and_an_empty_one_is_refused() {
        let mut secrets = HashMap::from([
            ("passphrase".to_owned(), "swordfish".to_owned()),
            ("token".to_owned(), "of another driver".to_owned()),
        ]);
        let taken = stage_secrets(&mut secrets).unwrap().unwrap();
        assert_eq!(taken.secret.expose(), b"swordfish");
        assert_eq!(taken.previous, None);
        assert_eq!(stage_secrets(&mut secrets).unwrap(), None);
        let mut both = HashMap::from([
            ("passphrase".to_owned(), "herring".to_owned()),
            ("previousPassphrase".to_owned(), "swordfish".to_owned()),
        ]);
        let taken = stage_secrets(&mut both).unwrap().unwrap();
        assert_eq!(taken.secret.expose(), b"herring");
        assert_eq!(taken.previous.unwrap().expose(), b"swordfish");
        for bad in [String::new(), "x".repeat(4097)] {
            for key in ["passphrase", "previousPassphrase"] {
                let mut secrets = HashMap::from([(key.to_owned(), bad.clone())]);
                assert!(stage_secrets(&mut secrets).is_err());
            }
        }
    }

    #[test]
    fn only_plain_absolute_paths_are_taken() {
        let component = format!("/a/{}", "b".repeat(256));
        for bad in [
            "", "a", "a/b", "../a", "/a/../b", "/", "/a\nb", "/a\u{0}b", &component,
        ] {
            assert!(path("p", bad).is_err(), "{bad:?}");
        }
        let long = format!("/{}", "a".repeat(200));
        for good in ["/a", "/a/b", "/a b/ü", long.as_str()] {
            assert!(path("p", good).is_ok(), "{good:?}");
        }
    }
}
