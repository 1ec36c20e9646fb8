//! A simulated machine: what is there whether or not its agent runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{contents::Contents, journal::Journal};

/// A machine: what is there whether or not its agent runs.
#[derive(Debug)]
pub struct Machine {
    node: String,
    journal: Option<Arc<Journal>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    machine_id: String,
    // Which life of the agent may change the contents.
    life: u64,
    contents: Arc<Contents>,
}

impl Machine {
    /// A machine whose agent has not run yet.
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

    /// The node that its agent is.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Begins a life of its agent: the life's number, the machine id to tell, and what is on the drives.
    pub(super) fn begin(&self) -> (u64, String, Arc<Contents>) {
        let mut state = self.state();
        state.life += 1;
        (state.life, state.machine_id.clone(), state.contents.clone())
    }

    /// Changes the contents for this life, if a later one has not begun, and hands over what they are then, if
    /// `change` says that it did something. Changes and what is told of them come in the same order.
    pub(super) fn change(
        &self,
        life: u64,
        change: impl FnOnce(&mut Contents) -> bool,
        tell: impl FnOnce(Arc<Contents>),
    ) {
        let mut state = self.state();
        if state.life != life {
            return;
        }
        let mut contents = Contents::clone(&state.contents);
        if change(&mut contents) {
            let contents = Arc::new(contents);
            if let Some(journal) = &self.journal {
                // A drive that cannot be written is not what is simulated.
                journal
                    .note(&self.node, &state.contents, &contents)
                    .expect("the volumes file");
            }
            state.contents = contents.clone();
            tell(contents);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is on its drives now.
    pub fn contents(&self) -> Arc<Contents> {
        self.state().contents.clone()
    }

    /// Gives it another machine id, which its agent tells from its next life on.
    pub fn set_machine_id(&self, machine_id: String) {
        self.state().machine_id = machine_id;
    }
}
