//! Reading the metadata that LVM writes: PVs recorded from LVM 2.03.16 (`fixtures/lvm`), and, where root, loop
//! devices and LVM are available, PVs that LVM makes here, compared with LVM's own report.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods
)]

mod lvm_support;

use std::{collections::BTreeMap, fs, io, os::unix::fs::FileExt as _, path::Path};

use drivebay_layout::{
    device::Medium,
    lvm::{
        metadata::{Committed, Lv, PvContents, Segment, Vg, parse, read},
        name, tags,
    },
    probe::Probe,
};
use drivebay_model::{
    ClaimPolicy, DriveId, DriveRef, ErasePolicy, Extent, FsType, Label, Layout, MIB, Mode, Record,
    RecordState, Signatures,
};
use drivebay_sys::sysfs;
use drivebay_worker::{Context, Job as _};
use lvm_support::Bench;
use proptest::prelude::*;
use uuid::Uuid;

/// The first 64 MiB (or more) of a PV of which only what is read was kept: runs of (offset, u64; length,
/// u32; bytes), all little-endian. The rest reads as zeros.
#[derive(Clone)]
struct Recorded {
    size: u64,
    sector: u64,
    runs: Vec<(u64, Vec<u8>)>,
}

impl Medium for Recorded {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let len = buf.len() as u64;
        assert!(offset.is_multiple_of(self.sector) && len.is_multiple_of(self.sector));
        assert!(offset + len <= self.size, "read beyond the end");
        buf.fill(0);
        for (start, run) in &self.runs {
            for (at, byte) in (*start..).zip(run) {
                if (offset..offset + len).contains(&at) {
                    buf[(at - offset) as usize] = *byte;
                }
            }
        }
        Ok(())
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn sector(&self) -> u64 {
        self.sector
    }
}

impl Recorded {
    fn load(name: &str) -> Self {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/lvm/{name}.pv"));
        let bytes = fs::read(path).unwrap();
        let mut rest = bytes.as_slice();
        let mut runs = Vec::new();
        while !rest.is_empty() {
            let offset = u64::from_le_bytes(rest[..8].try_into().unwrap());
            let len = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
            runs.push((offset, rest[12..12 + len].to_vec()));
            rest = &rest[12 + len..];
        }
        let size = if ["odd", "guest"].contains(&name) {
            1024
        } else {
            64
        } * MIB;
        let sector = if name == "sector4k" { 4096 } else { 512 };
        Self { size, sector, runs }
    }

    fn contents(&self) -> PvContents {
        read(self).unwrap()
    }

    fn vg(&self) -> Committed {
        match self.contents() {
            PvContents::Vg(committed) => *committed,
            other => panic!("{other:?}"),
        }
    }
}

fn lv<'a>(vg: &'a Vg, name: &str) -> &'a Lv {
    vg.lvs.iter().find(|lv| lv.name == name).unwrap()
}

fn runs(lv: &Lv) -> Vec<(u64, u64)> {
    lv.segments
        .iter()
        .map(|one| (one.start, one.count))
        .collect()
}

#[test]
fn a_fresh_vg_with_a_bootloader_area_is_read() {
    let read = Recorded::load("fresh").vg();
    assert_eq!(read.vg.name, "drivebay-t");
    assert_eq!(read.vg.uuid, "0UCk44-78FK-7tYo-pDxn-1yfa-VaTQ-iA2RNp");
    assert_eq!((read.vg.seqno, read.vg.extent_bytes), (1, MIB));
    assert_eq!(read.vg.tags, ["drivebay.v=1"]);
    assert_eq!((read.vg.pv.pe_start, read.vg.pv.pe_count), (10 * MIB, 54));
    assert_eq!(read.vg.strange, [""; 0]);
    assert!(!read.vg.autoactivation && read.vg.lvs.is_empty());
    let header = &read.header;
    assert_eq!(header.uuid, "C7tFhG-vWft-OWWd-AdAT-RlOM-cran-nNew9z");
    assert_eq!(header.uuid, read.vg.pv.uuid);
    assert_eq!(
        (header.device_bytes, header.data_start),
        (64 * MIB, 10 * MIB)
    );
    assert_eq!(
        header.bootloader,
        Some(Extent {
            start: 9 * MIB,
            len: MIB
        })
    );
    assert_eq!(
        header.metadata,
        [Extent {
            start: 4096,
            len: 9 * MIB - 4096
        }]
    );
    assert!(header.used);
    assert!(read.text.starts_with(b"drivebay-t {\n") && read.text.ends_with(b"\n"));
    assert_eq!(read.location.unwrap().offset, 512);
    assert_eq!(parse(&read.text, &header.uuid).unwrap(), read.vg);
}

