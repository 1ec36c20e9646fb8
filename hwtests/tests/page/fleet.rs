//! The view of the fleet: what is drawn, and search.

use std::time::Duration;

use drivebay_hwtests::need;

use super::server::{number, shown, text};

/// Longest time until a search is applied, on a busy machine.
const APPLIED: Duration = Duration::from_secs(10);

#[test]
fn fifty_nodes_with_24_drives_are_drawn_with_a_symbol_for_each_kind() {
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
        "[['bad', 'B'], ['suspect', 'S'], ['unknown', '?'], ['missing', 'M'], ['warning', '!']].map(([kind, letter]) => {
            const tiles = [...document.querySelectorAll(`.tile.${kind}`)];
            return `${kind}:${tiles.length > 0 && tiles.every((tile) => tile.textContent === letter)}`;
        }).join(' ')",
    );
    assert_eq!(
        letters,
        "bad:true suspect:true unknown:true missing:true warning:true"
    );
    // The numbers on top are those of the tiles.
    let summary = text(
        &mut browser,
        "['bad', 'suspect', 'unknown', 'missing', 'warning', 'good'].filter((kind) => Number(document.querySelector(`.stat.${kind} .stat-number`).textContent
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
            : rack.querySelector('[aria-label*=\"does not answer\"]') ? 'N' : rack.querySelector('.suspect') ? 'S'
            : rack.querySelector('.tile.warning') ? 'W' : 'G')).join('')",
    );
    let ranks: Vec<usize> = order
        .chars()
        .map(|one| "BMNSWG".find(one).unwrap())
        .collect();
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
        let summary = text(
            &mut browser,
            "document.querySelector('.result').textContent",
        );
        assert!(
            summary
                .replace(',', "")
                .starts_with(&format!("{shown} drive")),
            "{summary}, {shown} drawn"
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

#[test]
fn a_drive_that_does_not_answer_is_a_warning_although_its_verdict_is_good() {
    need!(tool "chromium", tool "setpriv");
    let (server, mut browser) = shown();
    let href = "#/drive/node-005/wwn-0x5000c50000050004";
    let tile = text(
        &mut browser,
        &format!(
            "(({{ className, textContent }}) => `${{className}} ${{textContent}}`)(document.querySelector('.tile[href={href:?}]'))"
        ),
    );
    assert_eq!(tile, "tile warning !");
    let label = text(
        &mut browser,
        &format!("document.querySelector('.tile[href={href:?}]').getAttribute('aria-label')"),
    );
    assert!(
        label.contains("does not answer; its verdict is GOOD"),
        "{label}"
    );
    let heading = text(
        &mut browser,
        &format!(
            "document.querySelector('.tile[href={href:?}]').closest('.rack').querySelector('.count.warning').textContent"
        ),
    );
    assert_eq!(heading, "!1 warning");

    // Two fake drives have a problem that is no verdict: no answer, which is worse than SUSPECT, and overheating.
    let counted = number(
        &mut browser,
        "Number(document.querySelector('.stat.warning .stat-number').textContent)",
    );
    assert_eq!(counted, 2.0);
    browser
        .evaluate("document.querySelector('.side .more').click()")
        .unwrap();
    let listed = format!("document.querySelector('.side-list .item.warning[href={href:?}]')");
    browser.until(&listed, APPLIED).unwrap();
    let order = text(
        &mut browser,
        "[...document.querySelectorAll('.side-list .item')].map((item) => ({ bad: 'B', missing: 'M', suspect: 'S',
            warning: item.innerText.includes('Drive stuck') ? 'N' : 'W' })[item.classList[1]] ?? '?').join('')",
    );
    let ranks: Vec<Option<usize>> = order.chars().map(|one| "BMNSW".find(one)).collect();
    assert!(ranks.iter().all(Option::is_some), "{order}");
    assert!(ranks.is_sorted(), "{order}");
    assert!(order.contains('N') && order.contains('W'), "{order}");

    browser
        .evaluate("document.querySelector('.stat.warning').click()")
        .unwrap();
    let result = "document.querySelector('.result').textContent === '2 drives on 2 nodes'";
    browser.until(result, APPLIED).unwrap();

    browser.navigate(&server.url(href)).unwrap();
    browser
        .until(
            "document.querySelector('.finding.warning .badge.warning')?.textContent === '!NO_ANSWER'",
            APPLIED,
        )
        .unwrap();
    let badge = text(
        &mut browser,
        "document.querySelector('.drive-marks .badge').textContent",
    );
    assert_eq!(badge, "!warning");
    let lead = text(
        &mut browser,
        "document.querySelector('.drive-lead').textContent",
    );
    assert!(
        lead.contains("does not answer; its verdict is GOOD"),
        "{lead}"
    );
}
