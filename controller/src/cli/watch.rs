//! Prints a list once or periodically.

use std::io::Write;

use drivebay_view::{
    unix_seconds,
    watch::{Screen, WatchArg},
};

use super::{CommandError, output::output, terminal::Terminal};

/// Prints a list once, or every `args.watch` seconds. `answer` gets the time in seconds since 1970, the terminal and the output.
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
        // The terminal's size may have changed.
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
