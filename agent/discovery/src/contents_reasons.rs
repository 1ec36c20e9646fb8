//! Reasons from a drive's probed content: signatures, tables, Drivebay's label, raw data.

use super::{
    claim::{Evidence, Rules},
    reasons::reject,
};
use drivebay_layout::error::sector_size;
use drivebay_layout::probe::{Blankness, GptState, PV_KIND, Probed};
use drivebay_model::{ClaimPolicy, ClassConfig, Layout, Reject, RejectCode, units::human_sizes};
use drivebay_model::{Signature, Signatures};
use drivebay_sys::blkid;

/// Partition types that only boot drives have: the EFI system partition, BIOS boot, XBOOTLDR, and the root types of the Discoverable
/// Partitions Specification (x86, x86-64, arm, arm64, riscv64).
const SYSTEM_TYPES: &[&str] = &[
    "c12a7328-f81f-11d2-ba4b-00a0c93ec93b",
    "21686148-6449-6e6f-744e-656564454649",
    "bc13c2ff-59e6-4262-a352-b275fd6f7172",
    "44479540-f297-41b2-9af7-d131d5f0458a",
    "4f68bce3-e8cd-4db1-96e7-fbcaf984b709",
    "69dad710-2ce4-4e3c-b16c-21a1d49abed3",
    "b921b045-1df0-41c3-af44-4c6f280d3fae",
    "72ec70a6-cf74-40e6-bd49-4bda08e8f224",
];

/// Returns all reasons that a successful probe gives.
pub(super) fn of(
    evidence: &Evidence<'_>,
    rules: &Rules,
    class: Option<&ClassConfig>,
    probed: &Probed,
) -> Vec<Reject> {
    let mut reasons = Vec::new();
    if let Some(written) = probed.written_sector {
        let now = evidence.facts.logical_sector;
        let text = format!("it {}", sector_size(written, now.into()));
        return vec![reject(RejectCode::SectorSizeChanged, text)];
    }
    if probed.size_bytes != evidence.facts.size_bytes {
        let [was, is] = human_sizes([probed.size_bytes, evidence.facts.size_bytes]);
        reasons.push(reject(
            RejectCode::ProbeFailed,
            format!("it had {was} when it was probed and has {is} now; it is probed again"),
        ));
    }
    if probed.busy {
        reasons.push(reject(RejectCode::Busy, "it is held exclusively (by a mount, an array, or a program such as a database or a virtual machine)"));
    }
    // On a claimed LVM drive, an apparent table is inside a volume, and is its user's.
    let table_counts = probed.ours != Some(Layout::Lvm);
    if table_counts
        && probed
            .gpt_types
            .iter()
            .any(|kind| SYSTEM_TYPES.contains(&kind.as_str()))
    {
        reasons.push(reject(
            RejectCode::SystemDrive,
            "its table has a boot or root partition: some system starts from it",
        ));
    }
    if let Some(layout) = probed.ours {
        reasons.extend(of_label(evidence, rules, layout));
    } else if let Some(what) = &probed.traces {
        reasons.push(reject(
            RejectCode::OursDamaged,
            format!(
                "it has {what}, and its label is damaged or missing: it may hold volumes; restore it"
            ),
        ));
    }
    reasons.extend(of_signatures(probed));
    if table_counts {
        reasons.extend(of_table(evidence, probed));
    }
    reasons.extend(of_blankness(class, probed));
    reasons
}

fn of_label(evidence: &Evidence<'_>, rules: &Rules, layout: Layout) -> Option<Reject> {
    let mark = match layout {
        Layout::Partition => "a Drivebay label partition, whose label",
        Layout::Lvm => "a Drivebay LVM volume group, which",
    };
    match (evidence.label, evidence.label_trouble) {
        (Some(label), _) if label.cluster == rules.cluster && label.node == rules.node => None,
        (Some(label), _) => Some(reject(
            RejectCode::OursElsewhere,
            format!(
                "it belongs to node {} of cluster {}; move it back, or adopt it",
                label.node, label.cluster
            ),
        )),
        (None, Some(trouble)) => Some(reject(
            RejectCode::OursDamaged,
            format!("it has {mark} does not read: {trouble}"),
        )),
        (None, None) => Some(reject(
            RejectCode::ProbeFailed,
            format!("it has {mark} has not been read yet"),
        )),
    }
}

