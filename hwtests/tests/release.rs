//! Published files: one version everywhere, valid man pages and completions, and a release script that refuses what is no release.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use clap::CommandFactory;
use drivebay_hwtests::{need, program};
use tempfile::TempDir;

/// Version of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Collects every text file below a directory of the repository.
fn texts(dir: &Path, into: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            texts(&path, into);
        } else if let Ok(text) = fs::read_to_string(&path) {
            into.push((path, text));
        }
    }
}

/// Returns the text after each occurrence of a mark, if it is a version.
fn versions<'a>(text: &'a str, mark: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(mark).filter_map(move |(at, _)| {
        let rest = &text[at + mark.len()..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !".-".contains(c));
        let version = &rest[..end.unwrap_or(rest.len())];
        let is_version = version.starts_with(|c: char| c.is_ascii_digit()) && version.contains('.');
        is_version.then_some(version.trim_end_matches('.'))
    })
}

#[test]
fn every_file_that_names_a_version_names_the_one_of_cargo_toml() {
    let mut files = Vec::new();
    texts(&repository().join("deploy"), &mut files);
    for name in ["README.md", "agent/README.md", "controller/README.md"] {
        let path = repository().join(name);
        files.push((path.clone(), fs::read_to_string(path).unwrap()));
    }
    let mut count = 0;
    for (path, text) in &files {
        for mark in [
            "/drivebay:",
            "helm.sh/chart: drivebay-",
            "app.kubernetes.io/version: \"",
            "\nappVersion: ",
        ] {
            for version in versions(text, mark) {
                assert_eq!(version, VERSION, "{}: behind {mark:?}", path.display());
                count += 1;
            }
        }
    }
    assert!(count > 50, "manifests and documents name more: {count}");
    let chart = fs::read_to_string(repository().join("deploy/chart/Chart.yaml")).unwrap();
    assert!(
        chart.contains(&format!("\nversion: {VERSION}\n")),
        "{chart}"
    );
    // Control: versions that this test finds, and text that it ignores.
    let find = |text| versions(text, "/drivebay:").collect::<Vec<_>>();
    assert_eq!(
        find("x/drivebay:1.2.3-rc.1 y/drivebay:try."),
        ["1.2.3-rc.1"]
    );
}

#[test]
fn a_program_prints_its_version() {
    for (name, program) in [
        ("drivebay-agent", program::agent()),
        ("drivebay-controller", program::controller()),
    ] {
        let output = text(&Command::new(program.unwrap()).arg("--version").output());
        let begins = format!("{name} {VERSION}");
        let commit = output.trim_end().strip_prefix(&begins);
        // A release build appends its commit.
        let is_commit = |of: &str| of.starts_with(" (") && of.ends_with(')');
        assert!(
            commit.is_some_and(|of| of.is_empty() || is_commit(of)),
            "{output}"
        );
    }
}

fn text(output: &std::io::Result<Output>) -> String {
    let output = output.as_ref().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Writes man pages and completions as the packages do.
fn pages() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    text(
        &Command::new(program::pages().unwrap())
            .arg(dir.path())
            .output(),
    );
    dir
}

/// Returns the text that `man` renders of a page. Panics if it prints warnings.
fn shown(page: &Path) -> String {
    let rendered = Command::new("man")
        .args(["--warnings", "--encoding=UTF-8", "--local-file"])
        .arg(page)
        .envs([
            ("LC_ALL", "C.UTF-8"),
            ("MANWIDTH", "100"),
            ("MANROFFOPT", "-c"),
        ])
        .output();
    let warned = String::from_utf8_lossy(&rendered.as_ref().unwrap().stderr).into_owned();
    assert_eq!(warned, "", "{}", page.display());
    text(&rendered)
}

/// Collects each command that the help lists, with its page's name and its long options.
fn commands(command: &clap::Command, name: &str, into: &mut Vec<(String, Vec<String>)>) {
    let options = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let options = options.filter_map(|arg| arg.get_long());
    into.push((name.to_owned(), options.map(str::to_owned).collect()));
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        commands(sub, &format!("{name}-{}", sub.get_name()), into);
    }
}

