//! Tests of the configuration: the example, the defaults, and every kind of mistake.

use std::{path::Path, time::Duration};

use super::*;
use drivebay_model::{FsType, Media};

pub(super) use reference::bare;

fn with_kubelet() -> HostFacts {
    HostFacts {
        has_dir: |path| path == Path::new("/var/lib/kubelet"),
        ..bare()
    }
}

fn mistakes(text: &str) -> String {
    let problems = parse(text, &bare()).expect_err("there are mistakes");
    listed(Path::new("drivebay.toml"), &problems)
}

fn warnings(text: &str) -> Vec<String> {
    let checked = parse(text, &bare()).unwrap_or_else(|problems| panic!("{problems:#?}"));
    checked.warnings.iter().map(ToString::to_string).collect()
}

const CLASS: &str = "[[class]]\nname = 'a'\n[class.select]\nmedia = 'hdd'\n";

#[test]
fn the_example_is_right_and_shows_the_defaults() {
    let checked = parse(EXAMPLE, &bare()).unwrap_or_else(|problems| panic!("{problems:#?}"));
    assert_eq!(checked.warnings, []);
    let config = checked.config;
    assert_eq!(config.node_id, "node7");
    assert_eq!(config.cluster, "default");
    assert_eq!(config.driver_name, "csi.drivebay.io");
    assert_eq!(config.csi_socket, Path::new("/run/drivebay/csi.sock"));
    assert_eq!(config.kubelet_csi_socket, config.csi_socket);
    assert_eq!(config.agent_socket, Path::new(DEFAULT_AGENT_SOCKET));
    assert_eq!(config.registration_dir, None);
    assert_eq!(config.state_dir, Path::new("/var/lib/drivebay"));
    assert_eq!(config.runtime_dir, Path::new("/run/drivebay"));
    assert_eq!(config.rescan, Duration::from_secs(300));
    assert_eq!(config.quarantine, Duration::from_secs(86_400));
    assert_eq!(config.worker_idle, Duration::from_secs(150));
    assert_eq!(config.erase_bytes_per_second, Some(200 * 1024 * 1024));
    assert_eq!(config.metrics.to_string(), "http://127.0.0.1:9810");
    assert!(!config.allow_loop);
    assert_eq!(config.health, HealthConfig::default());
    for key in drivebay_smart::Thresholds::KEYS {
        let shown = format!(
            "#{key} = {}\n",
            config.health.thresholds.value(key).unwrap()
        );
        assert!(EXAMPLE.contains(&shown), "{shown}");
    }
    let [fast, bulk] = config.classes.as_slice() else {
        panic!("two classes")
    };
    assert_eq!(fast.select.media, [Media::Nvme]);
    assert_eq!(fast.select.min_bytes, Some(100_000_000_000));
    assert_eq!(bulk.fs_type, FsType::Xfs);
}

#[test]
fn every_key_of_the_example_is_a_known_one() {
    // Each "#key = value" line is uncommented: an example with an unknown key would mislead.
    let uncommented: String = EXAMPLE
        .lines()
        // It replaces other keys that are set.
        .filter(|line| !line.starts_with("#token"))
        .map(|line| match line.strip_prefix('#') {
            Some(rest)
                if rest.starts_with("[[") || rest.starts_with(|c: char| c.is_ascii_lowercase()) =>
            {
                format!("{rest}\n")
            }
            _ => format!("{line}\n"),
        })
        .collect();
    let checked = parse(&uncommented, &bare()).unwrap_or_else(|problems| panic!("{problems:#?}"));
    assert_eq!(checked.config.node_id, "rack1-node7");
    assert_eq!(checked.config.classes[0].mkfs_options, ["-m", "0"]);
}

#[test]
fn the_example_has_every_key() {
    let shown = reference::entries(EXAMPLE);
    let keys = schema::keys::<raw::Raw>();
    assert!(keys.len() > 90, "{keys:#?}");
    for key in keys.iter().filter(|key| key.table.is_none()) {
        let (section, name) = (key.section.as_str(), key.name);
        let is_shown = shown
            .iter()
            .any(|it| it.section == section && it.key == name);
        assert!(is_shown, "{section} {name}");
    }
}

#[test]
fn with_a_kubelet_the_socket_is_where_the_kubelet_expects_it() {
    let config = parse(CLASS, &with_kubelet()).unwrap().config;
    assert_eq!(
        config.csi_socket,
        Path::new("/var/lib/kubelet/plugins/csi.drivebay.io/csi.sock")
    );
    assert_eq!(
        config.registration_dir.as_deref(),
        Some(Path::new("/var/lib/kubelet/plugins_registry"))
    );
    let text = format!("kubelet.registration = false\n{CLASS}");
    let config = parse(&text, &with_kubelet()).unwrap().config;
    assert_eq!(
        config.csi_socket,
        Path::new("/var/lib/kubelet/plugins/csi.drivebay.io/csi.sock"),
        "somebody else registers it"
    );
    assert_eq!(config.registration_dir, None);
}

