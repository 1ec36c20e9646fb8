//! One emulated computer: its qemu process, overlay, drives and power.

use std::{
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde_json::json;

use super::{
    DriveError, DriveSpec, LabDrive, Qmp, drives,
    guest::{Guest, quote},
    image::{Image, target_dir},
    progress::print_progress,
    qemu::{self, Parts},
    rundir::RunDir,
    snapshot::{self, Booted},
    ssh::Ssh,
};
use crate::{Trouble, children::Process, tools, wait};

/// Longest time from power on to ssh; half a minute on an idle host.
const BOOT_LIMIT: Duration = Duration::from_secs(240);
/// Longest time until qemu has its control socket.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Specification of a machine.
#[derive(Debug)]
pub struct MachineSpec {
    /// Host name, also the node id.
    pub node: String,
    /// Drives, in the order of their slots.
    pub drives: Vec<DriveSpec>,
    /// Further arguments of qemu.
    pub args: Vec<String>,
}

impl MachineSpec {
    /// Specifies a machine without drives except its root disk.
    pub fn new(node: &str) -> Self {
        Self {
            node: node.to_owned(),
            drives: Vec::new(),
            args: Vec::new(),
        }
    }

    /// Appends drives. Slots are assigned in the order of the drives, except to those that request one.
    #[must_use]
    pub fn with(mut self, drives: Vec<DriveSpec>) -> Self {
        self.drives.extend(drives);
        self
    }
}

/// A machine; its power is cut on drop.
#[derive(Debug)]
pub struct Machine {
    // Dropped before the directory, whose files it uses.
    qemu: Option<Process>,
    guest: Guest,
    drives: Vec<Bay>,
    node: String,
    args: Vec<String>,
    image: Image,
    port: u16,
    run: RunDir,
}

/// A drive, and true if it is plugged in.
#[derive(Debug)]
struct Bay {
    drive: LabDrive,
    plugged: bool,
}

/// Way to start a machine.
enum Start<'a> {
    PowerOn,
    From(&'a Booted),
}

impl AsRef<Self> for Machine {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl Machine {
    /// Boots a new machine, with its drives present from power on.
    ///
    /// # Errors
    /// It does not come up; the error has the location of its logs.
    pub fn boot(spec: MachineSpec) -> Result<Self, Trouble> {
        let image = Image::find()?;
        let mut machine = Self::new(spec, image.clone(), &image.root(), "raw")?;
        machine.start(&Start::PowerOn)?;
        machine.introduce(false)?;
        Ok(machine)
    }

    /// Starts a new machine from the snapshot of a booted one, within seconds; its drives are plugged in while it runs. The first call
    /// creates the snapshot.
    ///
    /// # Errors
    /// It does not come up (the error has the location of its logs), or a drive is SATA, which has no hotplug.
    pub fn restored(spec: MachineSpec) -> Result<Self, Trouble> {
        let image = Image::find()?;
        let booted = snapshot::booted(&image)?;
        let mut machine = Self::new(spec, image, &booted.overlay(), "qcow2")?;
        machine.start(&Start::From(&booted))?;
        machine.introduce(true)?;
        let names: Vec<String> = machine.names(|_| true);
        for name in names {
            machine.bay(&name).plugged = false;
            machine.try_plug(&name)?;
        }
        Ok(machine)
    }

    pub(super) fn new(
        spec: MachineSpec,
        image: Image,
        base: &Path,
        format: &str,
    ) -> Result<Self, Trouble> {
        let run = RunDir::new(&spec.node)?;
        let args = ["create", "-q", "-f", "qcow2", "-F", format, "-b"];
        let (base, overlay) = (base.display().to_string(), run.file("root.qcow2"));
        let overlay = overlay.display().to_string();
        tools::run("qemu-img", &[&args[..], &[&base, &overlay]].concat())?;
        let mut drives = Vec::new();
        for drive in spec.drives {
            let drive = drive.make(&run.dir).map_err(drive_trouble)?;
            let plugged = true;
            drives.push(Bay { drive, plugged });
        }
        Ok(Self {
            qemu: None,
            guest: Guest::default(),
            drives,
            node: spec.node,
            args: spec.args,
            image,
            port: 0,
            run,
        })
    }

    /// Powers it on, and waits until ssh works.
    pub(super) fn power_on(&mut self) -> Result<(), Trouble> {
        self.start(&Start::PowerOn)
    }

    fn start(&mut self, how: &Start<'_>) -> Result<(), Trouble> {
        let from = Instant::now();
        let more = match how {
            Start::PowerOn => {
                print_progress(format!("booting {}", self.node));
                let here = self.drives.iter().filter(|bay| bay.plugged);
                let here: Vec<&LabDrive> = here.map(|bay| &bay.drive).collect();
                drives::boot_args(&here).map_err(drive_trouble)?
            }
            Start::From(booted) => {
                print_progress(format!("restoring {}", self.node));
                booted.incoming()
            }
        };
        let done = self
            .launch(&more)
            .and_then(|()| match how {
                Start::PowerOn => Ok(()),
                Start::From(_) => self.wake(),
            })
            .and_then(|()| self.log_in(BOOT_LIMIT))
            .map_err(|trouble| self.explain(trouble));
        if done.is_ok() {
            let took = from.elapsed().as_secs_f64();
            print_progress(format!("{} is up after {took:.1} s", self.node));
        }
        done
    }

    /// Starts qemu; retries with another port if another process took the first.
    fn launch(&mut self, more: &[String]) -> Result<(), Trouble> {
        let (qmp, log) = (self.qmp_socket(), self.run.file("qemu.log"));
        let mut tries = 0;
        loop {
            let _ = std::fs::remove_file(&qmp);
            self.port = free_port()?;
            let share = target_dir()?;
            let mut args = qemu::args(&Parts {
                image: &self.image,
                overlay: &self.run.file("root.qcow2"),
                share: &share,
                console: &self.run.file("console.log"),
                journal: &self.run.file("journal.log"),
                qmp: &qmp,
                port: self.port,
            });
            args.extend_from_slice(&self.args);
            args.extend_from_slice(more);
            let mut process = Process::start(self.image.processor.emulator(), &args, &log)?;
            let up = wait::poll(START_LIMIT, || match process.ended() {
                Some(status) => Some(Err(status)),
                None => qmp.exists().then_some(Ok(())),
            });
            let output = std::fs::read_to_string(&log).unwrap_or_default();
            match up {
                Some(Ok(())) => {
                    self.qemu = Some(process);
                    return Ok(());
                }
                Some(Err(_)) if output.contains("host forwarding") && tries < 5 => tries += 1,
                Some(Err(status)) => {
                    return Err(Trouble::new(format!("qemu ended with {status}: {output}")));
                }
                None => return Err(Trouble::new(format!("qemu does not start: {output}"))),
            }
        }
    }

    /// Resumes the machine: a snapshot is saved and loaded while it is stopped.
    fn wake(&self) -> Result<(), Trouble> {
        let mut qmp = self.qmp()?;
        let mut execute = |command: &str| {
            qmp.execute(command, json!({}))
                .map_err(|error| Trouble::doing(format!("qemu: {command}"), &error))
        };
        wait::poll(START_LIMIT, || match execute("query-status") {
            Ok(answer) if answer["status"] == "inmigrate" => None,
            Ok(_) => Some(Ok(())),
            Err(trouble) => Some(Err(trouble)),
        })
        .unwrap_or_else(|| Err(Trouble::new("the snapshot is not loaded")))?;
        execute("cont").map(drop)
    }

    /// Waits for ssh, and logs in.
    fn log_in(&mut self, limit: Duration) -> Result<(), Trouble> {
        let from = Instant::now();
        loop {
            if let Some(status) = self.qemu.as_mut().and_then(Process::ended) {
                return Err(Trouble::new(format!("qemu ended with {status}")));
            }
            if Ssh::greets(self.port) {
                break;
            }
            if from.elapsed() > limit {
                return Err(Trouble::new(format!(
                    "the guest has no ssh after {} s",
                    limit.as_secs()
                )));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let ssh = Ssh::connect(
            self.port,
            &self.image.key(),
            &self.run.socket("ssh"),
            &self.run.file("ssh.log"),
            limit,
        )?;
        self.guest.connected(Some(ssh));
        Ok(())
    }

    /// Sets what must be unique: the host name; and, for a machine started from another's snapshot, the time, an identity and random seeds.
    fn introduce(&self, woken: bool) -> Result<(), Trouble> {
        let node = quote(&self.node);
        let mut script = format!("set -e\necho {node} >/etc/hostname; hostname {node}\n");
        if woken {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let now = now.unwrap_or_default().as_secs_f64();
            let (id, seed) = (uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4());
            // 0x5207 is RNDRESEEDCRNG: makes the kernel use what was just written.
            script.push_str(&format!(
                "date -s @{now:.3} >/dev/null\n\
                 echo {seed}{id} >/dev/urandom\n\
                 perl -e 'open(my $r, \"<\", \"/dev/urandom\"); ioctl($r, 0x5207, 0) or die $!'\n\
                 echo {id} >/etc/machine-id\n\
                 systemctl restart systemd-journald\n"
            ));
        }
        script.push_str(MOUNT_HOST);
        self.setup(&script)
    }

    fn setup(&self, script: &str) -> Result<(), Trouble> {
        let ran = self.guest.try_run(script, BOOT_LIMIT)?;
        if ran.ok() {
            return Ok(());
        }
        Err(self.explain(Trouble::new(format!(
            "setting up the guest: {}",
            ran.stderr
        ))))
    }

    fn explain(&self, trouble: Trouble) -> Trouble {
        let console = std::fs::read_to_string(self.run.file("console.log")).unwrap_or_default();
        let lines: Vec<&str> = console.lines().collect();
        let tail = lines[lines.len().saturating_sub(20)..].join("\n");
        self.keep_logs();
        Trouble::new(format!("{trouble}\n--- the console's end\n{tail}\n---"))
    }

    /// Returns the connection to the guest.
    pub fn guest(&self) -> &Guest {
        &self.guest
    }

    /// Returns its node id.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Returns qemu's control socket.
    pub fn qmp_socket(&self) -> PathBuf {
        self.run.socket("qmp")
    }

    /// Connects to qemu's control socket, which accepts one client at a time.
    ///
    /// # Errors
    /// qemu does not run.
    pub fn qmp(&self) -> Result<Qmp, Trouble> {
        Qmp::connect(&self.qmp_socket(), START_LIMIT)
            .map_err(|error| Trouble::doing("qemu's control socket", &error))
    }

    /// Returns its directory: logs, overlay.
    pub fn run_dir(&self) -> &RunDir {
        &self.run
    }

    /// Copies its logs to the directory of failed tests.
    pub fn keep_logs(&self) {
        self.run.keep_logs();
    }

    /// Reboots the guest in order, as an operator does.
    ///
    /// # Errors
    /// It does not come back.
    pub fn reboot(&mut self) -> Result<(), Trouble> {
        let from = Instant::now();
        print_progress(format!("rebooting {}", self.node));
        let id = "cat /proc/sys/kernel/random/boot_id";
        let before = self.guest.run(id);
        // The connection may end before the answer.
        let _ = self
            .guest
            .try_run("systemctl --no-block reboot", Duration::from_secs(30));
        loop {
            self.guest.connected(None);
            let left = BOOT_LIMIT.saturating_sub(from.elapsed());
            let up = self.log_in(left).and_then(|()| {
                let limit = Duration::from_secs(30);
                self.guest.try_run(id, limit)
            });
            match up {
                Ok(ran) if ran.ok() && ran.stdout != before => break,
                // The guest is still shutting down.
                _ if from.elapsed() < BOOT_LIMIT => {
                    std::thread::sleep(Duration::from_millis(500));
                }
                Ok(_) => return Err(self.explain(Trouble::new("the guest does not reboot"))),
                Err(trouble) => return Err(self.explain(trouble)),
            }
        }
        print_progress(format!(
            "{} is back after {:.1} s",
            self.node,
            from.elapsed().as_secs_f64()
        ));
        self.setup(MOUNT_HOST)
    }

    /// Cuts its power. Of the unflushed data of served drives, each 512-byte part is kept with probability `keep`, deterministically by
    /// `seed`: 0 loses all, 0.5 tears writes. `power_again` boots it.
    /// # Panics
    /// When a drive's file cannot be written.
    pub fn power_cut(&mut self, keep: f64, seed: u64) {
        for bay in self.drives.iter().filter(|bay| bay.plugged) {
            // A test may have armed a cut at a certain write, which has happened.
            if bay.drive.is_served() && !bay.drive.nbd().is_cut() {
                bay.drive.nbd().cut(keep, seed).unwrap();
            }
        }
        self.power_off();
    }

    /// Cuts the power of the machine, not of its drives: they keep all data that they received.
    pub fn power_off(&mut self) {
        print_progress(format!("cutting the power of {}", self.node));
        self.guest.connected(None);
        if let Some(mut qemu) = self.qemu.take() {
            qemu.kill();
        }
    }

    /// Restores power after `power_cut` or `power_off`: boots with the contents of its root disk and drives.
    ///
    /// # Errors
    /// It does not come up.
    pub fn power_again(&mut self) -> Result<(), Trouble> {
        for bay in self.drives.iter().filter(|bay| bay.drive.is_served()) {
            bay.drive.nbd().power_on();
        }
        self.power_on()?;
        self.setup(MOUNT_HOST)
    }

    /// Powers off and on with exactly these drives plugged in, in this order of slots; the others are unplugged.
    ///
    /// # Errors
    /// It does not come up.
    ///
    /// # Panics
    /// When it has no such drive.
    pub fn power_cycle(&mut self, order: &[&str]) -> Result<(), Trouble> {
        self.power_off();
        for bay in &mut self.drives {
            bay.plugged = false;
            bay.drive.move_to(None);
        }
        for (at, name) in order.iter().enumerate() {
            self.bay(name).plugged = true;
            let from = self.drives.iter().position(|bay| bay.drive.name() == *name);
            self.drives.swap(at, from.expect("it was just found"));
        }
        self.power_again()
    }

    /// Returns one of its drives, plugged in or not.
    ///
    /// # Panics
    /// When it has none of this name.
    pub fn drive(&self, name: &str) -> &LabDrive {
        let bay = self.drives.iter().find(|bay| bay.drive.name() == name);
        &bay.unwrap_or_else(|| panic!("no drive {name}")).drive
    }

    fn bay(&mut self, name: &str) -> &mut Bay {
        let bay = self.drives.iter_mut().find(|bay| bay.drive.name() == name);
        bay.unwrap_or_else(|| panic!("no drive {name}"))
    }

    fn names(&self, which: impl Fn(&Bay) -> bool) -> Vec<String> {
        let bays = self.drives.iter().filter(|bay| which(bay));
        bays.map(|bay| bay.drive.name().to_owned()).collect()
    }

    /// Plugs in one of its drives. The guest detects it a moment later.
    ///
    /// # Panics
    /// When it cannot be plugged in.
    pub fn plug(&mut self, name: &str) {
        self.try_plug(name).unwrap();
    }

    fn try_plug(&mut self, name: &str) -> Result<(), Trouble> {
        let mut qmp = self.qmp()?;
        let bay = self.bay(name);
        assert!(!bay.plugged, "drive {name} is plugged in");
        bay.drive.plug(&mut qmp).map_err(drive_trouble)?;
        bay.plugged = true;
        Ok(())
    }

    /// Unplugs a drive, and waits until the guest has released it.
    ///
    /// # Panics
    /// When it cannot be unplugged.
    pub fn unplug(&mut self, name: &str) {
        let mut qmp = self.qmp().unwrap();
        let bay = self.bay(name);
        bay.drive.unplug(&mut qmp).unwrap();
        bay.plugged = false;
    }

    /// Sets the critical warning of an NVMe drive's SMART log, a set of bits.
    ///
    /// # Panics
    /// When it is no NVMe drive, or not plugged in.
    pub fn smart_warning(&mut self, name: &str, bits: u8) {
        let mut qmp = self.qmp().unwrap();
        let drive = &self.bay(name).drive;
        drive.set_smart_warning(&mut qmp, bits).unwrap();
    }

    /// Creates a drive, and plugs it in.
    ///
    /// # Panics
    /// When it cannot be made, or not be plugged in.
    pub fn add(&mut self, spec: DriveSpec) {
        let drive = spec.make(&self.run.dir).unwrap();
        let name = drive.name().to_owned();
        let plugged = false;
        self.drives.push(Bay { drive, plugged });
        self.plug(&name);
    }

    /// Removes an unplugged drive from the machine, for another machine.
    ///
    /// # Panics
    /// When it is plugged in, or not there.
    pub fn take(&mut self, name: &str) -> LabDrive {
        assert!(!self.bay(name).plugged, "drive {name} is plugged in");
        let at = self.drives.iter().position(|bay| bay.drive.name() == name);
        self.drives.remove(at.expect("it was just found")).drive
    }

    /// Plugs in a drive of another machine. Its files stay in that machine's directory, so that machine must not be dropped.
    ///
    /// # Panics
    /// When it cannot be plugged in.
    pub fn give(&mut self, drive: LabDrive) {
        let name = drive.name().to_owned();
        let plugged = false;
        self.drives.push(Bay { drive, plugged });
        self.plug(&name);
    }

    /// Waits until qemu has ended without a kill.
    ///
    /// # Errors
    /// It still runs after the deadline.
    pub fn ends(&mut self, limit: Duration) -> Result<(), Trouble> {
        self.guest.connected(None);
        let Some(mut qemu) = self.qemu.take() else {
            return Ok(());
        };
        wait::poll(limit, || qemu.ended())
            .map(drop)
            .ok_or_else(|| Trouble::new("qemu does not end"))
    }

    /// Returns qemu's process id while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.qemu.as_ref().map(Process::pid)
    }
}

/// After the start, since a snapshot cannot contain a mounted share.
const MOUNT_HOST: &str = "mountpoint -q /host || \
     mount -t 9p -o trans=virtio,ro,msize=512000,cache=none host /host";

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.keep_logs();
        }
        self.guest.connected(None);
    }
}

fn drive_trouble(error: DriveError) -> Trouble {
    Trouble::doing("a drive of the lab", &error)
}

fn free_port() -> Result<u16, Trouble> {
    let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(probe.local_addr()?.port())
}
