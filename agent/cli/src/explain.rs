//! `drivebay-agent smart explain`: evaluates outputs of smartctl as the agent does, with the rule behind each finding. Rendering is pure.

use std::{
    io,
    path::{Path, PathBuf},
};

use drivebay_common::{
    cli::{NOT_FOUND, NOT_PERMITTED, RUN_AS_ROOT, USAGE, WRONG},
    smart_names,
    table::{human_size, printable},
    terminal::Terminal,
};
use drivebay_view::denied;
use serde::Serialize;

use super::{
    args::{ExplainArgs, Format},
    rules::WIDTH,
};
use drivebay_model::Verdict;
use drivebay_smart::{
    Assessment, Facts, FailureReason, History, Outcome, Poll, Reading, Thresholds,
    collect::{self, DeviceType},
    facts::{MAX_BYTES, Protocol, documents},
    history::{Counter, Trends},
    judge, poll,
    rules::{
        WearSource,
        table::{Row, behind_condition, behind_finding},
        wear,
    },
};
use drivebay_sys::{clock::unix_seconds, input};

/// Bytes of an input with several outputs that are read at most.
const MAX_INPUT: u64 = 64 * MAX_BYTES as u64;
/// Bytes of a logical sector if the drive reports none.
const SECTOR: u32 = 512;

/// Nothing could be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot read standard input")]
    Input(#[source] io::Error),
    /// A device type was given for a file.
    #[error("--device-type is for a device; {} is not one", path.display())]
    NotADevice {
        /// Path from the command line: a file, or `-` for standard input.
        path: PathBuf,
    },
    /// The input is no JSON of smartctl.
    #[error(
        "{name} is not smartctl's JSON: {detail}. Make it with: smartctl --json -x DEVICE > FILE"
    )]
    NotSmartctl {
        /// The input, or the number of its part.
        name: String,
        detail: String,
    },
    /// Opening the device is not permitted.
    #[error("cannot open {}: {RUN_AS_ROOT}", path.display())]
    Permission {
        /// Path of the device.
        path: PathBuf,
    },
    /// smartctl returned no result.
    #[error("cannot ask {}: {detail}", path.display())]
    NotAsked {
        path: PathBuf,
        /// Evidence of the failed poll, and what an operator can do.
        detail: String,
    },
}

impl ExplainError {
    /// Returns the exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => NOT_FOUND,
            Self::Permission { .. } => NOT_PERMITTED,
            Self::NotADevice { .. } => USAGE,
            error if denied(error) => NOT_PERMITTED,
            _ => WRONG,
        }
    }
}

/// Evaluations of one input, in its order.
#[derive(Debug)]
pub struct Explanations(Vec<Explained>);

