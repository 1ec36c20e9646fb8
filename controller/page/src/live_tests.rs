use std::sync::atomic::Ordering;

use serde_json::Value;

use super::*;
use crate::testing::{TestSource, drive};

fn start(source: &Arc<TestSource>) -> Arc<Live> {
    Live::start(source.clone(), CancellationToken::new())
}

async fn change(of: &mut Subscription) -> Arc<Change> {
    match of.next().await {
        Some(Event::Change(change)) => change,
        other => panic!("{other:?}"),
    }
}

fn bad(id: &str) -> Drive {
    let mut drive = drive("n1", id, &["shop/db", "bank/ledger"]);
    drive.facts.verdict = "BAD".into();
    drive
}

fn ids(change: &Change) -> Vec<&str> {
    change
        .drives
        .iter()
        .map(|drive| drive.facts.id.as_str())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_change_has_only_the_drives_that_differ() {
    let source = Arc::new(TestSource::default());
    source.put("n1", vec![drive("n1", "a", &[]), drive("n1", "b", &[])]);
    source.put("n2", vec![drive("n2", "c", &[])]);
    let live = start(&source);
    let fleet = live.fleet().await.unwrap();
    let mut stream = live.subscribe(Some(fleet.revision));
    source.put("n1", vec![drive("n1", "a", &[]), bad("b")]);
    let first = change(&mut stream).await;
    assert_eq!(ids(&first), ["b"]);
    assert!(first.nodes.is_empty() && first.removed.is_empty());
    assert_eq!(first.revision, fleet.revision + 1);
    source.put("n1", vec![bad("b")]);
    let second = change(&mut stream).await;
    assert!(second.drives.is_empty());
    assert_eq!(second.removed, [("n1".to_owned(), "a".to_owned())]);
    assert_eq!(live.last().revision, second.revision);
}

#[tokio::test(start_paused = true)]
async fn changes_within_half_a_second_are_sent_as_one() {
    let source = Arc::new(TestSource::default());
    source.put("n1", vec![drive("n1", "a", &[])]);
    let live = start(&source);
    let fleet = live.fleet().await.unwrap();
    let mut stream = live.subscribe(Some(fleet.revision));
    let began = Instant::now();
    for round in 0..20 {
        for _ in 0..10 {
            let mut now = drive("n1", "a", &[]);
            now.volumes = round + 1;
            source.put("n1", vec![now]);
        }
        change(&mut stream).await;
    }
    assert!(began.elapsed() >= 19 * PERIOD, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_reconnects_gets_the_changes_since_its_revision() {
    let source = Arc::new(TestSource::default());
    source.put("n1", vec![drive("n1", "a", &[])]);
    let live = start(&source);
    let fleet = live.fleet().await.unwrap();
    let mut stream = live.subscribe(Some(fleet.revision));
    source.put("n1", vec![bad("a")]);
    let missed = change(&mut stream).await;
    drop(stream);
    let mut again = live.subscribe(Some(fleet.revision));
    assert_eq!(change(&mut again).await.revision, missed.revision);
    source.put("n1", vec![drive("n1", "a", &[])]);
    assert_eq!(change(&mut again).await.revision, missed.revision + 1);
}

#[tokio::test(start_paused = true)]
async fn a_stream_with_an_unknown_revision_gets_a_reset() {
    let source = Arc::new(TestSource::default());
    source.put("n1", vec![drive("n1", "a", &[])]);
    let live = start(&source);
    let revision = live.fleet().await.unwrap().revision;
    for since in [0, 1, revision - 1, revision + 1, u64::MAX] {
        let mut stream = live.subscribe(Some(since));
        assert!(matches!(stream.next().await, Some(Event::Reset)), "{since}");
    }
}

#[tokio::test(start_paused = true)]
async fn removal_of_a_node_resets_streams() {
    let source = Arc::new(TestSource::default());
    source.put("n1", vec![drive("n1", "a", &[])]);
    source.put("n2", vec![drive("n2", "b", &[])]);
    let live = start(&source);
    let fleet = live.fleet().await.unwrap();
    let mut stream = live.subscribe(Some(fleet.revision));
    source.remove("n2");
    assert!(matches!(stream.next().await, Some(Event::Reset)));
    let mut late = live.subscribe(Some(fleet.revision));
    assert!(matches!(late.next().await, Some(Event::Reset)));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_falls_behind_gets_a_reset() {
    let source = Arc::new(TestSource::default());
    source.put("n1", vec![drive("n1", "a", &[])]);
    let live = start(&source);
    let fleet = live.fleet().await.unwrap();
    let mut slow = live.subscribe(Some(fleet.revision));
    let mut other = live.subscribe(Some(fleet.revision));
    for round in 0..=BEHIND as u64 + 1 {
        let mut now = drive("n1", "a", &[]);
        now.volumes = round + 1;
        source.put("n1", vec![now]);
        change(&mut other).await;
    }
    assert!(matches!(slow.next().await, Some(Event::Reset)));
}

#[tokio::test(start_paused = true)]
async fn nodes_are_not_read_while_no_page_is_open() {
    let source = Arc::new(TestSource::default());
    source.put("n1", vec![drive("n1", "a", &[])]);
    let live = start(&source);
    live.fleet().await.unwrap();
    let before = source.reads.load(Ordering::Relaxed);
    for _ in 0..20 {
        source.put("n1", vec![bad("a")]);
        tokio::time::sleep(PERIOD).await;
    }
    assert_eq!(source.reads.load(Ordering::Relaxed), before);
    let fleet = live.fleet().await.unwrap();
    let drives = &fleet.nodes["n1"].drives;
    assert_eq!(drives[0].facts.verdict, "BAD");
}

#[tokio::test(start_paused = true)]
async fn fleet_and_changes_have_only_claims_that_the_reader_may_list() {
    let source = Arc::new(TestSource::default());
    source.put("n1", vec![bad("a")]);
    let live = start(&source);
    let fleet = live.fleet().await.unwrap();
    let names: Vec<&str> = fleet.namespaces.iter().map(|one| &**one).collect();
    assert_eq!(names, ["bank", "shop"]);
    let some = Visibility::Namespaces(Arc::new(["shop".to_owned()].into()));
    let mut stream = live.subscribe(Some(fleet.revision));
    source.put("n1", vec![bad("a"), bad("b")]);
    let change = change(&mut stream).await;
    for text in [fleet.json(&some), change.event(&some)] {
        let text = String::from_utf8(text.to_vec()).unwrap();
        assert!(
            text.contains("shop/db") && !text.contains("ledger"),
            "{text}"
        );
    }
    for text in [fleet.json(&Visibility::All), change.event(&Visibility::All)] {
        let text = String::from_utf8(text.to_vec()).unwrap();
        assert!(
            text.contains("shop/db") && text.contains("bank/ledger"),
            "{text}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn hostile_names_cannot_break_out_of_json_or_events() {
    let hostile = "x\"}]}\n\ndata: {}\r\n</script><img src=x onerror=alert(1)>\u{2028}";
    let source = Arc::new(TestSource::default());
    source.put("n1", Vec::new());
    let live = start(&source);
    let fleet = live.fleet().await.unwrap();
    let mut stream = live.subscribe(Some(fleet.revision));
    let mut named = drive("n1", hostile, &[&format!("shop/{hostile}")]);
    named.facts.model = Some(hostile.into());
    source.put("n1", vec![named]);
    let event = change(&mut stream).await.event(&Visibility::All);
    let event = String::from_utf8(event.to_vec()).unwrap();
    let lines: Vec<&str> = event.split(['\n', '\r']).collect();
    assert_eq!(lines.len(), 4, "{event}");
    assert_eq!((lines[0], lines[2], lines[3]), ("event: change", "", ""));
    let data: Value = serde_json::from_str(lines[1].strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(data["drives"][0]["id"], hostile);
    assert_eq!(data["drives"][0]["model"], hostile);
    assert_eq!(data["drives"][0]["claims"][0], format!("shop/{hostile}"));
}

#[tokio::test(start_paused = true)]
async fn streams_and_requests_end_when_the_fleet_is_not_read_any_more() {
    for (by_panic, with_stream) in [(false, false), (false, true), (true, false), (true, true)] {
        let source = Arc::new(TestSource::default());
        source.put("n1", vec![drive("n1", "a", &[])]);
        let stop = CancellationToken::new();
        let live = Live::start(source.clone(), stop.clone());
        let fleet = live.fleet().await.unwrap();
        let stream = with_stream.then(|| live.subscribe(Some(fleet.revision)));
        // The fleet is too old for the next request, which waits for a reading.
        tokio::time::sleep(2 * PERIOD).await;
        source.is_broken.store(by_panic, Ordering::Relaxed);
        if !by_panic {
            stop.cancel();
        }
        let ended = async {
            if let Some(mut stream) = stream {
                assert!(stream.next().await.is_none());
            }
            // A reading that began before the stop may still answer.
            while live.fleet().await.is_some() {
                tokio::time::sleep(PERIOD).await;
            }
        };
        let ended = tokio::time::timeout(10 * PERIOD, ended).await;
        assert!(ended.is_ok(), "panic: {by_panic}, stream: {with_stream}");
    }
}
