//! A relay between the two ends of a gRPC connection that keeps every message: what an agent and a controller, or a
//! command line and an agent, of any two builds say to each other, as bytes.

use std::{
    collections::BTreeMap,
    io,
    path::Path,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use loona_hpack::Decoder;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    task::JoinHandle,
};

use crate::Trouble;

/// "PRI * HTTP/2.0…", which an HTTP/2 client begins with.
const PREFACE: usize = 24;
const FRAME_HEADER: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// Compressed flag and length before each gRPC message.
const MESSAGE_HEADER: usize = 5;

/// Who sent a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sender {
    /// The side that calls: a controller, or a command line.
    Caller,
    /// The side that answers: the agent.
    Answerer,
}

/// One message of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The method's name, e.g. `CreateVolume`.
    pub method: String,
    /// Who sent it.
    pub sender: Sender,
    /// The encoded message.
    pub bytes: Vec<u8>,
    /// Which connection it was on, and which call there.
    pub call: (usize, u32),
}

/// Both directions of one connection, as far as they were relayed.
#[derive(Debug, Default)]
struct Wire {
    caller: Vec<u8>,
    answerer: Vec<u8>,
}

type Wires = Arc<Mutex<Vec<Wire>>>;

/// A running relay; it ends when this is dropped.
#[derive(Debug)]
pub struct Tap {
    wires: Wires,
    task: JoinHandle<()>,
    address: String,
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What agents and controllers dial: `ADDRESS:PORT` or `unix:PATH`.
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

trait Stream: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Stream for T {}
type AnyStream = Pin<Box<dyn Stream>>;

impl Listener {
    /// Port 0 is a free one; the answer has its address.
    async fn bind(address: &str) -> Result<(Self, String), Trouble> {
        if let Some(path) = address.strip_prefix("unix:") {
            return Ok((Self::Unix(UnixListener::bind(path)?), address.to_owned()));
        }
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?.to_string();
        Ok((Self::Tcp(listener), address))
    }

    async fn accept(&self) -> io::Result<AnyStream> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Box::pin(stream))
            }
            Self::Unix(listener) => Ok(Box::pin(listener.accept().await?.0)),
        }
    }
}

async fn connect(address: &str) -> io::Result<AnyStream> {
    if let Some(path) = address.strip_prefix("unix:") {
        return Ok(Box::pin(UnixStream::connect(path).await?));
    }
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(Box::pin(stream))
}

impl Tap {
    /// Relays what dials this address or socket, which is made. The side that dials is the one that answers: agents dial
    /// controllers.
    ///
    /// # Errors
    /// It cannot listen.
    pub async fn before_controller(here: &str, controller: &str) -> Result<Self, Trouble> {
        Self::between(here, controller, Sender::Answerer).await
    }

    /// Relays what connects to this unix socket, which is made, to that of an agent.
    ///
    /// # Errors
    /// It cannot listen.
    pub async fn before_socket(here: &Path, agent: &Path) -> Result<Self, Trouble> {
        let [here, agent] = [here, agent].map(|path| format!("unix:{}", path.display()));
        Self::between(&here, &agent, Sender::Caller).await
    }

    async fn between(here: &str, there: &str, dials: Sender) -> Result<Self, Trouble> {
        let (listener, address) = Listener::bind(here).await?;
        let (wires, there) = (Wires::default(), there.to_owned());
        let kept = wires.clone();
        let task = tokio::spawn(async move {
            while let Ok(dialled) = listener.accept().await {
                let (kept, there) = (kept.clone(), there.clone());
                tokio::spawn(async move {
                    if let Ok(other) = connect(&there).await {
                        match dials {
                            Sender::Caller => relay(dialled, other, kept).await,
                            Sender::Answerer => relay(other, dialled, kept).await,
                        }
                    }
                });
            }
        });
        Ok(Self {
            wires,
            task,
            address,
        })
    }

    /// What is dialled: `ADDRESS:PORT` or `unix:PATH`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The path of its unix socket.
    ///
    /// # Panics
    /// When it has none.
    pub fn socket(&self) -> &Path {
        let path = self.address.strip_prefix("unix:");
        Path::new(path.expect("a relay on a unix socket"))
    }