#[test]
fn lvs_with_several_segments_and_every_tag_character_are_read() {
    let vg = Recorded::load("several").vg().vg;
    assert_eq!(vg.strange, [""; 0]);
    assert_eq!(
        lv(&vg, "one").tags,
        ["a_+.-/=!:#&x".to_owned(), "x".repeat(1024)]
    );
    assert_eq!(
        (runs(lv(&vg, "one")), runs(lv(&vg, "two"))),
        (vec![(7, 5)], vec![(0, 2)])
    );
    let readonly = lv(&vg, "readonly");
    assert!(
        readonly
            .strange
            .as_ref()
            .unwrap()
            .contains("status is READ VISIBLE")
    );
    assert_eq!(readonly.occupies, [Segment { start: 2, count: 1 }]);
}

#[test]
fn a_text_that_goes_on_at_the_start_of_its_area_is_read() {
    let read = Recorded::load("wrapped").vg();
    let at = read.location.unwrap();
    assert!(at.offset + at.size > read.header.metadata[0].len);
    assert_eq!((read.vg.strange.len(), read.vg.lvs.len()), (0, 3));
    assert!(read.vg.autoactivation);
}

#[test]
fn sectors_of_4096_bytes_are_read() {
    let vg = Recorded::load("sector4k").vg().vg;
    assert_eq!((vg.strange.len(), runs(lv(&vg, "a"))), (0, vec![(0, 3)]));
}

#[test]
fn a_pv_without_a_vg_is_an_orphan() {
    for (name, used, areas) in [("orphan", false, 1), ("nomda", true, 0)] {
        let PvContents::Orphan(header) = Recorded::load(name).contents() else {
            panic!("{name} is no orphan")
        };
        assert_eq!(
            (header.used, header.metadata.len()),
            (used, areas),
            "{name}"
        );
    }
}

#[test]
fn a_vg_that_we_do_not_make_is_strange_with_a_reason() {
    for (name, why) in [
        ("twomdas", "it has 2 metadata areas"),
        ("twopvs", "it has 2 PVs"),
        ("twopvs2", "it has 2 PVs"),
        ("part1", "it has 2 PVs"),
        ("nomda2", "it has 2 PVs"),
    ] {
        let vg = Recorded::load(name).vg().vg;
        assert!(
            vg.strange.iter().any(|one| one == why),
            "{name}: {:?}",
            vg.strange
        );
    }
    let vg = Recorded::load("twopvs").vg().vg;
    assert_eq!(lv(&vg, "a").strange.as_deref(), Some("it lies on pv1"));
    assert!(lv(&vg, "both").segments.is_empty());
    let vg = Recorded::load("twopvs2").vg().vg;
    assert_eq!(runs(lv(&vg, "a")), [(0, 1)]);
}

#[test]
fn lvs_that_are_not_plain_and_linear_are_strange_with_a_reason() {
    let vg = Recorded::load("odd").vg().vg;
    assert_eq!(vg.strange, [""; 0]);
    for (name, why) in [
        ("plain", "it is a part of snapshot0"),
        ("snap", "it is a part of snapshot0"),
        ("snapshot0", "type snapshot"),
        ("pool", "type thin-pool"),
        ("thinlv", "type thin"),
        ("pool_tdata", "it is a part of pool"),
        ("mirr", "type mirror"),
        ("mirr_mimage_0", "status is READ WRITE"),
        ("r1", "type raid1"),
        ("r1_rmeta_0", "it is a part of r1"),
        ("lvol0_pmspare", "status is READ WRITE"),
    ] {
        let lv = lv(&vg, name);
        assert!(
            lv.strange.as_ref().unwrap().contains(why),
            "{name}: {:?}",
            lv.strange
        );
        assert!(lv.segments.is_empty());
    }
    // One stripe is a linear LV.
    assert_eq!(lv(&vg, "str1").strange, None);
    let occupied: u64 = vg
        .lvs
        .iter()
        .flat_map(|lv| &lv.occupies)
        .map(|run| run.count)
        .sum();
    assert_eq!(occupied, 33);

    let vg = Recorded::load("guest").vg().vg;
    for (name, why) in [
        ("linear", "flags is ACTIVATION_SKIP"),
        ("z", "type zero"),
        ("ro", "status is READ VISIBLE"),
    ] {
        let lv = lv(&vg, name);
        assert!(
            lv.strange.as_ref().unwrap().contains(why),
            "{name}: {:?}",
            lv.strange
        );
    }
    assert_eq!(runs(lv(&vg, "noauto")), [(4, 4)]);
    assert_eq!(runs(lv(&vg, "ren2")), [(8, 5)]);
}

