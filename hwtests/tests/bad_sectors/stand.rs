//! Many rows at a time on one agent, each with a drive of its own.

use std::{fs, future::Future, time::Instant};

use drivebay_hwtests::{
    DriveSpec, GIB, MIB, Rig,
    each::each,
    faults::{self, Outcomes},
    hang::HungDrive,
    settings::layout,
};

use crate::row::{Outcome, Row, Spec};

const DRIVE: u64 = 256 * MIB;

/// Results of all rows.
pub(crate) type Table = Outcomes<Outcome>;

impl faults::Outcome for Outcome {
    const HEAD: &'static [&'static str] = &[
        "PLACE", "FAULT", "DRIVE", "SEEN", "STAGED", "DELETED", "REPAIRED",
    ];

    fn cells(&self) -> Vec<String> {
        [
            &self.place,
            &self.fault,
            &self.used,
            &self.drive_state,
            &self.staged,
            &self.deleted,
            &self.repaired,
        ]
        .map(String::clone)
        .into()
    }

    fn wrong(&self) -> &[String] {
        &self.wrong
    }
}

/// Fields are dropped in this order: the agent and the mounts before the drives.
struct Stand {
    rig: Rig,
    rows: Vec<Row>,
}

impl Stand {
    async fn new(specs: &[Spec]) -> Self {
        let drives: Vec<_> = specs
            .iter()
            .map(|_| HungDrive::new(DRIVE).unwrap().large_requests().unwrap())
            .collect();
        let class = |(n, drive): (usize, &HungDrive)| drive.class(&format!("bad{n}"), &layout());
        let more: String = drives.iter().enumerate().map(class).collect();
        // The agent needs a class for the shelf's drive; this one is never claimed.
        let rig = Rig::tuned(vec![DriveSpec::blank("unused", GIB)], |settings| {
            settings.more = more;
        })
        .await;
        for drive in &drives {
            rig.is_available(drive).await;
        }
        let row = |(n, (drive, spec)): (usize, (HungDrive, &Spec))| {
            Row::new(*spec, format!("bad{n}"), drive, rig.node.clone())
        };
        let rows = drives.into_iter().zip(specs).enumerate().map(row).collect();
        Self { rig, rows }
    }

    async fn each<F: Future<Output = Row> + 'static>(&mut self, act: impl Fn(Row) -> F) {
        self.rows = each(std::mem::take(&mut self.rows), act).await;
    }

    /// Runs `act` on each row, which changes drives below the kernel's caches; then drops these, and has the agent scan, restarted or not.
    async fn changed(&mut self, act: impl AsyncFn(Row) -> Row, restart: bool) {
        if restart {
            self.rig.agent.stop().unwrap();
        }
        let mut rows = Vec::new();
        for row in std::mem::take(&mut self.rows) {
            rows.push(act(row).await);
        }
        self.rows = rows;
        fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
        if restart {
            self.rig.start_again().await;
            for row in &mut self.rows {
                row.node = self.rig.node.clone();
            }
        }
        self.rig.rescan().await;
    }
}

/// Runs rows with faults at the same time; after each change the agent is restarted or scans again.
pub(crate) async fn run(specs: &[Spec], restart: bool) -> Table {
    let begun = Instant::now();
    let log = |what: &str| eprintln!("{:6.1} s: {what}", begun.elapsed().as_secs_f64());
    let mut stand = Stand::new(specs).await;
    stand.each(Row::prepare).await;
    log("prepared");
    stand.changed(Row::strike, restart).await;
    log("struck");
    stand.each(Row::act).await;
    log("acted");
    stand.changed(Row::mend, restart).await;
    stand.each(Row::judge).await;
    log("judged");
    let with = if restart { ", restarted" } else { "" };
    let outcome = |row: &Row| Outcome {
        used: format!("{}{with}", row.outcome.used),
        ..row.outcome.clone()
    };
    Outcomes(stand.rows.iter().map(outcome).collect())
}
