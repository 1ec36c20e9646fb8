//! What is kept of the last week: SMART values of a drive.

use std::{env, path::PathBuf};

use drivebay_hwtests::{browser::Browser, need};

use super::server::{DRAWN, Server, number, open, text};

/// Saves a screenshot in both themes in the directory DRIVEBAY_PAGE_SHOTS, if it is set. `of`: the selector of what is shown.
fn shoot(browser: &mut Browser, name: &str, of: &str) {
    let Some(dir) = env::var_os("DRIVEBAY_PAGE_SHOTS").map(PathBuf::from) else {
        return;
    };
    for theme in ["light", "dark"] {
        browser.emulate("prefers-color-scheme", theme).unwrap();
        let show = format!("document.querySelector({of:?}).scrollIntoView()");
        browser.evaluate(&show).unwrap();
        browser
            .screenshot(&dir.join(format!("{name}-{theme}.png")))
            .unwrap();
    }
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
