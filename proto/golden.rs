//! Golden files: output of this build, in `tests/golden` of the crate that includes this file. From v0.1.0 on, later builds must read the
//! files of each release.

use std::{env, fs, path::Path};

/// Asserts that the golden file `name` equals `written`, and returns its contents. With `DRIVEBAY_WRITE_GOLDEN=1` in the environment, for
/// an intended change of the format, replaces the file by `written` first.
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
