//! A stream of changes to one client.

use std::{convert::Infallible, sync::Arc, time::Duration};

use http_body_util::{BodyExt, StreamBody};
use hyper::{
    Response,
    body::{Bytes, Frame},
    header::{self, HeaderValue},
};
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc},
    time::{Instant, interval_at, timeout},
};
use tokio_stream::wrappers::ReceiverStream;

use super::{Page, route::Body};
use crate::{
    access::Visibility,
    live::{Event, Subscription},
    render,
};

pub(super) const CONTENT_TYPE: &str = "text/event-stream";
/// Interval of comments, so that both ends notice a dead connection.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Interval of asking whether the reader may still read; the answer is cached like that of any request.
const ADMISSION: Duration = Duration::from_secs(5);
/// Time in which a client must read an event; afterwards the stream ends.
const SLOW: Duration = Duration::from_secs(30);
/// Events that are written ahead of a client.
const AHEAD: usize = 2;
/// Longest stream; the client begins another.
const LONGEST: Duration = Duration::from_secs(3600);

type Frames = mpsc::Sender<Result<Frame<Bytes>, Infallible>>;

/// Returns the response, and starts the task that writes it. The reader was admitted with `token`; the stream ends when it is not
/// admitted any more, or when the fleet is not read any more.
pub(super) fn begin(
    page: Page,
    token: Option<Arc<str>>,
    visibility: Visibility,
    since: Option<u64>,
    permit: OwnedSemaphorePermit,
) -> Response<Body> {
    let (frames, received) = mpsc::channel(AHEAD);
    let subscription = page.live.subscribe(since);
    tokio::spawn(async move {
        let stop = page.stop.clone();
        let written = write(page, token, visibility, subscription, &frames);
        tokio::select! {
            () = stop.cancelled() => {}
            _ = timeout(LONGEST, written) => {}
            // The client has closed the connection.
            () = frames.closed() => {}
        }
        drop(permit);
    });
    let mut response = Response::new(StreamBody::new(ReceiverStream::new(received)).boxed());
    let content_type = HeaderValue::from_static(CONTENT_TYPE);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    response
}

/// Writes until the client is too slow or may not read any more, or until there are no further events.
async fn write(
    page: Page,
    token: Option<Arc<str>>,
    mut visibility: Visibility,
    mut subscription: Subscription,
    frames: &Frames,
) -> Option<()> {
    let start = Instant::now();
    let mut heartbeats = interval_at(start + HEARTBEAT, HEARTBEAT);
    let mut admissions = interval_at(start + ADMISSION, ADMISSION);
    // Sends the response's header.
    send(frames, Bytes::from_static(b": changes\n\n")).await?;
    loop {
        let bytes = tokio::select! {
            event = subscription.next() => match event? {
                Event::Change(change) => change.event(&visibility),
                Event::Reset => reset(&page),
            },
            _ = heartbeats.tick() => Bytes::from_static(b": still here\n\n"),
            _ = admissions.tick() => {
                let reader = page.access.admit(token.as_deref()).await.ok()?;
                let namespaces = page.live.last().namespaces.clone();
                let now = page.access.visibility(&reader, &namespaces).await;
                if now == visibility {
                    continue;
                }
                visibility = now;
                reset(&page)
            }
        };
        send(frames, bytes).await?;
    }
}

fn reset(page: &Page) -> Bytes {
    let revision = page.live.last().revision;
    render::event("reset", format!("{{\"revision\":{revision}}}").as_bytes())
}

async fn send(frames: &Frames, bytes: Bytes) -> Option<()> {
    let sent = timeout(SLOW, frames.send(Ok(Frame::data(bytes)))).await;
    sent.ok()?.ok()
}
