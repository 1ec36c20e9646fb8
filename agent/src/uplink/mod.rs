//! The agent's side of its sessions with controllers: it connects to every replica, then serves on the connection.
//!
//! `targets` computes the connections to have, purely; `dial` opens one and serves on it until it ends; `remote` limits the calls of a
//! controller, `parts` sends large inventories in parts; `service` is the service itself, also used by the agent's own socket.

mod counters;
mod dial;
mod latency;
mod moves;
pub mod parts;
mod remote;
pub mod service;
mod snapshots;
mod targets;
mod token;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use drivebay_common::tls::Credentials;
use drivebay_proto::agent::agent_server::Agent;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::Status;

pub use service::AgentService;

use dial::{Outcome, dial};
use drivebay_config::{DriveVerb, Target};
use targets::{Slot, plan};

/// Interval of resolving names, give or take a quarter: replicas are added and removed.
const RESOLVE_EVERY: Duration = Duration::from_secs(15);
/// Limit of resolving a name.
const RESOLVE_DEADLINE: Duration = Duration::from_secs(5);
/// Longest delay before connecting again, before its random reduction; the first is [`FIRST_PAUSE`].
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Minimum duration of a session that resets the delay.
const LASTED: Duration = Duration::from_secs(10);
/// Longest delay if one virtual address leads to replicas that have a session already, or if one refuses this agent …
const AGAIN_PAUSE: Duration = Duration::from_secs(30);
/// … and the first such delay.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);
/// Limit for closing sessions when the agent stops.
const DRAIN: Duration = Duration::from_secs(2);

/// Addresses of the controllers, and the agent's credentials.
#[derive(Debug, Clone)]
pub struct UplinkConfig {
    /// Targets to connect to.
    pub targets: Vec<Target>,
    /// Certificates; None only if all targets are unix sockets.
    pub credentials: Option<Credentials>,
    /// File of the token that proves to a controller which node this is; read at each use, since the kubelet renews it.
    pub token: Option<PathBuf>,
    /// Operations on drives that the controllers may request.
    pub drive_verbs: BTreeSet<DriveVerb>,
}

/// State that the sessions share.
#[derive(Debug)]
struct Shared {
    credentials: Option<Credentials>,
    token: Option<PathBuf>,
    drive_verbs: BTreeSet<DriveVerb>,
    /// The slot that serves each replica.
    met: Mutex<BTreeMap<String, Slot>>,
    /// The largest number of replicas that a controller announced.
    announced: watch::Sender<u32>,
}

impl Shared {
    /// Assigns the replica to this slot; false if another slot serves it.
    fn meet(&self, replica: &str, slot: &Slot) -> bool {
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        match met.get(replica) {
            Some(other) if other != slot => false,
            _ => {
                met.insert(replica.to_owned(), slot.clone());
                true
            }
        }
    }

    /// PERMISSION_DENIED if the configuration does not allow the operation to controllers.
    fn allows(&self, verb: DriveVerb) -> Result<(), Status> {
        if self.drive_verbs.contains(&verb) {
            return Ok(());
        }
        Err(Status::permission_denied(
            "`drive-verbs` of [controller] in this node's configuration does not allow it; a person on the node can do it, with `drivebay-agent`",
        ))
    }

    fn part(&self, slot: &Slot) {
        self.met
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|_, other| other != slot);
    }
}

