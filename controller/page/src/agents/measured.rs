//! Latencies and earlier SMART values of one drive, from its agent.

use std::{collections::HashMap, sync::PoisonError, time::Instant};

use drivebay_proto::agent::{DriveHistoryRequest, DriveLatencyRequest};
use drivebay_service::{
    agents::Agent,
    call::{CallError, call},
};

use super::{AgentsSource, DEADLINE, RECENT};
use crate::wire::{self, Measured};

/// Most drives whose values are kept.
const DRIVES: usize = 256;

/// Answers of agents by node and drive, with the moment of each.
pub(super) type Answers = HashMap<(String, String), (Instant, Measured)>;

impl AgentsSource {
    /// Asks the drive's agent, unless it was asked within the last [`RECENT`]. Without an answer within [`DEADLINE`] the values are absent.
    pub(super) async fn measured(&self, agent: &Agent, drive: &str) -> Measured {
        let key = (agent.node().to_owned(), drive.to_owned());
        let lock = || self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, measured)) = lock().get(&key)
            && at.elapsed() < RECENT
        {
            return measured.clone();
        }
        let Ok(measured) = query(agent, drive).await else {
            return Measured::default();
        };
        let mut cache = lock();
        cache.retain(|_, (at, _)| at.elapsed() < RECENT);
        if cache.len() < DRIVES {
            cache.insert(key, (Instant::now(), measured.clone()));
        }
        measured
    }
}

/// Asks for both at once. Errs if the agent is not connected; an answer that it does not give is absent.
async fn query(agent: &Agent, drive: &str) -> Result<Measured, CallError> {
    let (mut of_latency, mut of_history) = (agent.client()?, agent.client()?);
    let latency = DriveLatencyRequest {
        drive: drive.to_owned(),
    };
    let history = DriveHistoryRequest {
        drive: drive.to_owned(),
    };
    let (latency, history) = tokio::join!(
        call(DEADLINE, of_latency.drive_latency(latency)),
        call(DEADLINE, of_history.drive_history(history)),
    );
    let node = agent.node();
    // Errors are also those of an agent that is older than the call.
    let latency = match latency {
        Ok(answer) => wire::latency(&answer),
        Err(error) => {
            tracing::debug!(%error, node, "latency of a drive not read");
            None
        }
    };
    let counters = match history {
        Ok(answer) => wire::counters(answer),
        Err(error) => {
            tracing::debug!(%error, node, "SMART history of a drive not read");
            wire::Counters::default()
        }
    };
    Ok(Measured { latency, counters })
}