#[test]
fn every_command_has_a_man_page_with_its_options_and_it_renders_without_warnings() {
    need!(tool "man");
    let dir = pages();
    let man = dir.path().join("man");
    let mut expected = Vec::new();
    for program in [
        drivebay_cli::Cli::command(),
        drivebay_controller::config::Cli::command(),
    ] {
        let name = program.get_name().to_owned();
        commands(&program, &name, &mut expected);
    }
    assert!(expected.len() > 40, "{expected:#?}");
    for (name, options) in &expected {
        let shown = shown(&man.join(format!("{name}.8")));
        for section in ["EXIT STATUS", "SEE ALSO"] {
            assert!(shown.contains(&format!("\n{section}\n")), "{name}: {shown}");
        }
        for option in options {
            assert!(
                shown.contains(&format!("--{option}")),
                "{name}: {option}: {shown}"
            );
        }
    }
    // No page of a removed command.
    let pages = expected.into_iter().map(|(name, _)| format!("{name}.8"));
    let pages: BTreeSet<String> = pages.chain(["drivebay.toml.5".to_owned()]).collect();
    let written = fs::read_dir(&man).unwrap();
    let written = written.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(written.collect::<BTreeSet<String>>(), pages);

    // The files and variables that a program reads, and the references.
    let program = shown(&man.join("drivebay-agent.8"));
    for named in [
        "FILES",
        "/etc/drivebay/drivebay.toml",
        "ENVIRONMENT",
        "DRIVEBAY_SOCKET",
        "drivebay.toml(5)",
        "78",
    ] {
        assert!(program.contains(named), "{named}: {program}");
    }
    let configuration = shown(&man.join("drivebay.toml.5"));
    for named in [
        "[[class]]",
        "layout",
        "Default: \"lvm\"",
        "drivebay-agent(8)",
    ] {
        assert!(configuration.contains(named), "{named}: {configuration}");
    }
    // Every file of Drivebay that a page names exists.
    let names = |shown: &str, mark: &str| -> Vec<String> {
        let before = shown.match_indices(mark).map(|(at, _)| &shown[..at]);
        let is_part = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
        before
            .map(|text| text[text.trim_end_matches(is_part).len()..].to_owned())
            .filter(|name| name.starts_with("drivebay"))
            .collect()
    };
    for page in &pages {
        let shown = shown(&man.join(page));
        for name in names(&shown, "(8)") {
            assert!(pages.contains(&format!("{name}.8")), "{page}: {name}");
        }
    }
}

