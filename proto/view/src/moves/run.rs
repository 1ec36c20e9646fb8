//! Execution of a command that moves volumes, from the request to the end of the wait.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::{Future, pending},
    io::{Write as _, stderr},
    pin::pin,
    time::Duration,
};

use drivebay_common::{
    cli::{INTERRUPTED, LEFT_WAITING, NOBODY, USAGE, WRONG, operator},
    progress::Progress,
    query::QueryError,
    terminal::Terminal,
};
use drivebay_proto::{
    agent::{
        CancelMovesRequest, CancelMovesResponse, ListMovesResponse, Move, MoveVolumesRequest,
        MoveVolumesResponse, VolumeCopy,
    },
    words::MovePhase,
};
use tokio::{
    signal::ctrl_c,
    time::{Instant, MissedTickBehavior, interval},
};

use super::{
    Devices,
    plan::{self, refused},
    progress::{Awaited, Log, line, screen},
    reason, unfenced,
};
use crate::{args::moves::MoveOptions, table::printable, volumes::count};

/// Interval of polling the moves.
const TICK: Duration = Duration::from_secs(1);
/// Longest pause without any copying that is waited for: there is a short one before the first volume and between two.
const SETTLE: Duration = Duration::from_secs(15);

/// Client of an agent's moves: over its own socket, or through a controller.
pub trait MovesClient {
    fn move_volumes(
        &mut self,
        request: MoveVolumesRequest,
    ) -> impl Future<Output = Result<MoveVolumesResponse, QueryError>>;

    fn cancel_moves(
        &mut self,
        request: CancelMovesRequest,
    ) -> impl Future<Output = Result<CancelMovesResponse, QueryError>>;

    fn list_moves(&mut self) -> impl Future<Output = Result<ListMovesResponse, QueryError>>;
}

/// Command that moves volumes; determines the wording of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb<'a> {
    Evacuate,
    Replace {
        /// Identity of the drive that receives the volumes.
        new: &'a str,
    },
    MoveVolume,
}

/// A request of the user, with drives and volumes by their identities.
#[derive(Debug)]
pub struct Order<'a> {
    pub verb: Verb<'a>,
    /// Volume of `volume move`; else empty.
    pub volume: String,
    /// Drive of the other commands; else empty.
    pub drive: String,
    pub only: Vec<String>,
    pub to: Vec<String>,
    pub hold: bool,
    pub abort_on_error: bool,
    pub plan: bool,
    pub cancel: bool,
    pub wait: bool,
    /// Operator as typed; None: from the environment.
    pub by: Option<&'a str>,
    pub devices: Devices,
    /// Name of this program: drivebay-agent or drivebay-controller.
    pub program: &'static str,
    /// Node, if the program serves several.
    pub node: Option<&'a str>,
    pub terminal: Terminal,
}

/// Output of a command that did not fail.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub text: String,
    pub code: u8,
}

/// The request failed, or its outcome is not known.
#[derive(Debug, thiserror::Error)]
pub enum MovesError {
    #[error(transparent)]
    Client(#[from] QueryError),
    #[error("{NOBODY}")]
    Nobody,
    /// All reasons, one per line.
    #[error("{0}")]
    Refused(String),
    #[error("{source}\nThe moves are recorded and go on without this command: {commands}")]
    Lost {
        #[source]
        source: QueryError,
        commands: String,
    },
}

impl MovesError {
    /// Returns the exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Client(error) | Self::Lost { source: error, .. } => error.code(),
            Self::Nobody => USAGE,
            Self::Refused(_) => WRONG,
        }
    }
}

/// Shows the plan, cancels moves, or requests moves and waits for them. Progress goes to standard error.
///
/// # Errors
/// Nothing was done, or the connection to the program was lost during the wait.
pub async fn run(client: &mut impl MovesClient, order: &Order<'_>) -> Result<Answer, MovesError> {
    if order.cancel {
        return cancel(client, order).await;
    }
    if order.plan {
        let planned = client.move_volumes(order.request(true, "")).await?;
        let text = plan::plan(&planned, order.verb, &order.devices, order.terminal);
        let code = if planned.refusals.is_empty() {
            0
        } else {
            WRONG
        };
        return Ok(Answer { text, code });
    }
    let by = operator(order.by).ok_or(MovesError::Nobody)?;
    let done = match client.move_volumes(order.request(false, &by)).await {
        Ok(done) => done,
        Err(error) => return Err(reasons(client, order, error).await),
    };
    let in_use = done.moves.iter();
    let in_use: BTreeMap<String, bool> = in_use
        .map(|one| (one.volume_id.clone(), one.in_use))
        .collect();
    if !order.wait {
        let text = format!(
            "{}; {}\n",
            order.requested(&done, in_use.len()),
            order.commands()
        );
        let text = if in_use.is_empty() {
            order.nothing()
        } else {
            text
        };
        return Ok(Answer { text, code: 0 });
    }
    let end = follow(client, order, in_use, Shown::begin(), interrupted()).await;
    let (how, moves) = end.map_err(|source| MovesError::Lost {
        source,
        commands: order.commands(),
    })?;
    Ok(order.ended(how, &moves))
}

