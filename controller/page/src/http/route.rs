//! Answers to requests, by path.

use std::{convert::Infallible, sync::Arc};

use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{
    Method, Request, Response, StatusCode,
    body::Bytes,
    header::{
        ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER,
        WWW_AUTHENTICATE,
    },
};
use serde::Serialize;

use super::{
    Page, assets,
    guard::{Hosts, Misdirected, Unusable, single},
    query::parameter,
    stream,
};
use crate::{
    access::{Denied, Reader, Visibility},
    render,
};

pub(super) type Body = BoxBody<Bytes, Infallible>;

const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const HEADERS: [(&str, &str); 5] = [
    ("content-security-policy", CONTENT_SECURITY_POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
];
const JSON: &str = "application/json";
/// Error while the program stops, and after a panic of the task that reads the fleet.
const NOT_READ: &str =
    "the fleet is not read any more: the program is stopping, or reading failed; see its log";
/// Longest name in a query, bytes; identities of drives and names of nodes are shorter.
const NAME_BYTES: usize = 512;

/// Methods of the API, by path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Api {
    Session,
    Fleet,
    Drive,
    Volumes,
    Activity,
    History,
    Changes,
}

impl Api {
    fn at(path: &str) -> Option<Self> {
        Some(match path {
            "/api/session" => Self::Session,
            "/api/fleet" => Self::Fleet,
            "/api/drive" => Self::Drive,
            "/api/volumes" => Self::Volumes,
            "/api/activity" => Self::Activity,
            "/api/history" => Self::History,
            "/api/changes" => Self::Changes,
            _ => return None,
        })
    }
}

/// Answers a request, with the security headers in every answer. `hosts`: Host headers that are accepted.
pub(super) async fn respond<B>(request: Request<B>, page: &Page, hosts: Hosts) -> Response<Body> {
    let path = request.uri().path();
    let is_data = path.starts_with("/api/");
    let headers = request.headers();
    let checked = hosts.check(request.uri(), request.version(), headers, is_data);
    let mut response = if let Err(refused) = checked {
        let status = match refused {
            Misdirected::Origin => StatusCode::FORBIDDEN,
            _ => StatusCode::MISDIRECTED_REQUEST,
        };
        error(status, &refused.to_string())
    } else if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = error(StatusCode::METHOD_NOT_ALLOWED, "GET or HEAD");
        let allow = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(ALLOW, allow);
        response
    } else if let Some(api) = Api::at(path) {
        data(api, &request, page).await
    } else if let Some(asset) = assets::at(path) {
        body(
            StatusCode::OK,
            asset.content_type,
            Bytes::from_static(asset.bytes),
        )
    } else {
        error(StatusCode::NOT_FOUND, "no such path")
    };
    tracing::debug!(
        status = response.status().as_u16(),
        is_data,
        "page request answered"
    );
    for (name, value) in HEADERS {
        let name = HeaderName::from_static(name);
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    // Static files change with the program's version, so a browser has to revalidate them.
    let cache = match is_data {
        true => "no-store",
        false => "no-cache",
    };
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static(cache));
    response
}

