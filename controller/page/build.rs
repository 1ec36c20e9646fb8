//! Embeds the files of `assets`: a table of names and contents, so that a file is added there and nowhere else.

use std::{env, error::Error, fmt::Write, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    let root = env::var("CARGO_MANIFEST_DIR")?;
    let assets = Path::new(&root).join("assets");
    println!("cargo::rerun-if-changed={}", assets.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(&assets)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_file() && !name.starts_with('.') {
            names.push(name);
        }
    }
    names.sort();
    let mut table = String::from("&[\n");
    for name in names {
        let path = assets.join(&name);
        println!("cargo::rerun-if-changed={}", path.display());
        writeln!(table, "    ({name:?}, include_bytes!({path:?})),")?;
    }
    table.push_str("]\n");
    let out = env::var("OUT_DIR")?;
    fs::write(Path::new(&out).join("assets.rs"), table)?;
    Ok(())
}
