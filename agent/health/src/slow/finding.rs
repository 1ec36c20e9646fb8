//! Builds the finding about a slow drive. Pure.

use drivebay_model::{Finding, finding::Code};
use drivebay_smart::slow::{Direction, Slowdown, rounded};

/// Returns the finding about a slow drive, with the numbers from when it was raised, so that the message does not change. An
/// acknowledged direction is left out if the other one counts.
pub(super) fn finding(slow: &[Slowdown]) -> Option<Finding> {
    let one = |slowdown: &Slowdown| {
        let outcome = &slowdown.outcome;
        let what = match slowdown.direction {
            Direction::Read => "reads",
            Direction::Write => "writes",
        };
        format!(
            "{what} take {} ms where other drives of its kind take {} ms at such a load ({} times as long)",
            rounded(outcome.observed_ms),
            rounded(outcome.expected_ms),
            rounded(outcome.factor()),
        )
    };
    let acknowledged = slow.iter().all(|slow| slow.acknowledged);
    let shown = slow.iter().filter(|slow| slow.acknowledged == acknowledged);
    let descriptions: Vec<String> = shown.map(one).collect();
    (!descriptions.is_empty()).then(|| {
        let message = format!(
            "{}; see `drivebay-agent drive show`, check cable, slot, temperature and firmware, and expect the drive to fail",
            descriptions.join(", ")
        );
        Finding {
            acknowledged,
            ..Finding::new(Code::Slow, message)
        }
    })
}
