//! The individual reasons of the claim check, each with its evidence and a remedy for the operator.

use super::{
    claim::{Evidence, Rules, is_a_disk, skips_probe},
    contents_reasons,
    identity::is_twin,
};
use drivebay_layout::probe::ProbeError;
use drivebay_model::{
    ClassConfig, DriveFacts, LEAST_BYTES, Reject, RejectCode, Transport, cause, units::human_sizes,
};
use drivebay_sys::sysfs::identity::alone;

pub(super) fn reject(code: RejectCode, detail: impl Into<String>) -> Reject {
    Reject {
        code,
        detail: detail.into(),
    }
}

/// Returns the reasons that follow from sysfs facts.
pub(super) fn of_facts(
    evidence: &Evidence<'_>,
    rules: &Rules,
    class: Option<&ClassConfig>,
) -> Vec<Reject> {
    use RejectCode as Code;
    let facts = evidence.facts;
    let mut reasons = Vec::new();
    let mut add = |is_so: bool, code, detail: &dyn Fn() -> String| {
        if is_so {
            reasons.push(reject(code, detail()));
        }
    };
    add(!is_a_disk(facts, rules), Code::NotADisk, &|| {
        let kind = facts.virtual_kind.as_deref().unwrap_or("virtual");
        let advice = if facts.transport == Transport::Loop {
            "; loop devices count only where the config allows them, for tests"
        } else {
            ""
        };
        format!("it is a virtual device ({kind}), not a drive{advice}")
    });
    add(facts.is_partition, Code::Partition, &|| {
        "it is a partition; only whole drives are claimed".to_owned()
    });
    let remote = matches!(
        facts.transport,
        Transport::Iscsi | Transport::Fc | Transport::NvmeOf
    );
    add(
        remote || facts.virtual_kind.as_deref() == Some("rbd"),
        Code::Remote,
        &|| {
            format!(
                "it is reached over a network ({}); other nodes may use it too",
                facts.transport.as_str()
            )
        },
    );
    let removable = facts.removable || facts.transport == Transport::Usb;
    add(
        removable && !class.is_some_and(|class| class.allow_removable),
        Code::Removable,
        &|| {
            "it is removable or on USB; set allow-removable in the class that selects it to use it all the same".to_owned()
        },
    );
    add(facts.hidden, Code::HiddenPath, &|| {
        "the kernel hides it: it is one path of a drive that is shown under another name".to_owned()
    });
    let multipath = facts.holders.iter().find(|holder| {
        holder
            .dm_uuid
            .as_deref()
            .is_some_and(|uuid| uuid.starts_with("mpath-"))
    });
    add(multipath.is_some(), Code::MultipathMember, &|| {
        format!(
            "it is one path of the multipath device {}",
            multipath.map_or("", |holder| holder.name.as_str())
        )
    });
    let probed_read_only = evidence
        .probed
        .and_then(|probed| probed.as_ref().ok())
        .is_some_and(|probed| probed.read_only);
    add(facts.read_only || probed_read_only, Code::ReadOnly, &|| {
        "the kernel says it is read-only; look for a write-protect switch, or for errors in the kernel log".to_owned()
    });
    add(facts.size_bytes == 0, Code::ZeroSize, &|| {
        "it has no size: no medium, nothing attached, or a drive that failed to start".to_owned()
    });
    add(
        facts.size_bytes > 0 && facts.size_bytes < LEAST_BYTES,
        Code::TooSmall,
        &|| {
            let [size, least] = human_sizes([facts.size_bytes, LEAST_BYTES]);
            format!("it has {size}; a drive needs at least {least}")
        },
    );
    add(facts.zoned, Code::Zoned, &|| {
        "it is a zoned drive, which cannot be written in any order".to_owned()
    });
    add(facts.not_running.is_some(), Code::NotRunning, &|| {
        format!(
            "its state is {}; see the kernel log, and replace it or rescan its host",
            facts.not_running.as_deref().unwrap_or_default()
        )
    });
    add(!facts.partitions.is_empty(), Code::HasPartitions, &|| {
        let names: Vec<&str> = facts
            .partitions
            .iter()
            .map(|partition| partition.kernel_name.as_str())
            .collect();
        format!("the kernel shows partitions on it ({})", names.join(", "))
    });
    let twins: Vec<&str> = twins(facts, evidence.all).collect();
    add(!twins.is_empty(), Code::DuplicateIdentity, &|| {
        format!(
            "{} has the same identity ({}): two paths to one drive, a copied image, or drives with the same name from their manufacturer",
            twins.join(", "),
            alone(facts)
        )
    });
    let explicit = class.is_some_and(|class| class.select.is_explicit());
    add(
        !facts.identity_is_stable && !explicit,
        Code::NoStableIdentity,
        &|| {
            format!(
                "it has neither a WWN nor a serial number; select it by path in its class to use it (its place is {})",
                facts.sysfs_path
            )
        },
    );
    reasons
}

