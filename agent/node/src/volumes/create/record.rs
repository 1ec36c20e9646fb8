//! The record of a volume that is to be created: the request, completed by its class. Pure.

use drivebay_csi::{Content, NewVolume};
use uuid::Uuid;

use drivebay_model::{
    ClassConfig, CreatedFor, Encryption, Extent, FsType, Mode, Record, RecordState,
    created_for::{keep_created_at, keep_manual},
};

/// Returns the mode of a volume with this content, and its filesystem: the class's unless the request names one.
pub(super) fn use_of(content: &Content, class: &ClassConfig) -> (Mode, Option<FsType>) {
    match content {
        Content::Block => (Mode::Block, None),
        Content::Mount { fs_type, .. } => {
            let named = fs_type.and_then(FsType::parse);
            (Mode::Mount, Some(named.unwrap_or(class.fs_type)))
        }
    }
}

/// Builds the record of the volume of this request and class, created at `now` (Unix seconds). Its identity and place
/// are not set yet. `header`: UUID of its encryption header if it is to be encrypted.
pub(super) fn record(
    requested: &NewVolume,
    created_for: CreatedFor,
    class: &ClassConfig,
    now: u64,
    header: Uuid,
) -> Record {
    let (mode, fs_type) = use_of(&requested.content, class);
    let (mkfs_options, mount_options) = match &requested.content {
        Content::Block => (Vec::new(), Vec::new()),
        Content::Mount {
            mkfs_options,
            mount_options,
            ..
        } => {
            let mkfs_options = match mkfs_options.is_empty() {
                true => &class.mkfs_options,
                false => mkfs_options,
            };
            let mount_options = [class.mount_options.as_slice(), mount_options].concat();
            (mkfs_options.clone(), mount_options)
        }
    };
    let mut parameters = requested.parameters.clone();
    created_for.keep(&requested.name, &mut parameters);
    if requested.manual {
        keep_manual(&mut parameters);
    }
    keep_created_at(now, &mut parameters);
    if requested.is_encrypted() {
        Encryption { header }.keep(&mut parameters);
    }
    let size = requested.range.required;
    let mut record = Record {
        uuid: Uuid::nil(),
        name: requested.name.clone(),
        class: class.name.clone(),
        mode,
        fs_type,
        mkfs_options,
        mount_options,
        parameters,
        erase: class.erase,
        requested_bytes: size,
        extent: Extent {
            start: 0,
            len: size,
        },
        growing_to: None,
        place: Default::default(),
        state: RecordState::Creating,
    };
    record.extent.len = record.room_bytes();
    record
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use drivebay_csi::validate::SizeRange;

    use super::*;
    use drivebay_model::{GIB, created_for::is_manual, encryption::HEADER_BYTES, samples::class};

    #[test]
    fn an_encrypted_volume_has_its_header_besides_what_was_requested() {
        let encrypted = |value: Option<&str>| {
            let value = value.map(|value| ("encryption".to_owned(), value.to_owned()));
            let requested = NewVolume {
                name: "v".into(),
                class: None,
                content: Content::Block,
                range: SizeRange {
                    required: GIB,
                    limit: None,
                },
                parameters: value.into_iter().collect(),
                created_for: Default::default(),
                manual: false,
                source: None,
            };
            let header = Uuid::from_u128(9);
            let class = class("bulk");
            let record = record(&requested, CreatedFor::default(), &class, 7, header);
            let header = record.encryption().map(|encryption| encryption.header);
            (
                header,
                record.requested_bytes,
                record.extent.len,
                record.size_bytes(),
            )
        };
        let header = Some(Uuid::from_u128(9));
        let room = GIB + HEADER_BYTES;
        assert_eq!(encrypted(Some("luks2")), (header, GIB, room, GIB));
        assert_eq!(encrypted(None), (None, GIB, GIB, GIB));
    }

    #[test]
    fn the_class_completes_a_filesystem_and_a_raw_volume_has_no_options() {
        let mut class = class("bulk");
        class.fs_type = FsType::Xfs;
        class.mkfs_options = vec!["-K".into()];
        class.mount_options = vec!["noatime".into()];
        let of = |content: Content| {
            let requested = NewVolume {
                name: "v".into(),
                class: None,
                content,
                range: SizeRange {
                    required: GIB,
                    limit: None,
                },
                parameters: BTreeMap::new(),
                created_for: Default::default(),
                manual: true,
                source: None,
            };
            let record = record(
                &requested,
                CreatedFor::default(),
                &class,
                7,
                Uuid::from_u128(9),
            );
            assert!(is_manual(&record.parameters));
            assert_eq!(
                (record.requested_bytes, record.class.as_str()),
                (GIB, "bulk")
            );
            let (mkfs, mount) = (
                record.mkfs_options.join(" "),
                record.mount_options.join(","),
            );
            (record.mode, record.fs_type, mkfs, mount)
        };
        let row = |mode, fs_type, mkfs: &str, mount: &str| {
            (mode, fs_type, mkfs.to_owned(), mount.to_owned())
        };
        assert_eq!(
            of(Content::mount(None)),
            row(Mode::Mount, Some(FsType::Xfs), "-K", "noatime")
        );
        let own = Content::Mount {
            fs_type: Some("ext4"),
            mkfs_options: vec!["-m".into(), "0".into()],
            mount_options: vec!["discard".into()],
            mount_flags: vec!["nodev".into()],
        };
        assert_eq!(
            of(own),
            row(Mode::Mount, Some(FsType::Ext4), "-m 0", "noatime,discard")
        );
        assert_eq!(of(Content::Block), row(Mode::Block, None, "", ""));
    }
}
