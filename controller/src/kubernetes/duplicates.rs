//! Deletes volumes that were never used and share their name with the volume that the PersistentVolume of that name uses.
//!
//! The watched state may be outdated, so all PersistentVolumes are read again before a volume is deleted. That is rare.

use drivebay_proto::VolumeId;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Api, Client, api::ListParams};
use tokio_util::sync::CancellationToken;

use drivebay_service::{
    agents::{Agents, duplicates::Due},
    peer_log::printable,
};

/// Most PersistentVolumes per page of a list; all pages are read before a volume is deleted.
const PAGE: u32 = 500;

/// Deletes due duplicates once per `--away-grace`, until `stop`.
pub async fn remove_duplicates(client: Client, agents: Agents, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(agents.away_grace()) => {}
        }
        for due in agents.due_duplicates() {
            match confirm(&client, &due).await {
                Ok(true) => {
                    agents.remove_duplicate(&due).await;
                }
                Ok(false) => {}
                Err(error) => {
                    let (volume, error) = (due.remove.id_text(), printable(&error.to_string()));
                    tracing::warn!(volume, name = &*due.name, %error, "cannot read PersistentVolumes to confirm that a duplicate volume is unused; will retry");
                }
            }
        }
    }
}

/// True if, of all current PersistentVolumes, the one of this name uses the other volume and none names the duplicate.
async fn confirm(client: &Client, due: &Due) -> Result<bool, kube::Error> {
    let api = Api::<PersistentVolume>::all(client.clone());
    let mut params = ListParams::default().limit(PAGE);
    let mut is_used = false;
    loop {
        // Without a resource version, the list is current and not from a cache.
        let page = api.list(&params).await?;
        for pv in &page.items {
            let name = pv.metadata.name.as_deref().unwrap_or_default();
            let csi = pv.spec.as_ref().and_then(|spec| spec.csi.as_ref());
            let Some(csi) = csi else { continue };
            match csi.volume_handle.parse::<VolumeId>() {
                Ok(id) if id.uuid == due.remove.uuid => return Ok(false),
                Ok(id) => is_used |= name == &*due.name && id.uuid == due.used.uuid,
                Err(_) => {}
            }
        }
        match page.metadata.continue_.filter(|more| !more.is_empty()) {
            Some(more) => params.continue_token = Some(more),
            None => return Ok(is_used),
        }
    }
}
