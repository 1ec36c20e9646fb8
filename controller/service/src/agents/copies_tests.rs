//! Texts about a volume that several nodes have, and which of them a lookup finds.

use super::*;

fn copy(node: &str, generation: u64, state: &str, is_there: bool) -> Copy {
    let volume = Volume {
        generation,
        state: state.into(),
        ..Volume::default()
    };
    Copy {
        node: node.into(),
        drive: format!("sd{node} (serial S-{node}, bay 3)"),
        is_read: is_there && is_read(&volume),
        volume,
    }
}

fn details(copies: &[Copy]) -> Option<String> {
    Some(judge(Uuid::nil(), copies)?.details)
}

#[test]
fn both_nodes_drives_and_generations_are_named_and_which_is_the_newer() {
    let text = details(&[copy("a", 1, "ready", true), copy("b", 2, "ready", true)]);
    assert_eq!(
        text.unwrap(),
        "2 nodes have this volume: node b on drive sdb (serial S-b, bay 3), generation 2, ready; node a on drive sda (serial S-a, bay 3), generation 1, ready; that of node b is the newer: use no other, and detach the drive of the older, or attach it to node b, which then knows that it is old; volume prefer is not for it"
    );
    // An old place that is found without its copy has the generation of the copy, and is not served.
    let text = details(&[copy("a", 2, "ambiguous", true), copy("b", 2, "ready", true)]);
    assert!(text.unwrap().contains("that of node b is the newer: use"));
    let text = details(&[copy("a", 3, "ready", true), copy("b", 3, "ready", true)]);
    assert!(text.unwrap().contains("neither is newer"));
    // An agent from before volumes could be moved.
    let text = details(&[copy("a", 0, "ready", true), copy("b", 1, "ready", true)]);
    assert!(text.unwrap().contains("neither is newer"));
}

#[test]
fn a_drive_that_was_moved_is_no_copy_unless_what_it_left_is_newer() {
    for left in [
        copy("a", 2, "missing", true),
        copy("a", 1, "missing", true),
        copy("a", 2, "ready", false),
        copy("a", 0, "expected", true),
    ] {
        assert_eq!(details(&[left, copy("b", 2, "ready", true)]), None);
    }
    for left in [copy("a", 2, "missing", true), copy("a", 2, "ready", false)] {
        let text = details(&[left, copy("b", 1, "ready", true)]).unwrap();
        assert!(
            text.contains("node a on drive sda (serial S-a, bay 3), generation 2, not read now"),
            "{text}"
        );
        assert!(text.contains("that of node a is the newer, and is not read now"));
    }
    let away = [copy("a", 2, "ready", false), copy("b", 1, "ready", false)];
    assert_eq!(details(&away), None);
}

#[test]
fn copies_are_in_the_order_of_nodes_and_the_newer_is_one_of_a_higher_generation() {
    for (generations, newer) in [([1, 2], Some("b")), ([2, 1], Some("a")), ([2, 2], None)] {
        let copies = [
            copy("b", generations[1], "ready", true),
            copy("a", generations[0], "ready", true),
        ];
        let shared = judge(Uuid::nil(), &copies).unwrap();
        assert_eq!(shared.newer.as_deref(), newer);
        let nodes = shared.copies.iter().map(|(node, _, of)| (&**node, *of));
        let expected = [("a", generations[0]), ("b", generations[1])];
        assert!(nodes.eq(expected), "{shared:?}");
    }
}
