//! Detects a thread that reads two inventories at a time, which can deadlock: the second read waits for a waiting
//! writer, which waits for the first read to end. Debug builds panic.

use std::cell::Cell;

thread_local! {
    static READING: Cell<bool> = const { Cell::new(false) };
}

/// Marks the current thread as reading an inventory, until it is dropped.
#[derive(Debug)]
pub(super) struct SingleReader(());

impl SingleReader {
    /// Begins a read. Panics in debug builds if the thread is reading one already.
    pub(super) fn begin() -> Self {
        let reading = READING.replace(true);
        debug_assert!(!reading, "an inventory is read while one is read");
        Self(())
    }
}

impl Drop for SingleReader {
    fn drop(&mut self) {
        READING.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_read_after_the_other_is_allowed() {
        drop(SingleReader::begin());
        drop(SingleReader::begin());
    }

    #[test]
    #[should_panic(expected = "while one is read")]
    fn a_read_within_a_read_is_a_mistake() {
        let _first = SingleReader::begin();
        let _second = SingleReader::begin();
    }
}
