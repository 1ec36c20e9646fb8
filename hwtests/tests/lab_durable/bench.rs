//! One machine with many served drives of both layouts. Each drive is the only one of its class, so that a test chooses the drive of a
//! volume, and has a volume that must not change.

use std::{path::PathBuf, pin::Pin, task::Poll, time::Duration};

use drivebay_hwtests::{
    Csi, GIB, MIB, csi,
    lab::{DriveSpec, Kind, LabRig, Machine, MachineSpec, NbdDrive},
    node::Placed,
};
use drivebay_proto::{
    agent as wire,
    csi::{CreateVolumeRequest, Volume, VolumeCapability, VolumeContentSource},
};

/// Time limit for a drive in the lab to be usable again, and for a volume to be erased, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
/// Size of the volume that must not change, bytes.
const KEPT: u64 = 32 * MIB;
const PATTERN_MIB: u64 = 4;

/// Result of a step of a case; the error describes the violated expectation.
pub(crate) type Held<T> = Result<T, String>;

#[derive(Debug, Clone)]
pub(crate) struct Bay {
    /// Name, serial number and class of the drive.
    pub(crate) name: String,
    pub(crate) layout: &'static str,
    /// Free space when the drive had only the kept volume, bytes.
    pub(crate) free_bytes: u64,
    pub(crate) kept: Option<Kept>,
}

/// The volume that must not change.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) placed: Placed,
    volume: wire::Volume,
    digest: String,
}

pub(crate) struct Bench {
    pub(crate) lab: LabRig,
    pub(crate) bays: Vec<Bay>,
}

