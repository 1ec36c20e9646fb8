//! Reading of certificates: node id, key fingerprint and validity.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use drivebay_proto::volume_id::is_node_id;
use rustls::pki_types::CertificateDer;
use x509_parser::{
    certificate::X509Certificate, extensions::GeneralName, prelude::FromDer, time::ASN1Time,
};

use crate::units::count;

/// Prefix of the node id in the URI name of a node's certificate.
pub const NODE_URI: &str = "drivebay://node/";
/// Scheme of all of Drivebay's URI names. One with this scheme that is not a node's is an error, not another program's name.
const SCHEME: &str = "drivebay:";

/// Bytes that are not an X.509 certificate.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("not an X.509 certificate: {0}")]
pub struct NotACertificate(String);

/// The certificate has no valid node id, or more than one.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NoNodeId {
    #[error(transparent)]
    NotACertificate(#[from] NotACertificate),
    #[error("the certificate names no node: it has no URI name {NODE_URI}<node id>")]
    Missing,
    #[error("the certificate names {}; a node's certificate names one", count(*.0, "node"))]
    Several(usize),
    /// A URI name of Drivebay's scheme that is not a node's.
    #[error(
        "the certificate's name {0:?} is not {NODE_URI}<node id> (1 to 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit)"
    )]
    Malformed(String),
}

/// SHA-256 of a certificate's public key (its SubjectPublicKeyInfo): the same for every certificate of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyFingerprint(pub [u8; 32]);

impl fmt::Display for KeyFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Period in which a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// First second in which the certificate is valid (notBefore); can be before 1970.
    pub from: SystemTime,
    /// Last second in which the certificate is valid (notAfter).
    pub until: SystemTime,
}

/// A point in time, displayed for users as `2027-01-31 12:00 UTC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UtcTime(pub SystemTime);

impl fmt::Display for UtcTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self
            .0
            .duration_since(SystemTime::UNIX_EPOCH)
            .ok()
            .and_then(|since| i64::try_from(since.as_secs()).ok());
        match seconds.and_then(|seconds| ASN1Time::from_timestamp(seconds).ok()) {
            Some(time) => {
                let time = time.to_datetime();
                write!(
                    f,
                    "{}-{:02}-{:02} {:02}:{:02} UTC",
                    time.year(),
                    u8::from(time.month()),
                    time.day(),
                    time.hour(),
                    time.minute()
                )
            }
            None => write!(f, "{:?}", self.0),
        }
    }
}

/// Returns the node id of a certificate: that of the one URI name `drivebay://node/<node id>` in it. Ignores URI names of other schemes.
///
/// Does not verify the certificate; the handshake does.
///
/// # Errors
/// [`NoNodeId`], if there is no such name, more than one, or one with an invalid node id.
pub fn node_id(certificate: &CertificateDer<'_>) -> Result<String, NoNodeId> {
    let certificate = parse(certificate)?;
    let names = certificate
        .subject_alternative_name()
        .map_err(|error| NotACertificate(error.to_string()))?;
    let ours: Vec<&str> = names
        .iter()
        .flat_map(|names| &names.value.general_names)
        .filter_map(|name| match name {
            GeneralName::URI(uri) => Some(*uri),
            _ => None,
        })
        .filter(|uri| {
            uri.get(..SCHEME.len())
                .is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
        })
        .collect();
    match ours.as_slice() {
        [] => Err(NoNodeId::Missing),
        [uri] => uri
            .strip_prefix(NODE_URI)
            .filter(|node| is_node_id(node))
            .map(str::to_owned)
            .ok_or_else(|| NoNodeId::Malformed((*uri).to_owned())),
        several => Err(NoNodeId::Several(several.len())),
    }
}

/// Returns the fingerprint of the certificate's public key. Does not verify the certificate.
///
/// # Errors
/// [`NotACertificate`].
pub fn key_fingerprint(
    certificate: &CertificateDer<'_>,
) -> Result<KeyFingerprint, NotACertificate> {
    let certificate = parse(certificate)?;
    let digest = ring::digest::digest(&ring::digest::SHA256, certificate.public_key().raw);
    let bytes = digest.as_ref().try_into();
    bytes
        .map(KeyFingerprint)
        .map_err(|_| NotACertificate("its key has no SHA-256".to_owned()))
}

/// Returns the last second in which this certificate is valid.
///
/// # Errors
/// [`NotACertificate`].
pub fn expires(certificate: &CertificateDer<'_>) -> Result<SystemTime, NotACertificate> {
    validity(certificate).map(|validity| validity.until)
}

