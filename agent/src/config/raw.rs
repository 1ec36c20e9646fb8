//! The file as it is written: every key, nothing checked but its type. Unknown keys are mistakes.

use toml::de::DeTable;

use super::section::{At, Problem, Section, line_of};
use crate::smart::Thresholds;

type Text = Option<At<String>>;
type Texts = Option<At<Vec<At<String>>>>;
type Flag = Option<At<bool>>;

/// The whole file.
#[derive(Debug, Default)]
pub struct Raw {
    /// `[node] name`
    pub node_name: Text,
    /// `[node] cluster`
    pub cluster: Text,
    /// `[csi] driver-name`
    pub driver_name: Text,
    /// `[csi] socket`
    pub csi_socket: Text,
    /// `[kubelet] dir`
    pub kubelet_dir: Text,
    /// `[kubelet] registration`
    pub registration: Flag,
    /// `[kubelet] csi-socket`
    pub kubelet_csi_socket: Text,
    /// `[agent] socket`
    pub agent_socket: Text,
    /// `[agent] state-dir`
    pub state_dir: Text,
    /// `[agent] runtime-dir`
    pub runtime_dir: Text,
    /// `[discovery] allow-loop`
    pub allow_loop: Flag,
    /// `[discovery] rescan`
    pub rescan: Text,
    /// `[erase] max-bytes-per-second`
    pub erase_rate: Text,
    /// `[erase] quarantine`
    pub quarantine: Text,
    /// `[workers] idle`
    pub worker_idle: Text,
    /// `[checks]`
    pub checks: RawChecks,
    /// `[metrics] listen`
    pub metrics_listen: Text,
    /// `[probes] listen`
    pub probes_listen: Text,
    /// `[controller]`
    pub controller: RawController,
    /// `[smart]`
    pub smart: RawSmart,
    /// `[health]`
    pub health: RawHealth,
    /// `[[class]]`
    pub classes: Vec<RawClass>,
}

/// `[checks]`.
#[derive(Debug, Default)]
pub struct RawChecks {
    /// `enabled`
    pub enabled: Flag,
    /// `after-unstage`
    pub after_unstage: Flag,
    /// `window`
    pub window: Text,
    /// `interval`
    pub interval: Text,
    /// `timeout`
    pub timeout: Text,
    /// `method`
    pub method: Text,
    /// `repeats`
    pub repeats: Option<At<i32>>,
}

/// `[controller]`.
#[derive(Debug, Default)]
pub struct RawController {
    /// `addresses`
    pub addresses: Texts,
    /// `ca`
    pub ca: Text,
    /// `cert`
    pub cert: Text,
    /// `key`
    pub key: Text,
    /// `token`
    pub token: Text,
    /// `insecure-loopback`
    pub insecure_loopback: Flag,
}

/// `[smart]`.
#[derive(Debug, Default)]
pub struct RawSmart {
    /// `smartctl`
    pub smartctl: Text,
    /// `interval-hdd`
    pub interval_hdd: Text,
    /// `interval-ssd`
    pub interval_ssd: Text,
    /// `interval-deep`
    pub interval_deep: Text,
    /// `[smart.thresholds]`: those that are given.
    pub thresholds: Vec<(&'static str, At<i32>)>,
    /// `[[smart.device]]`
    pub devices: Vec<RawDevice>,
}

/// One `[[smart.device]]`.
#[derive(Debug, Default)]
pub struct RawDevice {
    /// Line of its header.
    pub line: usize,
    /// `match`
    pub pattern: Text,
    /// `type`
    pub kind: Text,
}

/// `[health]`.
#[derive(Debug, Default)]
pub struct RawHealth {
    /// `[[health.override]]`
    pub overrides: Vec<RawOverride>,
}

/// One `[[health.override]]`.
#[derive(Debug, Default)]
pub struct RawOverride {
    /// Line of its header.
    pub line: usize,
    /// `drive`
    pub drive: Text,
    /// `verdict`
    pub verdict: Text,
    /// `reason`
    pub reason: Text,
    /// `until`
    pub until: Text,
}

/// One `[[class]]`.
#[derive(Debug, Default)]
pub struct RawClass {
    /// Line of its header.
    pub line: usize,
    /// `name`
    pub name: Text,
    /// `layout`
    pub layout: Text,
    /// `priority`
    pub priority: Option<At<i32>>,
    /// `claim`
    pub claim: Text,
    /// `erase`
    pub erase: Text,
    /// `fs`
    pub fs: Text,
    /// `mkfs-options`
    pub mkfs_options: Texts,
    /// `mount-options`
    pub mount_options: Texts,
    /// `allow-removable`
    pub allow_removable: Flag,
    /// `xfs-retry-forever`
    pub xfs_retry_forever: Flag,
    /// `check-reserve`
    pub check_reserve: Text,
    /// `[class.select]`
    pub select: RawSelect,
}

/// One `[class.select]`.
#[derive(Debug, Default)]
pub struct RawSelect {
    /// `media`
    pub media: Texts,
    /// `transport`
    pub transport: Texts,
    /// `model`
    pub model: Texts,
    /// `drive`
    pub drive: Texts,
    /// `path`
    pub path: Texts,
    /// `min-size`
    pub min_size: Text,
    /// `max-size`
    pub max_size: Text,
}

/// Reads the text. Mistakes of syntax, key and type go to `problems`; what could be read is returned.
pub fn parse(text: &str, problems: &mut Vec<Problem>) -> Raw {
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        problems.push(Problem {
            line: error.span().map(|span| line_of(text, span.start)),
            key: String::new(),
            message: format!("not TOML: {}", error.message().trim().replace('\n', ", ")),
        });
    }
    if !errors.is_empty() {
        // What was recovered after a syntax error would only give follow-up mistakes.
        return Raw::default();
    }
    let mut root = Section::root(text, table.get_ref());
    let mut raw = Raw::default();

