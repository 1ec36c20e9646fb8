//! Shows a list once, or repeatedly.

use std::{io, path::Path};

use drivebay_common::terminal::Terminal;
use drivebay_view::{unix_seconds, watch::Screen};

use super::{CommandError, answered, client::Client};

/// Time and terminal for which a list is rendered.
#[derive(Debug, Clone, Copy)]
pub struct OutputTarget {
    /// Current Unix time, in seconds.
    pub now: u64,
    pub terminal: Terminal,
}

impl OutputTarget {
    /// Returns the settings for the current time and stdout.
    pub fn now() -> Self {
        Self {
            now: unix_seconds(),
            terminal: Terminal::of_stdout(),
        }
    }
}

/// Calls `answer` and prints its result, once or every `every` seconds.
pub(super) async fn show(
    socket: &Path,
    every: Option<u64>,
    mut answer: impl AsyncFnMut(&mut Client, OutputTarget) -> Result<String, CommandError>,
) -> Result<(), CommandError> {
    let mut client = Client::connect(socket).await?;
    let Some(seconds) = every else {
        let text = answer(&mut client, OutputTarget::now()).await?;
        return super::print(&text);
    };
    let mut screen = Screen::new(seconds);
    loop {
        screen.tick().await;
        let target = OutputTarget {
            terminal: Terminal::watched(),
            ..OutputTarget::now()
        };
        let text = answer(&mut client, target).await?;
        let shown = screen.show(&answered(&text), target.terminal, &mut io::stdout().lock());
        match shown {
            // The reader has closed the pipe.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            shown => shown.map_err(CommandError::Output)?,
        }
    }
}
