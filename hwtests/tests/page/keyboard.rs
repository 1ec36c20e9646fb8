//! The page by keyboard alone, and its structure for screen readers.

use std::time::Duration;

use drivebay_hwtests::need;

use super::server::{BAD, DRAWN, number, open, shown, text};

const SOON: Duration = Duration::from_secs(10);
const FOCUSED: &str =
    "document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent";

#[test]
fn drives_of_three_verdicts_are_reached_opened_and_left_without_a_pointer() {
    need!(tool "chromium", tool "setpriv");
    let (_server, mut browser) = shown();
    browser.press("/").unwrap();
    browser.write("node-000").unwrap();
    browser.press("Enter").unwrap();
    browser
        .until("document.activeElement.classList.contains('tile')", SOON)
        .unwrap();
    // A row has twelve tiles: bay 0, bay 13 and bay 14.
    let visits: [(&[&str], u64, &str); 3] = [
        (&[], 0, "BAD"),
        (&["ArrowDown", "ArrowRight"], 13, "SUSPECT"),
        (&["ArrowRight"], 14, "GOOD"),
    ];
    for (keys, drive, verdict) in visits {
        for key in keys {
            browser.press(key).unwrap();
        }
        let label = text(&mut browser, FOCUSED);
        assert!(
            label.starts_with(&format!("bay {drive}, {verdict}")),
            "{label}"
        );
        let outline = text(
            &mut browser,
            "getComputedStyle(document.activeElement).outlineStyle",
        );
        assert_eq!(outline, "solid", "the focus is not visible");
        let href = text(&mut browser, "document.activeElement.getAttribute('href')");
        assert_eq!(
            href,
            format!("#/drive/node-000/wwn-0x5000c5000000{drive:04x}")
        );
        browser.press("Enter").unwrap();
        browser
            .until("document.querySelector('.part-facts dd')", DRAWN)
            .unwrap();
        assert_eq!(text(&mut browser, "document.activeElement.tagName"), "H1");
        assert_eq!(text(&mut browser, "location.hash"), href);
        let badge = text(
            &mut browser,
            "document.querySelector('.drive-marks .badge').textContent",
        );
        assert!(badge.ends_with(verdict), "{badge}");
        browser.evaluate("history.back()").unwrap();
        let back = format!("document.activeElement.getAttribute('href') === {href:?}");
        browser.until(&back, SOON).unwrap();
        let query = text(&mut browser, "document.getElementById('search').value");
        assert_eq!(query, "node-000", "the search is lost");
    }
}

#[test]
fn tab_stops_once_in_ten_racks_and_reaches_every_control() {
    need!(tool "chromium", tool "setpriv");
    let (_server, mut browser) = shown();
    let mut stops = Vec::new();
    for _ in 0..40 {
        browser.press("Tab").unwrap();
        stops.push(text(
            &mut browser,
            "(({ className, id, dataset }) => `${className} ${id} ${dataset.view ?? ''}`)(document.activeElement)",
        ));
    }
    for wanted in [
        "skip", "brand", "volumes", "activity", "theme", "stat bad", "search", "item bad", "tile ",
    ] {
        assert!(
            stops.iter().any(|stop| stop.contains(wanted)),
            "{wanted} is not reached: {stops:?}"
        );
    }
    let tiles = number(
        &mut browser,
        "document.querySelectorAll('.tile[tabindex=\"0\"]').length",
    );
    assert_eq!(tiles, 1.0);
}

#[test]
fn focus_stays_on_a_drive_while_the_fleet_changes() {
    need!(tool "chromium", tool "setpriv");
    let (_server, mut browser) = shown();
    let before = text(
        &mut browser,
        "(() => { const tile = document.querySelectorAll('.tile.good')[40]; tile.focus(); return tile.getAttribute('href'); })()",
    );
    let bad = text(&mut browser, BAD);
    // Three verdicts later.
    for _ in 0..3 {
        let other = format!("{BAD} !== {bad:?}");
        browser.until(&other, SOON).unwrap();
    }
    let after = text(
        &mut browser,
        "document.activeElement.getAttribute('href') ?? ''",
    );
    assert_eq!(after, before);
}

#[test]
fn every_view_has_landmarks_one_heading_and_named_controls() {
    need!(tool "chromium", tool "setpriv");
    let (server, mut browser) = shown();
    for fragment in [
        "#/",
        "#/volumes",
        "#/activity",
        "#/drive/node-000/wwn-0x5000c50000000000",
    ] {
        browser.navigate(&server.url(fragment)).unwrap();
        browser
            .until("document.querySelector('main h1') && document.getElementById('link-text').textContent === 'Live'", DRAWN)
            .unwrap();
        browser
            .until(
                "document.querySelector('.tile, .part-facts dd, .table tbody tr')",
                DRAWN,
            )
            .unwrap();
        let missing = text(
            &mut browser,
            "['header', 'nav[aria-label]', 'main', 'footer', '[aria-live]', 'html[lang]'].filter((one) => !document.querySelector(one)).join()",
        );
        assert_eq!(missing, "", "{fragment}");
        let headings = number(&mut browser, "document.querySelectorAll('h1').length");
        assert_eq!(headings, 1.0, "{fragment}");
        let nameless = text(
            &mut browser,
            "[...document.querySelectorAll('a, button, input, textarea, summary, svg[role=img]')].filter((one) => !(one.getAttribute('aria-label')
                || one.textContent.trim() || one.labels?.length > 0)).map((one) => one.outerHTML).join()",
        );
        assert_eq!(nameless, "", "{fragment}");
    }
}

#[test]
fn nothing_moves_if_the_reader_prefers_that() {
    need!(tool "chromium", tool "setpriv");
    let server = super::server::Server::start(1, 4, None);
    let mut browser = open(&server, "");
    browser
        .until("document.querySelector('.tile')", DRAWN)
        .unwrap();
    let animation = "(() => { const tile = document.querySelector('.tile'); tile.classList.add('turned'); return getComputedStyle(tile).animationName; })()";
    assert_eq!(text(&mut browser, animation), "turned");
    browser.emulate("prefers-reduced-motion", "reduce").unwrap();
    assert_eq!(text(&mut browser, animation), "none");
}