/// Serves `service` to all controllers until `stop`. Retries without end.
pub async fn run<S: Agent + Clone>(config: UplinkConfig, service: S, stop: CancellationToken) {
    let shared = Arc::new(Shared {
        credentials: config.credentials,
        token: config.token,
        drive_verbs: config.drive_verbs,
        met: Mutex::default(),
        announced: watch::Sender::new(1),
    });
    let tasks = TaskTracker::new();
    let mut announced = shared.announced.subscribe();
    let mut resolved: BTreeMap<String, BTreeSet<SocketAddr>> = BTreeMap::new();
    let mut slots: BTreeMap<Slot, watch::Sender<bool>> = BTreeMap::new();
    let sockets = config.targets.iter().filter_map(|target| match target {
        Target::Unix(path) => Some(path.clone()),
        Target::Tcp { .. } => None,
    });
    let sockets: BTreeSet<PathBuf> = sockets.collect();
    loop {
        for target in &config.targets {
            resolve(target, &mut resolved).await;
        }
        let wanted = plan(&resolved, &sockets, *announced.borrow_and_update());
        // An open session is not ended because a name resolves differently now; it is not opened again.
        for (slot, keep) in &slots {
            keep.send_if_modified(|keep| std::mem::replace(keep, wanted.contains(slot)) != *keep);
        }
        slots.retain(|_, keep| keep.receiver_count() > 0);
        for slot in wanted {
            if !slots.contains_key(&slot) {
                let (keep, wanted) = watch::channel(true);
                slots.insert(slot.clone(), keep);
                tasks.spawn(hold(
                    slot,
                    shared.clone(),
                    service.clone(),
                    wanted,
                    stop.clone(),
                ));
            }
        }
        let pause = RESOLVE_EVERY.mul_f64(fastrand::f64().mul_add(0.5, 0.75));
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(pause) => {}
            _ = announced.changed() => {}
        }
    }
    tasks.close();
    let _ = tokio::time::timeout(DRAIN, tasks.wait()).await;
}

// Resolves a target, and keeps the previous addresses if that fails.
async fn resolve(target: &Target, resolved: &mut BTreeMap<String, BTreeSet<SocketAddr>>) {
    let Target::Tcp { host, port } = target else {
        return;
    };
    let lookup = tokio::net::lookup_host((host.as_str(), *port));
    let result: Result<BTreeSet<SocketAddr>, String> =
        match tokio::time::timeout(RESOLVE_DEADLINE, lookup).await {
            Ok(Ok(addresses)) => Ok(addresses.collect()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {} s", RESOLVE_DEADLINE.as_secs())),
        };
    match result {
        Ok(addresses) if addresses.is_empty() => {
            tracing::warn!(controller = %target, "controller name resolved to no address");
        }
        Ok(addresses) => {
            resolved.insert(target.to_string(), addresses);
        }
        Err(error) => {
            tracing::warn!(
                controller = %target,
                error,
                known = resolved.get(&target.to_string()).map_or(0, BTreeSet::len),
                "cannot resolve the controller's name; using the previous addresses"
            );
        }
    }
}

/// Keeps one connection to a controller until `wanted` is false or `stop`: connects, serves calls, and reconnects after a random pause
/// whose limit doubles with each attempt.
async fn hold<S: Agent + Clone>(
    slot: Slot,
    shared: Arc<Shared>,
    service: S,
    mut wanted: watch::Receiver<bool>,
    stop: CancellationToken,
) {
    let mut longest = FIRST_PAUSE;
    let mut logged = String::new();
    while *wanted.borrow_and_update() && !stop.is_cancelled() {
        let began = Instant::now();
        let outcome = dial(&slot, &shared, service.clone(), &stop).await;
        shared.part(&slot);
        if began.elapsed() >= LASTED {
            longest = FIRST_PAUSE;
        }
        let limit = match &outcome {
            Outcome::Stopped => return,
            Outcome::MetAlready | Outcome::Refused => AGAIN_PAUSE,
            Outcome::Ended(_) | Outcome::Failed(_) => LONGEST_PAUSE,
        };
        if matches!(outcome, Outcome::Refused | Outcome::MetAlready) {
            // These do not change within seconds.
            longest = longest.max(REFUSED_PAUSE);
        }
        match &outcome {
            Outcome::Ended(why) => {
                tracing::warn!(controller = %slot, reason = why, "controller session ended");
                logged.clear();
            }
            // Logged once, and again for another reason.
            Outcome::Failed(why) if *why != logged => {
                tracing::warn!(controller = %slot, reason = why, "cannot open a session with the controller; will retry");
                logged.clone_from(why);
            }
            _ => {}
        }
        // A restarting controller is lost by all agents at the same moment; a random delay spreads their return.
        let pause = longest.min(limit).mul_f64(fastrand::f64());
        longest = (longest * 2).min(limit);
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
            _ = wanted.wait_for(|wanted| !wanted) => return,
        }
    }
}
