//! TokenReview at the API server of the cluster that this controller runs in.

use std::{future::Future, pin::Pin};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::{Api, Client, api::PostParams};

use super::{error::Unavailable, judge::Answer, review::Review};

/// What Kubernetes adds to a token that is bound to a pod, since 1.30.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// The API server, reached with the ServiceAccount of this pod.
pub struct ApiServer {
    reviews: Api<TokenReview>,
    audience: String,
}

/// No way to an API server is known.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(
        "cannot tell where the API server is; --kubernetes is for a controller in a pod with a ServiceAccount token"
    )]
    Config(#[source] kube::config::InferConfigError),
    #[error("cannot set up a client of the API server")]
    Client(#[source] Box<kube::Error>),
}

impl ApiServer {
    /// As KUBECONFIG says, or as for every pod: address from the environment, token and CA from the ServiceAccount's volume.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn infer(audience: &str) -> Result<Self, ClientError> {
        let config = kube::Config::infer().await.map_err(ClientError::Config)?;
        let client =
            Client::try_from(config).map_err(|error| ClientError::Client(Box::new(error)))?;
        Ok(Self {
            reviews: Api::all(client),
            audience: audience.to_owned(),
        })
    }

    async fn ask(&self, token: &str) -> Result<Answer, Unavailable> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                audiences: Some(vec![self.audience.clone()]),
                token: Some(token.to_owned()),
            },
            ..TokenReview::default()
        };
        let answer = self.reviews.create(&PostParams::default(), &review).await;
        let status = answer
            .map_err(|error| Unavailable(error.to_string()))?
            .status
            .unwrap_or_default();
        let user = status.user.unwrap_or_default();
        let nodes = user
            .extra
            .and_then(|mut extra| extra.remove(NODE_NAME))
            .unwrap_or_default();
        Ok(Answer {
            authenticated: status.authenticated.unwrap_or_default(),
            audiences: status.audiences.unwrap_or_default(),
            user: user.username.unwrap_or_default(),
            nodes,
            error: status.error.unwrap_or_default(),
        })
    }
}

impl Review for ApiServer {
    fn review<'a>(
        &'a self,
        token: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Answer, Unavailable>> + Send + 'a>> {
        Box::pin(self.ask(token))
    }
}
