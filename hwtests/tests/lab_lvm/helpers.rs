//! Steps that several of these tests share.

use std::time::Duration;

use drivebay_hwtests::{
    MIB,
    lab::{Guest, LabRig},
};
use drivebay_proto::agent as wire;
use serde_json::Value;
use tonic::{Code, Status};

/// Time limit for the agent to process an event.
pub(crate) const EVENT_LIMIT: Duration = Duration::from_secs(60);

/// Returns the device node of the drive with this serial number; waits until the guest has it.
pub(crate) fn node(guest: &Guest, serial: &str) -> String {
    let what = format!("drive {serial} in the guest");
    guest.wait_until(EVENT_LIMIT, &what, |guest| {
        let listed = guest.run("lsblk --nodeps --noheadings -o PATH,SERIAL");
        let mut lines = listed.lines().map(str::split_whitespace);
        lines.find_map(|mut words| {
            let path = words.next()?;
            (words.next() == Some(serial)).then(|| path.to_owned())
        })
    })
}

/// Returns the digest of all bytes on the medium of a drive, read by the guest with O_DIRECT.
pub(crate) fn print(guest: &Guest, node: &str) -> String {
    guest.run_pipes(&format!(
        "sync {node} && dd if={node} bs=4M iflag=direct status=none | sha256sum"
    ))
}

/// Waits until the agent lists the drive with this serial number in a state.
pub(crate) async fn drive_is(lab: &LabRig, serial: &str, state: &str) -> wire::Drive {
    lab.drive_where_is(serial, state, |drive| drive.serial == serial)
        .await
}

/// Returns the rows of the host's own `lvs`, `vgs` or `pvs`, with the host's LVM configuration.
pub(crate) fn host(guest: &Guest, command: &str, columns: &str) -> Vec<Value> {
    let output = guest.run(&format!(
        "{command} --reportformat json --units b --nosuffix -o {columns}"
    ));
    let report: Value = serde_json::from_str(&output).unwrap();
    let rows = report["report"][0][command.trim_end_matches('s')].as_array();
    rows.unwrap().clone()
}

/// Returns a column of a row as a number.
pub(crate) fn number(row: &Value, column: &str) -> u64 {
    row[column].as_str().unwrap().parse().unwrap()
}

/// Checks that the host's own commands report the same as the agent: names and sizes of volumes, space of drives.
pub(crate) async fn host_agrees(lab: &LabRig) {
    let inventory = lab.inventory().await;
    let guest = lab.guest();
    let mut host_rows: Vec<(String, String, u64, String)> = Vec::new();
    for row in host(
        guest,
        "lvs",
        "lv_name,lv_size,lv_tags,lv_active,lv_kernel_minor",
    ) {
        let tags = row["lv_tags"].as_str().unwrap();
        let uuid = tags
            .split(',')
            .find_map(|tag| tag.strip_prefix("drivebay.uuid="));
        let device = match row["lv_active"].as_str().unwrap() {
            "active" => format!("dm-{}", row["lv_kernel_minor"].as_str().unwrap()),
            _ => String::new(),
        };
        let name = row["lv_name"].as_str().unwrap().to_owned();
        host_rows.push((
            uuid.unwrap().to_owned(),
            name,
            number(&row, "lv_size"),
            device,
        ));
    }
    host_rows.sort();
    let mut agent_rows: Vec<(String, String, u64, String)> = Vec::new();
    for volume in &inventory.volumes {
        let uuid = volume.id.split('@').next().unwrap();
        // A name that is valid in LVM is that of the LV.
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
        let taken = volume.name.starts_with('-') || volume.name == "snapshot";
        let name = if !taken && volume.name.chars().all(plain) {
            volume.name.clone()
        } else {
            format!("vol-{uuid}")
        };
        agent_rows.push((
            uuid.to_owned(),
            name,
            volume.size_bytes,
            volume.device.clone(),
        ));
    }
    agent_rows.sort();
    assert_eq!(host_rows, agent_rows, "lvs (left) and the agent (right)");

    let mut vgs: Vec<_> = host(guest, "vgs", "vg_size,vg_free,lv_count,pv_count")
        .iter()
        .map(|row| ["vg_size", "vg_free", "lv_count", "pv_count"].map(|of| number(row, of)))
        .collect();
    vgs.sort_unstable();
    let mut pvs: Vec<_> = host(guest, "pvs", "pv_name,pv_size,pv_free")
        .iter()
        .map(|row| {
            let name = row["pv_name"].as_str().unwrap().to_owned();
            (name, number(row, "pv_size"), number(row, "pv_free"))
        })
        .collect();
    pvs.sort();
    let claimed = inventory
        .drives
        .iter()
        .filter(|drive| drive.state == "claimed");
    let claimed: Vec<_> = claimed.collect();
    let mut of_vgs: Vec<_> = claimed
        .iter()
        .map(|drive| {
            let volumes = inventory.volumes.iter().filter(|of| of.drive == drive.id);
            [
                drive.usable_bytes,
                drive.free_bytes,
                volumes.count() as u64,
                1,
            ]
        })
        .collect();
    of_vgs.sort_unstable();
    assert_eq!(vgs, of_vgs, "vgs (left) and the agent (right)");
    let mut of_pvs: Vec<_> = claimed
        .iter()
        .map(|drive| {
            let node = format!("/dev/{}", drive.kernel_name);
            (node, drive.usable_bytes, drive.free_bytes)
        })
        .collect();
    of_pvs.sort();
    assert_eq!(pvs, of_pvs, "pvs (left) and the agent (right)");
    assert!(claimed.iter().all(|drive| drive.usable_bytes % MIB == 0));
}

/// Repeats a call while it returns UNAVAILABLE or ABORTED, as an orchestrator does, up to five calls; e.g. during a check of a neighbour.
pub(crate) async fn repeated<T>(call: impl AsyncFn() -> Result<T, Status>) -> T {
    for _ in 0..4 {
        match call().await {
            Err(status) if matches!(status.code(), Code::Unavailable | Code::Aborted) => {}
            answer => return answer.unwrap(),
        }
    }
    call().await.unwrap()
}