#[test]
fn a_committed_text_that_is_not_there_is_torn() {
    let mut drive = Recorded::load("fresh");
    let read = drive.vg();
    for (start, bytes) in &mut drive.runs {
        let text = 4096 + 512;
        if *start <= text && text < *start + bytes.len() as u64 {
            bytes[(text + 512 - *start) as usize] ^= 1;
        }
    }
    let PvContents::Torn(torn) = drive.contents() else {
        panic!("it is not torn: {:?}", drive.contents())
    };
    assert_eq!((torn.header, torn.location), (read.header, read.location));
}

#[test]
fn a_pv_whose_metadata_area_has_no_header_is_torn_and_no_orphan() {
    let mut drive = Recorded::load("fresh");
    for (start, bytes) in &mut drive.runs {
        if (*start..*start + bytes.len() as u64).contains(&4096) {
            let at = (4096 - *start) as usize;
            bytes[at..at + 512].fill(0);
        }
    }
    let PvContents::Torn(torn) = drive.contents() else {
        panic!("{:?}", drive.contents())
    };
    assert_eq!(torn.header, Recorded::load("fresh").vg().header);
    assert_eq!(torn.location, None);
    // Without any text either there never was a VG: an interrupted `pvcreate`.
    drive.runs.retain(|(start, _)| *start < 4096);
    assert!(matches!(drive.contents(), PvContents::Orphan(_)));
}

#[test]
fn a_drive_without_a_label_is_no_pv() {
    let blank = Recorded {
        size: 64 * MIB,
        sector: 512,
        runs: Vec::new(),
    };
    assert_eq!(blank.contents(), PvContents::NoPv);
    assert_eq!(
        Recorded {
            size: 1024,
            ..blank
        }
        .contents(),
        PvContents::NoPv
    );
}

