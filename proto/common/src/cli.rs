//! Output and exit codes of commands, the same for both programs.

use std::{
    error::Error,
    io::{self, Write},
};

/// The command failed, or its result is that something is wrong.
pub const WRONG: u8 = 1;
/// Wrong usage, an ambiguous name, or a missing confirmation; nothing was done. clap uses the same code.
pub const USAGE: u8 = 2;
/// The program to connect to does not answer.
pub const UNREACHABLE: u8 = 3;
/// Permission denied: by the permissions of a file or socket, because the command needs root, or by the called program or the
/// Kubernetes API.
pub const NOT_PERMITTED: u8 = 4;
/// The answer could not be determined.
pub const UNKNOWN: u8 = 5;
/// No object has the given name.
pub const NOT_FOUND: u8 = 6;

/// Nothing is known to be wrong, but not everything is known: some drives were not polled since their agent started.
pub const NOT_POLLED: u8 = 7;
/// The request is recorded and continues without the command, but was not completed when the command ended.
pub const LEFT_WAITING: u8 = 8;
/// Ended by Ctrl-C while waiting, as shells report it: 128 and the number of the signal.
pub const INTERRUPTED: u8 = 130;

/// Meaning of every exit code of every command. `smart explain` and `run` have further ones.
pub const EXIT_CODES: [(u8, &str); 10] = [
    (0, "done; nothing is wrong"),
    (
        WRONG,
        "failed or refused, or something is wrong; the message says what and what to do",
    ),
    (
        USAGE,
        "wrong usage, an ambiguous name, or a confirmation is missing; nothing was done",
    ),
    (UNREACHABLE, "the program that is asked is not reachable"),
    (NOT_PERMITTED, "permission denied; run as root"),
    (
        UNKNOWN,
        "the answer could not be found out, as of a filesystem that cannot be checked now",
    ),
    (
        NOT_FOUND,
        "there is no drive, volume, snapshot, node or file of this name",
    ),
    (
        NOT_POLLED,
        "health: nothing is known to be wrong, but drives have not been polled since their agent started",
    ),
    (
        LEFT_WAITING,
        "drive evacuate, drive replace, volume move: volumes still wait; they are moved later without another command",
    ),
    (
        INTERRUPTED,
        "ended by Ctrl-C while it waited; what was begun goes on",
    ),
];

/// Returns the table of exit codes for the end of a help text, with the further rows of this program, sorted by code.
pub fn exit_codes(further: &[(u8, &str)]) -> String {
    let mut rows: Vec<_> = EXIT_CODES.iter().chain(further).collect();
    rows.sort_unstable_by_key(|(code, _)| *code);
    let rows = rows.iter();
    let rows = rows.map(|(code, meaning)| format!("\n  {code:<5}{meaning}"));
    format!("Exit codes:{}", rows.collect::<String>())
}

/// Message for a user without the necessary permission.
pub const RUN_AS_ROOT: &str = "permission denied; run as root";

/// Returns an error and its sources in one line, for logs, gRPC messages and terminals.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(inner) = next {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        next = inner.source();
    }
    text
}

/// Writes the whole text and flushes. A closed pipe (`| head`) is not an error.
pub fn print(out: &mut dyn Write, text: &str) -> io::Result<()> {
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Returns the name of the user who runs the command: `given`, else the first of SUDO_USER, USER and LOGNAME. Names that are empty or have
/// control characters are skipped; at most 64 characters are returned. None if there is no name, e.g. in kubectl exec.
pub fn operator(given: Option<&str>) -> Option<String> {
    somebody(given, |name| std::env::var(name).ok())
}

fn somebody(given: Option<&str>, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let names = ["SUDO_USER", "USER", "LOGNAME"];
    let names = names.into_iter().filter_map(variable);
    let mut plain = given
        .map(str::to_owned)
        .into_iter()
        .chain(names)
        .filter(|name| !name.is_empty() && !name.chars().any(char::is_control));
    Some(plain.next()?.chars().take(64).collect())
}

/// Error message for a command that records its user, when [`operator`] returns None.
pub const NOBODY: &str = "cannot tell who you are: the environment has no SUDO_USER, USER or LOGNAME, as in kubectl exec. Add --by NAME";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_in_order_and_apart_from_their_meaning() {
        let text = exit_codes(&[(10, "of this program")]);
        let codes = text
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().next());
        let codes: Vec<u8> = codes.map(|code| code.unwrap().parse().unwrap()).collect();
        assert!(codes.is_sorted(), "{codes:?}");
        assert!(
            text.contains("\n  10   of this program\n  130  ended"),
            "{text}"
        );
    }

    #[test]
    fn who_it_was_is_taken_from_the_option_then_sudo_and_never_with_control_characters() {
        let environment = |name: &str| match name {
            "SUDO_USER" => Some("ann".to_owned()),
            "USER" => Some("root".to_owned()),
            _ => None,
        };
        assert_eq!(somebody(Some("bob"), environment).as_deref(), Some("bob"));
        assert_eq!(somebody(None, environment).as_deref(), Some("ann"));
        let broken = |name: &str| (name == "SUDO_USER").then(|| "a\nb".to_owned());
        assert_eq!(somebody(None, broken), None);
        // As in a container.
        assert_eq!(somebody(Some(""), |_| None), None);
    }
}
