//! A client of a controller's own socket, as its command line has.

use std::path::Path;

use drivebay_proto::controller::{ListNodesRequest, Node, cluster_client::ClusterClient};

use crate::Trouble;

/// The nodes as the controller lists them.
///
/// # Errors
/// It does not answer.
pub async fn nodes(socket: &Path) -> Result<Vec<Node>, Trouble> {
    let trouble = |what: &str| {
        let what = what.to_owned();
        move |error: &dyn std::error::Error| Trouble::new(format!("{what}: {error}"))
    };
    let channel = drivebay_controller::dial::once(socket)
        .await
        .map_err(|error| trouble("dialling the controller")(&error))?;
    let mut client = ClusterClient::new(channel);
    let mut stream = client
        .list_nodes(ListNodesRequest::default())
        .await
        .map_err(|error| trouble("listing nodes")(&error))?
        .into_inner();
    let mut nodes = Vec::new();
    while let Some(node) = stream
        .message()
        .await
        .map_err(|error| trouble("listing nodes")(&error))?
    {
        nodes.push(node);
    }
    Ok(nodes)
}
