//! The dashboard and the documented joins: Prometheus accepts every query, and a real Prometheus that scrapes a real agent and a real
//! controller finds series for each. Needs root, FUSE and loop devices.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::{self, File},
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use drivebay_hwtests::{
    DriveSpec, GIB, MIB, Shelf,
    children::Process,
    csi,
    fleet::controller::Listen,
    hang::HungDrive,
    need,
    pair::{Link, NODE, Pair},
    replay,
    rig::Placed,
    scrape, wait,
};
use drivebay_proto::csi as wire;
use serde_json::Value;

/// Minimum for a comparison with peers.
const DRIVES: usize = 4;
const LOAD: &str = env!("CARGO_BIN_EXE_drivebay-load");
/// Time limit for a fault to be detected and scraped twice; the machine may be busy.
const SOON: Duration = Duration::from_secs(180);
/// SMART data of a solid-state drive, with most attributes that such a drive reports.
const SMART: &str = "agent/smart/src/fixtures/drives/ata-mx500.json";
/// Metrics that have series only while there is a fault.
const OF_FAULTS: [&str; 4] = [
    "drivebay_drive_finding",
    "drivebay_volume_affected_files",
    "drivebay_volume_condition",
    "drivebay_volume_unreadable_bytes",
];

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap()
}

fn dashboard() -> Value {
    serde_json::from_str(&read("deploy/drivebay.dashboard.json")).unwrap()
}

/// Returns the query with Grafana's values for its variables.
fn filled(expr: &str) -> String {
    ["$instance", "$drive", "$volume"]
        .iter()
        .fold(expr.to_owned(), |expr, name| expr.replace(name, ".*"))
        .replace("$__rate_interval", "1m")
}

/// Returns every query of the panels, collapsed rows included, with the panel's title; those of the variables and of annotations.
fn queries() -> Vec<(String, String)> {
    fn collect(panels: &Value, into: &mut Vec<(String, String)>) {
        for panel in panels.as_array().unwrap() {
            let title = panel["title"].as_str().unwrap();
            for target in panel["targets"].as_array().into_iter().flatten() {
                let expr = filled(target["expr"].as_str().unwrap());
                into.push((title.to_owned(), expr));
            }
            if panel["type"] == "row" {
                collect(&panel["panels"], into);
            }
        }
    }
    let board = dashboard();
    let mut queries = Vec::new();
    collect(&board["panels"], &mut queries);
    for variable in board["templating"]["list"].as_array().unwrap() {
        let Some(query) = variable["query"]["query"].as_str() else {
            continue;
        };
        let inner = query.strip_prefix("label_values(").unwrap();
        let (selector, label) = inner.rsplit_once(", ").unwrap();
        let label = label.strip_suffix(')').unwrap();
        queries.push((
            format!("variable {}", variable["name"]),
            format!("count by ({label}) ({})", filled(selector)),
        ));
    }
    for annotation in board["annotations"]["list"].as_array().unwrap() {
        let expr = filled(annotation["expr"].as_str().unwrap());
        queries.push((format!("annotation {}", annotation["name"]), expr));
    }
    queries
}