/// Returns the period in which this certificate is valid.
///
/// # Errors
/// [`NotACertificate`].
pub fn validity(certificate: &CertificateDer<'_>) -> Result<Validity, NotACertificate> {
    let certificate = parse(certificate)?;
    let validity = certificate.validity();
    Ok(Validity {
        from: system_time(validity.not_before)?,
        until: system_time(validity.not_after)?,
    })
}

/// Parses a certificate; errs if there are bytes after it.
pub fn parse<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, NotACertificate> {
    let (rest, certificate) = X509Certificate::from_der(der.as_ref())
        .map_err(|error| NotACertificate(error.to_string()))?;
    if !rest.is_empty() {
        let more = count(rest.len(), "byte");
        return Err(NotACertificate(format!("{more} behind its end")));
    }
    Ok(certificate)
}

fn system_time(time: ASN1Time) -> Result<SystemTime, NotACertificate> {
    let seconds = time.timestamp();
    let distance = Duration::from_secs(seconds.unsigned_abs());
    let time = if seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(distance)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(distance)
    };
    time.ok_or_else(|| NotACertificate(format!("no such time: {seconds} s from 1970")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;

    fn certificate(names: &[SanType]) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names.to_vec();
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }

    fn uris(uris: &[&str]) -> CertificateDer<'static> {
        let names: Vec<_> = uris
            .iter()
            .map(|uri| SanType::URI((*uri).try_into().unwrap()))
            .collect();
        certificate(&names)
    }

    #[test]
    fn a_node_is_named_by_exactly_one_well_spelt_uri() {
        let longest = "n".repeat(63);
        for node in ["n", "node-7", "rack1.node_7", "NODE7", "7", &longest] {
            let uri = format!("drivebay://node/{node}");
            assert_eq!(node_id(&uris(&[&uri])).as_deref(), Ok(node));
        }
        let too_long = format!("drivebay://node/{}", "n".repeat(64));
        for malformed in [
            "drivebay://node/",
            "drivebay://node/-n",
            "drivebay://node/n.",
            "drivebay://node/a/b",
            "drivebay://node/a?b",
            "drivebay://node/a#b",
            "drivebay://node/a%20b",
            "drivebay://node/a b",
            "drivebay://node//a",
            "drivebay://Node/a",
            "Drivebay://node/a",
            "drivebay://controller/a",
            "drivebay:node/a",
            &too_long,
        ] {
            assert_eq!(
                node_id(&uris(&[malformed])),
                Err(NoNodeId::Malformed(malformed.into()))
            );
        }
    }

    #[test]
    fn none_or_several_names_are_no_node() {
        assert_eq!(node_id(&certificate(&[])), Err(NoNodeId::Missing));
        assert_eq!(
            node_id(&certificate(&[SanType::DnsName(
                "node-7".try_into().unwrap()
            )])),
            Err(NoNodeId::Missing)
        );
        assert_eq!(
            node_id(&uris(&["spiffe://a/b", "http://drivebay/node/a"])),
            Err(NoNodeId::Missing)
        );
        for several in [
            ["drivebay://node/a", "drivebay://node/b"],
            ["drivebay://node/a", "drivebay://node/a"],
            ["drivebay://node/a", "drivebay://controller"],
            ["drivebay://node/a", "DRIVEBAY://node/b"],
        ] {
            assert_eq!(node_id(&uris(&several)), Err(NoNodeId::Several(2)));
        }
    }

    #[test]
    fn other_schemes_names_do_not_matter() {
        let der = uris(&["spiffe://trust/a", "drivebay://node/a"]);
        assert_eq!(node_id(&der).as_deref(), Ok("a"));
    }

    #[test]
    fn bytes_that_are_no_certificate_name_no_node_and_no_time() {
        let mut trailing = uris(&["drivebay://node/a"]).to_vec();
        trailing.push(0);
        for bytes in [vec![], b"no".to_vec(), trailing] {
            let der = CertificateDer::from(bytes);
            assert!(matches!(node_id(&der), Err(NoNodeId::NotACertificate(_))));
            assert!(expires(&der).is_err());
        }
    }

    #[test]
    fn the_time_is_the_certificates_own() {
        let mut params = CertificateParams::default();
        params.not_before = rcgen::date_time_ymd(1969, 12, 31);
        params.not_after = rcgen::date_time_ymd(2061, 2, 3);
        let key = KeyPair::generate().unwrap();
        let der = params.self_signed(&key).unwrap().der().clone();
        assert_eq!(
            UtcTime(expires(&der).unwrap()).to_string(),
            "2061-02-03 00:00 UTC"
        );
        let day = Duration::from_secs(24 * 60 * 60);
        assert_eq!(validity(&der).unwrap().from, SystemTime::UNIX_EPOCH - day);
    }
}
