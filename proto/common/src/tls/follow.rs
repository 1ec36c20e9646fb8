//! Polling of the files, and log messages about them, each once.

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    cert::{UtcTime, Validity},
    credentials::{Change, Credentials},
    error::in_one_line,
};

/// Failed polls in a row before an error is logged: files that are being replaced can be inconsistent for a moment.
const PATIENCE: u32 = 3;
/// Largest number of different errors that are logged until the files are valid again.
const REMEMBERED: usize = 16;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Remaining time at which a certificate expires soon; a third of its lifetime if that is shorter.
const SOON: Duration = Duration::from_secs(7 * 24 * 60 * 60);

pub(super) async fn run(credentials: Credentials, every: Duration, stop: CancellationToken) {
    let mut reporter = Reporter::default();
    loop {
        let read = tokio::select! {
            () = stop.cancelled() => return,
            read = credentials.reread() => read,
        };
        let outcome = read.map_err(|error| in_one_line(&error));
        let validity = credentials.own_validity();
        for notice in reporter.notices(&outcome, validity, SystemTime::now(), Instant::now()) {
            log(&credentials, &notice);
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(every) => {}
        }
    }
}

fn log(credentials: &Credentials, notice: &Notice) {
    let files = credentials.files();
    match notice {
        Notice::Own { until } => {
            tracing::info!(path = %files.first().display(), %until, "certificate loaded");
        }
        Notice::Trust => tracing::info!(
            path = %files.ca.display(),
            "CA certificates changed; new connections are verified against them"
        ),
        Notice::Failing(why) => tracing::error!(
            error = why,
            "cannot use the certificate files; keeping the previous ones"
        ),
        Notice::InOrder => tracing::info!("certificate files can be used again"),
        Notice::Soon { until } => tracing::warn!(
            path = %files.first().display(),
            %until,
            "certificate expires soon; renew it (drivebay-controller certs ... --renew)"
        ),
        Notice::Expired { until } => tracing::error!(
            path = %files.first().display(),
            %until,
            "certificate expired and peers refuse it; renew it (drivebay-controller certs ... --renew)"
        ),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Notice {
    Own { until: UtcTime },
    Trust,
    Failing(String),
    InOrder,
    Soon { until: UtcTime },
    Expired { until: UtcTime },
}

/// Decides which notices are due.
#[derive(Debug, Default)]
struct Reporter {
    failures: u32,
    reported: BTreeSet<String>,
    // Time of the last notice of expiry, and true if the certificate had expired by then.
    expiry: Option<(Instant, bool)>,
}

impl Reporter {
    fn notices(
        &mut self,
        outcome: &Result<Change, String>,
        own: Option<Validity>,
        now: SystemTime,
        at: Instant,
    ) -> Vec<Notice> {
        let mut notices = Vec::new();
        match outcome {
            Ok(change) => {
                self.failures = 0;
                if !self.reported.is_empty() {
                    self.reported.clear();
                    notices.push(Notice::InOrder);
                }
                if change.trust {
                    notices.push(Notice::Trust);
                }
                if change.own {
                    self.expiry = None;
                    notices.extend(own.map(|own| Notice::Own {
                        until: UtcTime(own.until),
                    }));
                }
            }
            Err(why) => {
                self.failures = self.failures.saturating_add(1);
                if self.failures >= PATIENCE
                    && self.reported.len() < REMEMBERED
                    && self.reported.insert(why.clone())
                {
                    notices.push(Notice::Failing(why.clone()));
                }
            }
        }
        let Some(validity) = own else {
            return notices;
        };
        let until = UtcTime(validity.until);
        let expired = validity.until < now;
        let due = self.expiry.is_none_or(|(reported_at, as_expired)| {
            expired != as_expired || at.saturating_duration_since(reported_at) >= DAY
        });
        if (expired || is_soon(validity, now)) && due {
            self.expiry = Some((at, expired));
            notices.push(if expired {
                Notice::Expired { until }
            } else {
                Notice::Soon { until }
            });
        }
        notices
    }
}

fn is_soon(validity: Validity, now: SystemTime) -> bool {
    let lifetime = validity
        .until
        .duration_since(validity.from)
        .unwrap_or_default();
    let left = validity.until.duration_since(now).unwrap_or_default();
    left <= SOON.min(lifetime / 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(60 * 60);
    const START: SystemTime = SystemTime::UNIX_EPOCH;

    struct Polls {
        reporter: Reporter,
        validity: Validity,
        begun: Instant,
    }

    impl Polls {
        fn of(lifetime: Duration) -> Self {
            Self {
                reporter: Reporter::default(),
                validity: Validity {
                    from: START,
                    until: START + lifetime,
                },
                begun: Instant::now(),
            }
        }

        fn at(&mut self, after: Duration, outcome: &Result<Change, String>) -> Vec<Notice> {
            let (now, at) = (START + after, self.begun + after);
            self.reporter.notices(outcome, Some(self.validity), now, at)
        }
    }

    fn until(days: u64) -> UtcTime {
        UtcTime(START + DAY * u32::try_from(days).unwrap_or(0))
    }

    const NOTHING: Result<Change, String> = Ok(Change {
        own: false,
        trust: false,
    });

    #[test]
    fn a_failure_is_reported_once_and_not_while_files_are_being_replaced() {
        let mut polls = Polls::of(DAY * 365);
        let (first, second) = (Err("first".to_owned()), Err("second".to_owned()));
        let mut poll = |outcome| polls.at(Duration::ZERO, outcome);
        for _ in 0..2 {
            assert_eq!(poll(&first), []);
        }
        assert_eq!(poll(&NOTHING), [], "it was a moment's and never said");
        for _ in 0..2 {
            assert_eq!(poll(&first), []);
        }
        assert_eq!(poll(&first), [Notice::Failing("first".into())]);
        for _ in 0..10 {
            assert_eq!(poll(&first), []);
        }
        assert_eq!(poll(&second), [Notice::Failing("second".into())]);
        for _ in 0..10 {
            assert_eq!(poll(&first), []);
            assert_eq!(poll(&second), []);
        }
        assert_eq!(poll(&NOTHING), [Notice::InOrder]);
        assert_eq!(poll(&NOTHING), []);
    }

    #[test]
    fn failures_without_end_do_not_fill_the_memory_or_the_log() {
        let mut polls = Polls::of(DAY * 365);
        let count = (0..1000)
            .flat_map(|n| polls.at(Duration::ZERO, &Err(format!("failure {n}"))))
            .count();
        assert_eq!(count, REMEMBERED);
    }

    #[test]
    fn a_change_is_reported_when_it_is_in_use() {
        let mut polls = Polls::of(DAY * 365);
        let change = Ok(Change {
            own: true,
            trust: true,
        });
        assert_eq!(
            polls.at(Duration::ZERO, &change),
            [Notice::Trust, Notice::Own { until: until(365) }]
        );
        assert_eq!(polls.at(Duration::ZERO, &NOTHING), []);
    }

    #[test]
    fn warns_daily_within_seven_days_of_expiry() {
        let mut polls = Polls::of(DAY * 365);
        assert_eq!(polls.at(DAY * 358 - HOUR, &NOTHING), []);
        let soon = Notice::Soon { until: until(365) };
        assert_eq!(polls.at(DAY * 358, &NOTHING), [soon]);
        assert_eq!(polls.at(DAY * 359 - HOUR, &NOTHING), []);
        let soon = Notice::Soon { until: until(365) };
        assert_eq!(polls.at(DAY * 365 - HOUR, &NOTHING), [soon]);
        let expired = Notice::Expired { until: until(365) };
        assert_eq!(polls.at(DAY * 365 + HOUR, &NOTHING), [expired]);
        assert_eq!(polls.at(DAY * 365 + HOUR * 2, &NOTHING), []);
    }

    #[test]
    fn a_short_lived_certificate_is_warned_of_in_its_last_third() {
        let mut polls = Polls::of(HOUR * 3);
        assert_eq!(polls.at(HOUR * 2 - DAY / 1440, &NOTHING), []);
        assert_eq!(polls.at(HOUR * 2, &NOTHING).len(), 1);
    }

    #[test]
    fn a_renewed_certificate_is_warned_of_afresh() {
        let mut polls = Polls::of(HOUR * 3);
        assert_eq!(polls.at(HOUR * 2, &NOTHING).len(), 1);
        let renewed = Ok(Change {
            own: true,
            trust: false,
        });
        polls.validity.until = START + HOUR * 6;
        assert_eq!(
            polls.at(HOUR * 2, &renewed).len(),
            1,
            "only that it is in use"
        );
        assert_eq!(polls.at(HOUR * 5, &NOTHING).len(), 1);
    }
}