#[test]
fn promtool_takes_every_query_and_each_names_metrics_that_there_are() {
    need!(promtool);
    let queries = queries();
    assert!(queries.len() > 50, "{}", queries.len());
    let documented = scrape::documented_joins();
    assert!(documented.len() >= 3, "{documented:?}");
    let all: Vec<&str> = queries
        .iter()
        .map(|(_, expr)| expr.as_str())
        .chain(documented.iter().map(String::as_str))
        .collect();
    assert_eq!(scrape::unknown_metrics(&all.join("\n")), BTreeSet::new());
    // `"$1"` is the replacement of label_replace.
    let unfilled = queries
        .iter()
        .filter(|(_, expr)| expr.replace("\"$1\"", "").contains('$'));
    assert_eq!(unfilled.count(), 0, "a variable is not known here");
    let rules: Vec<Value> = all
        .iter()
        .enumerate()
        .map(|(n, expr)| serde_json::json!({"record": format!("q{n}"), "expr": expr}))
        .collect();
    let rules = serde_json::json!({"groups": [{"name": "dashboard", "rules": rules}]});
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rules.yaml");
    fs::write(&file, rules.to_string()).unwrap();
    let output = Command::new(need::promtool().unwrap())
        .args(["check", "rules"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Alerts have no series that shows whether their rules are loaded.
#[test]
fn no_query_of_the_agents_or_controllers_series_is_0_when_nothing_is_scraped() {
    let queries = queries();
    let always = queries.iter().filter(|(_, expr)| expr.contains("vector("));
    let titles: Vec<&str> = always.map(|(title, _)| title.as_str()).collect();
    assert_eq!(titles, ["Alerts that fire"]);
}

#[test]
fn no_panel_of_the_dashboard_covers_another() {
    let board = dashboard();
    let mut places: Vec<(String, [u64; 4])> = Vec::new();
    let top = board["panels"].as_array().unwrap();
    let inner = top
        .iter()
        .flat_map(|panel| panel["panels"].as_array().into_iter().flatten());
    for panel in top.iter().chain(inner) {
        let place = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        let title = panel["title"].as_str().unwrap().to_owned();
        // Grafana's grid has 24 columns.
        assert!(place[0] + place[2] <= 24, "{title}: {place:?}");
        for (other, [x, y, w, h]) in &places {
            let is_beside = place[0] + place[2] <= *x || x + w <= place[0];
            let is_below = place[1] + place[3] <= *y || y + h <= place[1];
            assert!(is_beside || is_below, "{title} covers {other}");
        }
        places.push((title, place));
    }
    assert!(places.len() > 40, "{}", places.len());
}

/// Serves a unix socket's metrics on a TCP port, since Prometheus cannot scrape a unix socket.
fn on_a_port(socket: PathBuf) -> SocketAddr {
    fn answer(mut stream: TcpStream, socket: &Path) -> Option<()> {
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).ok()?;
        let body = scrape::scrape(socket).ok()?;
        let length = body.len();
        let kind = "text/plain; version=0.0.4";
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .ok()
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            answer(stream, &socket);
        }
    });
    address
}

/// A Prometheus that scrapes as the chart's PodMonitors configure it: the same jobs, the node's name as instance, the namespace of the pods
/// as a label of the target.
struct Prometheus {
    _server: Process,
    _node_exporter: Process,
    address: SocketAddr,
}

impl Prometheus {
    fn start(dir: &Path, agent: SocketAddr, controller: SocketAddr) -> Self {
        let dir = dir.join("prometheus");
        fs::create_dir_all(&dir).unwrap();
        let [program, exporter] = need::prometheus().unwrap();
        let start = |program: &Path, args: &[String]| {
            let name = program.file_name().unwrap().to_str().unwrap();
            let log = dir.join(format!("{name}.log"));
            Process::start(program.to_str().unwrap(), args, &log).unwrap()
        };
        // By default it excludes loop devices.
        let host = Listen::free_port().unwrap();
        let node_exporter = start(
            &exporter,
            &[
                format!("--web.listen-address={host}"),
                "--collector.disable-defaults".to_owned(),
                "--collector.diskstats".to_owned(),
                "--collector.diskstats.device-exclude=^$".to_owned(),
            ],
        );
        let jobs: Vec<Value> = [
            ("drivebay-agent", NODE, agent),
            ("drivebay-controller", "controller-0", controller),
            // With a port, as without relabelling.
            ("node", &format!("{NODE}:9100"), host),
        ]
        .iter()
        .map(|(job, instance, address)| {
            serde_json::json!({
                "job_name": job,
                "honor_labels": true,
                "static_configs": [{
                    "targets": [address.to_string()],
                    "labels": {"instance": instance, "namespace": "drivebay"},
                }],
            })
        })
        .collect();
        let config = serde_json::json!({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": jobs,
        });
        let file = dir.join("prometheus.yml");
        fs::write(&file, config.to_string()).unwrap();
        let address = Listen::free_port().unwrap();
        let server = start(
            &program,
            &[
                format!("--config.file={}", file.display()),
                format!("--storage.tsdb.path={}", dir.join("data").display()),
                format!("--web.listen-address={address}"),
            ],
        );
        let this = Self {
            _server: server,
            _node_exporter: node_exporter,
            address,
        };
        wait::until(SOON, "Prometheus answers", || this.query("vector(1)"));
        this
    }

