//! A list once, or again and again.

use std::{io, path::Path};

use drivebay_common::terminal::Terminal;
use drivebay_view::{unix_seconds, watch::Screen};

use super::{CommandError, answered, client::Client};

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
    let mut screen = Screen::new(seconds);
    loop {
        screen.tick().await;
        let look = Look {
            terminal: Terminal::watched(),
            ..Look::now()
        };
        let text = answer(&mut client, look).await?;
        let shown = screen.show(&answered(&text), look.terminal, &mut io::stdout().lock());
        match shown {
            // The reader has heard enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            shown => shown.map_err(CommandError::Output)?,
        }
    }
}
