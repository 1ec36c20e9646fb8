//! `Cell` and `RefCell` for several threads, which may use a drive at the same time.

use std::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[derive(Debug, Default)]
pub(crate) struct Cell<T>(Mutex<T>);

impl<T: Copy> Cell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub(crate) fn get(&self) -> T {
        *self.0.lock().unwrap()
    }

    pub(crate) fn set(&self, value: T) {
        *self.0.lock().unwrap() = value;
    }
}

impl<T: Copy> Clone for Cell<T> {
    fn clone(&self) -> Self {
        Self::new(self.get())
    }
}

#[derive(Debug, Default)]
pub(crate) struct RefCell<T>(RwLock<T>);

impl<T> RefCell<T> {
    pub(crate) fn borrow(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap()
    }

    pub(crate) fn borrow_mut(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap()
    }
}

impl<T: Clone> Clone for RefCell<T> {
    fn clone(&self) -> Self {
        Self(RwLock::new(self.borrow().clone()))
    }
}
