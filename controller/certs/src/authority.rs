//! The private CA: creation, loading, and signing.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType, SerialNumber,
};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use uuid::Uuid;

use super::{
    error::CertsError,
    names::Name,
    place::{self, Leaf, Pair, exists},
};
use drivebay_common::tls::{self, NODE_URI, UtcTime};

/// Certificates are valid from this long before they were made, for hosts whose clocks are behind.
const SKEW: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A CA with its key.
pub(super) struct Authority {
    path: PathBuf,
    /// Contents of ca.pem: has other CAs, too, while one CA replaces another.
    bundle: Vec<u8>,
    certificate: CertificateDer<'static>,
    until: SystemTime,
    issuer: Issuer<'static, KeyPair>,
}

/// Subject of a certificate.
pub(super) enum Subject<'a> {
    Controller(&'a [Name]),
    Node(&'a str),
}

/// Result of comparing a node's copy of ca.pem with the CA's own.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Copied {
    Made,
    Same,
    /// The copy contains this CA, and differs otherwise.
    Differs,
}

impl Authority {
    /// Returns a new CA's certificate and key. Writes nothing.
    pub(super) fn generate(days: u32, now: SystemTime) -> Result<Leaf, CertsError> {
        let key = KeyPair::generate().map_err(CertsError::Make)?;
        let id = Uuid::new_v4().simple().to_string();
        let mut name = DistinguishedName::new();
        // The id distinguishes CAs for people, and for verifiers that find the issuer by name.
        name.push(
            DnType::CommonName,
            format!("Drivebay CA {}", id.get(..8).unwrap_or(&id)),
        );
        let until = after(now, days)?;
        let mut params = params(name, now, until);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key).map_err(CertsError::Make)?;
        Ok(Leaf {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            until,
            shortened: false,
        })
    }

    /// Creates a CA in this directory. Fails if one exists.
    pub(super) fn make(dir: &Path, days: u32, now: SystemTime) -> Result<Self, CertsError> {
        Pair::ca(dir).create(&Self::generate(days, now)?)?;
        Self::load(dir, now)
    }

    /// Loads the CA in this directory. Of several certificates in ca.pem, it is the one that belongs to the key.
    pub(super) fn load(dir: &Path, now: SystemTime) -> Result<Self, CertsError> {
        let Pair {
            certificate: path,
            key: key_path,
        } = Pair::ca(dir);
        match (exists(&path)?, exists(&key_path)?) {
            (true, true) => {}
            (true, false) => return Err(CertsError::CaKeyMissing { path: key_path }),
            (false, true) => return Err(CertsError::CaCertificateMissing { path }),
            (false, false) => {
                return Err(CertsError::NoCa {
                    dir: dir.to_owned(),
                });
            }
        }
        let (bundle, key) = (read(&path)?, read(&key_path)?);
        Self::of(
            Pair {
                certificate: path,
                key: key_path,
            },
            bundle,
            key,
            now,
        )
    }

    /// Returns the CA that this key belongs to, among the certificates of `bundle`. `at`: paths for error messages.
    ///
    /// # Errors
    /// Also if that certificate is not a CA's, or has expired.
    pub(super) fn of(
        at: Pair,
        bundle: Vec<u8>,
        key: Vec<u8>,
        now: SystemTime,
    ) -> Result<Self, CertsError> {
        let Pair {
            certificate: path,
            key: key_path,
        } = at;
        let key = String::from_utf8(key)
            .ok()
            .and_then(|pem| KeyPair::from_pem(&pem).ok())
            .ok_or_else(|| damaged(&key_path, "it holds no private key in PEM form (PKCS #8)"))?;
        let certificate = certificates(&path, &bundle)?
            .into_iter()
            .find(|certificate| {
                tls::parse(certificate)
                    .is_ok_and(|parsed| parsed.public_key().raw == key.subject_public_key_info())
            })
            .ok_or_else(|| CertsError::NotTheCasKey {
                path: path.clone(),
                key: key_path,
            })?;
        let is_ca = tls::parse(&certificate).is_ok_and(|parsed| parsed.is_ca());
        if !is_ca {
            return Err(damaged(
                &path,
                "the certificate of the CA's key is not a CA's",
            ));
        }
        let until = tls::expires(&certificate).map_err(|error| damaged(&path, error))?;
        if until < now {
            return Err(CertsError::CaExpired {
                path,
                until: UtcTime(until),
            });
        }
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(CertsError::Make)?;
        Ok(Self {
            path,
            bundle,
            certificate,
            until,
            issuer,
        })
    }

    pub(super) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    pub(super) fn until(&self) -> SystemTime {
        self.until
    }

    /// Generates a key and signs a certificate for it, valid for this many days but no longer than this CA.
    pub(super) fn issue(
        &self,
        subject: &Subject<'_>,
        days: u32,
        now: SystemTime,
    ) -> Result<Leaf, CertsError> {
        let wanted = after(now, days)?;
        let until = wanted.min(self.until);
        let (common_name, purpose, sans) = match subject {
            Subject::Controller(names) => (
                "drivebay-controller",
                ExtendedKeyUsagePurpose::ServerAuth,
                names.iter().map(Name::san).collect::<Result<_, _>>(),
            ),
            Subject::Node(node) => (
                *node,
                ExtendedKeyUsagePurpose::ClientAuth,
                format!("{NODE_URI}{node}")
                    .try_into()
                    .map(|uri| vec![SanType::URI(uri)]),
            ),
        };
        let mut name = DistinguishedName::new();
        name.push(DnType::CommonName, common_name);
        let mut params = params(name, now, until);
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        params.subject_alt_names = sans.map_err(CertsError::Make)?;
        let key = KeyPair::generate().map_err(CertsError::Make)?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .map_err(CertsError::Make)?;
        Ok(Leaf {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            until,
            shortened: until < wanted,
        })
    }

    /// Copies ca.pem to this path unless a file exists there: only the operator changes which CAs a node trusts. Fails with
    /// [`CertsError::AnotherCa`] if the existing file lacks this CA, since the certificates it signs would be refused.
    pub(super) fn copy_to(&self, path: &Path) -> Result<Copied, CertsError> {
        if !exists(path)? {
            place::create_certificate(path, &self.bundle)?;
            return Ok(Copied::Made);
        }
        let there = read(path)?;
        if there == self.bundle {
            return Ok(Copied::Same);
        }
        if certificates(path, &there)?.contains(&self.certificate) {
            Ok(Copied::Differs)
        } else {
            Err(CertsError::AnotherCa {
                path: path.to_owned(),
                ca: self.path.clone(),
            })
        }
    }
}

