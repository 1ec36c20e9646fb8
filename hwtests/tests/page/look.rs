//! Both themes, contrast, and widths from 400 to 1600 pixels.

use std::{env, path::PathBuf};

use drivebay_hwtests::{browser::Browser, need};

use super::server::{DRAWN, Server, number, open, text};

const VIEWS: [(&str, &str, &str); 5] = [
    ("fleet", "#/", ".tile"),
    (
        "drive",
        "#/drive/node-000/wwn-0x5000c50000000000",
        ".part-smart td",
    ),
    (
        "warning",
        "#/drive/node-005/wwn-0x5000c50000050004",
        ".part-findings .finding.warning",
    ),
    ("volumes", "#/volumes", ".table tbody tr"),
    ("activity", "#/activity", "time[datetime]"),
];

/// Texts whose contrast with what is below them is less than WCAG's AA asks for, at most ten of them. A tile is checked against both of its
/// colours: its letter is drawn over either.
const FAINT: &str = "(() => {
    const parse = (colour) => { const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number); return { r, g, b, a }; };
    const hex = (colour) => { const n = parseInt(colour.trim().slice(1), 16); return { r: n >> 16, g: n >> 8 & 255, b: n & 255, a: 1 }; };
    const light = ({ r, g, b }) => [r, g, b].map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
        .reduce((sum, v, index) => sum + v * [0.2126, 0.7152, 0.0722][index], 0);
    const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
    const below = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const colour = parse(getComputedStyle(at).backgroundColor);
            if (colour.a === 1) return colour;
        }
        return { r: 255, g: 255, b: 255, a: 1 };
    };
    const faint = [];
    for (const element of document.querySelectorAll('body *')) {
        if (![...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim()) || !element.checkVisibility() || element.closest('.unseen, .skip')) continue;
        const style = getComputedStyle(element);
        const grounds = element.matches('.tile') ? ['--free', '--fill'].map((name) => style.getPropertyValue(name)).filter(Boolean).map(hex) : [below(element)];
        const ink = element instanceof SVGElement ? style.fill : style.color;
        for (const ground of grounds) {
            const ratio = contrast(parse(ink), ground);
            const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
            if (ratio < (large ? 3 : 4.5)) faint.push(`${element.tagName}.${element.getAttribute('class')} ${ratio.toFixed(2)} ${element.textContent.slice(0, 20)}`);
        }
    }
    return faint.slice(0, 10).join('; ');
})()";

fn show(browser: &mut Browser, server: &Server, fragment: &str, ready: &str) {
    browser.navigate(&server.url(fragment)).unwrap();
    let ready = format!(
        "document.querySelector({ready:?}) && document.getElementById('link-text').textContent === 'Live'"
    );
    browser.until(&ready, DRAWN).unwrap();
}

#[test]
fn texts_have_the_contrast_of_wcag_aa_in_both_themes() {
    need!(tool "chromium", tool "setpriv");
    let server = Server::start(50, 24, None);
    let mut browser = open(&server, "");
    let mut grounds = Vec::new();
    for theme in ["light", "dark"] {
        browser.emulate("prefers-color-scheme", theme).unwrap();
        for (name, fragment, ready) in VIEWS {
            show(&mut browser, &server, fragment, ready);
            assert_eq!(text(&mut browser, FAINT), "", "{name}, {theme}");
        }
        grounds.push(text(
            &mut browser,
            "getComputedStyle(document.body).backgroundColor",
        ));
    }
    assert_ne!(
        grounds.first(),
        grounds.last(),
        "the system's preference is not followed"
    );
}

#[test]
fn the_switch_overrides_the_system_and_lasts() {
    need!(tool "chromium", tool "setpriv");
    let server = Server::start(1, 4, None);
    let mut browser = open(&server, "");
    browser.emulate("prefers-color-scheme", "light").unwrap();
    let ground = "getComputedStyle(document.body).backgroundColor";
    let light = text(&mut browser, ground);
    let press = "document.getElementById('theme').click()";
    browser.evaluate(press).unwrap();
    assert_eq!(text(&mut browser, ground), light, "light");
    browser.evaluate(press).unwrap();
    let dark = text(&mut browser, ground);
    assert_ne!(dark, light);
    browser.call("Page.reload", serde_json::json!({})).unwrap();
    browser
        .until(&format!("{ground} === {dark:?}"), DRAWN)
        .unwrap();
    browser
        .until(
            "document.getElementById('theme-text')?.textContent === 'Dark'",
            DRAWN,
        )
        .unwrap();
    browser.evaluate(press).unwrap();
    assert_eq!(text(&mut browser, ground), light, "the system's again");
}

#[test]
fn no_view_scrolls_sideways_from_400_to_1600_pixels() {
    need!(tool "chromium", tool "setpriv");
    let server = Server::start(50, 24, None);
    let mut browser = open(&server, "");
    let shots = env::var_os("DRIVEBAY_PAGE_SHOTS").map(PathBuf::from);
    for width in [400, 640, 900, 1080, 1600] {
        browser.set_viewport(width, 1000).unwrap();
        for (name, fragment, ready) in VIEWS {
            show(&mut browser, &server, fragment, ready);
            let wide = number(&mut browser, "document.documentElement.scrollWidth");
            assert!(wide <= f64::from(width), "{name}: {wide} at {width}");
            // Clipped rather than scrolled: what ends beyond the edge cannot be read.
            let beyond = text(
                &mut browser,
                "[...document.querySelectorAll('main a, main button, main input, main td, main th, main h1, main h2')].filter((one) => one.checkVisibility()
                    && one.getBoundingClientRect().right > innerWidth + 1 && !one.closest('.tip, .unseen, thead')).map((one) => one.outerHTML.slice(0, 80)).slice(0, 3).join()",
            );
            assert_eq!(beyond, "", "{name} at {width}");
            if let Some(dir) = &shots {
                browser
                    .screenshot(&dir.join(format!("{name}-{width}.png")))
                    .unwrap();
            }
        }
    }
}