#[test]
fn a_text_with_something_unknown_is_strange_or_refused() {
    let read = Recorded::load("several").vg();
    let text = String::from_utf8(read.text.clone()).unwrap();
    let strange = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        parse(text.replacen(from, to, 1).as_bytes(), &read.header.uuid)
    };
    for (from, to, why) in [
        (
            "max_lv = 0",
            "max_lv = 0\nsystem_id = \"h\"",
            "belongs to the host",
        ),
        (
            "max_lv = 0",
            "max_lv = 0\nlock_type = \"sanlock\"",
            "locked over a network",
        ),
        ("max_lv = 0", "max_lv = 7", "number of its LVs"),
        ("max_lv = 0", "max_lv = 0\nnews = 1", "it has news"),
        (
            "\"RESIZEABLE\", ",
            "\"RESIZEABLE\", \"EXPORTED\", ",
            "EXPORTED",
        ),
        (
            "\"RESIZEABLE\", ",
            "\"RESIZEABLE\", \"PARTIAL\", ",
            "PARTIAL",
        ),
        (
            "\"RESIZEABLE\", ",
            "\"RESIZEABLE\", \"CLUSTERED\", ",
            "CLUSTERED",
        ),
        (
            "status = [\"ALLOCATABLE\"]\nflags = []",
            "status = [\"ALLOCATABLE\"]\nflags = [\"MISSING\"]",
            "MISSING",
        ),
        ("dev_size =", "news = 1\ndev_size =", "PV has news"),
        ("pe_count = 55", "pe_count = 11", "does not lie on the PV"),
        ("\"pv0\", 7", "\"pv0\", 1", "lie on each other"),
    ] {
        let vg = strange(from, to).unwrap();
        assert!(
            vg.strange.join("; ").contains(why),
            "{to}: {:?}",
            vg.strange
        );
    }
    for (from, to, why) in [
        (
            "extent_count = 5",
            "extent_count = 5\ntags = [\"t\"]",
            "its segment has tags",
        ),
        ("segment_count = 1", "segment_count = 2", "not all there"),
        ("start_extent = 0", "start_extent = 1", "do not follow"),
        (
            "creation_time",
            "lock_args = \"x\"\ncreation_time",
            "it has lock_args",
        ),
    ] {
        let vg = strange(from, to).unwrap();
        assert!(
            lv(&vg, "one").strange.as_ref().unwrap().contains(why),
            "{to}"
        );
    }
    for (from, to) in [
        ("pe_count = 55", "pe_count = 9223372036854775807"),
        ("extent_size = 2048", "extent_size = 0"),
        ("extent_size = 2048", "extent_size = -1"),
        ("FiqEw7", "FiqEw8"),
        ("version = 1\n", "version = 2\n"),
        ("Text Format", "Other Format"),
        ("seqno = 4", "seqno = \"4\""),
    ] {
        assert!(strange(from, to).is_err(), "{to}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_damage_to_a_pv_is_believed(
        name in prop::sample::select(vec!["fresh", "several", "wrapped", "orphan", "odd"]),
        at in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        let whole = Recorded::load(name);
        let mut drive = whole.clone();
        let len: usize = drive.runs.iter().map(|(_, bytes)| bytes.len()).sum();
        let mut at = at.index(len);
        for (_, bytes) in &mut drive.runs {
            if at < bytes.len() {
                bytes[at] ^= 1 << bit;
                break;
            }
            at -= bytes.len();
        }
        // Either the bit does not matter (padding, another text's rest), or it is noticed.
        match (drive.contents(), whole.contents()) {
            (PvContents::Torn(_) | PvContents::Damaged { .. } | PvContents::NoPv, _) => {}
            (contents, before) => prop_assert_eq!(contents, before),
        }
    }

    #[test]
    fn any_change_to_a_text_gives_a_vg_or_an_error(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let read = Recorded::load("odd").vg();
        let mut text = read.text;
        for (at, byte) in changes {
            let at = at.index(text.len());
            text[at] = byte;
        }
        let _ = parse(&text, &read.header.uuid);
        // The mark that a text is LVM's stands behind the VG.
        let mark = text.windows(11).position(|part| part == b"\ncontents =");
        text.truncate(cut.index(mark.unwrap_or(text.len())));
        prop_assert!(parse(&text, &read.header.uuid).is_err());
    }
}

// ---------------------------------------------------------------- LVM itself

const VG: &str = "drivebay-0123456789abcdef0123456789abcdef";

