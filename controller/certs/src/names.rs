//! Names under which agents dial a controller.

use std::{
    fmt, fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
    str::FromStr,
};

use rcgen::SanType;
use rustls::pki_types::{CertificateDer, DnsName, pem::PemObject};
use x509_parser::extensions::GeneralName;

use super::error::CertsError;
use drivebay_common::tls;

/// A DNS name or an IP address in a controller's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// A DNS name, without wildcards.
    Dns(String),
    Ip(IpAddr),
}

/// The text is neither a DNS name nor an IP address.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("give a DNS name (without wildcard, scheme or port) or an IP address")]
pub struct InvalidName;

impl FromStr for Name {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        if let Ok(ip) = text.parse() {
            return Ok(Self::Ip(ip));
        }
        // A last label of digits is a mistyped address, which no DNS client would resolve either.
        let numeric = text
            .rsplit('.')
            .next()
            .is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit()));
        match DnsName::try_from(text) {
            Ok(_) if !numeric => Ok(Self::Dns(text.to_owned())),
            _ => Err(InvalidName),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(name) => f.write_str(name),
            Self::Ip(ip) => ip.fmt(f),
        }
    }
}

impl Name {
    /// Returns the names of the Service in namespace `drivebay`, as pods dial it, and of the local host.
    pub(super) fn defaults() -> Vec<Self> {
        let dns = [
            "drivebay-controller",
            "drivebay-controller.drivebay",
            "drivebay-controller.drivebay.svc",
            "drivebay-controller.drivebay.svc.cluster.local",
            "localhost",
        ];
        dns.into_iter()
            .map(|name| Self::Dns(name.to_owned()))
            .chain([
                Self::Ip(Ipv4Addr::LOCALHOST.into()),
                Self::Ip(Ipv6Addr::LOCALHOST.into()),
            ])
            .collect()
    }

    /// Returns the names of a certificate that is to be renewed, all of which must be DNS names or IP addresses.
    pub(super) fn of_certificate(path: &Path) -> Result<Vec<Self>, CertsError> {
        let none = |source| CertsError::NoNames {
            path: path.to_owned(),
            source,
        };
        let pem = fs::read(path).map_err(|source| CertsError::Read {
            path: path.to_owned(),
            source,
        })?;
        let der = CertificateDer::from_pem_slice(&pem).map_err(|_| none(None))?;
        let certificate = tls::parse(&der).map_err(|error| none(Some(error)))?;
        let names: Option<Vec<Self>> = certificate
            .subject_alternative_name()
            .ok()
            .flatten()
            .and_then(|names| names.value.general_names.iter().map(Self::of).collect());
        // A name of another kind would be lost by the renewal, so it is an error.
        names
            .filter(|names| !names.is_empty())
            .ok_or_else(|| none(None))
    }

    fn of(name: &GeneralName<'_>) -> Option<Self> {
        match name {
            GeneralName::DNSName(name) => Some(Self::Dns((*name).to_owned())),
            GeneralName::IPAddress(bytes) => {
                let ip = <[u8; 4]>::try_from(*bytes)
                    .map(IpAddr::from)
                    .or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
                ip.ok().map(Self::Ip)
            }
            _ => None,
        }
    }

    pub(super) fn san(&self) -> Result<SanType, rcgen::Error> {
        Ok(match self {
            Self::Dns(name) => SanType::DnsName(name.as_str().try_into()?),
            Self::Ip(ip) => SanType::IpAddress(*ip),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_names_or_addresses() {
        for (text, name) in [
            ("drivebay", Name::Dns("drivebay".into())),
            ("a.b-c.example", Name::Dns("a.b-c.example".into())),
            ("10.0.0.7", Name::Ip([10, 0, 0, 7].into())),
            ("::1", Name::Ip(Ipv6Addr::LOCALHOST.into())),
        ] {
            assert_eq!(text.parse(), Ok(name));
        }
        for text in [
            "",
            "*.a",
            "https://a",
            "a:443",
            "a b",
            "10.0.0",
            "10.0.0.256",
            "-a",
            "[::1]",
            "a/b",
        ] {
            assert_eq!(text.parse::<Name>(), Err(InvalidName), "{text}");
        }
    }
}
