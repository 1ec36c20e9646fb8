//! Reviews of tokens by an API server: cached, and limited in rate.

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use tokio::{sync::Semaphore, time::timeout};

use super::{
    claims::Claims,
    error::{NotProven, Unavailable},
    judge::{Answer, Expected},
};

/// Timeout of a review. It is a single authentication; an API server that takes longer is overloaded.
const DEADLINE: Duration = Duration::from_secs(10);
/// Concurrent reviews. Each takes at least [`SPACING`], so that there are at most 160 per second: 5,000 agents that
/// reconnect at once are reviewed within 32 s.
const AT_A_TIME: usize = 16;
const SPACING: Duration = Duration::from_millis(100);
/// Validity of a review in the cache. After it, a token whose pod was deleted is detected.
const FRESH: Duration = Duration::from_secs(600);
/// Time for which a reviewed token still proves its node after its expiry, while no API server answers.
pub(super) const GRACE: Duration = Duration::from_secs(3600);
/// Most reviews in the cache, more than a controller has agents.
const REMEMBERED: usize = 20_000;

/// The node that a token proves, with the token's validity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proven {
    pub node: String,
    /// Time at which the token was issued; `until`: the time at which it expires.
    pub issued: SystemTime,
    pub until: SystemTime,
}

/// Reviews ServiceAccount tokens with an API server. [`Tokens`] adds a cache, a time limit and a limit of the rate.
pub trait Review: Send + Sync {
    /// Returns the review's result, or an error if no API server gave one.
    fn review<'a>(
        &'a self,
        token: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Answer, Unavailable>> + Send + 'a>>;
}

struct Remembered {
    proven: Proven,
    reviewed: SystemTime,
}

/// Verifies tokens. Clones share one cache.
#[derive(Clone)]
pub struct Tokens {
    review: Arc<dyn Review>,
    expected: Arc<Expected>,
    places: Arc<Semaphore>,
    // Keyed by the token's SHA-256 digest, since tokens are secrets.
    cache: Arc<Mutex<HashMap<[u8; 32], Remembered>>>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens")
            .field("expected", &self.expected)
            .finish_non_exhaustive()
    }
}

impl Tokens {
    pub fn new(review: Arc<dyn Review>, expected: Expected) -> Self {
        Self {
            review,
            expected: Arc::new(expected),
            places: Arc::new(Semaphore::new(AT_A_TIME)),
            cache: Arc::default(),
        }
    }

    /// Returns the node that this token proves, from the cache or from a review.
    ///
    /// # Errors
    /// [`NotProven`]; [`NotProven::Unavailable`] if no API server answers.
    pub async fn prove(&self, token: &str) -> Result<Proven, NotProven> {
        let now = SystemTime::now();
        let claims = self.read(token)?;
        let digest = digest(token);
        let remembered = self.recall(&digest);
        if let Some(remembered) = &remembered
            && remembered.is_good(now)
            && remembered.is_fresh(now)
        {
            return Ok(remembered.proven.clone());
        }
        // While no API server answers, a token that was reviewed before remains valid for the grace; a new one proves nothing.
        if claims.until <= now && remembered.is_none() {
            return Err(NotProven::Expired);
        }
        match self.request_review(token).await {
            Ok(answer) => {
                let node = self.expected.judge(&answer)?;
                let proven = Proven {
                    node,
                    issued: claims.issued,
                    until: claims.until,
                };
                self.remember(digest, proven.clone());
                Ok(proven)
            }
            Err(error) => match remembered {
                Some(remembered) if now < remembered.proven.until + GRACE => Ok(remembered.proven),
                _ => Err(error.into()),
            },
        }
    }

    /// Reads the claims of a token that may be good, without a review.
    ///
    /// # Errors
    /// [`NotProven`]
    pub(super) fn read(&self, token: &str) -> Result<Claims, NotProven> {
        let claims = Claims::read(token)?;
        self.expected.plausible(&claims)?;
        Ok(claims)
    }

    async fn request_review(&self, token: &str) -> Result<Answer, Unavailable> {
        let place = self.places.acquire().await;
        let _place = place.map_err(|_| Unavailable("the controller stops".to_owned()))?;
        let review = timeout(DEADLINE, self.review.review(token));
        // The permit is held for at least [`SPACING`], however fast the answer is.
        let (answer, ()) = tokio::join!(review, tokio::time::sleep(SPACING));
        let late = || Unavailable(format!("no answer within {} s", DEADLINE.as_secs()));
        answer.unwrap_or_else(|_| Err(late()))
    }

    fn recall(&self, digest: &[u8; 32]) -> Option<Remembered> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.get(digest).map(|remembered| Remembered {
            proven: remembered.proven.clone(),
            reviewed: remembered.reviewed,
        })
    }

    fn remember(&self, digest: [u8; 32], proven: Proven) {
        let now = SystemTime::now();
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= REMEMBERED {
            cache.retain(|_, remembered| now < remembered.proven.until + GRACE);
        }
        if cache.len() < REMEMBERED {
            let reviewed = now;
            cache.insert(digest, Remembered { proven, reviewed });
        }
    }
}

impl Remembered {
    fn is_good(&self, now: SystemTime) -> bool {
        now < self.proven.until
    }

    fn is_fresh(&self, now: SystemTime) -> bool {
        now.duration_since(self.reviewed)
            .is_ok_and(|age| age < FRESH)
    }
}

fn digest(token: &str) -> [u8; 32] {
    let mut digest = [0; 32];
    let made = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
    digest.copy_from_slice(made.as_ref());
    digest
}

#[cfg(test)]
mod tests;
