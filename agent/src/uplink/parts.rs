//! Sends a large update of the inventory in parts: the memory that a receiver needs for the largest message is kept for as long as the
//! stream lasts, once for each of thousands of agents.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll, ready},
};

use drivebay_proto::agent::{InventoryUpdate, Volume};
use prost::Message;
use tokio_stream::Stream;
use tonic::Status;

/// Bytes of the volumes in one part; the first part also has the drives, and may be larger. A part of a dozen volumes costs its receiver
/// little more than the volumes, and smaller ones save no memory there: the drives of a node are as large.
const PART: usize = 4 << 10;

/// A stream of updates, each cut into parts.
pub struct Parts<S> {
    updates: Pin<Box<S>>,
    waiting: VecDeque<InventoryUpdate>,
    // A part was just returned: each is sent alone, not together with the next.
    gone_out: bool,
}

impl<S> Parts<S> {
    pub fn of(updates: S) -> Self {
        Self {
            updates: Box::pin(updates),
            waiting: VecDeque::new(),
            gone_out: false,
        }
    }
}

impl<S: Stream<Item = Result<InventoryUpdate, Status>>> Stream for Parts<S> {
    type Item = Result<InventoryUpdate, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.waiting.is_empty() {
            match ready!(this.updates.as_mut().poll_next(context)) {
                Some(Ok(update)) => this.waiting = cut(without_names(update)),
                ended => return Poll::Ready(ended),
            }
        } else if !std::mem::replace(&mut this.gone_out, true) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        this.gone_out = false;
        Poll::Ready(this.waiting.pop_front().map(Ok))
    }
}

/// Removes data that controllers do not need: names of files, with their unreadable ranges, stay on the node, since the conditions say
/// enough; usage would soon be outdated; and Kubernetes has the pods.
fn without_names(mut update: InventoryUpdate) -> InventoryUpdate {
    for volume in &mut update.volumes {
        volume.unreadable.clear();
        volume.usage = None;
        volume.pods.clear();
    }
    for health in update.drives.iter_mut().flat_map(|drive| &mut drive.health) {
        health.unreadable.clear();
    }
    update
}

/// Cuts an update into parts, in order. The receiver has the whole only with the last one: earlier parts are marked as not ready, with the
/// revision that the next builds on.
pub(crate) fn cut(mut update: InventoryUpdate) -> VecDeque<InventoryUpdate> {
    let base = if update.full {
        update.revision
    } else {
        update.since_revision
    };
    let mut pieces = pieces(std::mem::take(&mut update.volumes));
    let Some(last) = pieces.pop() else {
        return [update].into();
    };
    // A change without a base revision cannot be sent in parts.
    if pieces.is_empty() || base == 0 {
        update.volumes = pieces.into_iter().flatten().chain(last).collect();
        return [update].into();
    }
    let part = |volumes| InventoryUpdate {
        instance: update.instance.clone(),
        node_id: update.node_id.clone(),
        revision: base,
        since_revision: base,
        volumes,
        ..InventoryUpdate::default()
    };
    let mut parts: VecDeque<_> = pieces.into_iter().map(part).collect();
    parts.push_back(InventoryUpdate {
        revision: update.revision,
        ready: update.ready,
        ..part(last)
    });
    if let Some(first) = parts.front_mut() {
        *first = InventoryUpdate {
            volumes: std::mem::take(&mut first.volumes),
            revision: base,
            ready: false,
            ..update
        };
    }
    parts
}

