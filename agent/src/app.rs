//! Assembles the agent: starts its parts in order, runs, and stops. Every step of a stop has a limit: running operations get 4 s, suspended
//! volumes 5 s more, and workers 2 s including their end. All limits together are 17.5 s; the service manager's are above that.

use std::{path::Path, process::ExitCode, sync::Arc, time::Duration};

use drivebay_common::{
    IdentityConfig, IdentityService,
    liveness::Liveness,
    logging::LogService,
    manager,
    metrics::{Certificate, Pages},
    tls::{Credentials, Role},
};
use drivebay_page::{Access, AgentsSource, Page, PageListen};
use drivebay_proto::{
    agent::{agent_server::AgentServer, manual_volumes_server::ManualVolumesServer},
    csi::{
        group_controller_server::GroupControllerServer, identity_server::IdentityServer,
        node_server::NodeServer,
    },
    encoded::controller_server::ControllerServer,
};
use drivebay_service::{Agents, ControllerConfig, ControllerService, in_process_channel};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{service::Routes, transport::Server};

use crate::{
    csi::node::NodeService,
    manual_volumes::ManualVolumesService,
    metrics::Metrics,
    registration::{self, RegistrationConfig},
    server,
    uplink::{self, AgentService, UplinkConfig},
};
use drivebay_cli::RunOptions;
use drivebay_config::Config;
use drivebay_discovery::{
    claim::Rules,
    udev::{self, UdevConfig},
};
use drivebay_health::{self as health, CollectedEvidence};
use drivebay_model::cause::chain;
use drivebay_node::{
    context::NodeContext,
    inventory::{Inventory, wire::Sender},
    keeper::{self, Keeper},
    lock,
    preparation::{prepare_lvm, refuse_newer_state, warn_of_mount_options, workers},
    scan_loop,
    state::{Store, underway::Underway},
    volumes::Volumes,
};
use drivebay_sys::{clock::unix_seconds, offload::offload, process, statefile, tool_namespace};

/// Quiet time that ends a batch of kernel events.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Age at which a batch of kernel events is processed even if events continue.
const AT_MOST: Duration = Duration::from_secs(2);
/// Interval of checking the certificate files.
const CERTIFICATES: Duration = Duration::from_secs(5);
/// Drives with kernel errors that may wait for a poll.
const COMPLAINTS: usize = 64;
/// Limit for making a mount namespace, which takes milliseconds unless a filesystem of an unresponsive drive is being unmounted.
const TOOL_NAMESPACE: Duration = Duration::from_secs(10);
/// Limit for locking the inventory, whose lock is held for microseconds at a time.
const ALIVE: Duration = Duration::from_secs(5);
/// Time for running operations to end when the agent stops, …
const DRAIN: Duration = Duration::from_secs(4);
/// … additional time for volumes that are suspended for a group snapshot: together more than the 8 s for which they are suspended at most,
/// unless a drive is unresponsive, …
const SUSPENDED: Duration = Duration::from_secs(5);
/// … and then time for workers, with a second more for them to end when they are killed.
const WORKERS: Duration = Duration::from_secs(1);

/// The agent did not start, or failed.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error("cannot start the async runtime")]
    Runtime(#[source] std::io::Error),
    #[error(transparent)]
    Lock(#[from] lock::LockError),
    /// An operation on a directory or file of the agent failed.
    #[error("cannot {what}")]
    Io {
        /// The operation that failed.
        what: &'static str,
        #[source]
        source: std::io::Error,
    },
    /// The state was written by a newer agent.
    #[error(transparent)]
    Newer(#[from] drivebay_node::state::newer::NewerState),
    /// The CSI socket was not served.
    #[error(
        "the CSI socket cannot be served, so the orchestrator can neither mount nor unmount volumes on this node"
    )]
    NoCsi(#[source] server::ServeError),
    /// Another socket was not served.
    #[error(transparent)]
    Serve(#[from] server::ServeError),
}

/// Runs the agent until SIGTERM or SIGINT.
pub fn run(config: Config, options: RunOptions) -> ExitCode {
    // Workers inherit it.
    if let Err(error) = process::keep_memory_out_of_core_dumps() {
        tracing::warn!(%error, "a core dump of this process would hold its memory, and with it secrets of encrypted volumes");
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(source) => return report(&AppError::Runtime(source)),
    };
    let result = runtime.block_on(serve(config, options));
    // A blocked thread must not delay the end.
    runtime.shutdown_timeout(Duration::from_millis(500));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error),
    }
}

