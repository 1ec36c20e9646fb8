//! What LVM writes, read by us: PVs recorded from LVM 2.03.16 (`fixtures/lvm`), and, where root, loop
//! devices and LVM are to be had, PVs that LVM makes here, compared with LVM's own report.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods
)]

use std::{convert::Infallible, fs, path::Path};

use drivebay_agent::{
    carve::lvm::metadata::{Committed, Found, Lv, Segment, Vg, parse, read_with},
    model::{Extent, MIB},
};
use proptest::prelude::*;

/// The first 64 MiB (or more) of a PV of which only what is read was kept: runs of (offset, u64; length,
/// u32; bytes), all little-endian. The rest reads as zeros.
#[derive(Clone)]
struct Recorded {
    size: u64,
    sector: u64,
    runs: Vec<(u64, Vec<u8>)>,
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

    fn found(&self) -> Found {
        let Ok(found) = read_with(self.size, self.sector, &mut |offset, len| {
            assert!(offset.is_multiple_of(self.sector) && (len as u64).is_multiple_of(self.sector));
            assert!(offset + len as u64 <= self.size, "read beyond the end");
            let mut bytes = vec![0; len];
            for (start, run) in &self.runs {
                for (at, byte) in (*start..).zip(run) {
                    if (offset..offset + len as u64).contains(&at) {
                        bytes[(at - offset) as usize] = *byte;
                    }
                }
            }
            Ok::<_, Infallible>(bytes)
        });
        found
    }

    fn vg(&self) -> Committed {
        match self.found() {
            Found::Vg(committed) => *committed,
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
    assert_eq!(read.location.offset, 512);
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
    assert!(read.location.offset + read.location.size > read.header.metadata[0].len);
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
        let Found::Orphan(header) = Recorded::load(name).found() else {
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
fn a_vg_that_we_do_not_make_is_strange_and_says_why() {
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
fn lvs_that_are_not_plain_and_linear_are_strange_and_say_why() {
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
    let Found::Torn(torn) = drive.found() else {
        panic!("it is not torn: {:?}", drive.found())
    };
    assert_eq!((torn.header, torn.location), (read.header, read.location));
}

#[test]
fn a_drive_without_a_label_is_no_pv() {
    let blank = Recorded {
        size: 64 * MIB,
        sector: 512,
        runs: Vec::new(),
    };
    assert_eq!(blank.found(), Found::NoPv);
    assert_eq!(
        Recorded {
            size: 1024,
            ..blank
        }
        .found(),
        Found::NoPv
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
        match (drive.found(), whole.found()) {
            (Found::Torn(_) | Found::Damaged(_) | Found::NoPv, _) => {}
            (found, before) => prop_assert_eq!(found, before),
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
        text.truncate(cut.index(text.len()));
        prop_assert!(parse(&text, &read.header.uuid).is_err());
    }
}