    /// Returns the series of a query; None if there is no answer, as for a join that does not match one to one. Uses the HTTP API, since a
    /// process of promtool for each of some seventy queries takes seconds.
    fn query(&self, expr: &str) -> Option<Vec<Value>> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(SOON)).unwrap();
        let query = percent_encoded(expr);
        // HTTP 1.0: the response is in one piece, and the connection is closed.
        let request = format!("GET /api/v1/query?query={query} HTTP/1.0\r\nHost: test\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        if !head.lines().next()?.contains(" 200 ") {
            return None;
        }
        let answer: Value = serde_json::from_str(body).ok()?;
        let series = answer["data"]["result"].as_array();
        Some(series.cloned().unwrap_or_default())
    }

    /// Returns the queries without series.
    fn empty(&self, queries: &[(String, String)]) -> BTreeSet<String> {
        let is_empty = |expr: &str| self.query(expr).is_none_or(|series| series.is_empty());
        let empty = queries.iter().filter(|(_, expr)| is_empty(expr));
        empty
            .map(|(title, expr)| format!("{title}: {expr}"))
            .collect()
    }

    /// Waits until these queries, and no others, have no series; calls `meanwhile` before each attempt.
    fn only_these_are_empty(
        &self,
        queries: &[(String, String)],
        expected: &BTreeSet<String>,
        meanwhile: impl Fn(),
    ) {
        let step = Duration::from_secs(2);
        let met = wait::poll_every(step, SOON, || {
            meanwhile();
            (self.empty(queries) == *expected).then_some(())
        });
        if met.is_none() {
            let empty = self.empty(queries);
            let more: Vec<_> = empty.difference(expected).collect();
            let fewer: Vec<_> = expected.difference(&empty).collect();
            panic!(
                "without series: {more:#?}; with series, though nothing is wrong: {fewer:#?}; the kernel's last lines: {}",
                kernel_log_tail()
            );
        }
    }
}

fn percent_encoded(text: &str) -> String {
    let encoded = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(encoded).collect()
}

/// Fields are dropped in this order: Prometheus first, then the load before the mounts, these and the agent before the drives.
struct Stand {
    prometheus: Prometheus,
    loads: Vec<Process>,
    volumes: Vec<Placed>,
    pair: Pair,
    drives: Vec<HungDrive>,
}

