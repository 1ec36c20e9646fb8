//! Prints the fault table that tests have written: `drivebay-faults FILE`. Exits with 1 if a fault was not reported, or was reported for
//! the wrong drive or volume.
#![allow(
    clippy::disallowed_methods,
    reason = "a small tool of the harness reads a file"
)]

use std::{env, fs, process::ExitCode};

use drivebay_hwtests::faults::{Row, render};

fn rows(text: &str) -> Result<Vec<Row>, serde_json::Error> {
    text.lines().map(serde_json::from_str).collect()
}

fn main() -> ExitCode {
    let Some(file) = env::args_os().nth(1) else {
        eprintln!("usage: drivebay-faults FILE");
        return ExitCode::from(2);
    };
    let read = fs::read_to_string(&file).map_err(|error| error.to_string());
    match read.and_then(|text| rows(&text).map_err(|error| error.to_string())) {
        Err(error) => {
            eprintln!("drivebay-faults: {}: {error}", file.display());
            ExitCode::from(2)
        }
        Ok(rows) => {
            println!("{}", render(&rows));
            let well = |row: &Row| row.seen && row.named && row.back != "NO";
            let reported = rows.iter().filter(|row| well(row)).count();
            println!(
                "\n{reported} of {} faults are reported, and reported rightly",
                rows.len()
            );
            ExitCode::from(u8::from(reported < rows.len() || rows.is_empty()))
        }
    }
}
