//! Progress of long work on standard error, as lines that are rewritten; nothing if that is no terminal. Write errors are ignored: progress
//! output must not stop the work.

use std::{
    future::Future,
    io::{IsTerminal, Write, stderr},
    time::{Duration, Instant},
};

use crate::table::{cut, human_seconds};

/// Shorter work shows nothing.
const PATIENCE: Duration = Duration::from_millis(700);
const TICK: Duration = Duration::from_millis(500);

/// Progress lines of running work; cleared on drop.
#[derive(Debug)]
pub struct Progress {
    terminal: bool,
    /// Number of lines on the terminal, to be rewritten.
    shown: usize,
    began: Instant,
}

impl Default for Progress {
    fn default() -> Self {
        Self::begin()
    }
}

impl Progress {
    /// Starts measuring the elapsed time.
    pub fn begin() -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            terminal: stderr().is_terminal() && !dumb,
            shown: 0,
            began: Instant::now(),
        }
    }

    /// True if standard error is a terminal that can rewrite lines.
    pub fn is_on_terminal(&self) -> bool {
        self.terminal
    }

    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Rewrites the line; does nothing without a terminal.
    pub fn show(&mut self, line: &str) {
        self.write(&[line.to_owned()]);
    }

    /// Rewrites all lines, each cut at the terminal's width: a line that the terminal wraps could not be rewritten as a whole.
    pub fn show_lines(&mut self, lines: &[String]) {
        let width = terminal_size::terminal_size_of(stderr());
        let room = width.map(|(width, _)| usize::from(width.0).saturating_sub(1));
        let lines: Vec<String> = lines.iter().map(|line| cut(line, room)).collect();
        self.write(&lines);
    }

    fn write(&mut self, lines: &[String]) {
        if self.terminal {
            let mut stderr = stderr().lock();
            let _ = write!(stderr, "{}{}", rewritten(self.shown), lines.join("\n"));
            let _ = stderr.flush();
            self.shown = lines.len();
        }
    }

    /// Removes the shown lines and leaves the cursor at the beginning of the first; does nothing if none are shown.
    pub fn clear(&mut self) {
        let shown = std::mem::take(&mut self.shown);
        if shown > 0 {
            let mut stderr = stderr().lock();
            let _ = write!(stderr, "{}", rewritten(shown));
            let _ = stderr.flush();
        }
    }

    /// Keeps the lines and moves below them.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.shown) > 0 {
            let _ = writeln!(stderr().lock());
        }
    }
}

/// Returns the control sequence that removes this many lines, with the cursor in the last one, and moves it to their beginning.
fn rewritten(lines: usize) -> String {
    match lines.saturating_sub(1) {
        0 => "\r\x1b[K".to_owned(),
        up => format!("\r\x1b[{up}A\x1b[J"),
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Awaits work; shows `what` and the elapsed time when it takes longer than `PATIENCE`.
pub async fn waiting<T>(what: &str, work: impl Future<Output = T>) -> T {
    let mut progress = Progress::begin();
    let mut work = std::pin::pin!(work);
    let mut ticks = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            _ = ticks.tick() => {
                let elapsed = progress.elapsed();
                if elapsed > PATIENCE {
                    progress.show(&format!("{what}: {}", human_seconds(elapsed.as_secs())));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_lines_are_taken_away_as_were_shown() {
        assert_eq!(rewritten(0), "\r\x1b[K");
        assert_eq!(rewritten(1), "\r\x1b[K");
        assert_eq!(rewritten(3), "\r\x1b[2A\x1b[J");
    }
}