#[test]
fn bash_completes_commands_and_their_options_without_anything_that_runs() {
    need!(tool "bash");
    let dir = pages();
    // The script calls the program by name.
    let programs = program::agent().unwrap();
    let path = format!(
        "{}:{}",
        programs.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    for (program, words, expected) in [
        ("drivebay-agent", "volume cr", "create"),
        ("drivebay-agent", "volume create --bl", "--block"),
        ("drivebay-agent", "drive show --so", "--socket"),
        ("drivebay-controller", "no", "nodes"),
        ("drivebay-controller", "certs in", "init"),
    ] {
        let file = dir.path().join(format!("completions/{program}.bash"));
        // Calls bash's completion as the Tab key does: the function that `complete -p` names, with the words and the index of the current
        // one.
        let script = r#"set -eu; . "$1"; function=$(complete -p "$2" | sed 's/.*-F \([^ ]*\).*/\1/')
            COMP_WORDS=("$2" $3); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
            set +eu; "$function" "$2" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
            printf '%s\n' "${COMPREPLY[@]}""#;
        let output = Command::new("bash")
            .args(["-c", script, "bash"])
            .args([file.as_os_str(), program.as_ref(), words.as_ref()])
            .env("PATH", &path)
            .envs([
                ("DRIVEBAY_SOCKET", "/nonexistent/agent.sock"),
                ("DRIVEBAY_CONTROLLER_SOCKET", "/nonexistent/controller.sock"),
            ])
            .output();
        let complaints = &output.as_ref().unwrap().stderr;
        assert_eq!(String::from_utf8_lossy(complaints), "", "{program} {words}");
        let offered = text(&output);
        assert!(
            offered.lines().any(|word| word == expected),
            "{program} {words}: {offered}"
        );
    }
}

#[test]
fn a_release_is_refused_for_a_tag_that_is_not_this_version_and_for_programs_that_it_did_not_build()
{
    need!(tool "git");
    let release = |args: &[&str]| {
        let done = Command::new(repository().join("deploy/release"))
            .args(args)
            .output()
            .unwrap();
        assert!(!done.status.success(), "{done:?}");
        String::from_utf8(done.stderr).unwrap()
    };
    let stderr = release(&["v0.0.0-none"]);
    assert!(
        stderr.contains(&format!("it has to be v{VERSION}")),
        "{stderr}"
    );
    let tag = format!("v{VERSION}");
    let stderr = release(&["--programs", ".", &tag]);
    assert!(stderr.contains("--programs goes with --try"), "{stderr}");
    let stderr = release(&["--no-sbom", &tag]);
    assert!(stderr.contains("--no-sbom goes with --try"), "{stderr}");
}

#[test]
fn what_a_try_of_a_release_misses_is_named_at_once_before_anything_is_made() {
    need!(tool "git");
    need!(tool "dpkg");
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let tag = format!("v{VERSION}");
    let missing = |words: &[&str]| {
        let done = Command::new(repository().join("deploy/release"))
            .args(["--try", "--no-image"])
            .args(words)
            .arg("--programs")
            .arg(dir.path())
            .arg(&tag)
            .arg(&out)
            .output()
            .unwrap();
        assert!(!done.status.success() && !out.exists(), "{done:?}");
        String::from_utf8(done.stderr).unwrap()
    };
    let all = missing(&[]);
    assert!(
        all.contains("no drivebay-agent, drivebay-controller, drivebay-pages, kubectl-drivebay in"),
        "{all}"
    );
    // Nothing is compiled, for other architectures either.
    let here = text(&Command::new("dpkg").arg("--print-architecture").output());
    let other = if here.trim() == "amd64" {
        "arm64"
    } else {
        "amd64"
    };
    let refused = missing(&["--arch", other]);
    assert!(refused.contains("nothing is compiled for"), "{refused}");
}

#[test]
fn an_sbom_is_made_only_where_its_program_is_when_nothing_is_compiled() {
    let script = fs::read_to_string(repository().join("deploy/release")).unwrap();
    let from = script.find("need_sbom() {").unwrap();
    let function = &script[from..from + script[from..].find("\n}\n").unwrap() + 3];
    let dir = tempfile::tempdir().unwrap();
    let run = |settings: &str| {
        let script = format!(
            "set -euo pipefail; say() {{ printf '%s\\n' \"$*\"; }}; target_dir() {{ say {dir}; }}; cargo() {{ say \"cargo $*\"; }}\n\
             CARGO_SBOM_VERSION=1.2.3 sbom=1 given=\n{settings}\n{function}need_sbom\nsay \"by: $SBOM_PROGRAM\"",
            dir = dir.path().display()
        );
        text(
            &Command::new("bash")
                .args(["-c", &script])
                .env("PATH", "/usr/bin:/bin")
                .output(),
        )
    };
    let left_out = run("sbom=");
    assert_eq!(left_out, "SBOM: left out (--no-sbom)\nby: \n");
    let not_there = run("given=/programs");
    assert!(
        not_there.starts_with("SBOM: left out: nothing is compiled")
            && not_there.ends_with("by: \n"),
        "{not_there}"
    );
    // A release installs the pinned version.
    let strict = run("");
    assert!(
        strict.starts_with("cargo install --quiet --locked --root")
            && strict.contains(" --version 1.2.3 cargo-sbom\n"),
        "{strict}"
    );
    assert!(strict.ends_with("/tools/bin/cargo-sbom\n"), "{strict}");
}

#[test]
fn the_configuration_that_is_installed_claims_nothing_and_is_what_init_takes_for_a_packages() {
    let dir = pages();
    let file = dir.path().join("drivebay.toml");
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        drivebay_config::packaged()
    );
    let checked = Command::new(program::agent().unwrap())
        .args(["check-config", "--config"])
        .arg(&file)
        .output();
    text(&checked);
}

