//! Access control: open to all clients that reach the address, or to those whose token the cluster's API server accepts.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::source::Answer;

/// Audience that a token must have.
pub const AUDIENCE: &str = "drivebay";
/// Validity of a review that grants access: the longest time for which a revoked token can still read.
const FRESH: Duration = Duration::from_secs(60);
/// Validity of a review that denies access.
const REFUSED_FRESH: Duration = Duration::from_secs(10);
/// Timeout of one review.
const DEADLINE: Duration = Duration::from_secs(10);
/// Concurrent reviews of tokens. Each takes at least [`SPACING`]: at most 80 a second.
const AT_A_TIME: usize = 8;
const SPACING: Duration = Duration::from_millis(100);
/// Concurrent reviews of one reader's namespaces.
const NAMESPACES_AT_A_TIME: usize = 16;
/// Namespaces that are reviewed for one reader; claims of further ones are not shown.
const NAMESPACES: usize = 1000;
/// Most reviews in the cache; further ones are not cached.
const CACHED: usize = 1024;
/// Longest token that is reviewed, bytes. A longer one is refused as invalid without a review.
const TOKEN_BYTES: usize = 8 << 10;

/// A user, as the API server knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: Vec<(String, Vec<String>)>,
}

/// Permission for which a user is reviewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act<'a> {
    /// `get` of `pages.drivebay.io`: opens the page. No object has this resource. Permission for the objects of drives would not do,
    /// since those objects have the claims of all namespaces.
    OpenPage,
    /// `list` of `persistentvolumeclaims` in this namespace; None: in all.
    ListClaims(Option<&'a str>),
}

/// The API server did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the API server did not answer a review: {0}")]
pub struct Unavailable(pub String);

/// Reviews by an API server.
pub trait Review: Send + Sync + 'static {
    /// Returns the user of a token of [`AUDIENCE`]; None if it is none.
    fn authenticate<'a>(&'a self, token: &'a str) -> Answer<'a, Result<Option<User>, Unavailable>>;

    /// True if the user may do this.
    fn authorize<'a>(
        &'a self,
        user: &'a User,
        act: Act<'a>,
    ) -> Answer<'a, Result<bool, Unavailable>>;
}

/// Reason for which a request gets no data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    #[error(
        "a token is needed: kubectl create token SERVICEACCOUNT --namespace NAMESPACE --audience drivebay"
    )]
    NoToken,
    #[error("the token is not valid; it may have expired, or have another audience than drivebay")]
    Invalid,
    #[error("the token's user may not open the page: grant get of pages.drivebay.io")]
    Forbidden,
    #[error("the API server did not answer a review of the token; try again")]
    Unavailable,
}

/// Claims that a reader may see.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Visibility {
    All,
    /// Those of these namespaces.
    Namespaces(Arc<BTreeSet<String>>),
}

impl Visibility {
    /// True if the claim, NAMESPACE/NAME, may be shown.
    pub fn shows(&self, claim: &str) -> bool {
        match self {
            Self::All => true,
            Self::Namespaces(namespaces) => claim
                .split_once('/')
                .is_some_and(|(namespace, _)| namespaces.contains(namespace)),
        }
    }
}

/// Access to the page.
#[derive(Clone)]
pub enum Access {
    /// All clients that reach the address read everything.
    Open,
    /// Clients need a token, which is reviewed.
    Tokens(Arc<Tokens>),
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "Open",
            Self::Tokens(_) => "Tokens",
        })
    }
}

/// A reader with access to the page.
#[derive(Clone)]
pub struct Reader(Option<Arc<Reviewed>>);

struct Reviewed {
    user: User,
    all_claims: bool,
    // Namespaces that were reviewed. Dropped with the review of the user, so no older than that.
    namespaces: Mutex<HashMap<String, bool>>,
}

enum Outcome {
    Admitted(Arc<Reviewed>),
    Refused(Denied),
}

struct CachedReview {
    outcome: Outcome,
    until: Instant,
}

/// Reviews of readers, cached and limited in rate.
pub struct Tokens {
    review: Arc<dyn Review>,
    places: Semaphore,
    // By SHA-256 of the token, since tokens are secrets.
    cache: Mutex<HashMap<[u8; 32], CachedReview>>,
}

impl Tokens {
    pub fn new(review: Arc<dyn Review>) -> Self {
        Self {
            review,
            places: Semaphore::new(AT_A_TIME),
            cache: Mutex::default(),
        }
    }

    async fn admit(&self, token: &str) -> Result<Arc<Reviewed>, Denied> {
        // Text that cannot be a token is refused without a review.
        let plausible = token.bytes().all(|byte| {
            byte.is_ascii_alphanumeric()
                || matches!(byte, b'-' | b'_' | b'.' | b'=' | b'~' | b'+' | b'/')
        });
        if token.is_empty() || token.len() > TOKEN_BYTES || !plausible {
            return Err(Denied::Invalid);
        }
        let digest = digest(token);
        if let Some(cached) = self.cached_review(&digest) {
            return cached;
        }
        let place = self.places.acquire().await;
        let _place = place.map_err(|_| Denied::Unavailable)?;
        // Requests for one token wait for each other's review.
        if let Some(cached) = self.cached_review(&digest) {
            return cached;
        }
        let reviewed = timeout(DEADLINE, self.review_token(token));
        let (reviewed, ()) = tokio::join!(reviewed, sleep(SPACING));
        let outcome = match reviewed {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => {
                tracing::warn!(%error, "access review of a page reader failed");
                return Err(Denied::Unavailable);
            }
            Err(_) => {
                tracing::warn!("access review of a page reader timed out");
                return Err(Denied::Unavailable);
            }
        };
        let answer = match &outcome {
            Outcome::Admitted(reviewed) => Ok(reviewed.clone()),
            Outcome::Refused(denied) => Err(*denied),
        };
        self.cache_review(digest, outcome);
        answer
    }

