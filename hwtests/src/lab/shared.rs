//! One machine for several tests of a program. It dies with the program; the tests of one
//! program run one at a time. The logs of the one that fails are kept when it lets go of the machine.

use std::{
    ops::{Deref, DerefMut},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::Machine;
use crate::Trouble;

static SHARED: Mutex<Option<Machine>> = Mutex::new(None);

/// What a test holds of a shared machine, and whatever belongs to it: the lock of an option. Logs are kept when the test
/// fails meanwhile.
#[derive(Debug)]
pub struct Held<G>(pub G)
where
    G: DerefMut,
    G::Target: PerhapsMachine;

/// What may have a machine.
pub trait PerhapsMachine {
    /// It, when there is one.
    fn machine(&self) -> Option<&Machine>;
}

impl<T: AsRef<Machine>> PerhapsMachine for Option<T> {
    fn machine(&self) -> Option<&Machine> {
        self.as_ref().map(AsRef::as_ref)
    }
}

impl<G> Deref for Held<G>
where
    G: DerefMut,
    G::Target: PerhapsMachine,
{
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.0
    }
}

impl<G> DerefMut for Held<G>
where
    G: DerefMut,
    G::Target: PerhapsMachine,
{
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.0
    }
}

impl<G> Drop for Held<G>
where
    G: DerefMut,
    G::Target: PerhapsMachine,
{
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(machine) = self.0.machine()
        {
            machine.keep_logs();
        }
    }
}

/// The machine, for as long as a test holds it.
#[derive(Debug)]
pub struct Shared(Held<MutexGuard<'static, Option<Machine>>>);

/// The program's one machine, made by the first test that asks.
///
/// # Panics
/// When it cannot be made.
pub fn shared(make: impl FnOnce() -> Result<Machine, Trouble>) -> Shared {
    // A test that failed while it held the machine is no reason not to use it.
    let mut held = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if held.is_none() {
        *held = Some(make().unwrap());
    }
    Shared(Held(held))
}

impl Deref for Shared {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        self.0.as_ref().expect("it was just made")
    }
}

impl DerefMut for Shared {
    fn deref_mut(&mut self) -> &mut Machine {
        self.0.as_mut().expect("it was just made")
    }
}
