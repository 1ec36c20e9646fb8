//! A name sent to two controllers that see different agents makes two volumes: which one is returned afterwards, and what happens to the
//! other. On loop devices.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

#[path = "duplicates/api.rs"]
mod api;

use std::{fs, time::Duration};

use drivebay_hwtests::{
    Agent, DriveSpec, GIB, MIB, Node, Settings, Shelf, csi::mount, fleet::Controller, need, scrape,
    shelf::Turn, wait,
};

/// Time limit: ten times the `--away-grace` of these controllers, and a margin.
const REMOVED: Duration = Duration::from_secs(60);
const NEVER_USED: &str = "pvc-11111111-1111-4111-8111-111111111111";
const USED: &str = "pvc-22222222-2222-4222-8222-222222222222";

struct Bench {
    agents: Vec<Agent>,
    nodes: Vec<Node>,
    controllers: Vec<Controller>,
    shelves: Vec<Shelf>,
}

impl Bench {
    /// Starts two agents, each connected to its own controller.
    async fn apart() -> Self {
        let turn = Turn::wait().unwrap();
        let mut bench = Self {
            agents: Vec::new(),
            nodes: Vec::new(),
            controllers: Vec::new(),
            shelves: Vec::new(),
        };
        for name in ["one", "two"] {
            let mut shelf = Shelf::during(&turn).unwrap();
            shelf.add(DriveSpec::blank("a", GIB)).unwrap();
            let dir = shelf.dir().join("controller");
            fs::create_dir_all(&dir).unwrap();
            let state = dir.join("state").display().to_string();
            let more = ["--state-dir", &state, "--away-grace", "1"];
            let controller = Controller::start(&dir, None, &more).await.unwrap();
            let mut settings = Settings::new(shelf.dir(), &shelf.pattern());
            settings.node = name.to_owned();
            settings.cluster = "duplicates".to_owned();
            settings.headless = false;
            settings.more = dials(&[&controller]);
            let agent = Agent::start(settings).await.unwrap();
            bench.nodes.push(Node {
                csi: agent.csi().await.unwrap(),
                agent_socket: agent.settings().agent_socket(),
                dir: shelf.dir().to_owned(),
            });
            bench.agents.push(agent);
            controller.until_connected(1, REMOVED).await;
            bench.controllers.push(controller);
            bench.shelves.push(shelf);
        }
        bench
    }

    /// Makes every agent dial every controller.
    async fn join(&mut self) {
        let all: Vec<&Controller> = self.controllers.iter().collect();
        let more = dials(&all);
        for (agent, node) in self.agents.iter_mut().zip(&mut self.nodes) {
            agent.stop().unwrap();
            agent
                .retune(|settings| settings.more = more.clone())
                .unwrap();
            agent.start_again().await.unwrap();
            node.csi = agent.csi().await.unwrap();
        }
        self.are_joined().await;
    }

    async fn are_joined(&self) {
        for controller in &self.controllers {
            controller.until_connected(2, REMOVED).await;
        }
    }

    /// Returns the id with which each controller answers a creation of this name.
    async fn create(&self, name: &str) -> [String; 2] {
        let mut ids = Vec::new();
        for controller in &self.controllers {
            let csi = controller.csi().await.unwrap();
            let made = csi.create(name, 64 * MIB, &mount("ext4")).await.unwrap();
            ids.push(made.volume_id);
        }
        ids.try_into().unwrap()
    }

    /// Returns the state of each volume of the name, by node.
    async fn states(&self, name: &str) -> Vec<Vec<String>> {
        let mut states = Vec::new();
        for node in &self.nodes {
            let inventory = node.inventory().await;
            let named = inventory.volumes.into_iter().filter(|one| one.name == name);
            states.push(named.map(|one| one.state).collect());
        }
        states
    }

