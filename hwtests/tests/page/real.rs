//! The page of the real controller, with simulated nodes that have real sessions to it.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use drivebay_hwtests::{
    browser::Browser,
    fleet::{
        Command, Controller, Fleet, FleetOptions, Plan,
        command::{Nodes, Percent},
        controller::Listen,
    },
    need,
};

use super::server::{DRAWN, LIVE, number, report, text};

const NODES: usize = 50;
const DRIVES: usize = 24;
/// Time limit for all sessions, on a busy machine.
const CONNECTED: Duration = Duration::from_secs(120);

/// Starts a controller with a page, and nodes with drives and volumes; returns both with the page's address.
async fn start(dir: &Path) -> (Controller, Fleet, String) {
    let page = Listen::free_port().unwrap().to_string();
    let state = dir.join("state");
    let more = [
        "--page",
        page.as_str(),
        "--state-dir",
        state.to_str().unwrap(),
    ];
    let controller = Controller::start(dir, None, &more).await.unwrap();
    let mut fleet = Fleet::start(&FleetOptions {
        plan: Plan {
            nodes: NODES,
            volumes: 4,
            drives: DRIVES,
            ..Plan::default()
        },
        controllers: vec![controller.address()],
        certs: None,
        journal: None,
        change: Percent(0.0),
    })
    .await
    .unwrap();
    fleet.until_connected(NODES, CONNECTED).await;
    controller.until_connected(NODES, CONNECTED).await;
    (controller, fleet, format!("http://{page}/"))
}

#[tokio::test(flavor = "multi_thread")]
async fn real_controller_shows_1200_drives_and_a_node_that_is_lost() {
    need!(tool "chromium", tool "setpriv");
    let dir = tempfile::tempdir().unwrap();
    let (_controller, mut fleet, url) = start(dir.path()).await;
    let mut browser = Browser::start().unwrap();
    browser.set_viewport(1600, 1000).unwrap();
    let began = Instant::now();
    browser.navigate(&url).unwrap();
    browser
        .until("document.querySelectorAll('.tile').length === 1200", DRAWN)
        .unwrap();
    report(format!(
        "1200 drives of a real controller: drawn after {:.1?}",
        began.elapsed()
    ));
    browser.until(LIVE, DRAWN).unwrap();
    let good = number(
        &mut browser,
        "document.querySelectorAll('.tile.good').length",
    );
    assert_eq!(good, 1200.0);

    // A serial number of the simulated drives: one of each node.
    browser.press("/").unwrap();
    browser.write("s64hne0r000005").unwrap();
    browser
        .until(
            "document.querySelector('.result').textContent === '50 drives on 50 nodes'",
            DRAWN,
        )
        .unwrap();
    browser.press("Enter").unwrap();
    browser.press("Enter").unwrap();
    browser
        .until("document.querySelector('.part-facts dd')", DRAWN)
        .unwrap();
    let facts = text(
        &mut browser,
        "document.querySelector('.part-facts').innerText",
    );
    assert!(facts.contains("S64HNE0R000005"), "{facts}");
    browser.evaluate("location.hash = '#/volumes'").unwrap();
    browser
        .until(
            "document.querySelector('.view-head .result').textContent.startsWith('200 volumes')",
            DRAWN,
        )
        .unwrap();
    browser.evaluate("location.hash = '#/'").unwrap();
    browser.press("/").unwrap();
    browser.press("Escape").unwrap();

    // The verdict of the node's first drive goes through its agent's session, as a real one does.
    let node = fleet.plan().node(3);
    let turn = Command::Suspect(Nodes::Range(node.clone(), node));
    let turned = Instant::now();
    fleet.request(&turn).await.unwrap();
    browser
        .until(
            "document.querySelectorAll('.tile.suspect').length === 1",
            DRAWN,
        )
        .unwrap();
    report(format!(
        "a drive that turns SUSPECT is shown after {:.1?}",
        turned.elapsed()
    ));

    let node = fleet.plan().node(7);
    let stop = Command::Stop(Nodes::Range(node.clone(), node));
    fleet.request(&stop).await.unwrap();
    let stopped = Instant::now();
    browser
        .until(
            "document.querySelector('.nodes-away').textContent === '1 disconnected'
                && document.querySelectorAll('.rack.away .tile').length === 24",
            DRAWN,
        )
        .unwrap();
    report(format!(
        "a lost node is shown after {:.1?}",
        stopped.elapsed()
    ));

    // Sessions since the controller started: each node has connected, and one has disconnected.
    browser.evaluate("location.hash = '#/activity'").unwrap();
    let lost = format!(
        "[...document.querySelectorAll('table[aria-label=\"Last week\"] tbody tr')].some((row) =>
            row.querySelector('[data-title=What]').textContent === 'Disconnected' && row.querySelector('[data-title=Node]').textContent === {:?})",
        fleet.plan().node(7)
    );
    browser.until(&lost, DRAWN).unwrap();
    let connected = number(
        &mut browser,
        "fetch('/api/history').then((answer) => answer.json()).then(({ events }) =>
            new Set(events.filter(({ what }) => what === 'connected').map(({ node }) => node)).size)",
    );
    assert_eq!(connected, NODES as f64);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}
