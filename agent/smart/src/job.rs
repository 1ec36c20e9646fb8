//! Polling a drive as a job of its worker.

use std::convert::Infallible;

use serde::{Deserialize, Serialize};

use super::{Failure, FailureReason, Outcome, Poll, Polled, poll};
use drivebay_model::{DriveRef, cause::chain};
use drivebay_sys::drive;
use drivebay_worker::{Context, Job};

/// Polls one drive. The job itself never fails: a failed poll is an answer, with its reason.
#[derive(Debug, Serialize, Deserialize)]
pub struct PollHealth {
    /// Identity that the drive must have: kernel names may change.
    pub drive: DriveRef,
    pub poll: Poll,
}

/// Error of a job that cannot fail: there is no value of it.
#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
#[error("asking a drive does not fail")]
pub struct Never(std::marker::PhantomData<fn() -> Infallible>);

impl Job for PollHealth {
    const NAME: &'static str = "smart";
    type Answer = Polled;
    type Error = Never;

    fn run(self, context: &mut Context) -> Result<Polled, Never> {
        context.step("open the drive");
        // Held open during the poll, so that the kernel name is not reused for another drive.
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
