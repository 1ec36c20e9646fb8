//! Claims in a token, unverified. They are used to refuse an unsuitable token without a review, and for the expiry of a reviewed one. Pure.

use std::time::{Duration, SystemTime};

use serde::Deserialize;

use super::error::{MAX_TOKEN_BYTES, NotProven};

/// RFC 7519's registered claims in a ServiceAccount token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    /// User name of the ServiceAccount.
    pub subject: String,
    pub audiences: Vec<String>,
    pub issued: SystemTime,
    pub until: SystemTime,
}

#[derive(Deserialize)]
struct Raw {
    #[serde(default)]
    sub: String,
    #[serde(default)]
    aud: Audiences,
    exp: u32,
    #[serde(default)]
    iat: u32,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audiences {
    Many(Vec<String>),
    One(String),
}

impl Default for Audiences {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl Claims {
    /// Reads the claims (second part) of a JSON Web Token. Does not verify its signature.
    ///
    /// # Errors
    /// [`NotProven::NotAToken`]
    pub fn read(token: &str) -> Result<Self, NotProven> {
        let mut parts = token.split('.');
        let (header, claims, signature) = (parts.next(), parts.next(), parts.next());
        let (Some(_), Some(claims), Some(_), None) = (header, claims, signature, parts.next())
        else {
            return Err(NotProven::NotAToken);
        };
        if token.len() > MAX_TOKEN_BYTES {
            return Err(NotProven::NotAToken);
        }
        let json = base64(claims).ok_or(NotProven::NotAToken)?;
        let raw: Raw = serde_json::from_slice(&json).map_err(|_| NotProven::NotAToken)?;
        let at = |seconds: u32| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.into());
        Ok(Self {
            subject: raw.sub,
            audiences: match raw.aud {
                Audiences::Many(many) => many,
                Audiences::One(one) => vec![one],
            },
            issued: at(raw.iat),
            until: at(raw.exp),
        })
    }
}

fn base64(text: &str) -> Option<Vec<u8>> {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    URL_SAFE_NO_PAD.decode(text).ok()
}
