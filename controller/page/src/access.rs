//! Who may read: everybody who reaches the address, or whoever's token the cluster's API server accepts.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::source::Answer;

/// Audience that a token must have.
pub const AUDIENCE: &str = "drivebay";
/// Validity of a review. A token that was revoked reads for so long at most.
const FRESH: Duration = Duration::from_secs(60);
/// Validity of a review by which a token reads nothing.
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
/// Most reviews in the cache. Beyond them nothing is cached.
const REMEMBERED: usize = 1024;
/// Longest token, bytes.
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
    /// `get` of `pages.drivebay.io`: opens the page. No object has this resource: who may read the objects of drives reads the claims
    /// of all namespaces in them.
    OpenPage,
    /// `list` of `persistentvolumeclaims` in this namespace; None: in all.
    ListClaims(Option<&'a str>),
}

/// No API server gave an answer.
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

/// Why a request is not answered with data.
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

/// Which claims a reader may see.
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

/// Who may read.
#[derive(Clone)]
pub enum Access {
    /// Whoever reaches the address, everything.
    Open,
    /// Whoever has a token that is reviewed.
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

/// A reader who may see the fleet.
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

struct Remembered {
    outcome: Outcome,
    until: Instant,
}

/// Reviews of readers, cached and limited in rate.
pub struct Tokens {
    review: Arc<dyn Review>,
    places: Semaphore,
    // By SHA-256 of the token, since tokens are secrets.
    known: Mutex<HashMap<[u8; 32], Remembered>>,
}

impl Tokens {
    pub fn new(review: Arc<dyn Review>) -> Self {
        Self {
            review,
            places: Semaphore::new(AT_A_TIME),
            known: Mutex::default(),
        }
    }

    async fn admit(&self, token: &str) -> Result<Arc<Reviewed>, Denied> {
        // What is no JWT is refused without asking anybody.
        let plausible = token.bytes().all(|byte| {
            byte.is_ascii_alphanumeric()
                || matches!(byte, b'-' | b'_' | b'.' | b'=' | b'~' | b'+' | b'/')
        });
        if token.is_empty() || token.len() > TOKEN_BYTES || !plausible {
            return Err(Denied::Invalid);
        }
        let digest = digest(token);
        if let Some(known) = self.recall(&digest) {
            return known;
        }
        let place = self.places.acquire().await;
        let _place = place.map_err(|_| Denied::Unavailable)?;
        // Requests for one token wait for each other's review.
        if let Some(known) = self.recall(&digest) {
            return known;
        }
        let reviewed = timeout(DEADLINE, self.ask(token));
        let (reviewed, ()) = tokio::join!(reviewed, sleep(SPACING));
        let outcome = match reviewed {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => {
                tracing::warn!(%error, "page reader not reviewed");
                return Err(Denied::Unavailable);
            }
            Err(_) => {
                tracing::warn!("page reader not reviewed in time");
                return Err(Denied::Unavailable);
            }
        };
        let answer = match &outcome {
            Outcome::Admitted(reviewed) => Ok(reviewed.clone()),
            Outcome::Refused(denied) => Err(*denied),
        };
        self.remember(digest, outcome);
        answer
    }

    async fn ask(&self, token: &str) -> Result<Outcome, Unavailable> {
        let Some(user) = self.review.authenticate(token).await? else {
            return Ok(Outcome::Refused(Denied::Invalid));
        };
        if !self.review.authorize(&user, Act::OpenPage).await? {
            tracing::info!(user = %text(&user.name), "page reader refused");
            return Ok(Outcome::Refused(Denied::Forbidden));
        }
        let all = Act::ListClaims(None);
        let all_claims = self.review.authorize(&user, all).await?;
        tracing::info!(user = %text(&user.name), all_claims, "page reader admitted");
        Ok(Outcome::Admitted(Arc::new(Reviewed {
            user,
            all_claims,
            namespaces: Mutex::default(),
        })))
    }

    fn recall(&self, digest: &[u8; 32]) -> Option<Result<Arc<Reviewed>, Denied>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let one = known.get(digest)?;
        (Instant::now() < one.until).then(|| match &one.outcome {
            Outcome::Admitted(reviewed) => Ok(reviewed.clone()),
            Outcome::Refused(denied) => Err(*denied),
        })
    }

    fn remember(&self, digest: [u8; 32], outcome: Outcome) {
        let now = Instant::now();
        let fresh = match outcome {
            Outcome::Admitted(_) => FRESH,
            Outcome::Refused(_) => REFUSED_FRESH,
        };
        let until = now + fresh;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, one| now < one.until);
        if known.len() < REMEMBERED {
            known.insert(digest, Remembered { outcome, until });
        }
    }

    /// Reviews namespaces that were not yet, and returns those that may be shown. A namespace without a review is not shown.
    async fn namespaces(&self, reviewed: &Arc<Reviewed>, of: &BTreeSet<Arc<str>>) -> Visibility {
        if reviewed.all_claims {
            return Visibility::All;
        }
        let mut open: Vec<Arc<str>> = {
            let known = lock(&reviewed.namespaces);
            let room = NAMESPACES.saturating_sub(known.len());
            let new = of.iter().filter(|one| !known.contains_key(&***one));
            new.take(room).cloned().collect()
        };
        let mut asked = JoinSet::new();
        while !open.is_empty() || !asked.is_empty() {
            while asked.len() < NAMESPACES_AT_A_TIME
                && let Some(namespace) = open.pop()
            {
                let (review, reviewed) = (self.review.clone(), reviewed.clone());
                asked.spawn(async move {
                    let act = Act::ListClaims(Some(&namespace));
                    let answer = timeout(DEADLINE, review.authorize(&reviewed.user, act)).await;
                    if let Ok(Ok(allowed)) = answer {
                        lock(&reviewed.namespaces).insert(namespace.to_string(), allowed);
                        true
                    } else {
                        false
                    }
                });
            }
            // Without an API server the rest would time out one after the other.
            if let Some(Ok(false)) = asked.join_next().await {
                open.clear();
            }
        }
        let known = lock(&reviewed.namespaces);
        let allowed = of.iter().filter(|one| known.get(&***one) == Some(&true));
        Visibility::Namespaces(Arc::new(allowed.map(|one| one.to_string()).collect()))
    }
}

fn lock(of: &Mutex<HashMap<String, bool>>) -> std::sync::MutexGuard<'_, HashMap<String, bool>> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

// User names are chosen in the cluster; the log has one line for each.
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
