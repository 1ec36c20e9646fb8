use std::sync::atomic::Ordering;

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UnixStream},
    time::timeout,
};

use super::*;
use crate::{
    access::{Access, Tokens},
    http::{REQUESTS, STREAMS},
    testing::{TestReview, TestSource, drive},
};

/// A page that is served over loopback.
struct Served {
    address: SocketAddr,
    source: Arc<TestSource>,
    review: Arc<TestReview>,
    stop: CancellationToken,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

struct Answered {
    status: u16,
    head: String,
    body: String,
}

impl Answered {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

async fn serve(needs_token: bool) -> Served {
    let (source, review) = (
        Arc::new(TestSource::default()),
        Arc::new(TestReview::default()),
    );
    source.put("n1", vec![drive("n1", "d", &["bank/ledger", "shop/db"])]);
    review.reader("all", &["*"]);
    review.reader("shop-only", &["shop"]);
    review
        .tokens
        .lock()
        .unwrap()
        .insert("nobody".into(), Default::default());
    let access = match needs_token {
        true => Access::Tokens(Arc::new(Tokens::new(review.clone()))),
        false => Access::Open,
    };
    let stop = CancellationToken::new();
    let page = Page::new(source.clone(), access, stop.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve_on(listener, page));
    Served {
        address,
        source,
        review,
        stop,
    }
}

impl Served {
    async fn open(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// Sends a request as it is and reads until the server closes the connection.
    async fn raw(&self, request: &str) -> Answered {
        let mut stream = self.open(request).await;
        let mut answer = Vec::new();
        let read = timeout(Duration::from_secs(20), stream.read_to_end(&mut answer));
        let _ = read.await.expect("the answer ends");
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        Answered {
            status: status.unwrap_or(0),
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    fn request(&self, method: &str, path: &str, more: &str) -> String {
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\n{more}\r\n",
            self.address
        )
    }

    async fn get(&self, path: &str, more: &str) -> Answered {
        self.raw(&self.request("GET", path, more)).await
    }

    async fn with_token(&self, path: &str, token: &str) -> Answered {
        self.get(path, &format!("Authorization: Bearer {token}\r\n"))
            .await
    }

    /// Begins a stream, and returns it with its status once the head has arrived.
    async fn stream(&self, path: &str, more: &str) -> (TcpStream, String) {
        let mut stream = self.open(&self.request("GET", path, more)).await;
        let text = read_until(&mut stream, "\r\n\r\n").await;
        let status = text.split(' ').nth(1).unwrap().to_owned();
        (stream, status)
    }
}

async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    let read = async {
        while !String::from_utf8_lossy(&text).contains(end) {
            let mut buffer = [0; 4096];
            let count = stream.read(&mut buffer).await.unwrap();
            assert!(count > 0, "ended: {}", String::from_utf8_lossy(&text));
            text.extend_from_slice(&buffer[..count]);
        }
    };
    timeout(Duration::from_secs(20), read)
        .await
        .expect("it arrives");
    String::from_utf8(text).unwrap()
}

const DATA: [&str; 6] = [
    "/api/fleet",
    "/api/drive?node=n1&id=d",
    "/api/volumes",
    "/api/activity",
    "/api/history",
    "/api/changes",
];

#[tokio::test]
async fn every_answer_has_the_headers_that_keep_a_browser_to_the_page() {
    let served = serve(true).await;
    for path in [
        "/",
        "/api/session",
        "/api/fleet",
        "/nothing",
        "/assets/index.html",
    ] {
        let head = served.get(path, "").await.head;
        for header in [
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n",
            "x-content-type-options: nosniff\r\n",
            "referrer-policy: no-referrer\r\n",
            "cross-origin-resource-policy: same-origin\r\n",
        ] {
            assert!(head.contains(header), "{path}: {head}");
        }
        let is_data = path.starts_with("/api/");
        assert_eq!(head.contains("cache-control: no-store"), is_data, "{path}");
    }
}

#[tokio::test]
async fn data_needs_a_token_and_the_page_itself_does_not() {
    let served = serve(true).await;
    let session = served.get("/api/session", "").await.json();
    assert_eq!(session["needsToken"], true);
    assert_eq!(session["host"], Value::Null);
    assert_eq!(served.get("/", "").await.status, 200);
    for path in DATA {
        assert_eq!(served.get(path, "").await.status, 401, "{path}");
        for (token, status) in [("unknown", 401), ("nobody", 403)] {
            let answer = served.with_token(path, token).await;
            assert_eq!(answer.status, status, "{path}");
            assert!(answer.json()["error"].is_string() && !answer.body.contains("ledger"));
        }
    }
    for scheme in ["Basic YTpi", "all", "Bearer", "Bearer all extra"] {
        let answer = served
            .get("/api/fleet", &format!("Authorization: {scheme}\r\n"))
            .await;
        assert_eq!(answer.status, 401, "{scheme}");
    }
    let twice = "Authorization: Bearer all\r\nAuthorization: Bearer nobody\r\n";
    assert_eq!(served.get("/api/fleet", twice).await.status, 401);
    // No token in a URL.
    assert_eq!(served.get("/api/fleet?token=all", "").await.status, 401);
    *served.review.is_down.lock().unwrap() = true;
    assert_eq!(
        served.with_token("/api/fleet", "shop-only").await.status,
        503
    );
}

#[tokio::test]
async fn claims_are_shown_only_of_namespaces_that_the_reader_may_list() {
    let served = serve(true).await;
    for path in &DATA[..3] {
        let all = served.with_token(path, "all").await;
        assert_eq!(all.status, 200, "{path}");
        assert!(
            all.body.contains("bank/ledger") && all.body.contains("shop/db"),
            "{path}"
        );
        let some = served.with_token(path, "shop-only").await;
        assert_eq!(some.status, 200, "{path}");
        assert!(
            !some.body.contains("ledger") && some.body.contains("shop/db"),
            "{path}: {}",
            some.body
        );
    }
    let volumes = served.with_token("/api/volumes", "shop-only").await.json();
    assert_eq!(volumes["volumes"][0]["claim"], Value::Null);
}

#[tokio::test]
async fn another_name_or_another_site_gets_nothing() {
    let served = serve(false).await;
    let port = served.address.port();
    for (headers, status) in [
        ("Host: evil.example".to_owned(), 421),
        (format!("Host: evil.example:{port}"), 421),
        (format!("Host: localhost:{}", port.wrapping_add(1)), 421),
        (format!("Host: localhost:{port}\r\nHost: evil.example"), 421),
        (
            format!("Host: localhost:{port}\r\nOrigin: http://evil.example"),
            403,
        ),
        (format!("Host: localhost:{port}\r\nOrigin: null"), 403),
        (
            format!("Host: localhost:{port}\r\nSec-Fetch-Site: cross-site"),
            403,
        ),
        (
            format!("Host: localhost:{port}\r\nOrigin: http://localhost:{port}"),
            200,
        ),
        (format!("Host: 127.0.0.1:{port}"), 200),
    ] {
        let answer = served
            .raw(&format!("GET /api/fleet HTTP/1.1\r\n{headers}\r\n\r\n"))
            .await;
        assert_eq!(answer.status, status, "{headers}");
        assert_eq!(answer.body.contains("ledger"), status == 200, "{headers}");
    }
    let absolute =
        format!("GET http://evil.example/api/fleet HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n");
    assert_eq!(served.raw(&absolute).await.status, 421);
    assert_eq!(
        served.raw("GET /api/fleet HTTP/1.0\r\n\r\n").await.status,
        421
    );
}

#[tokio::test]
async fn only_get_and_head_are_answered() {
    let served = serve(false).await;
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"] {
        for path in ["/", "/api/fleet"] {
            let answer = served.raw(&served.request(method, path, "")).await;
            assert_eq!(answer.status, 405, "{method} {path}");
            assert!(answer.head.contains("allow: GET, HEAD"), "{}", answer.head);
        }
    }
    for path in ["/", "/api/fleet", "/api/changes"] {
        let answer = served.raw(&served.request("HEAD", path, "")).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, ""), "{path}");
    }
}

