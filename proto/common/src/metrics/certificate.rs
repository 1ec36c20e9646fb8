//! Validity of the program's own certificate. Trusted CAs have no series: TLS does not check a CA's own validity.

use std::{
    sync::{Arc, OnceLock},
    time::SystemTime,
};

use super::{Def, Families, families::gauge};
use crate::tls::{Credentials, Validity};

pub(super) const NOT_BEFORE: Def = gauge(
    "drivebay_certificate_not_before_timestamp_seconds",
    "Unix time from which the program's own certificate, the one in use, is valid; absent if it has none.",
    &[],
);
pub(super) const EXPIRATION: Def = gauge(
    "drivebay_certificate_expiration_timestamp_seconds",
    "Unix time at which the program's own certificate, the one in use, expires; absent if it has none.",
    &[],
);

/// Credentials of a program, set once it has read them. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Certificate(Arc<OnceLock<Credentials>>);

impl Certificate {
    /// Sets the credentials, which follow their files themselves. A program has one set: later calls change nothing.
    pub fn of(&self, credentials: &Credentials) {
        let _ = self.0.set(credentials.clone());
    }

    /// Puts the two series into `into`; none without an own certificate.
    pub fn put(&self, into: &mut Families) {
        if let Some(validity) = self.0.get().and_then(Credentials::own_validity) {
            put(validity, into);
        }
    }
}

fn put(validity: Validity, into: &mut Families) {
    into.put(&NOT_BEFORE, &[], unix(validity.from));
    into.put(&EXPIRATION, &[], unix(validity.until));
}

fn unix(time: SystemTime) -> f64 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => since.as_secs_f64(),
        Err(before) => -before.duration().as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_program_without_a_certificate_has_no_series() {
        let mut families = Families::default();
        Certificate::default().put(&mut families);
        assert!(families.is_empty());
    }

    #[test]
    fn both_ends_of_the_validity_are_seconds_since_1970() {
        let mut families = Families::default();
        put(
            Validity {
                from: SystemTime::UNIX_EPOCH - Duration::from_secs(5),
                until: SystemTime::UNIX_EPOCH + Duration::from_secs(7),
            },
            &mut families,
        );
        let text = families.encode().unwrap();
        for line in [
            "drivebay_certificate_not_before_timestamp_seconds -5",
            "drivebay_certificate_expiration_timestamp_seconds 7",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
