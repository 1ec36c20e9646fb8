#![allow(clippy::unwrap_used)]

use super::*;
use crate::golden;

#[tokio::test]
async fn what_was_noted_durably_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let notes = Notes::open(dir.path()).unwrap();
    notes.doubt("v", "a").await.unwrap();
    notes.doubt("v", "b").await.unwrap();
    notes.note_delete("x@a").await.unwrap();
    let again = Notes::open(dir.path()).unwrap();
    assert_eq!(again.doubts("v"), ["a".into(), "b".into()].into());
    assert_eq!(again.undelivered_deletes("a"), ["x@a"]);
    assert!(again.undelivered_deletes("b").is_empty());
    again.settle("v", "a");
    again.settle("v", "b");
    again.delete_delivered("x@a");
    again.flush().await.unwrap();
    let last = Notes::open(dir.path()).unwrap();
    assert!(last.doubts("v").is_empty() && last.undelivered_deletes("a").is_empty());
}

#[tokio::test]
async fn the_golden_file_is_read_and_written_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/notes.json");
    fs::copy(golden, dir.path().join(FILE)).unwrap();
    let notes = Notes::open(dir.path()).unwrap();
    assert_eq!(notes.doubts("v"), ["a".into(), "b".into()].into());
    assert_eq!(notes.undelivered_deletes("a"), ["x@a"]);
    assert!(notes.has_returned("c", 1_795_410_496));
    notes.doubt("v", "a").await.unwrap();
    golden::compare(FILE, &fs::read(dir.path().join(FILE)).unwrap());
}

#[tokio::test]
async fn a_damaged_file_is_put_aside_and_not_written_over() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(FILE), "{ torn").unwrap();
    let notes = Notes::open(dir.path()).unwrap();
    notes.doubt("v", "a").await.unwrap();
    let aside = dir.path().join(format!("{FILE}.damaged"));
    assert_eq!(fs::read_to_string(&aside).unwrap(), "{ torn");
    assert_eq!(codes(&notes), ["StateLost"]);
    let again = Notes::open(dir.path()).unwrap();
    again.keep_up().await.unwrap();
    assert_eq!(codes(&again), ["StateLost"], "until it is removed");
    fs::remove_file(aside).unwrap();
    again.keep_up().await.unwrap();
    assert_eq!(codes(&again), [""; 0]);
}

