//! One machine for several tests of a program. It dies with the program; the tests of one
//! program run one at a time. The logs of the one that fails are kept when it lets go of the machine.

use std::{
    ops::{Deref, DerefMut},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::Machine;
use crate::Trouble;

static SHARED: Mutex<Option<Machine>> = Mutex::new(None);

/// Guard of a machine that tests share. If it is dropped in a panic, the machine is dropped as well: the next test makes a new one, and
/// has no leftovers of the failed test.
#[derive(Debug)]
pub struct Held<G>(pub G)
where
    G: DerefMut,
    G::Target: Forget;

/// A shared value that must not be reused after a test has failed.
pub trait Forget {
    /// Drops the value. A machine that is dropped in a panic keeps its logs.
    fn forget(&mut self);
}

impl<T> Forget for Option<T> {
    fn forget(&mut self) {
        *self = None;
    }
}

impl<G> Deref for Held<G>
where
    G: DerefMut,
    G::Target: Forget,
{
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.0
    }
}

impl<G> DerefMut for Held<G>
where
    G: DerefMut,
    G::Target: Forget,
{
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.0
    }
}

impl<G> Drop for Held<G>
where
    G: DerefMut,
    G::Target: Forget,
{
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.forget();
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
    // A poisoned lock is safe: the failed test has dropped the machine.
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
