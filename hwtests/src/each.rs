//! Concurrent work of a test, on the test's own thread.

use std::future::Future;

use tokio::task::LocalSet;

/// Runs the same action on each item, all concurrently; returns the results in the order of the items.
///
/// # Panics
/// If one of them panics.
pub async fn each<T: 'static, F: Future<Output = T> + 'static>(
    all: Vec<T>,
    act: impl Fn(T) -> F,
) -> Vec<T> {
    let local = LocalSet::new();
    let acting: Vec<_> = all
        .into_iter()
        .map(|one| local.spawn_local(act(one)))
        .collect();
    local
        .run_until(async {
            let mut done = Vec::new();
            for one in acting {
                done.push(one.await.unwrap());
            }
            done
        })
        .await
}
