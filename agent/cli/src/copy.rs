//! `drivebay-agent snapshot restore` and `volume clone`: creates a volume with the contents of a snapshot or of another volume.
//!
//! The request is the same as that of `volume create`. The agent returns ABORTED until everything is copied; copying continues without this
//! command.

use std::{future::Future, pin::pin, time::Duration};

use drivebay_common::{
    cli::{INTERRUPTED, WRONG},
    pick::{Part, PickError},
    progress::waiting,
    query::QueryError,
};
use drivebay_proto::{
    agent::{CreateVolumeRequest, InventoryUpdate, Volume},
    condition::NormalReason,
    names,
    words::Mode,
};
use drivebay_view::{
    moves::{Answer, Shown, interrupted},
    snapshots::SnapshotEntry,
};
use tokio::time::{MissedTickBehavior, interval};
use tonic::Code;

use super::{
    args::{CopyArgs, CreateArgs, Format, Show, SocketArg, Unreadable},
    client::Client,
    manual::{self, CREATE_DEADLINE, ManualError, usable},
    name,
    table::printable,
};

/// Interval of progress queries.
const TICK: Duration = Duration::from_secs(1);
/// Consecutive queries that may return neither the copy nor the volume: before copying begins, and between its end and the inventory with
/// the volume.
const UNSEEN: u32 = 5;

/// The copy was not created, or the result of copying is unknown.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error(transparent)]
    Client(#[from] QueryError),
    #[error(transparent)]
    Pick(#[from] PickError),
    #[error(transparent)]
    Request(#[from] ManualError),
    #[error(
        "the running agent is of an earlier version, which cannot copy volumes; restart it, so that it is of the version of this command"
    )]
    OldAgent,
    /// The agent returns the reason of a failure to a repeated request. Not repeated here: after a deletion that would undo it.
    #[error(
        "volume {name} was not made: copying failed, or the volume was deleted meanwhile{why}. What was copied is being erased. Repeat the command: it says why copying failed; after a deletion it begins again"
    )]
    Ended {
        name: String,
        /// The last reason for which copying waited or an attempt failed, in brackets; empty if none was reported.
        why: String,
    },
    #[error("volume {name} was not made: {why}. What was copied is being erased")]
    Failed { name: String, why: String },
    #[error("{lost}\n{goes_on}")]
    Lost {
        // No source, since it is part of the message.
        lost: QueryError,
        goes_on: String,
    },
}

impl CopyError {
    /// Returns the exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Client(error) | Self::Lost { lost: error, .. } => error.code(),
            Self::Pick(error) => error.code(),
            Self::Request(error) => error.code(),
            Self::OldAgent | Self::Ended { .. } | Self::Failed { .. } => WRONG,
        }
    }
}

/// The snapshot or volume that is copied.
#[derive(Debug, Clone, Copy)]
enum Source<'a> {
    Snapshot(SnapshotEntry<'a>),
    Volume(&'a Volume),
}

impl Source<'_> {
    fn describe(self) -> String {
        match self {
            Self::Snapshot(entry) => format!("snapshot {}", printable(&entry.snapshot.name)),
            Self::Volume(volume) => format!("volume {}", printable(&volume.name)),
        }
    }

    /// Returns the volume that the contents are or were of, and its size then, in bytes.
    fn volume(&self) -> (&Volume, u64) {
        match self {
            Self::Snapshot(entry) => (entry.volume, entry.snapshot.size_bytes),
            Self::Volume(volume) => (volume, volume.size_bytes),
        }
    }
}

pub(super) async fn restore(snapshot: &str, args: &CopyArgs) -> Result<Answer, CopyError> {
    let mut client = Client::connect(&args.socket.socket).await?;
    let inventory = client.inventory().await?;
    let source = Source::Snapshot(name::snapshot(&inventory, snapshot)?);
    copy(&mut client, &inventory, source, args).await
}

pub(super) async fn clone(volume: &str, args: &CopyArgs) -> Result<Answer, CopyError> {
    let mut client = Client::connect(&args.socket.socket).await?;
    let inventory = client.inventory().await?;
    let source = Source::Volume(name::volume(&inventory, volume, Part::Whole)?);
    copy(&mut client, &inventory, source, args).await
}

