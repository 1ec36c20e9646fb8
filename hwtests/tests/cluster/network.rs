//! The network of these tests: a host that is cut off receives no packets, and its connections continue when it is reachable again.

use std::{
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    time::Duration,
};

use drivebay_hwtests::{
    need,
    netns::{Host, Network},
};

const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_host_that_is_cut_off_hears_nothing_and_its_connections_go_on_when_it_is_back() {
    need!(root, network, tool "ip", tool "nsenter");
    let network = Network::new().unwrap();
    let (one, other) = (network.host(1).unwrap(), network.host(2).unwrap());
    let listener = one.inside(|| TcpListener::bind(one.at(80))).unwrap();
    let connect = |limit| other.inside(|| TcpStream::connect_timeout(&one.at(80), limit));
    let mut near = connect(LONG).unwrap();
    let (mut far, from) = listener.accept().unwrap();
    assert_eq!(from.ip(), other.address());
    for (cut, heal) in [
        (Host::cut as fn(&Host), Host::heal as fn(&Host)),
        (Host::unplug, Host::plug),
    ] {
        cut(&other);
        assert_eq!(connect(SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
        near.write_all(b"!").unwrap();
        far.set_read_timeout(Some(SHORT)).unwrap();
        assert_eq!(
            far.read(&mut [0]).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        heal(&other);
        far.set_read_timeout(Some(LONG)).unwrap();
        far.read_exact(&mut [0]).unwrap();
        connect(LONG).unwrap();
        listener.accept().unwrap();
    }
}