    async fn review_token(&self, token: &str) -> Result<Outcome, Unavailable> {
        let Some(user) = self.review.authenticate(token).await? else {
            return Ok(Outcome::Refused(Denied::Invalid));
        };
        if !self.review.authorize(&user, Act::OpenPage).await? {
            tracing::info!(user = %text(&user.name), "page access denied");
            return Ok(Outcome::Refused(Denied::Forbidden));
        }
        let all = Act::ListClaims(None);
        let all_claims = self.review.authorize(&user, all).await?;
        tracing::debug!(user = %text(&user.name), all_claims, "page access granted");
        Ok(Outcome::Admitted(Arc::new(Reviewed {
            user,
            all_claims,
            namespaces: Mutex::default(),
        })))
    }

    fn cached_review(&self, digest: &[u8; 32]) -> Option<Result<Arc<Reviewed>, Denied>> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let one = cache.get(digest)?;
        (Instant::now() < one.until).then(|| match &one.outcome {
            Outcome::Admitted(reviewed) => Ok(reviewed.clone()),
            Outcome::Refused(denied) => Err(*denied),
        })
    }

    fn cache_review(&self, digest: [u8; 32], outcome: Outcome) {
        let now = Instant::now();
        let fresh = match outcome {
            Outcome::Admitted(_) => FRESH,
            Outcome::Refused(_) => REFUSED_FRESH,
        };
        let until = now + fresh;
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.retain(|_, one| now < one.until);
        if cache.len() < CACHED {
            cache.insert(digest, CachedReview { outcome, until });
        }
    }

    /// Reviews the namespaces that have no review yet, and returns those whose claims may be shown. A namespace without a review is not
    /// shown.
    async fn namespaces(&self, reviewed: &Arc<Reviewed>, of: &BTreeSet<Arc<str>>) -> Visibility {
        if reviewed.all_claims {
            return Visibility::All;
        }
        let mut open: Vec<Arc<str>> = {
            let cached = lock(&reviewed.namespaces);
            let room = NAMESPACES.saturating_sub(cached.len());
            let new = of.iter().filter(|one| !cached.contains_key(&***one));
            new.take(room).cloned().collect()
        };
        let mut reviews = JoinSet::new();
        while !open.is_empty() || !reviews.is_empty() {
            while reviews.len() < NAMESPACES_AT_A_TIME
                && let Some(namespace) = open.pop()
            {
                let (review, reviewed) = (self.review.clone(), reviewed.clone());
                reviews.spawn(async move {
                    let act = Act::ListClaims(Some(&namespace));
                    let answer = timeout(DEADLINE, review.authorize(&reviewed.user, act)).await;
                    match answer {
                        Ok(Ok(allowed)) => {
                            lock(&reviewed.namespaces).insert(namespace.to_string(), allowed);
                            return true;
                        }
                        Ok(Err(error)) => tracing::debug!(
                            %error,
                            namespace = &*namespace,
                            "access review of a namespace failed"
                        ),
                        Err(_) => tracing::debug!(
                            namespace = &*namespace,
                            "access review of a namespace timed out"
                        ),
                    }
                    false
                });
            }
            // Without an API server the rest would time out one after the other.
            if let Some(Ok(false)) = reviews.join_next().await {
                open.clear();
            }
        }
        let cached = lock(&reviewed.namespaces);
        let allowed = of.iter().filter(|one| cached.get(&***one) == Some(&true));
        Visibility::Namespaces(Arc::new(allowed.map(|one| one.to_string()).collect()))
    }
}

fn lock(of: &Mutex<HashMap<String, bool>>) -> std::sync::MutexGuard<'_, HashMap<String, bool>> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

// User names come from the cluster: bounded, and without line breaks.
fn text(name: &str) -> String {
    let printable = name.chars().filter(|one| !one.is_control());
    printable.take(128).collect()
}

impl Access {
    /// True if a token is needed.
    pub fn needs_token(&self) -> bool {
        matches!(self, Self::Tokens(_))
    }

    /// Returns the reader with this token.
    ///
    /// # Errors
    /// [`Denied`]
    pub async fn admit(&self, token: Option<&str>) -> Result<Reader, Denied> {
        match self {
            Self::Open => Ok(Reader(None)),
            Self::Tokens(tokens) => {
                let token = token.ok_or(Denied::NoToken)?;
                Ok(Reader(Some(tokens.admit(token).await?)))
            }
        }
    }

    /// Returns which claims of these namespaces the reader may see. Reviews what is not cached.
    pub async fn visibility(&self, reader: &Reader, of: &BTreeSet<Arc<str>>) -> Visibility {
        match (self, &reader.0) {
            (Self::Open, _) => Visibility::All,
            (Self::Tokens(tokens), Some(reviewed)) => tokens.namespaces(reviewed, of).await,
            (Self::Tokens(_), None) => Visibility::Namespaces(Arc::default()),
        }
    }
}

fn digest(token: &str) -> [u8; 32] {
    let mut digest = [0; 32];
    let made = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
    digest.copy_from_slice(made.as_ref());
    digest
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
