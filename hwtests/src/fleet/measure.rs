//! Durations of calls, and complete listings of volumes.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, Instant},
};

use drivebay_proto::csi::ListVolumesRequest;
use prost::Message;
use tonic::Status;

use crate::Csi;

/// Durations of calls of one kind.
#[derive(Debug, Clone, Default)]
pub struct Times(Vec<Duration>);

impl Times {
    /// Makes a call and records its duration if it succeeds.
    ///
    /// # Errors
    /// As answered.
    pub async fn of<T>(
        &mut self,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        let began = Instant::now();
        let answer = call.await?;
        self.0.push(began.elapsed());
        Ok(answer)
    }

    /// Returns the time within which this share (0 to 1) of the calls was answered; zero without calls.
    pub fn quantile(&self, share: f64) -> Duration {
        let mut times = self.0.clone();
        times.sort_unstable();
        let last = times.len().saturating_sub(1);
        let place = (share * last as f64).round() as usize;
        times.get(place).copied().unwrap_or_default()
    }

    /// Returns the number of calls.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "p50 {:.2?}, p99 {:.2?} ({} calls)",
            self.quantile(0.5),
            self.quantile(0.99),
            self.count()
        )
    }
}

/// All pages of ListVolumes, requested as by the health monitor, without a limit of entries.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// Number of times that each id was listed.
    pub ids: BTreeMap<String, usize>,
    /// Duration of each page's call.
    pub pages: Times,
    /// Size of the largest page as sent, bytes.
    pub largest_page: usize,
    /// Time from the first call to the last answer.
    pub whole: Duration,
}

impl Listing {
    /// Requests all pages.
    ///
    /// # Errors
    /// As answered.
    pub async fn take(csi: &Csi) -> Result<Self, Status> {
        let mut listing = Self::default();
        let mut client = csi.controller().max_decoding_message_size(usize::MAX);
        let began = Instant::now();
        let mut starting_token = String::new();
        loop {
            let request = ListVolumesRequest {
                max_entries: 0,
                starting_token,
            };
            let call = client.list_volumes(request);
            let page = listing.pages.of(call).await?.into_inner();
            listing.largest_page = listing.largest_page.max(page.encoded_len());
            for volume in page.entries.into_iter().filter_map(|entry| entry.volume) {
                *listing.ids.entry(volume.volume_id).or_default() += 1;
            }
            if page.next_token.is_empty() {
                listing.whole = began.elapsed();
                return Ok(listing);
            }
            starting_token = page.next_token;
        }
    }

    /// Returns the ids that were listed more than once.
    pub fn doubled(&self) -> Vec<&String> {
        let doubled = self.ids.iter().filter(|(_, times)| **times > 1);
        doubled.map(|(id, _)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_what_was_measured() {
        assert_eq!(Times::default().quantile(0.5), Duration::ZERO);
        let times = Times((1..=101).rev().map(Duration::from_millis).collect());
        assert_eq!(times.quantile(0.5), Duration::from_millis(51));
        assert_eq!(times.quantile(0.99), Duration::from_millis(100));
        assert_eq!(times.quantile(1.0), Duration::from_millis(101));
    }
}
