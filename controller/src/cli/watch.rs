//! A list once, or again and again.

use std::io::Write;

use drivebay_view::{
    unix_seconds,
    watch::{Screen, WatchArg},
};

use super::{CommandError, listing::output, terminal::Terminal};

/// Asks and shows, once or every so many seconds. `answer` gets the seconds since 1970, and where it is shown.
pub(super) async fn show(
    args: WatchArg,
    terminal: Terminal,
    out: &mut dyn Write,
    mut answer: impl AsyncFnMut(u64, Terminal, &mut dyn Write) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let Some(seconds) = args.watch else {
        return answer(unix_seconds(), terminal, out).await;
    };
    let mut screen = Screen::new(seconds);
    loop {
        screen.tick().await;
        // Its size may have changed.
        let terminal = match terminal.width {
            Some(_) => Terminal::watched(),
            None => terminal,
        };
        let mut text = Vec::new();
        answer(unix_seconds(), terminal, &mut text).await?;
        let text = String::from_utf8_lossy(&text);
        screen.show(&text, terminal, out).map_err(output)?;
    }
}
