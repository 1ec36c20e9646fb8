//! The first release's messages, as they were recorded, said again to today's controller and agent.
//!
//! CI runs these in place of the old programs, which take ten minutes to build; `hwtests/golden mixed` runs the programs.

use std::{
    fs,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use drivebay_agent::uplink::{self, UplinkConfig};
use drivebay_hwtests::{
    Agent as Process, DriveSpec, GIB, Settings, Shelf, fleet, need, pair::NODE, wait,
};
use drivebay_proto::agent::{agent_client::AgentClient, agent_server::Agent, *};
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::{Stream, StreamExt, iter, pending};
use tokio_util::sync::CancellationToken;
use tonic::{
    Code, Request, Response, Status,
    transport::{Channel, Endpoint, Uri},
};

use crate::{
    files::{dir, unhex},
    record,
};

const LIMIT: Duration = Duration::from_secs(60);

/// What was said in calls of one method by this side ("request", "response").
fn recorded<M: Message + Default>(method: &str, side: &str) -> Vec<M> {
    let text = fs::read_to_string(dir("controller").join("frames.txt")).unwrap();
    let of = format!("{method} {side} ");
    let all = text.lines().filter_map(|line| line.strip_prefix(&of));
    let all: Vec<M> = all
        .map(|hex| M::decode(unhex(hex).as_slice()).unwrap())
        .collect();
    assert!(!all.is_empty(), "{method} {side}");
    all
}

/// Answers as the first release's agent did.
#[derive(Clone)]
struct OldAgent {
    /// What it says of the versions it speaks, if not what it said.
    protocol: Option<(u32, u32)>,
    deleted: Arc<Mutex<Vec<DeleteVolumeRequest>>>,
    refused: Arc<Mutex<Option<String>>>,
}

impl OldAgent {
    fn new(protocol: Option<(u32, u32)>) -> Self {
        Self {
            protocol,
            deleted: Arc::default(),
            refused: Arc::default(),
        }
    }
}

type Answer<T> = Result<Response<T>, Status>;
type Updates<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

fn never<T>() -> Answer<T> {
    Err(Status::unimplemented("a controller does not ask this"))
}

#[tonic::async_trait]
impl Agent for OldAgent {
    async fn prove(&self, _: Request<ProveRequest>) -> Answer<ProveResponse> {
        Err(Status::unimplemented("it has no token"))
    }

    async fn hello(&self, _: Request<HelloRequest>) -> Answer<HelloResponse> {
        let mut said: HelloResponse = recorded("Hello", "response").remove(0);
        if let Some((newest, oldest)) = self.protocol {
            (said.protocol, said.oldest_protocol) = (newest, oldest);
        }
        Ok(Response::new(said))
    }

    async fn refused(&self, request: Request<RefusedRequest>) -> Answer<RefusedResponse> {
        *self.refused.lock().unwrap() = Some(request.into_inner().reason);
        Ok(Response::new(RefusedResponse {}))
    }

    type WatchInventoryStream = Updates<InventoryUpdate>;

    async fn watch_inventory(
        &self,
        _: Request<WatchInventoryRequest>,
    ) -> Answer<Self::WatchInventoryStream> {
        let all: Vec<InventoryUpdate> = recorded("WatchInventory", "response");
        let instance = recorded::<HelloResponse>("Hello", "response")
            .remove(0)
            .instance;
        let full = all.into_iter().rfind(|update| update.full).unwrap();
        let full = InventoryUpdate { instance, ..full };
        Ok(Response::new(Box::pin(iter([Ok(full)]).chain(pending()))))
    }

    async fn create_volume(&self, _: Request<CreateVolumeRequest>) -> Answer<CreateVolumeResponse> {
        Ok(Response::new(
            recorded("CreateVolume", "response").remove(0),
        ))
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Answer<DeleteVolumeResponse> {
        self.deleted.lock().unwrap().push(request.into_inner());
        let full = recorded::<InventoryUpdate>("WatchInventory", "response");
        let revision = full
            .into_iter()
            .rfind(|update| update.full)
            .unwrap()
            .revision;
        Ok(Response::new(DeleteVolumeResponse { revision }))
    }

    async fn expand_volume(&self, _: Request<ExpandVolumeRequest>) -> Answer<ExpandVolumeResponse> {
        never()
    }

    async fn rescan(&self, _: Request<RescanRequest>) -> Answer<RescanResponse> {
        never()
    }

    type WipeDriveStream = Updates<WipeDriveProgress>;

    async fn wipe_drive(&self, _: Request<WipeDriveRequest>) -> Answer<Self::WipeDriveStream> {
        never()
    }

    async fn adopt_drive(&self, _: Request<AdoptDriveRequest>) -> Answer<AdoptDriveResponse> {
        never()
    }

    async fn acknowledge_drive(
        &self,
        _: Request<AcknowledgeDriveRequest>,
    ) -> Answer<AcknowledgeDriveResponse> {
        never()
    }

    async fn drive_latency(
        &self,
        _: Request<drivebay_proto::agent::DriveLatencyRequest>,
    ) -> Result<Response<drivebay_proto::agent::DriveLatencyResponse>, Status> {
        Err(Status::unimplemented("not in the first release"))
    }

    async fn check_volume(&self, _: Request<CheckVolumeRequest>) -> Answer<CheckVolumeResponse> {
        never()
    }
}

/// Has an agent dial a controller until the token is cancelled.
fn dial(agent: OldAgent, controller: &str) -> CancellationToken {
    let config = UplinkConfig {
        token: None,
        targets: vec![controller.parse().unwrap()],
        credentials: None,
    };
    let stop = CancellationToken::new();
    tokio::spawn(uplink::run(config, agent, stop.clone()));
    stop
}

#[tokio::test(flavor = "multi_thread")]
async fn todays_controller_understands_what_the_first_releases_agent_said() {
    let work = std::env::temp_dir().join(format!("drivebay-golden-peer-{}", std::process::id()));
    fs::create_dir_all(&work).unwrap();
    let controller = fleet::Controller::start(&work, None, &[]).await.unwrap();
    let agent = OldAgent::new(None);
    let stop = dial(agent.clone(), &controller.address());
    controller.until_connected(1, LIMIT).await;
    let nodes = controller.nodes().await.unwrap();
    assert_eq!((&*nodes[0].node_id, &*nodes[0].version), (NODE, "0.1.0"));
    let full = recorded::<InventoryUpdate>("WatchInventory", "response");
    let full = full.into_iter().rfind(|update| update.full).unwrap();
    let csi = controller.csi().await.unwrap();
    let listed = csi.ids().await.unwrap();
    let alive = full
        .volumes
        .iter()
        .filter(|one| !["erasing", "quarantined"].contains(&&*one.state));
    let mut alive: Vec<_> = alive.map(|one| one.id.clone()).collect();
    alive.sort();
    assert_eq!(listed, alive);
    csi.delete(&listed[0]).await.unwrap();
    let deleted = agent.deleted.lock().unwrap().clone();
    assert_eq!(
        deleted,
        [DeleteVolumeRequest {
            id: listed[0].clone(),
            quarantine: false
        }]
    );
    stop.cancel();

    // One of which no version of the protocol is spoken here is told so, and not let in.
    let newer = OldAgent::new(Some((3, 2)));
    let stop = dial(newer.clone(), &controller.address());
    let reason = wait::until_async(LIMIT, "the newer agent is refused", async || {
        newer.refused.lock().unwrap().clone()
    });
    let reason = reason.await;
    assert!(
        reason.contains("2 to 3") || reason.contains("version"),
        "{reason}"
    );
    stop.cancel();
    drop(controller);
    let _ = fs::remove_dir_all(&work);
}

/// A client of the agent at the other end of a connection that it has dialled, as a controller has it.
async fn client(stream: UnixStream) -> AgentClient<Channel> {
    let mut stream = Some(TokioIo::new(stream));
    let connector = tower::service_fn(move |_: Uri| {
        let stream = stream.take().ok_or(std::io::ErrorKind::NotConnected.into());
        async move { stream as std::io::Result<_> }
    });
    let endpoint = Endpoint::from_static("http://agent");
    AgentClient::new(endpoint.connect_with_connector(connector).await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn todays_agent_understands_what_the_first_releases_controller_said() {
    need!(root, loop, layout "partition");
    let mut shelf = Shelf::new().unwrap();
    let socket = shelf.dir().join("agents.sock");
    let controller = UnixListener::bind(&socket).unwrap();
    shelf.add(DriveSpec::blank("gone", 2 * GIB)).unwrap();
    let mut settings = Settings::new(shelf.dir(), &shelf.pattern());
    record::settings(&mut settings);
    settings.node = NODE.to_owned();
    settings.headless = false;
    settings.more.push_str(&format!(
        "\n[controller]\naddresses = [\"unix:{}\"]\n",
        socket.display()
    ));
    let mut agent = Process::start(settings).await.unwrap();

    // One of which no version of the protocol is spoken here gets nothing but a refusal.
    let (stream, _) = controller.accept().await.unwrap();
    let mut newer = client(stream).await;
    let mut hello: HelloRequest = recorded("Hello", "request").remove(0);
    (hello.protocol, hello.oldest_protocol) = (3, 2);
    let refused = newer.hello(hello).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    assert!(refused.message().contains("versions 2 to 3"), "{refused:?}");
    drop(newer);
    let line = agent.log();
    assert!(line.contains("no common protocol version"), "{line}");

    // The first release's.
    let (stream, _) = controller.accept().await.unwrap();
    let mut old = client(stream).await;
    let hello: HelloRequest = recorded("Hello", "request").remove(0);
    let answer = old.hello(hello).await.unwrap().into_inner();
    assert_eq!(
        (&*answer.node_id, answer.protocol, answer.oldest_protocol),
        (NODE, 1, 1)
    );
    let watch: WatchInventoryRequest = recorded("WatchInventory", "request").remove(0);
    let mut updates = old.watch_inventory(watch).await.unwrap().into_inner();
    let mut create: CreateVolumeRequest = recorded("CreateVolume", "request").remove(0);
    assert_eq!((&*create.class, create.required_bytes), ("gone", 128 << 20));
    let created = old
        .create_volume(create.clone())
        .await
        .unwrap()
        .into_inner();
    let volume = created.volume.unwrap();
    assert_eq!(
        (&volume.name, volume.size_bytes, &*volume.fs_type),
        (&create.name, 128 << 20, "ext4")
    );
    assert_eq!(volume.parameters, create.parameters);
    // The same again is the same volume; another size is another volume.
    let again = old
        .create_volume(create.clone())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(again.volume.unwrap().id, volume.id);
    create.required_bytes *= 2;
    let other = old.create_volume(create).await.unwrap_err();
    assert_eq!(other.code(), Code::AlreadyExists);
    let mut expand: ExpandVolumeRequest = recorded("ExpandVolume", "request").remove(0);
    expand.id.clone_from(&volume.id);
    let expanded = old.expand_volume(expand).await.unwrap().into_inner();
    assert_eq!(expanded.volume.unwrap().size_bytes, 192 << 20);
    let mut delete: DeleteVolumeRequest = recorded("DeleteVolume", "request").remove(0);
    delete.id.clone_from(&volume.id);
    let revision = old
        .delete_volume(delete)
        .await
        .unwrap()
        .into_inner()
        .revision;
    // The stream tells of all that, in order.
    let (mut shown, mut sizes) = (0, Vec::new());
    while shown < revision {
        let update = tokio::time::timeout(LIMIT, updates.message())
            .await
            .unwrap();
        let update = update.unwrap().expect("the stream goes on");
        assert_eq!(update.node_id, NODE);
        shown = shown.max(update.revision);
        sizes.extend(update.volumes.iter().map(|one| one.size_bytes));
    }
    assert!(
        sizes.contains(&(128 << 20)) && sizes.contains(&(192 << 20)),
        "{sizes:?}"
    );
    let reason: RefusedRequest = recorded("Refused", "request").remove(0);
    old.refused(reason.clone()).await.unwrap();
    assert!(agent.log().contains("another-golden0"));
    agent.stop().unwrap();
}