impl Explanations {
    /// Evaluates each output in the input. `name`: the input, for errors.
    fn read(bytes: &[u8], name: &str) -> Result<Self, ExplainError> {
        let documents = documents(bytes).map_err(|error| ExplainError::NotSmartctl {
            name: name.to_owned(),
            detail: error.to_string(),
        })?;
        let many = documents.len() > 1;
        let explained = documents.iter().enumerate().map(|(index, document)| {
            let name = match many {
                true => format!("answer {} in {name}", index + 1),
                false => name.to_owned(),
            };
            Explained::read(document, &name)
        });
        explained.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the worst verdict; UNKNOWN is worse than GOOD.
    pub fn verdict(&self) -> Verdict {
        let verdicts = self.0.iter().map(Explained::verdict);
        let rank = |verdict: &Verdict| (verdict.weight(), *verdict == Verdict::Unknown);
        verdicts.max_by_key(rank).unwrap_or(Verdict::Unknown)
    }

    /// Renders text, or a document: one evaluation as an object, several as an array.
    pub fn render(&self, format: Format) -> serde_json::Result<String> {
        let Some(document) = format.document() else {
            return Ok(self.text());
        };
        match self.0.as_slice() {
            [one] => document.write(&one.json()),
            all => document.write(&all.iter().map(Explained::json).collect::<Vec<_>>()),
        }
    }

    fn text(&self) -> String {
        let of = self.0.len();
        let texts = self.0.iter().enumerate().map(|(index, one)| match of {
            1 => one.text(),
            _ => format!("Answer {} of {of}\n{}", index + 1, one.text()),
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

/// Evaluation of one output.
#[derive(Debug)]
struct Explained {
    outcome: Outcome,
    assessment: Assessment,
    limits: Thresholds,
}

/// Returns the exit code for a verdict; 0 for GOOD.
pub fn exit_code(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Good => 0,
        Verdict::Suspect => 10,
        Verdict::Bad => 20,
        Verdict::Unknown => 30,
    }
}

/// Reads a file or polls a device, and evaluates the result.
pub fn run(args: &ExplainArgs) -> Result<Explanations, ExplainError> {
    let path = &args.source;
    let is_input = path == Path::new("-");
    if !is_input && input::is_device(path) {
        let outcome = poll_device(path, args.device_type.clone(), None)?;
        return Ok(Explanations(vec![Explained::of(outcome)]));
    }
    if args.device_type.is_some() {
        return Err(ExplainError::NotADevice { path: path.clone() });
    }
    let most = MAX_INPUT + 1;
    let bytes = if is_input {
        input::read(None, most).map_err(ExplainError::Input)?
    } else {
        input::read(Some(path), most).map_err(|source| ExplainError::Read {
            path: path.clone(),
            source,
        })?
    };
    let name = if is_input {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    };
    Explanations::read(&bytes, &name)
}

/// Polls a device. `smartctl`: path of the program; None: the one in PATH.
fn poll_device(
    path: &Path,
    device_type: Option<DeviceType>,
    smartctl: Option<PathBuf>,
) -> Result<Outcome, ExplainError> {
    let polled = poll(&Poll {
        node: path.to_owned(),
        // Polled on an operator's request, which may wake it.
        rotational: false,
        device_type,
        scsi: false,
        deep: true,
        unsupported: None,
        mmc: None,
        not_running: None,
        smartctl,
    });
    match polled.outcome {
        Outcome::Failed(failure) if failure.detail.contains("Permission denied") => {
            Err(ExplainError::Permission {
                path: path.to_owned(),
            })
        }
        Outcome::Failed(failure) if !is_an_answer(failure.reason) => Err(ExplainError::NotAsked {
            path: path.to_owned(),
            detail: failure.detail,
        }),
        outcome => Ok(outcome),
    }
}

/// True if smartctl returned a result, and only the drive failed.
fn is_an_answer(reason: FailureReason) -> bool {
    matches!(
        reason,
        FailureReason::OpenFailed | FailureReason::Unsupported | FailureReason::NoData
    )
}

#[derive(Serialize)]
struct Explanation<'a> {
    model: &'a str,
    serial: &'a str,
    firmware: &'a str,
    protocol: Option<&'static str>,
    capacity_bytes: Option<u64>,
    smartctl_exit_status: Option<u8>,
    verdict: &'static str,
    asleep: bool,
    unknown_because: Option<String>,
    facts: serde_json::Map<String, serde_json::Value>,
    findings: Vec<Line>,
    conditions: Vec<Line>,
}

/// A finding or condition with its rule.
#[derive(Serialize)]
struct Line {
    verdict: String,
    subject: String,
    value: i64,
    limit: Option<i64>,
    /// The value by what it counts.
    reading: String,
    message: String,
    rule: Option<Row>,
}

impl Explained {
    /// Evaluates one output. `name`: the input, for errors.
    fn read(bytes: &[u8], name: &str) -> Result<Self, ExplainError> {
        match collect::of_bytes(bytes) {
            Outcome::Failed(failure) if !is_an_answer(failure.reason) => {
                Err(ExplainError::NotSmartctl {
                    name: name.to_owned(),
                    detail: failure.detail,
                })
            }
            outcome => Ok(Self::of(outcome)),
        }
    }

    fn of(outcome: Outcome) -> Self {
        let limits = Thresholds::default();
        let mut history = History::default();
        let assessment = judge(&outcome, &mut history, unix_seconds(), &limits, None);
        Self {
            outcome,
            assessment,
            limits,
        }
    }

    fn verdict(&self) -> Verdict {
        self.assessment.verdict
    }

    fn facts(&self) -> Option<&Facts> {
        match &self.outcome {
            Outcome::Answered(facts) => Some(facts),
            Outcome::Standby | Outcome::Failed(_) => None,
        }
    }

    /// Returns names and values: those with names for users, then the counters that rules compare.
    fn numbers(&self) -> Vec<(&'static str, i64)> {
        let Some(facts) = self.facts() else {
            return Vec::new();
        };
        let sector = facts
            .sector_bytes
            .0
            .and_then(|bytes| u32::try_from(bytes).ok());
        let mut numbers = Reading::of(facts, sector.unwrap_or(SECTOR)).named();
        let counters = Counter::read(facts).into_iter();
        numbers.extend(
            counters.map(|(counter, value)| {
                (counter.as_str(), i64::try_from(value).unwrap_or(i64::MAX))
            }),
        );
        numbers
    }

    fn unknown_because(&self) -> Option<String> {
        let failure = self.assessment.failure.as_ref();
        failure.map(|failure| failure.detail.clone())
    }

    fn findings(&self) -> Vec<Line> {
        let findings = self.assessment.findings.iter();
        let line = |finding: &drivebay_smart::RuleFinding| Line {
            verdict: Verdict::from(finding.severity).as_str().to_owned(),
            subject: finding.subject.clone(),
            value: i64::try_from(finding.value).unwrap_or(i64::MAX),
            limit: finding
                .threshold
                .map(|limit| i64::try_from(limit).unwrap_or(i64::MAX)),
            reading: finding.reading(&Trends::default()),
            message: finding.message_with_value(),
            rule: self
                .facts()
                .and_then(|facts| behind_finding(finding, facts, &self.limits)),
        };
        findings.map(line).collect()
    }

    fn conditions(&self) -> Vec<Line> {
        let conditions = self.assessment.conditions.iter();
        let line = |condition: &drivebay_smart::SmartCondition| {
            let rule = behind_condition(condition, &self.limits);
            Line {
                verdict: rule
                    .as_ref()
                    .map(|rule| rule.verdict)
                    .unwrap_or_default()
                    .to_owned(),
                subject: condition.kind.as_str().to_owned(),
                value: condition.value,
                limit: Some(condition.threshold),
                reading: condition.reading(),
                message: condition.message_with_value(),
                rule,
            }
        };
        conditions.map(line).collect()
    }

    fn json(&self) -> Explanation<'_> {
        let facts = self.facts();
        let text = |of: fn(&Facts) -> &str| facts.map(of).unwrap_or_default();
        Explanation {
            model: text(|facts| &facts.model),
            serial: text(|facts| &facts.serial),
            firmware: text(|facts| &facts.firmware),
            protocol: facts.and_then(Facts::protocol).map(Protocol::as_str),
            capacity_bytes: facts.and_then(|facts| facts.capacity_bytes),
            smartctl_exit_status: facts.map(|facts| facts.exit.bits()),
            verdict: self.verdict().as_str(),
            asleep: self.assessment.standby,
            unknown_because: self.unknown_because(),
            facts: self
                .numbers()
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value.into()))
                .collect(),
            findings: self.findings(),
            conditions: self.conditions(),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        if let Some(facts) = self.facts() {
            let size = facts.capacity_bytes.map(human_size).unwrap_or_default();
            let protocol = facts.protocol().map_or("", Protocol::as_str);
            for (name, value) in [
                ("model", facts.model.as_str()),
                ("serial", &facts.serial),
                ("firmware", &facts.firmware),
                ("protocol", protocol),
                ("size", &size),
                ("exit status", &format!("{} (smartctl)", facts.exit)),
            ] {
                if !value.is_empty() {
                    text.push_str(&wrapped(&format!("{name:<13}"), value));
                }
            }
        }
        text.push_str(&format!("{:<13}{}\n", "verdict", self.verdict()));
        if self.assessment.standby {
            text.push_str(&wrapped("", "the drive is asleep and was left so"));
        }
        if let Some(why) = self.unknown_because() {
            text.push_str(&wrapped("", &why));
        }
        let numbers = self.numbers();
        if !numbers.is_empty() {
            text.push_str("\nFacts:\n");
        }
        for (name, value) in numbers {
            let (label, value) = (smart_names::label(name), smart_names::value(name, value));
            text.push_str(&format!("  {label:<40}{value}{}\n", self.origin(name)));
        }
        for (title, lines) in [
            ("Findings", self.findings()),
            ("Conditions (no verdict)", self.conditions()),
        ] {
            if lines.is_empty() {
                text.push_str(&format!("\n{title}: none\n"));
                continue;
            }
            text.push_str(&format!("\n{title}:\n"));
            for line in lines {
                text.push_str(&line.text());
            }
        }
        text
    }

    /// Returns the source of the wear value, since there are several.
    fn origin(&self, name: &str) -> &'static str {
        let source = self.facts().and_then(wear).map(|wear| wear.source);
        match source.filter(|_| name == "wear-percent") {
            Some(WearSource::Smartctl) => "  (smartctl)",
            Some(WearSource::Statistics) => "  (device statistics)",
            Some(WearSource::Attribute) => "  (attribute)",
            Some(WearSource::Nvme | WearSource::Scsi | WearSource::Mmc) | None => "",
        }
    }
}

impl Line {
    fn text(&self) -> String {
        let code = self.rule.as_ref().map_or("", |rule| rule.code);
        let limit = self.limit.filter(|_| !self.reading.contains(", its "));
        let limit = limit.map(|limit| format!(", limit {limit}"));
        let head = format!("{code}: {}{}", self.reading, limit.unwrap_or_default());
        let mut text = wrapped(&format!("  {:<7} ", self.verdict), &head);
        text.push_str(&wrapped("          ", &self.message));
        if let Some(rule) = &self.rule {
            let why = format!("rule: {}: {} ({})", rule.field, rule.condition, rule.source);
            text.push_str(&wrapped("          ", &why));
        }
        text
    }
}

fn wrapped(beginning: &str, text: &str) -> String {
    broken(beginning, text, WIDTH)
}

/// Returns printable text after a beginning, wrapped at this width and indented.
pub(super) fn broken(beginning: &str, text: &str, width: usize) -> String {
    let narrow = Terminal {
        width: Some(width),
        ..Terminal::NONE
    };
    narrow.wrapped(beginning, &printable(text))
}

#[cfg(test)]
mod tests;
