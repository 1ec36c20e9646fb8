//! A unit of work on one drive: plain data that travels to a worker, is run there, and
//! comes back as an answer or a typed error.

use std::{cell::RefCell, fs::File, rc::Rc};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// Work that may block on a drive. `run` is called in a worker process only.
///
/// Every job can be repeated: it looks at what is there first, and does what is missing.
pub trait Job: Serialize + DeserializeOwned + Send + 'static {
    /// Name on the wire and in logs, unique.
    const NAME: &'static str;
    /// It changes nothing, so that nobody has to know when it is over: whoever asked is answered at the deadline, and its
    /// worker is ended afterwards. Of any other job the answer comes when the worker is gone, or cannot be killed.
    const ONLY_LOOKS: bool = false;
    /// It comes again and again, and must start no process: a foreground worker stays for the next one.
    const COMES_AGAIN: bool = false;
    /// What it answers.
    type Answer: Serialize + DeserializeOwned + Send + 'static;
    /// How it fails: one enum per operation.
    type Error: std::error::Error + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// Does it. Blocking calls belong here and nowhere else.
    fn run(self, context: &mut Context) -> Result<Self::Answer, Self::Error>;
}

/// Runs the job of this name: the table of jobs, which the program hands to its workers.
pub type Dispatch = fn(&str, Value, &mut Context) -> Result<Outcome, DispatchError>;

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
        name: String,
        #[source]
        source: serde_json::Error,
    },
}

/// Runs a job from its arguments as they travelled.
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

/// What a running job can tell the agent.
pub struct Context {
    report: Box<dyn FnMut(&str)>,
    alone: Box<dyn Fn() -> bool>,
    kept: Kept,
}

/// What a worker keeps open from one job to the next.
pub(super) type Kept = Rc<RefCell<Option<File>>>;

impl Context {
    /// A context whose steps go to `report`.
    pub fn new(report: impl FnMut(&str) + 'static) -> Self {
        Self {
            report: Box::new(report),
            alone: Box::new(|| false),
            kept: Kept::default(),
        }
    }

    /// The same in a worker that keeps something open.
    #[must_use]
    pub(super) fn keeping(self, kept: Kept) -> Self {
        Self { kept, ..self }
    }

    /// Keeps a file open until the worker ends, or a later job keeps another. Only workers of [`Slot::Hold`](crate::Slot::Hold)
    /// stay without work.
    pub fn keep(&self, file: File) {
        self.kept.replace(Some(file));
    }

    /// The same, with a way to find out whether the agent is gone.
    #[must_use]
    pub fn watching(self, alone: impl Fn() -> bool + 'static) -> Self {
        Self {
            alone: Box::new(alone),
            ..self
        }
    }

    /// Whether the agent that gave the job is gone, so that nobody will hear its answer. A change is finished all the
    /// same (half of one is worse); what only looks, and looks for long, ends then.
    pub fn is_alone(&self) -> bool {
        (self.alone)()
    }

    /// A context for calling a job in-process, in tests.
    pub fn silent() -> Self {
        Self::new(|_| {})
    }

    /// Says which step begins now. One step older than 30 s means Stuck, so a long job
    /// names a step before everything that may take long.
    pub fn step(&mut self, name: &str) {
        (self.report)(name);
    }
}
