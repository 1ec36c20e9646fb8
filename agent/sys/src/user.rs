//! The user that runs the program.

/// True for root, the only user that can open drives.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}
