//! Tokens: asked for, kept in memory, in no address.

use drivebay_hwtests::{browser::Browser, need};

use super::server::{DRAWN, LIVE, Server, number, text};

const TOKEN: &str = "secret";

fn enter(browser: &mut Browser, token: &str) {
    browser
        .until("document.getElementById('token')", DRAWN)
        .unwrap();
    browser
        .evaluate("document.getElementById('token').focus()")
        .unwrap();
    browser.write(token).unwrap();
    browser.press("Enter").unwrap();
}

#[test]
fn a_token_is_required_refused_or_taken_and_is_in_no_address() {
    need!(tool "chromium", tool "setpriv");
    let server = Server::start(3, 24, Some(TOKEN));
    let mut browser = Browser::start().unwrap();
    browser.navigate(&server.url("")).unwrap();
    browser
        .until("document.getElementById('token')", DRAWN)
        .unwrap();
    let help = text(&mut browser, "document.querySelector('.sign-in').innerText");
    assert!(
        help.contains("create token page-reader --audience drivebay"),
        "{help}"
    );
    assert_eq!(
        number(&mut browser, "document.querySelectorAll('.tile').length"),
        0.0
    );
    enter(&mut browser, "wrong");
    browser
        .until(
            "document.getElementById('token-error')?.textContent.includes('refused')",
            DRAWN,
        )
        .unwrap();
    enter(&mut browser, TOKEN);
    browser.until(LIVE, DRAWN).unwrap();
    let kept = text(
        &mut browser,
        "[location.href, document.cookie, JSON.stringify(localStorage), JSON.stringify(sessionStorage),
            ...performance.getEntriesByType('resource').map(({ name }) => name)].join(' ')",
    );
    assert!(!kept.contains(TOKEN), "{kept}");
    // Memory alone: a reload asks again.
    browser.call("Page.reload", serde_json::json!({})).unwrap();
    enter(&mut browser, TOKEN);
    browser.until(LIVE, DRAWN).unwrap();
    browser
        .evaluate("document.getElementById('forget-token').click()")
        .unwrap();
    browser
        .until("document.getElementById('token')", DRAWN)
        .unwrap();
    assert_eq!(
        number(&mut browser, "document.querySelectorAll('.tile').length"),
        0.0
    );
}

#[test]
fn a_token_outlives_a_reload_only_if_the_reader_ticks_it() {
    need!(tool "chromium", tool "setpriv");
    let server = Server::start(1, 4, Some(TOKEN));
    let mut browser = Browser::start().unwrap();
    browser.navigate(&server.url("")).unwrap();
    browser
        .until("document.getElementById('token-keep')", DRAWN)
        .unwrap();
    browser
        .evaluate("document.getElementById('token-keep').click()")
        .unwrap();
    enter(&mut browser, TOKEN);
    browser.until(LIVE, DRAWN).unwrap();
    browser.call("Page.reload", serde_json::json!({})).unwrap();
    browser.until(LIVE, DRAWN).unwrap();
}
