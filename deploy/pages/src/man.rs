//! A man page in section 8 for each command: what `clap_mangen` makes of its definition, then exit codes, environment, files, notes and
//! examples under their usual titles.

use std::{fs, io, path::Path};

use clap::{Arg, Command};
use clap_mangen::{
    Man,
    roff::{Inline, Roff, bold, roman},
};

use crate::program::Program;

pub(crate) const MANUAL: &str = "Drivebay";

/// Writes the pages of a program and of all its commands.
pub(crate) fn write(program: &Command, of: &Program, dir: &Path) -> io::Result<()> {
    let mut program = program.clone().disable_help_subcommand(true);
    program.build();
    let source = format!(
        "{} {}",
        program.get_name(),
        program.get_version().unwrap_or_default()
    );
    for (path, command) in commands(&program) {
        let name = command
            .get_display_name()
            .unwrap_or_else(|| command.get_name());
        fs::write(
            dir.join(format!("{name}.8")),
            page(&path, command, of, &source)?,
        )?;
    }
    Ok(())
}

/// Every command with the words before it.
fn commands(program: &Command) -> Vec<(Vec<&str>, &Command)> {
    let mut all = vec![(Vec::new(), program)];
    let mut next = 0;
    while let Some((path, command)) = all.get(next).cloned() {
        next += 1;
        let subcommands = command.get_subcommands();
        let shown = subcommands.filter(|sub| !sub.is_hide_set() && sub.get_name() != "help");
        all.extend(shown.map(|sub| {
            let path = path.iter().copied().chain([sub.get_name()]);
            (path.collect(), sub)
        }));
    }
    all
}

