use std::sync::atomic::Ordering;

use tokio::time::advance;

use super::*;
use crate::testing::TestReview;

fn access() -> (Arc<TestReview>, Access) {
    let review = Arc::new(TestReview::default());
    review.reader("all", &["*"]);
    review.reader("shop-only", &["shop"]);
    review
        .tokens
        .lock()
        .unwrap()
        .insert("nobody".into(), BTreeSet::new());
    let access = Access::Tokens(Arc::new(Tokens::new(review.clone())));
    (review, access)
}

fn namespaces(names: &[&str]) -> BTreeSet<Arc<str>> {
    names.iter().map(|one| Arc::from(*one)).collect()
}

async fn denied(access: &Access, token: Option<&str>) -> Option<Denied> {
    access.admit(token).await.err()
}

#[tokio::test(start_paused = true)]
async fn only_a_valid_token_of_a_user_who_may_open_the_page_is_admitted() {
    let (_, access) = access();
    assert_eq!(denied(&access, Some("all")).await, None);
    assert_eq!(
        denied(&access, Some("nobody")).await,
        Some(Denied::Forbidden)
    );
    assert_eq!(
        denied(&access, Some("unknown")).await,
        Some(Denied::Invalid)
    );
    assert_eq!(denied(&access, None).await, Some(Denied::NoToken));
}

#[tokio::test(start_paused = true)]
async fn text_that_cannot_be_a_token_is_refused_without_a_review() {
    let (review, access) = access();
    let long = "x".repeat(TOKEN_BYTES + 1);
    for token in ["", "a b", "a\nb", "\u{e9}", "{}", long.as_str()] {
        assert_eq!(
            denied(&access, Some(token)).await,
            Some(Denied::Invalid),
            "{token:?}"
        );
    }
    assert_eq!(review.reviews.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_with_one_token_share_its_reviews() {
    let (review, access) = access();
    for token in ["all", "unknown"] {
        let requests = (0..20).map(|_| {
            let access = access.clone();
            tokio::spawn(async move { access.admit(Some(token)).await.is_ok() })
        });
        let requests: Vec<_> = requests.collect();
        for request in requests {
            assert_eq!(request.await.unwrap(), token == "all");
        }
    }
    // Requests that begin while permits are free do not wait for each other's review.
    let reviews = review.reviews.load(Ordering::Relaxed);
    assert!(reviews <= 2 * AT_A_TIME, "{reviews}");
}

#[tokio::test(start_paused = true)]
async fn without_an_api_server_only_cached_reviews_admit_readers() {
    let (review, access) = access();
    assert_eq!(denied(&access, Some("all")).await, None);
    *review.is_down.lock().unwrap() = true;
    assert_eq!(
        denied(&access, Some("shop-only")).await,
        Some(Denied::Unavailable)
    );
    assert_eq!(denied(&access, Some("all")).await, None);
    *review.is_down.lock().unwrap() = false;
    assert_eq!(denied(&access, Some("shop-only")).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_revoked_token_is_refused_after_the_lifetime_of_its_cached_review() {
    let (review, access) = access();
    assert_eq!(denied(&access, Some("all")).await, None);
    review.tokens.lock().unwrap().remove("all");
    advance(FRESH - Duration::from_millis(1)).await;
    assert_eq!(denied(&access, Some("all")).await, None);
    advance(Duration::from_millis(1)).await;
    assert_eq!(denied(&access, Some("all")).await, Some(Denied::Invalid));
}

#[tokio::test(start_paused = true)]
async fn a_user_who_is_granted_access_is_admitted_after_the_lifetime_of_the_denial() {
    let (review, access) = access();
    let reader = Some("nobody");
    assert_eq!(denied(&access, reader).await, Some(Denied::Forbidden));
    review.readers.lock().unwrap().insert("nobody".into());
    assert_eq!(denied(&access, reader).await, Some(Denied::Forbidden));
    advance(REFUSED_FRESH).await;
    assert_eq!(denied(&access, reader).await, None);
}

#[tokio::test(start_paused = true)]
async fn claims_are_shown_only_of_namespaces_that_the_reader_may_list() {
    let (review, access) = access();
    let of = namespaces(&["bank", "shop"]);
    let all = access.admit(Some("all")).await.ok().unwrap();
    assert_eq!(access.visibility(&all, &of).await, Visibility::All);
    let some = access.admit(Some("shop-only")).await.ok().unwrap();
    let visibility = access.visibility(&some, &of).await;
    assert!(visibility.shows("shop/db"));
    for claim in ["bank/ledger", "shopping/x", "shop", "", "/x"] {
        assert!(!visibility.shows(claim), "{claim}");
    }
    // A namespace that appears while the API server is down is not shown.
    *review.is_down.lock().unwrap() = true;
    let more = namespaces(&["bank", "new", "shop"]);
    let visibility = access.visibility(&some, &more).await;
    assert!(visibility.shows("shop/db") && !visibility.shows("new/x"));
}

#[tokio::test(start_paused = true)]
async fn namespaces_beyond_the_bound_of_reviews_are_not_shown() {
    let (review, access) = access();
    let names: Vec<String> = (0..NAMESPACES + 5)
        .map(|number| format!("n{number:05}"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    review.reader("many", &names);
    let reader = access.admit(Some("many")).await.ok().unwrap();
    match access.visibility(&reader, &namespaces(&names)).await {
        Visibility::Namespaces(shown) => assert_eq!(shown.len(), NAMESPACES),
        Visibility::All => panic!("all claims are shown"),
    }
}

#[tokio::test]
async fn open_access_shows_all_claims_without_a_token() {
    let reader = Access::Open.admit(None).await.ok().unwrap();
    assert_eq!(
        Access::Open.visibility(&reader, &namespaces(&["a"])).await,
        Visibility::All
    );
}