#[test]
fn what_is_read_is_what_lvm_reports() {
    for sector in [512, 4096] {
        let Some(bench) = Bench::new(256 * MIB, sector) else {
            return;
        };
        bench.lvm(&[
            "vgcreate",
            "-s",
            "1m",
            "--addtag",
            "drivebay.v=1",
            "--addtag",
            "x",
            VG,
            &bench.node,
        ]);
        for i in 0..20 {
            let (name, tag) = (format!("lv{i}"), format!("t{i}"));
            assert!(
                bench
                    .create(&name, &["-l", "5", "--addtag", &tag, VG])
                    .status
                    .success()
            );
            if i % 3 == 2 {
                bench.lvm(&["lvremove", "-f", &format!("{VG}/lv{}", i / 3)]);
            }
            if i % 4 == 0 {
                bench.lvm(&["lvextend", "-l", "+2", &format!("{VG}/lv{i}")]);
            }
        }
        let vg = bench.vg();
        assert_eq!(vg.strange, [""; 0]);
        let text = bench.lvm(&[
            "fullreport",
            "--reportformat",
            "json",
            "--units",
            "b",
            "--nosuffix",
        ]);
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        let report = &report["report"][0];
        let of = |what: &str, key: &str| report[what][0][key].as_str().unwrap().to_owned();
        assert_eq!(
            [
                of("vg", "vg_name"),
                of("vg", "vg_uuid"),
                of("vg", "vg_seqno"),
                of("vg", "vg_extent_size")
            ],
            [
                vg.name.clone(),
                vg.uuid.clone(),
                vg.seqno.to_string(),
                vg.extent_bytes.to_string()
            ]
        );
        assert_eq!(of("vg", "vg_tags"), vg.tags.join(","));
        assert_eq!(
            [
                of("pv", "pv_uuid"),
                of("pv", "pe_start"),
                of("pv", "pv_pe_count")
            ],
            [
                vg.pv.uuid.clone(),
                vg.pv.pe_start.to_string(),
                vg.pv.pe_count.to_string()
            ]
        );
        type Segments = BTreeMap<String, (String, String, Vec<(u64, u64)>)>;
        let mut theirs: Segments = report["lv"]
            .as_array()
            .unwrap()
            .iter()
            .map(|lv| {
                let text = |key: &str| lv[key].as_str().unwrap().to_owned();
                (
                    text("lv_uuid"),
                    (text("lv_name"), text("lv_tags"), Vec::new()),
                )
            })
            .collect();
        for run in report["pvseg"].as_array().unwrap() {
            let text = |key: &str| run[key].as_str().unwrap();
            if let Some(lv) = theirs.get_mut(text("lv_uuid")) {
                lv.2.push((
                    text("pvseg_start").parse().unwrap(),
                    text("pvseg_size").parse().unwrap(),
                ));
            }
        }
        let ours: Segments = vg
            .lvs
            .iter()
            .map(|lv| {
                assert_eq!(lv.strange, None);
                let mut runs = runs(lv);
                runs.sort_unstable();
                (lv.uuid.clone(), (lv.name.clone(), lv.tags.join(","), runs))
            })
            .collect();
        assert_eq!(ours, theirs);
        assert!(
            ours.values().any(|(_, _, runs)| runs.len() > 1),
            "nothing was in pieces"
        );
    }
}

#[test]
fn lvm_takes_every_tag_of_a_record_and_gives_it_back() {
    let Some(bench) = Bench::new(256 * MIB, 512) else {
        return;
    };
    let torture: String = (1_u8..=127)
        .map(char::from)
        .chain("äöü€😀".chars())
        .collect();
    let record = Record {
        uuid: Uuid::from_u128(7),
        name: torture.clone(),
        class: torture.repeat(9),
        mode: Mode::Mount,
        fs_type: Some(FsType::Btrfs),
        mkfs_options: vec![torture.repeat(20), String::new(), "-".into()],
        mount_options: vec!["@x".into(), torture.clone()],
        parameters: [
            (torture.clone(), torture.repeat(5)),
            (String::new(), String::new()),
        ]
        .into(),
        erase: ErasePolicy::Signatures,
        requested_bytes: u64::MAX,
        extent: Extent {
            start: MIB,
            len: MIB,
        },
        growing_to: None,
        place: Default::default(),
        state: RecordState::Fs {
            fs_type: FsType::Btrfs,
            fs_uuid: Uuid::from_u128(8),
            mounted: true,
        },
    };
    let mark = tags::VgMark {
        label: Label {
            drive_uuid: Uuid::from_u128(1),
            cluster: torture.clone(),
            node: torture.clone(),
            class: torture.clone(),
            drive_id: DriveId(torture),
            cordon: None,
        },
    };
    let args = |tags: Vec<String>| {
        tags.into_iter()
            .flat_map(|tag| ["--addtag".to_owned(), tag])
            .collect::<Vec<_>>()
    };
    let vg_tags = args(tags::of_vg(&mark));
    let mut all = vec!["vgcreate", "-s", "1m", VG, &bench.node];
    all.extend(vg_tags.iter().map(String::as_str));
    bench.lvm(&all);
    let lv_tags = args(tags::of_record(&record));
    let mut all = vec!["-l", "1", VG];
    all.extend(lv_tags.iter().map(String::as_str));
    let made = bench.create("a", &all);
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let vg = bench.vg();
    assert_eq!(tags::vg(&vg.tags), tags::Read::Ours(mark));
    assert_eq!(
        tags::record(&lv(&vg, "a").tags, record.extent),
        tags::Read::Ours(record)
    );
}

