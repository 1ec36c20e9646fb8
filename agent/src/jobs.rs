//! The table of all jobs, from name to code, for workers.

use serde_json::Value;

use drivebay_discovery as discovery;
use drivebay_fs as fs;
use drivebay_fs::{affected, check};
use drivebay_layout as carve;
use drivebay_smart as smart;
use drivebay_worker::{
    self as worker, Context, Job,
    job::{DispatchError, Outcome, run},
};

macro_rules! table {
    ($($(#[$when:meta])* $job:ty),+ $(,)?) => {
        /// Runs the job of this name.
        pub fn dispatch(name: &str, arguments: Value, context: &mut Context) -> Result<Outcome, DispatchError> {
            $($(#[$when])* if name == <$job as Job>::NAME {
                return run::<$job>(arguments, context);
            })+
            Err(DispatchError::Unknown(name.to_owned()))
        }

        /// Names of all jobs.
        pub const NAMES: &[&str] = &[$($(#[$when])* <$job as Job>::NAME),+];
    };
}

table![
    carve::probe::Probe,
    carve::jobs::Look,
    carve::jobs::Create,
    carve::jobs::Expand,
    carve::jobs::Delete,
    carve::jobs::EraseStep,
    carve::jobs::WipeStep,
    carve::jobs::Release,
    carve::jobs::Advance,
    carve::jobs::MakeSnapshot,
    carve::jobs::ZeroStep,
    carve::jobs::ClearSnapshots,
    carve::jobs::TakeSnapshot,
    carve::jobs::TakeTogether,
    carve::jobs::CompleteSnapshots,
    carve::jobs::ResumeLeft,
    carve::jobs::DropSnapshot,
    carve::jobs::ReadUsage,
    check::job::Check,
    check::job::StopScrub,
    smart::job::Ask,
    carve::jobs::Adopt,
    carve::jobs::SetCordon,
    carve::jobs::SetPlace,
    carve::jobs::DropPlace,
    carve::jobs::CopyStep,
    carve::jobs::SetParameters,
    discovery::locate_light::SwitchLight,
    fs::jobs::Stage,
    fs::jobs::Hold,
    fs::jobs::Publish,
    fs::jobs::Unmount,
    fs::jobs::Stats,
    fs::jobs::GrowFs,
    worker::read::ReadSample,
    affected::read::ReadWindows,
    fs::locate::Locate,
    #[cfg(debug_assertions)]
    worker::drill::Drill,
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    #[test]
    fn job_names_are_unique() {
        let names: HashSet<_> = super::NAMES.iter().collect();
        assert_eq!(names.len(), super::NAMES.len());
    }
}
