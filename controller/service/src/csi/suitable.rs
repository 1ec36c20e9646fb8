//! ValidateVolumeCapabilities: whether a volume is what a request describes. Pure.

use drivebay_proto::{agent, csi::ValidateVolumeCapabilitiesRequest, names};

use drivebay_csi::validate::{self, Access, InvalidRequest};

/// Why the volume is not what the request describes; None when it is.
pub(crate) fn unsuitable(
    volume: &agent::Volume,
    wanted: &Access,
    request: &ValidateVolumeCapabilitiesRequest,
) -> Option<String> {
    if wanted.as_str() != volume.mode {
        return Some(format!(
            "it is a {} volume, not a {} volume",
            volume.mode,
            wanted.as_str()
        ));
    }
    if let Access::Mount {
        fs_type: Some(fs_type),
        ..
    } = wanted
        && *fs_type != volume.fs_type
    {
        return Some(format!(
            "its filesystem is {}, not {fs_type}",
            volume.fs_type
        ));
    }
    // Other keys in the context are the provisioner's.
    let class = request.volume_context.get(names::PARAM_CLASS);
    if class.is_some_and(|class| *class != volume.class) {
        return Some(format!("its class is {:?}", volume.class));
    }
    let parameters = match validate::parameters(&request.parameters) {
        Ok(parameters) => parameters,
        Err(error) => return Some(error.to_string()),
    };
    if parameters.class.is_some_and(|class| class != volume.class) {
        return Some(format!("its class is {:?}", volume.class));
    }
    for (key, value) in &parameters.kept {
        // The class was compared above: a volume made without naming one has one all the same.
        if key != names::PARAM_CLASS && volume.parameters.get(key) != Some(value) {
            return Some(format!(
                "it was created with another value of parameter {key}"
            ));
        }
    }
    if !request.mutable_parameters.is_empty() {
        return Some(InvalidRequest::MutableParameters.to_string());
    }
    None
}
