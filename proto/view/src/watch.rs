//! Watched lists: redrawn in place on a terminal, else printed after each change.

use std::{
    io::{self, Write},
    time::Duration,
};

use clap::Args;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::terminal::Terminal;

/// Control sequence that clears the screen.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// Option that repeats a list until it is interrupted.
#[derive(Debug, Clone, Copy, Args)]
pub struct WatchArg {
    /// Watch for changes: poll every 2 seconds, or at this interval
    #[arg(
        short,
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2",
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    pub watch: Option<u64>,
}

/// Last output, and the timer of the next poll.
#[derive(Debug)]
pub struct Screen {
    seconds: u64,
    ticks: Interval,
    before: String,
}

impl Screen {
    /// Starts with an empty screen. `seconds`: poll interval, at least 1.
    pub fn new(seconds: u64) -> Self {
        let mut ticks = interval(Duration::from_secs(seconds));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            seconds,
            ticks,
            before: String::new(),
        }
    }

    /// Waits for the next poll; returns at once the first time.
    pub async fn tick(&mut self) {
        self.ticks.tick().await;
    }

    /// Shows a text if it differs from the last one.
    pub fn show(&mut self, text: &str, terminal: Terminal, out: &mut dyn Write) -> io::Result<()> {
        if text == self.before {
            return Ok(());
        }
        match terminal.width {
            Some(_) => writeln!(
                out,
                "{CLEAR}{text}(every {} s; Ctrl-C ends it)",
                self.seconds
            )?,
            None => out.write_all(text.as_bytes())?,
        }
        out.flush()?;
        text.clone_into(&mut self.before);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_has_not_changed_is_not_shown_again() {
        let mut screen = Screen::new(1);
        let mut out = Vec::new();
        for text in ["a\n", "a\n", "b\n"] {
            screen.show(text, Terminal::NONE, &mut out).unwrap();
        }
        assert_eq!(out, b"a\nb\n");
    }

    #[tokio::test]
    async fn on_a_terminal_it_is_shown_in_place_with_how_it_ends() {
        let mut screen = Screen::new(5);
        let mut out = Vec::new();
        let terminal = Terminal {
            width: Some(80),
            ..Terminal::NONE
        };
        screen.show("a\n", terminal, &mut out).unwrap();
        let shown = String::from_utf8(out).unwrap();
        assert_eq!(shown, "\u{1b}[H\u{1b}[2Ja\n(every 5 s; Ctrl-C ends it)\n");
    }
}