    /// Every message so far, in the order of each side.
    pub fn messages(&self) -> Vec<Message> {
        let wires = self.wires.lock().unwrap_or_else(PoisonError::into_inner);
        let wires = wires.iter().enumerate();
        wires
            .flat_map(|(number, wire)| read(number, wire))
            .collect()
    }
}

async fn relay(caller: AnyStream, answerer: AnyStream, wires: Wires) {
    let number = {
        let mut wires = wires.lock().unwrap_or_else(PoisonError::into_inner);
        wires.push(Wire::default());
        wires.len() - 1
    };
    let (from_caller, to_caller) = tokio::io::split(caller);
    let (from_answerer, to_answerer) = tokio::io::split(answerer);
    let there = copy(from_caller, to_answerer, |bytes| {
        let mut wires = wires.lock().unwrap_or_else(PoisonError::into_inner);
        wires[number].caller.extend_from_slice(bytes);
    });
    let back = copy(from_answerer, to_caller, |bytes| {
        let mut wires = wires.lock().unwrap_or_else(PoisonError::into_inner);
        wires[number].answerer.extend_from_slice(bytes);
    });
    tokio::select! {
        () = there => {}
        () = back => {}
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    keep: impl Fn(&[u8]),
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        // Kept before it is passed on: what an end has answered to is there.
        keep(&buffer[..read]);
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

fn read(number: usize, wire: &Wire) -> Vec<Message> {
    let mut methods = BTreeMap::new();
    let mut decoder = Decoder::new();
    let mut messages = Vec::new();
    let sides = [
        (Sender::Caller, wire.caller.get(PREFACE..)),
        (Sender::Answerer, Some(wire.answerer.as_slice())),
    ];
    for (sender, bytes) in sides {
        let mut streams: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        for (kind, stream, payload) in frames(bytes.unwrap_or_default()) {
            match kind {
                DATA => streams.entry(stream).or_default().extend(payload),
                // The caller's side comes first, and its headers fit one frame.
                HEADERS if sender == Sender::Caller => {
                    let fields = decoder.decode(payload).unwrap_or_default();
                    let path = fields.into_iter().find(|(name, _)| name == b":path");
                    let path = path.map(|(_, path)| String::from_utf8_lossy(&path).into_owned());
                    let method = path.unwrap_or_default();
                    let method = method.rsplit('/').next().unwrap_or_default().to_owned();
                    methods.insert(stream, method);
                }
                CONTINUATION => panic!("a header block of several frames is not read here"),
                _ => {}
            }
        }
        for (stream, bytes) in streams {
            let method = methods.get(&stream).cloned().unwrap_or_default();
            for bytes in split(&bytes) {
                messages.push(Message {
                    method: method.clone(),
                    sender,
                    bytes,
                    call: (number, stream),
                });
            }
        }
    }
    messages
}

/// Kind, stream and payload (without padding and priority) of every whole frame.
fn frames(mut bytes: &[u8]) -> Vec<(u8, u32, &[u8])> {
    let mut frames = Vec::new();
    while let Some((header, rest)) = bytes.split_at_checked(FRAME_HEADER) {
        let len = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        let (kind, flags) = (header[3], header[4]);
        let stream = u32::from_be_bytes([header[5], header[6], header[7], header[8]]) & 0x7fff_ffff;
        let Some((mut payload, rest)) = rest.split_at_checked(len) else {
            break;
        };
        bytes = rest;
        if matches!(kind, DATA | HEADERS) && flags & PADDED != 0 {
            let padding = usize::from(payload[0]);
            payload = &payload[1..payload.len() - padding];
        }
        if kind == HEADERS && flags & PRIORITY != 0 {
            payload = &payload[5..];
        }
        frames.push((kind, stream, payload));
    }
    frames
}

/// The messages of one side of a call.
fn split(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    while let Some((header, rest)) = bytes.split_at_checked(MESSAGE_HEADER) {
        let len = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
        let Some((message, rest)) = rest.split_at_checked(len) else {
            break;
        };
        assert_eq!(header[0], 0, "nobody compresses here");
        messages.push(message.to_vec());
        bytes = rest;
    }
    messages
}
