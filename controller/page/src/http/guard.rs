//! Checks of a request's Host, Origin and Sec-Fetch-Site headers against DNS rebinding and cross-site requests. Pure.

use std::net::{IpAddr, SocketAddr};

use hyper::{
    HeaderMap, Uri, Version,
    header::{HOST, HeaderName, ORIGIN},
    http::uri::Authority,
};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Host headers that are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hosts {
    /// Loopback names with exactly this port.
    Port(u16),
    /// Loopback names with any port: the client's end of a forwarded port has a number of its own.
    AnyPort,
}

/// Reason for which a request is refused, whatever its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misdirected {
    #[error("the request's target must be a path")]
    Target,
    #[error("the request needs one Host header")]
    NoHost,
    #[error(
        "this page is served under localhost, 127.0.0.1 and [::1] only: open it under one of these names"
    )]
    Host,
    #[error("the request was sent by the page of another site")]
    Origin,
}

impl Hosts {
    /// Checks the target and headers of a request. `data`: the request is for data, which other sites may not request; they may link to
    /// the static files.
    ///
    /// # Errors
    /// [`Misdirected`]
    pub fn check(
        self,
        uri: &Uri,
        version: Version,
        headers: &HeaderMap,
        data: bool,
    ) -> Result<(), Misdirected> {
        if uri.authority().is_some() || uri.scheme().is_some() || version > Version::HTTP_11 {
            return Err(Misdirected::Target);
        }
        let host = single(headers, &HOST).map_err(|_| Misdirected::NoHost)?;
        let host = host.ok_or(Misdirected::NoHost)?;
        if !self.accepts(host) {
            return Err(Misdirected::Host);
        }
        let origin = single(headers, &ORIGIN).map_err(|_| Misdirected::Origin)?;
        // The page is served without TLS. A browser sends the name in lower case in both headers; other clients may not.
        if origin.is_some_and(|origin| {
            let origin = origin.strip_prefix("http://");
            !origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host))
        }) {
            return Err(Misdirected::Origin);
        }
        let site = single(headers, &SEC_FETCH_SITE).map_err(|_| Misdirected::Origin)?;
        match site {
            Some("same-origin" | "none") | None => Ok(()),
            Some(_) if data => Err(Misdirected::Origin),
            Some(_) => Ok(()),
        }
    }

    fn accepts(self, host: &str) -> bool {
        let Ok(authority) = host.parse::<Authority>() else {
            return false;
        };
        if host.contains('@') {
            return false;
        }
        let port = match (authority.port_u16(), authority.port()) {
            (Some(port), _) => port,
            (None, None) if !host.ends_with(':') => 80,
            (None, _) => return false,
        };
        let right_port = match self {
            Self::Port(only) => port == only,
            Self::AnyPort => true,
        };
        right_port && is_loopback_name(authority.host())
    }
}

fn is_loopback_name(name: &str) -> bool {
    if name.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let address = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    match address.unwrap_or(name).parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => false,
    }
}

/// A header is repeated, or has bytes that are not visible ASCII.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the header is repeated, or is not visible ASCII")]
pub struct Unusable;

/// Returns the value of a header that may be given once; None if it is missing.
///
/// # Errors
/// [`Unusable`]
pub fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Unusable> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| Unusable),
        (Some(_), Some(_)) => Err(Unusable),
    }
}

/// True if the page may be served at this address: other machines cannot reach it.
pub fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().is_loopback()
}

#[cfg(test)]
mod tests {
    use hyper::http::HeaderValue;

    use super::*;

    fn check(
        hosts: Hosts,
        headers: &[(&'static str, &str)],
        data: bool,
    ) -> Result<(), Misdirected> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        hosts.check(
            &Uri::from_static("/api/fleet"),
            Version::HTTP_11,
            &map,
            data,
        )
    }

    #[test]
    fn host_must_be_a_loopback_name_with_the_port() {
        let port = Hosts::Port(9813);
        for host in [
            "localhost:9813",
            "LOCALHOST:9813",
            "127.0.0.1:9813",
            "[::1]:9813",
            "127.9.9.9:9813",
        ] {
            assert_eq!(check(port, &[("host", host)], true), Ok(()), "{host}");
        }
        for host in [
            "localhost",
            "localhost:9812",
            "localhost:",
            "localhost:x",
            "localhost:99999999",
            "evil.example:9813",
            "localhost.evil.example:9813",
            "127.0.0.1.evil.example:9813",
            "evil@localhost:9813",
            "10.0.0.1:9813",
            "0.0.0.0:9813",
            "[::]:9813",
            "[::ffff:10.0.0.1]:9813",
            "",
            " ",
            "localhost:9813/x",
        ] {
            assert_eq!(
                check(port, &[("host", host)], true),
                Err(Misdirected::Host),
                "{host:?}"
            );
        }
        assert_eq!(check(port, &[], true), Err(Misdirected::NoHost));
        let twice = [("host", "localhost:9813"), ("host", "evil.example")];
        assert_eq!(check(port, &twice, true), Err(Misdirected::NoHost));
    }

    #[test]
    fn host_may_have_any_port_behind_a_forwarded_port_but_no_other_name() {
        for host in ["localhost", "localhost:1", "127.0.0.1:8080"] {
            assert_eq!(
                check(Hosts::AnyPort, &[("host", host)], true),
                Ok(()),
                "{host}"
            );
        }
        for host in ["evil.example", "evil.example:80", "10.0.0.1:80"] {
            assert_eq!(
                check(Hosts::AnyPort, &[("host", host)], true),
                Err(Misdirected::Host)
            );
        }
    }

    #[test]
    fn origin_must_be_http_and_the_host() {
        let with = |origin: &str| {
            check(
                Hosts::AnyPort,
                &[("host", "localhost:9813"), ("origin", origin)],
                true,
            )
        };
        assert_eq!(with("http://localhost:9813"), Ok(()));
        for origin in [
            "null",
            "http://localhost:9812",
            "https://localhost:9813",
            "http://127.0.0.1:9813",
            "http://evil.example",
            "localhost:9813",
            "",
        ] {
            assert_eq!(with(origin), Err(Misdirected::Origin), "{origin}");
        }
    }

    #[test]
    fn another_site_may_link_to_static_files_but_not_request_data() {
        for (site, data, expected) in [
            ("same-origin", true, Ok(())),
            ("none", true, Ok(())),
            ("cross-site", true, Err(Misdirected::Origin)),
            ("same-site", true, Err(Misdirected::Origin)),
            ("cross-site", false, Ok(())),
        ] {
            let headers = [("host", "localhost:1"), ("sec-fetch-site", site)];
            assert_eq!(check(Hosts::AnyPort, &headers, data), expected, "{site}");
        }
    }

    #[test]
    fn a_request_target_with_an_authority_is_refused() {
        let mut headers = HeaderMap::new();
        headers.append("host", HeaderValue::from_static("localhost:1"));
        let uri = Uri::from_static("http://evil.example/api/fleet");
        let checked = Hosts::AnyPort.check(&uri, Version::HTTP_11, &headers, true);
        assert_eq!(checked, Err(Misdirected::Target));
    }
}