fn page(path: &[&str], command: &Command, of: &Program, source: &str) -> io::Result<String> {
    let help = command
        .get_after_long_help()
        .or_else(|| command.get_after_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let (none, plain) = (None::<&'static str>, command.clone());
    let plain = plain.after_help(none).after_long_help(none);
    let plain = plain.version(none).long_version(none);
    let mut page = Vec::new();
    Man::new(plain)
        .section("8")
        .source(source)
        .manual(MANUAL)
        .render(&mut page)?;
    let mut page = String::from_utf8(page).map_err(io::Error::other)?;
    let mut further = Further::default();
    further.exit_codes(path, of);
    further.environment(path, command, of);
    further.files(path, command, of);
    further.after_help(&help);
    further.see_also(path, source, of);
    page.push_str(&further.text());
    Ok(page)
}

/// Sections behind those that `clap_mangen` writes.
#[derive(Default)]
pub(crate) struct Further(Roff);

impl Further {
    pub(crate) fn text(&self) -> String {
        let text = self.0.render();
        // Each rendered text begins with the same definition.
        let before = Roff::new().render();
        text.strip_prefix(&before).unwrap_or(&text).to_owned()
    }

    pub(crate) fn title(&mut self, title: &str) {
        self.0.control("SH", [title]);
    }

    pub(crate) fn subtitle(&mut self, title: &str) {
        self.0.control("SS", [title]);
    }

    pub(crate) fn text_line(&mut self, text: &str) {
        self.0.text([roman(text)]);
    }

    pub(crate) fn row(&mut self, name: Inline, text: Vec<Inline>) {
        self.0.control("TP", []);
        self.0.text([name]);
        self.0.text(text);
    }

    pub(crate) fn paragraph(&mut self, text: impl Into<Vec<Inline>>) {
        self.0.control("PP", []);
        self.0.text(text);
    }

    /// Those of every command, and those that are this one's own; the program's page has all.
    fn exit_codes(&mut self, path: &[&str], of: &Program) {
        self.title("EXIT STATUS");
        for (code, meaning) in &of.exit_codes {
            if let Some(meaning) = meaning_for(path, meaning) {
                self.row(bold(code.to_string()), vec![roman(meaning)]);
            }
        }
    }

    fn environment(&mut self, path: &[&str], command: &Command, of: &Program) {
        let is_its = |name: &str| {
            let read = command.get_arguments().filter_map(Arg::get_env);
            let by_option = read.into_iter().any(|variable| variable == name);
            let of_run = ["DRIVEBAY_LOG", "RUST_LOG", "CSI_ENDPOINT"].contains(&name);
            path.is_empty() || by_option || (of_run && path == ["run"])
        };
        let rows = of.environment.iter().filter(|(name, _)| is_its(name));
        self.rows("ENVIRONMENT", rows);
    }

    fn files(&mut self, path: &[&str], command: &Command, of: &Program) {
        let is_its = |file: &str| {
            let defaults = command.get_arguments().flat_map(Arg::get_default_values);
            path.is_empty() || defaults.into_iter().any(|default| default == file)
        };
        let rows = of.files.iter().filter(|(file, _)| is_its(file));
        self.rows("FILES", rows);
    }

    fn rows<'a>(
        &mut self,
        title: &str,
        rows: impl Iterator<Item = &'a (&'static str, &'static str)>,
    ) {
        for (at, (name, text)) in rows.enumerate() {
            if at == 0 {
                self.title(title);
            }
            self.row(bold(*name), vec![roman(*text)]);
        }
    }

    /// Adds a command's `after_help`: blocks with an empty line between. Indented lines are not filled.
    fn after_help(&mut self, help: &str) {
        let blocks = || {
            help.split("\n\n")
                .filter(|block| !block.starts_with("Exit codes:"))
        };
        let is_example = |block: &&str| block.starts_with("Examples:");
        let notes: Vec<&str> = blocks().filter(|block| !is_example(block)).collect();
        if !notes.is_empty() {
            self.title("NOTES");
        }
        for block in notes {
            match block.split_once('\n') {
                Some((title, lines)) if title.ends_with(':') => {
                    self.paragraph([roman(title)]);
                    self.verbatim(lines);
                }
                _ => self.paragraph([roman(block)]),
            }
        }
        for (at, block) in blocks().filter(is_example).enumerate() {
            if at == 0 {
                self.title("EXAMPLES");
            }
            self.verbatim(block.split_once('\n').map_or("", |(_, lines)| lines));
        }
    }

    fn verbatim(&mut self, lines: &str) {
        self.0.control("PP", []);
        self.0.control("nf", []);
        for line in lines.lines() {
            self.0
                .text([roman(line.strip_prefix("  ").unwrap_or(line))]);
        }
        self.0.control("fi", []);
    }

    /// The commands that this one is part of, then the program's other pages.
    fn see_also(&mut self, path: &[&str], source: &str, of: &Program) {
        let program = source.split(' ').next().unwrap_or_default();
        let outer = (0..path.len()).rev().map(|words| {
            let name: Vec<&str> = [program]
                .into_iter()
                .chain(path.iter().copied().take(words))
                .collect();
            format!("{}(8)", name.join("-"))
        });
        let others = of.see_also.iter().map(|page| (*page).to_owned());
        let all: Vec<String> = outer.chain(others).collect();
        self.title("SEE ALSO");
        self.text_line(&all.join(", "));
    }
}

/// Returns the meaning of an exit code for a command; None if it does not occur there. A meaning that only some commands have begins with
/// their names.
fn meaning_for(path: &[&str], meaning: &'static str) -> Option<&'static str> {
    let Some((commands, own)) = meaning.split_once(": ") else {
        return Some(meaning);
    };
    // "there is no config; run: it has a mistake" is about every command.
    if path.is_empty() || commands.contains(';') {
        return Some(meaning);
    }
    let path = path.join(" ");
    commands
        .split(", ")
        .any(|command| command == path)
        .then_some(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_code_of_some_commands_is_on_their_pages_and_on_the_programs() {
        let own = "drive evacuate, volume move: volumes still wait";
        let all = "there is no config; run: it has a mistake";
        for (path, meaning, shown) in [
            (&[][..], own, Some(own)),
            (&["volume", "move"], own, Some("volumes still wait")),
            (&["volume", "show"], own, None),
            (&["drive"], own, None),
            (&["init"], all, Some(all)),
            (
                &["init"],
                "permission denied; run as root",
                Some("permission denied; run as root"),
            ),
        ] {
            assert_eq!(meaning_for(path, meaning), shown, "{path:?} {meaning}");
        }
    }

    #[test]
    fn a_page_has_its_sections_in_the_usual_order_and_names_the_pages_above_it() {
        let socket = Arg::new("socket")
            .long("socket")
            .env("X_SOCKET")
            .default_value("/run/x.sock");
        let show = Command::new("show").about("Show it").arg(socket).after_help(
            "States:\n  well  it is\n\nExamples:\n  x drive show sdb\n  x drive show 'a'\n\nExit codes:\n  0  well",
        );
        let mut x = Command::new("x")
            .version("1")
            .disable_help_subcommand(true)
            .subcommand(Command::new("drive").subcommand(show));
        x.build();
        let of = Program {
            files: vec![("/run/x.sock", "Its socket."), ("/etc/x", "Another.")],
            environment: vec![("X_SOCKET", "Where it is."), ("NO_COLOR", "No colour.")],
            exit_codes: vec![(0, "done"), (9, "drive show: odd")],
            see_also: vec!["y(8)"],
        };
        let all = commands(&x);
        let (path, show) = &all[2];
        assert_eq!(path, &["drive", "show"]);
        let page = page(path, show, &of, "x 1").unwrap();
        let titles: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix(".SH "))
            .collect();
        assert_eq!(
            titles,
            [
                "NAME",
                "SYNOPSIS",
                "DESCRIPTION",
                "OPTIONS",
                "\"EXIT STATUS\"",
                "ENVIRONMENT",
                "FILES",
                "NOTES",
                "EXAMPLES",
                "\"SEE ALSO\""
            ],
            "{page}"
        );
        assert!(page.contains(".TH x-drive-show 8 "), "{page}");
        assert!(page.contains("x\\-drive(8), x(8), y(8)\n"), "{page}");
        assert!(page.contains("\\fB9\\fR\nodd\n"), "{page}");
        assert!(page.contains(".nf\nwell  it is\n.fi\n"), "{page}");
        assert!(
            !page.contains("/etc/x") && !page.contains("Exit codes"),
            "{page}"
        );
    }
}