impl Stand {
    async fn new() -> Self {
        let mut shelf = Shelf::new().unwrap();
        shelf.add(DriveSpec::blank("deleted", 2048 * GIB)).unwrap();
        let drives: Vec<HungDrive> = (0..DRIVES).map(|_| HungDrive::new(GIB).unwrap()).collect();
        let class =
            |(n, drive): (usize, &HungDrive)| drive.class(&format!("class{n}"), "partition");
        let classes: String = drives.iter().enumerate().map(class).collect();
        // LVM does not work on the host, and a class requires it: a finding of the node.
        let tools = shelf.dir().join("tools");
        let smart = replay::smartctl(&tools, 0);
        // Every other drive is rotational, the others match the SMART data.
        let (disk, ssd) = (tools.join("answer.json"), tools.join("ssd.json"));
        fs::copy(repository().join(SMART), &ssd).unwrap();
        let (disk, ssd) = (disk.display(), ssd.display());
        let answers = format!(
            "#!/bin/sh\nfor last; do :; done\ncase $last in *[02468]) exec /bin/cat {disk} ;; esac\nexec /bin/cat {ssd}\n"
        );
        fs::write(tools.join("smartctl"), answers).unwrap();
        fs::write(tools.join("lvm"), "#!/bin/sh\nexit 5\n").unwrap();
        assert!(sh(&format!("chmod 755 {}/lvm", tools.display())));
        let pair = Pair::start(Link::Certificates, shelf, |settings| {
            settings.layout = "partition".to_owned();
            // For a second, zeros are punched into the file at once; then the rate limit applies.
            settings.erase_rate = "64MiB".to_owned();
            settings.tools = Some(tools);
            settings.more = format!(
                "{classes}[[class]]\nname = \"lvm\"\nlayout = \"lvm\"\n[class.select]\npath = [\"/no/such/drive\"]\n\
                 [health]\nlatency-interval = \"1s\"\n{smart}"
            );
        })
        .await;
        let agent = on_a_port(pair.agent.settings().metrics_socket());
        let controller = on_a_port(pair.controller.metrics_socket());
        let mut stand = Self {
            prometheus: Prometheus::start(pair.shelf.dir(), agent, controller),
            loads: Vec::new(),
            volumes: Vec::new(),
            pair,
            drives,
        };
        for n in 0..DRIVES {
            stand.pair.node.is_available(&stand.drives[n]).await;
            // Smaller ones have blocks of 1 KiB, which cannot be located on the drive.
            let volume = stand.volume(&format!("class{n}"), 512 * MIB).await;
            stand.pair.node.use_volume(&volume).await;
            if n == 0 {
                // It is checked while unmounted.
                stand.pair.node.leave_volume(&volume).await;
                stand.check(&volume);
                stand.pair.node.use_volume(&volume).await;
            }
            let stats = stand.pair.node.csi.stats(&volume.id, &volume.target);
            stats.await.unwrap();
            stand.load(n, &volume);
            stand.volumes.push(volume);
        }
        let deleted = stand.volume("demo", 1024 * GIB).await;
        stand.pair.csi.delete(&deleted.id).await.unwrap();
        stand
    }

    /// Creates a volume as the provisioner does for a claim named like the class.
    async fn volume(&self, class: &str, bytes: u64) -> Placed {
        let parameters = [
            ("class", class),
            ("csi.storage.k8s.io/pvc/name", class),
            ("csi.storage.k8s.io/pvc/namespace", "prod"),
            ("csi.storage.k8s.io/pv/name", &format!("pv-{class}")),
        ];
        let parameters = parameters.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let volume = self.pair.csi.create_with(wire::CreateVolumeRequest {
            name: format!("pv-{class}"),
            capacity_range: Some(csi::bytes(bytes)),
            volume_capabilities: vec![csi::mount("ext4")],
            parameters: parameters.into(),
            ..Default::default()
        });
        let volume = volume.await.unwrap();
        let capability = csi::mount("ext4");
        self.pair.node.place(&volume, class, &capability)
    }

    /// Requests a check of the volume's filesystem.
    fn check(&self, volume: &Placed) {
        let checked = self
            .pair
            .agent
            .run_command(&["volume", "check", &volume.id]);
        let checked = checked.unwrap();
        assert!(checked.status.success(), "{checked:?}");
    }

    fn load(&mut self, n: usize, volume: &Placed) {
        self.drives[n].answer_late(Duration::from_millis(2), Duration::from_millis(1));
        let device = self.drives[n].drive_ref().unwrap().node();
        let file = volume.target.join("load");
        File::create(&file).unwrap().set_len(8 * MIB).unwrap();
        let args: [OsString; 4] = [
            "--pause=5".into(),
            "--depth=2".into(),
            device.into(),
            file.into(),
        ];
        let log = self.pair.shelf.dir().join(format!("load{n}.log"));
        self.loads.push(Process::start(LOAD, &args, &log).unwrap());
    }

