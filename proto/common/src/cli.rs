//! How a command ends: what it prints, and its exit code. The same for both programs.

use std::{
    error::Error,
    io::{self, Write},
};

/// Failed, or an answer that something is wrong.
pub const WRONG: u8 = 1;
/// Wrong usage, an ambiguous name, or a confirmation is missing; nothing was done. Also clap's own.
pub const USAGE: u8 = 2;
/// The program that was to be asked does not answer.
pub const UNREACHABLE: u8 = 3;
/// Not permitted to whoever runs the command.
pub const NOT_PERMITTED: u8 = 4;
/// What was asked could not be found out.
pub const UNKNOWN: u8 = 5;
/// There is nothing of the name that was given.
pub const NOT_FOUND: u8 = 6;

/// Nothing is known to be wrong, but not everything was asked yet: drives that were not polled since their agent started.
pub const NOT_POLLED: u8 = 7;
/// What was asked for is recorded and goes on by itself, but not all of it was done when the command ended.
pub const LEFT_WAITING: u8 = 8;
/// Ended by Ctrl-C while it waited, as a shell has it: 128 and the number of the signal.
pub const INTERRUPTED: u8 = 130;

/// What every exit code of every command means. Those of `smart explain` and `run` are besides these.
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

/// The table of exit codes for the end of a help, with rows that only this program has.
pub fn exit_codes(further: &[(u8, &str)]) -> String {
    let mut rows: Vec<_> = EXIT_CODES.iter().chain(further).collect();
    rows.sort_unstable_by_key(|(code, _)| *code);
    let rows = rows.iter();
    let rows = rows.map(|(code, meaning)| format!("\n  {code:<5}{meaning}"));
    format!("Exit codes:{}", rows.collect::<String>())
}

/// What is said to whoever lacks the rights for something.
pub const RUN_AS_ROOT: &str = "permission denied; run as root";

/// An error and all its reasons in one line, for logs, gRPC messages and a person at a prompt.
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

/// Writes all of an answer. A reader that has heard enough (`| head`) is not a failure.
pub fn print(out: &mut dyn Write, text: &str) -> io::Result<()> {
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Who types a command: what was given, else what the environment has, sudo's word first; without control characters, at most 64
/// characters. None: nothing says it, as in kubectl exec.
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

/// Where nothing says who types a command that is recorded.
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
