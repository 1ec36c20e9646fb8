//! Output of a command.

use std::io::{self, Write};

use super::CommandError;

/// Writes the output or a part of it.
pub(super) fn write(out: &mut dyn Write, text: &str) -> Result<(), CommandError> {
    out.write_all(text.as_bytes()).map_err(output)
}

/// Converts an error of writing the output.
pub(super) fn output(error: io::Error) -> CommandError {
    CommandError::Output(error)
}
