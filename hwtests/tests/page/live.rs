//! Changes, lost connections, and hidden pages.

use std::time::Duration;

use drivebay_hwtests::need;

use super::server::{BAD, DRAWN, LIVE, number, report, shown, text};

/// Deadline for a verdict to be shown, milliseconds. It takes less than 2000 on an idle machine, and is printed; a machine that builds
/// something beside needs longer.
const VERDICT: f64 = 10_000.0;
const SOON: Duration = Duration::from_secs(60);

/// Follows /api/fleet beside the page until three drives have turned BAD; returns the longest time until a tile shows what the fleet has,
/// in milliseconds.
const LAG: &str = "(async () => {
    const fetched = async () => new Set((await (await fetch('api/fleet')).json()).drives.filter(({ verdict, state }) => verdict === 'BAD' && state !== 'missing')
        .map(({ node, id }) => `#/drive/${encodeURIComponent(node)}/${encodeURIComponent(id)}`));
    const isBad = (href) => document.querySelector(`.tile[href=\"${href}\"]`)?.classList.contains('bad');
    const reported = await fetched();
    let worst = 0;
    for (let turned = 0; turned < 3;) {
        const now = await fetched();
        const at = performance.now();
        for (const href of now) {
            if (reported.has(href)) continue;
            reported.add(href);
            turned += 1;
            while (!isBad(href) && performance.now() - at < 20000) await new Promise((resolve) => setTimeout(resolve, 10));
            worst = Math.max(worst, performance.now() - at);
        }
        await new Promise((resolve) => setTimeout(resolve, 50));
    }
    return worst;
})()";

#[test]
fn a_drive_that_turns_bad_is_shown_and_announced() {
    need!(tool "chromium", tool "setpriv");
    let (_server, mut browser) = shown();
    let worst = number(&mut browser, LAG);
    report(format!(
        "a verdict is shown at most {worst:.0} ms after the server has it"
    ));
    assert!(worst < VERDICT, "{worst} ms");
    let announced = "document.getElementById('announce').textContent.includes('is now BAD')";
    browser.until(announced, SOON).unwrap();
}

#[test]
fn a_lost_server_is_shown_with_its_time_and_comes_back_by_itself() {
    need!(tool "chromium", tool "setpriv");
    let (mut server, mut browser) = shown();
    server.kill();
    let lost =
        "!document.getElementById('stale').hidden && document.body.classList.contains('is-stale')";
    browser.until(lost, SOON).unwrap();
    let words = text(&mut browser, "document.getElementById('stale').innerText");
    assert!(words.contains("Disconnected since"), "{words}");
    assert!(words.contains("What is shown is from"), "{words}");
    let tiles = number(&mut browser, "document.querySelectorAll('.tile').length");
    assert_eq!(tiles, 1200.0, "what was known is gone");
    server.start_again();
    browser.until(LIVE, SOON).unwrap();
    let hidden =
        "document.getElementById('stale').hidden && !document.body.classList.contains('is-stale')";
    browser.until(hidden, SOON).unwrap();
    // It follows changes again.
    let worst = number(&mut browser, LAG);
    assert!(worst < VERDICT, "{worst} ms");
}

#[test]
fn a_hidden_page_sends_no_requests_and_shows_the_changes_once_it_is_visible() {
    need!(tool "chromium", tool "setpriv");
    let (_server, mut browser) = shown();
    let hide = |hidden: bool| {
        format!(
            "Object.defineProperty(document, 'hidden', {{ value: {hidden}, configurable: true }});
             document.dispatchEvent(new Event('visibilitychange'));
             document.getElementById('link-text').textContent"
        )
    };
    assert_eq!(text(&mut browser, &hide(true)), "Paused");
    // A change that arrived before is drawn in the next frame.
    browser
        .evaluate("new Promise((resolve) => setTimeout(resolve, 500))")
        .unwrap();
    let requests = "performance.getEntriesByType('resource').length";
    let before = number(&mut browser, requests);
    let bad = text(&mut browser, BAD);
    assert_ne!(bad, "");
    // The server has another BAD drive each second.
    browser
        .evaluate("new Promise((resolve) => setTimeout(resolve, 3000))")
        .unwrap();
    assert_eq!(number(&mut browser, requests), before);
    assert_eq!(text(&mut browser, BAD), bad);
    browser.evaluate(&hide(false)).unwrap();
    browser.until(LIVE, DRAWN).unwrap();
    browser.until(&format!("{BAD} !== {bad:?}"), DRAWN).unwrap();
}

#[test]
fn a_change_touches_only_the_tiles_that_it_is_about() {
    need!(tool "chromium", tool "setpriv");
    let (_server, mut browser) = shown();
    let touched = number(
        &mut browser,
        "new Promise((resolve) => {
            const tiles = new Set();
            const watch = new MutationObserver((records) => records.forEach(({ target }) => target.classList?.contains('tile') && tiles.add(target)));
            watch.observe(document.querySelector('.racks'), { subtree: true, attributes: true, childList: true, characterData: true });
            setTimeout(() => resolve(tiles.size), 5000);
        })",
    );
    assert!((1.0..100.0).contains(&touched), "{touched} of 1200 tiles");
}
