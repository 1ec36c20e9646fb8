//! Runs work in a thread of its own, since its drive may never answer: the caller waits for a
//! limited time, and leaves the thread behind with all that it owns. The devices that such threads
//! suspend or resume are listed for the whole process.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver},
    },
    thread,
    time::Instant,
};

/// A thread that may be left behind; receives its result.
#[derive(Debug)]
pub(super) struct Aside<T>(Receiver<T>);

impl<T: Send + 'static> Aside<T> {
    pub(super) fn start(work: impl FnOnce() -> T + Send + 'static) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel();
        let work = move || {
            // Dropped here if the caller does not wait any more.
            let _ = sender.send(work());
        };
        thread::Builder::new()
            .name("aside".to_owned())
            .spawn(work)?;
        Ok(Self(receiver))
    }

    /// Returns the result, once; None if the work has not ended by `until`, or panicked.
    pub(super) fn by(&self, until: Instant) -> Option<T> {
        let left = until.saturating_duration_since(Instant::now());
        self.0.recv_timeout(left).ok()
    }
}

/// Descriptions for messages, by device-mapper uuid.
type Devices = BTreeMap<String, String>;

static IN_HAND: Mutex<Devices> = Mutex::new(BTreeMap::new());

fn devices() -> MutexGuard<'static, Devices> {
    IN_HAND.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the devices that threads of this process suspend or resume, or will. No other code may
/// resume them.
pub(super) fn in_hand() -> Devices {
    devices().clone()
}

/// Lists a device as being suspended or resumed until this is dropped. No device may be listed
/// twice.
#[derive(Debug)]
pub(super) struct InHand(String);

impl InHand {
    /// Lists `device`, a device-mapper uuid; `name` describes it in messages.
    pub(super) fn take(device: &str, name: &str) -> Self {
        devices().insert(device.to_owned(), name.to_owned());
        Self(device.to_owned())
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        devices().remove(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(20)
    }

    #[test]
    fn work_that_hangs_is_not_waited_for_and_keeps_what_it_has_until_it_ends() {
        let late = Instant::now() + Duration::from_secs(20);
        let held = Arc::new(());
        let (go_on, waits) = mpsc::channel::<()>();
        let mine = Arc::clone(&held);
        let hanging = Aside::start(move || {
            let _ = waits.recv();
            mine
        });
        let hanging = hanging.unwrap();
        assert_eq!(hanging.by(soon()), None);
        assert_eq!(Arc::strong_count(&held), 2);
        drop(go_on);
        let result = hanging.by(late).unwrap();
        assert_eq!(Arc::strong_count(&held), 2);
        drop(result);
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[test]
    fn work_that_panics_has_no_result() {
        let panicking = Aside::<()>::start(|| panic!("as the test wants it"));
        let late = Instant::now() + Duration::from_secs(20);
        assert_eq!(panicking.unwrap().by(late), None);
    }
}