#[tokio::test]
async fn a_header_that_is_too_large_or_never_ends_closes_the_connection() {
    let served = serve(false).await;
    let large = format!("X: {}\r\n", "x".repeat(HEADER_BYTES));
    assert_eq!(served.get("/api/fleet", &large).await.status, 431);
    let began = std::time::Instant::now();
    let endless = format!("GET /api/fleet HTTP/1.1\r\nHost: {}\r\n", served.address);
    let answer = served.raw(&endless).await;
    assert_ne!(answer.status, 200);
    assert!(began.elapsed() >= HEADER && began.elapsed() < 3 * HEADER);
}

#[tokio::test]
async fn a_drive_is_found_by_node_and_id_and_malformed_queries_are_refused() {
    let served = serve(false).await;
    let drive = served.get("/api/drive?node=n1&id=d", "").await.json();
    assert_eq!((&drive["id"], &drive["node"]), (&"d".into(), &"n1".into()));
    assert_eq!(drive["volumes"].as_array().unwrap().len(), 2);
    let long = format!("/api/drive?node=n1&id={}", "x".repeat(1000));
    for (path, status) in [
        ("/api/drive?node=n1&id=none", 404),
        ("/api/drive?node=n2&id=d", 404),
        ("/api/drive?node=n1", 400),
        ("/api/drive?node=n1&id=", 400),
        ("/api/drive?node=n1&id=%ff", 400),
        ("/api/drive?node=n1&id=d&id=d", 400),
        (long.as_str(), 400),
        ("/api/", 404),
        ("/api/fleet/", 404),
        ("/metrics", 404),
    ] {
        let answer = served.get(path, "").await;
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.json()["error"].is_string(), "{path}");
    }
}