async fn data<B>(api: Api, request: &Request<B>, page: &Page) -> Response<Body> {
    if api == Api::Session {
        return session(page);
    }
    // Bounds what is computed, reviews of wrong tokens included. Dropped with the return, before the answer is sent.
    let Ok(_permit) = page.requests.clone().try_acquire_owned() else {
        return busy("too many requests at a time");
    };
    let Ok(token) = bearer(request) else {
        return denied(Denied::Invalid);
    };
    let reader = match page.access.admit(token.as_deref()).await {
        Ok(reader) => reader,
        Err(reason) => return denied(reason),
    };
    let query = request.uri().query();
    match api {
        Api::Session => session(page),
        Api::Fleet => match page.live.fleet().await {
            None => busy(NOT_READ),
            Some(fleet) => {
                let visibility = page.access.visibility(&reader, &fleet.namespaces).await;
                body(StatusCode::OK, JSON, fleet.json(&visibility))
            }
        },
        Api::Drive => drive(page, &reader, query).await,
        Api::Volumes => {
            let mut volumes = page.source.volumes().await;
            let Some(visibility) = visibility(page, &reader).await else {
                return busy(NOT_READ);
            };
            let all = volumes.volumes.iter_mut();
            all.for_each(|one| hide_claim(&mut one.claim, &visibility));
            json(&volumes)
        }
        Api::Activity => json(&page.source.activity().await),
        Api::History => {
            let mut history = page.source.history().await;
            let Some(visibility) = visibility(page, &reader).await else {
                return busy(NOT_READ);
            };
            let all = history.events.iter_mut();
            all.for_each(|one| hide_claim(&mut one.claim, &visibility));
            json(&history)
        }
        Api::Changes if request.method() == Method::HEAD => {
            body(StatusCode::OK, stream::CONTENT_TYPE, Bytes::new())
        }
        Api::Changes => {
            let Ok(permit) = page.streams.clone().try_acquire_owned() else {
                return busy("too many streams at a time");
            };
            let since = parameter(query, "since").and_then(|since| since.parse().ok());
            match visibility(page, &reader).await {
                Some(visibility) => stream::begin(page.clone(), token, visibility, since, permit),
                None => busy(NOT_READ),
            }
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Session {
    host: Option<String>,
    needs_token: bool,
    version: &'static str,
}

fn session(page: &Page) -> Response<Body> {
    json(&Session {
        host: page.source.host(),
        needs_token: page.access.needs_token(),
        version: env!("CARGO_PKG_VERSION"),
    })
}

/// Returns the claims that the reader may see, of the namespaces that are in the fleet; None if the fleet is not read any more.
async fn visibility(page: &Page, reader: &Reader) -> Option<Visibility> {
    let namespaces = page.live.fleet().await?.namespaces.clone();
    Some(page.access.visibility(reader, &namespaces).await)
}

async fn drive(page: &Page, reader: &Reader, query: Option<&str>) -> Response<Body> {
    let name =
        |name| parameter(query, name).filter(|one| !one.is_empty() && one.len() <= NAME_BYTES);
    let (Some(node), Some(id)) = (name("node"), name("id")) else {
        return error(StatusCode::BAD_REQUEST, "give node and id");
    };
    let Some(mut drive) = page.source.drive(&node, &id).await else {
        return error(StatusCode::NOT_FOUND, "no such drive");
    };
    let Some(visibility) = visibility(page, reader).await else {
        return busy(NOT_READ);
    };
    render::claims(&mut drive.claims, &visibility);
    let volumes = drive.volumes.iter_mut();
    volumes.for_each(|one| hide_claim(&mut one.claim, &visibility));
    json(&drive)
}

fn hide_claim(claim: &mut Option<String>, visibility: &Visibility) {
    *claim = claim.take().filter(|claim| visibility.shows(claim));
}

/// Returns the bearer token; None without an Authorization header.
fn bearer<B>(request: &Request<B>) -> Result<Option<Arc<str>>, Unusable> {
    let Some(value) = single(request.headers(), &AUTHORIZATION)? else {
        return Ok(None);
    };
    let (scheme, token) = value.split_once(' ').ok_or(Unusable)?;
    match scheme.eq_ignore_ascii_case("bearer") {
        true => Ok(Some(token.trim().into())),
        false => Err(Unusable),
    }
}

fn denied(reason: Denied) -> Response<Body> {
    let status = match reason {
        Denied::NoToken | Denied::Invalid => StatusCode::UNAUTHORIZED,
        Denied::Forbidden => StatusCode::FORBIDDEN,
        Denied::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
    };
    let mut response = error(status, &reason.to_string());
    if status == StatusCode::UNAUTHORIZED {
        let scheme = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
    }
    response
}

/// Returns 503 with a pause before the next attempt.
fn busy(reason: &'static str) -> Response<Body> {
    let mut response = error(StatusCode::SERVICE_UNAVAILABLE, reason);
    let after = HeaderValue::from_static("2");
    response.headers_mut().insert(RETRY_AFTER, after);
    response
}

#[derive(Serialize)]
struct ErrorJson<'a> {
    error: &'a str,
}

pub(super) fn error(status: StatusCode, text: &str) -> Response<Body> {
    body(status, JSON, render::json(&ErrorJson { error: text }))
}

fn json(value: &impl Serialize) -> Response<Body> {
    body(StatusCode::OK, JSON, render::json(value))
}

fn body(status: StatusCode, content_type: &'static str, bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(bytes).boxed());
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