async fn copy(
    client: &mut Client,
    inventory: &InventoryUpdate,
    source: Source<'_>,
    args: &CopyArgs,
) -> Result<Answer, CopyError> {
    // An agent that does not support copies would create an empty volume.
    match client.list_copies().await {
        Err(QueryError::Refused { status, .. }) if status.code() == Code::Unimplemented => {
            return Err(CopyError::OldAgent);
        }
        listed => listed?,
    };
    let request = request(source, args, inventory)?;
    let of = source.describe();
    let what = format!("creating volume {} from {of}", printable(&args.name));
    let goes_on = goes_on(&args.name, &of);
    let made = waiting(&what, create(client, &request)).await?;
    let followed = match made {
        Some(volume) => Some(volume),
        None if args.no_wait => {
            return Ok(Answer {
                text: goes_on + "\n",
                code: 0,
            });
        }
        None => match follow(client, &request, interrupted()).await {
            Err(CopyError::Client(lost)) if lost.is_absence() => {
                return Err(CopyError::Lost { lost, goes_on });
            }
            followed => followed?,
        },
    };
    Ok(match followed {
        Some(volume) => Answer {
            text: copied(&volume, &of),
            code: 0,
        },
        None => Answer {
            text: goes_on + "\n",
            code: INTERRUPTED,
        },
    })
}

/// Returns the message about the created volume: how to use it, and data that is missing from it.
fn copied(volume: &Volume, of: &str) -> String {
    let mut text = usable(volume, &format!("is a copy of {of}"));
    let loss = NormalReason::CopiedWithLoss.as_str();
    for lacks in volume.conditions.iter().filter(|one| one.reason == loss) {
        text.push_str(&printable(&lacks.message));
        text.push('\n');
    }
    text
}

/// Returns the message that copying continues without the command, with the commands that show and cancel it.
fn goes_on(name: &str, of: &str) -> String {
    let name = printable(name);
    format!(
        "{of} is being copied to volume {name}, which goes on without this command: `drivebay-agent volumes {name}` shows it, `drivebay-agent volume delete {name}` cancels it"
    )
}

/// Returns the request of `volume create` for a volume like the copied one, with the source added. Pure.
fn request(
    source: Source<'_>,
    args: &CopyArgs,
    inventory: &InventoryUpdate,
) -> Result<CreateVolumeRequest, ManualError> {
    let (volume, bytes) = source.volume();
    let block = volume.known_mode() == Some(Mode::Block);
    let like_it = CreateArgs {
        name: args.name.clone(),
        size: args.size.unwrap_or(bytes),
        class: Some(volume.class.clone()),
        fs: (!block).then(|| volume.fs_type.clone()),
        block,
        // Nothing is formatted.
        mkfs_options: None,
        mount_options: volume.parameters.get(names::PARAM_MOUNT_OPTIONS).cloned(),
        // The copy has the header of its source.
        encrypt: volume.parameters.contains_key(names::PARAM_ENCRYPTION),
        show: Show {
            output: Format::Table,
            socket: SocketArg {
                socket: args.socket.socket.clone(),
            },
        },
    };
    let mut request = manual::request(&like_it, inventory)?;
    if args.unreadable == Unreadable::Zeros {
        let (key, zeros) = (names::PARAM_COPY_UNREADABLE, names::COPY_UNREADABLE_ZEROS);
        request.parameters.insert(key.to_owned(), zeros.to_owned());
    }
    match source {
        Source::Snapshot(entry) => request.source_snapshot.clone_from(&entry.snapshot.id),
        Source::Volume(volume) => request.source_volume.clone_from(&volume.id),
    }
    Ok(request)
}

/// Requests the volume; None while it is being copied.
async fn create(
    client: &mut Client,
    request: &CreateVolumeRequest,
) -> Result<Option<Volume>, QueryError> {
    let call = client.manual_volumes.create_volume(request.clone());
    match client.agent.answered_within(CREATE_DEADLINE, call).await {
        Ok(answer) => {
            let volume = answer.into_inner().volume;
            let volume = volume.ok_or_else(|| client.agent.senseless("no volume"))?;
            Ok(Some(volume))
        }
        Err(QueryError::Refused { status, .. }) if status.code() == Code::Aborted => Ok(None),
        Err(error) => Err(error),
    }
}