    let mut node = root.table("node", problems);
    raw.node_name = node.string("name", problems);
    raw.cluster = node.string("cluster", problems);
    node.finish(problems);

    let mut csi = root.table("csi", problems);
    raw.driver_name = csi.string("driver-name", problems);
    raw.csi_socket = csi.string("socket", problems);
    csi.finish(problems);

    let mut kubelet = root.table("kubelet", problems);
    raw.kubelet_dir = kubelet.string("dir", problems);
    raw.registration = kubelet.boolean("registration", problems);
    raw.kubelet_csi_socket = kubelet.string("csi-socket", problems);
    kubelet.finish(problems);

    let mut agent = root.table("agent", problems);
    raw.agent_socket = agent.string("socket", problems);
    raw.state_dir = agent.string("state-dir", problems);
    raw.runtime_dir = agent.string("runtime-dir", problems);
    agent.finish(problems);

    let mut discovery = root.table("discovery", problems);
    raw.allow_loop = discovery.boolean("allow-loop", problems);
    raw.rescan = discovery.string("rescan", problems);
    discovery.finish(problems);

    let mut erase = root.table("erase", problems);
    raw.erase_rate = erase.string_or_number("max-bytes-per-second", problems);
    raw.quarantine = erase.string("quarantine", problems);
    erase.finish(problems);

    let mut workers = root.table("workers", problems);
    raw.worker_idle = workers.string("idle", problems);
    workers.finish(problems);

    let mut checks = root.table("checks", problems);
    raw.checks = RawChecks {
        enabled: checks.boolean("enabled", problems),
        after_unstage: checks.boolean("after-unstage", problems),
        window: checks.string("window", problems),
        interval: checks.string("interval", problems),
        timeout: checks.string("timeout", problems),
        method: checks.string("method", problems),
        repeats: checks.integer("repeats", problems),
    };
    checks.finish(problems);
    let mut metrics = root.table("metrics", problems);
    raw.metrics_listen = metrics.string("listen", problems);
    metrics.finish(problems);
    let mut probes = root.table("probes", problems);
    raw.probes_listen = probes.string("listen", problems);
    probes.finish(problems);

    let mut controller = root.table("controller", problems);
    raw.controller = RawController {
        addresses: controller.strings("addresses", problems),
        ca: controller.string("ca", problems),
        cert: controller.string("cert", problems),
        key: controller.string("key", problems),
        token: controller.string("token", problems),
        insecure_loopback: controller.boolean("insecure-loopback", problems),
    };
    controller.finish(problems);

    raw.smart = smart(root.table("smart", problems), problems);
    raw.health = health(root.table("health", problems), problems);

    for section in root.tables("class", problems) {
        raw.classes.push(class(section, problems));
    }
    root.finish(problems);
    raw
}

fn smart(mut section: Section<'_, '_>, problems: &mut Vec<Problem>) -> RawSmart {
    let mut given = section.table("thresholds", problems);
    let thresholds = Thresholds::KEYS
        .iter()
        .filter_map(|key| Some((*key, given.integer(key, problems)?)))
        .collect();
    given.finish(problems);
    let devices = section.tables("device", problems);
    let devices = devices.into_iter().map(|mut device| {
        let raw = RawDevice {
            line: device.line(),
            pattern: device.string("match", problems),
            kind: device.string("type", problems),
        };
        device.finish(problems);
        raw
    });
    let devices = devices.collect();
    let raw = RawSmart {
        smartctl: section.string("smartctl", problems),
        interval_hdd: section.string("interval-hdd", problems),
        interval_ssd: section.string("interval-ssd", problems),
        interval_deep: section.string("interval-deep", problems),
        thresholds,
        devices,
    };
    section.finish(problems);
    raw
}

fn health(mut section: Section<'_, '_>, problems: &mut Vec<Problem>) -> RawHealth {
    let overrides = section.tables("override", problems);
    let overrides = overrides.into_iter().map(|mut given| {
        let raw = RawOverride {
            line: given.line(),
            drive: given.string("drive", problems),
            verdict: given.string("verdict", problems),
            reason: given.string("reason", problems),
            until: given.string("until", problems),
        };
        given.finish(problems);
        raw
    });
    let overrides = overrides.collect();
    section.finish(problems);
    RawHealth { overrides }
}

fn class(mut section: Section<'_, '_>, problems: &mut Vec<Problem>) -> RawClass {
    let mut select = section.table("select", problems);
    let raw_select = RawSelect {
        media: select.strings("media", problems),
        transport: select.strings("transport", problems),
        model: select.strings("model", problems),
        drive: select.strings("drive", problems),
        path: select.strings("path", problems),
        min_size: select.string_or_number("min-size", problems),
        max_size: select.string_or_number("max-size", problems),
    };
    select.finish(problems);
    let raw = RawClass {
        line: section.line(),
        name: section.string("name", problems),
        layout: section.string("layout", problems),
        priority: section.integer("priority", problems),
        claim: section.string("claim", problems),
        erase: section.string("erase", problems),
        fs: section.string("fs", problems),
        mkfs_options: section.strings("mkfs-options", problems),
        mount_options: section.strings("mount-options", problems),
        allow_removable: section.boolean("allow-removable", problems),
        xfs_retry_forever: section.boolean("xfs-retry-forever", problems),
        check_reserve: section.string_or_number("check-reserve", problems),
        select: raw_select,
    };
    section.finish(problems);
    raw
}
