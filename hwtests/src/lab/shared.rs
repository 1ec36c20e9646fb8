//! One machine for several tests of a program. It dies with the program; the tests of one
//! program run one at a time.

use std::{
    ops::{Deref, DerefMut},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::Machine;
use crate::Trouble;

static SHARED: Mutex<Option<Machine>> = Mutex::new(None);

/// The machine, for as long as a test holds it.
#[derive(Debug)]
pub struct Shared(MutexGuard<'static, Option<Machine>>);

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
    Shared(held)
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

impl Drop for Shared {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.keep_logs();
        }
    }
}
