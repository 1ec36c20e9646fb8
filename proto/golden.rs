//! Golden files: what today's build writes, in `tests/golden` of the crate that includes this file. From v0.1.0 on, later
//! builds have to read the files of each release.

use std::{env, fs, path::Path};

/// Asserts that the golden file `name` holds `written`, and returns what it holds. With `DRIVEBAY_WRITE_GOLDEN=1` in the
/// environment, as after a change of the format on purpose, `written` replaces the file.
pub(crate) fn compare(name: &str, written: &[u8]) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    if env::var_os("DRIVEBAY_WRITE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, written).unwrap();
    }
    let golden = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(
        String::from_utf8_lossy(written),
        String::from_utf8_lossy(&golden),
        "{} is not what this build writes",
        path.display()
    );
    assert_eq!(written, golden);
    golden
}
