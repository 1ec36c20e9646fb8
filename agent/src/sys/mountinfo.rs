//! placeholder until merge
/// x
#[derive(Debug)] pub struct Mount { /// x
 pub mount_point: std::path::PathBuf, /// x
 pub major: u32, /// x
 pub minor: u32, /// x
 pub root: std::path::PathBuf, /// x
 pub options: Vec<String>, /// x
 pub fs_type: String, /// x
 pub source: String }
/// x
pub fn read_self() -> std::io::Result<Vec<Mount>> { todo!() }
