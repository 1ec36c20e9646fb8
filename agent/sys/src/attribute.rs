//! Attributes in sysfs, by three system calls each: they are read all the time, of every drive.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// What the kernel makes of an attribute is a page at most.
const PAGE: usize = 4096;

/// All of a file. One that is read to the end by one read is not read again, which is how sysfs tells: what does not fill the
/// room is all of it.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_open(File::open(path)?)
}

/// The same of one that is open.
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

/// The same as text.
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
