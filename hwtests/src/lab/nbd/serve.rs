//! Threads of a served drive: one accepts clients, one serves each client.

use std::{
    io,
    os::unix::net::{UnixListener, UnixStream},
    sync::Arc,
    thread::{self, JoinHandle},
};

use super::{
    state::Shared,
    wire::{self, Command},
};

/// Accepts clients until the drive is dropped.
pub(super) fn accept(listener: &UnixListener, drive: &Arc<Shared>) {
    let mut clients: Vec<JoinHandle<()>> = Vec::new();
    let mut number = 0;
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(_) if drive.lock().closed => break,
            Err(error) => {
                eprintln!("a drive takes no more clients: {error}");
                break;
            }
        };
        clients.retain(|client| !client.is_finished());
        let mut state = drive.lock();
        if state.closed {
            break;
        }
        let Ok(copy) = stream.try_clone() else {
            eprintln!("a drive turns a client away: no descriptor is left");
            continue;
        };
        if state.cut.is_some() || state.dead {
            continue;
        }
        number += 1;
        state.streams.push((number, copy));
        let generation = state.generation;
        drop(state);
        let (drive, id) = (Arc::clone(drive), number);
        clients.push(thread::spawn(move || {
            // A client that disconnects or violates the protocol ends only its own connection.
            let _ = converse(stream, &drive, generation);
            drive.lock().streams.retain(|(other, _)| *other != id);
        }));
    }
    for client in clients {
        let _ = client.join();
    }
}

fn converse(mut stream: UnixStream, drive: &Shared, generation: u64) -> io::Result<()> {
    if !wire::handshake(&mut stream, &drive.export())? {
        return Ok(());
    }
    loop {
        let request = wire::request(&mut stream)?;
        if request.command == Command::Disconnect {
            return Ok(());
        }
        let cookie = request.cookie;
        match drive.carry_out(generation, request) {
            Some(answer) => wire::reply(&mut stream, cookie, &answer)?,
            None => {
                drive.wait_over(generation);
                return Ok(());
            }
        }
    }
}
