//! Compares a volume that has the name, or that would be created, with a request. Pure.

use std::collections::BTreeMap;

use super::{super::VolumeError, record::use_of};
use drivebay_csi::{Content, NewVolume, validate::SizeRange};
use drivebay_model::{
    ClassConfig, CopySource, FsType, Mode, Record,
    created_for::{is_manual, requested},
    units::human_sizes,
};

/// Compares a volume of the same name, or the one that would be created, with the request. Errs with `Exists` if they
/// differ. Pure.
pub(super) fn compare(
    record: &Record,
    request: &NewVolume,
    class: &ClassConfig,
    source: Option<CopySource>,
) -> Result<(), VolumeError> {
    let size = record.size_bytes();
    let SizeRange { required, limit } = request.range;
    let (mode, fs_type) = use_of(&request.content, class);
    let copied = CopySource::of(&record.parameters);
    // A copy has the filesystem of its source, whatever the class makes.
    let fs_type = match &request.content {
        Content::Mount { fs_type: None, .. } if copied.is_some() => record.fs_type.or(fs_type),
        _ => fs_type,
    };
    // A record may leave the filesystem to the class.
    let words = |mode: Mode, fs_type: Option<FsType>| match mode {
        Mode::Mount => ("mount", fs_type.unwrap_or(class.fs_type).as_str()),
        Mode::Block => ("block", "block"),
    };
    let has = (record.class.as_str(), words(record.mode, record.fs_type));
    let wanted = (
        request.class.as_deref().unwrap_or_default(),
        words(mode, fs_type),
    );
    let kept = requested(&record.parameters);
    let manual = is_manual(&record.parameters);
    let fits =
        size >= required && limit.is_none_or(|limit| size <= limit) && kept == request.parameters;
    // Neither adopts the other's volumes: an orchestrator deletes those that it considers its own.
    if has == wanted && fits && manual == request.manual && copied == source {
        return Ok(());
    }
    let described = |(class, (mode, fs_type)): (&str, (&str, &str)),
                     size: String,
                     parameters: &BTreeMap<_, _>,
                     manual,
                     source: Option<CopySource>| {
        let made = match manual {
            true => "by hand",
            false => "through CSI",
        };
        let source = match source {
            None => String::new(),
            Some(CopySource::Snapshot(uuid)) => format!(", a copy of snapshot {uuid}"),
            Some(CopySource::Volume(uuid)) => format!(", a copy of volume {uuid}"),
        };
        format!(
            "class {class}, {mode} {fs_type}, {size}, parameters {parameters:?}, made {made}{source}"
        )
    };
    let [size, required, most] = human_sizes([size, required, limit.unwrap_or(0)]);
    let requested = match limit {
        None => required,
        Some(_) => format!("{required} (limit {most})"),
    };
    Err(VolumeError::Exists {
        name: request.name.clone(),
        has: described(has, size, &kept, manual, copied),
        requested: described(
            wanted,
            requested,
            &request.parameters,
            request.manual,
            source,
        ),
    })
}
