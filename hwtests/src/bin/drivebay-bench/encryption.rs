//! Encrypted volumes of layout lvm, in the lab's guest: stage beside cryptsetup and mount on the same device, and reads and writes beside a
//! device that cryptsetup opened by hand, with and without its work queues, and beside a volume without encryption.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use clap::Args;
use drivebay_hwtests::{MIB, Rig, Trouble, csi, node::Placed, tools};
use drivebay_proto::csi::{CreateVolumeRequest, VolumeCapability};
use drivebay_sys::direct::Aligned;

use crate::{
    calls::table::{Pair, Table, Times, clocked, timed},
    check::volume,
};

const SECRETS: [(&str, &str); 1] = [("passphrase", "bench")];
/// Name of a mapped device by hand.
const HAND: &str = "drivebay-bench-hand";
/// Options of cryptsetup's open that leave out its work queues.
const NO_QUEUES: [&str; 2] = ["--perf-no_read_workqueue", "--perf-no_write_workqueue"];

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Rounds of each measurement.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Size of the volumes.
    #[arg(long, default_value_t = 256)]
    mib: u64,
    /// Prefix of the drives' serial numbers. They are overwritten; only qemu's drives are taken.
    #[arg(long, default_value = "bench")]
    drives: String,
}

/// A kind of access to a device, O_DIRECT.
#[derive(Debug, Clone, Copy)]
struct Access {
    name: &'static str,
    bytes: u64,
    count: usize,
    writes: bool,
}

const ACCESSES: [Access; 4] = [
    Access {
        name: "write 1 MiB, sequential",
        bytes: MIB,
        count: 64,
        writes: true,
    },
    Access {
        name: "read 1 MiB, sequential",
        bytes: MIB,
        count: 64,
        writes: false,
    },
    Access {
        name: "write 4 KiB, random, synced",
        bytes: 4096,
        count: 200,
        writes: true,
    },
    Access {
        name: "read 4 KiB, random",
        bytes: 4096,
        count: 400,
        writes: false,
    },
];

impl Access {
    /// Makes the accesses; returns the duration of each.
    fn on(self, device: &Path, mib: u64) -> io::Result<Times> {
        let file = OpenOptions::new()
            .read(true)
            .write(self.writes)
            .custom_flags(libc::O_DIRECT)
            .open(device)?;
        let mut block = Aligned::new(usize::try_from(self.bytes).map_err(io::Error::other)?);
        fastrand::fill(block.bytes_mut());
        let places = mib * MIB / self.bytes;
        let mut times = Times::default();
        for at in 0..self.count as u64 {
            let place = match self.bytes {
                MIB => at % places,
                _ => fastrand::u64(..places),
            };
            let begun = Instant::now();
            self.once(&file, &mut block, place * self.bytes)?;
            times.push(begun.elapsed());
        }
        Ok(times)
    }

    fn once(self, file: &File, block: &mut Aligned, at: u64) -> io::Result<()> {
        if !self.writes {
            return file.read_exact_at(block.bytes_mut(), at);
        }
        file.write_all_at(block.bytes(), at)?;
        match self.bytes {
            MIB => Ok(()),
            _ => file.sync_data(),
        }
    }
}

/// Devices beside which ours is measured, in the order of `Beside`.
const OTHERS: [&str; 3] = [
    "A raw encrypted volume, beside: the same device opened by cryptsetup's defaults",
    "The same, beside: opened without the work queues of dm-crypt",
    "The same, beside: a volume without encryption",
];

/// Results of one kind of access: ours beside each of the others.
type Beside = [Pair; OTHERS.len()];

pub(crate) async fn run(options: &Options) -> Result<(), Trouble> {
    let drives = volume::drives(&options.drives)?;
    let [(serial, _), ..] = drives.as_slice() else {
        return Err(Trouble::new(format!(
            "needs a drive of qemu whose serial begins with {}: run hwtests/bench encryption",
            options.drives
        )));
    };
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    println!(
        "Linux {}, {} rounds; an emulated NVMe drive",
        kernel.trim(),
        options.rounds
    );
    let rig = Rig::tuned(Vec::new(), |settings| {
        "lvm".clone_into(&mut settings.layout);
        "info".clone_into(&mut settings.log);
        settings.select = format!("drive = [\"*{serial}*\"]");
    })
    .await;
    let here = |drive: &drivebay_proto::agent::Drive| drive.serial == *serial;
    rig.drive_where_is(serial, "available", here).await;
    let bench = Bench {
        rig: &rig,
        key: key(rig.dir())?,
        mib: options.mib,
    };
    let stage = bench.stage(options.rounds).await?;
    let accesses = bench.accesses(options.rounds).await?;

    let mut table = Table::begin(&[
        "Milliseconds of one call or access. ratio: our median to that beside it, in turns."
            .to_owned(),
    ]);
    table.section(
        "Stage an encrypted ext4 that exists, beside: cryptsetup open and mount of the same device",
    );
    table.pair("stage", "64 MiB", &stage);
    let size = format!("{} MiB", options.mib);
    for (other, about) in OTHERS.iter().enumerate() {
        table.section(about);
        for (access, beside) in ACCESSES.iter().zip(&accesses) {
            table.pair(access.name, &size, &beside[other]);
        }
    }
    Ok(())
}

