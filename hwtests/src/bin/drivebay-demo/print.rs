//! Progress on the terminal: titles, and aligned lines below them.

use drivebay_hwtests::{GIB, MIB};

/// Prints the title of a part of the demo to standard output, after an empty line.
pub(crate) fn chapter(title: &str) {
    println!("\n== {title}");
}

/// Prints a labelled line.
pub(crate) fn line(what: &str, text: &str) {
    println!("   {what:<14} {text}");
}

/// Prints several lines unchanged, indented.
pub(crate) fn table(text: &str) {
    for row in text.lines() {
        println!("   {row}");
    }
}

/// Describes a drive of the shelf.
pub(crate) fn drive(name: &str, bytes: u64) -> String {
    format!("{:<16} {}", name, size(bytes))
}

/// Formats bytes in GiB or MiB, with at most one decimal.
pub(crate) fn size(bytes: u64) -> String {
    let tenth = |unit: u64| {
        let tenths = bytes * 10 / unit;
        if tenths.is_multiple_of(10) {
            format!("{}", tenths / 10)
        } else {
            format!("{}.{}", tenths / 10, tenths % 10)
        }
    };
    if bytes >= GIB {
        format!("{} GiB", tenth(GIB))
    } else {
        format!("{} MiB", tenth(MIB))
    }
}
