//! Rendered JSON, shared by readers of the same visibility.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hyper::body::Bytes;
use tokio::time::Instant;

use crate::access::Visibility;

/// Most renderings of one fleet or change; beyond them the oldest is dropped.
const RENDERINGS: usize = 4;
/// Validity of a rendering, since durations in it are of its moment.
const FRESH: Duration = Duration::from_millis(500);

/// Renderings by visibility, each used only for exactly its visibility and while it is at most [`FRESH`] old.
#[derive(Debug, Default)]
pub(crate) struct Renderings(Mutex<VecDeque<Rendering>>);

#[derive(Debug)]
struct Rendering {
    visibility: Visibility,
    at: Instant,
    bytes: Bytes,
}

impl Renderings {
    /// Returns the rendering for readers of this visibility, a new one by `render` if none is valid. Renders without holding the lock,
    /// so that a large fleet delays no other reader.
    pub(crate) fn get(&self, visibility: &Visibility, render: impl FnOnce() -> Bytes) -> Bytes {
        let at = Instant::now();
        if let Some(bytes) = valid(&mut self.lock(), visibility) {
            return bytes;
        }
        let bytes = render();
        let mut kept = self.lock();
        // Another request may have rendered the same meanwhile.
        if let Some(bytes) = valid(&mut kept, visibility) {
            return bytes;
        }
        if kept.len() >= RENDERINGS {
            kept.pop_front();
        }
        kept.push_back(Rendering {
            visibility: visibility.clone(),
            at,
            bytes: bytes.clone(),
        });
        bytes
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Rendering>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops renderings that are too old, and returns that of this visibility.
fn valid(kept: &mut VecDeque<Rendering>, visibility: &Visibility) -> Option<Bytes> {
    kept.retain(|one| one.at.elapsed() <= FRESH);
    let mut kept = kept.iter();
    let one = kept.find(|one| one.visibility == *visibility)?;
    Some(one.bytes.clone())
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Arc};

    use super::*;

    fn of(namespace: &str) -> Visibility {
        Visibility::Namespaces(Arc::new(BTreeSet::from([namespace.to_owned()])))
    }

    fn get(renderings: &Renderings, visibility: &Visibility, text: &'static str) -> Bytes {
        renderings.get(visibility, || Bytes::from_static(text.as_bytes()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_rendering_is_used_only_for_its_visibility_and_while_it_is_fresh() {
        let renderings = Renderings::default();
        assert_eq!(get(&renderings, &of("shop"), "shop"), "shop");
        assert_eq!(get(&renderings, &Visibility::All, "all"), "all");
        assert_eq!(get(&renderings, &of("bank"), "bank"), "bank");
        tokio::time::advance(FRESH).await;
        assert_eq!(get(&renderings, &of("shop"), "later"), "shop");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(get(&renderings, &of("shop"), "later"), "later");
        assert_eq!(renderings.lock().len(), 1);
    }

    #[test]
    fn renderings_are_bounded_in_number() {
        let renderings = Renderings::default();
        for number in 0..3 * RENDERINGS {
            get(&renderings, &of(&format!("n{number}")), "text");
        }
        assert_eq!(renderings.lock().len(), RENDERINGS);
    }

    #[test]
    fn a_rendering_that_another_request_made_meanwhile_is_not_kept_twice() {
        let renderings = Renderings::default();
        let bytes = renderings.get(&Visibility::All, || {
            get(&renderings, &Visibility::All, "first");
            Bytes::from_static(b"second")
        });
        assert_eq!(bytes, "first");
        assert_eq!(renderings.lock().len(), 1);
    }
}