#[test]
fn every_link_of_an_installed_document_leads_to_one() {
    need!(tool "python3");
    let dir = tempfile::tempdir().unwrap();
    text(
        &Command::new(repository().join("deploy/documents"))
            .arg(dir.path())
            .output(),
    );
    for named in [
        "README.md",
        "agent/drivebay.example.toml",
        "deploy/docs/reference/configuration.md",
        "deploy/nomad/host-volume.hcl",
        "systemd/README.md",
    ] {
        assert!(dir.path().join(named).is_file(), "{named}");
    }
    let mut files = Vec::new();
    texts(dir.path(), &mut files);
    let mut count = 0;
    for (path, text) in &files {
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        // Text between backticks is not a link.
        let plain: String = text.split('`').step_by(2).collect();
        for link in plain.split("](").skip(1) {
            let link = link.split([')', '#']).next().unwrap();
            if link.is_empty() || link.contains("://") {
                continue;
            }
            count += 1;
            let there = path.parent().unwrap().join(link);
            assert!(there.exists(), "{}: {link}", path.display());
        }
    }
    assert!(count > 60, "{count}");
}

/// Builds a program that needs a symbol of a newer glibc, as one linked on a newer system does.
fn program_for_glibc(version: &str, at: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: String| fs::write(dir.path().join(name), text).unwrap();
    file("libc.c", "void newer(void) {}".to_owned());
    file("libc.map", format!("GLIBC_{version} {{ newer; }};"));
    file(
        "main.c",
        "void newer(void); int main(void) { newer(); }".to_owned(),
    );
    let script = "gcc -shared -nostdlib -Wl,-soname,libc-newer.so,--version-script,libc.map -o libc-newer.so libc.c \
        && gcc -o \"$0\" main.c ./libc-newer.so";
    let made = Command::new("sh")
        .args(["-c", script])
        .arg(at)
        .current_dir(dir.path())
        .output();
    text(&made);
}

#[test]
fn packing_refuses_a_program_that_debian_12_cannot_start() {
    need!(tool "gcc");
    need!(tool "dpkg-query");
    let pack = |controller: &str| {
        let dir = tempfile::tempdir().unwrap();
        for (program, version) in [
            ("drivebay-agent", "2.36"),
            ("drivebay-controller", controller),
            ("drivebay-pages", "2.36"),
        ] {
            if !version.is_empty() {
                program_for_glibc(version, &dir.path().join(program));
            }
        }
        let done = Command::new(repository().join("deploy/package"))
            .arg("--programs")
            .args([dir.path(), &dir.path().join("packages")])
            .output()
            .unwrap();
        assert!(!done.status.success(), "{done:?}");
        [done.stdout, done.stderr].map(|text| String::from_utf8(text).unwrap())
    };
    let [stdout, refused] = pack("2.38");
    assert!(
        refused.contains("drivebay-controller needs glibc 2.38, and Debian 12 has 2.36"),
        "{refused}"
    );
    assert!(
        stdout.contains("drivebay-agent needs glibc 2.36"),
        "{stdout}"
    );
    let [_, refused] = pack("");
    assert!(refused.contains("no drivebay-controller in"), "{refused}");
}

#[test]
fn a_package_names_who_made_the_tag_as_its_maintainer() {
    need!(tool "git");
    let dir = tempfile::tempdir().unwrap();
    let run = |script: &str| {
        let script = format!(
            "set -euo pipefail; say() {{ printf '%s\\n' \"$*\"; }}; die() {{ say \"$*\" >&2; exit 1; }}\n{script}"
        );
        Command::new("bash")
            .args(["-c", &script, "bash"])
            .arg(repository().join("deploy/version.sh"))
            .current_dir(dir.path())
            .env_remove("DEBFULLNAME")
            .env_remove("DEBEMAIL")
            .output()
    };
    text(&run(
        "git init -q; git config user.name 'A Person'; git config user.email person@example.net
        git commit -q --allow-empty -m 1; git tag -a -m 1 v1; git tag v2",
    ));
    let maintainer = |arguments: &str| run(&format!(". \"$1\"; {arguments}"));
    assert_eq!(
        text(&maintainer("maintainer v1")),
        "A Person <person@example.net>\n"
    );
    assert_eq!(
        text(&maintainer(
            "DEBFULLNAME='B C' DEBEMAIL=b@example.net maintainer v1"
        )),
        "B C <b@example.net>\n"
    );
    // An incomplete release, and a tag without a tagger, have no responsible person.
    let none = text(&maintainer("maintainer"));
    assert!(none.starts_with("Not a release"), "{none}");
    let refused = maintainer("maintainer v2").unwrap();
    assert!(!refused.status.success(), "{refused:?}");
    assert!(
        String::from_utf8(refused.stderr)
            .unwrap()
            .contains("git tag -a v2")
    );
}
