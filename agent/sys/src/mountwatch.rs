//! Waits for changes of the mount table.

use std::{fs::File, io};

use tokio::io::{Interest, unix::AsyncFd};

/// Watches /proc/self/mountinfo: the kernel signals every change as priority data.
#[derive(Debug)]
pub struct MountWatch(AsyncFd<File>);

impl MountWatch {
    pub fn new() -> io::Result<Self> {
        let file = File::open("/proc/self/mountinfo")?;
        // SAFETY: the File owns its descriptor for as long as the AsyncFd owns the File, and nothing
        // replaces or closes it meanwhile.
        let registered =
            unsafe { AsyncFd::register_with_interest(file, Interest::PRIORITY | Interest::ERROR) };
        Ok(Self(registered?))
    }

    /// Waits for a change. Several changes may be reported as one.
    pub async fn changed(&self) -> io::Result<()> {
        let mut ready = self.0.ready(Interest::PRIORITY | Interest::ERROR).await?;
        ready.clear_ready();
        Ok(())
    }
}
