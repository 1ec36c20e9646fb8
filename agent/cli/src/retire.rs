//! `drivebay-agent drive retire`: determines whether a drive may be pulled, and whether it may leave the building.

use std::{
    io::{Write as _, stderr},
    time::Duration,
};

use drivebay_common::{cli::operator, progress::Progress, terminal::Terminal};
use drivebay_proto::agent::{RetireDriveRequest, RetireDriveResponse};
use drivebay_view::moves::Answer;

use super::{
    args::RetireArgs,
    one_drive::{self, OneDriveError},
    table::{human_size, printable},
};

/// Exit code: the drive may be pulled, and something on it is not erased.
pub const MAY_BE_PULLED: u8 = 11;
/// Exit code: the drive must stay where it is.
pub const MUST_STAY: u8 = 12;

/// Limit of a call, in which old places are marked on the drive.
const DEADLINE: Duration = Duration::from_secs(60);
/// Interval of progress queries.
const TICK: Duration = Duration::from_secs(2);

/// Result for a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    MayLeave,
    /// The drive may be unplugged, but must not leave the site yet, or at all.
    MayBePulled,
    MustStay,
}

impl Outcome {
    fn of(answer: &RetireDriveResponse) -> Self {
        let erased = answer.erasing_bytes == 0 && answer.not_erased.is_empty();
        match (answer.keeps.is_empty(), erased) {
            (false, _) => Self::MustStay,
            (true, false) => Self::MayBePulled,
            (true, true) => Self::MayLeave,
        }
    }

    fn code(self) -> u8 {
        match self {
            Self::MayLeave => 0,
            Self::MayBePulled => MAY_BE_PULLED,
            Self::MustStay => MUST_STAY,
        }
    }
}

/// Requests the result, and waits while erasing can still change it.
pub(super) async fn run(args: &RetireArgs) -> Result<Answer, OneDriveError> {
    let of = &args.of;
    let (mut client, _, drive) = one_drive::named(&of.at.socket, &of.drive).await?;
    let by = match args.plan {
        true => String::new(),
        false => operator(of.by.as_deref()).ok_or(OneDriveError::Nobody)?,
    };
    let request = RetireDriveRequest {
        drive: drive.id.clone(),
        plan: args.plan,
        by,
    };
    let mut meter = Meter::default();
    loop {
        let call = client.raw.retire_drive(request.clone());
        let answer = client.agent.answered_within(DEADLINE, call).await?;
        let answer = answer.into_inner();
        let waits = answer.erasing_bytes > 0 && answer.keeps.is_empty();
        if !waits || args.plan || args.no_wait {
            drop(meter);
            let terminal = Terminal::of_stdout();
            return Ok(Answer {
                text: text(&answer, &drive.bay(), args.plan, terminal),
                code: Outcome::of(&answer).code(),
            });
        }
        meter.show(&answer);
        tokio::time::sleep(TICK).await;
    }
}

/// Renders both results with the reasons against each. `bay`: as other commands show it.
fn text(answer: &RetireDriveResponse, bay: &str, only_plan: bool, terminal: Terminal) -> String {
    let outcome = Outcome::of(answer);
    let or_unknown = |text: &str| match text {
        "" => "not known".to_owned(),
        text => printable(text),
    };
    let mut text = format!(
        "drive {}\n  serial                  {}\n  bay                     {}\n",
        printable(&answer.drive),
        or_unknown(&answer.serial),
        or_unknown(bay)
    );
    let mut list = |title: &str, value: &str, reasons: &[String]| {
        text.push_str(&format!("  {title:<24}{value}\n"));
        for reason in reasons {
            text.push_str(&terminal.hanging("    - ", "      ", &printable(reason)));
        }
    };
    let yes_or_no = |yes| if yes { "yes" } else { "no" };
    list(
        "may be pulled",
        yes_or_no(outcome != Outcome::MustStay),
        &answer.keeps,
    );
    let erasing = human_size(answer.erasing_bytes);
    let erasing = match (answer.erasing_bytes, only_plan) {
        (0, _) => None,
        (_, true) => Some(format!("{erasing} on it would be erased first")),
        (_, false) => Some(format!("{erasing} on it are being erased")),
    };
    let not_erased: Vec<String> = erasing
        .into_iter()
        .chain(answer.not_erased.clone())
        .collect();
    list(
        "may leave the building",
        yes_or_no(outcome == Outcome::MayLeave),
        &not_erased,
    );
    text
}

