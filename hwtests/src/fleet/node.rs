//! One simulated node: a machine with drives that outlive its agent, and the agent's service over them.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use drivebay_proto::{
    VolumeId,
    agent::{agent_server::Agent, *},
    names,
};
use tokio::sync::{mpsc, watch};
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::{
    contents::{Contents, Refused},
    feed::{Sender, Snapshot},
    journal::Journal,
};

/// Updates that wait for a slow reader; behind that, changes coalesce, as an agent's do.
const QUEUE: usize = 2;
/// A deleted volume's space is free again after this.
const ERASE: Duration = Duration::from_secs(2);

/// A machine: what is there whether or not its agent runs.
#[derive(Debug)]
pub struct Machine {
    node: String,
    journal: Option<Arc<Journal>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    machine_id: String,
    // Which life of the agent may change the contents.
    life: u64,
    contents: Arc<Contents>,
}

impl Machine {
    /// A machine whose agent has not run yet.
    pub fn new(
        node: String,
        machine_id: String,
        contents: Contents,
        journal: Option<Arc<Journal>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            node,
            journal,
            state: Mutex::new(State {
                machine_id,
                life: 0,
                contents: Arc::new(contents),
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is on its drives now.
    pub fn contents(&self) -> Arc<Contents> {
        self.state().contents.clone()
    }

    /// Gives it another machine id, which its agent tells from its next life on.
    pub fn set_machine_id(&self, machine_id: String) {
        self.state().machine_id = machine_id;
    }
}

/// One life of a machine's agent. Clones are the same agent.
#[derive(Debug, Clone)]
pub struct SimNode {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    machine: Arc<Machine>,
    machine_id: String,
    life: u64,
    sender: Sender,
    first: Snapshot,
    now: watch::Sender<Snapshot>,
    // Creations are carried out and not answered.
    held: watch::Sender<bool>,
    // Changes are not told.
    hushed: watch::Sender<bool>,
    // Counts the times the first snapshot was told again.
    replayed: watch::Sender<u64>,
    streams: AtomicUsize,
    over: CancellationToken,
}

/// One open stream of the inventory, counted while it is.
struct Open(SimNode);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.inner.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SimNode {
    /// Starts a life: a new instance at revision 1. A former life of the machine changes nothing any more.
    pub fn start(machine: &Arc<Machine>) -> Self {
        let (life, machine_id, contents) = {
            let mut state = machine.state();
            state.life += 1;
            (state.life, state.machine_id.clone(), state.contents.clone())
        };
        let first = Snapshot {
            revision: 1,
            contents,
        };
        let inner = Inner {
            machine: machine.clone(),
            machine_id,
            life,
            sender: Sender {
                node: machine.node.clone(),
                instance: Uuid::new_v4().to_string(),
            },
            now: watch::Sender::new(first.clone()),
            first,
            held: watch::Sender::new(false),
            hushed: watch::Sender::new(false),
            replayed: watch::Sender::new(0),
            streams: AtomicUsize::new(0),
            over: CancellationToken::new(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Ends this life: its streams end, and what waits for an answer gets none.
    pub fn end(&self) {
        self.inner.over.cancel();
    }

    /// Creations are carried out and not answered, from now on.
    pub fn hold_create(&self) {
        self.inner.held.send_replace(true);
    }

    /// What happens is not told in the inventory, from now on.
    pub fn hush(&self) {
        self.inner.hushed.send_replace(true);
    }

    /// Answers and tells what was held back.
    pub fn go_on(&self) {
        self.inner.held.send_replace(false);
        self.inner.hushed.send_replace(false);
    }

    /// Tells this life's first snapshot again on every stream, though things have changed since.
    pub fn replay_old_snapshot(&self) {
        // So that it is old in any case.
        self.publish(|_| true);
        self.inner.replayed.send_modify(|count| *count += 1);
    }

    /// How many controllers follow its inventory.
    pub fn streams(&self) -> usize {
        self.inner.streams.load(Ordering::Relaxed)
    }

    /// The id of a volume of this node.
    pub fn id(&self, uuid: Uuid) -> String {
        self.inner.sender.id(uuid)
    }

    /// Changes the contents and tells of it, if `change` says that it did something; the revision that shows it.
    pub fn publish(&self, change: impl FnOnce(&mut Contents) -> bool) -> u64 {
        let inner = &self.inner;
        let mut state = inner.machine.state();
        if state.life == inner.life {
            let mut contents = Contents::clone(&state.contents);
            if change(&mut contents) {
                let contents = Arc::new(contents);
                if let Some(journal) = &inner.machine.journal {
                    // A drive that cannot be written is not what is simulated.
                    journal
                        .note(&inner.machine.node, &state.contents, &contents)
                        .expect("the volumes file");
                }
                state.contents = contents.clone();
                // Under the lock, so that revisions come in order.
                inner.now.send_modify(|now| {
                    now.revision += 1;
                    now.contents = contents;
                });
            }
        }
        inner.now.borrow().revision
    }

    fn change<T>(
        &self,
        change: impl FnOnce(&mut Contents) -> Result<(T, bool), Refused>,
    ) -> Result<(T, u64), Status> {
        if self.inner.over.is_cancelled() {
            return Err(Status::unavailable("this agent has ended"));
        }
        let mut result = None;
        let revision = self.publish(|contents| match change(contents) {
            Ok((value, changed)) => {
                result = Some(Ok(value));
                changed
            }
            Err(refused) => {
                result = Some(Err(refused));
                false
            }
        });
        match result {
            Some(Ok(value)) => Ok((value, revision)),
            Some(Err(refused)) => Err(refused.into()),
            None => Err(Status::unavailable("a newer agent runs on this machine")),
        }
    }

    fn volume(&self, uuid: Uuid) -> Option<Volume> {
        let now = self.inner.now.borrow();
        let volume = now.contents.volumes.get(&uuid)?;
        Some(self.inner.sender.volume(uuid, volume))
    }

    fn uuid(&self, id: &str) -> Option<Uuid> {
        let id: VolumeId = id.parse().ok()?;
        (id.node == self.inner.sender.node).then_some(id.uuid)
    }

    /// Frees the space of a deleted volume after a while.
    pub fn erase_later(&self, uuid: Uuid) {
        let this = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = this.inner.over.cancelled() => {}
                () = tokio::time::sleep(ERASE) => {
                    this.publish(|contents| contents.erase(&uuid));
                }
            }
        });
    }

    /// Tells the inventory until the reader goes away, or this life ends.
    async fn tell(self, updates: mpsc::Sender<Result<InventoryUpdate, Status>>) {
        let inner = &self.inner;
        inner.streams.fetch_add(1, Ordering::Relaxed);
        let _open = Open(self.clone());
        let mut now = inner.now.subscribe();
        let mut hushed = inner.hushed.subscribe();
        let mut replayed = inner.replayed.subscribe();
        let mut last = now.borrow_and_update().clone();
        let mut update = inner.sender.full(&last);
        loop {
            let sent = tokio::select! {
                () = inner.over.cancelled() => return,
                sent = updates.send(Ok(update)) => sent,
            };
            if sent.is_err() {
                return;
            }
            update = tokio::select! {
                // What has changed comes before the snapshot that is older than it.
                biased;
                () = inner.over.cancelled() => return,
                () = updates.closed() => return,
                _ = changed(&mut now, &mut hushed) => {
                    let next = now.borrow_and_update().clone();
                    let update = inner.sender.changes(&last, &next);
                    last = next;
                    update
                }
                _ = replayed.changed() => inner.sender.full(&inner.first),
            };
        }
    }
}

/// Waits for a change that may be told.
async fn changed(
    now: &mut watch::Receiver<Snapshot>,
    hushed: &mut watch::Receiver<bool>,
) -> Result<(), watch::error::RecvError> {
    // Not seen yet: it is looked at when it is told.
    now.changed().await?;
    now.mark_changed();
    hushed.wait_for(|hushed| !hushed).await?;
    Ok(())
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Self {
        let message = refused.to_string();
        match refused {
            Refused::Different { .. } => Self::already_exists(message),
            Refused::NoClass { .. } => Self::failed_precondition(message),
            Refused::NoRoom { .. } => Self::resource_exhausted(message),
            Refused::NoVolume { .. } => Self::not_found(message),
            Refused::OverLimit { .. } => Self::out_of_range(message),
        }
    }
}

type Answer<T> = Result<Response<T>, Status>;
type Updates<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Agent for SimNode {
    async fn hello(&self, _: Request<HelloRequest>) -> Answer<HelloResponse> {
        Ok(Response::new(HelloResponse {
            node_id: self.inner.sender.node.clone(),
            instance: self.inner.sender.instance.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine_id: self.inner.machine_id.clone(),
            protocol: names::AGENT_PROTOCOL,
            oldest_protocol: names::OLDEST_AGENT_PROTOCOL,
            features: Vec::new(),
        }))
    }

    async fn refused(&self, request: Request<RefusedRequest>) -> Answer<RefusedResponse> {
        let (node, reason) = (&self.inner.sender.node, request.into_inner().reason);
        tracing::error!(node, reason, "a controller does not let this agent in");
        Ok(Response::new(RefusedResponse {}))
    }

    type WatchInventoryStream = Updates<InventoryUpdate>;

    async fn watch_inventory(
        &self,
        _: Request<WatchInventoryRequest>,
    ) -> Answer<Self::WatchInventoryStream> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        tokio::spawn(self.clone().tell(sender));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Answer<CreateVolumeResponse> {
        let request = request.into_inner();
        let (uuid, revision) = self.change(|contents| {
            let before = contents.volumes.len();
            let uuid = contents.create(&request)?;
            Ok((uuid, contents.volumes.len() > before))
        })?;
        let mut held = self.inner.held.subscribe();
        tokio::select! {
            _ = held.wait_for(|held| !held) => {}
            () = self.inner.over.cancelled() => {
                return Err(Status::unavailable("this agent has ended"));
            }
        }
        Ok(Response::new(CreateVolumeResponse {
            volume: self.volume(uuid),
            revision,
        }))
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Answer<DeleteVolumeResponse> {
        let id = request.into_inner().id;
        let uuid = self.uuid(&id);
        let (deleted, revision) = self.change(|contents| {
            let deleted = uuid.filter(|uuid| contents.delete(uuid));
            Ok((deleted, deleted.is_some()))
        })?;
        if let Some(uuid) = deleted {
            self.erase_later(uuid);
        }
        Ok(Response::new(DeleteVolumeResponse { revision }))
    }

    async fn expand_volume(
        &self,
        request: Request<ExpandVolumeRequest>,
    ) -> Answer<ExpandVolumeResponse> {
        let request = request.into_inner();
        let uuid = self.uuid(&request.id).unwrap_or_default();
        let ((), revision) = self.change(|contents| {
            let changed = contents.expand(&uuid, &request)?;
            Ok(((), changed))
        })?;
        Ok(Response::new(ExpandVolumeResponse {
            volume: self.volume(uuid),
            revision,
        }))
    }

    async fn rescan(&self, _: Request<RescanRequest>) -> Answer<RescanResponse> {
        let revision = self.inner.now.borrow().revision;
        Ok(Response::new(RescanResponse { revision }))
    }

    type WipeDriveStream = Updates<WipeDriveProgress>;

    async fn wipe_drive(&self, _: Request<WipeDriveRequest>) -> Answer<Self::WipeDriveStream> {
        Err(Status::unimplemented("there is no drive to wipe"))
    }

    async fn adopt_drive(&self, _: Request<AdoptDriveRequest>) -> Answer<AdoptDriveResponse> {
        Err(Status::unimplemented("there is no drive to adopt"))
    }
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt;

    use super::*;
    use crate::{GIB, fleet::Plan};

    fn machine(volumes: usize) -> Arc<Machine> {
        let plan = Plan {
            volumes,
            ..Plan::default()
        };
        let contents = Contents::planned(&plan, 0);
        Machine::new(plan.node(0), plan.machine_id(0), contents, None)
    }

    async fn told(node: &SimNode) -> Updates<InventoryUpdate> {
        let request = Request::new(WatchInventoryRequest {});
        node.watch_inventory(request).await.unwrap().into_inner()
    }

    async fn create(node: &SimNode, name: &str) -> Answer<CreateVolumeResponse> {
        node.create_volume(Request::new(CreateVolumeRequest {
            name: name.into(),
            class: "nvme".into(),
            required_bytes: GIB,
            mode: "mount".into(),
            ..CreateVolumeRequest::default()
        }))
        .await
    }

    #[tokio::test]
    async fn changes_follow_from_the_snapshot_and_say_no_more() {
        let node = SimNode::start(&machine(3));
        let mut updates = told(&node).await;
        let full = updates.next().await.unwrap().unwrap();
        assert!(full.full && full.ready);
        assert_eq!((full.volumes.len(), full.drives.len()), (3, 8));

        let made = create(&node, "a").await.unwrap().into_inner();
        let delta = updates.next().await.unwrap().unwrap();
        assert!(!delta.full);
        assert_eq!(delta.since_revision, full.revision);
        assert_eq!(delta.revision, made.revision);
        assert_eq!(delta.volumes, [made.volume.unwrap()]);
        assert_eq!(delta.drives.len(), 1);
    }

    #[tokio::test]
    async fn a_replayed_snapshot_is_older_than_what_was_told_before_it() {
        let node = SimNode::start(&machine(1));
        let mut updates = told(&node).await;
        let mut revisions = Vec::new();
        for step in 0..3 {
            let update = updates.next().await.unwrap().unwrap();
            revisions.push((update.full, update.revision));
            if step == 0 {
                node.replay_old_snapshot();
            }
        }
        assert_eq!(revisions, [(true, 1), (false, 2), (true, 1)]);
    }

    #[tokio::test]
    async fn a_held_creation_is_done_but_neither_answered_nor_told_until_it_may_go_on() {
        let machine = machine(0);
        let node = SimNode::start(&machine);
        let mut updates = told(&node).await;
        updates.next().await;
        node.hold_create();
        node.hush();
        let mut answer = Box::pin(create(&node, "a"));
        tokio::select! {
            biased;
            _ = &mut answer => panic!("it was answered"),
            _ = updates.next() => panic!("it was told"),
            () = tokio::task::yield_now() => {}
        }
        assert_eq!(machine.contents().volumes.len(), 1);
        node.go_on();
        answer.await.unwrap();
        assert_eq!(updates.next().await.unwrap().unwrap().volumes.len(), 1);
    }

    #[tokio::test]
    async fn a_new_life_has_the_drives_of_the_former_one_which_changes_nothing_any_more() {
        let machine = machine(2);
        let former = SimNode::start(&machine);
        create(&former, "a").await.unwrap();
        let next = SimNode::start(&machine);
        assert!(create(&former, "b").await.is_err());
        let full = told(&next).await.next().await.unwrap().unwrap();
        assert_eq!((full.revision, full.volumes.len()), (1, 3));
        assert_ne!(full.instance, former.inner.sender.instance);

        let mut updates = told(&next).await;
        updates.next().await;
        next.end();
        assert!(updates.next().await.is_none());
        assert!(create(&next, "c").await.is_err());
    }
}
