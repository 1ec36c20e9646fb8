//! The claim check: a drive with a mark of Drivebay that an input did not change is never available.

use std::{convert::Infallible, io};

use super::{Input, Target, image::Image, lvm, partitions};
use drivebay_discovery::{
    claim::{Evidence, Judgement, Rules, judge},
    system::HostUse,
};
use drivebay_layout::{
    device::Medium,
    gpt::{self, LABEL_EXTENT},
    jobs::LayoutError,
    lvm::plan,
    marks::{self, Mark},
    partition::Session,
    probe::{Blankness, GptState, Probed, magics, only_tables, pv_signature, remains, with_own},
};
use drivebay_model::{
    ClaimPolicy, ClassConfig, DriveId, ErasePolicy, FsType, Layout, MIB, Media, Selector,
    Signatures, samples,
};

pub(super) fn targets() -> Vec<Target> {
    vec![
        Target {
            name: "claim",
            run: claim,
            seeds: edits,
            replays: 150,
        },
        Target {
            name: "signatures",
            run: signatures,
            seeds: bytes,
            replays: 300,
        },
    ]
}

/// Seeds: layout, base, checksums to correct, changes.
fn edits() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = [0, 1]
        .iter()
        .flat_map(|layout| [vec![*layout, 0, 0], vec![*layout, 1, 63]])
        .collect();
    // Both tables zeroed, with and without the protective MBR; both slots; the PV label and the header of the metadata area.
    seeds.push(vec![0, 0, 0, 0, 0, 0, 0x83, 2, 0, 0, 0x83, 0]);
    let tables = [0, 0, 0, 0x83, 2, 0, 0, 0x83, 6, 0, 0, 0x83, 0];
    seeds.push([&[0, 0, 0], &tables[..]].concat());
    seeds.push(vec![0, 0, 0, 4, 0, 0, 0x87, 5, 0, 0, 0x87, 0]);
    seeds.push(vec![1, 0, 0, 0, 0, 0, 0x83, 1, 0, 0, 0x83, 0]);
    seeds.push(vec![
        1, 0, 0, 0, 0, 0, 0x83, 3, 0, 0, 0x87, 4, 0, 0, 0x87, 0,
    ]);
    seeds
}

fn claim(data: &[u8]) {
    let mut input = Input(data);
    let image = match input.byte() & 1 {
        0 => {
            let mut image = partitions::base(input.byte());
            let flags = input.byte();
            let runs = partitions::runs(image.size());
            image.edit(&mut input, &runs);
            partitions::settle(&image, flags);
            image
        }
        _ => lvm::edited(&[&[0], input.0.get(1..).unwrap_or_default()].concat()),
    };
    if !is_marked(&image) {
        return;
    }
    for policy in [ClaimPolicy::SignatureFree, ClaimPolicy::Blank] {
        assert!(!may_be_claimed(&image, policy), "claimable: {policy:?}");
    }
}

/// True if the image has data that only Drivebay writes, judged by the bytes alone. A table with only the label's entry, which an
/// interrupted claim leaves, does not count.
fn is_marked(image: &Image) -> bool {
    let is = |at: u64, magic: &[u8]| image.get(at, magic.len()) == magic;
    let slot = |number: u64| is(LABEL_EXTENT.start + number * 2 * MIB, b"DRVBAYLB");
    let copy = |number: u64| {
        is(
            plan::COPIES.start + number * plan::COPIES.len / 2,
            b"DRVBAYMD",
        )
    };
    let begun = match gpt::read(image) {
        Ok(gpt::GptCopies::Whole(table) | gpt::GptCopies::One { table, .. }) => {
            table.is_ours() && table.partitions().count() == 1
        }
        Ok(gpt::GptCopies::Differ { backup, .. }) => backup.partitions().count() == 1,
        _ => false,
    };
    !begun
        && [0, 1]
            .into_iter()
            .any(|number| slot(number) || copy(number))
}

