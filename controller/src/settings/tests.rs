//! Valid and invalid config files, and the result of edits.

use std::{
    os::unix::fs::{PermissionsExt, symlink},
    time::Duration,
};

use proptest::prelude::*;

use super::{
    edit::{EditError, stanza, with, without},
    store::{StoreError, change},
    *,
};

// 2026-11-21T10:00:00Z
const AT: u64 = 1_795_255_200;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

#[test]
fn a_time_is_read_with_its_offset_in_either_spelling() {
    for time in [
        "2026-11-21T10:00:00Z",
        "\"2026-11-21T10:00:00Z\"",
        "2026-11-21 10:00:00Z",
        "2026-11-21T11:00:00+01:00",
        "\"2026-11-21T04:30:00-05:30\"",
    ] {
        let text = format!("[[forgotten]]\nnode = 'n1'\nat = {time}\n");
        let settings = Settings::parse(&text).unwrap();
        assert_eq!(settings.forgotten.since("n1"), Some(at(AT)), "{time}");
    }
}

#[test]
fn every_mistake_has_its_line() {
    for (text, line, words) in [
        ("forgoten = []\n", 1, "unknown field `forgoten`"),
        ("# x\n\n[nodes]\n", 3, "unknown field `nodes`"),
        (
            "[[forgotten]]\nnode = 'n1'\nat = 2026-11-21T10:00:00Z\nwhen = 1\n",
            4,
            "unknown field `when`",
        ),
        ("\n[[forgotten]]\nnode = 'n1'\n", 2, "missing field `at`"),
        ("[[forgotten]]\nnode = 7\nat = 1\n", 2, "expected a string"),
        ("[[forgotten]]\nnode = 'n1'\nat = 1\n", 3, "must be a time"),
        (
            "[[forgotten]]\nnode = 'n1'\nat = 2026-11-21T10:00:00\n",
            3,
            "offset",
        ),
        ("[[forgotten]]\nnode = 'n1'\nat = 2026-11-21\n", 3, "offset"),
        (
            "[[forgotten]]\nnode = 'n1'\nat = '2026-02-30T10:00:00Z'\n",
            3,
            "offset",
        ),
        (
            "[[forgotten]]\nnode = '-n'\nat = 2026-11-21T10:00:00Z\n",
            2,
            "not a node id",
        ),
        (
            "[[forgotten]]\nnode = 'n1'\nat = 2026-11-21T10:00:00Z\n[[forgotten]]\nnode = 'n1'\nat = 2026-11-21T10:00:00Z\n",
            5,
            "forgotten twice",
        ),
        ("a = \n", 1, ""),
    ] {
        let mistake = Settings::parse(text).unwrap_err();
        assert_eq!(mistake.line, Some(line), "{text}: {mistake}");
        assert!(mistake.message.contains(words), "{text}: {mistake}");
    }
}

#[test]
fn an_empty_file_forgets_nobody_and_an_absent_or_huge_one_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("controller.toml");
    assert!(matches!(
        Settings::load(&path),
        Err(SettingsError::Read { .. })
    ));
    std::fs::write(&path, "# nobody\n").unwrap();
    assert_eq!(Settings::load(&path).unwrap(), Settings::default());
    std::fs::write(&path, " ".repeat((1 << 20) + 1)).unwrap();
    assert!(matches!(
        Settings::load(&path),
        Err(SettingsError::TooLarge { .. })
    ));
    std::fs::write(&path, "x = 1\n").unwrap();
    let error = Settings::load(&path).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("{}:1: unknown", path.display())),
        "{error}"
    );
}

#[test]
fn an_entry_is_added_at_the_end_and_taken_out_again() {
    let text =
        "# Nodes given up.\n[[forgotten]] # fire\nnode = 'old'\nat = 2026-01-01T00:00:00Z   # UTC";
    let more = with(text, "n1", at(AT)).unwrap();
    assert_eq!(
        more,
        format!("{text}\n\n[[forgotten]]\nnode = \"n1\"\nat = 2026-11-21T10:00:00Z\n")
    );
    assert_eq!(without(&more, "n1").unwrap(), format!("{text}\n"));
    assert_eq!(
        without(&more, "old").unwrap(),
        "# Nodes given up.\n\n[[forgotten]]\nnode = \"n1\"\nat = 2026-11-21T10:00:00Z\n"
    );
    assert_eq!(
        with(&more, "n1", at(AT)),
        Err(EditError::AlreadyThere("n1".into()))
    );
    assert_eq!(without(text, "n1"), Err(EditError::NotThere("n1".into())));
}