/// Fails unless the certificate is this node's, so that renewal does not replace another node's certificate.
pub(super) fn refuse_another_nodes(path: &Path, node: &str) -> Result<(), CertsError> {
    let subject = certificates(path, &read(path)?)?
        .first()
        .map(tls::node_id)
        .ok_or_else(|| damaged(path, "it is empty"))?;
    let subject = match subject {
        Ok(subject) if subject == node => return Ok(()),
        Ok(subject) => format!("node {subject}'s"),
        Err(error) => format!("something else ({error})"),
    };
    Err(CertsError::AnotherNode {
        path: path.to_owned(),
        node: node.to_owned(),
        subject,
    })
}

fn params(name: DistinguishedName, now: SystemTime, until: SystemTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = name;
    params.serial_number = Some(serial_number());
    params.not_before = now.checked_sub(SKEW).unwrap_or(now).into();
    params.not_after = until.into();
    params
}

/// Returns 122 random bits from the system's generator, so that no record of used serial numbers is needed.
fn serial_number() -> SerialNumber {
    SerialNumber::from_slice(Uuid::new_v4().as_bytes())
}

fn after(now: SystemTime, days: u32) -> Result<SystemTime, CertsError> {
    // X.509 ends with the year 9999, far beyond the options' limit of a hundred years.
    DAY.checked_mul(days)
        .and_then(|distance| now.checked_add(distance))
        .ok_or(CertsError::TooLong { days })
}

fn read(path: &Path) -> Result<Vec<u8>, CertsError> {
    fs::read(path).map_err(|source: io::Error| CertsError::Read {
        path: path.to_owned(),
        source,
    })
}

pub(super) fn certificates(
    path: &Path,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, CertsError> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|_| damaged(path, "it holds no certificates in PEM form"))
}

pub(super) fn damaged(path: &Path, why: impl ToString) -> CertsError {
    CertsError::Damaged {
        path: path.to_owned(),
        why: why.to_string(),
    }
}
