//! Decides when a volume's check is due. Pure; times are Unix times in seconds.

use std::time::Duration;

const DAY: u64 = 24 * 3600;

/// Daily window, UTC. May include midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Second of the day at which it opens.
    pub from: u32,
    /// Second of the day at which it closes.
    pub to: u32,
}

impl Window {
    /// Parses "02:00-05:00"; None if it is malformed or empty.
    pub fn parse(text: &str) -> Option<Self> {
        let (from, to) = text.split_once('-')?;
        let window = Self {
            from: time(from.trim())?,
            to: time(to.trim())?,
        };
        (window.from != window.to).then_some(window)
    }

    /// Returns the length of the window in seconds.
    fn length(self) -> u64 {
        (u64::from(self.to) + DAY - u64::from(self.from)) % DAY
    }

    /// True if the window is open, and has been for this share (0 to 1) of its first half, so that checks do not all begin
    /// at once, and all begin well before it closes.
    pub fn is_open(self, now: u64, share: f64) -> bool {
        let since = (now % DAY + DAY - u64::from(self.from)) % DAY;
        let half = self.length() / 2;
        since < self.length() && since as f64 >= half as f64 * share
    }
}

/// Parses "HH:MM" to the second of the day.
fn time(text: &str) -> Option<u32> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |text: &str, below: u32| {
        (text.len() == 2 && text.bytes().all(|c| c.is_ascii_digit()))
            .then(|| text.parse::<u32>().ok())
            .flatten()
            .filter(|number| *number < below)
    };
    Some(number(hours, 24)? * 3600 + number(minutes, 60)? * 60)
}

/// Configured rules of checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// If false, only checks that an operator requested are run.
    pub enabled: bool,
    /// A volume is checked after it was unmounted.
    pub after_unstage: bool,
    /// Window in which volumes are checked, in use or not; None: no volume is checked because of the time.
    pub window: Option<Window>,
    /// A result younger than this is not renewed without evidence.
    pub interval: Duration,
}

/// State of a volume that decides whether its check is due.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Situation {
    pub now: u64,
    /// Time at which it was unmounted, if that was after its last check began.
    pub unmounted: Option<u64>,
    /// True if the kernel reported errors of its filesystem since its last check began.
    pub news: bool,
    /// True if the kernel log or the last check has errors of its filesystem.
    pub suspected: bool,
    /// True if an operator requested a check.
    pub requested: bool,
    /// Time of the last conclusive check.
    pub concluded: Option<u64>,
    /// Time at which the last check began.
    pub begun: Option<u64>,
    /// Between 0 and 1, different for each volume and constant.
    pub share: f64,
}

/// Reason why a check is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// An operator requested it.
    Requested,
    /// The kernel reported errors of the filesystem.
    Evidence,
    /// The volume was unmounted.
    Unmounted,
    /// The last result is old, and the window is open.
    Window,
}

/// Seconds for which an unmounted volume is not checked, since it is often mounted again at once. Half of it, and the
/// volume's share of the rest.
const SETTLE: u64 = 6;
/// Seconds after which an inconclusive check is repeated in its window.
const AGAIN: u64 = 3 * 3600;

