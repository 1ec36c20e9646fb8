//! `drivebay-agent init`: a first configuration from the drives of this host. It claims none of them.

use std::{
    fmt::Write as _,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use drivebay_common::{
    table::{human_size, printable},
    units::count,
};

use super::{
    claim_plan::{self, PlanError, is_noise},
    drives::reason,
};
use drivebay_config::{self as config, Config, HostFacts};
use drivebay_discovery::{claim::Judgement, scan::Scanned};
use drivebay_model::{Layout, Media, cause::chain};
use drivebay_sys::{lvm, offload::offload, statefile};

/// Selects every drive, and none of them explicitly: what remains against one is what a class of the first configuration meets.
const EVERY_DRIVE: &str = "[[class]]\nname = \"any\"\nselect.min-size = \"0\"\n";
const ALLOW_LOOP: &str = "[discovery]\nallow-loop = true\n";
/// Longest `lvm version` may take.
const LVM_ANSWER: Duration = Duration::from_secs(10);

/// Why there is no first configuration.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    #[error("{path} exists and is left as it is; give another file with --config, or use --print")]
    Exists { path: PathBuf },
    #[error(
        "permission denied; run as root: a drive that cannot be read cannot be told from an empty one"
    )]
    NotRoot,
    #[error("cannot write {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("cannot find out whether LVM works here")]
    Lvm(#[source] io::Error),
    /// A mistake of this program's.
    #[error("the configuration that selects every drive is refused: {0}")]
    Own(String),
}

/// What was found.
#[derive(Debug)]
struct Found {
    config: Config,
    drives: Vec<Scanned>,
    /// Whether layout `lvm` can be used here, and its version or what is missing.
    lvm: Result<String, String>,
}

/// Writes the configuration to this file, unless it is only printed. Answers what to print.
pub async fn run(path: &Path, print: bool, allow_loop: bool) -> Result<String, InitError> {
    let exists = || InitError::Exists {
        path: path.to_owned(),
    };
    // Before the drives are read, which may take a minute.
    if !print && statefile::exists(path) {
        return Err(exists());
    }
    if !nix::unistd::geteuid().is_root() {
        return Err(InitError::NotRoot);
    }
    let found = find(allow_loop).await?;
    let text = text(path, &found);
    if print {
        return Ok(text);
    }
    statefile::write_new(path, text.as_bytes()).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => exists(),
        _ => InitError::Write {
            path: path.to_owned(),
            source,
        },
    })?;
    let file = path.display();
    Ok(format!(
        "wrote {file}: {}; none is, until a class selects it\n\nNext: choose drives in {file}, then\n  drivebay-agent claim-plan --config {file}\n",
        counted(&found)
    ))
}

async fn find(allow_loop: bool) -> Result<Found, InitError> {
    let loops = if allow_loop { ALLOW_LOOP } else { "" };
    let checked = config::parse(&format!("{loops}{EVERY_DRIVE}"), &HostFacts::here());
    let config = checked
        .map_err(|problems| InitError::Own(format!("{problems:?}")))?
        .config;
    let drives = claim_plan::look(&config).await?;
    let presence = offload("lvm", LVM_ANSWER, || {
        let dir = statefile::make_private_dir("drivebay-init-")?;
        let presence = lvm::prepare(&dir).and_then(|()| lvm::presence());
        statefile::remove_private_dir(&dir)?;
        io::Result::Ok(presence)
    });
    let presence = presence.await.and_then(|found| found);
    Ok(Found {
        config,
        drives,
        lvm: match presence.map_err(InitError::Lvm)? {
            Ok(presence) => Ok(presence.version.to_string()),
            Err(absent) => Err(chain(&absent)),
        },
    })
}

fn counted(found: &Found) -> String {
    let drives = || found.drives.iter().filter(|drive| !is_noise(drive));
    let claimable = drives().filter(|drive| is_claimable(drive)).count();
    let all = drives().count();
    format!("{} found, {claimable} can be claimed", count(all, "drive"))
}

fn is_claimable(drive: &Scanned) -> bool {
    matches!(drive.judgement, Judgement::Available { .. })
}

