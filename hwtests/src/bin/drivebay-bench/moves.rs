//! A volume moved to another drive, copied and compared, beside `dd` between the same drives. Each drive serves one request at a time, like
//! a spindle; all data is zeros.

use std::{
    collections::HashMap,
    path::Path,
    time::{Duration, Instant},
};

use clap::Args;
use drivebay_hwtests::{MIB, Rig, Trouble, csi, hang::HungDrive, tools};
use drivebay_proto::{
    agent::{MoveVolumesRequest, agent_client::AgentClient},
    csi::CreateVolumeRequest,
};

/// Space of a drive besides the volume: for its label, and spare.
const BESIDE: u64 = 64 * MIB;
const LIMIT: Duration = Duration::from_secs(1800);

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Size of the volume.
    #[arg(long, default_value_t = 1024)]
    mib: u64,
    /// Pairs of new drives.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Microseconds that each request takes longer.
    #[arg(long, default_value_t = 0)]
    late: u64,
}

pub(crate) async fn run(options: &Options) -> Result<(), Trouble> {
    println!(
        "{:>5}  {:>8}  {:>8}  {:>8}",
        "MiB", "dd, s", "move, s", "dd/move"
    );
    for _ in 0..options.rounds {
        let (dd, moved) = measure(options).await?;
        println!(
            "{:>5}  {:>8.2}  {:>8.2}  {:>8.2}",
            options.mib,
            dd.as_secs_f64(),
            moved.as_secs_f64(),
            dd.as_secs_f64() / moved.as_secs_f64()
        );
    }
    Ok(())
}

fn drive(options: &Options) -> Result<HungDrive, Trouble> {
    let drive = HungDrive::new(options.mib * MIB + BESIDE)?.large_requests()?;
    let late = Duration::from_micros(options.late);
    drive.answer_late(late, late);
    Ok(drive)
}

fn by_dd(from: &Path, to: &Path, mib: u64) -> Result<Duration, Trouble> {
    let begun = Instant::now();
    tools::run(
        "dd",
        &[
            format!("if={}", from.display()).as_str(),
            format!("of={}", to.display()).as_str(),
            "bs=1M",
            "skip=32",
            "seek=32",
            format!("count={mib}").as_str(),
            "iflag=direct",
            "oflag=direct",
            "conv=fsync,notrunc",
            "status=none",
        ],
    )?;
    Ok(begun.elapsed())
}

async fn measure(options: &Options) -> Result<(Duration, Duration), Trouble> {
    let drives = [drive(options)?, drive(options)?];
    let [first, second] = [drives[0].drive_ref()?.node(), drives[1].drive_ref()?.node()];
    let dd = by_dd(&first, &second, options.mib)?;
    let paths: Vec<String> = drives
        .iter()
        .map(|drive| drive.file().display().to_string())
        .collect();
    let rig = Rig::tuned(Vec::new(), |settings| {
        settings.more = format!(
            "[moves]\nmax-bytes-per-second = \"unlimited\"\n[[class]]\nname = \"bench\"\nlayout = \"partition\"\n[class.select]\npath = {paths:?}\n"
        );
    })
    .await;
    for drive in &drives {
        rig.is_available(drive).await;
    }
    let made = rig
        .volume_with(CreateVolumeRequest {
            name: "moved".to_owned(),
            capacity_range: Some(csi::bytes(options.mib * MIB)),
            volume_capabilities: vec![csi::block()],
            parameters: HashMap::from([("class".to_owned(), "bench".to_owned())]),
            ..Default::default()
        })
        .await?;
    let from = rig
        .volume_of(&made.id)
        .await
        .ok_or_else(|| Trouble::new("the volume is not listed"))?
        .drive;
    let request = MoveVolumesRequest {
        drive: from.clone(),
        by: "bench".into(),
        ..Default::default()
    };
    let mut client = AgentClient::new(csi::channel(&rig.agent_socket).await?);
    let begun = Instant::now();
    client.move_volumes(request).await?;
    loop {
        let now = rig.volume_of(&made.id).await;
        if now.is_some_and(|now| now.drive != from) {
            return Ok((dd, begun.elapsed()));
        }
        if begun.elapsed() > LIMIT {
            return Err(Trouble::new("the volume has not moved"));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
