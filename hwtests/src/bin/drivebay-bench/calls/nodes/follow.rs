//! Time until a controller counts a drive that is plugged into a node.

use std::time::Duration;

use drivebay_hwtests::{
    DriveSpec, MIB, Shelf, Trouble,
    pair::{Link, Pair},
    program,
};

use super::{LISTED, Table, Times, timed};

const DRIVES: [usize; 2] = [8, 64];
/// Interval of polling the controller.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

pub(crate) async fn measure(table: &mut Table, rounds: usize) -> Result<(), Trouble> {
    if program::controller().is_err() {
        table.note("Without a controller: hwtests/bench builds it");
        return Ok(());
    }
    table.section("A drive that is plugged in, until the controller counts its room");
    for drives in DRIVES {
        let times = of(drives, rounds).await?;
        table.alone(
            "drive plugged until counted",
            &format!("{drives} drives"),
            &times,
        );
    }
    Ok(())
}

async fn of(drives: usize, rounds: usize) -> Result<Times, Trouble> {
    let mut shelf = Shelf::new()?;
    for number in 0..drives {
        shelf.add(DriveSpec::blank(&format!("d{number}"), 64 * MIB))?;
    }
    let mut pair = Pair::start(Link::Socket, shelf, |_| ()).await;
    let mut times = Times::default();
    for number in 0..rounds {
        let name = format!("plugged{number}");
        let before = pair.csi.capacity().await?;
        pair.shelf.add(DriveSpec::blank(&name, 64 * MIB))?;
        let (counted, time) = timed(becomes(&pair, |bytes| bytes > before)).await;
        counted?;
        times.push(time);
        pair.shelf.pull(&name);
        becomes(&pair, |bytes| bytes == before).await?;
    }
    Ok(times)
}

/// Waits until the capacity of all drives satisfies `is`.
async fn becomes(pair: &Pair, is: impl Fn(i64) -> bool) -> Result<(), Trouble> {
    let polling = async {
        while !is(pair.csi.capacity().await?) {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    };
    let counted = tokio::time::timeout(LISTED, polling).await;
    counted.map_err(|_| Trouble::new("the controller does not count a plugged drive"))?
}
