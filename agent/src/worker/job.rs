//! A unit of work on one drive: plain data that travels to a worker, is run there, and
//! comes back as an answer or a typed error.

use serde::{Serialize, de::DeserializeOwned};

/// Work that may block on a drive. `run` is called in a worker process only.
///
/// Every job can be repeated: it looks at what is there first, and does what is missing.
pub trait Job: Serialize + DeserializeOwned + Send + 'static {
    /// Name on the wire and in logs, unique.
    const NAME: &'static str;
    /// It changes nothing, so that nobody has to know when it is over: whoever asked is answered at the deadline, and its
    /// worker is ended afterwards. Of any other job the answer comes when the worker is gone, or cannot be killed.
    const ONLY_LOOKS: bool = false;
    /// What it answers.
    type Answer: Serialize + DeserializeOwned + Send + 'static;
    /// How it fails: one enum per operation.
    type Error: std::error::Error + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// Does it. Blocking calls belong here and nowhere else.
    fn run(self, context: &mut Context) -> Result<Self::Answer, Self::Error>;
}

/// What a running job can tell the agent.
pub struct Context {
    report: Box<dyn FnMut(&str)>,
    alone: Box<dyn Fn() -> bool>,
}

impl Context {
    /// A context whose steps go to `report`.
    pub fn new(report: impl FnMut(&str) + 'static) -> Self {
        Self {
            report: Box::new(report),
            alone: Box::new(|| false),
        }
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
