//! A unit of work on one drive: data that is sent to a worker, runs there, and returns an answer or
//! a typed error.

use std::{cell::RefCell, fs::File, rc::Rc};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// Work that may block on a drive. `run` is called in a worker process only.
///
/// Every job must be repeatable: it reads the current state first, and does what is missing.
pub trait Job: Serialize + DeserializeOwned + Send + 'static {
    /// Name in the protocol and in logs; unique.
    const NAME: &'static str;
    /// True if the job changes nothing: at its deadline the caller is answered at once, and the
    /// worker is ended afterwards. The caller of any other job is answered when its worker is gone,
    /// or cannot be killed.
    const READ_ONLY: bool = false;
    /// True if the job is called again and again and must not start a process: a foreground worker
    /// is kept for the next call.
    const COMES_AGAIN: bool = false;
    type Answer: Serialize + DeserializeOwned + Send + 'static;
    /// One enum per operation.
    type Error: std::error::Error + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// Runs the job, in a worker. Blocking calls belong here and nowhere else.
    fn run(self, context: &mut Context) -> Result<Self::Answer, Self::Error>;
}

/// Runs the job of this name: the table of jobs, which the program gives to its workers.
pub type Dispatch = fn(&str, Value, &mut Context) -> Result<Outcome, DispatchError>;

/// Result of a job as it travels: answer or typed error, both as JSON.
pub type Outcome = Result<Value, Value>;

/// The name is not in the table, or the arguments are not those of the job: agent and worker are
/// different builds.
#[derive(Debug, thiserror::Error)]
pub enum DispatchError {
    #[error("this worker knows no job {0:?}")]
    Unknown(String),
    /// The arguments, the answer or the error cannot be converted from or to JSON.
    #[error("job {name} does not fit its type")]
    Shape {
        name: String,
        #[source]
        source: serde_json::Error,
    },
}

/// Runs a job with arguments from JSON. Errs if they are not the job's, or if its result is no
/// JSON; an error of the job is part of `Outcome`.
pub fn run<J: Job>(arguments: Value, context: &mut Context) -> Result<Outcome, DispatchError> {
    let shape = |source| DispatchError::Shape {
        name: J::NAME.to_owned(),
        source,
    };
    let job: J = serde_json::from_value(arguments).map_err(shape)?;
    Ok(match job.run(context) {
        Ok(answer) => Ok(serde_json::to_value(answer).map_err(shape)?),
        Err(error) => Err(serde_json::to_value(error).map_err(shape)?),
    })
}

/// Connects a running job to the agent: reports its steps, and says whether the agent is still
/// connected.
pub struct Context {
    report: Box<dyn FnMut(&str)>,
    alone: Box<dyn Fn() -> bool>,
    kept: Kept,
}

/// File that a worker keeps open from one job to the next.
pub(super) type Kept = Rc<RefCell<Option<File>>>;

impl Context {
    /// Returns a context that passes steps to `report`, and whose agent counts as connected.
    pub fn new(report: impl FnMut(&str) + 'static) -> Self {
        Self {
            report: Box::new(report),
            alone: Box::new(|| false),
            kept: Kept::default(),
        }
    }

    /// Replaces the place in which files are kept.
    #[must_use]
    pub(super) fn keeping(self, kept: Kept) -> Self {
        Self { kept, ..self }
    }

    /// Keeps a file open until the worker ends, or a later job replaces it. Only workers of
    /// [`Slot::Hold`](crate::Slot::Hold) stay without work.
    pub fn keep(&self, file: File) {
        self.kept.replace(Some(file));
    }

    /// Replaces the test for the agent's disconnection.
    #[must_use]
    pub fn watching(self, alone: impl Fn() -> bool + 'static) -> Self {
        Self {
            alone: Box::new(alone),
            ..self
        }
    }

    /// True if the agent that sent the job has hung up, so that its result will not be read. A
    /// change is finished nevertheless (half of one is worse); a long job that only reads should
    /// end then.
    pub fn is_alone(&self) -> bool {
        (self.alone)()
    }

    /// Returns a context for running a job in the calling process, in tests: steps are discarded.
    pub fn silent() -> Self {
        Self::new(|_| {})
    }

    /// Reports that a step begins. The slot is Stuck when one step takes longer than 30 s, so a
    /// long job reports one before everything that may take long.
    pub fn step(&mut self, name: &str) {
        (self.report)(name);
    }
}