/// Progress of erasing on stderr.
#[derive(Debug, Default)]
struct Meter {
    progress: Progress,
    /// Largest number of bytes to erase so far.
    total: u64,
    tenth: Option<u64>,
}

impl Meter {
    fn show(&mut self, answer: &RetireDriveResponse) {
        let left = answer.erasing_bytes;
        self.total = self.total.max(left);
        let line = progress_line(&answer.drive, left, self.total);
        if self.progress.is_on_terminal() {
            self.progress.show_lines(&[line]);
            return;
        }
        let done = self.total.saturating_sub(left);
        let tenth = done.saturating_mul(10).checked_div(self.total);
        if tenth != self.tenth {
            self.tenth = tenth;
            // A failed write to stderr does not end the command.
            let _ = writeln!(stderr(), "{line}");
        }
    }
}

fn progress_line(drive: &str, left: u64, total: u64) -> String {
    let done = total.saturating_sub(left);
    let percent = (u128::from(done) * 100)
        .checked_div(u128::from(total))
        .unwrap_or(0);
    format!(
        "erasing what is left on {}: {percent}% ({} of {})",
        printable(drive),
        human_size(done),
        human_size(total)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(keeps: &[&str], erasing_bytes: u64, not_erased: &[&str]) -> RetireDriveResponse {
        let owned = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        RetireDriveResponse {
            drive: "wwn-a".into(),
            serial: "ZA1".into(),
            bay: String::new(),
            keeps: owned(keeps),
            erasing_bytes,
            not_erased: owned(not_erased),
        }
    }

    #[test]
    fn two_answers_have_three_exit_codes() {
        for (answer, code) in [
            (answer(&[], 0, &[]), 0),
            (answer(&[], 1, &[]), MAY_BE_PULLED),
            (answer(&[], 0, &["db"]), MAY_BE_PULLED),
            (answer(&["db"], 0, &[]), MUST_STAY),
            (answer(&["db"], 1, &["web"]), MUST_STAY),
        ] {
            assert_eq!(Outcome::of(&answer).code(), code, "{answer:?}");
        }
        let codes = crate::args::FURTHER_EXIT_CODES;
        for code in [MAY_BE_PULLED, MUST_STAY] {
            assert!(codes.iter().any(|(listed, _)| *listed == code), "{code}");
        }
    }

    #[test]
    fn both_answers_are_printed_with_every_reason_against_them() {
        let render = |answer, bay, plan| text(&answer, bay, plan, Terminal::NONE);
        assert_eq!(
            render(answer(&[], 0, &[]), "slot 3 of enclosure 5000", false),
            "\
drive wwn-a
  serial                  ZA1
  bay                     slot 3 of enclosure 5000
  may be pulled           yes
  may leave the building  yes
"
        );
        assert_eq!(
            render(
                answer(&[], 3 << 30, &["volume d\nb: the drive takes no writes"]),
                "",
                false
            ),
            "\
drive wwn-a
  serial                  ZA1
  bay                     not known
  may be pulled           yes
  may leave the building  no
    - 3 GiB on it are being erased
    - volume d\\u{a}b: the drive takes no writes
"
        );
        let text = render(
            answer(&["volume db lives on it", "2"], 1 << 30, &[]),
            "",
            true,
        );
        assert!(
            text.contains(
                "may be pulled           no\n    - volume db lives on it\n    - 2\n  may leave"
            ),
            "{text}"
        );
        assert!(text.contains("1 GiB on it would be erased first"), "{text}");
    }

    #[test]
    fn progress_is_of_all_that_was_to_be_erased() {
        assert_eq!(
            progress_line("wwn-a", 3 << 30, 4 << 30),
            "erasing what is left on wwn-a: 25% (1 GiB of 4 GiB)"
        );
    }
}