/// Returns a refusal with all reasons, as the plan has them; any other error unchanged.
async fn reasons(
    client: &mut impl MovesClient,
    order: &Order<'_>,
    error: QueryError,
) -> MovesError {
    if !error.is_refusal() {
        return error.into();
    }
    match client.move_volumes(order.request(true, "")).await {
        Ok(planned) if !planned.refusals.is_empty() => {
            let text = refused("nothing is moved", &planned.refusals, Terminal::NONE);
            MovesError::Refused(text.trim_end().to_owned())
        }
        _ => error.into(),
    }
}

async fn cancel(client: &mut impl MovesClient, order: &Order<'_>) -> Result<Answer, MovesError> {
    let by = operator(order.by).ok_or(MovesError::Nobody)?;
    // Read before: moves that were cancelled are no longer listed, and their names are needed.
    let moves = client.list_moves().await?.moves;
    let request = CancelMovesRequest {
        volume_id: order.volume.clone(),
        drive: order.drive.clone(),
        by,
    };
    let done = client.cancel_moves(request).await?;
    let of = |id: &String| moves.iter().find(|one| one.volume_id == *id);
    let name = |id: &String| printable(of(id).map_or(id, |one| &one.name));
    let mut text = String::new();
    for id in &done.cancelled {
        let stays = of(id).map(|one| format!("; it stays on drive {}", printable(&one.from)));
        let stays = stays.unwrap_or_default();
        text.push_str(&format!("the move of {} is ended{stays}\n", name(id)));
    }
    for id in &done.too_late {
        text.push_str(&format!(
            "{} has moved already, or is just completing it; nothing was changed\n",
            name(id)
        ));
    }
    if text.is_empty() {
        text.push_str("there is no move to end; nothing was changed\n");
    }
    Ok(Answer { text, code: 0 })
}

impl<'a> Order<'a> {
    /// Creates an order with these options, for no volume or drive yet.
    pub fn new(
        verb: Verb<'a>,
        options: &'a MoveOptions,
        devices: Devices,
        program: &'static str,
        node: Option<&'a str>,
        terminal: Terminal,
    ) -> Self {
        Self {
            verb,
            volume: String::new(),
            drive: String::new(),
            only: Vec::new(),
            to: Vec::new(),
            hold: false,
            abort_on_error: options.abort_on_error,
            plan: options.plan,
            cancel: false,
            wait: !options.no_wait,
            by: options.by.as_deref(),
            devices,
            program,
            node,
            terminal,
        }
    }
}

