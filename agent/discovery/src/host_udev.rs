//! Detects hosts that may activate devices inside volumes. Pure.

use drivebay_model::{Finding, finding::Code};
use drivebay_sys::host_udev::{HostUdev, RULE_FILE};

/// Property that the rule sets on Drivebay's drives; a rule file without it has no such effect.
const MARK: &str = "DRIVEBAY_DRIVE";

/// Returns a finding if udevd runs without the rule.
pub fn finding(host: &HostUdev) -> Option<Finding> {
    let rule = host.rule.as_deref().unwrap_or_default();
    let active = rule
        .lines()
        .any(|line| !line.trim_start().starts_with('#') && line.contains(MARK));
    (host.runs && !active).then(|| {
        Finding::new(Code::HostReadsVolumes, format!(
            "the udev rule {RULE_FILE} is not installed on this host: the host may activate LVM, md, bcache or btrfs \
             devices that are inside volumes, and such a volume cannot be deleted. Install systemd/{RULE_FILE} in \
             /etc/udev/rules.d, or set agent.udevRule in the chart's values"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_layout::lvm::name;
    use drivebay_model::{Encryption, LABEL_TYPE, encryption::checked_mapping, lost};
    use drivebay_sys::host_udev::RULE;

    fn is_reported(runs: bool, rule: Option<&str>) -> bool {
        let rule = rule.map(str::to_owned);
        finding(&HostUdev { runs, rule }).is_some()
    }

    #[test]
    fn a_host_with_udevd_and_without_the_rule_is_reported() {
        assert!(is_reported(true, None));
        assert!(!is_reported(true, Some(RULE)));
        // Masked, or reduced to comments.
        assert!(is_reported(true, Some("")));
        assert!(is_reported(true, Some("# DRIVEBAY_DRIVE\n")));
        // udevd does not run.
        assert!(!is_reported(false, None));
    }

    /// The rule matches bytes and names that are defined elsewhere.
    #[test]
    fn the_rule_matches_what_is_written_on_drives() {
        let bytes: Vec<String> = LABEL_TYPE
            .to_bytes_le()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(RULE.matches(&bytes.join(" ")).count(), 2);
        assert!(RULE.contains(&LABEL_TYPE.to_string()));
        let hex = |text: &str| {
            let bytes: Vec<String> = text.bytes().map(|byte| format!("{byte:02x}")).collect();
            bytes.join(" ")
        };
        for mark in ["LABELONE", "LVM2 001DrvBay", "EFI PART"] {
            assert!(RULE.contains(&hex(mark)), "{mark}");
        }
        let vg = name::of_vg(uuid::Uuid::nil()).replace('-', "--");
        assert!(RULE.contains(&vg.replace('0', "[0-9a-f]")));
    }

    #[test]
    fn the_rule_matches_every_device_that_the_agent_maps_over_a_volume() {
        let volume = uuid::Uuid::from_u128(7);
        let encryption = Encryption { header: volume };
        let devices = [
            (encryption.dm_uuid(), encryption.mapping_name()),
            (lost::device_name(volume), lost::device_name(volume)),
            (checked_mapping(volume), checked_mapping(volume)),
        ];
        for (uuid, name) in devices {
            let has = |line: &str, attribute: &str, value: &str| {
                let pattern = line.split_once(&format!("ATTR{{dm/{attribute}}}==\""));
                pattern.is_none_or(|(_, rest)| {
                    let pattern = rest.split('"').next().unwrap_or_default();
                    value.starts_with(pattern.trim_end_matches("?*"))
                })
            };
            let mut lines = RULE
                .lines()
                .filter(|line| line.starts_with("ATTR{dm/uuid}=="));
            assert!(
                lines.any(|line| has(line, "uuid", &uuid) && has(line, "name", &name)),
                "{uuid}"
            );
        }
    }
}
