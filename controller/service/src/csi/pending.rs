//! CSI names that are being created, so that one name is never sent to two nodes.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use crate::agents::IdOf;

/// The result of a creation is pending or unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfinished {
    #[error("{of} {name:?} is being created; ask again")]
    UnderWay { of: IdOf, name: String },
    /// The task ended without a result; the agent may have carried out the creation.
    #[error("creating the {of} was interrupted, so whether it was done is not known; call again")]
    Lost { of: IdOf },
}

/// The names of one kind of thing. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pending(Arc<Mutex<BTreeSet<String>>>);

/// Frees the name when it is dropped.
#[derive(Debug)]
pub(super) struct Guard(Pending, String);

impl Pending {
    /// Takes the name; None: it is taken.
    pub(super) fn enter(&self, name: &str) -> Option<Guard> {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = names.insert(name.to_owned());
        is_free.then(|| Guard(self.clone(), name.to_owned()))
    }

    /// Runs a creation; `UnderWay` if one of this name is running. It runs to its end even if the returned future is dropped, as happens
    /// when a caller gives up: the name stays taken until the agent has answered.
    pub(super) async fn run<T, E>(
        &self,
        of: IdOf,
        name: &str,
        creation: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Unfinished> + Send + 'static,
    {
        let guard = self.enter(name).ok_or_else(|| Unfinished::UnderWay {
            of,
            name: name.to_owned(),
        })?;
        let task = tokio::spawn(async move {
            let _guard = guard;
            creation.await
        });
        task.await.unwrap_or(Err(Unfinished::Lost { of }.into()))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Self(Pending(names), name) = self;
        names
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use tokio::{sync::oneshot, time::timeout};

    use super::*;

    const OF: IdOf = IdOf::Snapshot;

    #[tokio::test]
    async fn a_name_stays_taken_until_its_creation_ends_though_its_caller_gave_up() {
        let pending = Pending::default();
        let (end, ended) = oneshot::channel();
        let creation = async move {
            ended.await.unwrap();
            Ok::<(), Unfinished>(())
        };
        let first = pending.run(OF, "a", creation);
        assert!(timeout(Duration::ZERO, first).await.is_err());
        let create = |name| pending.run(OF, name, async { Ok::<(), Unfinished>(()) });
        let name = "a".to_owned();
        let under_way = Unfinished::UnderWay { of: OF, name };
        assert_eq!(create("a").await, Err(under_way.clone()));
        assert_eq!(create("b").await, Ok(()));
        end.send(()).unwrap();
        while create("a").await == Err(under_way.clone()) {
            tokio::task::yield_now().await;
        }
        assert_eq!(create("a").await, Ok(()));
    }

    #[tokio::test]
    async fn a_creation_that_panics_is_lost_and_frees_its_name() {
        let pending = Pending::default();
        let (end, ended) = oneshot::channel::<()>();
        drop(end);
        let creation = async move {
            ended.await.unwrap();
            Ok::<(), Unfinished>(())
        };
        let lost = pending.run(OF, "a", creation).await;
        assert_eq!(lost, Err(Unfinished::Lost { of: OF }));
        assert!(pending.enter("a").is_some());
    }
}
