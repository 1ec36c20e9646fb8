//! Asking as a job of the drive's worker.

use std::convert::Infallible;

use serde::{Deserialize, Serialize};

use super::{Failure, FailureReason, Outcome, Poll, Polled, poll};
use drivebay_model::{DriveRef, cause::chain};
use drivebay_sys::drive;
use drivebay_worker::{Context, Job};

/// Asks one drive. It never fails: why there is no answer is an answer.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ask {
    /// Which drive it must be: names move.
    pub drive: DriveRef,
    /// What is asked.
    pub poll: Poll,
}

/// There is none.
#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
#[error("asking a drive does not fail")]
pub struct Never(std::marker::PhantomData<fn() -> Infallible>);

impl Job for Ask {
    const NAME: &'static str = "smart";
    type Answer = Polled;
    type Error = Never;

    fn run(self, context: &mut Context) -> Result<Polled, Never> {
        context.step("open the drive");
        // Held open while it is asked, so that its name stays its own.
        let held = match drive::open(&self.drive, false, 0) {
            Ok(held) => held,
            Err(error) => {
                return Ok(Polled {
                    outcome: Outcome::Failed(Failure {
                        reason: FailureReason::OpenFailed,
                        detail: chain(&error),
                    }),
                    took_ms: 0,
                    slow: false,
                });
            }
        };
        context.step("smartctl");
        let polled = poll(&self.poll);
        drop(held);
        Ok(polled)
    }
}
