//! Which volume of a name answers, and which one may be deleted.

use uuid::Uuid;

use super::*;

const PV: &str = "pvc-1";

fn candidate(n: u128, node: &str) -> Candidate {
    Candidate {
        key: Key {
            uuid: Uuid::from_u128(n),
            node: node.into(),
        },
        volume: Volume {
            name: PV.into(),
            state: "new".into(),
            mode: "mount".into(),
            created_at: n as u64,
            ..Volume::default()
        },
        is_there: true,
        named_by: None,
    }
}

fn named(n: u128, node: &str) -> Candidate {
    Candidate {
        named_by: Some(PV.into()),
        ..candidate(n, node)
    }
}

/// Returns the decision about the first one, given all.
fn of_first(all: &[Candidate]) -> Result<u128, Kept> {
    judge(PV, &all[0], all, true).map(|used| used.uuid.as_u128())
}

#[test]
fn only_a_volume_that_was_never_used_beside_the_one_of_the_persistent_volume_is_removed() {
    let used = named(2, "b");
    assert_eq!(of_first(&[candidate(1, "a"), used.clone()]), Ok(2));

    type Change = fn(&mut Candidate, &mut Candidate);
    let cases: [(&str, Change, Kept); 15] = [
        (
            "no PersistentVolume",
            |_, used| used.named_by = None,
            Kept::NoneNamed,
        ),
        (
            "a PersistentVolume of another name",
            |_, used| used.named_by = Some("other".into()),
            Kept::NoneNamed,
        ),
        (
            "named itself",
            |one, _| one.named_by = Some(PV.into()),
            Kept::InUse,
        ),
        (
            "named by another",
            |one, _| one.named_by = Some("other".into()),
            Kept::NamedTwice,
        ),
        (
            "the used one is away",
            |_, used| used.is_there = false,
            Kept::OtherAway,
        ),
        (
            "the used one is missing",
            |_, used| used.volume.state = "missing".into(),
            Kept::OtherAway,
        ),
        (
            "the used one is only expected",
            |_, used| used.volume.state = crate::expected::EXPECTED.into(),
            Kept::OtherAway,
        ),
        (
            "it is away itself",
            |one, _| one.is_there = false,
            Kept::Away,
        ),
        (
            "both are on one node",
            |one, used| one.key.node = used.key.node.clone(),
            Kept::Away,
        ),
        (
            "it was mounted once",
            |one, _| one.volume.state = "ready".into(),
            Kept::MayHoldData,
        ),
        (
            "it cannot be seen",
            |one, _| one.volume.state = "not-scanned".into(),
            Kept::MayHoldData,
        ),
        (
            "it is raw",
            |one, _| one.volume.mode = "block".into(),
            Kept::MayHoldData,
        ),
        (
            "it is published",
            |one, _| one.volume.published = true,
            Kept::MayHoldData,
        ),
        (
            "it is mounted",
            |one, _| one.volume.mounts = vec!["/m".into()],
            Kept::MayHoldData,
        ),
        (
            "made by hand",
            |one, _| one.volume.manual = true,
            Kept::MayHoldData,
        ),
    ];
    for (what, change, kept) in cases {
        let (mut one, mut used) = (candidate(1, "a"), used.clone());
        change(&mut one, &mut used);
        assert_eq!(of_first(&[one, used]), Err(kept), "{what}");
    }
    // Its drive was moved: one of its two places is outdated.
    let moved = [candidate(1, "a"), candidate(1, "c"), used.clone()];
    assert_eq!(of_first(&moved), Err(Kept::Away));
    let unfollowed = judge(PV, &moved[0], &moved, false);
    assert_eq!(unfollowed, Err(Kept::NotFollowed));
}

#[test]
fn the_volume_that_answers_a_name_does_not_depend_on_order_or_connections() {
    let ready = |n, node| {
        let mut one = candidate(n, node);
        one.volume.state = "ready".into();
        one
    };
    let mut unknown_age = candidate(1, "a");
    unknown_age.volume.created_at = 0;
    let of_a = |node: &str| node == "a";
    let cases: [(&str, Vec<Candidate>, u128); 6] = [
        (
            "the named one",
            vec![candidate(1, "a"), named(2, "b"), ready(3, "c")],
            2,
        ),
        (
            "one that may hold data",
            vec![candidate(1, "a"), ready(2, "b")],
            2,
        ),
        (
            "an allowed one",
            vec![candidate(1, "b"), candidate(2, "a")],
            2,
        ),
        ("the oldest", vec![candidate(1, "c"), candidate(2, "b")], 1),
        ("a known age", vec![unknown_age, candidate(2, "a")], 2),
        (
            "the older of two that may hold data",
            vec![ready(2, "a"), ready(1, "a")],
            1,
        ),
    ];
    for (what, all, expected) in cases {
        for away in 0..=all.len() {
            let mut all = all.clone();
            if let Some(one) = all.get_mut(away) {
                one.is_there = false;
            }
            for _ in 0..2 {
                all.reverse();
                let chosen = chosen(PV, &all, of_a).map(|one| one.key.uuid.as_u128());
                assert_eq!(chosen, Some(expected), "{what}, {away} away");
            }
        }
    }
}

#[test]
fn of_one_volume_at_two_places_the_one_that_is_there_answers() {
    let mut former = named(1, "a");
    former.is_there = false;
    let all = [former, named(1, "b")];
    let chosen = chosen(PV, &all, |node| node == "a");
    assert_eq!(chosen.map(|one| &*one.key.node), Some("b"));
}

#[test]
fn a_duplicate_is_due_when_the_same_was_found_of_it_for_the_grace() {
    let duplicates = Duplicates::default();
    let grace = Duration::from_secs(600);
    let begin = Instant::now();
    let one = candidate(1, "a");
    let find = |used: Candidate, at| {
        let groups = vec![(PV.to_owned(), vec![one.clone(), used])];
        duplicates.update(groups, true, at);
    };
    let due = |at| duplicates.due(grace, at).len();
    find(named(2, "b"), begin);
    assert_eq!((due(begin), due(begin + grace)), (0, 1));
    // An interruption restarts the grace.
    let mut away = named(2, "b");
    away.is_there = false;
    find(away, begin + grace / 2);
    find(named(2, "b"), begin + grace / 2);
    assert_eq!((due(begin + grace), due(begin + grace * 2)), (0, 1));
    // Another volume is used now.
    find(named(3, "b"), begin + grace);
    assert_eq!((due(begin + grace / 2 * 3), due(begin + grace * 2)), (0, 1));
    assert_eq!(
        duplicates.counts(),
        [("a".into(), 1), ("b".into(), 1)].into()
    );
    let text = duplicates.of(&one.key).unwrap_or_default();
    assert!(
        text.contains("removed by itself") && text.contains(&candidate(3, "b").key.id_text()),
        "{text}"
    );
    duplicates.update(Vec::new(), true, begin + grace);
    assert!(duplicates.of(&one.key).is_none() && due(begin + grace * 3) == 0);
}
