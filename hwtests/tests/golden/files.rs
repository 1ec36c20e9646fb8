//! Where golden files are, and the forms that drives and messages have in them.

use std::{
    fmt::Write as _,
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use drivebay_hwtests::{
    MIB,
    tap::{Message, Sender},
};

/// The release that wrote them.
pub(crate) const RELEASE: &str = "4d75420";

/// The directory of one crate's golden files.
pub(crate) fn dir(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(of)
        .join("tests/golden")
        .join(RELEASE)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.map(byte).collect()
}

/// GPT, label, and the GPT's backup of a drive.
pub(crate) fn excerpt(file: &Path) -> String {
    let size = fs::metadata(file).unwrap().len();
    sectors(file, &[(0, 5 * MIB), (size - MIB, size)])
}

/// Sectors of a drive that are not zero, in these runs. A line each: offset in bytes, then hex without the zeros at the end.
pub(crate) fn sectors(file: &Path, runs: &[(u64, u64)]) -> String {
    const SECTOR: usize = 512;
    let image = fs::File::open(file).unwrap();
    let size = image.metadata().unwrap().len();
    let mut text = format!("size {size}\n");
    for (start, end) in runs {
        let mut bytes = vec![0; usize::try_from(end - start).unwrap()];
        image.read_exact_at(&mut bytes, *start).unwrap();
        for (at, sector) in (*start..).step_by(SECTOR).zip(bytes.chunks(SECTOR)) {
            if let Some(last) = sector.iter().rposition(|&byte| byte != 0) {
                let _ = writeln!(text, "{at} {}", hex(&sector[..=last]));
            }
        }
    }
    text
}

/// One line per message: method, who sent it, hex.
pub(crate) fn frame(message: &Message) -> String {
    let sender = match message.sender {
        Sender::Caller => "request",
        Sender::Answerer => "response",
    };
    format!("{} {sender} {}\n", message.method, hex(&message.bytes))
}
