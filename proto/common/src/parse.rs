//! Parsing of the command line, with a hint if a command exists under another name.

use clap::{
    Command, CommandFactory, Parser,
    error::{ContextKind, ContextValue, ErrorKind},
};

/// Words that users of other tools type, and the command here; `list` is handled separately.
const SYNONYMS: [(&str, &str); 20] = [
    ("ls", "list"),
    ("get", "show"),
    ("info", "show"),
    ("describe", "show"),
    ("status", "health"),
    ("rm", "delete"),
    ("remove", "delete"),
    ("destroy", "delete"),
    ("resize", "expand"),
    ("grow", "expand"),
    ("extend", "expand"),
    ("new", "create"),
    ("make", "create"),
    ("erase", "wipe"),
    ("zap", "wipe"),
    ("format", "wipe"),
    ("umount", "unmount"),
    ("fsck", "check"),
    ("acknowledge", "ack"),
    ("scan", "rescan"),
];

/// Parses the arguments, or prints the error or help and exits, as clap does.
pub fn parse<C: Parser>() -> C {
    match C::try_parse() {
        Ok(parsed) => parsed,
        Err(error) => hinted::<C>(error).exit(),
    }
}

/// Returns the error with suggestions added.
pub fn hinted<C: CommandFactory>(mut error: clap::Error) -> clap::Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let command = C::command();
    let tips = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let words: Vec<String> = std::env::args().skip(1).collect();
            text(ContextKind::InvalidSubcommand)
                .map(|wrong| meant(&command, &words, &wrong))
                .unwrap_or_default()
        }
        ErrorKind::InvalidValue
            if text(ContextKind::InvalidValue).is_some_and(|value| value == "yaml") =>
        {
            vec!["-o json is YAML, too: whatever reads YAML takes it".into()]
        }
        _ => Vec::new(),
    };
    if !tips.is_empty() {
        error.remove(ContextKind::SuggestedSubcommand);
        let tips = tips.into_iter().map(Into::into).collect();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

/// Returns up to three suggestions for a mistyped command. `words`: all arguments.
fn meant(command: &Command, words: &[String], wrong: &str) -> Vec<String> {
    let program = command.get_name();
    let of = words.iter().take_while(|word| *word != wrong).last();
    let synonym = SYNONYMS.iter().find(|(other, _)| *other == wrong);
    let name = synonym.map_or(wrong, |(_, name)| *name);
    // The list of `drive` is the command `drives`.
    let listed: Vec<&str> = match (name, of.map(String::as_str)) {
        ("list", Some(of)) => vec![of],
        ("list", None) => vec!["drive", "volume", "node"],
        _ => Vec::new(),
    };
    let top = |name: &str| command.find_subcommand(name).is_some();
    let mut suggestions: Vec<String> = listed
        .iter()
        .map(|of| format!("{of}s"))
        .filter(|name| top(name))
        .collect();
    if top(name) {
        suggestions.push(name.to_owned());
    }
    for outer in command.get_subcommands() {
        let is_its = of.is_none_or(|of| of == outer.get_name()) || synonym.is_none();
        if is_its && name != "list" && outer.find_subcommand(name).is_some() {
            suggestions.push(format!("{} {name}", outer.get_name()));
        }
    }
    // `drives show` is `drive show`.
    let plural = command.get_subcommands().find(|outer| {
        wrong.strip_suffix('s') == Some(outer.get_name())
            || wrong == format!("{}s", outer.get_name())
    });
    suggestions.extend(plural.map(|outer| outer.get_name().to_owned()));
    suggestions.truncate(3);
    let line = |name: &String| format!("there is '{program} {name}'");
    suggestions.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> Command {
        let of = |name: &'static str, inner: &[&'static str]| {
            Command::new(name).subcommands(inner.iter().map(|&inner| Command::new(inner)))
        };
        Command::new("bay").subcommands([
            of("drives", &[]),
            of("drive", &["show", "wipe"]),
            of("volumes", &[]),
            of("volume", &["show", "create", "delete"]),
            of("health", &[]),
        ])
    }

    #[test]
    fn a_command_is_hinted_at_under_the_name_that_it_has() {
        for (typed, hint) in [
            ("drive list", &["there is 'bay drives'"][..]),
            ("drive ls", &["there is 'bay drives'"]),
            ("list", &["there is 'bay drives'", "there is 'bay volumes'"]),
            ("status", &["there is 'bay health'"]),
            ("wipe", &["there is 'bay drive wipe'"]),
            ("drive erase", &["there is 'bay drive wipe'"]),
            ("drive create", &["there is 'bay volume create'"]),
            ("volume rm", &["there is 'bay volume delete'"]),
            (
                "info",
                &["there is 'bay drive show'", "there is 'bay volume show'"],
            ),
            ("nonsense", &[]),
        ] {
            let words: Vec<String> = typed.split(' ').map(str::to_owned).collect();
            assert_eq!(
                meant(&program(), &words, words.last().unwrap()),
                hint,
                "{typed}"
            );
        }
    }
}