/// Returns the reason why a check is due; None if it is not.
pub fn due(rules: &Rules, at: &Situation) -> Option<Occasion> {
    if at.requested {
        return Some(Occasion::Requested);
    }
    if !rules.enabled {
        return None;
    }
    let since = |then: Option<u64>| then.map(|then| at.now.saturating_sub(then));
    let old = since(at.concluded).is_none_or(|age| age >= rules.interval.as_secs());
    if let Some(rested) = since(at.unmounted) {
        let settled = rested as f64 >= SETTLE as f64 * (0.5 + 0.5 * at.share);
        let wanted = at.suspected || (rules.after_unstage && old);
        return (settled && wanted).then_some(Occasion::Unmounted);
    }
    if at.news {
        return Some(Occasion::Evidence);
    }
    let tried = since(at.begun).is_some_and(|age| age < AGAIN);
    (old && !tried && rules.window?.is_open(at.now, at.share)).then_some(Occasion::Window)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000 * DAY + 3 * 3600;

    fn rules() -> Rules {
        Rules {
            enabled: true,
            after_unstage: true,
            window: None,
            interval: Duration::from_secs(DAY),
        }
    }

    fn quiet() -> Situation {
        Situation {
            now: NOW,
            unmounted: None,
            news: false,
            suspected: false,
            requested: false,
            concluded: Some(NOW - 100),
            begun: Some(NOW - 100),
            share: 0.0,
        }
    }

    #[test]
    fn windows_are_read_and_go_over_midnight() {
        let window = Window::parse("02:00-05:00").unwrap();
        assert_eq!(
            (window.from, window.to, window.length()),
            (7200, 18000, 10800)
        );
        let night = Window::parse("23:30 - 00:30").unwrap();
        assert_eq!(night.length(), 3600);
        assert!(night.is_open(23 * 3600 + 1800, 0.0) && night.is_open(DAY + 1799, 1.0));
        assert!(!night.is_open(DAY + 1800, 0.0) && !night.is_open(12 * 3600, 0.0));
        // The share moves the beginning within the first half.
        assert!(!night.is_open(23 * 3600 + 1800, 0.5) && night.is_open(23 * 3600 + 2700, 0.5));
        for wrong in [
            "",
            "2:00-5:00",
            "02:00",
            "24:00-01:00",
            "02:60-03:00",
            "02:00-02:00",
            "+2:00-03:00",
        ] {
            assert_eq!(Window::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_volume_is_checked_after_it_was_unmounted_unless_that_was_done_lately() {
        let left = Situation {
            unmounted: Some(NOW - 10),
            ..quiet()
        };
        assert_eq!(due(&rules(), &left), None);
        let old = Situation {
            concluded: Some(NOW - DAY),
            ..left
        };
        assert_eq!(due(&rules(), &old), Some(Occasion::Unmounted));
        assert_eq!(
            due(
                &rules(),
                &Situation {
                    concluded: None,
                    ..left
                }
            ),
            Some(Occasion::Unmounted)
        );
        assert_eq!(
            due(
                &Rules {
                    after_unstage: false,
                    ..rules()
                },
                &old
            ),
            None
        );
        // It is often mounted again at once.
        assert_eq!(
            due(
                &rules(),
                &Situation {
                    unmounted: Some(NOW - 2),
                    ..old
                }
            ),
            None
        );
        // A suspected volume is checked each time, whatever is configured.
        let suspected = Situation {
            suspected: true,
            ..left
        };
        assert_eq!(
            due(
                &Rules {
                    after_unstage: false,
                    ..rules()
                },
                &suspected
            ),
            Some(Occasion::Unmounted)
        );
    }

    #[test]
    fn evidence_is_followed_once() {
        assert_eq!(
            due(
                &rules(),
                &Situation {
                    news: true,
                    suspected: true,
                    ..quiet()
                }
            ),
            Some(Occasion::Evidence)
        );
        assert_eq!(
            due(
                &rules(),
                &Situation {
                    suspected: true,
                    ..quiet()
                }
            ),
            None
        );
    }

    #[test]
    fn in_its_window_a_volume_is_checked_when_its_result_is_old() {
        let open = Rules {
            window: Window::parse("02:00-05:00"),
            ..rules()
        };
        let old = Situation {
            concluded: Some(NOW - DAY),
            begun: Some(NOW - DAY),
            ..quiet()
        };
        assert_eq!(due(&rules(), &old), None);
        assert_eq!(due(&open, &old), Some(Occasion::Window));
        assert_eq!(due(&open, &quiet()), None);
        assert_eq!(
            due(
                &open,
                &Situation {
                    begun: Some(NOW - 60),
                    ..old
                }
            ),
            None
        );
        assert_eq!(
            due(
                &open,
                &Situation {
                    now: NOW + 2 * 3600,
                    ..old
                }
            ),
            None
        );
    }

    #[test]
    fn without_an_operators_request_nothing_is_done_when_checks_are_off() {
        let off = Rules {
            enabled: false,
            window: Window::parse("00:00-23:59"),
            ..rules()
        };
        let all = Situation {
            unmounted: Some(0),
            news: true,
            suspected: true,
            concluded: None,
            begun: None,
            ..quiet()
        };
        assert_eq!(due(&off, &all), None);
        assert_eq!(
            due(
                &off,
                &Situation {
                    requested: true,
                    ..all
                }
            ),
            Some(Occasion::Requested)
        );
    }
}