    /// Waits until `health` of each controller reports the duplicate name with these words, or, if None, no duplicate.
    fn until_reported(&self, name: &str, words: Option<&str>) {
        for controller in &self.controllers {
            let what = format!("health says {words:?} of {name}");
            wait::until(REMOVED, &what, || {
                let output = controller.run_command(&["health", "-o", "json"]).unwrap();
                let text = String::from_utf8(output.stdout).unwrap();
                let health: serde_json::Value = serde_json::from_str(&text).ok()?;
                let problems = health["problems"].as_array()?;
                let of_name = problems.iter().filter(|one| {
                    one["name"] == name && one["reasons"][0]["code"] == "DuplicateName"
                });
                let messages: Vec<&str> = of_name
                    .filter_map(|one| one["reasons"][0]["message"].as_str())
                    .collect();
                match words {
                    Some(words) => {
                        messages.len() == 2 && messages.iter().any(|one| one.contains(words))
                    }
                    None => messages.is_empty(),
                }
                .then_some(())
            });
        }
    }
}

fn dials(controllers: &[&Controller]) -> String {
    let addresses: Vec<String> = controllers.iter().map(|one| one.address()).collect();
    format!("\n[controller]\naddresses = {addresses:?}\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_volumes_of_one_name_the_unused_one_is_removed_and_one_that_was_used_is_reported() {
    need!(root, loop, tool "mkfs.ext4");
    let mut bench = Bench::apart().await;
    let unused = bench.create(NEVER_USED).await;
    let used = bench.create(USED).await;
    assert!(unused[0] != unused[1] && used[0] != used[1]);
    // The second volume of the second name was staged and unstaged.
    let placed = {
        let csi = bench.controllers[1].csi().await.unwrap();
        let volume = csi.create(USED, 64 * MIB, &mount("ext4")).await.unwrap();
        bench.nodes[1].place(&volume, USED, &mount("ext4"))
    };
    bench.nodes[1].use_volume(&placed).await;
    bench.nodes[1].leave_volume(&placed).await;

    bench.join().await;
    for name in [NEVER_USED, USED] {
        bench.until_reported(name, Some("two volumes of one name"));
    }
    let page = scrape::scrape(&bench.controllers[0].metrics_socket()).unwrap();
    let count = |node: &str| {
        let labels = format!("node=\"{node}\"");
        scrape::value(&page, "drivebay_node_volumes_duplicate", &[&labels])
    };
    assert_eq!((count("one"), count("two")), (Some(2.0), Some(2.0)));
    // PersistentVolumes are not watched: the older volume is returned (creation times are in seconds), or the one that was used, by every
    // controller; none is removed.
    let [first, _] = bench.create(NEVER_USED).await;
    let answering = unused.iter().position(|id| *id == first).unwrap();
    let other = 1 - answering;
    for _ in 0..2 {
        let answers = bench.create(NEVER_USED).await;
        assert_eq!(answers, [first.clone(), first.clone()]);
        let answers = bench.create(USED).await;
        assert_eq!(answers, [used[1].clone(), used[1].clone()]);
    }

    // The claims have the volumes that would not be returned otherwise.
    let kubeconfig = bench.shelves[0].dir().join("kubeconfig");
    let claimed = [(NEVER_USED, unused[other].as_str()), (USED, &*used[0])];
    api::serve(&claimed, &kubeconfig);
    for controller in &mut bench.controllers {
        controller.stop().unwrap();
        controller.retune(&["--kubernetes"], ("KUBECONFIG", &kubeconfig));
        controller.start_again().await.unwrap();
    }
    bench.are_joined().await;
    wait::until_async(REMOVED, "the unused volume is gone", async || {
        let states = bench.states(NEVER_USED).await;
        let gone = states[answering].iter().all(|state| state == "erasing");
        (gone && states[other] == ["new"]).then_some(())
    })
    .await;
    bench.until_reported(NEVER_USED, None);
    bench.until_reported(USED, Some("may hold data"));
    assert_eq!(bench.states(USED).await, [["new"], ["ready"]]);
    for (name, id) in claimed {
        let ids = [id.to_owned(), id.to_owned()];
        assert_eq!(bench.create(name).await, ids);
    }
}