impl Order<'_> {
    fn request(&self, plan: bool, by: &str) -> MoveVolumesRequest {
        MoveVolumesRequest {
            volume_id: self.volume.clone(),
            drive: self.drive.clone(),
            only: self.only.clone(),
            to: self.to.clone(),
            hold: self.hold,
            abort_on_error: self.abort_on_error,
            plan,
            by: by.to_owned(),
        }
    }

    /// True if a move of the list of all moves belongs to this order.
    fn is_about(&self, one: &Move) -> bool {
        match self.verb {
            Verb::MoveVolume => one.volume_id == self.volume,
            Verb::Evacuate | Verb::Replace { .. } => {
                one.from == self.drive
                    && (self.only.is_empty() || self.only.contains(&one.volume_id))
            }
        }
    }

    /// Returns the commands that show and cancel the moves.
    fn commands(&self) -> String {
        let program = self.program;
        let node = self.node.map(|node| format!(" --node {node}"));
        let node = node.unwrap_or_default();
        let (noun, id) = match self.verb {
            Verb::MoveVolume => ("volume move", &self.volume),
            Verb::Evacuate | Verb::Replace { .. } => ("drive evacuate", &self.drive),
        };
        format!(
            "`{program} moves{node}` shows them, `{program} {noun} {id}{node} --cancel` ends those that are not completed"
        )
    }

    fn requested(&self, done: &MoveVolumesResponse, moves: usize) -> String {
        let (volumes, drive) = (count(moves as u64), printable(&done.drive));
        match self.verb {
            Verb::Evacuate => {
                format!("drive {drive} is cordoned, and {volumes} will be moved off it")
            }
            Verb::Replace { new } => format!(
                "drive {drive} is cordoned, and {volumes} will be moved from it to drive {}",
                printable(new)
            ),
            Verb::MoveVolume => format!("{volumes} will be moved"),
        }
    }

    /// Returns the message for an order that results in no move.
    fn nothing(&self) -> String {
        match self.verb {
            Verb::MoveVolume => "the volume is there already; nothing is moved\n".to_owned(),
            Verb::Evacuate | Verb::Replace { .. } => format!(
                "drive {} is cordoned; no volume is left to be moved off it\n{}",
                printable(&self.drive),
                self.retire()
            ),
        }
    }

    /// Returns the next step for a drive that was evacuated.
    fn retire(&self) -> String {
        let on = self.node.map(|node| format!(" on node {node}"));
        format!(
            "`drivebay-agent drive retire {}`{} says whether it may be taken out\n",
            printable(&self.drive),
            on.unwrap_or_default()
        )
    }

    /// Returns the final message and the exit code.
    fn ended(&self, how: End, moves: &[Awaited]) -> Answer {
        if moves.is_empty() && how == End::Over {
            return Answer {
                text: self.nothing(),
                code: 0,
            };
        }
        let are = |phase| moves.iter().filter(move |one| one.is(phase));
        let all = count(moves.len() as u64);
        let drive = printable(&self.drive);
        let mut text = match (are(MovePhase::Moved).count(), self.verb) {
            _ if moves.is_empty() => String::new(),
            (moved, Verb::MoveVolume) if moved == moves.len() => match moves {
                [one] => line(one) + "\n",
                _ => format!("{all} moved\n"),
            },
            (moved, Verb::Evacuate) if moved == moves.len() => {
                format!("{all} moved off drive {drive}\n")
            }
            (moved, Verb::Replace { new }) if moved == moves.len() => {
                format!(
                    "{all} moved from drive {drive} to drive {}\n",
                    printable(new)
                )
            }
            (moved, _) => format!("{moved} of {all} moved\n"),
        };
        let mut list = |title: &str, lines: Vec<String>| {
            if !lines.is_empty() {
                text.push_str(&format!("{title}:\n"));
                for line in lines {
                    text.push_str(&self.terminal.hanging("  ", "    ", &line));
                }
            }
        };
        let named = |one: &Awaited| {
            let why = reason(&one.it, one.in_use);
            let why = if why.is_empty() {
                why
            } else {
                format!(": {why}")
            };
            printable(&one.it.name) + &why
        };
        let (held, waiting): (Vec<_>, Vec<_>) =
            are(MovePhase::Waiting).partition(|one| one.is_held());
        list(
            "moved by themselves once they are unstaged",
            held.iter().map(|one| named(one)).collect(),
        );
        list(
            "still waiting",
            waiting.iter().map(|one| named(one)).collect(),
        );
        list(
            "in doubt, and not served; `drivebay-agent volume prefer` decides",
            are(MovePhase::InDoubt).map(named).collect(),
        );
        let ended = moves.iter().filter(|one| one.it.phase == ENDED);
        list(
            "not moved: their moves were ended by another command",
            ended.map(|one| printable(&one.it.name)).collect(),
        );
        let unfenced: BTreeSet<String> = moves.iter().filter_map(|one| unfenced(&one.it)).collect();
        list("beware", unfenced.into_iter().collect());
        let left = moves.iter().any(|one| !one.is(MovePhase::Moved));
        if how == End::Interrupted {
            text.push_str(&format!(
                "the moves go on without this command: {}\n",
                self.commands()
            ));
        } else if left {
            text.push_str(&format!("{}\n", self.commands()));
        } else if self.verb != Verb::MoveVolume {
            text.push_str(&self.retire());
        }
        let failed = |one: &Awaited| one.is(MovePhase::InDoubt) || one.it.phase == ENDED;
        let code = match how {
            End::Interrupted => INTERRUPTED,
            End::Over if moves.iter().any(failed) => WRONG,
            End::Over if left => LEFT_WAITING,
            End::Over => 0,
        };
        Answer { text, code }
    }
}

/// Phase of a move that is no longer listed and was not completed.
const ENDED: &str = "ended";

/// Reason for the end of the wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Nothing that this command waits for is in progress.
    Over,
    Interrupted,
}

/// Waits for Ctrl-C; forever if signals cannot be handled.
pub async fn interrupted() {
    if ctrl_c().await.is_err() {
        pending::<()>().await;
    }
}

/// Progress of moves and copies on standard error.
#[derive(Debug)]
pub struct Shown {
    progress: Progress,
    log: Log,
}