#[test]
fn a_text_that_an_edit_would_not_leave_as_meant_is_left_alone() {
    let inline = "forgotten = [{ node = 'a', at = 2026-01-01T00:00:00Z }]\n";
    assert_eq!(with(inline, "b", at(AT)), Err(EditError::Manual("added")));
    assert_eq!(without(inline, "a"), Err(EditError::Manual("removed")));
    assert!(matches!(with("x", "b", at(AT)), Err(EditError::Invalid(_))));
    assert!(matches!(without("x", "b"), Err(EditError::Invalid(_))));
}

#[test]
fn a_file_is_replaced_through_its_link_and_keeps_its_mode() {
    let dir = tempfile::tempdir().unwrap();
    let (real, link) = (dir.path().join("real"), dir.path().join("link"));
    std::fs::write(&real, "# kept\n").unwrap();
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).unwrap();
    symlink("real", &link).unwrap();
    change(&link, |text| with(text, "n1", at(AT))).unwrap();
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(
        std::fs::read_to_string(&real).unwrap(),
        format!("# kept\n\n{}", stanza("n1", at(AT)).unwrap())
    );
    let mode = std::fs::metadata(&real).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o640);
    change(&link, |text| without(text, "n1")).unwrap();
    assert_eq!(std::fs::read_to_string(&real).unwrap(), "# kept\n");
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        2,
        "no litter"
    );
}

#[test]
fn a_file_that_changes_meanwhile_is_not_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.toml");
    std::fs::write(&path, "# one\n").unwrap();
    let saved = |how: &dyn Fn()| {
        change(&path, |text| {
            how();
            with(text, "n1", at(AT))
        })
    };
    let in_place = saved(&|| std::fs::write(&path, "# two\n").unwrap());
    assert!(matches!(in_place, Err(StoreError::Busy { .. })));
    let replaced = saved(&|| {
        let other = dir.path().join("other");
        std::fs::write(&other, "# two\n").unwrap();
        std::fs::rename(&other, &path).unwrap();
    });
    assert!(matches!(replaced, Err(StoreError::Busy { .. })));
    let twice = saved(&|| {
        let inner = change(&path, |text| with(text, "n2", at(AT)));
        assert!(matches!(inner, Err(StoreError::Busy { .. })));
    });
    assert!(twice.is_ok());
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        format!("# two\n\n{}", stanza("n1", at(AT)).unwrap())
    );
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        1,
        "no litter"
    );
}

#[test]
fn no_file_is_made_and_nothing_but_a_file_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("absent");
    let edit = |path: &Path| change(path, |text| with(text, "n1", at(AT)));
    assert!(matches!(edit(&path), Err(StoreError::NoFile { .. })));
    assert!(!path.exists());
    assert!(matches!(
        edit(dir.path()),
        Err(StoreError::NotAConfig { .. })
    ));
    std::fs::write(&path, "nonsense").unwrap();
    assert!(matches!(edit(&path), Err(StoreError::Edit { .. })));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "nonsense");
}

proptest! {
    #[test]
    fn adding_and_removing_leaves_every_other_byte(
        before in prop::collection::btree_map("[a-m][a-z0-9]{0,5}", 0_u64..4_000_000_000, 0..5),
        comments in prop::collection::vec("( *#[^\\pC]{0,10})?(\r)?\n", 0..6),
        node in "[n-z][a-zA-Z0-9._-]{0,61}[a-z0-9]",
        seconds in 0_u64..100_000_000_000,
    ) {
        let mut text = String::new();
        let mut comments = comments.into_iter();
        for (node, seconds) in &before {
            text.push_str(&comments.next().unwrap_or_default());
            text.push_str(&stanza(node, at(*seconds)).unwrap());
        }
        text.extend(comments);
        let more = with(&text, &node, at(seconds)).unwrap();
        prop_assert!(more.starts_with(&text));
        let read = Settings::parse(&more).unwrap();
        prop_assert_eq!(read.forgotten.since(&node), Some(at(seconds)));
        prop_assert_eq!(read.forgotten.len(), before.len() + 1);
        prop_assert_eq!(without(&more, &node).unwrap(), text);
        for gone in before.keys() {
            let less = without(&more, gone).unwrap();
            prop_assert_eq!(Settings::parse(&less).unwrap().forgotten.len(), before.len());
            prop_assert_eq!(less.matches('#').count(), more.matches('#').count());
        }
    }
}