/// Returns other devices that nothing distinguishes from this one. Hidden NVMe paths are the same namespace, and are not included.
fn twins<'a>(facts: &'a DriveFacts, all: &'a [DriveFacts]) -> impl Iterator<Item = &'a str> {
    all.iter()
        .filter(|other| is_twin(facts, other))
        .map(|other| other.kernel_name.as_str())
}

/// Returns the reasons that follow from the host's current use of the drive.
pub(super) fn of_host(evidence: &Evidence<'_>) -> Vec<Reject> {
    let name = &evidence.facts.kernel_name;
    let mut reasons = Vec::new();
    let holders: Vec<String> = evidence
        .facts
        .holders
        .iter()
        .map(|holder| format!("{} on {}", holder.name, holder.held))
        .collect();
    if !holders.is_empty() {
        reasons.push(reject(
            RejectCode::Holders,
            format!("other devices stand on it: {}", holders.join(", ")),
        ));
    }
    for (map, code, what) in [
        (
            &evidence.host.mounted,
            RejectCode::Mounted,
            "it is mounted at",
        ),
        (
            &evidence.host.swap,
            RejectCode::SwapInUse,
            "it is swapped to, through",
        ),
        (
            &evidence.host.system,
            RejectCode::SystemDrive,
            "the system runs from it:",
        ),
    ] {
        if let Some(places) = map.get(name) {
            reasons.push(reject(code, format!("{what} {}", places.join(", "))));
        }
    }
    if let Some(why) = &evidence.host.unknown {
        reasons.push(reject(
            RejectCode::HostUnknown,
            format!(
                "what the host uses is not seen from here ({why}); give the agent's pod hostPID: true, and the kubelet's directories with mountPropagation: Bidirectional"
            ),
        ));
    }
    reasons
}

/// Returns the reasons that follow from the probe: its failure, or its findings.
pub(super) fn of_probe(
    evidence: &Evidence<'_>,
    rules: &Rules,
    class: Option<&ClassConfig>,
) -> Vec<Reject> {
    match evidence.probed {
        // The facts gave a reason already.
        None if skips_probe(evidence.facts, rules) => Vec::new(),
        None => vec![reject(
            RejectCode::ProbeFailed,
            "it has not been probed yet; the next scan probes it",
        )],
        Some(Err(error)) => vec![failed(error)],
        Some(Ok(probed)) => contents_reasons::of(evidence, rules, class, probed),
    }
}

fn failed(error: &ProbeError) -> Reject {
    let text = cause::chain(error);
    let unreadable = match error {
        ProbeError::Read { .. } => true,
        ProbeError::Blkid { source, .. } | ProbeError::Open { source, .. } => {
            source.errno() == Some(libc::EIO)
        }
        ProbeError::NotThisDrive { .. } => false,
    };
    match unreadable {
        true => reject(
            RejectCode::Unreadable,
            format!("{text}; see the kernel log and the drive's health"),
        ),
        false => reject(
            RejectCode::ProbeFailed,
            format!("{text}; its contents are unknown; it will be probed again"),
        ),
    }
}

/// Returns the reasons that follow from the classes.
pub(super) fn of_selection(selected: &Result<Option<&ClassConfig>, Vec<&str>>) -> Vec<Reject> {
    match selected {
        Ok(Some(_)) => Vec::new(),
        Ok(None) => vec![reject(
            RejectCode::NotSelected,
            "no class of the config selects it",
        )],
        Err(names) => vec![reject(
            RejectCode::AmbiguousClass,
            format!(
                "the classes {} all select it; give one of them a higher priority, or narrow their selectors",
                names.join(" and ")
            ),
        )],
    }
}
