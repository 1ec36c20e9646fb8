//! Progress of long work, on standard error: lines that are rewritten where that is a terminal. Nobody reading along is no
//! reason to stop, so writing errors are ignored.

use std::{
    future::Future,
    io::{IsTerminal, Write, stderr},
    time::{Duration, Instant},
};

use crate::table::{cut, human_seconds};

/// What is over sooner shows nothing.
const PATIENCE: Duration = Duration::from_millis(700);
const TICK: Duration = Duration::from_millis(500);

/// Lines about work that goes on.
#[derive(Debug)]
pub struct Progress {
    terminal: bool,
    /// Lines on the terminal now, to be rewritten.
    shown: usize,
    began: Instant,
}

impl Default for Progress {
    fn default() -> Self {
        Self::begin()
    }
}

impl Progress {
    /// From now on.
    pub fn begin() -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            terminal: stderr().is_terminal() && !dumb,
            shown: 0,
            began: Instant::now(),
        }
    }

    /// Whether a person reads along.
    pub fn is_on_terminal(&self) -> bool {
        self.terminal
    }

    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Rewrites the line; nothing where it is no terminal.
    pub fn show(&mut self, line: &str) {
        self.write(&[line.to_owned()]);
    }

    /// Rewrites all lines, each cut at the terminal's width: a line that the terminal broke would not be rewritten as a whole.
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

    /// Takes the lines away.
    pub fn clear(&mut self) {
        let shown = std::mem::take(&mut self.shown);
        if shown > 0 {
            let mut stderr = stderr().lock();
            let _ = write!(stderr, "{}", rewritten(shown));
            let _ = stderr.flush();
        }
    }

    /// Leaves the lines where they are.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.shown) > 0 {
            let _ = writeln!(stderr().lock());
        }
    }
}

/// What takes so many lines away, from within the last one, and leaves the cursor where they began.
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

/// Waits for work, with a line that says what it is and for how long it has gone on.
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
