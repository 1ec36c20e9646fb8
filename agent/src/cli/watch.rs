//! A list once, or again and again: on a terminal in place, else after each change.

use std::{
    io::{self, Write},
    path::Path,
    time::Duration,
};

use drivebay_common::terminal::Terminal;
use drivebay_controller::cli::unix_seconds;

use super::{CommandError, client::Client, printed};

/// Takes what is on the screen away.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// How something is shown.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Seconds since 1970.
    pub now: u64,
    pub terminal: Terminal,
}

impl Look {
    /// As it is now.
    pub fn now() -> Self {
        Self {
            now: unix_seconds(),
            terminal: Terminal::of_stdout(),
        }
    }
}

/// Asks and shows, once or every so many seconds.
pub(super) async fn show(
    socket: &Path,
    every: Option<u64>,
    mut answer: impl AsyncFnMut(&mut Client, Look) -> Result<String, CommandError>,
) -> Result<(), CommandError> {
    let mut client = Client::connect(socket).await?;
    let Some(seconds) = every else {
        let text = answer(&mut client, Look::now()).await?;
        return super::print(&text);
    };
    let mut ticks = tokio::time::interval(Duration::from_secs(seconds));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut before = String::new();
    loop {
        ticks.tick().await;
        let look = Look::now();
        let text = answer(&mut client, look).await?;
        if text == before {
            continue;
        }
        let shown = match look.terminal.width {
            Some(_) => format!(
                "{CLEAR}{}(every {seconds} s; Ctrl-C ends it)\n",
                printed(&text)
            ),
            None => printed(&text).into_owned(),
        };
        let mut out = io::stdout().lock();
        match out.write_all(shown.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => before = text,
            // The reader has heard enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(CommandError::Output(error)),
        }
    }
}