impl Shown {
    /// Starts with nothing shown.
    pub fn begin() -> Self {
        Self {
            progress: Progress::begin(),
            log: Log::default(),
        }
    }

    /// Shows the progress of a copy to a new volume in place of the previous lines.
    pub fn show_copy(&mut self, copy: &VolumeCopy) {
        self.show(&[copy.into()]);
    }

    fn show(&mut self, moves: &[Awaited]) {
        if self.progress.is_on_terminal() {
            self.progress.show_lines(&screen(moves));
            return;
        }
        for line in self.log.news(moves) {
            // A write error must not end the wait.
            let _ = writeln!(stderr(), "{line}");
        }
    }
}

/// Waits until no volume is being copied or completed. `in_use`: volumes to be moved; true for those that were in use.
async fn follow(
    client: &mut impl MovesClient,
    order: &Order<'_>,
    in_use: BTreeMap<String, bool>,
    mut shown: Shown,
    interrupt: impl Future<Output = ()>,
) -> Result<(End, Vec<Awaited>), QueryError> {
    let mut interrupt = pin!(interrupt);
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut awaited: BTreeMap<String, Awaited> = BTreeMap::new();
    let mut quiet_since = Instant::now();
    loop {
        let list = async {
            ticks.tick().await;
            client.list_moves().await
        };
        let listed = tokio::select! {
            biased;
            () = &mut interrupt => return Ok((End::Interrupted, by_name(awaited))),
            listed = list => listed?.moves,
        };
        take_in(&mut awaited, listed, order, &in_use);
        let moves: Vec<Awaited> = awaited.values().cloned().collect();
        if !moves.is_empty() {
            shown.show(&moves);
        }
        let unseen = in_use.keys().any(|id| !awaited.contains_key(id));
        match state(&moves, unseen) {
            State::Over => return Ok((End::Over, by_name(awaited))),
            State::AtWork => quiet_since = Instant::now(),
            State::Quiet if quiet_since.elapsed() >= SETTLE => {
                return Ok((End::Over, by_name(awaited)));
            }
            State::Quiet => {}
        }
    }
}

fn by_name(awaited: BTreeMap<String, Awaited>) -> Vec<Awaited> {
    let mut moves: Vec<Awaited> = awaited.into_values().collect();
    moves.sort_by(|a, b| a.it.name.cmp(&b.it.name));
    moves
}

/// Updates the awaited moves from a list of all moves.
fn take_in(
    awaited: &mut BTreeMap<String, Awaited>,
    listed: Vec<Move>,
    order: &Order<'_>,
    in_use: &BTreeMap<String, bool>,
) {
    let mut gone: BTreeSet<String> = awaited.keys().cloned().collect();
    for it in listed {
        let planned_use = in_use.get(&it.volume_id).copied();
        gone.remove(&it.volume_id);
        // One that had moved already belongs to an earlier command.
        let is_new = order.is_about(&it) && it.known_phase() != Some(MovePhase::Moved);
        if planned_use.is_some() || awaited.contains_key(&it.volume_id) || is_new {
            let in_use = planned_use.unwrap_or(false);
            awaited.insert(it.volume_id.clone(), Awaited { it, in_use });
        }
    }
    for id in gone {
        let Some(one) = awaited.get_mut(&id) else {
            continue;
        };
        // A move is listed until its old place is erased; its last phase may have been shorter than a poll interval.
        let completed = one.is(MovePhase::Moved) || one.is(MovePhase::Completing);
        one.it.phase = match completed {
            true => MovePhase::Moved.to_string(),
            false => ENDED.to_owned(),
        };
        one.it.waits_for.clear();
    }
}

/// Overall state of the awaited moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A move is copying or completing, or in a phase that this program does not know.
    AtWork,
    /// A move waits, and may begin soon.
    Quiet,
    /// All remaining moves wait until their volumes are unstaged.
    Over,
}

/// Returns the overall state. `unseen`: true if requested moves are not listed yet.
fn state(moves: &[Awaited], unseen: bool) -> State {
    let at_work = |one: &Awaited| match one.it.known_phase() {
        Some(MovePhase::Copying | MovePhase::Completing) => true,
        Some(MovePhase::Waiting | MovePhase::Moved | MovePhase::InDoubt) => false,
        None => one.it.phase != ENDED,
    };
    let may_begin = |one: &Awaited| one.is(MovePhase::Waiting) && !one.is_held();
    match () {
        () if moves.iter().any(at_work) => State::AtWork,
        () if unseen || moves.iter().any(may_begin) => State::Quiet,
        () => State::Over,
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
