//! `drivebay-agent check-config`: summarises a configuration. Pure except for printing warnings and resolving links.

use drivebay_common::{terminal::Terminal, tls::TlsSource};
use std::{fmt::Write, path::Path, time::Duration};

use super::table::{human_seconds, human_size};
use drivebay_config::{Config, Problem, listed};
use drivebay_model::{
    ClaimPolicy, ClassConfig, ErasePolicy, Layout, Placement, by_id, class::names,
};
use drivebay_sys::sysfs;

/// Prints warnings to stderr.
pub fn warn(path: &Path, warnings: &[Problem]) {
    if !warnings.is_empty() {
        listed(path, warnings).lines().for_each(print_warning);
    }
}

/// Prints one warning to stderr.
pub fn print_warning(warning: &str) {
    eprint!("{}", Terminal::of_stderr().message("warning: ", warning));
}

/// Returns links below /dev/disk/by-id that refer to a drive of this host and do not select it: udev derives their names from data that
/// sysfs does not have.
pub fn unmatched_links(config: &Config) -> Vec<String> {
    let mut unmatched = Vec::new();
    for class in &config.classes {
        for link in class
            .select
            .drive
            .iter()
            .filter(|it| it.starts_with(by_id::DIR))
        {
            let Some(facts) = sysfs::behind_link(Path::new(link)) else {
                continue;
            };
            if !names(link, &facts) {
                unmatched.push(format!(
                    "class {:?}: {link} leads to {}, and does not select it; write drive = [\"{}\"]",
                    class.name, facts.kernel_name, facts.id
                ));
            }
        }
    }
    unmatched
}

/// Returns the summary of a valid configuration.
pub fn summary(config: &Config) -> String {
    let mut text = String::from("OK\n");
    let mut line = |name: &str, value: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {name:<13}{value}");
    };
    line(
        "node",
        format!("{} (cluster {})", config.node_id, config.cluster),
    );
    line("driver", config.driver_name.clone());
    line("CSI socket", config.csi_socket.display().to_string());
    line("agent socket", config.agent_socket.display().to_string());
    line(
        "kubelet",
        match &config.registration_dir {
            Some(dir) => format!(
                "registers in {}, CSI socket there: {}",
                dir.display(),
                config.kubelet_csi_socket.display()
            ),
            None => "no registration".into(),
        },
    );
    line(
        "controllers",
        match &config.controller {
            None => "none is dialled".into(),
            Some(controller) => {
                let targets: Vec<String> =
                    controller.targets.iter().map(ToString::to_string).collect();
                let how = match &controller.tls {
                    Some(TlsSource { own: Some(own), .. }) => {
                        format!("with the certificate {}", own.cert.display())
                    }
                    Some(_) => "with a ServiceAccount token".into(),
                    None => "without certificates, on this machine".into(),
                };
                format!("{}, {how}", targets.join(", "))
            }
        },
    );
    line("metrics", config.metrics.to_string());
    line("probes", config.probes.to_string());
    line("state", config.state_dir.display().to_string());
    line("rescan", format!("every {}", seconds(config.rescan)));
    line(
        "erasing",
        match config.erase_bytes_per_second {
            Some(rate) => format!(
                "at most {}/s a drive; quarantine {}",
                human_size(rate),
                seconds(config.quarantine)
            ),
            None => format!(
                "as fast as it goes; quarantine {}",
                seconds(config.quarantine)
            ),
        },
    );
    if config.allow_loop {
        line("loop devices", "count as drives".into());
    }
    for device in &config.health.devices {
        let kind = device.kind.as_str();
        line("SMART", format!("{} is asked as {kind}", device.pattern));
    }
    for given in &config.health.overrides {
        let (drive, verdict) = (&given.drive, given.verdict);
        line(
            "override",
            format!("drive {drive} is {verdict}: {}", given.reason),
        );
    }
    for class in &config.classes {
        line("class", describe(class));
    }
    text
}

fn seconds(duration: Duration) -> String {
    human_seconds(duration.as_secs())
}

fn describe(class: &ClassConfig) -> String {
    let mut words = vec![format!("{}: {}", class.name, class.fs_type)];
    let select = &class.select;
    let list = |name: &str, items: Vec<String>| {
        (!items.is_empty()).then(|| format!("{name} {}", items.join("|")))
    };
    words.extend(list(
        "media",
        select.media.iter().map(ToString::to_string).collect(),
    ));
    words.extend(list(
        "transport",
        select
            .transport
            .iter()
            .map(|bus| bus.as_str().to_owned())
            .collect(),
    ));
    words.extend(list("model", select.model.clone()));
    words.extend(list("drive", select.drive.clone()));
    words.extend(list("path", select.path.clone()));
    words.extend(
        select
            .min_bytes
            .map(|bytes| format!("at least {}", human_size(bytes))),
    );
    words.extend(
        select
            .max_bytes
            .map(|bytes| format!("at most {}", human_size(bytes))),
    );
    words.push(
        match class.layout {
            Layout::Lvm => "layout lvm",
            Layout::Partition => "layout partition",
        }
        .into(),
    );
    if class.placement == Placement::Pack {
        words.push("fills one drive before the next".into());
    }
    if class.claim == ClaimPolicy::SignatureFree {
        words.push("claims drives that are not blank".into());
    }
    if class.erase == ErasePolicy::Signatures {
        words.push("does not zero deleted space".into());
    }
    words.join(", ")
}