/// The configuration. A setting that is commented out begins with "#", a remark with "# ". Pure.
fn text(path: &Path, found: &Found) -> String {
    let (file, node) = (path.display(), &found.config.node_id);
    let mut text = format!(
        "\
# The configuration of Drivebay's agent on {node}: a first one, written by `drivebay-agent init`.
#
# It claims nothing: each class is commented out, and a drive that no class selects is never written to. To use drives:
#   1. take the \"#\" away from the lines of a class, and remove the drives that are not meant
#   2. drivebay-agent check-config --config {file}
#   3. drivebay-agent claim-plan --config {file}
#      shows which drives would be claimed, and why the others would not
#   4. restart the agent
# Every other key, with its default: drivebay.example.toml, configuration.md.

[node]
# The node id. It is part of every volume id: do not change it while there are volumes.
#name = \"{node}\"
# A drive that was claimed for another cluster is never touched.
#cluster = \"{}\"

",
        found.config.cluster
    );
    if found.config.allow_loop {
        text.push_str("[discovery]\n# For demos and tests.\nallow-loop = true\n\n");
    }
    let mut line = |words: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{words}");
    };
    line(&format!("# {}.", counted(found)));
    match &found.lvm {
        Ok(version) => line(&format!(
            "# Layout: LVM {version} works on this host. \"partition\" would do without, but its volumes grow only into what is free behind them."
        )),
        Err(absent) => {
            line(&format!("# Layout: {}.", printable(absent)));
            line(
                "# \"partition\" does without; its volumes grow only into what is free behind them.",
            );
        }
    }
    let layout = match found.lvm {
        Ok(_) => Layout::Lvm,
        Err(_) => Layout::Partition,
    };
    for media in [Media::Nvme, Media::Ssd, Media::Hdd] {
        let drives: Vec<&Scanned> = found
            .drives
            .iter()
            .filter(|drive| drive.facts.media == media && is_claimable(drive))
            .collect();
        if !drives.is_empty() {
            class(&mut line, media, layout, &drives);
        }
    }
    if !found.drives.iter().any(is_claimable) {
        class(&mut line, Media::Nvme, layout, &[]);
    }
    line(
        "\n# The drives that were found, and why one cannot be claimed. Partitions and virtual devices are left out.",
    );
    for drive in found.drives.iter().filter(|drive| !is_noise(drive)) {
        line("#");
        for remark in remarks(drive) {
            line(&format!("# {}", printable(&remark)));
        }
    }
    text
}

fn class(line: &mut impl FnMut(&str), media: Media, layout: Layout, drives: &[&Scanned]) {
    line(&format!(
        "\n#[[class]]\n#name = \"{media}\"\n#layout = \"{}\"\n#fs = \"ext4\"\n#[class.select]",
        layout.as_str()
    ));
    if drives.is_empty() {
        line(
            "# No drive can be claimed now. This selects each one of a kind, also one that is added later.",
        );
        line(&format!("#media = [\"{media}\"]"));
        return;
    }
    line(&format!(
        "# These and no others. For each drive of the kind, also one that is added later: media = [\"{media}\"]"
    ));
    line("#drive = [");
    for drive in drives {
        let facts = &drive.facts;
        let what = [
            &facts.kernel_name,
            &human_size(facts.size_bytes),
            &facts.model,
        ];
        let what: Vec<&str> = what
            .into_iter()
            .map(String::as_str)
            .filter(|it| !it.is_empty())
            .collect();
        line(&format!(
            "#\"{}\", # {}",
            facts.id,
            printable(&what.join(", "))
        ));
    }
    line("#]");
}

/// A drive, one fact after the other, and what comes of it.
fn remarks(drive: &Scanned) -> Vec<String> {
    let facts = &drive.facts;
    let mut words = vec![
        facts.id.0.clone(),
        format!("/dev/{}", facts.kernel_name.replace('!', "/")),
        human_size(facts.size_bytes),
        facts.media.to_string(),
        facts.transport.as_str().to_owned(),
    ];
    let named = [("", &facts.model), ("serial ", &facts.serial)];
    let named = named.iter().filter(|(_, text)| !text.is_empty());
    words.extend(named.map(|(what, text)| format!("{what}{text}")));
    if let Some(file) = &facts.backing_file {
        words.push(file.display().to_string());
    }
    let mut remarks = vec![words.join(", ")];
    match &drive.judgement {
        Judgement::Available { .. } => {
            remarks.push("  can be claimed: no signature, and every sampled block is zero".into())
        }
        Judgement::Claimed => {
            let class = drive.seen.contents.as_ref().map(|it| &it.label.class);
            let class = class.map_or("", String::as_str);
            remarks.push(format!("  claimed already, for class {class:?}"));
        }
        Judgement::Rejected { reasons, .. } => remarks.extend(
            reasons
                .iter()
                .map(|reject| format!("  {}", reason(reject.code.as_str(), &reject.detail))),
        ),
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_discovery::scan::Seen;
    use drivebay_model::{DriveFacts, samples};

    #[test]
    fn what_a_drive_says_of_itself_stays_in_a_comment_and_lvm_is_chosen_where_it_works() {
        let facts = DriveFacts {
            model: "M\n[[class]]\nname = 'x'\u{7}".into(),
            ..samples::facts("sda")
        };
        let drive = |judgement| Scanned {
            facts: facts.clone(),
            seen: Seen::default(),
            judgement,
        };
        let config = config::parse(EVERY_DRIVE, &HostFacts::here()).unwrap();
        let found = Found {
            config: config.config,
            drives: vec![
                drive(Judgement::Available {
                    class: "any".into(),
                }),
                drive(Judgement::Claimed),
            ],
            lvm: Ok("2.03.16".into()),
        };
        let text = text(Path::new("/etc/drivebay/drivebay.toml"), &found);
        assert!(text.contains("#layout = \"lvm\"\n"), "{text}");
        assert!(
            text.contains("#\"wwn-sda\", # sda, 1 TiB, M\\u{a}"),
            "{text}"
        );
        assert!(
            text.contains("#   claimed already, for class \"\"\n"),
            "{text}"
        );
        let parsed = config::parse(&text, &HostFacts::here()).unwrap().config;
        assert!(parsed.classes.is_empty());
        let uncommented: String = text
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(setting) if !setting.starts_with(' ') => format!("{setting}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        let parsed = config::parse(&uncommented, &HostFacts::here()).unwrap();
        assert_eq!(parsed.config.classes[0].select.drive, ["wwn-sda"]);
    }
}
