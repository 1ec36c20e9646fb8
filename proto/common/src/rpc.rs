//! Logging and counting of one RPC: method, code and duration.

use tonic::{Code, Status};

use crate::metrics::rpc;

/// True if a method changes nothing: it is logged at debug if it succeeds.
fn is_read(method: &str) -> bool {
    ["Get", "List", "Probe", "Validate"]
        .iter()
        .any(|word| method.contains(word))
}

/// Runs one RPC, and logs and counts its method, code and duration; never the request, which may hold secrets.
pub async fn logged<T>(
    method: &'static str,
    rpc: impl Future<Output = Result<T, Status>>,
) -> Result<tonic::Response<T>, Status> {
    let running = rpc::start(method);
    let result = rpc.await;
    let code = result.as_ref().map_or_else(Status::code, |_| Code::Ok);
    let milliseconds = running.ended(code).as_millis();
    if code == Code::Ok && is_read(method) {
        tracing::debug!(method, ?code, milliseconds, "gRPC call");
    } else {
        tracing::info!(method, ?code, milliseconds, "gRPC call");
    }
    result.map(tonic::Response::new)
}

#[cfg(test)]
mod tests {
    use super::is_read;

    #[test]
    fn only_methods_that_change_nothing_are_reads() {
        for read in ["Probe", "GetCapacity", "ListVolumes", "NodeGetVolumeStats"] {
            assert!(is_read(read), "{read}");
        }
        for change in ["CreateVolume", "NodePublishVolume", "Agent/DeleteVolume"] {
            assert!(!is_read(change), "{change}");
        }
    }
}
