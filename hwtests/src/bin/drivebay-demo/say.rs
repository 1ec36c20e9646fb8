//! Progress on the terminal: chapters, and aligned lines below them.

use drivebay_hwtests::{GIB, MIB};

/// A new part of the story.
pub(crate) fn chapter(title: &str) {
    println!("\n== {title}");
}

/// One fact.
pub(crate) fn line(what: &str, text: &str) {
    println!("   {what:<14} {text}");
}

/// Several lines, as they are.
pub(crate) fn table(text: &str) {
    for row in text.lines() {
        println!("   {row}");
    }
}

/// A drive of the shelf, in words.
pub(crate) fn drive(name: &str, bytes: u64) -> String {
    format!("{:<16} {}", name, size(bytes))
}

/// Bytes in the largest binary unit that leaves no fraction worth printing.
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