#[test]
fn a_name_that_we_give_is_one_that_lvm_takes() {
    let Some(bench) = Bench::new(64 * MIB, 512) else {
        return;
    };
    bench.lvm(&["vgcreate", "-s", "1m", VG, &bench.node]);
    let (fits, long) = ("a".repeat(124 - VG.len()), "a".repeat(125 - VG.len()));
    let uuid = Uuid::from_u128(3);
    let (fallback, erasing) = (name::of_lv(VG, "", uuid, |_| false), name::erasing(uuid));
    for (text, both) in [
        ("a", true),
        ("pvc-00000000-0000-0000-0000-000000000000", true),
        ("A+b_c.d-e", true),
        ("...", true),
        ("a--b-", true),
        ("+", true),
        (fits.as_str(), true),
        (fallback.as_str(), true),
        (erasing.as_str(), true),
        ("lvol7", true),
        ("_x", true),
        ("mlog", true),
        (long.as_str(), false),
        ("-a", false),
        (".", false),
        ("..", false),
        ("a b", false),
        ("\u{e4}", false),
        ("a@b", false),
        ("a:b", false),
        ("a=b", false),
        ("a#b", false),
        ("snapshot", false),
        ("snapshot1", false),
        ("pvmove", false),
        ("pvmove0x", false),
        ("a_tdata", false),
        ("a_tmeta", false),
        ("a_mlog", false),
        ("a_mimage", false),
        ("a_rimage_0", false),
        ("a_rmeta_0", false),
        ("a_cdata", false),
        ("a_cmeta", false),
        ("a_corig", false),
        ("a_vorigin", false),
        ("a_pmspare", false),
        ("a_vdata", false),
        ("x_wcorig", false),
        ("x_iorig", false),
        ("x_imeta", false),
        ("x_cvol", false),
    ] {
        let made = bench.create(text, &["-l", "1", VG]);
        let stderr = String::from_utf8_lossy(&made.stderr);
        assert_eq!(name::lvm_takes(VG, text), both, "{text}");
        assert_eq!(made.status.success(), both, "{text}: {stderr}");
        if both {
            bench.lvm(&["lvremove", "-f", &format!("{VG}/{text}")]);
        }
    }
}

#[test]
fn a_probe_distinguishes_our_vg_from_another_ones_and_from_a_damaged_label() {
    let Some(bench) = Bench::new(256 * MIB, 512) else {
        return;
    };
    let probe = || {
        let facts = sysfs::read(Path::new("/sys"), bench.node.trim_start_matches("/dev/")).unwrap();
        let probe = Probe {
            drive: DriveRef::from(&facts),
            policy: Some(ClaimPolicy::SignatureFree),
            past_own_table: false,
        };
        let probed = probe.run(&mut Context::silent()).unwrap();
        let kinds: Vec<String> = match probed.signatures {
            Signatures::Empty => Vec::new(),
            Signatures::Found(signatures) | Signatures::Ambiguous(signatures) => {
                signatures.into_iter().map(|one| one.kind).collect()
            }
        };
        (probed.ours, kinds)
    };
    let pv = || vec!["LVM2_member".to_owned()];
    assert_eq!(probe(), (None, Vec::new()));
    bench.lvm(&["pvcreate", &bench.node]);
    assert_eq!(probe(), (None, pv()), "a PV without a VG");
    bench.lvm(&[
        "vgcreate",
        "-s",
        "1m",
        "--addtag",
        "backup",
        VG,
        &bench.node,
    ]);
    assert_eq!(
        probe(),
        (None, pv()),
        "somebody else's VG, even under a name like ours"
    );
    let mark = tags::VgMark {
        label: Label {
            drive_uuid: Uuid::from_u128(1),
            cluster: "c".into(),
            node: "n".into(),
            class: "k".into(),
            drive_id: DriveId("serial-x".into()),
            cordon: None,
        },
    };
    for tag in tags::of_vg(&mark) {
        bench.lvm(&["vgchange", "--addtag", &tag, VG]);
    }
    let ours = (Some(Layout::Lvm), Vec::new());
    assert_eq!(probe(), ours, "nothing else is looked for on ours");
    bench.lvm(&["vgchange", "--deltag", "drivebay.v=1", VG]);
    assert_eq!(probe(), ours, "damaged, but ours: nobody may take it");
    // libblkid does not see a label whose checksum is wrong. Written through the node: a write to the file behind it
    // stays unseen for as long as another process on the machine (a udevd) holds the node open.
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(&bench.node)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 512 + 40).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 512 + 40).unwrap();
    file.sync_all().unwrap();
    assert_eq!(probe(), (None, pv()));
}