    /// Makes sectors of a file on the first volume unreadable, and returns the file's path.
    fn spoil(&self) -> PathBuf {
        let mark = b"this file is going to be unreadable";
        let file = self.volumes[0].target.join("spoilt");
        fs::write(&file, mark.repeat(400)).unwrap();
        assert!(sh(&format!("sync -f {}", file.display())));
        let at = self.drives[0].find(mark).unwrap().unwrap();
        self.drives[0].spoil(at..at + 4096);
        file
    }

    /// Ends without waiting for delayed requests.
    fn end(mut self) {
        for drive in &self.drives {
            drive.answer_late(Duration::ZERO, Duration::ZERO);
        }
        self.loads.clear();
    }
}

/// True if a file can be read with O_DIRECT.
fn reads(file: &Path) -> bool {
    sh(&format!(
        "dd if={} of=/dev/null bs=4096 iflag=direct status=none 2>/dev/null",
        file.display()
    ))
}

fn kernel_log_tail() -> String {
    let log = Command::new("dmesg").output().unwrap();
    let log = String::from_utf8_lossy(&log.stdout);
    let lines: Vec<&str> = log.lines().rev().take(15).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

fn sh(script: &str) -> bool {
    let status = Command::new("sh").args(["-c", script]).status();
    status.unwrap().success()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_query_finds_series_in_a_real_prometheus_also_during_a_fault() {
    need!(root, loop, promtool, prometheus, tool "mkfs.ext4", fs "ext4");
    let stand = Stand::new().await;
    // No rules are loaded here, and nothing restarts.
    let mut queries = queries();
    queries.retain(|(title, expr)| !title.starts_with("annotation ") && !expr.contains("ALERTS{"));
    let of_faults: BTreeSet<String> = queries
        .iter()
        .filter(|(_, expr)| OF_FAULTS.iter().any(|name| expr.contains(name)))
        .map(|(title, expr)| format!("{title}: {expr}"))
        .collect();
    assert_eq!(of_faults.len(), 5);
    stand
        .prometheus
        .only_these_are_empty(&queries, &of_faults, || {});

    // A volume's namespace is that of its claim, not of the pods; other series have the pods'.
    let namespaces = |expr: &str| -> BTreeSet<String> {
        let series = stand.prometheus.query(expr).unwrap().into_iter();
        series
            .map(|one| one["metric"]["namespace"].as_str().unwrap_or("").to_owned())
            .collect()
    };
    let claims = "drivebay_volume_info{persistentvolumeclaim!=\"\"}";
    assert_eq!(namespaces(claims), ["prod".to_owned()].into());
    let deleted = "drivebay_volume_info{persistentvolumeclaim=\"\"}";
    assert_eq!(namespaces(deleted), [String::new()].into());
    let drives = "drivebay_drive_info";
    assert_eq!(namespaces(drives), ["drivebay".to_owned()].into());

    // The documented join with node_exporter: each of the drives has its values.
    let documented = scrape::documented_joins();
    let busy = documented.first().unwrap();
    assert!(busy.contains("node_disk_io_time_seconds_total"), "{busy}");
    let joined = stand.prometheus.query(busy).unwrap();
    assert!(joined.len() > DRIVES, "{joined:#?}");
    for one in &joined {
        assert!(one["metric"]["drive"].as_str().is_some(), "{one}");
    }

    // The file is read repeatedly. The kernel may drop the line about one failed request: it logs ten in five seconds for the whole host.
    let file = stand.spoil();
    stand
        .prometheus
        .only_these_are_empty(&queries, &BTreeSet::new(), || {
            assert!(!reads(&file), "the file reads");
        });
    for (title, expr) in &queries {
        let series = stand
            .prometheus
            .query(expr)
            .map_or(0, |series| series.len());
        println!("{series:4}  {title}: {expr}");
    }
    stand.end();
}
