//! What a snapshot holds: its volume as it was, while a writer goes on, for each kind of volume.

use drivebay_hwtests::{
    MIB, csi,
    lab::{Guest, Writer, letters::LAB_LIMIT},
    long,
};

use super::helpers::{
    copy, delete, delete_snapshot, fs_uuid, lab, lines, nothing_is_left, snapshot, synced, total,
    volume,
};

/// A snapshot of a filesystem is restored to a volume of twice the size, which is mounted beside the first one.
async fn of_a_filesystem(fs_type: &str, bytes: u64) {
    let mut lab = lab().await;
    let lab = lab.as_mut().unwrap();
    let how = csi::mount(fs_type);
    let first = volume(lab, &format!("{fs_type}-first"), bytes, &how).await;
    lab.serve(&first).await;
    let before = lab.put_letter(&first, 512);
    let writer = Writer::start(lab.guest(), &format!("writer-{fs_type}"), &first.target);
    let synced = synced(&writer);
    let name = format!("{fs_type}-snapshot");
    // The writer goes on for as long as it takes.
    let taken = snapshot(lab, &name, &first, &[("reserve", "50%")]).await;
    let later = lab.put_letter(&first, 512);
    assert_ne!(later, before);
    writer.advances();
    let again = snapshot(lab, &name, &first, &[]).await;
    assert_eq!(again.snapshot_id, taken.snapshot_id, "the same again");
    let listed = lab.csi.list_snapshots(&first.id).await.unwrap();
    let ids: Vec<&str> = listed.iter().map(|one| one.snapshot_id.as_str()).collect();
    assert_eq!(ids, [taken.snapshot_id.as_str()]);

    let source = csi::from_snapshot(&taken.snapshot_id);
    let second = copy(lab, &format!("{fs_type}-second"), 2 * bytes, &how, &source).await;
    lab.serve(&second).await;
    assert_eq!(lab.letter(&second), before);
    assert_eq!(lab.letter(&first), later);
    lines(lab, &second.target, synced);
    assert_ne!(fs_uuid(lab, &first).await, fs_uuid(lab, &second).await);
    let (small, large) = (total(lab, &first).await, total(lab, &second).await);
    assert!(large > small, "{large} of a larger volume, and {small}");
    // Neither is the other.
    let own = lab.put_letter(&second, 64);
    lab.leave_volume(&second).await;
    lab.serve(&second).await;
    assert_eq!(lab.letter(&second), own);
    assert_eq!(lab.letter(&first), later);
    writer.finish();
    delete(lab, &second).await;
    delete_snapshot(lab, &taken.snapshot_id).await;
    delete(lab, &first).await;
    nothing_is_left(lab).await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_snapshot_of_ext4_holds_it_while_a_writer_goes_on_and_is_mounted_beside_it() {
    of_a_filesystem("ext4", 64 * MIB).await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_snapshot_of_xfs_holds_it_while_a_writer_goes_on_and_is_mounted_beside_it() {
    long!();
    of_a_filesystem("xfs", 320 * MIB).await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_snapshot_of_btrfs_holds_it_while_a_writer_goes_on_and_is_mounted_beside_it() {
    long!();
    of_a_filesystem("btrfs", 320 * MIB).await;
}

/// Bytes of a record.
const RECORD: u64 = 4096;
/// What a writer of a raw volume notes: how many records it has synced.
const SYNCED: &str = "/run/records";

/// A process that writes numbered records into a device, syncs each, and then notes its number.
fn record(guest: &Guest, device: &str) {
    let script = r#"use IO::Handle; my ($device, $note, $n) = (@ARGV, 0);
        open(my $out, "+<", $device) or die "open: $!";
        until (-e "$note.stop") {
            $n++;
            sysseek($out, $n * 4096, 0) or die "seek: $!";
            syswrite($out, pack("a4096", "record $n\n")) == 4096 or die "write: $!";
            $out->sync or die "fsync: $!";
            open(my $number, ">", "$note.new") or die "note: $!"; print $number $n; close($number);
            rename "$note.new", $note;
            select(undef, undef, undef, 0.01);
        }"#;
    guest.write("/run/records.pl".as_ref(), script.as_bytes());
    guest.run(&format!(
        "rm -f {SYNCED} {SYNCED}.stop; systemd-run --quiet --unit=records --property=RemainAfterExit=yes perl /run/records.pl {device} {SYNCED}"
    ));
}

fn recorded(guest: &Guest) -> u64 {
    let noted = guest.ran(&format!("cat {SYNCED}"));
    noted.stdout.trim().parse().unwrap_or(0)
}

fn gets_on(guest: &Guest) {
    let before = recorded(guest);
    guest.wait_until(LAB_LIMIT, "the writer gets on", |guest| {
        (recorded(guest) > before + 5).then_some(())
    });
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_snapshot_of_a_raw_volume_has_every_record_that_was_synced_before_it() {
    long!();
    let mut lab = lab().await;
    let lab = lab.as_mut().unwrap();
    let guest = lab.guest();
    let how = csi::block();
    let first = volume(lab, "raw-first", 64 * MIB, &how).await;
    lab.serve(&first).await;
    record(guest, &first.target.display().to_string());
    gets_on(guest);
    let before = recorded(guest);
    let taken = snapshot(lab, "raw-snapshot", &first, &[("reserve", "100%")]).await;
    let after = recorded(guest);
    gets_on(guest);
    let source = csi::from_snapshot(&taken.snapshot_id);
    let second = copy(lab, "raw-second", 64 * MIB, &how, &source).await;
    lab.serve(&second).await;
    let read = |of: &str| {
        guest.run(&format!(
            "dd if={of} bs={RECORD} skip=1 count={} iflag=direct status=none | tr -d '\\0'",
            after + 2
        ))
    };
    let held = read(&second.target.display().to_string());
    for (line, number) in held.lines().zip(1..) {
        assert_eq!(line, format!("record {number}"));
    }
    let held = held.lines().count() as u64;
    // One more may have been written, and not noted yet.
    assert!(
        (before..=after + 1).contains(&held),
        "{held} records; {before} before and {after} after"
    );
    guest.run(&format!("touch {SYNCED}.stop"));
    guest.wait_until(LAB_LIMIT, "the writer ends", |guest| {
        let state = "systemctl show --property=SubState --value records";
        (guest.run(state).trim() != "running").then_some(())
    });
    let end = guest
        .run("systemctl show --property=ExecMainStatus --value records; systemctl stop records");
    assert_eq!(end.trim(), "0", "the writer met an error");
    delete(lab, &second).await;
    delete_snapshot(lab, &taken.snapshot_id).await;
    delete(lab, &first).await;
    nothing_is_left(lab).await;
}
