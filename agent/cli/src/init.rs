//! `drivebay-agent init`: writes an initial configuration from the drives of this host. It claims none of them.

use std::{
    fmt::Write as _,
    io,
    path::{Path, PathBuf},
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
use drivebay_sys::statefile;

/// Selects every drive, none of them explicitly: the remaining reject reasons of a drive apply to any class of the initial configuration.
const EVERY_DRIVE: &str = "[[class]]\nname = \"any\"\nselect.min-size = \"0\"\n";
const ALLOW_LOOP: &str = "[discovery]\nallow-loop = true\n";

/// No initial configuration was written.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    #[error(
        "{path} exists, sets something, and is left as it is; give another file with --config, or use --print"
    )]
    Exists { path: PathBuf },
    #[error("cannot read {path}, which would be replaced")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "cannot keep a copy of {path}, which has been edited, as {copy}; nothing was written. Move what is there away, or use --print"
    )]
    Copy {
        path: PathBuf,
        copy: PathBuf,
        #[source]
        source: io::Error,
    },
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
    /// A bug of this program.
    #[error("the configuration that selects every drive is refused: {0}")]
    Own(String),
}

/// Scan of this host.
#[derive(Debug)]
struct HostScan {
    config: Config,
    drives: Vec<Scanned>,
    /// Version of LVM if layout `lvm` can be used; Err: the reason why not.
    lvm: Result<String, String>,
}

/// Writes the configuration to this file, unless it is only printed. Returns the text to print.
pub async fn run(path: &Path, print: bool, allow_loop: bool) -> Result<String, InitError> {
    // Before the scan, which may take a minute.
    let before = match print {
        true => None,
        false => replaceable(path)?,
    };
    if !nix::unistd::geteuid().is_root() {
        return Err(InitError::NotRoot);
    }
    let host = find(allow_loop).await?;
    let text = text(path, &host);
    if print {
        return Ok(text);
    }
    let copy = write(path, &text, before.as_deref())?;
    let (file, kept) = (path.display(), copy.map(|copy| copy.display().to_string()));
    let kept = kept.map_or_else(String::new, |copy| {
        format!(", and kept what was there as {copy}")
    });
    Ok(format!(
        "wrote {file}{kept}: {}; none is, until a class selects it\n\nNext: choose drives in {file}, then\n  drivebay-agent claim-plan --config {file}\n",
        counted(&host)
    ))
}

/// Returns the existing configuration if it may be replaced, since it sets nothing, like the one of a package; None if there is none.
fn replaceable(path: &Path) -> Result<Option<String>, InitError> {
    if !statefile::exists(path) {
        return Ok(None);
    }
    let exists = || InitError::Exists {
        path: path.to_owned(),
    };
    // A symbolic link is intentional, and its target must not be replaced.
    if path.is_symlink() {
        return Err(exists());
    }
    let text = statefile::read_text(path, config::MAX_FILE).map_err(|source| InitError::Read {
        path: path.to_owned(),
        source,
    })?;
    config::sets_nothing(&text)
        .then_some(Some(text))
        .ok_or_else(exists)
}

/// Writes the file atomically: a new one, or in place of `before`, which must still be there. Returns the path where `before` was kept,
/// unless it is a package's file.
fn write(path: &Path, text: &str, before: Option<&str>) -> Result<Option<PathBuf>, InitError> {
    let exists = || InitError::Exists {
        path: path.to_owned(),
    };
    let failed = |source| InitError::Write {
        path: path.to_owned(),
        source,
    };
    let Some(before) = before else {
        let written = statefile::write_new(path, text.as_bytes());
        written.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => exists(),
            _ => failed(source),
        })?;
        return Ok(None);
    };
    if replaceable(path)?.as_deref() != Some(before) {
        return Err(exists());
    }
    let mut copy = None;
    if before != config::packaged() {
        let mut name = path.as_os_str().to_owned();
        name.push(".before-init");
        let at = PathBuf::from(name);
        statefile::write_new(&at, before.as_bytes()).map_err(|source| InitError::Copy {
            path: path.to_owned(),
            copy: at.clone(),
            source,
        })?;
        copy = Some(at);
    }
    statefile::write_atomic(path, text.as_bytes()).map_err(failed)?;
    Ok(copy)
}

async fn find(allow_loop: bool) -> Result<HostScan, InitError> {
    let loops = if allow_loop { ALLOW_LOOP } else { "" };
    let checked = config::parse(&format!("{loops}{EVERY_DRIVE}"), &HostFacts::here());
    let config = checked
        .map_err(|problems| InitError::Own(format!("{problems:?}")))?
        .config;
    let drives = claim_plan::scan_drives(&config).await?;
    let lvm = claim_plan::lvm_presence().await?;
    Ok(HostScan {
        config,
        drives,
        lvm: match lvm {
            Ok(presence) => Ok(presence.version.to_string()),
            Err(absent) => Err(chain(&absent)),
        },
    })
}

fn counted(host: &HostScan) -> String {
    let drives = || host.drives.iter().filter(|drive| !is_noise(drive));
    let claimable = drives().filter(|drive| is_claimable(drive)).count();
    let all = drives().count();
    format!("{} found, {claimable} can be claimed", count(all, "drive"))
}

