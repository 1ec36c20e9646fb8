//! Every job there is: the worker's table from name to code.

use serde_json::Value;

use super::{Context, Job};
use crate::{carve, check, discovery, fs, smart};

/// Result of a job as it travels: answer or typed error, both as JSON.
pub type Outcome = Result<Value, Value>;

/// The name is not in the table, or the arguments are not the job's: the two processes are
/// not the same build.
#[derive(Debug, thiserror::Error)]
pub enum DispatchError {
    /// No such job.
    #[error("this worker knows no job {0:?}")]
    Unknown(String),
    /// Arguments or answer do not fit.
    #[error("job {name} does not fit its type")]
    Shape {
        /// The job.
        name: String,
        /// How.
        #[source]
        source: serde_json::Error,
    },
}

fn run<J: Job>(arguments: Value, context: &mut Context) -> Result<Outcome, serde_json::Error> {
    let job: J = serde_json::from_value(arguments)?;
    Ok(match job.run(context) {
        Ok(answer) => Ok(serde_json::to_value(answer)?),
        Err(error) => Err(serde_json::to_value(error)?),
    })
}

macro_rules! table {
    ($($(#[$when:meta])* $job:ty),+ $(,)?) => {
        /// Runs the job of this name.
        pub fn dispatch(name: &str, arguments: Value, context: &mut Context) -> Result<Outcome, DispatchError> {
            $($(#[$when])* if name == <$job as Job>::NAME {
                return run::<$job>(arguments, context).map_err(|source| DispatchError::Shape { name: name.to_owned(), source });
            })+
            Err(DispatchError::Unknown(name.to_owned()))
        }

        /// Names of all jobs.
        pub const NAMES: &[&str] = &[$($(#[$when])* <$job as Job>::NAME),+];
    };
}

table![
    discovery::probe::Probe,
    carve::jobs::Look,
    carve::jobs::Create,
    carve::jobs::Expand,
    carve::jobs::Delete,
    carve::jobs::EraseStep,
    carve::jobs::WipeStep,
    carve::jobs::Advance,
    carve::jobs::MakeSnapshot,
    carve::jobs::ClearSnapshots,
    check::job::Check,
    check::job::StopScrub,
    smart::job::Ask,
    carve::jobs::Adopt,
    fs::jobs::Stage,
    fs::jobs::Publish,
    fs::jobs::Unmount,
    fs::jobs::Stats,
    fs::jobs::GrowFs,
    super::read::ReadSample,
    #[cfg(debug_assertions)]
    super::drill::Drill,
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