#[test]
fn without_a_kubelets_directory_the_socket_is_the_agents_own_unless_it_registers() {
    let checked = |keys: &str| parse(&format!("{keys}\n{CLASS}"), &bare()).unwrap();
    for keys in ["", "kubelet.registration = false"] {
        let checked = checked(keys);
        let socket = checked.config.csi_socket;
        assert_eq!(socket, Path::new("/run/drivebay/csi.sock"), "{keys}");
        assert_eq!(checked.warnings, [], "{keys}");
    }
    // A configured directory that does not exist may be a mistake.
    let named = checked("kubelet.registration = false\nkubelet.dir = '/k'");
    let socket = named.config.csi_socket;
    assert_eq!(socket, Path::new("/run/drivebay/csi.sock"));
    assert_eq!(named.warnings.len(), 1);
    let warning = named.warnings[0].to_string();
    assert!(
        warning.contains("[kubelet] dir: there is no such directory"),
        "{warning}"
    );
    // The kubelet creates it when it starts.
    let later = checked("kubelet.registration = true");
    assert_eq!(
        later.config.csi_socket,
        Path::new("/var/lib/kubelet/plugins/csi.drivebay.io/csi.sock")
    );
    assert_eq!(later.warnings, []);
}

#[test]
fn a_name_that_no_storage_class_can_have_is_warned_of_where_there_is_a_kubelet() {
    let of = |name: &str, keys: &str| {
        warnings(&format!(
            "{keys}\n[[class]]\nname = '{name}'\n[class.select]\nmedia = 'hdd'\n"
        ))
    };
    let kubelet = "kubelet.registration = true";
    // The same names as in deploy/check, where the chart refuses them.
    for name in ["Fast_1", "FAST", "a_b", "a..b", "a.-b", "a-.b"] {
        let messages = of(name, kubelet);
        assert_eq!(messages.len(), 1, "{name}");
        assert!(
            messages[0].contains("lower-case letters, digits"),
            "{messages:?}"
        );
        assert_eq!(of(name, "kubelet.registration = false"), [""; 0], "{name}");
    }
    for name in ["fast", "7", "fast.3", "a-b.c--d"] {
        assert_eq!(of(name, kubelet), [""; 0], "{name}");
    }
}

