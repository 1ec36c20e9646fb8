//! Who runs the program.

/// Whether it is root, who alone may open drives.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}
