//! What is kept of the last week: SMART values of a drive, and events.

use std::{env, path::PathBuf};

use drivebay_hwtests::{browser::Browser, need};

use super::server::{DRAWN, Server, number, open, text};

/// Saves screenshots in both themes, and on a narrow screen, in the directory DRIVEBAY_PAGE_SHOTS, if it is set. `of`: the selector of what is shown.
fn shoot(browser: &mut Browser, name: &str, of: &str) {
    let Some(dir) = env::var_os("DRIVEBAY_PAGE_SHOTS").map(PathBuf::from) else {
        return;
    };
    for (theme, width) in [("light", 1280), ("dark", 1280), ("light", 400)] {
        browser.emulate("prefers-color-scheme", theme).unwrap();
        browser.set_viewport(width, 900).unwrap();
        let show = format!("document.querySelector({of:?}).scrollIntoView()");
        browser.evaluate(&show).unwrap();
        browser
            .screenshot(&dir.join(format!("{name}-{theme}-{width}.png")))
            .unwrap();
    }
    browser.set_viewport(1280, 900).unwrap();
}

#[test]
fn a_smart_counter_has_a_chart_of_its_last_week_with_its_range_as_text() {
    need!(tool "chromium", tool "setpriv");
    let server = Server::start(3, 24, None);
    let mut browser = open(&server, "#/drive/node-000/wwn-0x5000c50000000000");
    browser
        .until("document.querySelector('.part-smart td .spark')", DRAWN)
        .unwrap();
    // By the row's header: a value without a history has no chart.
    let rows = text(
        &mut browser,
        "[...document.querySelectorAll('.smart tbody tr')].map((row) => [row.querySelector('th').textContent,
            row.querySelector('[role=img]')?.getAttribute('aria-label') ?? 'none'].join(' = ')).join('; ')",
    );
    assert_eq!(
        rows,
        "Temperature = none; \
         Reallocated Sector Ct (5) = Reallocated Sector Ct (5): from 160 to 208 in 7 days, lowest 160, highest 208; \
         Current Pending Sector (197) = Current Pending Sector (197): unchanged at 0 in 7 days"
    );
    // A value holds until the next: no slope from one to the next, and the line rises.
    let line = "document.querySelector('.smart .spark-line').getAttribute('d')";
    let points = text(
        &mut browser,
        &format!("{line}.match(/[A-Z]/g).join('') + ' ' + ({line}.match(/V([\\d.]+)/g).map((one) => Number(one.slice(1)))
            .every((y, index, all) => index === 0 || y < all[index - 1]))"),
    );
    assert_eq!(points, "MHVHVHVHV true");
    let drawn = number(
        &mut browser,
        "document.querySelector('.smart .spark-line').getBoundingClientRect().height",
    );
    assert!(drawn > 10.0, "{drawn}");
    let beside = text(
        &mut browser,
        "document.querySelector('.smart .spark-text').textContent",
    );
    assert!(beside.starts_with("160 – 208 since "), "{beside}");
    shoot(&mut browser, "smart-history", ".part-smart");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn activity_lists_the_events_of_the_last_week_newest_first() {
    need!(tool "chromium", tool "setpriv");
    let server = Server::start(3, 24, None);
    let mut browser = open(&server, "#/activity");
    browser
        .until(
            "document.querySelector('table[aria-label=\"Last week\"] tbody tr')",
            DRAWN,
        )
        .unwrap();
    let rows = "[...document.querySelectorAll('table[aria-label=\"Last week\"] tbody tr')]";
    let kinds = format!(
        "{rows}.map((row) => row.querySelector('[data-title=What]').textContent).join('; ')"
    );
    let newest_first = "Acknowledged; Snapshot created; Volume condition; Finding; Connected; Disconnected; Checked";
    assert_eq!(text(&mut browser, &kinds), newest_first);
    let first = text(&mut browser, &format!("{rows}[0].innerText"));
    for part in ["node-000", "acknowledged by ann: replaced on Friday"] {
        assert!(first.contains(part), "{part}: {first}");
    }
    let claim = text(&mut browser, &format!("{rows}[2].innerText"));
    assert!(claim.contains("bank/ledger-0-0"), "{claim}");
    // The drive of an event is a link.
    let link = text(
        &mut browser,
        &format!("{rows}[3].querySelector('a').getAttribute('href')"),
    );
    assert_eq!(link, "#/drive/node-000/wwn-0x5000c50000000000");
    let section = text(
        &mut browser,
        "document.getElementById(document.querySelector('table[aria-label=\"Last week\"]').closest('section').getAttribute('aria-labelledby')).textContent",
    );
    assert_eq!(section, "Last week");
    shoot(
        &mut browser,
        "last-week",
        "section[aria-labelledby=activity-events]",
    );
    // By keyboard: the header of a column sorts, and keeps the focus.
    let sort = "document.querySelector('table[aria-label=\"Last week\"] thead button')";
    browser.evaluate(&format!("{sort}.focus()")).unwrap();
    browser.press("Enter").unwrap();
    let reversed = newest_first.rsplit("; ").collect::<Vec<_>>().join("; ");
    assert_eq!(text(&mut browser, &kinds), reversed);
    let focus = text(
        &mut browser,
        &format!(
            "{sort} === document.activeElement ? {sort}.closest('th').getAttribute('aria-sort') : 'lost'"
        ),
    );
    assert_eq!(focus, "ascending");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn events_of_claims_that_the_reader_may_not_list_have_no_claim() {
    need!(tool "chromium", tool "setpriv");
    let server = Server::start(3, 24, Some("secret"));
    let mut browser = Browser::start().unwrap();
    browser.navigate(&server.url("")).unwrap();
    let claims = text(
        &mut browser,
        "fetch('/api/history', { headers: { Authorization: 'Bearer secret' } }).then((answer) => answer.json())
            .then(({ events }) => events.filter(({ volume }) => volume).map(({ claim }) => claim ?? 'hidden').join())",
    );
    assert_eq!(claims, "shop/db-0-0,hidden,hidden");
    let status = number(
        &mut browser,
        "fetch('/api/history').then((answer) => answer.status)",
    );
    assert_eq!(status, 401.0);
}

#[test]
fn a_check_that_runs_is_listed_before_the_last_one_of_the_same_volume() {
    need!(tool "chromium", tool "setpriv");
    let server = Server::start(3, 24, None);
    let mut browser = open(&server, "#/activity");
    let outcomes = "[...document.querySelectorAll('table[aria-label=\"Checks\"] td[data-title=\"Outcome\"]')].map((one) => one.innerText).join()";
    browser.until(&format!("{outcomes} !== ''"), DRAWN).unwrap();
    assert_eq!(text(&mut browser, outcomes), "running,clean");
}
