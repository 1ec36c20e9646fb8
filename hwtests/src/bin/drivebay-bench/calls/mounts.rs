//! Publish and unpublish with few and with many other mounts on the host.

use std::{fs, time::Duration};

use drivebay_hwtests::{DriveSpec, GIB, MIB, Rig, Trouble, csi};
use drivebay_proto::csi::volume_capability::{AccessType, MountVolume, access_mode::Mode};

use super::{
    admin::{Others, bind, unmount},
    table::{Pair, Table, clocked, timed},
};

const OTHERS: [usize; 2] = [10, 5000];
/// Calls of each kind in a round.
const CALLS: usize = 10;
/// Time for the agent to process a change of the mount table.
const QUIET: Duration = Duration::from_secs(2);

pub(super) async fn measure(table: &mut Table, rounds: usize) -> Result<(), Trouble> {
    let rig = Rig::tuned(vec![DriveSpec::blank("a", 2 * GIB)], |settings| {
        "partition".clone_into(&mut settings.layout);
        "info".clone_into(&mut settings.log);
    })
    .await;
    let capability = csi::capability(
        AccessType::Mount(MountVolume::default()),
        Mode::SingleNodeMultiWriter,
    );
    let volume = rig.volume("published", 256 * MIB, &capability).await;
    rig.use_volume(&volume).await;
    let beside = rig.dir().join("beside");
    fs::create_dir(&beside)?;

    let mut sizes = Vec::new();
    for count in OTHERS {
        let others = Others::new(rig.dir(), &beside, count)?;
        tokio::time::sleep(QUIET).await;
        let (mut publish, mut unpublish) = (Pair::default(), Pair::default());
        for round in 0..=rounds * CALLS {
            let target = volume.target.with_file_name(format!("target-{round}"));
            let (done, ours) =
                timed(
                    rig.csi
                        .publish(&volume.id, &volume.staging, &target, &capability, false),
                )
                .await;
            done?;
            let (done, bare) = clocked(|| bind(&volume.staging, &beside));
            done?;
            let (done, ours_off) = timed(rig.csi.unpublish(&volume.id, &target)).await;
            done?;
            let (done, bare_off) = clocked(|| unmount(&beside));
            done?;
            // The first round starts the worker that unmounts, so it is not counted.
            if round > 0 {
                publish.push(ours, bare);
                unpublish.push(ours_off, bare_off);
            }
        }
        sizes.push((format!("{count} mounts"), publish, unpublish));
        drop(others);
    }
    rig.leave_volume(&volume).await;

    table.section(
        "Publish and unpublish, beside: mount --bind and umount. By other mounts on the host",
    );
    for (size, publish, _) in &sizes {
        table.pair("publish", size, publish);
    }
    for (size, _, unpublish) in &sizes {
        table.pair("unpublish", size, unpublish);
    }
    Ok(())
}
