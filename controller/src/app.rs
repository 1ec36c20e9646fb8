//! `drivebay-controller run`: accepts or dials agents, serves CSI, and ends within a bounded time.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

#[cfg(feature = "kubernetes")]
use drivebay_proto::names;
use drivebay_proto::{
    controller::cluster_server::ClusterServer,
    csi::{group_controller_server::GroupControllerServer, identity_server::IdentityServer},
    encoded::controller_server::ControllerServer,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::service::Routes;

use crate::{
    cluster::ClusterService,
    config::{ConfigError, DriveObjects, Entrance, RunOptions},
    dial, files, last_known, limits,
    listen::{self, Announcement, ListenError, Listener, Security},
    liveness::Liveness,
    logging::LogService,
    manager,
    metrics::{
        self, Certificate, Pages, cluster::Cluster, drive_objects::DriveObjectWrites,
        drive_tasks::DriveTaskCounts,
    },
    settings::{self, Settings, SettingsError},
    socket::{self, BindError},
    tls::{Credentials, Role, TlsError},
    undelivered_deletes,
};
use drivebay_page::{Access, AgentsSource, Page, PageListen};
#[cfg(feature = "kubernetes")]
use drivebay_service::tokens::{ApiServer, Expected};
use drivebay_service::{
    Agents, ControllerConfig, ControllerService, IdentityConfig, IdentityService,
    agents::{ForgottenNodes, duplicates},
    audit::{Audit, AuditError},
    notes::{Notes, NotesError},
    tokens::Tokens,
};

/// Time for running calls to finish after a signal.
const DRAIN: Duration = Duration::from_secs(10);
/// Probe reports ready after this time even without an agent: CSI calls return UNAVAILABLE themselves, and
/// restarting the controller would not connect an agent.
const STARTING: Duration = Duration::from_secs(15);
/// Timeout of connecting to an agent's socket, before it is retried.
const CONNECT: Duration = Duration::from_secs(5);
/// Interval of checking the certificates and the config file for changes.
const REREAD: Duration = Duration::from_secs(5);
/// Interval of dropping forgotten nodes.
const FORGET_EVERY: Duration = Duration::from_secs(1);
/// Timeout of loading the state directory, which takes seconds for thousands of nodes.
const LOAD_DEADLINE: Duration = Duration::from_secs(60);
/// Timeout of saving the state directory at the end.
const SAVE_DEADLINE: Duration = Duration::from_secs(20);

/// Reason why the controller ended with an error.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The directory of --socket cannot be created.
    #[error("cannot make {path}, where the command line's socket is to be; see --socket")]
    SocketDir {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The config file cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The cluster's API server, for `--kubernetes` or `--agent-service-account`, cannot be configured.
    #[cfg(feature = "kubernetes")]
    #[error(transparent)]
    Kubernetes(#[from] crate::kubernetes::ClientError),
    #[cfg(not(feature = "kubernetes"))]
    #[error(
        "--kubernetes and --agent-service-account need a controller that was built with the feature kubernetes"
    )]
    NoKubernetes,
    #[error(transparent)]
    Notes(#[from] NotesError),
    /// The state directory cannot be loaded.
    #[error("cannot read the state directory; see --state-dir")]
    State(#[source] io::Error),
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The handlers of SIGTERM and SIGINT cannot be installed.
    #[error("cannot wait for signals")]
    Signals(#[source] io::Error),
    #[error("serving CSI has failed")]
    Serve(#[from] tonic::transport::Error),
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// An option, file or socket cannot be used, or serving failed.
pub async fn run(options: RunOptions) -> Result<(), RunError> {
    let path = options.csi_path(std::env::var("CSI_ENDPOINT").ok())?;
    options.check_http()?;
    match limits::raise_open_files() {
        Ok(files) => tracing::info!(files, "open file limit, one file for each agent"),
        // A small cluster does not need a higher limit.
        Err(error) => tracing::warn!(%error, "cannot raise the open file limit"),
    }
    let mut terminate = signal(SignalKind::terminate()).map_err(RunError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(RunError::Signals)?;
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    serve(options, path, stop).await
}

/// Serves CSI on this socket until `stop`; afterwards, running calls have ten seconds and tasks twenty to end.
pub async fn serve(
    options: RunOptions,
    path: PathBuf,
    stop: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let bound = socket::bind(&path).await?;
    let admin = bind_admin(&options.socket).await?;
    let ending = CancellationToken::new();
    let tasks = TaskTracker::new();
    let certificate = Certificate::default();
    let agents = match (&options.agent_socket, options.entrance()?) {
        (Some(socket), _) => Agents::single(dial::reconnecting(socket.clone(), CONNECT)),
        (None, Some(entrance)) => {
            open_to_agents(&options, entrance, &certificate, &tasks, &ending).await?
        }
        (None, None) => return Err(ConfigError::NoAgents.into()),
    };
    if let Some(path) = &options.audit_log {
        agents.audit_to(Audit::open(path)?);
    }
    let expected = expected(&options, &agents, &tasks, &ending).await?;
    let ready = ready_or_late(agents.ready(), expected);
    let drive_objects = drive_objects(&options, &agents, &tasks, &ending).await?;
    let drive_tasks = drive_tasks(&options, &agents, &tasks, &ending).await?;
    let exposed = Cluster::new(agents.clone(), ready.clone(), certificate)
        .with_drive_objects(drive_objects)
        .with_drive_tasks(drive_tasks);
    let liveness = Liveness::new(path.clone(), async || Ok(()));
    let pages = Pages::all(Arc::new(exposed), liveness.clone());
    let (metrics, probes) = (options.metrics.clone(), options.probes.clone());
    tasks.spawn(metrics::serve(probes, pages.probes(), ending.clone()));
    tasks.spawn(metrics::serve(metrics, pages, ending.clone()));
    serve_page(&options, &agents, &tasks, &ending).await?;
    let identity = IdentityService::new(IdentityConfig {
        driver_name: options.driver_name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        controller: true,
        ready,
    });
    let controller = ControllerService::new(
        ControllerConfig {
            driver_name: options.driver_name.clone(),
            health_api: options.health_api,
            attach: options.attach,
        },
        agents.clone(),
    );
    let cluster = ClusterService::new(agents, options.driver_name);
    let commands = Routes::new(ClusterServer::new(cluster)).add_service(LogService::server());
    let end = ending.clone().cancelled_owned();
    tasks.spawn(async move {
        if let Err(error) = socket::serve(commands, admin, end, CONNECT).await {
            tracing::error!(%error, "command-line socket failed");
        }
    });
    tracing::info!(socket = %path.display(), "serving CSI Identity and Controller");
    // Agents connect within seconds; until then, answers name the disconnected nodes.
    tasks.spawn(manager::notify_ready(
        watch::Sender::new(true).subscribe(),
        "starting",
        "serving CSI Identity and Controller".to_owned(),
        ending.clone(),
    ));
    tasks.spawn(manager::keep_alive(liveness, ending.clone()));
    let routes = Routes::new(IdentityServer::new(identity))
        .add_service(GroupControllerServer::new(controller.clone()))
        .add_service(ControllerServer::new(controller));
    let stop = async {
        stop.await;
        manager::notify_stopping().await;
    };
    let served = socket::serve(routes, bound, stop, DRAIN).await;
    ending.cancel();
    tasks.close();
    if tokio::time::timeout(SAVE_DEADLINE, tasks.wait())
        .await
        .is_err()
    {
        tracing::warn!("timed out saving last-known node state; no data is lost");
    }
    Ok(served?)
}

async fn bind_admin(path: &Path) -> Result<socket::Bound, RunError> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(|source| RunError::SocketDir {
            path: dir.to_owned(),
            source,
        })?;
    }
    Ok(socket::bind(path).await?)
}

/// Follows the forgotten nodes in the config file.
fn forgotten_nodes(
    options: &RunOptions,
    tasks: &TaskTracker,
    ending: &CancellationToken,
) -> Result<watch::Receiver<ForgottenNodes>, RunError> {
    let Some(path) = &options.config else {
        return Ok(watch::Sender::new(ForgottenNodes::new()).subscribe());
    };
    let settings = Settings::load(path)?;
    let (sender, forgotten_nodes) = watch::channel(of_settings(&settings));
    let mut changes = settings::follow(path.clone(), settings, REREAD, ending.clone());
    tasks.spawn(async move {
        while changes.changed().await.is_ok() {
            sender.send_replace(of_settings(&changes.borrow_and_update()));
        }
    });
    Ok(forgotten_nodes)
}

fn of_settings(settings: &Settings) -> ForgottenNodes {
    let seconds = |at: SystemTime| {
        at.duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs())
    };
    let forgotten = settings.forgotten.iter();
    forgotten
        .map(|(node, at)| (node.to_owned(), seconds(at)))
        .collect()
}

/// Listens for agents, and starts the tasks that a fleet of agents needs.
async fn open_to_agents(
    options: &RunOptions,
    entrance: Entrance,
    certificate: &Certificate,
    tasks: &TaskTracker,
    ending: &CancellationToken,
) -> Result<Agents, RunError> {
    let listener = match entrance {
        Entrance::Unix(path) => Listener::unix(path).await?,
        Entrance::Tcp(address, files) => {
            let credentials = Credentials::load(files, Role::Controller).await?;
            certificate.of(&credentials);
            tasks.spawn(credentials.clone().follow(REREAD, ending.clone()));
            let security = match &options.agent_service_account {
                None => Security::Mtls(credentials),
                Some(user) => Security::Tokens(credentials, tokens(user).await?),
            };
            Listener::tcp(address, security).await?
        }
    };
    let forgotten_nodes = forgotten_nodes(options, tasks, ending)?;
    let agents = match &options.state_dir {
        None => {
            tracing::warn!(
                "without --state-dir, disconnected nodes are not listed after a restart of the controller"
            );
            Agents::with_away_grace(forgotten_nodes, Notes::in_memory(), options.away_grace())
        }
        Some(dir) => {
            let (dir, away_grace) = (dir.clone(), options.away_grace());
            let (agents, store) = files::work(LOAD_DEADLINE, move || {
                let notes = Notes::open(&dir).map_err(io::Error::other)?;
                let store = last_known::Store::open(&dir).map_err(io::Error::other)?;
                let agents = Agents::with_away_grace(forgotten_nodes, notes, away_grace);
                let count = store.load(&agents).map_err(io::Error::other)?;
                tracing::info!(nodes = count, "last-known node state loaded");
                Ok((agents, store))
            })
            .await
            .map_err(RunError::State)?;
            tasks.spawn(last_known::keep(store, agents.clone(), ending.clone()));
            agents
        }
    };
    tasks.spawn(undelivered_deletes::deliver(agents.clone(), ending.clone()));
    tasks.spawn(forget(agents.clone(), ending.clone()));
    tasks.spawn(duplicates::follow(agents.clone(), ending.clone()));
    let announce = Announcement {
        instance: uuid::Uuid::new_v4(),
        replicas: options.replicas,
    };
    let address = options.listen.as_ref().map(ToString::to_string);
    tracing::info!(address, instance = %announce.instance, "listening for agents");
    tasks.spawn(listen::serve(
        listener,
        announce,
        agents.clone(),
        ending.clone(),
    ));
    Ok(agents)
}

/// Serves the page, if --page says where.
async fn serve_page(
    options: &RunOptions,
    agents: &Agents,
    tasks: &TaskTracker,
    ending: &CancellationToken,
) -> Result<(), RunError> {
    if options.page == PageListen::Off {
        return Ok(());
    }
    let access = match options.kubernetes {
        true => readers().await?,
        false => Access::Open,
    };
    let source = Arc::new(AgentsSource::cluster(agents.clone()));
    let page = Page::new(source, access, ending.clone());
    // `kubectl port-forward` has a port of its own at the reader's end.
    let is_forwarded = options.kubernetes;
    let listen = options.page.clone();
    tasks.spawn(drivebay_page::http::serve(
        listen,
        page,
        is_forwarded,
        ending.clone(),
    ));
    Ok(())
}

/// Returns reviews of readers' tokens by the cluster's API server.
#[cfg(feature = "kubernetes")]
async fn readers() -> Result<Access, RunError> {
    let client = crate::kubernetes::client().await?;
    let review = drivebay_page::kubernetes::ApiServer::new(client);
    let tokens = drivebay_page::access::Tokens::new(Arc::new(review));
    Ok(Access::Tokens(Arc::new(tokens)))
}

#[cfg(not(feature = "kubernetes"))]
async fn readers() -> Result<Access, RunError> {
    Err(RunError::NoKubernetes)
}

/// Returns a verifier of tokens of this user, reviewed by the cluster's API server.
#[cfg(feature = "kubernetes")]
async fn tokens(user: &str) -> Result<Tokens, RunError> {
    let client = crate::kubernetes::client().await?;
    let api = ApiServer::new(client, names::TOKEN_AUDIENCE);
    let expected = Expected {
        audience: names::TOKEN_AUDIENCE.to_owned(),
        user: user.to_owned(),
    };
    Ok(Tokens::new(Arc::new(api), expected))
}

#[cfg(not(feature = "kubernetes"))]
async fn tokens(_: &str) -> Result<Tokens, RunError> {
    Err(RunError::NoKubernetes)
}

/// Follows the volumes and nodes that Kubernetes expects. The receiver turns true when they were read whole, at once without --kubernetes.
#[cfg(feature = "kubernetes")]
async fn expected(
    options: &RunOptions,
    agents: &Agents,
    tasks: &TaskTracker,
    ending: &CancellationToken,
) -> Result<watch::Receiver<bool>, RunError> {
    let complete = watch::Sender::new(!options.kubernetes);
    let receiver = complete.subscribe();
    if options.kubernetes {
        let client = crate::kubernetes::client().await?;
        let (driver, agents) = (options.driver_name.clone(), agents.clone());
        tasks.spawn(crate::kubernetes::report_events(
            client.clone(),
            driver.clone(),
            agents.clone(),
            ending.clone(),
        ));
        tasks.spawn(drivebay_service::agents::unclaimed::follow(
            agents.clone(),
            ending.clone(),
        ));
        tasks.spawn(crate::kubernetes::remove_duplicates(
            client.clone(),
            agents.clone(),
            ending.clone(),
        ));
        let follow = crate::kubernetes::follow(client, driver, agents, complete, ending.clone());
        tasks.spawn(follow);
    }
    Ok(receiver)
}

#[cfg(not(feature = "kubernetes"))]
async fn expected(
    options: &RunOptions,
    _: &Agents,
    _: &TaskTracker,
    _: &CancellationToken,
) -> Result<watch::Receiver<bool>, RunError> {
    if options.kubernetes {
        return Err(RunError::NoKubernetes);
    }
    Ok(watch::Sender::new(true).subscribe())
}

/// Writes the objects of drives, if there are to be any; returns what is counted of that.
#[cfg(feature = "kubernetes")]
async fn drive_objects(
    options: &RunOptions,
    agents: &Agents,
    tasks: &TaskTracker,
    ending: &CancellationToken,
) -> Result<Option<Arc<DriveObjectWrites>>, RunError> {
    use crate::kubernetes::drive_objects::{Options, Shown, follow_drives};

    let shown = match options.drive_objects {
        DriveObjects::All => Shown::All,
        DriveObjects::Findings => Shown::Findings,
        DriveObjects::Off => return Ok(None),
    };
    let client = crate::kubernetes::client().await?;
    let writes = Arc::new(DriveObjectWrites::default());
    let options = Options {
        shown,
        writes: writes.clone(),
    };
    tasks.spawn(follow_drives(
        client,
        agents.clone(),
        options,
        ending.clone(),
    ));
    Ok(Some(writes))
}

#[cfg(not(feature = "kubernetes"))]
async fn drive_objects(
    options: &RunOptions,
    _: &Agents,
    _: &TaskTracker,
    _: &CancellationToken,
) -> Result<Option<Arc<DriveObjectWrites>>, RunError> {
    match options.drive_objects {
        DriveObjects::Off => Ok(None),
        DriveObjects::All | DriveObjects::Findings => Err(RunError::NoKubernetes),
    }
}

/// Carries out DriveTasks if --drive-tasks is set; returns what is counted of them.
#[cfg(feature = "kubernetes")]
async fn drive_tasks(
    options: &RunOptions,
    agents: &Agents,
    tasks: &TaskTracker,
    ending: &CancellationToken,
) -> Result<Option<Arc<DriveTaskCounts>>, RunError> {
    use crate::kubernetes::drive_tasks::{Options, follow_tasks};

    if !options.drive_tasks {
        return Ok(None);
    }
    let client = crate::kubernetes::client().await?;
    let counts = Arc::new(DriveTaskCounts::default());
    let options = Options {
        max_evacuations: options.max_evacuations.into(),
        counts: counts.clone(),
    };
    let follow = follow_tasks(client, agents.clone(), options, ending.clone());
    tasks.spawn(follow);
    Ok(Some(counts))
}

#[cfg(not(feature = "kubernetes"))]
async fn drive_tasks(
    options: &RunOptions,
    _: &Agents,
    _: &TaskTracker,
    _: &CancellationToken,
) -> Result<Option<Arc<DriveTaskCounts>>, RunError> {
    match options.drive_tasks {
        false => Ok(None),
        true => Err(RunError::NoKubernetes),
    }
}

async fn forget(agents: Agents, stop: CancellationToken) {
    loop {
        agents.forget_given_up();
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(FORGET_EVERY) => {}
        }
    }
}

fn ready_or_late(
    mut agents: watch::Receiver<bool>,
    mut expected: watch::Receiver<bool>,
) -> watch::Receiver<bool> {
    let (ready, receiver) = watch::channel(false);
    tokio::spawn(async move {
        let until = tokio::time::Instant::now() + STARTING;
        let first = agents.wait_for(|ready| *ready);
        if tokio::time::timeout_at(until, first).await.is_err() {
            tracing::warn!("no agent connected yet; CSI calls answer UNAVAILABLE");
        }
        let read = expected.wait_for(|complete| *complete);
        if tokio::time::timeout_at(until, read).await.is_err() {
            tracing::warn!(
                "volumes and nodes not yet read from Kubernetes; volumes of absent nodes are not listed until then"
            );
        }
        ready.send_replace(true);
    });
    receiver
}
