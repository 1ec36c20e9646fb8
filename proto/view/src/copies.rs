//! Copies of snapshots and of volumes to new volumes, in words. Pure.

use drivebay_csi::Source;
use drivebay_proto::agent::{Volume, VolumeCopy};

use super::{moves::percent, table::human_seconds};

/// Returns the source of a volume that was created as a copy, as `snapshot ID` or `volume ID`; empty if it is no copy.
pub fn source(volume: &Volume) -> String {
    Source::of(volume).map_or_else(String::new, |source| source.to_string())
}

/// The copy to a volume, if it is one of these.
pub fn of_volume<'a>(copies: &'a [VolumeCopy], volume: &Volume) -> Option<&'a VolumeCopy> {
    copies.iter().find(|copy| copy.volume_id == volume.id)
}

/// The state of a volume that is being copied, with how far that is.
pub fn state(copy: &VolumeCopy) -> String {
    let percent = percent(copy.done_bytes, copy.total_bytes);
    let percent = percent.map_or_else(String::new, |percent| format!(" {percent}%"));
    let left = match copy.eta_seconds {
        0 => String::new(),
        seconds => format!(", {} left", human_seconds(seconds)),
    };
    format!("copying{percent}{left}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_that_is_copied_has_how_far_it_is_and_how_long_it_takes() {
        let mut copy = VolumeCopy::default();
        assert_eq!(state(&copy), "copying");
        (copy.done_bytes, copy.total_bytes) = (1 << 30, 4 << 30);
        assert_eq!(state(&copy), "copying 25%");
        copy.eta_seconds = 3700;
        assert_eq!(state(&copy), "copying 25%, 1h01m left");
    }

    #[test]
    fn a_copy_names_the_snapshot_or_the_volume_that_it_was_made_of() {
        let mut volume = Volume::default();
        assert_eq!(source(&volume), "");
        volume.source_volume = "a@n".into();
        assert_eq!(source(&volume), "volume a@n");
        volume.source_volume.clear();
        volume.source_snapshot = "b@n".into();
        assert_eq!(source(&volume), "snapshot b@n");
    }
}
