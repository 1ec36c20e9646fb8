//! Reviews by the API server of the controller's cluster: TokenReview and SubjectAccessReview.

use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};

use crate::{
    access::{AUDIENCE, Act, Review, Unavailable, User},
    source::Answer,
};

/// Reviews tokens and users' permissions with the API server of the client's cluster. Nothing is cached here.
pub struct ApiServer {
    tokens: Api<TokenReview>,
    accesses: Api<SubjectAccessReview>,
}

impl ApiServer {
    pub fn new(client: Client) -> Self {
        Self {
            tokens: Api::all(client.clone()),
            accesses: Api::all(client),
        }
    }

    async fn user(&self, token: &str) -> Result<Option<User>, Unavailable> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                audiences: Some(vec![AUDIENCE.to_owned()]),
                token: Some(token.to_owned()),
            },
            ..TokenReview::default()
        };
        let answer = self.tokens.create(&PostParams::default(), &review).await;
        let answer = answer.map_err(|error| Unavailable(error.to_string()))?;
        let status = answer.status.unwrap_or_default();
        // An API server that does not know audiences answers without any; such a token may be for anything.
        let audiences = status.audiences.unwrap_or_default();
        let is_for_us = audiences.iter().any(|audience| audience == AUDIENCE);
        let user = status.user.unwrap_or_default();
        let name = user.username.unwrap_or_default();
        if status.authenticated != Some(true) || !is_for_us || name.is_empty() {
            return Ok(None);
        }
        Ok(Some(User {
            name,
            uid: user.uid.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default().into_iter().collect(),
        }))
    }

    async fn may(&self, user: &User, act: Act<'_>) -> Result<bool, Unavailable> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.name.clone()),
                uid: Some(user.uid.clone()),
                groups: Some(user.groups.clone()),
                extra: Some(user.extra.iter().cloned().collect()),
                resource_attributes: Some(attributes(act)),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let answer = self.accesses.create(&PostParams::default(), &review).await;
        let answer = answer.map_err(|error| Unavailable(error.to_string()))?;
        let status = answer.status.unwrap_or_default();
        Ok(status.allowed && status.denied != Some(true))
    }
}

fn attributes(act: Act<'_>) -> ResourceAttributes {
    let (verb, group, resource, namespace) = match act {
        Act::OpenPage => ("get", "drivebay.io", "pages", None),
        Act::ListClaims(namespace) => ("list", "", "persistentvolumeclaims", namespace),
    };
    ResourceAttributes {
        verb: Some(verb.to_owned()),
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        // Empty: in all namespaces.
        namespace: Some(namespace.unwrap_or_default().to_owned()),
        ..ResourceAttributes::default()
    }
}

impl Review for ApiServer {
    fn authenticate<'a>(&'a self, token: &'a str) -> Answer<'a, Result<Option<User>, Unavailable>> {
        Box::pin(self.user(token))
    }

    fn authorize<'a>(
        &'a self,
        user: &'a User,
        act: Act<'a>,
    ) -> Answer<'a, Result<bool, Unavailable>> {
        Box::pin(self.may(user, act))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{Arc, Mutex},
    };

    use http_body_util::{BodyExt, Full};
    use hyper::{Request, Response, body::Bytes};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tower::service_fn;

    use super::*;

    type Sent = Arc<Mutex<Vec<(String, Value)>>>;

    /// Returns an API server that answers every review with this status, and what it was sent.
    fn answering(status: Value) -> (ApiServer, Sent) {
        let sent = Sent::default();
        let kept = sent.clone();
        let service = service_fn(move |request: Request<Body>| {
            let (status, kept) = (status.clone(), kept.clone());
            async move {
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let mut review: Value = serde_json::from_slice(&body).unwrap();
                kept.lock().unwrap().push((path, review["spec"].clone()));
                review["status"] = status;
                let body = Full::new(Bytes::from(review.to_string()));
                Ok::<_, Infallible>(Response::new(body))
            }
        });
        (ApiServer::new(Client::new(service, "default")), sent)
    }

    #[tokio::test]
    async fn a_user_is_taken_only_from_an_authenticated_token_of_the_audience() {
        let user = json!({"username": "ann", "groups": ["ops"], "extra": {"k": ["v"]}});
        for (status, is_user) in [
            (
                json!({"authenticated": true, "audiences": ["drivebay"], "user": user}),
                true,
            ),
            (
                json!({"authenticated": true, "audiences": ["drivebay-controller"], "user": user}),
                false,
            ),
            (json!({"authenticated": true, "user": user}), false),
            (
                json!({"authenticated": false, "audiences": ["drivebay"], "user": user}),
                false,
            ),
            (json!({"audiences": ["drivebay"], "user": user}), false),
            (
                json!({"authenticated": true, "audiences": ["drivebay"]}),
                false,
            ),
            (json!({}), false),
        ] {
            let (api, sent) = answering(status.clone());
            let user = api.authenticate("t").await.unwrap();
            assert_eq!(user.is_some(), is_user, "{status}");
            if let Some(user) = user {
                assert_eq!(
                    (user.name.as_str(), user.groups),
                    ("ann", vec!["ops".to_owned()])
                );
                assert_eq!(user.extra, [("k".to_owned(), vec!["v".to_owned()])]);
            }
            let (path, spec) = sent.lock().unwrap().remove(0);
            assert!(path.ends_with("/tokenreviews"), "{path}");
            assert_eq!(spec["audiences"], json!(["drivebay"]));
        }
    }

    #[tokio::test]
    async fn a_user_may_what_is_allowed_and_not_denied() {
        let user = User {
            name: "ann".into(),
            groups: vec!["ops".into()],
            ..User::default()
        };
        for (status, may) in [
            (json!({"allowed": true}), true),
            (json!({"allowed": false}), false),
            (json!({"allowed": true, "denied": true}), false),
        ] {
            let (api, sent) = answering(status.clone());
            assert_eq!(
                api.authorize(&user, Act::OpenPage).await,
                Ok(may),
                "{status}"
            );
            let (path, spec) = sent.lock().unwrap().remove(0);
            assert!(path.ends_with("/subjectaccessreviews"), "{path}");
            assert_eq!(
                (&spec["user"], &spec["groups"]),
                (&json!("ann"), &json!(["ops"]))
            );
            let attributes = &spec["resourceAttributes"];
            assert_eq!(
                (
                    &attributes["verb"],
                    &attributes["group"],
                    &attributes["resource"]
                ),
                (&json!("get"), &json!("drivebay.io"), &json!("pages"))
            );
        }
        let (api, sent) = answering(json!({"allowed": true}));
        api.authorize(&user, Act::ListClaims(Some("shop")))
            .await
            .unwrap();
        let attributes = sent.lock().unwrap().remove(0).1["resourceAttributes"].clone();
        assert_eq!(
            (
                &attributes["verb"],
                &attributes["resource"],
                &attributes["namespace"]
            ),
            (
                &json!("list"),
                &json!("persistentvolumeclaims"),
                &json!("shop")
            )
        );
    }
}
