//! `kubectl drivebay ui`: forwards a port to the page of a controller.

use drivebay_common::cli::WRONG;
use tokio::process::Command;

use crate::{
    args::{AccessArgs, UiArgs},
    error::PluginError,
};

/// Runs kubectl port-forward until Ctrl-C, and says what to open. The page takes a token of audience `drivebay`: the API server removes
/// Authorization from what it forwards as a proxy, and a forwarded port keeps it. The bytes go through the API server and the kubelet to
/// the loopback address of the pod, with TLS up to there.
///
/// # Errors
/// kubectl cannot be run.
pub(crate) async fn run(access: &AccessArgs, args: &UiArgs) -> Result<u8, PluginError> {
    let UiArgs {
        namespace,
        deployment,
        port,
    } = args;
    let local = port.split(':').next().unwrap_or_default();
    eprintln!(
        "open http://localhost:{local}/ and enter a token, for example of\n  kubectl -n {namespace} create token page-reader --audience drivebay --duration 8h\nwhose ServiceAccount has the ClusterRole drivebay-page-reader. It needs page.enabled in the chart's values. Ctrl-C ends it."
    );
    #[allow(
        clippy::disallowed_methods,
        reason = "kubectl touches no drive, and runs until Ctrl-C"
    )]
    let mut kubectl = Command::new("kubectl");
    if let Some(context) = &access.context {
        kubectl.args(["--context", context]);
    }
    if let Some(kubeconfig) = &access.kubeconfig {
        kubectl.arg("--kubeconfig").arg(kubeconfig);
    }
    let deployment = format!("deployment/{deployment}");
    kubectl.args(["--namespace", namespace, "port-forward", &deployment, port]);
    let status = kubectl.status().await.map_err(PluginError::Kubectl)?;
    Ok(match status.success() {
        true => 0,
        false => WRONG,
    })
}