#[tokio::test]
async fn a_change_arrives_within_two_seconds() {
    let served = serve(false).await;
    let revision = served.get("/api/fleet", "").await.json()["revision"].clone();
    let (mut stream, status) = served
        .stream(&format!("/api/changes?since={revision}"), "")
        .await;
    assert_eq!(status, "200");
    let began = std::time::Instant::now();
    let mut bad = drive("n1", "d", &["shop/db"]);
    bad.facts.verdict = "BAD".into();
    served.source.put("n1", vec![bad]);
    let event = read_until(&mut stream, "\"verdict\":\"BAD\"").await;
    assert!(
        event.contains("event: change\ndata: {\"revision\":"),
        "{event}"
    );
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn streams_end_and_requests_for_claims_get_503_when_the_fleet_is_not_read_any_more() {
    let served = serve(false).await;
    let (mut stream, status) = served.stream("/api/changes", "").await;
    assert_eq!(status, "200");
    served.source.is_broken.store(true, Ordering::Relaxed);
    let mut rest = Vec::new();
    let end = stream.read_to_end(&mut rest);
    timeout(Duration::from_secs(20), end)
        .await
        .unwrap()
        .unwrap();
    for path in &DATA[..3] {
        let answer = served.get(path, "").await;
        assert_eq!(answer.status, 503, "{path}: {}", answer.body);
        assert!(!answer.body.contains("ledger"), "{path}");
    }
    assert_eq!(served.get("/api/changes", "").await.status, 503);
    assert_eq!(served.get("/api/session", "").await.status, 200);
}

#[tokio::test]
async fn a_stream_shows_no_claims_that_its_reader_may_not_list() {
    let served = serve(true).await;
    let token = "Authorization: Bearer shop-only\r\n";
    let (mut stream, status) = served.stream("/api/changes", token).await;
    assert_eq!(status, "200");
    let mut bad = drive("n1", "d", &["bank/ledger", "shop/db"]);
    bad.facts.verdict = "BAD".into();
    served.source.put("n1", vec![bad]);
    let event = read_until(&mut stream, "}\n\n").await;
    assert!(
        event.contains("shop/db") && !event.contains("ledger"),
        "{event}"
    );
}

#[tokio::test]
async fn more_streams_than_the_bound_are_refused_and_requests_are_still_answered() {
    let served = serve(false).await;
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        let (stream, status) = served.stream("/api/changes", "").await;
        assert_eq!(status, "200");
        streams.push(stream);
    }
    let refused = served.get("/api/changes", "").await;
    assert_eq!(refused.status, 503);
    assert!(refused.head.contains("retry-after: "), "{}", refused.head);
    assert_eq!(served.get("/api/fleet", "").await.status, 200);
    drop(streams.pop());
    // The server notices the end by itself.
    let again = async {
        while served.stream("/api/changes", "").await.1 != "200" {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(20), again)
        .await
        .expect("a place becomes free");
}

#[tokio::test]
async fn connections_beyond_the_bound_are_closed_and_their_end_makes_room() {
    let served = serve(false).await;
    let mut silent = Vec::new();
    for _ in 0..CONNECTIONS {
        silent.push(TcpStream::connect(served.address).await.unwrap());
    }
    assert_eq!(served.get("/api/session", "").await.status, 0);
    silent.clear();
    let again = async {
        while served.get("/api/session", "").await.status != 200 {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(20), again)
        .await
        .expect("a place becomes free");
}

#[tokio::test]
async fn wrong_tokens_in_numbers_are_bounded_and_leave_the_session_reachable() {
    let served = Arc::new(serve(true).await);
    let flood: Vec<_> = (0..4 * REQUESTS)
        .map(|number| {
            let served = served.clone();
            tokio::spawn(async move {
                served
                    .with_token("/api/fleet", &format!("wrong{number}"))
                    .await
                    .status
            })
        })
        .collect();
    let mut statuses = std::collections::BTreeMap::<u16, usize>::new();
    for one in flood {
        *statuses.entry(one.await.unwrap()).or_default() += 1;
    }
    assert!(
        statuses.keys().all(|status| [401, 503].contains(status)),
        "{statuses:?}"
    );
    let reviews = served.review.reviews.load(Ordering::Relaxed);
    assert!(reviews <= 4 * REQUESTS, "{reviews}");
    assert_eq!(served.get("/api/session", "").await.status, 200);
    assert_eq!(served.with_token("/api/fleet", "all").await.status, 200);
}

#[tokio::test]
async fn a_unix_socket_serves_under_any_port_of_localhost() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("page.sock");
    let source = Arc::new(TestSource::default());
    let stop = CancellationToken::new();
    let page = Page::new(source, Access::Open, stop.clone());
    let listen: PageListen = path.to_str().unwrap().parse().unwrap();
    let task = tokio::spawn(super::serve(listen, page, false, stop.clone()));
    let connect = async {
        loop {
            match UnixStream::connect(&path).await {
                Ok(stream) => break stream,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    let mut stream = timeout(Duration::from_secs(20), connect).await.unwrap();
    let request = "GET /api/session HTTP/1.1\r\nHost: localhost:8080\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    stop.cancel();
    timeout(Duration::from_secs(20), task)
        .await
        .unwrap()
        .unwrap();
}

#[test]
fn addresses_that_other_machines_reach_are_refused_with_what_to_do() {
    for (text, listen) in [
        ("off", PageListen::Off),
        (
            "127.0.0.1:9813",
            PageListen::Tcp("127.0.0.1:9813".parse().unwrap()),
        ),
        ("[::1]:9813", PageListen::Tcp("[::1]:9813".parse().unwrap())),
        ("/run/page.sock", PageListen::Unix("/run/page.sock".into())),
    ] {
        assert_eq!(text.parse(), Ok(listen), "{text}");
    }
    for text in [
        "0.0.0.0:9813",
        "10.0.0.1:9813",
        "[::]:9813",
        "[::ffff:127.0.0.1]:9813",
    ] {
        let error = text.parse::<PageListen>().unwrap_err();
        assert!(matches!(error, ListenError::NotLoopback { .. }), "{text}");
        assert!(error.to_string().contains("127.0.0.1:9813"), "{error}");
    }
    for text in ["", "9813", "localhost:9813", "127.0.0.1:0", "run/x"] {
        let error = text.parse::<PageListen>().unwrap_err();
        assert!(matches!(error, ListenError::NoAddress { .. }), "{text}");
    }
}
