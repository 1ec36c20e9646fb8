//! A separate machine for each test that makes a drive hang or fail, with a class for each drive.

use std::time::{Duration, Instant};

use drivebay_hwtests::{
    Csi, GIB, MIB, csi,
    lab::{
        DriveSpec, LabRig, Machine, MachineSpec,
        letters::{LAB_LIMIT, class_per_drive},
    },
    node::Placed,
};
use drivebay_proto::csi::{CreateVolumeRequest, Volume, VolumeContentSource};
use tonic::{Code, Status};

/// Starts a machine with a healthy drive, one that is going to hang or fail, and one of layout partition. `is_installed`: the agent runs
/// from its unit file.
pub(crate) async fn stand(is_installed: bool) -> LabRig {
    let drives = vec![
        DriveSpec::scsi("well-drive", 2 * GIB),
        DriveSpec::scsi("hang-drive", 2 * GIB).served(),
        DriveSpec::scsi("table-drive", GIB),
    ];
    let classes = class_per_drive(&[
        ("well", "lvm", "well-drive"),
        ("hang", "lvm", "hang-drive"),
        ("table", "partition", "table-drive"),
    ]);
    let machine = Machine::restored(MachineSpec::new("node1").with(drives)).unwrap();
    let lab = match is_installed {
        true => LabRig::installed(machine, "lvm", classes).await,
        false => LabRig::tuned(machine, "lvm", classes).await,
    };
    lab.are_available(&["well-drive", "hang-drive", "table-drive"])
        .await;
    lab
}

/// Returns a volume on each of the two drives of layout lvm, in use.
pub(crate) async fn on_both(lab: &LabRig) -> [Placed; 2] {
    let volumes = [
        lab.volume_in("well", "well", 32 * MIB, &csi::mount("ext4"))
            .await,
        lab.volume_in("hang", "hang", 32 * MIB, &csi::block()).await,
    ];
    for of in &volumes {
        lab.serve(of).await;
    }
    volumes
}

/// Returns the kernel name of a volume's device.
pub(crate) async fn device(lab: &LabRig, of: &Placed) -> String {
    let device = lab.device(of).await;
    device.file_name().unwrap().to_string_lossy().into_owned()
}

/// Creates a raw volume as a copy in a class, repeating the call while it is being copied.
pub(crate) async fn try_copy(
    client: &Csi,
    class: &str,
    name: &str,
    bytes: u64,
    source: &VolumeContentSource,
) -> Result<Volume, Status> {
    let request = CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(csi::bytes(bytes)),
        volume_capabilities: vec![csi::block()],
        parameters: [("class".to_owned(), class.to_owned())].into(),
        volume_content_source: Some(source.clone()),
        ..Default::default()
    };
    let begun = Instant::now();
    loop {
        match client.create_with(request.clone()).await {
            Err(status) if status.code() == Code::Aborted && begun.elapsed() < LAB_LIMIT => {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            answer => return answer,
        }
    }
}
