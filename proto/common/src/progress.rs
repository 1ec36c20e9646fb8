//! Progress of long work, on standard error: one line that is rewritten where that is a terminal. Nobody reading along is no
//! reason to stop, so writing errors are ignored.

use std::{
    future::Future,
    io::{IsTerminal, Write, stderr},
    time::{Duration, Instant},
};

use crate::table::human_seconds;

/// What is over sooner shows nothing.
const PATIENCE: Duration = Duration::from_millis(700);
const TICK: Duration = Duration::from_millis(500);

/// A line about work that goes on.
#[derive(Debug)]
pub struct Progress {
    terminal: bool,
    shown: bool,
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
            shown: false,
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
        if self.terminal {
            self.shown = true;
            let mut stderr = stderr().lock();
            let _ = write!(stderr, "\r\x1b[K{line}");
            let _ = stderr.flush();
        }
    }

    /// Takes the line away.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let mut stderr = stderr().lock();
            let _ = write!(stderr, "\r\x1b[K");
            let _ = stderr.flush();
        }
    }

    /// Leaves the line where it is.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = writeln!(stderr().lock());
        }
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