/// Waits until the volume is complete, and shows progress; None if interrupted.
async fn follow(
    client: &mut Client,
    request: &CreateVolumeRequest,
    interrupt: impl Future<Output = ()>,
) -> Result<Option<Volume>, CopyError> {
    let mut interrupt = pin!(interrupt);
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut shown = Shown::begin();
    let mut before = Before::default();
    loop {
        let answer = async {
            ticks.tick().await;
            query(client, request, &mut before, &mut shown).await
        };
        let volume = tokio::select! {
            biased;
            () = &mut interrupt => return Ok(None),
            answer = answer => answer?,
        };
        if volume.is_some() {
            return Ok(volume);
        }
    }
}

/// Queries the progress once; returns the volume if it is complete.
async fn query(
    client: &mut Client,
    request: &CreateVolumeRequest,
    before: &mut Before,
    shown: &mut Shown,
) -> Result<Option<Volume>, CopyError> {
    let mut copies = client.list_copies().await?.into_iter();
    if let Some(copy) = copies.find(|copy| copy.name == request.name) {
        shown.show_copy(&copy);
        *before = Before {
            was_listed: true,
            unseen: 0,
            waited_for: copy.waits_for,
        };
        return Ok(None);
    }
    let mut volumes = client.inventory().await?.volumes.into_iter();
    let volume = volumes.find(|one| one.name == request.name && !one.is_deleted());
    match before.next(volume.as_ref()) {
        Next::Wait => Ok(None),
        Next::Done => Ok(volume),
        Next::Repeat => Ok(create(client, request).await?),
        Next::Ended => {
            let name = printable(&request.name);
            if let Some(why) = client.copy_failure(&request.name).await? {
                let why = printable(&why);
                return Err(CopyError::Failed { name, why });
            }
            let why = match before.waited_for.as_str() {
                "" => String::new(),
                why => format!(" (last reported: {})", printable(why)),
            };
            Err(CopyError::Ended { name, why })
        }
    }
}

/// Results of earlier queries.
#[derive(Debug, Default)]
struct Before {
    was_listed: bool,
    /// Consecutive queries with neither the copy nor the volume.
    unseen: u32,
    /// Reason for which the copy waited, or an attempt failed.
    waited_for: String,
}

/// Next step if the copy is not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Wait,
    Done,
    /// Repeat the request: copying never began.
    Repeat,
    /// The copy no longer exists. Not requested again: an operator may have deleted it.
    Ended,
}