/// Splits volumes into pieces of `PART` bytes at most, or a single larger volume.
fn pieces(volumes: Vec<Volume>) -> Vec<Vec<Volume>> {
    let mut pieces: Vec<Vec<Volume>> = Vec::new();
    let mut bytes = 0;
    for volume in volumes {
        let more = volume.encoded_len();
        match pieces.last_mut() {
            Some(piece) if bytes + more <= PART => {
                bytes += more;
                piece.push(volume);
            }
            _ => {
                bytes = more;
                pieces.push(vec![volume]);
            }
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use drivebay_service::{catalog::Catalog, inventory::Inventory};
    use tokio_stream::{StreamExt, iter};

    use super::*;

    fn volumes(range: std::ops::Range<u32>, state: &str) -> Vec<Volume> {
        let volume = |number: u32| Volume {
            id: format!("00000000-0000-4000-8000-{number:012}@n"),
            name: "x".repeat(100),
            state: state.into(),
            ..Volume::default()
        };
        range.map(volume).collect()
    }

    fn update(full: bool, since: u64, revision: u64, volumes: Vec<Volume>) -> InventoryUpdate {
        InventoryUpdate {
            instance: "a".into(),
            node_id: "n".into(),
            full,
            revision,
            since_revision: since,
            ready: true,
            volumes,
            ..InventoryUpdate::default()
        }
    }

    fn small(part: &InventoryUpdate) -> bool {
        part.volumes.iter().map(Message::encoded_len).sum::<usize>() <= PART
    }

    #[tokio::test]
    async fn names_of_files_do_not_leave_the_node() {
        let range = drivebay_proto::agent::UnreadableRange {
            files: vec!["/secret".to_owned()],
            ..Default::default()
        };
        let health = drivebay_proto::agent::DriveHealth {
            unreadable: vec![range.clone()],
            ..Default::default()
        };
        let update = InventoryUpdate {
            full: true,
            drives: vec![drivebay_proto::agent::Drive {
                id: "wwn-a".to_owned(),
                health: Some(health),
                ..Default::default()
            }],
            volumes: vec![Volume {
                id: "v@n".to_owned(),
                unreadable: vec![range],
                ..Volume::default()
            }],
            ..InventoryUpdate::default()
        };
        let sent: Vec<_> = Parts::of(iter([Ok(update)])).collect().await;
        let sent = format!("{sent:?}");
        assert!(sent.contains("wwn-a") && sent.contains("v@n"), "{sent}");
        assert!(!sent.contains("secret"), "{sent}");
    }

    #[test]
    fn what_is_small_goes_out_as_it_is() {
        for update in [
            update(true, 0, 5, volumes(0..3, "ready")),
            update(true, 0, 5, Vec::new()),
            update(false, 4, 5, Vec::new()),
            // Without a base revision.
            update(false, 0, 5, volumes(0..500, "ready")),
        ] {
            assert_eq!(cut(update.clone()), [update]);
        }
    }

    #[tokio::test]
    async fn a_receiver_knows_in_the_end_what_it_would_know_of_the_whole_and_not_before() {
        let mut gone = update(false, 5, 9, volumes(100..400, "erasing"));
        gone.removed_volumes = vec![volumes(0..1, "")[0].id.clone()];
        let updates = [update(true, 0, 5, volumes(0..300, "ready")), gone];
        let (catalog, reference) = (Catalog::default(), Catalog::default());
        let mut received = Inventory::new("n".into());
        let mut whole = Inventory::new("n".into());
        let mut parts = Parts::of(iter(updates.clone().map(Ok)));
        for update in updates {
            let mut count = 0;
            while !received.includes("a", update.revision) {
                assert_eq!(received.has_inventory(), !update.full);
                let part = parts.next().await.unwrap().unwrap();
                assert!(small(&part));
                received.apply(part, &catalog).unwrap();
                count += 1;
            }
            assert!(count > 3, "{count} parts");
            whole.apply(update, &reference).unwrap();
            assert_eq!(received.dump(&catalog), whole.dump(&reference));
        }
        assert!(parts.next().await.is_none());
    }

    #[tokio::test]
    async fn each_part_goes_out_on_its_own() {
        let mut parts = Parts::of(iter([Ok(update(true, 0, 5, volumes(0..200, "ready")))]));
        let mut context = Context::from_waker(std::task::Waker::noop());
        let ready = [(); 6].map(|()| Pin::new(&mut parts).poll_next(&mut context).is_ready());
        assert_eq!(ready, [true, false, true, false, true, false]);
    }
}
