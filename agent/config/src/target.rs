//! Address of a controller in the configuration. Pure.

use std::{fmt, net::SocketAddr, path::PathBuf};

use drivebay_common::local::{NotASocketPath, unix_path};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// A controller over TCP, with certificates.
    Tcp {
        /// Name or address, without brackets; the controller's certificate must be valid for it.
        host: String,
        port: u16,
    },
    /// A controller on this machine, without certificates.
    Unix(PathBuf),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The text is no controller's address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotATarget {
    #[error(
        "{0:?} is not a controller's address: write NAME:PORT, ADDRESS:PORT, [IPV6]:PORT or, on one machine, unix:/PATH"
    )]
    Address(String),
    #[error(transparent)]
    Socket(#[from] NotASocketPath),
}

impl std::str::FromStr for Target {
    type Err = NotATarget;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = unix_path(text) {
            return Ok(Self::Unix(path?));
        }
        let wrong = || NotATarget::Address(text.to_owned());
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self::Tcp {
                host: address.ip().to_string(),
                port: address.port(),
            });
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse::<u16>().ok().filter(|port| *port != 0);
        let label = |label: &str| {
            let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
            let bytes = label.as_bytes();
            bytes.len() <= 63
                && edge(bytes.first())
                && edge(bytes.last())
                && bytes
                    .iter()
                    .all(|&byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        };
        let name = host.strip_suffix('.').unwrap_or(host);
        if name.len() > 253 || !name.split('.').all(label) {
            return Err(wrong());
        }
        Ok(Self::Tcp {
            host: name.to_owned(),
            port: port.ok_or_else(wrong)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_is_named_by_name_or_address_and_port() {
        for (text, expected) in [
            ("controller:9443", Some("controller:9443")),
            ("c.drivebay.svc.:9443", Some("c.drivebay.svc:9443")),
            ("10.0.0.1:9443", Some("10.0.0.1:9443")),
            ("[fd00::1]:9443", Some("[fd00::1]:9443")),
            ("unix:/run/c.sock", Some("unix:/run/c.sock")),
            ("unix:///run/c.sock", Some("unix:/run/c.sock")),
            ("unix:c.sock", None),
            ("controller", None),
            ("controller:", None),
            ("controller:0", None),
            ("controller:99999", None),
            (":9443", None),
            ("https://c:9443", None),
            ("a b:9443", None),
            ("fd00::1:9443", None),
        ] {
            let parsed = text.parse::<Target>().ok().map(|target| target.to_string());
            assert_eq!(parsed.as_deref(), expected, "{text}");
        }
    }
}