impl Before {
    fn next(&mut self, volume: Option<&Volume>) -> Next {
        match volume {
            Some(volume) if volume.is_usable() => return Next::Done,
            // Copying is about to begin or to end, or the drive is missing.
            Some(_) => self.unseen = 0,
            None => self.unseen += 1,
        }
        match (self.unseen < UNSEEN, self.was_listed) {
            (true, _) => Next::Wait,
            (false, true) => Next::Ended,
            (false, false) => {
                self.unseen = 0;
                Next::Repeat
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use drivebay_csi::new_volume::CopyUnreadable;
    use drivebay_proto::agent::{Class, Condition, VolumeSnapshot};

    use super::*;

    fn db() -> Volume {
        Volume {
            id: "uuid-db@n".into(),
            name: "db".into(),
            class: "fast".into(),
            size_bytes: 4 << 30,
            mode: "mount".into(),
            fs_type: "xfs".into(),
            parameters: [("mountOptions", "noatime"), ("mkfsOptions", "-m reflink=0")]
                .map(|(key, value)| (key.into(), value.into()))
                .into(),
            ..Volume::default()
        }
    }

    fn inventory() -> InventoryUpdate {
        let class = |name: &str| Class {
            name: name.into(),
            fs_type: "ext4".into(),
            extent_bytes: 4 << 20,
            ..Class::default()
        };
        InventoryUpdate {
            classes: vec![class("bulk"), class("fast")],
            ..InventoryUpdate::default()
        }
    }

    fn args(size: Option<u64>) -> CopyArgs {
        CopyArgs {
            name: "new".into(),
            size,
            unreadable: Unreadable::Fail,
            no_wait: false,
            socket: SocketArg {
                socket: "/s".into(),
            },
        }
    }

    #[test]
    fn a_clone_is_requested_like_its_volume_with_the_volume_as_its_source() {
        let (db, inventory) = (db(), inventory());
        let made = request(Source::Volume(&db), &args(None), &inventory).unwrap();
        assert_eq!((made.name.as_str(), made.class.as_str()), ("new", "fast"));
        assert_eq!(
            (
                made.mode.as_str(),
                made.fs_type.as_str(),
                made.required_bytes
            ),
            ("mount", "xfs", 4 << 30)
        );
        assert_eq!(
            (made.mount_options.as_str(), made.mkfs_options.as_str()),
            ("noatime", "")
        );
        assert_eq!(
            (made.source_volume.as_str(), made.source_snapshot.as_str()),
            ("uuid-db@n", "")
        );
        let raw = Volume {
            mode: "block".into(),
            fs_type: String::new(),
            parameters: Default::default(),
            ..db.clone()
        };
        let made = request(Source::Volume(&raw), &args(Some(8 << 30)), &inventory).unwrap();
        assert_eq!(
            (
                made.mode.as_str(),
                made.fs_type.as_str(),
                made.required_bytes
            ),
            ("block", "", 8 << 30)
        );
        let lost = Volume {
            class: "gone".into(),
            ..db
        };
        let error = request(Source::Volume(&lost), &args(None), &inventory).unwrap_err();
        assert!(error.to_string().contains("no class \"gone\""), "{error}");
    }

    #[test]
    fn zeros_for_unreadable_blocks_are_requested_when_typed_and_what_a_copy_lacks_is_printed() {
        let (db, inventory) = (db(), inventory());
        for (unreadable, expected) in [
            (Unreadable::Fail, CopyUnreadable::Fail),
            (Unreadable::Zeros, CopyUnreadable::Zeros),
        ] {
            let args = CopyArgs {
                unreadable,
                ..args(None)
            };
            let made = request(Source::Volume(&db), &args, &inventory).unwrap();
            let parameters = made.parameters.into_iter().collect();
            assert_eq!(CopyUnreadable::of(&parameters), expected);
        }
        let whole = copied(&db, "volume db");
        let lossy = Volume {
            conditions: vec![Condition {
                reason: "CopiedWithLoss".into(),
                message: "it is not whole: 8 KiB".into(),
                ..Condition::default()
            }],
            ..db
        };
        let lacks = "it is not whole: 8 KiB\n";
        assert_eq!(copied(&lossy, "volume db"), whole + lacks);
    }

    #[test]
    fn a_restored_volume_has_the_size_that_its_volume_had_at_the_snapshot() {
        let (mut db, inventory) = (db(), inventory());
        let snapshot = VolumeSnapshot {
            id: "uuid-s@n".into(),
            name: "s".into(),
            size_bytes: 4 << 30,
            ..VolumeSnapshot::default()
        };
        db.size_bytes = 8 << 30;
        let source = Source::Snapshot(SnapshotEntry {
            volume: &db,
            snapshot: &snapshot,
        });
        let made = request(source, &args(None), &inventory).unwrap();
        assert_eq!(made.required_bytes, 4 << 30);
        assert_eq!(
            (made.source_volume.as_str(), made.source_snapshot.as_str()),
            ("", "uuid-s@n")
        );
        assert_eq!(
            goes_on("new", &source.describe()),
            "snapshot s is being copied to volume new, which goes on without this command: `drivebay-agent volumes new` shows it, `drivebay-agent volume delete new` cancels it"
        );
    }

    #[test]
    fn a_copy_is_done_when_its_volume_is_usable_and_one_that_vanishes_is_not_begun_again() {
        let of = |state: &str| Volume {
            state: state.into(),
            ..Volume::default()
        };
        let mut before = Before {
            was_listed: true,
            ..Before::default()
        };
        for state in ["copying", "missing", "of-a-newer-agent"] {
            assert_eq!(before.next(Some(&of(state))), Next::Wait, "{state}");
        }
        for state in ["new", "ready"] {
            assert_eq!(before.next(Some(&of(state))), Next::Done, "{state}");
        }
        let vanished: Vec<Next> = (0..UNSEEN).map(|_| before.next(None)).collect();
        let (last, first) = vanished.split_last().unwrap();
        assert!(first.iter().all(|next| *next == Next::Wait), "{vanished:?}");
        assert_eq!(*last, Next::Ended);
    }

    #[test]
    fn a_request_whose_copying_never_began_is_repeated_after_a_while() {
        let mut before = Before::default();
        let mut requested = 0;
        for _ in 0..3 * UNSEEN {
            match before.next(None) {
                Next::Repeat => requested += 1,
                next => assert_eq!(next, Next::Wait),
            }
        }
        assert_eq!(requested, 3);
    }
}
