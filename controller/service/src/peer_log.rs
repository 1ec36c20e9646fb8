//! Log lines that a peer can cause: their texts are printable and truncated, and repeated ones are limited per minute and
//! counted beyond that.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use drivebay_common::text::acts;

/// Longest text of a peer in a log line or an output, bytes.
pub const MAX_TEXT_BYTES: usize = 256;
/// Most lines of one kind about one peer in a minute.
const LINES: u64 = 10;
const MINUTE: Duration = Duration::from_secs(60);
/// Most pairs of kind and peer that are counted separately, enough for a large fleet that reconnects. Further peers share one
/// count per kind.
const MAX_PEERS: usize = 20_000;
/// Name that stands for the further peers.
const OTHERS: &str = "others";
/// Most summaries per minute; the rest are added up in one line.
const SUMMARIES: usize = 50;

/// Escapes control characters and characters that reorder a line, and truncates the text to [`MAX_TEXT_BYTES`].
pub fn printable(text: &str) -> String {
    printable_up_to(text, MAX_TEXT_BYTES)
}

/// The same for a sentence of our own that contains a peer's text: up to four times [`MAX_TEXT_BYTES`].
pub fn printable_sentence(text: &str) -> String {
    printable_up_to(text, 4 * MAX_TEXT_BYTES)
}

fn printable_up_to(text: &str, most: usize) -> String {
    let mut made = String::new();
    for c in text.chars() {
        let before = made.len();
        if acts(c) {
            made.extend(c.escape_default());
        } else {
            made.push(c);
        }
        if made.len() > most {
            made.truncate(before);
            made.push('…');
            break;
        }
    }
    made
}

type Counts = BTreeMap<(&'static str, String), u64>;

/// Rate limit of log lines by kind and peer, over one minute.
#[derive(Debug, Default)]
pub struct PeerLog {
    minute: Mutex<Minute>,
}

#[derive(Debug)]
struct Minute {
    began: Instant,
    counts: Counts,
}

impl Default for Minute {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            counts: Counts::new(),
        }
    }
}

impl PeerLog {
    fn lock(&self) -> MutexGuard<'_, Minute> {
        self.minute.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if a line of this kind about this peer (a node, an address) may be logged now. Counts the line in either case.
    pub fn allows(&self, kind: &'static str, peer: &str) -> bool {
        if self.lock().began.elapsed() >= MINUTE {
            self.summarize();
        }
        let counts = &mut self.lock().counts;
        let full = counts.len() >= MAX_PEERS;
        let mut key = (kind, peer.to_owned());
        if full && !counts.contains_key(&key) {
            key.1 = OTHERS.to_owned();
        }
        let count = counts.entry(key).or_default();
        *count += 1;
        *count <= LINES
    }

    /// Logs how many lines were suppressed, and begins a new minute. Must be called once a minute, so that suppressed lines
    /// are reported also when none follow.
    pub fn summarize(&self) {
        let counts = mem::take(&mut *self.lock()).counts;
        let mut left_out: Vec<_> = counts
            .into_iter()
            .filter(|(_, count)| *count > LINES)
            .map(|((kind, peer), count)| (count - LINES, kind, peer))
            .collect();
        left_out.sort_unstable_by(|a, b| b.cmp(a));
        let more: u64 = left_out
            .iter()
            .skip(SUMMARIES)
            .map(|(count, ..)| count)
            .sum();
        for (lines, kind, peer) in left_out.into_iter().take(SUMMARIES) {
            tracing::warn!(kind, peer, lines, "repeated log lines suppressed");
        }
        if more > 0 {
            tracing::warn!(lines = more, "repeated log lines suppressed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_of_a_peer_forges_a_line_or_is_long() {
        assert_eq!(printable("rack1-node7 ü"), "rack1-node7 ü");
        assert_eq!(printable("m\n2026 ERROR x"), "m\\n2026 ERROR x");
        assert_eq!(printable("\u{1b}[31m\u{202e}"), "\\u{1b}[31m\\u{202e}");
        for text in [
            "x".repeat(1 << 20),
            "\n".repeat(1 << 20),
            "ü".repeat(1 << 20),
        ] {
            let cut = printable(&text);
            assert!(
                cut.len() <= MAX_TEXT_BYTES + 3 && cut.ends_with('…'),
                "{cut}"
            );
        }
    }

    #[test]
    fn a_repeated_line_is_logged_a_few_times_a_minute_and_of_each_peer() {
        let log = PeerLog::default();
        let logged = |kind, peer: &str| (0..1000).filter(|_| log.allows(kind, peer)).count() as u64;
        assert_eq!(
            [logged("a", "x"), logged("a", "y"), logged("b", "x")],
            [LINES; 3]
        );
        assert_eq!(logged("a", "x"), 0);
        log.summarize();
        assert_eq!(logged("a", "x"), LINES);
        let peers = (0..2 * MAX_PEERS)
            .filter(|peer| log.allows("c", &peer.to_string()))
            .count();
        assert!(peers < MAX_PEERS + 2 * LINES as usize, "{peers}");
        assert!(log.lock().counts.len() <= MAX_PEERS + 3);
    }
}