/// Evaluates the drive as a probe and a scan do, in the order of `layout::probe` and `discovery::scan`, but without libblkid, which can
/// only find more.
fn may_be_claimed(image: &Image, policy: ClaimPolicy) -> bool {
    let mut read = |at: u64, len: usize| {
        let mut bytes = vec![0; len];
        image.read_at(at, &mut bytes).map(|()| bytes)
    };
    let mark = marks::read(image);
    let pv = match mark {
        Ok(Mark::None(pv)) => pv,
        Ok(Mark::Ours(Layout::Partition)) => return is_unfinished(image),
        // Drivebay's VG is read by LVM's own tools, and an error prevents a claim.
        Ok(Mark::Ours(Layout::Lvm) | Mark::OtherSector(_) | Mark::Both) | Err(_) => return false,
    };
    let Ok(traces) = marks::traces(image) else {
        return false;
    };
    let ends = MIB as usize;
    let (Ok(head), Ok(tail)) = (read(0, ends), read(image.size() - MIB, ends)) else {
        return false;
    };
    let own = magics::find(image.size(), &head, &tail);
    let Ok(gpt) = gpt::scan(image) else {
        return false;
    };
    let mut signatures = with_own(with_own(Signatures::Empty, own), pv_signature(&pv));
    let begun = gpt.types.is_empty() && gpt::is_our_mbr(&head) && only_tables(&signatures);
    if gpt.ours || begun {
        return is_unfinished(image);
    }
    if signatures == Signatures::Empty && gpt.state == GptState::None {
        let Ok(remains) = remains::find(image.size(), &mut read) else {
            return false;
        };
        signatures = with_own(signatures, remains.into_iter().collect());
    }
    let probed = Ok(Probed {
        written_sector: None,
        size_bytes: image.size(),
        read_only: false,
        busy: false,
        signatures,
        gpt: gpt.state,
        ours: None,
        traces: traces.map(str::to_owned),
        gpt_types: gpt.types,
        // As if no sample had found data: the marks alone must suffice.
        blankness: Blankness::Blank,
    });
    let mut facts = samples::facts("sda");
    facts.size_bytes = image.size();
    let evidence = Evidence {
        facts: &facts,
        all: &[],
        host: &HostUse::default(),
        probed: Some(&probed),
        label: None,
        label_trouble: None,
    };
    matches!(
        judge(&evidence, &rules(policy)),
        Judgement::Available { .. }
    )
}

/// True for a claim that was interrupted before its label was written: the drive is evaluated as blank then.
fn is_unfinished(image: &Image) -> bool {
    let session = Session::open(image, &DriveId("x".into()), false);
    matches!(session, Err(LayoutError::Unlabelled { .. }))
}

fn rules(claim: ClaimPolicy) -> Rules {
    Rules {
        cluster: "golden".into(),
        node: "golden0".into(),
        allow_loop: true,
        classes: vec![ClassConfig {
            name: "c".into(),
            select: Selector {
                media: vec![Media::Hdd],
                ..Selector::default()
            },
            layout: Layout::Partition,
            placement: drivebay_model::Placement::default(),
            priority: 0,
            claim,
            erase: ErasePolicy::Zero,
            raw_space: Default::default(),
            evacuate: Default::default(),
            fs_type: FsType::Ext4,
            mkfs_options: Vec::new(),
            mount_options: Vec::new(),
            allow_removable: false,
            xfs_retry_forever: false,
            check_reserve_bytes: 0,
        }],
    }
}

/// Seeds: size of the drive, then its first and last bytes.
fn bytes() -> Vec<Vec<u8>> {
    let drive = partitions::base(0);
    let head = |sectors: &[u8]| [&[0, 0, 1, 0], sectors].concat();
    let mut seeds = vec![
        head(&drive.get(0, 2048)),
        head(&lvm::base(1).get(0, 4096)),
        vec![0; 8],
        vec![],
    ];
    for (at, magic) in [
        (0, &b"bluestore block device"[..]),
        (0, &0xa92b_4efc_u32.to_le_bytes()),
        (4096, b"LABELONE"),
        (516, b"!Stra0tis\x86\xff\x02^\x41rh"),
        (512, b"RDSK"),
        (0, b"GNU Parted Loopback"),
    ] {
        let mut image = vec![0; at];
        image.extend_from_slice(magic);
        seeds.push(head(&image));
    }
    seeds
}

/// Reads arbitrary bytes at both ends of a drive of any size.
fn signatures(data: &[u8]) {
    let mut input = Input(data);
    let size = input.number(4) * 512;
    let sector = if size & 512 == 0 { 512 } else { 4096 };
    let bytes = input.0;
    let len = (bytes.len() as u64).min(size) as usize;
    let read = |at: u64, count: usize| {
        assert!(count <= 2 << 20, "reads {count} bytes at once");
        let mut out = vec![0; count];
        // The input is at the start of the drive and at its end.
        for start in [0, size.saturating_sub(len as u64)] {
            let first = at.max(start);
            let after = (at + count as u64).min(start + len as u64);
            if first < after {
                let (from, to) = ((first - start) as usize, (first - at) as usize);
                let part = &bytes[from..from + (after - first) as usize];
                out[to..to + part.len()].copy_from_slice(part);
            }
        }
        Ok::<_, Infallible>(out)
    };
    let hits = magics::find(size, &bytes[..len], &bytes[..len]);
    assert!(hits.iter().all(|one| one.offset < Some(size)), "{hits:?}");
    let Ok(remains) = remains::find(size, &mut |at, count| read(at, count));
    assert!(remains.is_none_or(|one| one.offset < Some(size)));
    let scan = gpt::scan(&Drive { size, sector, read });
    assert!(scan.is_ok_and(|scan| !scan.ours || scan.state != GptState::None));
}

/// A drive that supports reading only.
struct Drive<F> {
    size: u64,
    sector: u64,
    read: F,
}

impl<F: Fn(u64, usize) -> Result<Vec<u8>, Infallible>> Medium for Drive<F> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let Ok(bytes) = (self.read)(offset, buf.len());
        buf.copy_from_slice(&bytes);
        Ok(())
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn sector(&self) -> u64 {
        self.sector
    }
}