fn of_signatures(probed: &Probed) -> Vec<Reject> {
    let (signatures, ambiguous) = match &probed.signatures {
        Signatures::Empty => return Vec::new(),
        Signatures::Found(signatures) => (signatures, false),
        Signatures::Ambiguous(signatures) => (signatures, true),
    };
    let mut reasons: Vec<Reject> = signatures
        .iter()
        // The table of a drive with Drivebay's label, or the PV of its VG, is no foreign signature; the label decides further.
        .filter(|one| match probed.ours {
            Some(Layout::Partition) => !is_table(one),
            Some(Layout::Lvm) => one.kind != PV_KIND,
            None => true,
        })
        .map(|one| reject(code_of(one), describe(one)))
        .collect();
    let kinds = || {
        let kinds: Vec<&str> = signatures.iter().map(|one| one.kind.as_str()).collect();
        if kinds.is_empty() {
            "that were gone at the second look".to_owned()
        } else {
            format!("({})", kinds.join(", "))
        }
    };
    if ambiguous {
        reasons.push(reject(
            RejectCode::Ambivalent,
            format!("it has signatures that exclude each other {}", kinds()),
        ));
    } else if signatures.is_empty() {
        // An empty list of ambiguous signatures counts neither as Empty nor as Found.
        reasons.push(reject(
            RejectCode::OtherSignature,
            format!("it has signatures {}", kinds()),
        ));
    }
    reasons
}

fn describe(one: &Signature) -> String {
    let mut text = format!("it holds {}", one.kind);
    for (name, value) in [("label", &one.label), ("uuid", &one.uuid)] {
        if !value.is_empty() {
            text.push_str(&format!(", {name} {value}"));
        }
    }
    if let Some(offset) = one.offset {
        text.push_str(&format!(", at byte {offset}"));
    }
    text
}

fn is_table(one: &Signature) -> bool {
    one.usage == blkid::USAGE_TABLE
}

/// Returns the code for a signature, by libblkid's TYPE first and USAGE second.
fn code_of(one: &Signature) -> RejectCode {
    use RejectCode as Code;
    match one.kind.as_str() {
        _ if is_table(one) => Code::PartitionTable,
        "LVM1_member" | PV_KIND => Code::LvmPv,
        "crypto_LUKS" => Code::Luks,
        "BitLocker" => Code::Bitlocker,
        "zfs_member" => Code::Zfs,
        "ceph_bluestore" => Code::Bluestore,
        "bcache" => Code::Bcache,
        "swap" | "swsuspend" => Code::Swap,
        "jbd" => Code::Jbd,
        "vdo" => Code::Vdo,
        "stratis" => Code::Stratis,
        kind if kind.starts_with("drbd") => Code::Drbd,
        _ if one.usage == "filesystem" => Code::Filesystem,
        _ if one.usage == "raid" => Code::RaidMember,
        _ => Code::OtherSignature,
    }
}

fn of_table(evidence: &Evidence<'_>, probed: &Probed) -> Vec<Reject> {
    let mut reasons = Vec::new();
    let signature = match &probed.signatures {
        Signatures::Empty => false,
        Signatures::Found(signatures) | Signatures::Ambiguous(signatures) => {
            signatures.iter().any(is_table)
        }
    };
    match &probed.gpt {
        GptState::None => {}
        GptState::Whole if probed.ours.is_some() || signature => {}
        GptState::Whole => reasons.push(reject(RejectCode::PartitionTable, "it has a GPT")),
        GptState::Damaged(why) => reasons.push(reject(
            RejectCode::GptDamaged,
            format!("it has a damaged GPT: {why}; repair it with gdisk"),
        )),
    }
    // A claimed drive is not probed for a table.
    let was_probed = probed.ours.is_none() && probed.gpt == GptState::None;
    if !evidence.facts.partitions.is_empty() && !signature && was_probed {
        reasons.push(reject(
            RejectCode::PhantomTable,
            "the kernel has partitions without a partition table: it misread other data as an Atari table, or they were added by hand",
        ));
    }
    reasons
}

fn of_blankness(class: Option<&ClassConfig>, probed: &Probed) -> Option<Reject> {
    let wanted = class.map(|class| class.claim) == Some(ClaimPolicy::Blank);
    // A claimed drive is not read for blankness.
    let otherwise_empty = probed.ours.is_none()
        && probed.signatures == Signatures::Empty
        && probed.gpt == GptState::None;
    match &probed.blankness {
        Blankness::Blank => None,
        Blankness::DataAt(_) if class.is_some() && !wanted => None,
        Blankness::DataAt(offset) => Some(reject(
            RejectCode::NotBlank,
            format!(
                "it has no known signature but data at byte {offset}: raw data of some program, which claim = \"signature-free\" in its class allows"
            ),
        )),
        Blankness::NotSampled if wanted && otherwise_empty => Some(reject(
            RejectCode::ProbeFailed,
            "it was not read for data that has no signature; it is probed again",
        )),
        Blankness::NotSampled => None,
    }
}