fn codes(notes: &Notes) -> Vec<String> {
    let findings = notes.troubles().findings().into_iter();
    findings.map(|finding| finding.code).collect()
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_not_written_over_and_read_once_it_can_be() {
    let dir = tempfile::tempdir().unwrap();
    let before = Notes::open(dir.path()).unwrap();
    before.doubt("v", "a").await.unwrap();
    before.note_delete("x@a").await.unwrap();
    // A directory at its path cannot be read, even by root.
    let (path, elsewhere) = (dir.path().join(FILE), dir.path().join("elsewhere"));
    fs::rename(&path, &elsewhere).unwrap();
    fs::create_dir(&path).unwrap();
    let notes = Notes::open(dir.path()).unwrap();
    assert_eq!(codes(&notes), ["StateNotRead"]);
    assert!(notes.note_delete("y@a").await.is_err());
    notes.doubt_soon("v", "b").unwrap();
    assert!(notes.keep_up().await.is_err());
    assert!(path.is_dir());
    assert_eq!(codes(&notes), ["StateNotSaved", "StateNotRead"]);
    fs::remove_dir(&path).unwrap();
    fs::rename(&elsewhere, &path).unwrap();
    let bytes = fs::read(&path).unwrap();
    assert!(
        notes.note_delete("y@a").await.is_err(),
        "not before it is read"
    );
    assert_eq!(fs::read(&path).unwrap(), bytes);
    notes.keep_up().await.unwrap();
    assert_eq!(codes(&notes), [""; 0]);
    assert_eq!(notes.doubts("v"), ["a".into(), "b".into()].into());
    assert_eq!(notes.undelivered_deletes("a"), ["x@a"]);
    let next = Notes::open(dir.path()).unwrap();
    assert_eq!(next.doubts("v"), ["a".into(), "b".into()].into());
}

#[test]
fn a_file_of_a_newer_format_is_refused_and_left_as_it_is() {
    for format in ["2", "4294967296", "\"2\""] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let text = format!("{{\"format\":{format},\"doubts\":[]}}");
        fs::write(&path, &text).unwrap();
        let refused = Notes::open(dir.path());
        assert!(
            matches!(&refused, Err(NotesError::Newer { format: actual, .. }) if actual == format),
            "{refused:?}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}

#[tokio::test]
async fn what_cannot_be_written_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let notes = Notes::open(dir.path()).unwrap();
    fs::create_dir(dir.path().join("notes.json.new")).unwrap();
    assert!(matches!(
        notes.doubt("v", "a").await,
        Err(NotesError::Write { .. })
    ));
    assert!(notes.note_delete("x@a").await.is_err());
    assert_eq!(codes(&notes), ["StateNotSaved"]);
    // The change has no effect in memory either.
    assert!(notes.doubts("v").is_empty() && notes.undelivered_deletes("a").is_empty());
    fs::remove_dir(dir.path().join("notes.json.new")).unwrap();
    notes.doubt("w", "a").await.unwrap();
    notes.flush().await.unwrap();
    assert_eq!(codes(&notes), [""; 0]);
    let again = Notes::open(dir.path()).unwrap();
    assert!(again.doubts("v").is_empty() && again.undelivered_deletes("a").is_empty());
    assert_eq!(again.doubts("w"), ["a".into()].into());
}

#[tokio::test]
async fn many_notes_at_once_are_all_written() {
    let dir = tempfile::tempdir().unwrap();
    let notes = Notes::open(dir.path()).unwrap();
    let all = (0..200).map(|n| {
        let notes = notes.clone();
        tokio::spawn(async move { notes.doubt(&format!("v{n}"), "a").await })
    });
    for one in all.collect::<Vec<_>>() {
        one.await.unwrap().unwrap();
    }
    let again = Notes::open(dir.path()).unwrap();
    assert!((0..200).all(|n| again.doubts(&format!("v{n}")).len() == 1));
}

#[tokio::test]
async fn no_doubt_is_dropped_for_another_one() {
    let notes = Notes::in_memory();
    for n in 0..MAX_DOUBTS {
        notes.doubt_soon(&format!("v{n}"), "a").unwrap();
    }
    assert!(matches!(
        notes.doubt_soon("another", "a"),
        Err(NotesError::Full)
    ));
    assert!(matches!(
        notes.doubt("another", "a").await,
        Err(NotesError::Full)
    ));
    assert_eq!(notes.all_doubts().len(), MAX_DOUBTS);
    // A name that is in doubt already may be sent again, and one that ends makes room.
    notes.doubt("v0", "b").await.unwrap();
    notes.settle("v1", "a");
    notes.doubt("another", "a").await.unwrap();
    assert_eq!(notes.doubts("v0"), ["a".into(), "b".into()].into());
}

#[tokio::test]
async fn a_doubt_that_is_not_repeated_ends_after_its_node_was_listed_for_a_day() {
    let notes = Notes::in_memory();
    for (name, node) in [("v", "a"), ("v", "b"), ("w", "a")] {
        notes.doubt(name, node).await.unwrap();
    }
    let begin = Instant::now();
    let hours = |hours: u64| begin + Duration::from_secs(hours * 60 * 60);
    let only_a = |node: &str| node == "a";
    notes.settle_listed(only_a, hours(0));
    notes.settle_listed(only_a, hours(23));
    assert_eq!(notes.all_doubts().len(), 2, "a day has not passed");
    // Sent again: its day begins again.
    notes.doubt("w", "a").await.unwrap();
    notes.settle_listed(only_a, hours(24));
    assert_eq!(notes.doubts("v"), ["b".into()].into());
    assert_eq!(notes.doubts("w"), ["a".into()].into());
    // A node that was not connected meanwhile begins again, too.
    notes.settle_listed(|_| false, hours(30));
    notes.settle_listed(only_a, hours(49));
    assert_eq!(notes.doubts("w"), ["a".into()].into());
    notes.settle_listed(only_a, hours(73));
    assert!(notes.doubts("w").is_empty());
    assert_eq!(notes.doubts("v"), ["b".into()].into(), "never listed");
}
