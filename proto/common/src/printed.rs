//! Commands printed in messages, with the given socket and config options added, so that they can be typed as they are printed.

use std::borrow::Cow;

/// Options of the command line, to be repeated in printed commands of this program.
#[derive(Debug, Clone, Default)]
pub struct Given {
    pub program: &'static str,
    /// ` --socket PATH`; empty if it was not given.
    pub socket: String,
    /// ` --config FILE`; empty if it was not given.
    pub config: String,
    /// First words of the commands that take a socket.
    pub socket_commands: &'static [&'static str],
    /// Prefixes of the commands that take a config.
    pub config_commands: &'static [&'static str],
}

/// Returns an option with its value, quoted for a shell if necessary, and with a leading space.
pub fn option(name: &str, value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    match value.chars().all(plain) && !value.is_empty() {
        true => format!(" --{name} {value}"),
        false => format!(" --{name} '{}'", value.replace('\'', "'\\''")),
    }
}

impl Given {
    /// Returns the text with the options added to commands in it, which must be in backquotes or on a line of their own.
    pub fn repeated_in<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.socket.is_empty() && self.config.is_empty() {
            return Cow::Borrowed(text);
        }
        let lines: Vec<String> = text.split('\n').map(|line| self.line(line)).collect();
        Cow::Owned(lines.join("\n"))
    }

    fn line(&self, line: &str) -> String {
        if let Some(command) = line.trim_start().strip_prefix(self.program) {
            return format!("{line}{}", self.options(command));
        }
        let mut pieces = line.split('`');
        let mut text = pieces.next().unwrap_or_default().to_owned();
        let mut quoted = true;
        for piece in pieces {
            text.push('`');
            text.push_str(piece);
            if let Some(command) = piece.strip_prefix(self.program).filter(|_| quoted) {
                text.push_str(&self.options(command));
            }
            quoted = !quoted;
        }
        text
    }

    /// Returns the missing options of a command without its program name.
    fn options(&self, command: &str) -> String {
        let Some(words) = command.strip_prefix(' ') else {
            return String::new();
        };
        let first = words.split_whitespace().next().unwrap_or_default();
        let has = |option: &str| words.contains(option);
        let mut options = String::new();
        if self.socket_commands.contains(&first) && !has("--socket") {
            options.push_str(&self.socket);
        }
        if self
            .config_commands
            .iter()
            .any(|one| words.starts_with(one))
            && !has("--config")
        {
            options.push_str(&self.config);
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_commands_repeat_what_was_given() {
        let given = Given {
            program: "drivebay-agent",
            socket: option("socket", "/run/a b.sock"),
            config: option("config", "/etc/x.toml"),
            socket_commands: &["drives", "drive"],
            config_commands: &["drive wipe"],
        };
        for (text, printed) in [
            (
                "there is none; `drivebay-agent drives --all` shows all; see `drivebay-agent run --config FILE`",
                "there is none; `drivebay-agent drives --all --socket '/run/a b.sock'` shows all; see `drivebay-agent run --config FILE`",
            ),
            (
                "To wipe it:\n\n  drivebay-agent drive wipe x --confirm x\n",
                "To wipe it:\n\n  drivebay-agent drive wipe x --confirm x --socket '/run/a b.sock' --config /etc/x.toml\n",
            ),
            (
                "drivebay-agent: no `agent` answers",
                "drivebay-agent: no `agent` answers",
            ),
            (
                "plain `drives` and drivebay-agent drives",
                "plain `drives` and drivebay-agent drives",
            ),
        ] {
            assert_eq!(given.repeated_in(text), printed);
        }
        let text = "`drivebay-agent drives`";
        let none = Given {
            socket: String::new(),
            config: String::new(),
            ..given
        };
        assert_eq!(none.repeated_in(text), text);
    }
}
