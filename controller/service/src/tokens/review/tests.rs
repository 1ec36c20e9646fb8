//! The nodes that tokens prove, and the number of reviews.

use std::sync::atomic::{AtomicUsize, Ordering};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use super::*;
use crate::tokens::error::MAX_TOKEN_BYTES;

const USER: &str = "system:serviceaccount:drivebay-system:drivebay-agent";

fn expected() -> Expected {
    Expected {
        audience: "drivebay-controller".into(),
        user: USER.into(),
    }
}

fn good() -> Answer {
    Answer {
        authenticated: true,
        audiences: vec!["drivebay-controller".into()],
        user: USER.into(),
        nodes: vec!["n1".into()],
        error: String::new(),
    }
}

fn unix(after: i64) -> i64 {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    i64::try_from(now.as_secs()).unwrap() + after
}

fn token(user: &str, audience: &str, expires: i64, mark: &str) -> String {
    let claims = serde_json::json!({
        "sub": user, "aud": [audience], "iat": unix(-100), "exp": unix(expires), "jti": mark,
    });
    format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

fn ours(expires: i64) -> String {
    token(USER, "drivebay-controller", expires, "")
}

/// An API server with a fixed answer, which counts the reviews.
struct Server {
    answer: Mutex<Result<Answer, Unavailable>>,
    requests: AtomicUsize,
    at_once: AtomicUsize,
    most: AtomicUsize,
}

impl Server {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            answer: Mutex::new(Ok(good())),
            requests: AtomicUsize::default(),
            at_once: AtomicUsize::default(),
            most: AtomicUsize::default(),
        })
    }

    fn answers(&self, answer: Result<Answer, Unavailable>) {
        *self.answer.lock().unwrap() = answer;
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

impl Review for Server {
    fn review<'a>(
        &'a self,
        _: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Answer, Unavailable>> + Send + 'a>> {
        Box::pin(async {
            self.requests.fetch_add(1, Ordering::SeqCst);
            let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
            tokio::task::yield_now().await;
            self.at_once.fetch_sub(1, Ordering::SeqCst);
            self.answer.lock().unwrap().clone()
        })
    }
}

fn tokens(server: &Arc<Server>) -> Tokens {
    Tokens::new(server.clone(), expected())
}

#[test]
fn an_answer_proves_a_node_only_if_everything_about_it_is_right() {
    assert_eq!(expected().judge(&good()), Ok("n1".to_owned()));
    type Change = fn(&mut Answer);
    let wrong: [(Change, &str); 9] = [
        (|a| a.authenticated = false, "does not accept"),
        (|a| a.audiences = vec![], "not for this controller"),
        (
            |a| a.audiences = vec!["https://kubernetes.default.svc".into()],
            "not for this controller",
        ),
        (
            |a| a.user = "system:serviceaccount:default:drivebay-agent".into(),
            "agents run as",
        ),
        (|a| a.user = "system:node:n1".into(), "agents run as"),
        (|a| a.user.push('x'), "agents run as"),
        (|a| a.nodes = vec![], "does not say on which node"),
        (|a| a.nodes.push("n2".into()), "does not say on which node"),
        (|a| a.nodes = vec!["-".into()], "cannot be a node id"),
    ];
    for (change, part) in wrong {
        let mut answer = good();
        change(&mut answer);
        let error = expected().judge(&answer).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[tokio::test]
async fn what_cannot_be_good_is_refused_without_a_review() {
    let server = Server::new();
    let long = "a".repeat(MAX_TOKEN_BYTES);
    for bad in [
        String::new(),
        "a.b".into(),
        "a.b.c".into(),
        "e30.e30.c2ln.x".into(),
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(long)),
        token(
            "system:serviceaccount:default:x",
            "drivebay-controller",
            600,
            "",
        ),
        token(USER, "somebody-else", 600, ""),
        ours(-1),
    ] {
        assert!(tokens(&server).prove(&bad).await.is_err(), "{bad}");
    }
    assert_eq!(server.requests(), 0);
}

#[tokio::test]
async fn a_token_is_reviewed_once_and_outlasts_an_api_server_that_is_away() {
    let server = Server::new();
    let tokens = tokens(&server);
    let token = ours(600);
    for _ in 0..3 {
        assert_eq!(tokens.prove(&token).await.unwrap().node, "n1");
    }
    assert_eq!(server.requests(), 1);
    server.answers(Err(Unavailable("refused".into())));
    let proven = tokens.prove(&token).await.unwrap();
    // Reviewed long ago and expired: valid for the grace, as long as no API server refuses it.
    let digest = digest(&token);
    let age = |reviewed: Duration, expired: Duration| {
        let mut cache = tokens.cache.lock().unwrap();
        let remembered = cache.get_mut(&digest).unwrap();
        remembered.reviewed = SystemTime::now() - reviewed;
        remembered.proven.until = SystemTime::now() - expired;
    };
    age(FRESH, Duration::from_secs(5));
    assert_eq!(tokens.prove(&token).await.unwrap().node, proven.node);
    age(FRESH, GRACE);
    assert!(matches!(
        tokens.prove(&token).await,
        Err(NotProven::Unavailable(_))
    ));
    // A token that was never reviewed proves nothing meanwhile.
    let other = self::token(USER, "drivebay-controller", 600, "other");
    assert!(matches!(
        tokens.prove(&other).await,
        Err(NotProven::Unavailable(_))
    ));
    age(FRESH, Duration::from_secs(5));
    server.answers(Ok(Answer {
        authenticated: false,
        error: "the pod is gone".into(),
        ..Answer::default()
    }));
    assert!(matches!(
        tokens.prove(&token).await,
        Err(NotProven::NotAuthenticated(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn a_fleet_that_reconnects_is_reviewed_a_few_at_a_time() {
    let server = Server::new();
    let tokens = tokens(&server);
    let began = tokio::time::Instant::now();
    let all: Vec<_> = (0..1000)
        .map(|n| {
            let tokens = tokens.clone();
            tokio::spawn(async move {
                let token = token(USER, "drivebay-controller", 600, &n.to_string());
                tokens.prove(&token).await
            })
        })
        .collect();
    let mut proven = 0;
    for one in all {
        proven += usize::from(one.await.unwrap().is_ok());
    }
    assert_eq!((proven, server.requests()), (1000, 1000));
    assert!(server.most.load(Ordering::SeqCst) <= AT_A_TIME);
    assert!(began.elapsed() >= SPACING * 1000 / 16);
}
