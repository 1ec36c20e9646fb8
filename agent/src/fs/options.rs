//! placeholder until merge
/// x
#[derive(Debug)] pub struct MountFlags { /// x
 pub read_only: bool }
/// x
pub fn parse_mount_flags(_: &[String]) -> Result<MountFlags, std::io::Error> { todo!() }
