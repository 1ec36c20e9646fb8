//! Explanations of failed handshakes for operators: the cause, its side, and the remedy.

use std::{
    error::Error,
    io,
    time::{Duration, SystemTime},
};

use rustls::{
    AlertDescription, CertificateError, ExtendedKeyPurpose, InvalidMessage, pki_types::UnixTime,
};

use super::cert::UtcTime;

/// Largest number of nested errors that are searched for one of TLS.
const DEPTH: usize = 16;

/// Explains why a handshake failed, or a connection right after it: in TLS 1.3 a client learns of its refusal only then. Takes the error of
/// a handshake ([`io::Error`]) or any error that has it as a source; an error that is not of TLS is returned with its sources in one line.
pub fn explain(error: &(dyn Error + 'static)) -> String {
    let mut next = Some(error);
    let mut connection = None;
    for _ in 0..DEPTH {
        let Some(error) = next else { break };
        if let Some(tls) = error.downcast_ref::<rustls::Error>() {
            return of_rustls(tls);
        }
        next = match error.downcast_ref::<io::Error>() {
            Some(io) => {
                connection = connection.or(of_connection(io));
                // The source() of an io::Error is already the source of the error that it holds.
                io.get_ref().map(|held| held as &(dyn Error + 'static))
            }
            None => error.source(),
        };
    }
    connection.map_or_else(|| super::error::in_one_line(error), str::to_owned)
}

fn of_connection(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Some(
            "the peer closed the connection without a word of TLS; see its log, and that this is the right port",
        ),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            Some("the peer broke the connection; its log may say why")
        }
        _ => None,
    }
}

/// Explains an error of rustls.
pub(super) fn of_rustls(error: &rustls::Error) -> String {
    match error {
        rustls::Error::NoCertificatesPresented => {
            "the peer presented no certificate; an agent needs its node's (drivebay-controller certs node)".into()
        }
        rustls::Error::InvalidCertificate(error) => of_certificate(error),
        rustls::Error::AlertReceived(alert) => of_alert(*alert),
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the peer does not speak TLS: it sent plaintext or another protocol; see that this is the right port, and that TLS is configured on both sides".into()
        }
        rustls::Error::PeerIncompatible(what) => {
            format!("the peer does not speak TLS 1.3 as it is needed here ({what:?})")
        }
        rustls::Error::NoApplicationProtocol => {
            "the peer does not offer HTTP/2 (ALPN h2); it is no Drivebay agent or controller".into()
        }
        error => format!("TLS failed: {error}"),
    }
}

fn of_certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired => {
            "the peer's certificate has expired; renew it there, or set this host's clock right".into()
        }
        CertificateError::ExpiredContext { not_after, .. } => format!(
            "the peer's certificate expired at {}; renew it there, or set this host's clock right",
            moment(*not_after)
        ),
        CertificateError::NotValidYet => {
            "the peer's certificate is not valid yet; compare both hosts' clocks".into()
        }
        CertificateError::NotValidYetContext { not_before, .. } => format!(
            "the peer's certificate is valid only from {}; compare both hosts' clocks",
            moment(*not_before)
        ),
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the peer's certificate is not signed by a CA that is trusted here; is it of another installation, or was the CA exchanged on one side only?".into()
        }
        CertificateError::NotValidForName => {
            "the controller's certificate is not for the name that was dialled; renew it with that --name".into()
        }
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => format!(
            "the controller's certificate is not for {}, only for: {}; dial one of these names, or renew it with that --name",
            expected.to_str(),
            presented.join(", ")
        ),
        CertificateError::InvalidPurposeContext {
            required: ExtendedKeyPurpose::ClientAuth,
            ..
        } => "the peer's certificate is not meant for clients; an agent needs its node's (drivebay-controller certs node), not a controller's".into(),
        CertificateError::InvalidPurposeContext {
            required: ExtendedKeyPurpose::ServerAuth,
            ..
        } => "the peer's certificate is not meant for servers; a controller needs its own (drivebay-controller certs controller), not a node's".into(),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the peer's certificate is meant for something else: controllers need one for servers, agents one for clients".into()
        }
        error => format!("the peer's certificate is refused: {error}"),
    }
}

/// Explains an alert: the peer's refusal of this side.
fn of_alert(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => {
            "the peer wants a certificate, and this side presented none".into()
        }
        AlertDescription::CertificateExpired => {
            "the peer refuses this side's certificate as expired or not yet valid; see how long it is valid, and compare both hosts' clocks".into()
        }
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "the peer does not trust the CA that signed this side's certificate; is it of another installation, or was the CA exchanged on one side only?".into()
        }
        AlertDescription::UnsupportedCertificate => {
            "the peer refuses this side's certificate as meant for something else: an agent needs its node's (drivebay-controller certs node), a controller its own (drivebay-controller certs controller)".into()
        }
        AlertDescription::BadCertificate => {
            "the peer refuses this side's certificate, as damaged or not for the name that it dialled; its log says which".into()
        }
        AlertDescription::CertificateUnknown
        | AlertDescription::CertificateRevoked
        | AlertDescription::AccessDenied => {
            "the peer refuses this side's certificate; its log says why".into()
        }
        AlertDescription::ProtocolVersion => "the peer does not speak TLS 1.3".into(),
        AlertDescription::NoApplicationProtocol => {
            "the peer does not speak HTTP/2 (ALPN h2); it is no Drivebay agent or controller".into()
        }
        alert => format!("the peer ended TLS ({alert:?}); its log says why"),
    }
}

fn moment(time: UnixTime) -> UtcTime {
    // Seconds since 1970; a time beyond the clock's range is shown as 1970.
    let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(time.as_secs()));
    UtcTime(time.unwrap_or(SystemTime::UNIX_EPOCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] io::Error);

    #[test]
    fn the_error_of_tls_is_found_wherever_it_is_wrapped() {
        let tls = || rustls::Error::NoCertificatesPresented;
        let io = || io::Error::new(io::ErrorKind::InvalidData, tls());
        let words = of_rustls(&tls());
        assert_eq!(explain(&tls()), words);
        assert_eq!(explain(&io()), words);
        assert_eq!(explain(&io::Error::other(io())), words);
        assert_eq!(explain(&Outer(io::Error::other(Outer(io())))), words);
    }

    #[test]
    fn what_is_not_of_tls_keeps_its_words() {
        let refused = || io::Error::new(io::ErrorKind::ConnectionRefused, "refused");
        assert_eq!(explain(&refused()), "refused");
        assert_eq!(explain(&Outer(refused())), "outer: refused");
        assert!(explain(&io::Error::from(io::ErrorKind::UnexpectedEof)).contains("peer closed"));
    }
}
