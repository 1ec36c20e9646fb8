//! The first load with ten thousand drives.

use std::time::Instant;

use drivebay_hwtests::{MIB, need};

use super::server::{DRAWN, LIVE, Server, number, open, report};

/// Nodes with 24 drives each.
const NODES: usize = 417;
/// Elements per drive, with everything else of the page.
const MOST_ELEMENTS: f64 = 1.6;
/// Most memory of the page's JavaScript.
const MOST_HEAP: f64 = 96.0;

#[test]
fn ten_thousand_drives_are_drawn_with_one_element_each() {
    need!(tool "chromium", tool "setpriv");
    let server = Server::start(NODES, 24, None);
    let drives = (NODES * 24) as f64;
    let small = Server::start(1, 1, None);
    let mut browser = open(&small, "");
    let began = Instant::now();
    browser.navigate(&server.url("")).unwrap();
    browser
        .until(
            &format!("document.querySelectorAll('.tile').length === {drives}"),
            DRAWN,
        )
        .unwrap();
    let drawn = began.elapsed();
    browser.until(LIVE, DRAWN).unwrap();
    let elements = number(&mut browser, "document.querySelectorAll('*').length");
    let heap = browser.metric("JSHeapUsedSize").unwrap() / MIB as f64;
    let bytes = number(
        &mut browser,
        "performance.getEntriesByType('resource').find(({ name }) => name.endsWith('api/fleet')).decodedBodySize",
    );
    let search = number(
        &mut browser,
        "(async () => {
            const field = document.getElementById('search');
            const times = [];
            for (const query of ['n', 'no', 'node-1', 'node-12', 'za012005', '']) {
                const at = performance.now();
                field.value = query;
                field.dispatchEvent(new Event('input'));
                await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
                times.push(performance.now() - at);
            }
            return Math.max(...times);
        })()",
    );
    report(format!(
        "{drives} drives: drawn after {drawn:.1?}, {elements} elements, {heap:.0} MiB of heap, {:.1} MiB fetched, a search takes {search:.0} ms at most",
        bytes / MIB as f64
    ));
    assert!(elements < drives * MOST_ELEMENTS, "{elements} elements");
    assert!(heap < MOST_HEAP, "{heap} MiB");
}
