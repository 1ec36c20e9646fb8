//! Drives that answer late. Counts how many of them work at the same time, so that the result does not depend on the machine.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use super::{HungDrive, MIB, Pair, Rig, Table, Trouble, VOLUME, available, leave, make, timed};

const DRIVES: usize = 8;
const VOLUMES: usize = 16;
/// Delay of each request; shown in the table.
const LATE: Duration = Duration::from_millis(5);
/// Interval between two counts of the drives that delay a request.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

pub(crate) async fn measure(table: &mut Table, rounds: usize) -> Result<(), Trouble> {
    let mut wall = Pair::default();
    let (mut most, mut all) = (0, Vec::new());
    for _ in 0..rounds {
        let (apart, _) = of(1).await?;
        let (at_once, working) = of(VOLUMES).await?;
        wall.push(at_once, apart);
        most = most.max(working.iter().copied().max().unwrap_or_default());
        all.extend(working);
    }
    table.section(
        "Drives of FUSE whose every request takes 5 ms: at once, beside: one after another",
    );
    let what = format!("{VOLUMES} x create+stage, all of it");
    table.pair(&what, &format!("{DRIVES} drives"), &wall);
    let mean = all.iter().sum::<usize>() as f64 / all.len().max(1) as f64;
    table.note(&format!(
        "    drives at work at the same time: most {most}, mean {mean:.1}"
    ));
    Ok(())
}

/// Creates volumes on blank drives, `at_once` at a time; returns the total time, and the number of drives with a request at each sample.
async fn of(at_once: usize) -> Result<(Duration, Vec<usize>), Trouble> {
    let drives: Vec<HungDrive> = (0..DRIVES)
        .map(|_| HungDrive::new(64 * MIB + VOLUMES as u64 * VOLUME))
        .collect::<Result<_, _>>()?;
    let files: Vec<String> = drives
        .iter()
        .map(|drive| format!("{:?}", drive.file()))
        .collect();
    let rig = Rig::tuned(Vec::new(), |settings| {
        settings.select = format!("path = [{}]", files.join(", "));
        "partition".clone_into(&mut settings.layout);
        "spread".clone_into(&mut settings.placement);
        "info".clone_into(&mut settings.log);
    })
    .await;
    available(&rig, DRIVES).await;
    for drive in &drives {
        drive.answer_late(LATE, LATE);
    }
    let drives = Arc::new(drives);
    let done = Arc::new(AtomicBool::new(false));
    let counting = {
        let (drives, done) = (Arc::clone(&drives), Arc::clone(&done));
        thread::spawn(move || {
            let mut counted = Vec::new();
            while !done.load(Ordering::Relaxed) {
                let at_work = drives.iter().filter(|drive| drive.delayed() > 0);
                counted.push(at_work.count());
                thread::sleep(POLL_INTERVAL);
            }
            counted
        })
    };
    let (made, time) = timed(make(&rig.node, VOLUMES, at_once)).await;
    done.store(true, Ordering::Relaxed);
    let counted = counting
        .join()
        .map_err(|_| Trouble::new("counting panicked"))?;
    for drive in drives.iter() {
        drive.answer_late(Duration::ZERO, Duration::ZERO);
    }
    leave(&rig.node, made?.0).await;
    Ok((time, counted))
}
