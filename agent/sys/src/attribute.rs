//! Reads sysfs attributes with three system calls each: every attribute of every drive is read often.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// Bytes that the kernel gives for an attribute at most: one page.
const PAGE: usize = 4096;

/// Reads a whole file. A read that does not fill the buffer ends it: sysfs gives an attribute by one read.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_open(File::open(path)?)
}

/// Reads an open file from its position to its end, as `read` does.
pub fn read_open(mut file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let mut page = [0; PAGE];
        match file.read(&mut page) {
            Ok(got) => {
                bytes.extend_from_slice(page.get(..got).unwrap_or_default());
                if got < PAGE {
                    return Ok(bytes);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads a whole file as text. InvalidData if it is not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_whole_whatever_its_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("attribute");
        for size in [0, 1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE] {
            let bytes: Vec<u8> = (0..size).map(|at| at as u8).collect();
            std::fs::write(&path, &bytes).unwrap();
            assert_eq!(read(&path).unwrap(), bytes, "{size}");
        }
        assert!(read_text(&path).is_err(), "these bytes are no text");
        let real = Path::new("/sys/kernel/notes");
        if let Ok(whole) = std::fs::read(real) {
            assert_eq!(read(real).unwrap(), whole);
        }
    }
}
