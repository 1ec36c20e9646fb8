//! How a command ends: what it prints, and its exit code. The same for both programs.

use std::{
    error::Error,
    io::{self, Write},
};

/// Failed.
pub const FAILED: u8 = 1;
/// Wrong usage, or a confirmation is missing. Also clap's own.
pub const USAGE: u8 = 2;
/// The program that was to be asked does not answer.
pub const NO_ANSWER: u8 = 3;
/// `health`: something is wrong.
pub const UNWELL: u8 = 1;
/// `health`: whether something is wrong could not be found out.
pub const UNKNOWN: u8 = 2;

/// An error and all its reasons in one line, for logs, gRPC messages and a person at a prompt.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(inner) = next {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        next = inner.source();
    }
    text
}

/// Writes all of an answer. A reader that has heard enough (`| head`) is not a failure.
pub fn print(out: &mut dyn Write, text: &str) -> io::Result<()> {
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
