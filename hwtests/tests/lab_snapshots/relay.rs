//! A process in the guest that writes a numbered record to each of several volumes in turn, and checks of the records in a volume or in
//! a snapshot of it.
//!
//! A record is written to a volume only when the volume before has synced it: each record in a volume is in the one before as well.

use std::{path::PathBuf, time::Duration};

use drivebay_hwtests::{
    lab::{Guest, letters::LAB_LIMIT},
    node::Placed,
};
use drivebay_proto::csi::volume_capability::AccessType;

/// Prefix of the file with its last record and longest pause; the unit's name is the suffix.
const NOTES: &str = "/run/relay";

/// Perl script of the writer. Each volume holds the last 1024 records, of 4 KiB.
const WRITE: &str = r#"use IO::Handle;
my ($note, @paths) = @ARGV;
sub now { open(my $in, "<", "/proc/uptime") or die "uptime: $!"; return (split ' ', <$in>)[0] }
my @out = map { open(my $out, "+<", $_) or die "open $_: $!"; $out } @paths;
my ($n, $longest, $before) = (0, 0, now());
until (-e "$note.stop") {
    $n++;
    for my $out (@out) {
        sysseek($out, ($n % 1024) * 4096, 0) or die "seek: $!";
        syswrite($out, pack("a4096", "record $n\n")) == 4096 or die "write: $!";
        $out->sync or die "fsync: $!";
    }
    my $now = now();
    $longest = $now - $before if $now - $before > $longest;
    $before = $now;
    open(my $number, ">", "$note.new") or die "note: $!";
    printf $number "%d %d\n", $n, $longest * 1000;
    close($number) or die "note: $!";
    rename("$note.new", $note) or die "note: $!";
    select(undef, undef, undef, 0.01);
}
"#;

/// Perl script that prints the last record in standard input, and fails if one of the 1024 before it is missing.
const READ: &str = r#"my ($last, @held) = (0);
for my $slot (0 .. 1023) {
    (read(STDIN, my $record, 4096) // 0) == 4096 or die "slot $slot cannot be read\n";
    my $n = $record =~ /^record (\d+)\n/ ? $1 : 0;
    die "record $n is in slot $slot\n" if $n && $n % 1024 != $slot;
    push @held, $n;
    $last = $n if $n > $last;
}
for my $slot (0 .. 1023) {
    my $newest = $last - ($last - $slot) % 1024;
    $newest = 0 if $newest < 0;
    die "slot $slot holds record $held[$slot], not $newest, and another one $last\n" if $held[$slot] != $newest;
}
print "$last\n";
"#;

/// Returns the path of the records of a published volume: the device, or a file.
fn place(of: &Placed) -> PathBuf {
    match of.capability.access_type {
        Some(AccessType::Block(_)) => of.target.clone(),
        _ => of.target.join("records"),
    }
}

#[derive(Debug)]
pub(crate) struct Relay {
    guest: Guest,
    unit: &'static str,
}

impl Relay {
    /// Starts the writer on published volumes that have no records yet.
    pub(crate) fn start(guest: &Guest, unit: &'static str, volumes: &[&Placed]) -> Self {
        let mut paths = String::new();
        for of in volumes {
            let path = place(of).display().to_string();
            if path != of.target.display().to_string() {
                guest.run(&format!(
                    "dd if=/dev/zero of={path} bs=1M count=4 conv=fsync status=none"
                ));
            }
            paths.push_str(&format!(" {path}"));
        }
        guest.write("/run/relay.pl".as_ref(), WRITE.as_bytes());
        guest.run(&format!(
            "rm -f {NOTES}.{unit} {NOTES}.{unit}.stop; systemd-run --quiet --unit={unit} --property=RemainAfterExit=yes \
             perl /run/relay.pl {NOTES}.{unit}{paths}"
        ));
        let guest = guest.clone();
        let relay = Self { guest, unit };
        relay.advances();
        relay
    }

    /// Returns the last record that all volumes have synced, and the longest pause between two records, milliseconds.
    fn note(&self) -> (u64, u64) {
        let ran = self.guest.ran(&format!("cat {NOTES}.{}", self.unit));
        let mut numbers = ran.stdout.split_whitespace().map(|word| word.parse().ok());
        let mut next = || numbers.next().flatten().unwrap_or(0);
        (next(), next())
    }

    /// Returns the last record that all volumes have synced.
    pub(crate) fn synced(&self) -> u64 {
        self.note().0
    }

    /// Returns the longest time between two records.
    pub(crate) fn longest(&self) -> Duration {
        Duration::from_millis(self.note().1)
    }

    /// Waits until more than 5 further records are synced.
    pub(crate) fn advances(&self) {
        let before = self.synced();
        self.guest.wait_until(LAB_LIMIT, "the relay goes on", |_| {
            (self.synced() > before + 5).then_some(())
        });
    }

    /// Stops the writer, and checks that it had no error.
    pub(crate) fn finish(self) {
        let Self { guest, unit } = self;
        guest.run(&format!("touch {NOTES}.{unit}.stop"));
        let state = format!("systemctl show --property=SubState --value {unit}");
        guest.wait_until(LAB_LIMIT, "the relay ends", |guest| {
            (guest.run(&state).trim() != "running").then_some(())
        });
        let end = guest.run(&format!(
            "systemctl show --property=ExecMainStatus --value {unit}; journalctl --quiet --output=cat --unit={unit} | tail -5; \
             systemctl stop {unit} 2>/dev/null; systemctl reset-failed {unit} 2>/dev/null || true"
        ));
        assert!(
            end.starts_with("0\n"),
            "the relay {unit} saw an error: {end}"
        );
    }
}

/// Returns the last record at a path, read with O_DIRECT.
fn last_at(guest: &Guest, path: &str) -> u64 {
    guest.write("/run/read-relay.pl".as_ref(), READ.as_bytes());
    let output = guest.run(&format!(
        "dd if={path} bs=1M count=4 iflag=direct status=none | perl /run/read-relay.pl"
    ));
    output.trim().parse().unwrap()
}

/// Returns the last record in a published volume.
pub(crate) fn held(guest: &Guest, of: &Placed) -> u64 {
    last_at(guest, &place(of).display().to_string())
}

/// Returns the last record in a device with the contents of this volume, such as its snapshot.
pub(crate) fn held_by_device(guest: &Guest, device: &str, of: &Placed) -> u64 {
    let Some(AccessType::Mount(how)) = &of.capability.access_type else {
        return last_at(guest, device);
    };
    // The kernel does not mount two XFS filesystems with one UUID.
    let options = match how.fs_type.as_str() {
        "xfs" => "ro,nouuid",
        _ => "ro",
    };
    guest.run(&format!(
        "mkdir -p /run/member && mount -t {} -o {options} {device} /run/member",
        how.fs_type
    ));
    let last = last_at(guest, "/run/member/records");
    guest.run("umount /run/member");
    last
}
