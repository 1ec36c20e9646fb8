//! A load balancer on one address, like the virtual address of a Service: each connection goes to the next backend. A connection to a dead
//! backend is closed.

use std::{
    io,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{Trouble, netns::Host};

/// Timeout of connecting to a backend that does not answer.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// State that the balancer's threads share.
#[derive(Debug, Default)]
struct Shared {
    over: AtomicBool,
    // Both ends of every connection, to be shut down at the end.
    open: Mutex<Vec<TcpStream>>,
}

impl Shared {
    fn keep(&self, stream: &TcpStream) -> io::Result<()> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.push(stream.try_clone()?);
        Ok(())
    }
}

/// A running balancer; its connections end when it is dropped.
#[derive(Debug)]
pub struct Balancer {
    address: SocketAddr,
    shared: Arc<Shared>,
    host: Host,
}

impl Balancer {
    /// Listens on this host's port, in front of these backends.
    ///
    /// # Errors
    /// It cannot listen.
    pub fn start(host: Host, port: u16, behind: Vec<SocketAddr>) -> Result<Self, Trouble> {
        let address = host.at(port);
        let shared = Arc::new(Shared::default());
        let ours = shared.clone();
        host.inside(|| -> io::Result<()> {
            let listener = TcpListener::bind(address)?;
            // The thread inherits this host's network.
            thread::spawn(move || accept(&listener, &behind, &ours));
            Ok(())
        })?;
        Ok(Self {
            address,
            shared,
            host,
        })
    }

    /// Returns the virtual address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = self
            .host
            .inside(|| TcpStream::connect_timeout(&self.address, CONNECT_LIMIT));
        let open = self
            .shared
            .open
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for stream in open.iter() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn accept(listener: &TcpListener, behind: &[SocketAddr], shared: &Arc<Shared>) {
    for (stream, to) in listener.incoming().zip(behind.iter().cycle()) {
        if shared.over.load(Ordering::SeqCst) {
            return;
        }
        if let Ok(stream) = stream {
            let (to, shared) = (*to, shared.clone());
            thread::spawn(move || {
                // On an error both ends are closed.
                let _ = join(stream, to, &shared);
            });
        }
    }
}

fn join(near: TcpStream, to: SocketAddr, shared: &Shared) -> io::Result<()> {
    let far = TcpStream::connect_timeout(&to, CONNECT_LIMIT)?;
    for stream in [&near, &far] {
        stream.set_nodelay(true)?;
        shared.keep(stream)?;
    }
    let back = (far.try_clone()?, near.try_clone()?);
    let returning = thread::spawn(move || pass(back.0, back.1));
    pass(near, far);
    returning.join().map_err(|_| io::ErrorKind::Other.into())
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
