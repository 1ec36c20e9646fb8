//! Names that are markup, on every view: they are shown as text, and nothing of them runs.

use drivebay_hwtests::need;

use super::server::{DRAWN, LIVE, Server, number, open, text};

const MARKUP: &str = "<img src=x onerror=alert(1)>";

#[test]
fn markup_in_names_is_shown_as_text_and_does_nothing() {
    need!(tool "chromium", tool "setpriv");
    let server = Server::start(3, 24, None);
    let mut browser = open(&server, "");
    for (fragment, ready) in [
        ("#/", ".rack"),
        (
            "#/drive/node-001/wwn-0x5000c50000010001",
            ".part-volumes tbody tr",
        ),
        ("#/volumes", ".table tbody tr"),
        ("#/activity", ".panel tbody tr"),
    ] {
        browser.navigate(&server.url(fragment)).unwrap();
        browser
            .until(&format!("document.querySelector({ready:?})"), DRAWN)
            .unwrap();
        match fragment {
            "#/" => {
                browser.until(LIVE, DRAWN).unwrap();
                browser.press("/").unwrap();
                browser.write("onerror").unwrap();
                browser
                    .until("document.querySelectorAll('.tile.hit').length === 1", DRAWN)
                    .unwrap();
                browser.press("Enter").unwrap();
                browser
                    .until("document.querySelector('.tip:not([hidden])')", DRAWN)
                    .unwrap();
            }
            "#/volumes" => {
                browser.press("/").unwrap();
                browser.write("onerror").unwrap();
            }
            _ => {}
        }
        let shown = format!("document.querySelector('main').innerText.includes({MARKUP:?})");
        browser.until(&shown, DRAWN).unwrap();
        if fragment == "#/activity" {
            // The name of a moved and of an erased volume, the reason of a move and its target drive, the result of a check, and an event.
            let cells = format!(
                "['Moves Volume', 'Moves State', 'Moves To', 'Erases Volume', 'Checks Details', 'Last week Details'].filter((one) => {{
                    const cut = one.lastIndexOf(' ');
                    const cells = document.querySelectorAll(`table[aria-label=\"${{one.slice(0, cut)}}\"] td[data-title=\"${{one.slice(cut + 1)}}\"]`);
                    return ![...cells].some((cell) => cell.innerText.includes({MARKUP:?}));
                }}).join()"
            );
            assert_eq!(text(&mut browser, &cells), "", "without the hostile text");
        }
        let elements = number(
            &mut browser,
            "document.querySelectorAll('img:not(.brand img), body script, iframe, svg[onload], [onerror], [onclick]').length",
        );
        assert_eq!(elements, 0.0, "{fragment}");
        let hidden = text(
            &mut browser,
            "document.querySelector('main').textContent.match(/[\\u202a-\\u202e\\u2066-\\u2069]/)?.[0] ?? ''",
        );
        assert_eq!(hidden, "", "{fragment}: a character reorders what follows");
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn a_hostile_address_shows_that_there_is_no_such_drive() {
    need!(tool "chromium", tool "setpriv");
    let server = Server::start(1, 4, None);
    let fragment = "#/drive/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E/%22%3E%3Cscript%3Ealert(2)%3C%2Fscript%3E";
    let mut browser = open(&server, fragment);
    browser
        .until("document.querySelector('[role=alert]:not([hidden])')?.textContent.includes('does not know this drive')", DRAWN)
        .unwrap();
    let elements = number(
        &mut browser,
        "document.querySelectorAll('img:not(.brand img), body script').length",
    );
    assert_eq!(elements, 0.0);
    let noted = browser.complaints();
    assert!(noted.iter().all(|one| one.contains("404")), "{noted:?}");
}

#[test]
fn nothing_is_loaded_from_elsewhere_or_refused_by_the_content_policy() {
    need!(tool "chromium", tool "setpriv");
    let server = Server::start(3, 24, None);
    let mut browser = open(&server, "#/drive/node-000/wwn-0x5000c50000000000");
    browser
        .until("document.querySelector('.part-smart td')", DRAWN)
        .unwrap();
    let others = text(
        &mut browser,
        "performance.getEntriesByType('resource').map(({ name }) => name).filter((name) => !name.startsWith(location.origin)).join()",
    );
    assert_eq!(others, "");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}
