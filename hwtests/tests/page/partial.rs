//! Answers that are cut off, or in which something could not be read: the page says so, and shows no zero in its place.

use drivebay_hwtests::need;

use super::server::{DRAWN, Server, open, text};

#[test]
fn the_volume_list_shows_that_it_is_cut_off() {
    need!(tool "chromium", tool "setpriv");
    let notice = "(({ hidden, textContent }) => hidden ? '' : textContent)(document.querySelector('.cut-off'))";
    let drawn = "document.querySelector('.table tbody tr')";
    // Two volumes per drive; the example answers with at most 3000.
    for (nodes, wanted) in [(50, None), (63, Some("the first 3,000"))] {
        let server = Server::start(nodes, 24, None);
        let mut browser = open(&server, "#/volumes");
        browser.until(drawn, DRAWN).unwrap();
        let shown = text(&mut browser, notice);
        match wanted {
            None => assert_eq!(shown, ""),
            Some(wanted) => assert!(shown.contains(wanted), "{shown}"),
        }
    }
}

#[test]
fn the_activity_view_names_nodes_whose_moves_could_not_be_read() {
    need!(tool "chromium", tool "setpriv");
    let shown = "[...document.querySelectorAll('.view > .trouble:not([hidden])')].map((one) => one.textContent).join()";
    let panel = "[...document.querySelectorAll('.panel')].filter((one) => one.checkVisibility()).map((one) => one.querySelector('h2').textContent
        + ' ' + (one.querySelector('.side-sum')?.textContent ?? '')).join()";
    for (nodes, notice, moves, copies) in [
        (3, "", "Moves 2", None),
        (
            50,
            "Moves and copies of 1 node could not be read: node-007.",
            "Moves at least 2",
            Some("Copies not known"),
        ),
    ] {
        let server = Server::start(nodes, 24, None);
        let mut browser = open(&server, "#/activity");
        browser
            .until("document.querySelector('.panel tbody tr')", DRAWN)
            .unwrap();
        assert_eq!(text(&mut browser, shown), notice);
        let panels = text(&mut browser, panel);
        assert!(panels.contains(moves), "{panels}");
        match copies {
            None => assert!(!panels.contains("Copies"), "{panels}"),
            Some(copies) => assert!(panels.contains(copies), "{panels}"),
        }
    }
}

#[test]
fn latency_and_unreadable_ranges_that_are_absent_are_not_known() {
    need!(tool "chromium", tool "setpriv");
    let server = Server::start(50, 24, None);
    let mut browser = open(&server, "#/drive/node-005/wwn-0x5000c50000050004");
    browser
        .until(
            "document.querySelector('.part-latency:not([hidden]) .panel-body')",
            DRAWN,
        )
        .unwrap();
    let body = |part: &str| format!("document.querySelector('.part-{part} .panel-body').innerText");
    assert_eq!(
        text(&mut browser, &body("latency")),
        "The latency of this drive is not known."
    );
    let ranges = text(&mut browser, &body("unreadable"));
    assert!(ranges.contains("is not known here"), "{ranges}");
}

#[test]
fn parts_of_an_answer_that_are_null_are_not_shown_as_zero() {
    need!(tool "chromium", tool "setpriv");
    let server = Server::start(1, 1, None);
    let mut browser = open(&server, "");
    for (call, wanted) in [
        ("charts.minutes('Reads', null, {})", "Reads not known"),
        (
            "charts.minutes('Reads', { mean: null, expected: null, usual: null, history: [null, null] }, {})",
            "Reads not known",
        ),
        (
            "charts.minutes('Reads', { mean: 9, expected: 8, history: [] }, { comparedWith: 'model', peerDrives: null })",
            "number of drives of this model not known",
        ),
        (
            "charts.latency({ buckets: [{ le: 1, count: 4 }], peers: [{ le: 1, count: 4 }, { le: 2, count: 4 }] })",
            "≤ 2 not known 4 (50 %)",
        ),
        (
            "sections.unreadable({ unreadable: [{ offset: 8, bytes: null, volume: null, holds: 'files', files: null }] })",
            "1 range, total size not known",
        ),
        ("sections.unreadable({ unreadable: null })", "not known"),
        (
            "sections.smart({ smart: [{ name: 'ata-5', shown: null, value: null }] })",
            "Ata 5 not known",
        ),
        (
            "sections.smart({ smart: [{ name: 'ata-5', shown: 'Reallocated_Sector_Ct (5): 208', value: 208 }] })",
            "Reallocated Sector Ct (5) 208",
        ),
    ] {
        // Each text on its own, so that cells of a row stay apart.
        let shown = text(
            &mut browser,
            &format!(
                "Promise.all([import('/assets/charts.js'), import('/assets/sections.js')]).then(([charts, sections]) => {{
                    const walk = document.createTreeWalker({call}, NodeFilter.SHOW_TEXT);
                    const texts = [];
                    while (walk.nextNode()) texts.push(walk.currentNode.data);
                    return texts.join(' ');
                }})"
            ),
        );
        assert!(shown.contains(wanted), "{call}: {shown}");
        assert!(!shown.contains("0 B"), "{call}: {shown}");
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn every_severity_makes_a_warning_of_a_drive_whose_verdict_is_good_or_unknown() {
    need!(tool "chromium", tool "setpriv");
    let server = Server::start(1, 1, None);
    let mut browser = open(&server, "");
    let kinds = text(
        &mut browser,
        "import('/assets/words.js').then(({ kindOf }) => [
            ...['DATA_LOSS', 'INACCESSIBLE', 'MISSING', 'NO_ANSWER', 'DAMAGED', 'DEGRADED', 'WARNING', 'A_LATER_WORD'].flatMap((severity) =>
                ['GOOD', 'UNKNOWN'].map((verdict) => kindOf({ verdict, severity, state: 'claimed' }))),
            kindOf({ verdict: 'GOOD', severity: null, state: 'unprobed' }),
            kindOf({ verdict: 'BAD', severity: 'NO_ANSWER', state: 'claimed' }),
            kindOf({ verdict: 'GOOD', severity: 'MISSING', state: 'missing' }),
            kindOf({ verdict: 'GOOD', severity: null, state: 'claimed' }),
            kindOf({ verdict: 'UNKNOWN', severity: null, state: 'rejected' }),
        ].join(' '))",
    );
    let wanted = format!("{}bad missing good unknown", "warning ".repeat(17));
    assert_eq!(kinds, wanted);
}
