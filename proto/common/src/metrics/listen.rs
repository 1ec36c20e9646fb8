//! Addresses at which HTTP is served, for metrics or probes: a TCP address, a unix socket, or none.

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr};

use crate::local::{MAX_SOCKET_PATH, is_socket_path};

/// Address of an HTTP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    Tcp(SocketAddr),
    /// Path of a unix socket, created with mode 0600.
    Unix(PathBuf),
    /// HTTP is not served; written as `off`. [`serve`](super::serve) returns at once, and [`Listener::bind`](super::Listener::bind) errs.
    Off,
}

/// A text that is none of these.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{given:?} is not an address to serve HTTP at: give ADDRESS:PORT (127.0.0.1:9810, [::1]:9810), an absolute path of a unix \
     socket of at most {MAX_SOCKET_PATH} bytes, or \"off\""
)]
pub struct NoListen {
    given: String,
}

impl FromStr for Listen {
    type Err = NoListen;

    fn from_str(text: &str) -> Result<Self, NoListen> {
        let refused = || NoListen {
            given: text.to_owned(),
        };
        if text == "off" {
            return Ok(Self::Off);
        }
        let path = text.strip_prefix("unix://").unwrap_or(text);
        if is_socket_path(path) {
            return Ok(Self::Unix(path.into()));
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.port() != 0 => Ok(Self::Tcp(address)),
            _ => Err(refused()),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Off => f.write_str("off"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_a_socket_or_off_is_taken_and_nothing_else() {
        for (text, listen) in [
            ("off", Listen::Off),
            (
                "127.0.0.1:9810",
                Listen::Tcp("127.0.0.1:9810".parse().unwrap()),
            ),
            ("[::]:9810", Listen::Tcp("[::]:9810".parse().unwrap())),
            ("/run/m.sock", Listen::Unix("/run/m.sock".into())),
            ("unix:///run/m.sock", Listen::Unix("/run/m.sock".into())),
        ] {
            assert_eq!(text.parse(), Ok(listen), "{text}");
        }
        let long = format!("/{}", "x".repeat(200));
        for text in [
            "",
            "no",
            ":9810",
            "9810",
            "127.0.0.1",
            "127.0.0.1:0",
            "localhost:9810",
            "run/m.sock",
            "/run/../m.sock",
            "/run/",
            "/run/\n",
            long.as_str(),
        ] {
            assert!(text.parse::<Listen>().is_err(), "{text}");
        }
    }
}