fn is_claimable(drive: &Scanned) -> bool {
    matches!(drive.judgement, Judgement::Available { .. })
}

/// Returns the configuration. A commented-out setting begins with "#", a comment with "# ". Pure.
fn text(path: &Path, host: &HostScan) -> String {
    let (file, node) = (path.display(), &host.config.node_id);
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
# Every other key, with its default: drivebay.toml(5), drivebay.example.toml.

[node]
# The node id. It is part of every volume id: do not change it while there are volumes.
#name = \"{node}\"
# A drive that was claimed for another cluster is never touched.
#cluster = \"{}\"

",
        host.config.cluster
    );
    if host.config.allow_loop {
        text.push_str("[discovery]\n# For demos and tests.\nallow-loop = true\n\n");
    }
    let mut line = |words: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{words}");
    };
    line(&format!("# {}.", counted(host)));
    match &host.lvm {
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
    let layout = match host.lvm {
        Ok(_) => Layout::Lvm,
        Err(_) => Layout::Partition,
    };
    for media in [Media::Nvme, Media::Ssd, Media::Hdd] {
        let drives: Vec<&Scanned> = host
            .drives
            .iter()
            .filter(|drive| drive.facts.media == media && is_claimable(drive))
            .collect();
        if !drives.is_empty() {
            class(&mut line, media, layout, &drives);
        }
    }
    if !host.drives.iter().any(is_claimable) {
        class(&mut line, Media::Nvme, layout, &[]);
    }
    line(
        "\n# The drives that were found, and why one cannot be claimed. Partitions and virtual devices are left out.",
    );
    for drive in host.drives.iter().filter(|drive| !is_noise(drive)) {
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

/// Returns the facts of a drive, and the result of its claim check, one by one.
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
    use drivebay_discovery::scan::ProbeResults;
    use drivebay_model::{DriveFacts, samples};

    #[test]
    fn a_file_that_sets_nothing_is_replaced_and_what_was_edited_in_it_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("drivebay.toml");
        let files = || std::fs::read_dir(dir.path()).unwrap().count();
        let there = |path: &Path| std::fs::read_to_string(path).unwrap();
        // No file, then a package's.
        assert_eq!(replaceable(&path).unwrap(), None);
        assert_eq!(write(&path, "# new\n", None).unwrap(), None);
        let packaged = config::packaged();
        std::fs::write(&path, &packaged).unwrap();
        let before = replaceable(&path).unwrap();
        assert_eq!(before.as_deref(), Some(&*packaged));
        assert_eq!(
            write(&path, "# of init\n", before.as_deref()).unwrap(),
            None
        );
        assert_eq!((there(&path).as_str(), files()), ("# of init\n", 1));
        // Comments of an operator.
        let before = replaceable(&path).unwrap();
        let copy = write(&path, "# again\n", before.as_deref())
            .unwrap()
            .unwrap();
        assert_eq!(there(&copy), "# of init\n");
        assert_eq!(there(&path), "# again\n");
        // The copy is not overwritten, and then neither is the file.
        let before = replaceable(&path).unwrap();
        let refused = write(&path, "# more\n", before.as_deref()).unwrap_err();
        assert!(
            refused.to_string().contains("cannot keep a copy"),
            "{refused}"
        );
        assert_eq!((there(&path).as_str(), files()), ("# again\n", 2));
    }

    #[test]
    fn a_file_that_sets_something_or_changes_meanwhile_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("drivebay.toml");
        let is_refused = |done: Result<(), InitError>| {
            let refused = done.unwrap_err().to_string();
            assert!(refused.contains("is left as it is"), "{refused}");
        };
        for text in ["[node]\nname = 'a'\n", "[[class]]\n", "no toml"] {
            std::fs::write(&path, text).unwrap();
            is_refused(replaceable(&path).map(drop));
            is_refused(write(&path, "# new\n", Some("# before\n")).map(drop));
            is_refused(write(&path, "# new\n", None).map(drop));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        std::fs::write(&path, "# edited meanwhile\n").unwrap();
        is_refused(write(&path, "# new\n", Some("# before\n")).map(drop));
        let link = dir.path().join("link.toml");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        is_refused(replaceable(&link).map(drop));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_a_drive_reports_of_itself_stays_in_a_comment_and_lvm_is_chosen_where_it_works() {
        let facts = DriveFacts {
            model: "M\n[[class]]\nname = 'x'\u{7}".into(),
            ..samples::facts("sda")
        };
        let drive = |judgement| Scanned {
            facts: facts.clone(),
            seen: ProbeResults::default(),
            judgement,
        };
        let config = config::parse(EVERY_DRIVE, &HostFacts::here()).unwrap();
        let host = HostScan {
            config: config.config,
            drives: vec![
                drive(Judgement::Available {
                    class: "any".into(),
                }),
                drive(Judgement::Claimed),
            ],
            lvm: Ok("2.03.16".into()),
        };
        let text = text(Path::new("/etc/drivebay/drivebay.toml"), &host);
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