fn report(error: &AppError) -> ExitCode {
    tracing::error!(error = %chain(error), "agent failed");
    ExitCode::FAILURE
}

async fn serve(config: Config, options: RunOptions) -> Result<(), AppError> {
    let io = |what| move |source| AppError::Io { what, source };
    let started = unix_seconds();
    let _lock = lock::acquire(&config.runtime_dir)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(io("listen for SIGTERM"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(io("listen for SIGINT"))?;

    // Before any state is read, moved aside or written.
    refuse_newer_state(&config)
        .await
        .map_err(io("read the versions of the state files"))??;

    prepare_tools(&config).await;
    warn_of_mount_options(&config).await;
    let lvm_unavailable = prepare_lvm(&config).await;
    let pool = workers(&config).await.map_err(io("start the workers"))?;

    let inventory = Arc::new(Inventory::new(config.classes.clone(), config.quarantine));
    let (keeper, keeper_requests) = Keeper::new();
    let sender = Sender {
        node: config.node_id.clone(),
        instance: uuid::Uuid::new_v4().to_string(),
        classes: config.classes.clone(),
    };
    let node = NodeContext::new(config.clone(), pool.clone(), inventory.clone(), sender);
    let volumes = Volumes::new(node.clone(), keeper);
    // Before any other job and the first scan: jobs that read or repair such a volume would wait for it, or find it damaged.
    volumes.resume_left().await;
    let evidence = CollectedEvidence::default();
    let store = Store::new(node.state_dir());
    let loaded = store.load().await;
    inventory.update(|state| {
        state.recall(loaded.known);
        state.tombstones = loaded.tombstones;
        state.overrides.clone_from(&config.health.overrides);
        state.polls = Some(config.health.clone());
        state.lvm_unavailable = lvm_unavailable;
    });
    let on_disk = inventory.remembered();
    let underway = Underway::new(&config.runtime_dir).load().await;
    let underway = underway.map_err(io("read what an earlier agent was creating"))?;
    inventory.update(|state| state.remembered.in_doubt.extend(underway));
    volumes
        .node()
        .mounts()
        .refresh()
        .map_err(|error| AppError::Io {
            what: "read mountinfo",
            source: std::io::Error::other(error),
        })?;
    volumes.load_hand_mounts().await;
    volumes.load_moves().await;
    // Before any call is served: filesystems that are mounted now may be Drivebay's.
    let memory = health::memory::PersistedEvidence::load(&node, &config.kubelet_dir).await;
    health::smart::restore(&node).await;

    // Sockets first: a configuration mistake here is reported before other parts start.
    let csi_socket = server::bind(&config.csi_socket)
        .await
        .map_err(AppError::NoCsi)?;
    let agent_socket = server::bind_if_room(&config.agent_socket).await?;

    let stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    let events = udev::watch(UdevConfig {
        debounce: DEBOUNCE,
        at_most: AT_MOST,
    })
    .map_err(io("listen for kernel events"))?;
    let (rescans, requests) = scan_loop::rescans();
    let rules = Rules {
        cluster: config.cluster.clone(),
        node: config.node_id.clone(),
        allow_loop: config.allow_loop,
        classes: config.classes.clone(),
    };
    tasks.spawn(scan_loop::run(
        node.clone(),
        rules,
        requests,
        events,
        stop.clone(),
    ));
    {
        let (volumes, stop) = (volumes.clone(), stop.clone());
        tasks.spawn(async move { volumes.erase_all(stop).await });
    }
    {
        let (volumes, stop) = (volumes.clone(), stop.clone());
        tasks.spawn(async move { volumes.zero_all(stop).await });
    }
    {
        let (volumes, stop) = (volumes.clone(), stop.clone());
        tasks.spawn(async move { volumes.move_all(stop).await });
    }
    {
        let (volumes, stop) = (volumes.clone(), stop.clone());
        tasks.spawn(async move { volumes.copy_all(stop).await });
    }
    {
        let (volumes, stop) = (volumes.clone(), stop.clone());
        tasks.spawn(async move { volumes.watch_snapshots(stop).await });
    }
    {
        let (volumes, stop) = (volumes.clone(), stop.clone());
        tasks.spawn(async move { volumes.watch_lost(stop).await });
    }
    {
        let (volumes, stop) = (volumes.clone(), stop.clone());
        tasks.spawn(async move { volumes.hold_all(stop).await });
    }
    let delete = {
        let volumes = volumes.clone();
        move |drive, uuid| {
            let volumes = volumes.clone();
            async move { volumes.delete_quarantined(&drive, uuid).await }
        }
    };
    tasks.spawn(keeper::run(
        inventory.clone(),
        config.quarantine,
        delete,
        store,
        on_disk,
        keeper_requests,
        stop.clone(),
    ));
    let (mounted, listened) = watch::channel(Vec::new());
    tasks.spawn(health::mount_watch::run(
        node.clone(),
        mounted,
        stop.clone(),
    ));
    tasks.spawn(health::fsevents::run(
        volumes.clone(),
        listened,
        stop.clone(),
    ));
    tasks.spawn(health::sampling::run(
        volumes.clone(),
        evidence.clone(),
        stop.clone(),
    ));
    tasks.spawn(memory.clone().keep(node.clone(), stop.clone()));
    let (complaints, complained) = mpsc::channel(COMPLAINTS);
    tasks.spawn(health::watch::run(
        node.clone(),
        evidence.clone(),
        memory,
        complaints,
        stop.clone(),
    ));
    tasks.spawn(health::changes::run(
        inventory.subscribe(),
        started,
        stop.clone(),
    ));
    let (acknowledger, acknowledgements) = health::Acknowledger::new();
    let (slow, acknowledged) = health::slow::Acknowledger::new();
    tasks.spawn(health::slow::run(
        volumes.clone(),
        evidence.clone(),
        acknowledged,
        stop.clone(),
    ));
    tasks.spawn(health::smart::run(
        node.clone(),
        evidence.clone(),
        complained,
        acknowledgements,
        slow,
        stop.clone(),
    ));
    tasks.spawn(health::state_dir::run(volumes.clone(), stop.clone()));
    tasks.spawn(health::checks::run(volumes.clone(), stop.clone()));
    tasks.spawn(health::unreadable::run(
        volumes.clone(),
        evidence.clone(),
        stop.clone(),
    ));

    // Only to distinguish two machines of one name; empty on a machine without one.
    let machine_id = statefile::read_text(Path::new("/etc/machine-id"), 64)
        .map(|text| text.trim().to_owned())
        .unwrap_or_default();
    let manual_rescans = rescans.clone();
    let agent = AgentService::new(
        volumes.clone(),
        evidence.clone(),
        rescans,
        acknowledger,
        machine_id,
    );
    let agents = options.headless.then(|| {
        let router = Server::builder().add_service(AgentServer::new(agent.clone()));
        Agents::single(in_process_channel(router))
    });
    // Ready means that every served interface can respond: the Controller service receives the first scan a moment later than the agent
    // itself.
    let ready = agents
        .as_ref()
        .map_or_else(|| ready(&inventory, &tasks, &stop), Agents::ready);
    let identity = IdentityService::new(IdentityConfig {
        driver_name: config.driver_name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        // A property of the plugin as deployed, not of this process: CSI requires the same response from all of them.
        controller: options.headless || config.controller.is_some(),
        ready: ready.clone(),
    });
    let mut csi = Routes::new(IdentityServer::new(identity)).add_service(NodeServer::new(
        NodeService::new(volumes.clone(), options.health_api),
    ));
    if let Some(agents) = agents {
        let source = Arc::new(AgentsSource::host(agents.clone(), config.node_id.clone()));
        if options.page != PageListen::Off {
            let page = Page::new(source, Access::Open, stop.clone());
            let listen = options.page.clone();
            tasks.spawn(drivebay_page::http::serve(
                listen,
                page,
                false,
                stop.clone(),
            ));
        }
        let controller = ControllerService::new(
            ControllerConfig {
                driver_name: config.driver_name.clone(),
                health_api: options.health_api,
                attach: false,
            },
            agents,
        );
        csi = csi
            .add_service(GroupControllerServer::new(controller.clone()))
            .add_service(ControllerServer::new(controller));
    }
    let liveness = liveness(&config, &inventory);
    let certificate = Certificate::default();
    let exposed = Arc::new(Metrics::new(
        volumes.clone(),
        evidence,
        ready.clone(),
        certificate.clone(),
    ));
    let pages = Pages::all(exposed, liveness.clone());
    for (listen, pages) in [(&config.probes, pages.probes()), (&config.metrics, pages)] {
        tasks.spawn(drivebay_common::metrics::serve(
            listen.clone(),
            pages,
            stop.clone(),
        ));
    }
    tasks.spawn(dial_controllers(
        config.clone(),
        agent.clone(),
        certificate,
        stop.clone(),
    ));
    let manual_volumes = ManualVolumesService::new(volumes.clone(), manual_rescans);
    let agent_server = tokio::spawn(server::serve_once_room(
        Routes::new(AgentServer::new(agent))
            .add_service(ManualVolumesServer::new(manual_volumes))
            .add_service(LogService::server()),
        agent_socket,
        config.agent_socket.clone(),
        stop.clone(),
    ));
    let csi_server = tokio::spawn(server::serve(csi, csi_socket, stop.clone()));
    tasks.spawn(manager::notify_ready(
        ready,
        "looking at the drives",
        format!("serving node {}", config.node_id),
        stop.clone(),
    ));
    tasks.spawn(manager::keep_alive(liveness, stop.clone()));
    tracing::info!(node = %config.node_id, csi = %config.csi_socket.display(), headless = options.headless, "serving");

    let registering = CancellationToken::new();
    let registered = config.registration_dir.clone().map(|dir| {
        tokio::spawn(registration::serve(
            RegistrationConfig {
                dir,
                driver_name: config.driver_name.clone(),
                csi_socket: config.csi_socket.clone(),
                kubelet_csi_socket: config.kubelet_csi_socket.clone(),
                backoff: RegistrationConfig::BACKOFF,
            },
            registering.clone(),
        ))
    });

    tokio::select! {
        _ = terminate.recv() => tracing::info!("received SIGTERM; stopping"),
        _ = interrupt.recv() => tracing::info!("received SIGINT; stopping"),
    }
    manager::notify_stopping().await;
    // The kubelet first, so that it sends no more requests; then the sockets; then running operations.
    registering.cancel();
    if let Some(task) = registered
        && let Ok(Ok(Err(error))) = tokio::time::timeout(Duration::from_secs(1), task).await
    {
        tracing::warn!(error = %chain(&error), "kubelet registration failed");
    }
    stop.cancel();
    if !volumes.drain(DRAIN).await {
        tracing::warn!("volume operations still running at shutdown; the next start resumes them");
    }
    // The worker that suspended volumes resumes them; a killed one leaves them suspended until the next start.
    if !volumes.until_resumed(SUSPENDED).await {
        tracing::error!("volumes may be left suspended at shutdown; the next start resumes them");
    }
    pool.shutdown(WORKERS).await;
    for server in [agent_server, csi_server] {
        if let Ok(Ok(Err(error))) = tokio::time::timeout(Duration::from_secs(1), server).await {
            tracing::warn!(error = %chain(&error), "gRPC server failed");
        }
    }
    tasks.close();
    let _ = tokio::time::timeout(Duration::from_secs(1), tasks.wait()).await;
    tracing::info!("agent stopped; mounts unchanged");
    Ok(())
}

/// Connects to the configured controllers, if any. Unusable certificates, such as expired ones, are waited for: the volumes of this node
/// need no controller.
async fn dial_controllers(
    config: Config,
    agent: AgentService,
    certificate: Certificate,
    stop: CancellationToken,
) {
    let Some(controller) = config.controller else {
        return;
    };
    let mut logged = String::new();
    let credentials = match controller.tls {
        None => None,
        Some(files) => loop {
            match Credentials::load(files.clone(), Role::Agent).await {
                Ok(credentials) => break Some(credentials),
                Err(error) => {
                    let why = chain(&error);
                    if why != logged {
                        tracing::error!(
                            error = why,
                            "invalid certificates; not connecting to controllers"
                        );
                        logged = why;
                    }
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(CERTIFICATES) => {}
            }
        },
    };
    if let Some(credentials) = &credentials {
        certificate.of(credentials);
        if let Some(certified) = credentials.own_node()
            && certified != config.node_id
        {
            tracing::error!(
                certified,
                node = config.node_id,
                "certificate names another node; controllers will refuse this agent: set [node] name, or issue one with `drivebay-controller certs node`"
            );
        }
        tokio::spawn(credentials.clone().follow(CERTIFICATES, stop.clone()));
    }
    let config = UplinkConfig {
        targets: controller.targets,
        credentials,
        token: controller.token,
        drive_verbs: controller.drive_verbs,
    };
    uplink::run(config, agent, stop).await;
}

/// Makes the namespace in which mkfs and fsck can access one drive only. If it fails, they work with copies of the host's mounts.
async fn prepare_tools(config: &Config) {
    let dir = config.runtime_dir.clone();
    let made = offload("tool-namespace", TOOL_NAMESPACE, move || {
        tool_namespace::prepare(&dir)
    });
    if let Err(error) = made.await.and_then(|made| made) {
        tracing::warn!(
            error = %chain(&error),
            "cannot make a mount namespace for tools; mkfs or fsck may wait for an unresponsive drive of another volume"
        );
    }
}

/// Returns the liveness check: the agent responds on its CSI socket, and its inventory can be locked. The state of drives is not included:
/// a restart repairs none, and calls for other drives are still served.
fn liveness(config: &Config, inventory: &Arc<Inventory>) -> Liveness {
    let inventory = inventory.clone();
    // A locked inventory must block one thread, not one per check.
    let one = Arc::new(tokio::sync::Semaphore::new(1));
    Liveness::new(config.csi_socket.clone(), move || {
        let (inventory, one) = (inventory.clone(), one.clone());
        async move {
            let permit = one
                .acquire_owned()
                .await
                .map_err(|error| error.to_string())?;
            let lock = move || {
                inventory.health(|_| ());
                drop(permit);
            };
            let locked = offload("alive", ALIVE, lock).await;
            locked.map_err(|error| error.to_string())
        }
    })
}

/// Returns a receiver that becomes true when the first scan is complete.
fn ready(
    inventory: &Arc<Inventory>,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> watch::Receiver<bool> {
    let (sender, receiver) = watch::channel(false);
    let mut snapshots = inventory.subscribe();
    let stop = stop.clone();
    tasks.spawn(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            is_ready = async { snapshots.wait_for(|snapshot| snapshot.ready).await.is_ok() } => {
                sender.send_replace(is_ready);
                stop.cancelled().await;
            }
        }
    });
    receiver
}