fn key(dir: &Path) -> Result<PathBuf, Trouble> {
    let path = dir.join("bench.key");
    fs::write(&path, SECRETS[0].1)?;
    Ok(path)
}

struct Bench<'a> {
    rig: &'a Rig,
    /// File with the secret.
    key: PathBuf,
    mib: u64,
}

impl Bench<'_> {
    async fn volume(
        &self,
        name: &str,
        mib: u64,
        capability: &VolumeCapability,
        is_encrypted: bool,
    ) -> Result<Placed, Trouble> {
        let encryption = is_encrypted.then(|| ("encryption".to_owned(), "luks2".to_owned()));
        let made = self.rig.volume_with(CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(csi::bytes(mib * MIB)),
            volume_capabilities: vec![capability.clone()],
            parameters: encryption.into_iter().collect(),
            ..Default::default()
        });
        Ok(made.await?)
    }

    async fn open(&self, volume: &Placed) -> Result<Duration, Trouble> {
        let (id, staging) = (&volume.id, &volume.staging);
        let csi = &self.rig.csi;
        let staged = csi.stage_with(id, staging, &volume.capability, &SECRETS);
        let (staged, took) = timed(staged).await;
        staged?;
        Ok(took)
    }

    async fn close(&self, volume: &Placed) -> Result<(), Trouble> {
        Ok(self.rig.csi.unstage(&volume.id, &volume.staging).await?)
    }

    /// Opens a device by hand, which must not be open.
    fn by_hand(&self, device: &Path, options: &[&str]) -> Result<PathBuf, Trouble> {
        let (device, key) = (device.display().to_string(), self.key.display().to_string());
        let args = [
            &["open", "--type", "luks2", "--key-file", &key][..],
            options,
        ]
        .concat();
        tools::run("cryptsetup", &[&args[..], &[&device, HAND]].concat())?;
        Ok(Path::new("/dev/mapper").join(HAND))
    }

    fn close_by_hand(&self) -> Result<(), Trouble> {
        tools::run("cryptsetup", &["close", HAND]).map(drop)
    }

    /// Returns the durations of each kind of access to a device.
    fn each(&self, device: &Path) -> io::Result<Vec<Times>> {
        let all = ACCESSES.iter();
        all.map(|access| access.on(device, self.mib)).collect()
    }

    async fn stage(&self, rounds: usize) -> Result<Pair, Trouble> {
        let volume = self.volume("files", 64, &csi::mount("ext4"), true).await?;
        // The first stage makes header and filesystem.
        self.open(&volume).await?;
        self.close(&volume).await?;
        let device = self.rig.device(&volume).await;
        let at = self.rig.dir().join("by-hand");
        fs::create_dir(&at)?;
        let at = at.display().to_string();
        let mut pair = Pair::default();
        for round in 1..=rounds {
            let ours = self.open(&volume).await?;
            self.close(&volume).await?;
            let (done, bare) = clocked(|| {
                let mapped = self.by_hand(&device, &[])?;
                tools::run("mount", &[&mapped.display().to_string(), &at])
            });
            done?;
            tools::run("umount", &[&at])?;
            self.close_by_hand()?;
            pair.push(ours, bare);
            println!("stage: round {round}");
        }
        self.rig.csi.delete(&volume.id).await?;
        Ok(pair)
    }

    async fn accesses(&self, rounds: usize) -> Result<[Beside; ACCESSES.len()], Trouble> {
        let volume = self.volume("raw", self.mib, &csi::block(), true).await?;
        let plain = self.volume("plain", self.mib, &csi::block(), false).await?;
        self.rig.use_volume(&plain).await;
        self.open(&volume).await?;
        self.rig.publish(&volume).await;
        let device = self.rig.device(&volume).await;
        let mut all = <[Beside; ACCESSES.len()]>::default();
        // Allocates the drive's file on the host, so that no measured write does.
        let whole = Access {
            count: usize::try_from(self.mib).map_err(io::Error::other)?,
            ..ACCESSES[0]
        };
        for of in [&volume, &plain] {
            whole.on(&of.target, self.mib)?;
        }
        for round in 1..=rounds {
            let ours = self.each(&volume.target)?;
            self.rig.leave_volume(&volume).await;
            let mut others = Vec::new();
            for options in [&[][..], &NO_QUEUES] {
                let mapped = self.by_hand(&device, options)?;
                let times = self.each(&mapped);
                self.close_by_hand()?;
                others.push(times?);
            }
            others.push(self.each(&plain.target)?);
            self.open(&volume).await?;
            self.rig.publish(&volume).await;
            for (at, ours) in ours.into_iter().enumerate() {
                for (pair, times) in all[at].iter_mut().zip(&others) {
                    pair.extend(Pair {
                        ours: ours.clone(),
                        bare: times[at].clone(),
                    });
                }
            }
            println!("accesses: round {round}");
        }
        for of in [&volume, &plain] {
            self.rig.leave_volume(of).await;
        }
        Ok(all)
    }
}
