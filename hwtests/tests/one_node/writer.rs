//! A process that writes into a volume continuously, and reports any error.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use drivebay_hwtests::wait;

/// The writer; killed when dropped.
#[derive(Debug)]
pub(crate) struct Writer {
    child: Child,
    lines: PathBuf,
}

impl Writer {
    /// Starts a process that appends synced lines to a file in a directory until it is stopped; it ends with the first error.
    pub(crate) fn start(dir: &Path) -> Self {
        let lines = dir.join("lines");
        let script = r#"
            set -e
            n=0
            while [ ! -e "$1.stop" ]; do
                n=$((n + 1))
                echo "line $n" >>"$1"
                sync "$1"
            done
        "#;
        let child = Command::new("sh")
            .args(["-c", script, "writer"])
            .arg(&lines)
            .current_dir("/")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let writer = Self { child, lines };
        writer.advances();
        writer
    }

    fn count(&self) -> usize {
        let text = std::fs::read_to_string(&self.lines).unwrap_or_default();
        text.lines().count()
    }

    /// Waits until more lines are written.
    ///
    /// # Panics
    /// If none are written before the time limit.
    pub(crate) fn advances(&self) {
        let before = self.count();
        wait::until(Duration::from_secs(30), "the writer gets on", || {
            (self.count() > before + 5).then_some(())
        });
    }

    /// Ends the process. Every line must be in the file, and it must have had no error.
    ///
    /// # Panics
    /// If a line is missing or the process had an error.
    pub(crate) fn finish(mut self) {
        std::fs::write(self.lines.with_extension("stop"), "").unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "the writer saw an error: {status}");
        let text = std::fs::read_to_string(&self.lines).unwrap();
        for (at, line) in text.lines().enumerate() {
            assert_eq!(line, format!("line {}", at + 1));
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
