//! Proof of a session's node by tokens, and its renewal.

use std::time::{Duration, SystemTime};

use drivebay_common::units::human_duration;
use drivebay_proto::agent::{ProveRequest, agent_client::AgentClient};

use super::{
    error::{MAX_TOKEN_BYTES, NotProven},
    review::{GRACE, Proven, Tokens},
};
use crate::{agents::AgentChannel, call::call};

/// Timeout of the agent's answer with its token.
const SHOW: Duration = Duration::from_secs(5);
/// Fraction of a token's lifetime after which the next one is requested. The kubelet renews it at 80 %, and checks once per minute.
const RENEW_AT: f64 = 0.85;
/// Shortest interval between two attempts.
const AGAIN: Duration = Duration::from_secs(30);

/// Requests the agent's token and verifies it. Calls `shown` when the agent has sent a token that may be good, before
/// waiting for its review.
///
/// # Errors
/// [`NotProven`]
pub(crate) async fn prove(
    client: &AgentClient<AgentChannel>,
    tokens: &Tokens,
    shown: impl FnOnce(),
) -> Result<Proven, NotProven> {
    let mut client = client
        .clone()
        .max_decoding_message_size(2 * MAX_TOKEN_BYTES);
    let response = async move { client.prove(ProveRequest {}).await };
    let answer = call(SHOW, response).await;
    let token = answer
        .map_err(|error| NotProven::NotShown(error.to_string()))?
        .service_account_token;
    tokens.read(&token)?;
    shown();
    tokens.prove(&token).await
}

/// Renews the proof before each expiry. Returns the reason when the agent's node is no longer proved.
pub(crate) async fn until_unproven(
    client: AgentClient<AgentChannel>,
    tokens: Tokens,
    first: Proven,
) -> String {
    let mut proven = first;
    loop {
        tokio::time::sleep(next(&proven, SystemTime::now())).await;
        match Box::pin(prove(&client, &tokens, || ())).await {
            Ok(again) if again.node == proven.node => proven = again,
            Ok(again) => {
                return format!(
                    "it has proved to be on node {} and now on {}",
                    proven.node, again.node
                );
            }
            Err(error) => {
                if let Some(why) = ends(&proven, &error, SystemTime::now()) {
                    return why;
                }
                tracing::warn!(node = proven.node, %error, "agent's proof not renewed; will retry");
            }
        }
        if let Some(why) = outlived(&proven, SystemTime::now()) {
            return why;
        }
    }
}

/// Returns the time until the agent's next token is requested. Pure.
fn next(proven: &Proven, now: SystemTime) -> Duration {
    let lifetime = proven
        .until
        .duration_since(proven.issued)
        .unwrap_or_default();
    let renew = proven.issued + lifetime.mul_f64(RENEW_AT);
    renew.duration_since(now).unwrap_or_default().max(AGAIN)
}

/// Returns the reason if a failed attempt ends the session. Pure.
fn ends(proven: &Proven, error: &NotProven, now: SystemTime) -> Option<String> {
    match error {
        // No API server refused the token, so it remains valid for the grace.
        NotProven::Unavailable(_) => None,
        NotProven::NotShown(_) | NotProven::Expired | NotProven::NotAToken
            if now < proven.until =>
        {
            None
        }
        error => Some(error.to_string()),
    }
}

fn outlived(proven: &Proven, now: SystemTime) -> Option<String> {
    (proven.until + GRACE <= now).then(|| {
        format!(
            "its token expired {} ago and no API server has reviewed a newer one",
            human_duration(now.duration_since(proven.until).unwrap_or_default())
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn hour() -> Proven {
        Proven {
            node: "n1".into(),
            issued: at(1000),
            until: at(4600),
        }
    }

    #[test]
    fn the_next_token_is_requested_before_the_last_expires_and_never_in_a_tight_loop() {
        for (now, seconds) in [(1000, 3060), (4000, 60), (4050, 30), (4600, 30), (9000, 30)] {
            assert_eq!(
                next(&hour(), at(now)),
                Duration::from_secs(seconds),
                "{now}"
            );
        }
        let short = Proven {
            until: at(1000),
            ..hour()
        };
        assert_eq!(next(&short, at(1000)), AGAIN);
    }

    #[test]
    fn a_refusal_ends_a_session_and_an_api_server_that_is_away_does_so_after_the_grace() {
        let away = NotProven::Unavailable(crate::tokens::Unavailable("refused".into()));
        let refused = NotProven::NotAuthenticated("pod is gone".into());
        let late = hour().until + GRACE;
        assert_eq!(ends(&hour(), &away, at(9000)), None);
        assert!(ends(&hour(), &refused, at(2000)).is_some());
        let silent = NotProven::NotShown("timed out".into());
        assert_eq!(ends(&hour(), &silent, at(4599)), None);
        assert!(ends(&hour(), &silent, at(4600)).is_some());
        assert_eq!(outlived(&hour(), late - Duration::from_secs(1)), None);
        assert!(outlived(&hour(), late).is_some());
    }
}