#[test]
fn the_chart_takes_every_key_of_a_class() {
    let schema = include_str!("../../../deploy/chart/values.schema.json");
    let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
    let keys = schema["properties"]["classes"]["items"]["properties"].as_object();
    // This one is only in the chart.
    let keys = keys.unwrap().keys().map(String::as_str);
    let keys: Vec<&str> = keys.filter(|key| *key != "storageClass").collect();
    let listed = mistakes("[[class]]\nname = 'a'\nfx = 1\n");
    let (_, listed) = listed.split_once("known keys: ").unwrap();
    let listed = listed.lines().next().unwrap();
    assert_eq!(keys.join(", "), listed);
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_what_was_meant() {
    let text =
        "[[class]]\nname = 'a'\nfx = 1\n[class.select]\nmedai = ['hdd']\nmedia = 'ssd'\n[nodes]\n";
    assert_eq!(
        mistakes(text),
        "drivebay.toml:3: unknown key `fx` in [[class]] (did you mean `fs`?); known keys: allow-removable, check-reserve, claim, erase, evacuate, fs, layout, mkfs-options, mount-options, name, placement, priority, raw-space, select, xfs-retry-forever\n\
         drivebay.toml:5: unknown key `medai` in [class.select] (did you mean `media`?); known keys: drive, max-size, media, min-size, model, path, transport\n\
         drivebay.toml:7: unknown key `nodes` in the file (did you mean [node]?); known keys: agent, checks, class, controller, csi, discovery, erase, health, kubelet, metrics, moves, node, probes, smart, workers"
    );
}

#[test]
fn a_key_in_the_wrong_place_is_shown_where_it_belongs() {
    let meant = |text: &str| {
        let all = mistakes(text);
        let of = |line: &str| {
            let (_, meant) = line.split_once(" (").unwrap_or_default();
            let (meant, _) = meant.split_once("); known keys").unwrap_or_default();
            meant.to_owned()
        };
        all.lines().map(of).collect::<Vec<_>>().join("; ")
    };
    for (text, expected) in [
        ("[[classes]]\nname = 'a'", "did you mean [[class]]?"),
        // A level too high.
        (
            "[[class]]\nname = 'a'\nmedia = 'hdd'\nselect.model = 'M'",
            "it belongs into [class.select]",
        ),
        (
            "[smart]\npending_bad = 9\nmatch = 'a'",
            "it belongs into [smart.thresholds]; it belongs into [[smart.device]]",
        ),
        (
            "quarantine = '1h'\nlisten = 'off'",
            "it belongs into [erase]; it belongs into [metrics] or [probes]",
        ),
        (
            "[select]\nmedia = 'hdd'\n[[device]]\nmatch = 'a'",
            "it belongs into [[class]], as [class.select]; it belongs into [smart], as [[smart.device]]",
        ),
        // A level too low: after the table that it should precede.
        (
            "[[class]]\nname = 'a'\n[class.select]\nmedia = 'hdd'\nfs = 'xfs'\nmin_size = '1GB'",
            "it belongs into [[class]]; did you mean `min-size`?",
        ),
        // In another section.
        (
            "[kubelet]\nallow-loop = true",
            "it belongs into [discovery]",
        ),
        // Both exist in four sections or more, or in none.
        ("[agent]\ninterval = '1h'", "it belongs into [checks]"),
        ("[kubelet]\ncolour = 'red'", ""),
    ] {
        assert_eq!(meant(text), expected, "{text}");
    }
}

#[test]
fn a_mount_option_that_the_kernel_refuses_is_a_mistake_among_the_others() {
    use drivebay_fs::kernel_options::OptionsCheck;
    let host = |check_mount_options| HostFacts {
        check_mount_options,
        ..bare()
    };
    let text = "[[class]]\nname = 'a'\nfs = 'xfs'\nmount-options = ['noatime', 'nobarier']\nclam = 1\n[class.select]\nmedia = 'hdd'\n";
    let refusing = host(|fs_type, flags| OptionsCheck::Refused {
        options: flags.data.join(","),
        why: format!("{fs_type}: Unknown parameter"),
    });
    let problems = parse(text, &refusing).unwrap_err();
    assert_eq!(
        problems.iter().map(|it| it.to_string()).collect::<Vec<_>>()[0],
        "4: [[class]] mount-options: the kernel refuses \"nobarier\" (xfs: Unknown parameter)"
    );
    assert_eq!(problems.len(), 2, "{problems:#?}");
    let silent = host(|_, _| OptionsCheck::NotChecked {
        why: "no root".into(),
    });
    let checked = parse(&text.replace("clam = 1\n", ""), &silent).unwrap();
    assert_eq!(
        checked.warnings[0].to_string(),
        "4: [[class]] mount-options: not checked by the kernel: no root"
    );
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let text = "\
[node]
name = '-bad'
cluster = 7
[csi]
driver-name = 'csi.drivebay.io.'
socket = 'unix:///run/csi.sock'
[agent]
socket = 'agent.sock'
state-dir = '/var/../etc'
[discovery]
allow-loop = 'yes'
rescan = '1s'
[erase]
max-bytes-per-second = '10G'
quarantine = 'never'
[[class]]
layout = 'zvol'
placement = 'spred'
priority = 1.5
claim = 'blnk'
fs = 'zfs'
mount-options = ['ok', 3]
[[class]]
name = 'b'
[class.select]
transport = ['iscsi']
min-size = '2TB'
max-size = '1TB'
[[class]]
name = 'b'
[class.select]
media = []
";
    assert_eq!(
        mistakes(text),
        "\
drivebay.toml:2: [node] name: \"-bad\" cannot be a node id: 1 to 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit (it becomes a node label)
drivebay.toml:3: [node] cluster: must be a text in quotes, not an integer
drivebay.toml:5: [csi] driver-name: \"csi.drivebay.io.\" cannot be a CSI driver name: at most 63 lower-case letters, digits, '-' and '.', like a DNS name, beginning and ending with a letter
drivebay.toml:6: [csi] socket: write the path alone, without unix://: \"/run/csi.sock\"
drivebay.toml:8: [agent] socket: \"agent.sock\" must be an absolute path
drivebay.toml:9: [agent] state-dir: \"/var/../etc\" must not hold '..' or control characters
drivebay.toml:11: [discovery] allow-loop: must be true or false, not a string
drivebay.toml:12: [discovery] rescan: \"1s\" is too short; at least \"10s\"
drivebay.toml:14: [erase] max-bytes-per-second: \"10G\" does not say which unit: write 10GiB (binary, 1024) or 10GB (decimal, 1000), or \"unlimited\"
drivebay.toml:15: [erase] quarantine: \"never\" is not a duration; write for example \"30s\", \"5m\", \"24h\" or \"1h30m\"
drivebay.toml:16: [[class]] name: is missing; StorageClasses name the class by it
drivebay.toml:16: [class.select]: class \"\" selects nothing: give at least one of media, transport, model, drive, path, min-size, max-size (drive = \"*\" for all)
drivebay.toml:17: [[class]] layout: \"zvol\" is not known; allowed: partition, lvm
drivebay.toml:18: [[class]] placement: \"spred\" is not known (did you mean \"spread\"?); allowed: spread, pack
drivebay.toml:19: [[class]] priority: must be a whole number from -2147483648 to 2147483647
drivebay.toml:20: [[class]] claim: \"blnk\" is not known (did you mean \"blank\"?); allowed: blank, signature-free
drivebay.toml:21: [[class]] fs: \"zfs\" is not known (did you mean \"xfs\"?); allowed: ext4, xfs, btrfs
drivebay.toml:22: [[class]] mount-options: must be a list of texts; this entry must be in quotes, not an integer
drivebay.toml:26: [class.select] transport: \"iscsi\" is remote storage; only local drives are ever used
drivebay.toml:28: [class.select] max-size: \"1TB\" is below min-size; no drive can match
drivebay.toml:29: [class.select]: class \"b\" selects nothing: give at least one of media, transport, model, drive, path, min-size, max-size (drive = \"*\" for all)
drivebay.toml:30: [[class]] name: class \"b\" already exists, in line 24; class names are unique"
    );
}

#[test]
fn checks_are_on_and_trusted_unless_an_operator_configures_otherwise() {
    use drivebay_fs::check::plan::Doubtful;
    let class = "[[class]]\nname = 'a'\nselect = { media = ['hdd'] }\n";
    let good = |text: &str| parse(text, &bare()).unwrap_or_else(|problems| panic!("{problems:#?}"));
    let checks = |text: &str| good(&format!("{text}\n{class}")).config.checks;
    let default = checks("");
    assert!(default.rules.enabled && default.rules.after_unstage);
    assert_eq!(default.rules.window, None);
    assert_eq!(default.doubtful, Doubtful::Leave);
    let text = "[checks]\nenabled = false\nwindow = '22:00-04:30'\ninterval = '7d'\ntimeout = '2h'\nmethod = 'repeated'\nrepeats = 3";
    let set = checks(text);
    assert!(!set.rules.enabled);
    assert_eq!(
        set.rules.window.map(|window| (window.from, window.to)),
        Some((79200, 16200))
    );
    assert_eq!(set.rules.interval.as_secs(), 7 * 86400);
    assert_eq!(
        (set.timeout.as_secs(), set.doubtful),
        (7200, Doubtful::Repeat { runs: 3 })
    );
    let warned = good(&format!("{text}\n{class}")).warnings;
    assert!(
        warned
            .iter()
            .any(|warning| warning.message.contains("often wrong")),
        "{warned:?}"
    );

    let wrong = mistakes(&format!(
        "[checks]\nwindow = '2-5'\ntimeout = '1s'\nmethod = 'x'\nrepeats = 1\n{class}check-reserve = '1G'\n"
    ));
    for part in [
        "[checks] window: \"2-5\"",
        "[checks] timeout: \"1s\" is too short",
        "[checks] method: \"x\"",
        "[checks] repeats: must be between 2 and 20",
        "check-reserve: \"1G\" does not say which unit",
    ] {
        assert!(wrong.contains(part), "{part}: {wrong}");
    }
}

#[test]
fn broken_toml_is_reported_with_its_line_and_nothing_else() {
    let text = mistakes("[node]\nname = 'a\n[csi]\n");
    assert!(text.starts_with("drivebay.toml:2: not TOML: "), "{text}");
    let text = mistakes("[node]\nname = 'a'\nname = 'b'\n");
    assert!(
        text.starts_with("drivebay.toml:3: not TOML: duplicate key name; "),
        "{text}"
    );
    let text = mistakes("[discovery]\nallow-loop = true\n[csi]\n[discovery]\n");
    assert!(
        text.starts_with("drivebay.toml:4: not TOML: duplicate key discovery; "),
        "{text}"
    );
}

#[test]
fn a_single_bracket_class_is_explained() {
    assert_eq!(
        mistakes("[class]\nname = 'a'\n"),
        "drivebay.toml:1: class: must be a list of tables: write [[class]], with two brackets, not a table"
    );
}

#[test]
fn a_value_of_a_wrong_type_is_reported_once_and_not_as_missing_too() {
    let text = "\
node = 1
health.override = [2, { drive = 3, verdict = 'bad', reason = ['x'] }]
class = [{ name = 4, select.media = [5], select.min-size = 1.5 }]
";
    assert_eq!(
        mistakes(text),
        "\
drivebay.toml:1: node: must be a table, [node], not an integer
drivebay.toml:2: [health] override: must be a table: write [[health.override]], not an integer
drivebay.toml:2: [[health.override]] drive: must be a text in quotes, not an integer
drivebay.toml:2: [[health.override]] reason: must be a text in quotes, not an array
drivebay.toml:3: [[class]] name: must be a text in quotes, not an integer
drivebay.toml:3: [class.select] media: must be a list of texts; this entry must be in quotes, not an integer
drivebay.toml:3: [class.select] min-size: must be a size in quotes or a number of bytes, not a float"
    );
}

#[test]
fn a_socket_path_the_kernel_cannot_take_is_refused() {
    let exact = format!("/{}", "s".repeat(106));
    assert!(parse(&format!("agent.socket = '{exact}'\n{CLASS}"), &bare()).is_ok());
    let text = mistakes(&format!("agent.socket = '{exact}x'\n{CLASS}"));
    assert!(
        text.contains(":1: [agent] socket: ") && text.contains("has 108 bytes"),
        "{text}"
    );
    // The default below a long kubelet directory is checked too.
    let text = mistakes(&format!(
        "[kubelet]\ndir = '/{}'\nregistration = true\n{CLASS}",
        "k".repeat(90)
    ));
    assert!(
        text.contains("[csi] socket") && text.contains("registration socket"),
        "{text}"
    );
}

#[test]
fn a_driver_name_keeps_the_rules_of_csi() {
    for (name, good) in [
        ("csi.drivebay.io", true),
        ("a", true),
        (&*"a".repeat(63), true),
        (&*"a".repeat(64), false),
        ("", false),
        ("1csi.io", false),
        ("csi.io2", false),
        ("Csi.io", false),
        ("csi..io", false),
        ("csi-.io", false),
        ("csi_x.io", false),
    ] {
        let text = format!("csi.driver-name = '{name}'\n{CLASS}");
        assert_eq!(parse(&text, &bare()).is_ok(), good, "{name}");
    }
}

#[test]
fn two_classes_for_the_same_drives_are_warned_of_unless_priority_decides() {
    let two = |a: &str, b: &str| format!("[[class]]\nname='a'\n{a}\n[[class]]\nname='b'\n{b}\n");
    let same = two("select.media='hdd'", "select.media=['ssd','hdd']");
    assert_eq!(
        warnings(&same),
        [
            "4: [[class]]: AmbiguousClass: \"a\" and \"b\" select the same drives with the same priority (0); such drives belong to neither. Narrow one, or give one a higher priority"
        ]
    );
    for apart in [
        two("select.media='hdd'", "select.media='ssd'"),
        two("select.media='hdd'\npriority=1", "select.media='hdd'"),
        two("select.max-size='1TB'", "select.min-size='2TB'"),
        two("select.model='A*'", "select.model='B*'"),
    ] {
        assert_eq!(warnings(&apart), Vec::<String>::new(), "{apart}");
    }
}

#[test]
fn odd_choices_are_allowed_with_a_warning() {
    assert_eq!(
        warnings(""),
        ["[[class]]: there is no class: no drive will ever be used"]
    );
    let messages = warnings(&format!(
        "{CLASS}transport = ['loop', 'usb']\n[erase]\nquarantine = '0s'\n"
    ));
    assert_eq!(messages.len(), 3, "{messages:?}");
}

#[test]
fn a_selector_that_can_never_match_is_warned_of() {
    let warned = |loops: bool, line: &str| {
        let loops = format!("[discovery]\nallow-loop = {loops}\n");
        let messages = warnings(&format!(
            "{loops}[[class]]\nname = 'a'\n[class.select]\n{line}\n"
        ));
        let of = |warning: &String| warning.split_once("[class.select] ").unwrap().1.to_owned();
        messages.iter().map(of).collect::<Vec<_>>().join("\n")
    };
    for good in [
        "drive = ['*', 'wwn-0x5000c500a1b2c3d4', 'eui-*', 'serial-M_?', '?wn-*', 'w*', 'path-devices-*']",
        "drive = ['/dev/disk/by-id/wwn-0x5000c500a1b2c3d4', '/dev/disk/by-id/ata-ST4000*', '/dev/disk/by-id/*', '/dev/sd*']",
        "drive = ['/dev/disk/by-id/scsi-35000c500a1b2c3d4', '/dev/disk/by-id/nvme-eui.0025385b01b12345', '/dev/disk/by-id/virtio-db1']",
        "path = ['*', '/sys/devices/pci0000:00/*', '/sys/*', '*.img', 'vd?']",
        "media = 'nvme'\ntransport = ['sata', 'nvme']",
        "model = 'Samsung SSD *'",
    ] {
        assert_eq!(warned(false, good), "", "{good}");
    }
    assert_eq!(
        warned(
            true,
            "path = ['/srv/*.img']\ndrive = ['loop-a*']\ntransport = 'loop'"
        ),
        ""
    );

    const SHOWN: &str = "as `drivebay-agent claim-plan` shows";
    for (line, part) in [
        (
            "path = '/dev/loop1'",
            "path: \"/dev/loop1\" can never match: loop devices are not used",
        ),
        (
            "path = '/srv/a.img'",
            "can never match: it is a file's path; loop devices are not used",
        ),
        (
            "drive = 'loop-a.img-*'",
            "can never match: loop devices are not used",
        ),
        ("transport = 'loop'", "transport: loop devices are not used"),
        (
            "path = ['/dev/sdb']",
            "\"/dev/sdb\" is a kernel name, which may be another drive's after a reboot",
        ),
        ("path = ['nvme0n1']", "is a kernel name"),
        ("drive = ['/dev/nvme0n1']", "is a kernel name"),
        (
            "drive = ['sdb']",
            "can never match: drive takes identities, as",
        ),
        (
            "drive = ['/dev/mapper/mpatha']",
            "can never match: it is no drive's own node",
        ),
        (
            "drive = ['/dev/disk/by-path/pci-0000:00:17.0-ata-1']",
            "can never match: it is no drive's own node",
        ),
        (
            "drive = ['/dev/disk/by-id/wwn-0x5000c500a1b2c3d4-part1']",
            "the link is a partition's",
        ),
        (
            "drive = ['/dev/disk/by-id/usb-Disk_123-0:0']",
            "of these links only ata-…, nvme-…, scsi-3…, virtio-…, wwn-… are supported",
        ),
        (
            "path = ['/dev/disk/by-id/wwn-0x5000c500a1b2c3d4']",
            "belongs into `drive`",
        ),
        (
            "drive = ['ata-ST4000_ZC1']",
            "write \"/dev/disk/by-id/ata-ST4000_ZC1\"",
        ),
        (
            "drive = ['0x5000c500a1b2c3d4']",
            "it is written \"wwn-0x5000c500a1b2c3d4\"",
        ),
        (
            "drive = ['naa.5000c500a1b2*']",
            "it is written \"wwn-0x5000c500a1b2*\"",
        ),
        (
            "drive = ['eui.0025385b01b12345']",
            "it is written \"eui-0025385b01b12345\"",
        ),
        (
            "drive = ['wwn-0x5000C500A1B2C3D4']",
            "written in lower case",
        ),
        ("drive = ['ZC1A2B3C']", "identities begin with wwn-, eui-,"),
        (
            "path = ['/sys/block/sda']",
            "sysfs paths begin with /sys/devices/",
        ),
        ("path = ['disks/a.img']", "paths begin with /"),
        ("model = ' ST4000*'", "no white space"),
        ("max-size = '10MB'", "can never match: the smallest drive"),
        (
            "media = 'nvme'\ntransport = ['sata', 'sas']",
            "no drive has this transport and this media",
        ),
        (
            "media = 'hdd'\ntransport = 'nvme'",
            "no drive has this transport and this media",
        ),
    ] {
        let warning = warned(false, line);
        assert!(warning.contains(part), "{line}: {warning}");
        assert_eq!(warning.lines().count(), 1, "{line}: {warning}");
    }
    assert!(warned(false, "drive = ['sda']").contains(SHOWN));
}

#[test]
fn a_size_without_a_unit_that_nobody_means_is_refused() {
    for size in ["'100'", "100"] {
        let text = format!("[[class]]\nname = 'a'\n[class.select]\nmin-size = {size}\n");
        assert_eq!(
            mistakes(&text),
            "drivebay.toml:4: [class.select] min-size: \"100\" has no unit and would be 100 bytes; write 100GiB or 100MiB, or 100B if bytes are meant"
        );
    }
    let bytes = "[[class]]\nname = 'a'\n[class.select]\nmin-size = 100000000000\n";
    let config = parse(bytes, &bare()).unwrap().config;
    assert_eq!(config.classes[0].select.min_bytes, Some(100_000_000_000));
}

#[test]
fn erasing_can_be_unlimited() {
    let config = parse(
        &format!("erase.max-bytes-per-second = 'unlimited'\n{CLASS}"),
        &bare(),
    )
    .unwrap()
    .config;
    assert_eq!(config.erase_bytes_per_second, None);
    let config = parse(
        &format!("erase.max-bytes-per-second = 52_428_800\n{CLASS}"),
        &bare(),
    )
    .unwrap()
    .config;
    assert_eq!(config.erase_bytes_per_second, Some(50 * 1024 * 1024));
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_checks_panic(text in "(\\[\\[?(class|node|csi|class.select)\\]\\]?\n|(name|media|fs|socket) ?= ?['\"a-z\\[\\]0-9]{0,8}\n|.{0,10}\n){0,8}") {
        let _ = parse(&text, &bare());
    }
}

fn controller_of(section: &str) -> Result<Option<crate::ControllerConfig>, String> {
    let text = format!("{section}\n[[class]]\nname = \"a\"\n[class.select]\nmedia = [\"hdd\"]\n");
    let host = HostFacts {
        hostname: "n".into(),
        has_dir: |_| false,
        check_mount_options: |_, _| drivebay_fs::kernel_options::OptionsCheck::Accepted,
    };
    parse(&text, &host)
        .map(|checked| checked.config.controller)
        .map_err(|problems| problems[0].message.clone())
}

#[test]
fn controllers_are_dialled_with_certificates_or_on_a_unix_socket_and_never_half() {
    const FILES: &str = "ca = \"/a\"\ncert = \"/b\"\nkey = \"/c\"\n";
    let section = |lines: &str| controller_of(&format!("[controller]\n{lines}"));
    assert_eq!(controller_of("").unwrap(), None);
    let addresses = "addresses = [\"c.example:9443\", \"10.0.0.1:9443\"]\n";
    let both = section(&format!("{addresses}{FILES}")).unwrap().unwrap();
    assert_eq!(both.targets.len(), 2);
    assert_eq!(
        both.tls.unwrap().own.unwrap().key,
        std::path::Path::new("/c")
    );
    let socket = "addresses = [\"unix:/run/c.sock\"]\n";
    assert_eq!(section(socket).unwrap().unwrap().tls, None);
    let mixed = "addresses = [\"unix:/run/c.sock\", \"c:1\"]\n";
    let mixed_with_files = section(&format!("{mixed}{FILES}"));
    assert!(mixed_with_files.unwrap().unwrap().tls.is_some());
    let token = section(&format!("{addresses}ca = \"/a\"\ntoken = \"/t\"\n"));
    let token = token.unwrap().unwrap();
    assert_eq!(token.token.as_deref(), Some(std::path::Path::new("/t")));
    assert_eq!(token.tls.unwrap().own, None);
    for (wrong, part) in [
        (
            format!("{addresses}{FILES}token = \"/t\"\n"),
            "ca and token",
        ),
        (format!("{addresses}token = \"/t\"\n"), "ca and token"),
        (
            format!("{addresses}ca = \"/a\"\ntoken = \"t\"\n"),
            "absolute",
        ),
        (addresses.to_owned(), "all three"),
        (
            format!("{addresses}ca = \"/a\"\ncert = \"/b\"\n"),
            "all three",
        ),
        (mixed.to_owned(), "all three"),
        (format!("{socket}{FILES}"), "leave it out"),
        ("addresses = [\"unix:c\"]\n".to_owned(), "absolute path"),
        (FILES.to_owned(), "addresses"),
        (format!("addresses = []\n{FILES}"), "names no controller"),
        (format!("addresses = [\"c\"]\n{FILES}"), "NAME:PORT"),
        (
            format!("addresses = [\"https://c:1\"]\n{FILES}"),
            "NAME:PORT",
        ),
        (
            format!("{addresses}ca = \"a\"\ncert = \"/b\"\nkey = \"/c\"\n"),
            "absolute",
        ),
    ] {
        let message = section(&wrong).unwrap_err();
        assert!(message.contains(part), "{wrong}: {message}");
    }
}

const SICK: &str = "\
[smart]
smartctl = '/opt/bin/smartctl'
interval-hdd = '1h'
interval-ssd = '15m'
interval-deep = '12h'
[smart.thresholds]
pending-bad = 100
pending-suspect = 5
hot-nvme = 75
[[smart.device]]
match = 'wwn-0x6*'
type = 'megaraid,3'
[[smart.device]]
match = '*'
type = 'sat'
[[health.override]]
drive = 'wwn-a'
verdict = 'good'
reason = 'the cable was replaced'
until = '2030-12-31'
[[health.override]]
drive = 'wwn-b'
verdict = 'bad'
reason = 'to be retired'
";

#[test]
fn drives_are_polled_and_judged_as_the_operator_configures() {
    use drivebay_model::samples;
    use drivebay_smart::Thresholds;
    let health = parse(&format!("{SICK}{CLASS}"), &bare())
        .unwrap()
        .config
        .health;
    let thresholds = Thresholds {
        pending_bad: 100,
        pending_suspect: 5,
        hot_nvme: 75,
        ..Thresholds::default()
    };
    assert_eq!(health.thresholds, thresholds);
    assert_eq!(
        health.smartctl.as_deref(),
        Some(Path::new("/opt/bin/smartctl"))
    );
    let minutes = [
        health.hdd_interval,
        health.ssd_interval,
        health.deep_interval,
    ]
    .map(|it| it.as_secs() / 60);
    assert_eq!(minutes, [60, 15, 720]);
    let mut drive = samples::facts("sda");
    assert_eq!(health.device_type(&drive).unwrap().as_str(), "sat");
    drive.id.0 = "wwn-0x6abc".into();
    assert_eq!(
        health.device_type(&drive).unwrap().as_str(),
        "megaraid,3",
        "the first that matches"
    );
    let [good, bad] = health.overrides.as_slice() else {
        panic!("two overrides")
    };
    assert_eq!(
        (good.verdict, good.until),
        (drivebay_model::Verdict::Good, Some(1_924_992_000))
    );
    assert_eq!(
        (bad.verdict, bad.until),
        (drivebay_model::Verdict::Bad, None)
    );
    let untold = parse(CLASS, &bare()).unwrap().config.health;
    assert_eq!(untold, HealthConfig::default());
    assert!(untold.device_type(&drive).is_none());
}

#[test]
fn mistakes_about_health_are_reported_with_their_lines_and_no_option_reaches_smartctl() {
    let text = "\
[smart]
smartctl = 'smartctl'
interval-hdd = '5s'
[smart.thresholds]
pending-bad = 0
wear-warn = 70
hot-hdd = 500
pendig-bad = 3
[[smart.device]]
match = 'a'
type = '--scan'
[[smart.device]]
match = 'b'
type = \"sat\\nx\"
[[smart.device]]
type = 'sat'
[[health.override]]
drive = 'wwn-*'
verdict = 'fine'
reason = ' '
until = 'tomorrow'
[[health.override]]
drive = 'wwn-*'
reason = 'x'
";
    assert_eq!(
        mistakes(&format!("{text}{CLASS}"))
            .replace("the identity of one drive, as `drivebay-agent drives` shows it", "an identity")
            .lines()
            .map(|line| if line.contains("unknown key") { line.split(';').next().unwrap() } else { line })
            .collect::<Vec<_>>()
            .join("\n"),
        "\
drivebay.toml:2: [smart] smartctl: \"smartctl\" must be an absolute path
drivebay.toml:3: [smart] interval-hdd: \"5s\" is too short; at least \"1m\"
drivebay.toml:5: [smart.thresholds] pending-bad: 0 must be from 1 to 2147483647
drivebay.toml:6: [smart.thresholds] wear-warn: wear-info must not be above wear-warn
drivebay.toml:7: [smart.thresholds] hot-hdd: 500 must be from 30 to 120
drivebay.toml:8: unknown key `pendig-bad` in [smart.thresholds] (did you mean `pending-bad`?)
drivebay.toml:11: [[smart.device]] type: \"--scan\" is not a device type of smartctl's; write for example \"sat\", \"megaraid,0\" or \"cciss,1\"
drivebay.toml:14: [[smart.device]] type: \"sat\\nx\" is not a device type of smartctl's; write for example \"sat\", \"megaraid,0\" or \"cciss,1\"
drivebay.toml:15: [[smart.device]] match: is missing
drivebay.toml:18: [[health.override]] drive: \"wwn-*\" must be an identity
drivebay.toml:19: [[health.override]] verdict: \"fine\" is not known; allowed: good, suspect, bad
drivebay.toml:20: [[health.override]] reason: must say why, in 1 to 256 bytes without control characters
drivebay.toml:21: [[health.override]] until: \"tomorrow\" is not a day; write for example \"2030-12-31\"
drivebay.toml:22: [[health.override]] verdict: is missing
drivebay.toml:23: [[health.override]] drive: drive \"wwn-*\" is overridden already, in line 18
drivebay.toml:23: [[health.override]] drive: \"wwn-*\" must be an identity"
    );
}

#[test]
fn metrics_go_where_they_are_configured_or_nowhere() {
    let listen = |value: &str| {
        let text = format!("{CLASS}[metrics]\nlisten = '{value}'\n");
        parse(&text, &bare()).map(|checked| checked.config.metrics)
    };
    assert_eq!(listen("off").unwrap(), Listen::Off);
    assert_eq!(
        listen("/run/drivebay/metrics.sock").unwrap(),
        Listen::Unix("/run/drivebay/metrics.sock".into())
    );
    let problems = listen("localhost").unwrap_err();
    assert!(
        problems[0]
            .to_string()
            .contains("[metrics] listen: \"localhost\" is not an address to serve HTTP at"),
        "{problems:?}"
    );
}

#[test]
fn probes_are_off_unless_given_an_address_of_their_own() {
    let probes = |more: &str| {
        let text = format!("{CLASS}{more}\n");
        parse(&text, &bare()).map(|checked| checked.config.probes)
    };
    assert_eq!(probes("").unwrap(), Listen::Off);
    assert_eq!(
        probes("[probes]\nlisten = '[::]:9808'").unwrap(),
        Listen::Tcp("[::]:9808".parse().unwrap())
    );
    for same in [
        "[probes]\nlisten = '127.0.0.1:9810'",
        "[metrics]\nlisten = '/run/a.sock'\n[probes]\nlisten = '/run/a.sock'",
    ] {
        let problems = probes(same).unwrap_err();
        let message = problems[0].to_string();
        assert!(message.contains("[probes] listen: "), "{message}");
        assert!(message.contains("is [metrics] listen too"), "{message}");
    }
}
