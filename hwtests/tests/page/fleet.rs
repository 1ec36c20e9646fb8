//! The view of the fleet: what is drawn, and search.

use std::time::Duration;

use drivebay_hwtests::need;

use super::server::{number, shown, text};

/// Longest time until a search is applied, on a busy machine.
const APPLIED: Duration = Duration::from_secs(10);

#[test]
fn fifty_nodes_with_24_drives_are_drawn_with_every_verdict_told_by_a_letter() {
    need!(tool "chromium", tool "setpriv");
    let (_server, mut browser) = shown();
    assert_eq!(
        number(&mut browser, "document.querySelectorAll('.rack').length"),
        50.0
    );
    assert_eq!(
        number(&mut browser, "document.querySelectorAll('.tile').length"),
        1200.0
    );
    let letters = text(
        &mut browser,
        "[['bad', 'B'], ['suspect', 'S'], ['unknown', '?'], ['missing', 'M']].map(([kind, letter]) => {
            const tiles = [...document.querySelectorAll(`.tile.${kind}`)];
            return `${kind}:${tiles.length > 0 && tiles.every((tile) => tile.textContent === letter)}`;
        }).join(' ')",
    );
    assert_eq!(letters, "bad:true suspect:true unknown:true missing:true");
    // The numbers on top are those of the tiles.
    let summary = text(
        &mut browser,
        "['bad', 'suspect', 'unknown', 'missing', 'good'].filter((kind) => Number(document.querySelector(`.stat.${kind} .stat-number`).textContent
            .replace(',', '')) !== document.querySelectorAll(`.tile.${kind}`).length).join()",
    );
    assert_eq!(summary, "", "these counts differ");
    let nodes = text(&mut browser, "document.querySelector('.nodes').textContent");
    assert!(
        nodes.contains("50 nodes") && nodes.contains("1 disconnected"),
        "{nodes}"
    );
}

#[test]
fn worst_nodes_and_drives_are_first() {
    need!(tool "chromium", tool "setpriv");
    let (_server, mut browser) = shown();
    let order = text(
        &mut browser,
        "[...document.querySelectorAll('.rack')].map((rack) => (rack.querySelector('.bad') ? 'B' : rack.querySelector('.missing') ? 'M'
            : rack.querySelector('.suspect') ? 'S' : 'G')).join('')",
    );
    let ranks: Vec<usize> = order.chars().map(|one| "BMSG".find(one).unwrap()).collect();
    assert!(ranks.is_sorted(), "{order}");
    let first = text(
        &mut browser,
        "document.querySelector('.side-list .badge').textContent",
    );
    assert!(first.ends_with("BAD"), "{first}");
}

#[test]
fn search_finds_by_serial_claim_model_node_bay_and_id() {
    need!(tool "chromium", tool "setpriv");
    let (_server, mut browser) = shown();
    browser.press("/").unwrap();
    for (query, result) in [
        ("za012005", "1 drive on 1 node"),
        ("shop/db-12-5", "1 drive on 1 node"),
        ("node-012", "24 drives on 1 node"),
        ("node-012 bay 7", "1 drive on 1 node"),
        ("wwn-0x5000c500000c0005", "1 drive on 1 node"),
        ("acme", "1,199 drives on 50 nodes"),
        ("nothing-is-called-this", "0 drives on 0 nodes"),
    ] {
        browser.write(query).unwrap();
        let result = format!("document.querySelector('.result').textContent === {result:?}");
        browser.until(&result, APPLIED).unwrap();
        let shown = number(
            &mut browser,
            "document.querySelectorAll('.rack:not([hidden], .filtered) .tile, .rack.filtered:not([hidden]) .tile.hit').length",
        );
        let said = text(
            &mut browser,
            "document.querySelector('.result').textContent",
        );
        assert!(
            said.replace(',', "").starts_with(&format!("{shown} drive")),
            "{said}, {shown} drawn"
        );
        browser.press("Escape").unwrap();
        let all = "document.querySelectorAll('.rack:not([hidden])').length === 50";
        browser.until(all, APPLIED).unwrap();
    }
}

#[test]
fn filter_by_verdict_leaves_drives_of_that_verdict() {
    need!(tool "chromium", tool "setpriv");
    let (_server, mut browser) = shown();
    browser
        .evaluate("document.querySelector('.stat.suspect').click()")
        .unwrap();
    let only = "document.querySelectorAll('.tile.hit').length > 0 && [...document.querySelectorAll('.tile.hit')].every((tile) => tile.classList.contains('suspect'))";
    browser.until(only, APPLIED).unwrap();
    let pressed = text(
        &mut browser,
        "[...document.querySelectorAll('.stat[aria-pressed=true]')].map((stat) => stat.className).join()",
    );
    assert!(pressed.contains("suspect"), "{pressed}");
}
