//! Background work in a guest during a test: a process that writes, and one that records events of the kernel and udevd.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use super::{Guest, guest::quote};

/// Longest time until a further line, also when the guest is busy.
const SOON: Duration = Duration::from_secs(60);

/// A process that appends synced lines to a file, and ends at the first error.
#[derive(Debug)]
pub struct Writer {
    guest: Guest,
    unit: String,
    lines: PathBuf,
}

impl Writer {
    /// Starts it in a directory of the guest, as a systemd unit of this name.
    ///
    /// # Panics
    /// When it does not write.
    pub fn start(guest: &Guest, unit: &str, dir: &Path) -> Self {
        // One process, so that its only cost is writing: line, flush, fsync, until it is stopped.
        let script = r#"use IO::Handle; my ($file, $n) = ($ARGV[0], 0);
            open(my $out, ">>", $file) or die "open: $!";
            until (-e "$file.stop") {
                $n++;
                print $out "line $n\n" or die "print: $!";
                $out->flush or die "flush: $!";
                $out->sync or die "fsync: $!";
                select(undef, undef, undef, 0.01);
            }
            close($out) or die "close: $!";"#;
        let lines = dir.join("lines");
        guest.run(&format!(
            "systemd-run --quiet --unit={} --property=RemainAfterExit=yes perl -e {} {}",
            quote(unit),
            quote(script),
            quote(&lines.display().to_string())
        ));
        let writer = Self {
            guest: guest.clone(),
            unit: unit.to_owned(),
            lines,
        };
        writer.advances();
        writer
    }

    /// Returns the current number of lines. All but the last one are synced.
    pub fn lines(&self) -> usize {
        let lines = quote(&self.lines.display().to_string());
        let ran = self.guest.ran(&format!("wc -l <{lines}"));
        ran.stdout.trim().parse().unwrap_or(0)
    }

    /// Waits until there are more lines; returns their number.
    ///
    /// # Panics
    /// When none come.
    pub fn advances(&self) -> usize {
        let before = self.lines();
        self.guest.wait_until(SOON, "the writer gets on", |_| {
            let now = self.lines();
            (now > before + 5).then_some(now)
        })
    }

    /// Ends it, and checks that every line is there and that it had no error. Returns the number of lines.
    ///
    /// # Panics
    /// When one of these does not hold.
    pub fn finish(self) -> usize {
        let stop = self.lines.with_extension("stop");
        self.guest.write(&stop, b"");
        let unit = quote(&self.unit);
        let show = format!("systemctl show --property=SubState --value {unit}");
        self.guest.wait_until(SOON, "the writer ends", |guest| {
            (guest.run(&show).trim() != "running").then_some(())
        });
        let end = self.guest.run(&format!(
            "systemctl show --property=SubState,Result,ExecMainStatus {unit}; \
             journalctl --quiet --output=cat --unit={unit} | tail -5; \
             systemctl stop {unit} 2>/dev/null; systemctl reset-failed {unit} 2>/dev/null || true"
        ));
        assert!(
            end.contains("SubState=exited") && end.contains("ExecMainStatus=0"),
            "the writer {unit} saw an error: {end}"
        );
        let text = self.guest.read(&self.lines);
        let text = String::from_utf8_lossy(&text);
        for (at, line) in text.lines().enumerate() {
            assert_eq!(line, format!("line {}", at + 1), "of {unit}");
        }
        let lines = text.lines().count();
        let file = quote(&self.lines.display().to_string());
        self.guest.run(&format!("rm -f {file} {file}.stop"));
        lines
    }
}

/// Records events of block devices, of the kernel and of udevd, since its start.
#[derive(Debug)]
pub struct Events {
    guest: Guest,
    file: PathBuf,
}

impl Events {
    /// Starts recording, as a systemd unit of this name.
    ///
    /// # Panics
    /// When it does not listen.
    pub fn listen(guest: &Guest, unit: &str) -> Self {
        let file = PathBuf::from(format!("/run/{unit}.events"));
        guest.run(&format!(
            "rm -f {0}; systemd-run --quiet --collect --unit={unit} --property=StandardOutput=file:{0} \
             stdbuf -oL udevadm monitor --kernel --udev --subsystem-match=block",
            file.display()
        ));
        // It prints two lines, one each for kernel and udevd, right before it listens.
        guest.wait_until(SOON, "udevadm listens", |guest| {
            let output = guest.run(&format!("cat {}", file.display()));
            output.contains("KERNEL - ").then_some(())
        });
        Self {
            guest: guest.clone(),
            file,
        }
    }

    /// Returns every event so far: source ("KERNEL", "UDEV"), action, and device ("sda1").
    pub fn list(&self) -> Vec<(String, String, String)> {
        let text = self.guest.run(&format!("cat {}", self.file.display()));
        text.lines()
            .filter_map(|line| {
                let (who, rest) = line.split_once('[')?;
                let mut words = rest.split_once(']')?.1.split_whitespace();
                let (action, path) = (words.next()?, words.next()?);
                let device = path.rsplit('/').next()?;
                Some((who.trim().to_owned(), action.to_owned(), device.to_owned()))
            })
            .collect()
    }

    /// Returns the number of the kernel's events with this action for devices that satisfy `pick`.
    pub fn count(&self, action: &str, pick: impl Fn(&str) -> bool) -> usize {
        let events = self.list();
        events
            .iter()
            .filter(|(who, what, device)| who == "KERNEL" && what == action && pick(device))
            .count()
    }

    /// Stops the systemd unit `unit`, which must be the one given to `listen`. The file of events stays in the guest.
    pub fn end(self, unit: &str) {
        self.guest.run(&format!("systemctl stop {unit}"));
    }
}
