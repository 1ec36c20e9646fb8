//! Whether a volume that has the name, or that would be made, is the one that a request asks for. Pure.

use std::collections::BTreeMap;

use super::{super::VolumeError, Request};
use drivebay_model::{
    ClassConfig, FsType, Mode, Record, VolumeSpec,
    created_for::{is_by_hand, requested},
};

/// What a request is compared with.
pub(super) struct Made<'a> {
    class: &'a str,
    mode: Mode,
    fs_type: Option<FsType>,
    size: u64,
    /// As they are kept.
    parameters: &'a BTreeMap<String, String>,
}

impl<'a> From<&'a Record> for Made<'a> {
    fn from(record: &'a Record) -> Self {
        Self {
            class: &record.class,
            mode: record.mode,
            fs_type: record.fs_type,
            size: record.extent.len,
            parameters: &record.parameters,
        }
    }
}

impl<'a> From<&'a VolumeSpec> for Made<'a> {
    fn from(spec: &'a VolumeSpec) -> Self {
        Self {
            class: &spec.class,
            mode: spec.mode,
            fs_type: spec.fs_type,
            size: spec.size_bytes,
            parameters: &spec.parameters,
        }
    }
}

/// Compares a volume of the same name, or the one that would be made, with the request: same, or what differs. Pure.
pub(super) fn compare(
    record: Made<'_>,
    request: &Request,
    class: &ClassConfig,
) -> Result<(), VolumeError> {
    let size = record.size;
    let fs = |mode: Mode, fs: Option<FsType>| match mode {
        Mode::Mount => fs.unwrap_or(class.fs_type).as_str(),
        Mode::Block => "block",
    };
    let has = (
        record.class,
        record.mode.as_str(),
        fs(record.mode, record.fs_type),
    );
    let asked = (
        request.class.as_str(),
        request.mode.as_str(),
        fs(request.mode, request.fs_type),
    );
    let requested = requested(record.parameters);
    let made_by_hand = is_by_hand(record.parameters);
    let made = |by_hand| match by_hand {
        true => "by hand",
        false => "through CSI",
    };
    let fits = size >= request.size_bytes
        && (request.limit_bytes == 0 || size <= request.limit_bytes)
        && requested == request.parameters;
    // Neither takes over what the other made: an orchestrator deletes what it believes to be its own.
    if has == asked && fits && made_by_hand == request.by_hand {
        return Ok(());
    }
    Err(VolumeError::Exists {
        name: request.name.clone(),
        has: format!(
            "class {}, {} {}, {size} bytes, parameters {:?}, made {}",
            has.0,
            has.1,
            has.2,
            requested,
            made(made_by_hand)
        ),
        asked: format!(
            "class {}, {} {}, {} bytes (limit {}), parameters {:?}, made {}",
            asked.0,
            asked.1,
            asked.2,
            request.size_bytes,
            request.limit_bytes,
            request.parameters,
            made(request.by_hand)
        ),
    })
}
