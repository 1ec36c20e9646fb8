//! ValidateVolumeCapabilities: compares a volume with a request. Pure.

use drivebay_proto::{agent, csi::ValidateVolumeCapabilitiesRequest, names};

use drivebay_csi::validate::{self, Access, InvalidRequest};

/// Returns the first difference between the volume and the request, as text; None if it matches.
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
    // Other keys in the context are set by the provisioner.
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
        // The class was compared above: a volume created without naming a class has one nonetheless.
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
