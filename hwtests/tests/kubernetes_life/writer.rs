//! A pod that appends numbered lines, makes each durable, and then acknowledges it in its log.

use std::time::Duration;

use drivebay_hwtests::kube::wait;
use drivebay_hwtests::kube::{
    Scenario,
    manifest::{claim, mounted, pod},
};

const LIMIT: Duration = Duration::from_secs(60);

/// Name of the pod and of its claim.
const NAME: &str = "writer";

/// The first write that fails ends the pod, which is not restarted.
const SCRIPT: &str = "number=0
while :; do
    number=$((number + 1))
    echo $number | dd of=/data/lines oflag=append conv=notrunc,fsync 2>/dev/null
    echo acknowledged $number
    sleep 0.02
done";

/// A pod that continuously appends numbered lines to a file on its claim, in the namespace of a scenario.
#[derive(Debug)]
pub struct Writer<'a> {
    scenario: &'a Scenario,
}

impl<'a> Writer<'a> {
    /// Starts the pod, and waits until it has written.
    pub fn start(scenario: &'a Scenario) -> Self {
        let mut object = pod(NAME, &[mounted(NAME, "/data")], SCRIPT);
        object["spec"]["restartPolicy"] = "Never".into();
        scenario.apply(&[claim(NAME, 64), object]);
        scenario.runs(NAME);
        let it = Self { scenario };
        it.goes_on();
        it
    }

    /// Returns the number of the last acknowledged line; 0 if there is none.
    fn acknowledged(&self) -> u64 {
        let log = self
            .scenario
            .try_kubectl(&["logs", NAME, "--tail=1"])
            .unwrap_or_default();
        let number = log.trim().strip_prefix("acknowledged ");
        number
            .and_then(|number| number.parse().ok())
            .unwrap_or_default()
    }

    /// Waits until more than 5 further lines are acknowledged. Panics if the writer has stopped.
    pub fn goes_on(&self) {
        let before = self.acknowledged();
        let more = || (self.acknowledged() > before + 5).then_some(());
        if wait::poll(LIMIT, more).is_none() {
            let pod = self.scenario.get(&["pod", NAME]);
            panic!(
                "the writer stopped after line {before}: {}",
                pod["status"]["containerStatuses"]
            );
        }
    }

    /// Checks that no write failed, and that each acknowledged line is in the file once and in order. Returns the number of lines
    /// acknowledged.
    pub fn lost_nothing(&self) -> u64 {
        self.goes_on();
        let acknowledged = self.acknowledged();
        let pod = self.scenario.get(&["pod", NAME]);
        assert_eq!(pod["status"]["phase"], "Running");
        assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
        // The last line of the file may be incomplete while it is read.
        let script = "sed '$d' /data/lines |
            awk '$1 != NR { print \"line \" NR \": \" $0; wrong = 1; exit } END { if (!wrong) print NR }'";
        let output = self.scenario.sh(NAME, script);
        let lines: u64 = output.parse().unwrap_or_else(|_| panic!("{output}"));
        assert!(
            lines + 1 >= acknowledged,
            "{acknowledged} lines were acknowledged, and {lines} are there"
        );
        acknowledged
    }
}
