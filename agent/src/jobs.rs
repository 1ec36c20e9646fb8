//! The table of all jobs, from name to code, for workers.

use serde_json::Value;

use drivebay_discovery as discovery;
use drivebay_fs as fs;
use drivebay_fs::{affected, check};
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
    drivebay_layout::probe::Probe,
    drivebay_layout::jobs::ReadDrive,
    drivebay_layout::jobs::Create,
    drivebay_layout::jobs::Expand,
    drivebay_layout::jobs::Delete,
    drivebay_layout::jobs::EraseStep,
    drivebay_layout::jobs::WipeStep,
    drivebay_layout::jobs::Release,
    drivebay_layout::jobs::Advance,
    drivebay_layout::jobs::MakeSnapshot,
    drivebay_layout::jobs::ZeroStep,
    drivebay_layout::jobs::TakeSnapshot,
    drivebay_layout::jobs::TakeTogether,
    drivebay_layout::jobs::CompleteSnapshots,
    drivebay_layout::jobs::ResumeLeft,
    drivebay_layout::jobs::DropSnapshot,
    drivebay_layout::jobs::ReadUsage,
    check::job::Check,
    check::job::StopScrub,
    smart::job::PollHealth,
    drivebay_layout::jobs::Adopt,
    drivebay_layout::jobs::SetCordon,
    drivebay_layout::jobs::SetPlace,
    drivebay_layout::jobs::DropPlace,
    drivebay_layout::jobs::CopyStep,
    drivebay_layout::jobs::SetParameters,
    drivebay_layout::jobs::SettleLost,
    discovery::locate_light::SwitchLight,
    fs::jobs::Stage,
    fs::jobs::Hold,
    fs::jobs::Publish,
    fs::jobs::Unmount,
    fs::jobs::CloseMapping,
    fs::jobs::Rekey,
    fs::jobs::CheckSecret,
    fs::jobs::AddRecoveryKey,
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
    use std::{
        collections::HashSet,
        fs,
        path::{Path, PathBuf},
    };

    /// Product sources of the agent's crates.
    fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && !matches!(name, "target" | "tests") {
                sources(&path, found);
            } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
                found.push(path);
            }
        }
    }

    #[test]
    fn each_job_of_the_agent_is_known_to_its_workers() {
        let mut files = Vec::new();
        sources(Path::new(env!("CARGO_MANIFEST_DIR")), &mut files);
        let mut jobs = 0;
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            let product = text.split("\n#[cfg(test)]\nmod").next().unwrap();
            for job in product.split("\nimpl Job for ").skip(1) {
                let (_, named) = job.split_once("const NAME: &'static str = \"").unwrap();
                let name = named.split('"').next().unwrap();
                assert!(super::NAMES.contains(&name), "{name} of {}", file.display());
                jobs += 1;
            }
        }
        assert_eq!(jobs, super::NAMES.len());
    }

    #[test]
    fn job_names_are_unique() {
        let names: HashSet<_> = super::NAMES.iter().collect();
        assert_eq!(names.len(), super::NAMES.len());
    }
}
