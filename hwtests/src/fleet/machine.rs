//! A simulated machine: state that persists when its agent does not run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{contents::Contents, journal::Journal};

/// A machine: state that persists when its agent does not run.
#[derive(Debug)]
pub struct Machine {
    node: String,
    journal: Option<Arc<Journal>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    machine_id: String,
    // Number of the agent process that may change the contents.
    life: u64,
    contents: Arc<Contents>,
}

impl Machine {
    /// Creates a machine whose agent has not run yet.
    pub fn new(
        node: String,
        machine_id: String,
        contents: Contents,
        journal: Option<Arc<Journal>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            node,
            journal,
            state: Mutex::new(State {
                machine_id,
                life: 0,
                contents: Arc::new(contents),
            }),
        })
    }

    /// Returns the node id of its agent.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Starts a new agent process: returns its number, the machine id, and the contents of the drives.
    pub(super) fn begin(&self) -> (u64, String, Arc<Contents>) {
        let mut state = self.state();
        state.life += 1;
        (state.life, state.machine_id.clone(), state.contents.clone())
    }

    /// Changes the contents on behalf of agent process `life`, unless a later one has started, and passes the new contents to `notify` if
    /// `change` returns true. Calls of `notify` are in the order of the changes.
    pub(super) fn change(
        &self,
        life: u64,
        change: impl FnOnce(&mut Contents) -> bool,
        notify: impl FnOnce(Arc<Contents>),
    ) {
        let mut state = self.state();
        if state.life != life {
            return;
        }
        let mut contents = Contents::clone(&state.contents);
        if change(&mut contents) {
            let contents = Arc::new(contents);
            if let Some(journal) = &self.journal {
                // Panics: a journal that cannot be written is not part of the simulation.
                journal
                    .note(&self.node, &state.contents, &contents)
                    .expect("the volumes file");
            }
            state.contents = contents.clone();
            notify(contents);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current contents of its drives.
    pub fn contents(&self) -> Arc<Contents> {
        self.state().contents.clone()
    }

    /// Sets another machine id, which its next agent process reports.
    pub fn set_machine_id(&self, machine_id: String) {
        self.state().machine_id = machine_id;
    }
}
