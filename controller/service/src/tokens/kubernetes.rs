//! TokenReview at the API server of the controller's cluster.

use std::{future::Future, pin::Pin};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::{Api, Client, api::PostParams};

use super::{error::Unavailable, judge::Answer, review::Review};

/// Extra user field of a token that is bound to a pod. Written by Kubernetes since 1.30.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// The API server of this pod's cluster.
pub struct ApiServer {
    reviews: Api<TokenReview>,
    audience: String,
}

impl ApiServer {
    /// Returns a reviewer over this client, for tokens of this audience.
    pub fn new(client: Client, audience: &str) -> Self {
        Self {
            reviews: Api::all(client),
            audience: audience.to_owned(),
        }
    }

    async fn request_review(&self, token: &str) -> Result<Answer, Unavailable> {
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
        Box::pin(self.request_review(token))
    }
}