/// Returns the drives with their specifications. Names end with a number of two digits, so that none contains another.
fn bays(of: &[(&'static str, Kind)]) -> (Vec<Bay>, Vec<DriveSpec>) {
    let mut numbered = of.iter().zip(1..).map(|((layout, kind), number)| {
        let name = format!("{layout}-{number:02}").replace("partition", "gpt");
        let spec = DriveSpec::new(*kind, &name, 2 * GIB).served();
        let bay = Bay {
            name,
            layout,
            free_bytes: 0,
            kept: None,
        };
        (bay, spec)
    });
    numbered.by_ref().unzip()
}

impl Bench {
    /// Starts a machine with drives of these layouts and kinds, each with its kept volume except the `blank` last ones.
    pub(crate) async fn new(node: &str, of: &[(&'static str, Kind)], blank: usize) -> Self {
        let mut bench = Self::sharing(node, of, 1, "").await;
        let used = bench.bays.len() - blank;
        for at in 0..used {
            bench.keep(at).await;
        }
        bench
    }

    /// Starts a machine with blank drives of these layouts and kinds. Every `drives` consecutive ones are of one class, named after the
    /// first. `more`: further sections of the agent's configuration.
    pub(crate) async fn sharing(
        node: &str,
        of: &[(&'static str, Kind)],
        drives: usize,
        more: &str,
    ) -> Self {
        let (bays, specs) = bays(of);
        let machine = Machine::restored(MachineSpec::new(node).with(specs)).unwrap();
        let lab = LabRig::tuned(machine, "partition", |settings| {
            settings.select = "drive = [\"none-of-them\"]".to_owned();
            settings.more = more.to_owned();
            for of in bays.chunks(drives) {
                let Bay { name, layout, .. } = &of[0];
                let patterns: Vec<String> = of.iter().map(|bay| format!("*{}*", bay.name)).collect();
                settings.more.push_str(&format!(
                    "[[class]]\nname = \"{name}\"\nlayout = \"{layout}\"\n[class.select]\ndrive = {patterns:?}\n"
                ));
            }
        })
        .await;
        let bench = Self { lab, bays };
        for at in 0..bench.bays.len() {
            bench.back(at).await.unwrap();
        }
        bench
    }

    /// Creates the kept volume of a drive.
    async fn keep(&mut self, at: usize) {
        let name = format!("{}-kept", self.bays[at].name);
        let placed = self.create(at, &name, KEPT, &csi::block()).await.unwrap();
        self.fill(&placed, PATTERN_MIB).await;
        let digest = self.digest(&placed).await.unwrap();
        let volume = self.lab.volume_of(&placed.id).await.unwrap();
        let bay = &mut self.bays[at];
        bay.kept = Some(Kept {
            placed,
            volume,
            digest,
        });
        self.bays[at].free_bytes = self.drive(at).await.unwrap().free_bytes;
    }

    pub(crate) fn nbd(&self, at: usize) -> &NbdDrive {
        self.lab.machine.drive(&self.bays[at].name).nbd()
    }

    /// Unplugs a drive without power, and removes the device-mapper devices above it.
    pub(crate) fn take_out(&mut self, at: usize) {
        let name = self.bays[at].name.clone();
        // A machine that lost its power has no devices of LVs. Those of snapshots are stacked on others.
        self.lab.guest().run(&format!(
            "node=$(lsblk --nodeps --noheadings --output NAME,SERIAL | awk '$2 == \"{name}\" {{ print $1 }}'); \
             gone() {{ for above in $(ls /sys/block/$1/holders); do [ ! -e /sys/block/$above ] || gone $above; done; \
             [ ! -e /sys/block/$1/dm ] || dmsetup remove --retry \"$(cat /sys/block/$1/dm/name)\"; }}; gone $node"
        ));
        self.lab.machine.unplug(&name);
    }

    /// Restores the power of an unplugged drive, and plugs it in again.
    pub(crate) fn put_back(&mut self, at: usize) {
        let name = self.bays[at].name.clone();
        self.nbd(at).power_on();
        self.lab.machine.plug(&name);
    }

    /// Creates a volume on this drive.
    pub(crate) async fn create(
        &self,
        at: usize,
        name: &str,
        bytes: u64,
        capability: &VolumeCapability,
    ) -> Held<Placed> {
        self.create_with(at, name, bytes, capability, &[]).await
    }

    /// Creates a volume on this drive with parameters of a StorageClass.
    pub(crate) async fn create_with(
        &self,
        at: usize,
        name: &str,
        bytes: u64,
        capability: &VolumeCapability,
        parameters: &[(&str, &str)],
    ) -> Held<Placed> {
        let made = self.created(at, name, bytes, capability, parameters, None);
        Ok(self.lab.place(&made.await?, name, capability))
    }

    /// Creates a raw volume on this drive from a snapshot.
    pub(crate) async fn restore(
        &self,
        at: usize,
        name: &str,
        bytes: u64,
        snapshot: &str,
    ) -> Held<Placed> {
        let (how, source) = (csi::block(), csi::from_snapshot(snapshot));
        let made = self.created(at, name, bytes, &how, &[], Some(source));
        Ok(self.lab.place(&made.await?, name, &how))
    }

    async fn created(
        &self,
        at: usize,
        name: &str,
        bytes: u64,
        capability: &VolumeCapability,
        parameters: &[(&str, &str)],
        volume_content_source: Option<VolumeContentSource>,
    ) -> Held<Volume> {
        let class = ("class", self.bays[at].name.as_str());
        let parameters = parameters.iter().chain([&class]);
        let parameters = parameters.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let request = CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(csi::bytes(bytes)),
            volume_capabilities: vec![capability.clone()],
            parameters: parameters.collect(),
            volume_content_source,
            ..Default::default()
        };
        let made = self.csi().create_with(request).await;
        made.map_err(|status| format!("CreateVolume {name}: {status}"))
    }

    pub(crate) fn csi(&self) -> &Csi {
        &self.lab.csi
    }

    /// Writes random bytes to the start of a volume, and flushes them.
    pub(crate) async fn fill(&self, placed: &Placed, mib: u64) {
        let device = self.lab.device(placed).await;
        // When a writer has closed an unused drive, udevd removes all of its partitions and adds them again.
        self.lab.guest().run(&format!(
            "for try in $(seq 60); do \
             dd if=/dev/urandom of={device} bs=1M count={mib} oflag=direct conv=nocreat,fsync status=none && exit 0; sleep 0.5; done; exit 1",
            device = device.display()
        ));
    }

    /// Returns the digest of the first [PATTERN_MIB] MiB of a volume, read with O_DIRECT. A drive that was plugged in again may have the
    /// devices of its former connection for a moment, and then none; Errs if the volume cannot be read for [PATIENCE].
    pub(crate) async fn digest(&self, placed: &Placed) -> Held<String> {
        let mut last = String::new();
        let read = within(PATIENCE, async || match self.read(placed).await {
            Ok(digest) => Some(digest),
            Err(why) => {
                last = why;
                None
            }
        });
        let read = read.await;
        read.ok_or(last)
    }

    async fn read(&self, placed: &Placed) -> Held<String> {
        let inventory = self.lab.inventory().await;
        let volume = inventory.volumes.iter().find(|of| of.id == placed.id);
        let device = volume.map(|of| of.device.clone()).unwrap_or_default();
        if device.is_empty() {
            return Err(format!("volume {} has no device", placed.id));
        }
        let ran = self.lab.guest().ran(&format!(
            "for try in $(seq 60); do [ ! -b /dev/{device} ] || break; sleep 0.5; done; \
             dd if=/dev/{device} of=/run/{device} bs=1M count={PATTERN_MIB} iflag=direct status=none && sha256sum </run/{device} && rm /run/{device}"
        ));
        if ran.ok() {
            Ok(ran.stdout)
        } else {
            Err(format!("reading /dev/{device}: {}", ran.stderr))
        }
    }

    /// Returns the agent's listing of a drive; None if the drive is not plugged in.
    pub(crate) async fn drive(&self, at: usize) -> Option<wire::Drive> {
        let name = &self.bays[at].name;
        let drive = self.lab.drive_where(|drive| drive.id.contains(name)).await;
        drive.filter(|drive| !drive.kernel_name.is_empty())
    }

    /// Returns the agent's listing of the volumes with this CSI name, in any state.
    pub(crate) async fn named(&self, name: &str) -> Vec<wire::Volume> {
        let inventory = self.lab.inventory().await;
        let volumes = inventory.volumes.into_iter();
        volumes.filter(|of| of.name == name).collect()
    }

    /// Waits until a drive is claimed without reject reasons or, if it has no kept volume, available.
    pub(crate) async fn back(&self, at: usize) -> Held<wire::Drive> {
        let claimed = self.bays[at].kept.is_some();
        let good = |drive: &wire::Drive| match drive.state.as_str() {
            "claimed" => drive.rejects.is_empty(),
            "available" => !claimed,
            _ => false,
        };
        let mut last = None;
        let polled = within(PATIENCE, async || {
            last = self.drive(at).await;
            last.clone().filter(good)
        });
        let drive = polled.await;
        let drive = drive.ok_or_else(|| format!("the drive is {last:?}"))?;
        // An emulated NVMe drive occasionally loses an interrupt; after this timeout (30 s by default) Linux polls the drive for the
        // completion.
        self.lab.guest().run(
            "for of in /sys/class/block/nvme*/queue/io_timeout; do [ ! -w $of ] || echo 10000 >$of; done",
        );
        Ok(drive)
    }

    /// Acknowledges the findings of a drive after a power cut, and waits until it accepts new volumes.
    pub(crate) async fn acknowledge(&self, at: usize) -> Held<()> {
        let mut last = String::new();
        let done = within(PATIENCE, async || {
            let drive = self.drive(at).await?;
            let given = drive
                .health
                .as_ref()
                .and_then(|of| of.acknowledged.as_ref());
            let is_used = drive.is_acknowledged() && given.is_some_and(|of| of.takes_new_volumes);
            if !matches!(drive.verdict.as_str(), "SUSPECT" | "BAD") || is_used {
                return Some(());
            }
            // Refused until a drive that was just plugged in has been polled.
            let args = ["drive", "ack", &drive.id, "--note", "its power was cut"];
            let more = ["--by", "lab", "--use", "--confirm", &drive.id];
            let args = [&args[..], &more].concat();
            let ran = self.lab.agent.run_command(&args);
            last = format!("{}: {}{}", drive.verdict, ran.stdout, ran.stderr);
            None
        });
        let done = done.await;
        done.ok_or_else(|| format!("the drive stays {last}"))
    }

    /// Checks that the kept volume is unchanged, and that each volume on the drive is in a regular state.
    pub(crate) async fn kept(&self, at: usize) -> Held<()> {
        let drive = self.back(at).await?;
        let inventory = self.lab.inventory().await;
        for of in inventory.volumes.iter().filter(|of| of.drive == drive.id) {
            if !matches!(of.state.as_str(), "new" | "ready" | "copying" | "erasing") {
                return Err(format!("a volume is {of:?}"));
            }
        }
        let Some(kept) = &self.bays[at].kept else {
            return Ok(());
        };
        let now = within(PATIENCE, async || {
            let now = self.lab.volume_of(&kept.placed.id).await;
            now.filter(|now| !now.device.is_empty() && now.state == kept.volume.state)
        });
        let Some(now) = now.await else {
            let now = self.lab.volume_of(&kept.placed.id).await;
            return Err(format!("the kept volume is {now:?}"));
        };
        let facts = |of: &wire::Volume| {
            let words = [&of.name, &of.class, &of.drive, &of.mode, &of.fs_type];
            (words.map(String::clone), of.size_bytes)
        };
        if facts(&now) != facts(&kept.volume) {
            return Err(format!(
                "the kept volume is {now:?}, and was {:?}",
                kept.volume
            ));
        }
        if self.digest(&kept.placed).await? != kept.digest {
            return Err("the kept volume holds something else".to_owned());
        }
        Ok(())
    }

    /// Waits until the drive has no volume of this name and all of its space is free again.
    pub(crate) async fn gone(&self, at: usize, name: &str) -> Held<()> {
        let free = self.bays[at].free_bytes;
        let mut last = None;
        let gone = within(PATIENCE, async || {
            let (drive, left) = (self.drive(at).await, self.named(name).await);
            let done = left.is_empty()
                && (free == 0 || drive.as_ref().is_some_and(|drive| drive.free_bytes == free));
            last = Some((left, drive.map(|drive| drive.free_bytes)));
            done.then_some(())
        });
        let gone = gone.await;
        gone.ok_or_else(|| format!("not erased, or not all free ({free} were): {last:?}"))
    }

    /// Returns the path of a file on a staged volume.
    pub(crate) fn letter(placed: &Placed) -> PathBuf {
        placed.staging.join("letter")
    }

    /// Runs `drive wipe` or `drive adopt`, and confirms it.
    pub(crate) async fn command(&self, at: usize, verb: &str) -> Held<()> {
        let drive = self.drive(at).await.ok_or("the drive is not listed")?;
        let args = ["drive", verb, &drive.id, "--confirm", &drive.id];
        let ran = self.lab.agent.run_command(&args);
        if ran.ok() {
            return Ok(());
        }
        Err(format!("drive {verb}: {}{}", ran.stdout, ran.stderr))
    }
}

/// Repeats `check` until it returns a value; None if there is none within the limit.
pub(crate) async fn within<T>(
    limit: Duration,
    mut check: impl AsyncFnMut() -> Option<T>,
) -> Option<T> {
    let start = std::time::Instant::now();
    loop {
        let result = check().await;
        if result.is_some() || start.elapsed() > limit {
            return result;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// True if an error is temporary, so that the caller repeats the call, as a kubelet does.
pub(crate) fn is_put_off(why: &str) -> bool {
    ["currently unavailable", "aborted", "deadline"]
        .iter()
        .any(|word| why.to_lowercase().contains(word))
}

/// Longest time for which a call is repeated: a stage that changes a secret may exceed its deadline (110 s) on a busy machine, and goes on
/// with what it has done when it is repeated.
const REPEATED: Duration = Duration::from_secs(300);

/// Repeats a call while its error is temporary, and returns its result.
pub(crate) async fn insist<T>(mut call: impl AsyncFnMut() -> Held<T>) -> Held<T> {
    let mut last = String::new();
    let done = within(REPEATED, async || match call().await {
        Err(why) if is_put_off(&why) => {
            last = why;
            None
        }
        done => Some(done),
    });
    done.await
        .unwrap_or_else(|| Err(format!("put off for too long: {last}")))
}

/// Number of drives with concurrent calls: more would only be slower on two emulated processors, and an `lvm` command has a deadline.
const AT_ONCE: usize = 4;

/// Runs all futures, at most [AT_ONCE] of them concurrently, and returns their results in order.
pub(crate) async fn together<T>(all: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut all: Vec<_> = all.into_iter().map(|one| (Box::pin(one), None)).collect();
    std::future::poll_fn(|context| {
        let mut going = 0;
        for (one, answer) in &mut all {
            if answer.is_some() || going == AT_ONCE {
                continue;
            }
            match Pin::new(one).poll(context) {
                Poll::Ready(done) => *answer = Some(done),
                Poll::Pending => going += 1,
            }
        }
        if all.iter().all(|(_, answer)| answer.is_some()) {
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
    all.into_iter().filter_map(|(_, answer)| answer).collect()
}
