//! Kubernetes' External Storage suite, run against a cluster, and the results of its specs.

use std::fs;

use serde_json::Value;

use super::{Cluster, DRIVER};
use crate::lab::progress::print_progress;

/// Specs that are not run.
#[derive(Debug, Clone, Copy)]
pub struct LeftOut {
    /// Texts; a spec is left out if its name contains one.
    pub names: &'static [&'static str],
    /// Reason why they are not run, printed with their number.
    pub why: &'static str,
}

/// Which specs are run.
#[derive(Debug, Clone, Copy)]
pub struct Specs {
    /// The suite's test driver definition: a file in hwtests/cluster.
    pub driver: &'static str,
    /// Texts; a spec is run if its name contains one. Empty: all specs of the driver.
    pub only: &'static [&'static str],
    /// Specs that are not run.
    pub left_out: &'static [LeftOut],
}

impl Cluster {
    /// Runs specs of the suite, and prints how many of them passed.
    ///
    /// # Panics
    /// If a spec failed, if none passed, or if none passed for one of the texts in `only`.
    pub fn passes(&self, specs: &Specs) {
        let report = self.dir().join("suite.json");
        let auth = self.dir().join("auth/admin.kubeconfig");
        let driver = concat!(env!("CARGO_MANIFEST_DIR"), "/cluster/");
        let options = [
            "--kubectl-path=kubectl".to_owned(),
            format!("--kubeconfig={}", auth.display()),
            format!("--storage.testdriver={driver}{}", specs.driver),
            format!("--ginkgo.focus={}", specs.focus()),
            format!("--ginkgo.skip={}", specs.skip()),
            format!("--ginkgo.json-report={}", report.display()),
            "--ginkgo.timeout=3h".to_owned(),
            "--ginkgo.no-color".to_owned(),
        ];
        let options = options.iter().map(String::as_str);
        let words: Vec<&str> = ["suite"].into_iter().chain(options).collect();
        let output = self.inside(&words);
        let report = fs::read_to_string(&report).unwrap_or_else(|_| panic!("{output:?}"));
        let counts = Counts::of(specs, &serde_json::from_str(&report).unwrap());
        print_progress(counts.table(specs));
        assert!(
            output.is_ok() && counts.failed.is_empty(),
            "{:#?}\n{output:?}",
            counts.failed
        );
        assert_eq!(counts.missing(specs), [""; 0], "no spec of these passed");
    }
}

/// Returns a regular expression of Go for names that contain one of these texts.
fn any_of<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let literal = |text: &str| {
        let mut escaped = String::new();
        for c in text.chars() {
            if c.is_ascii_punctuation() {
                escaped.push('\\');
            }
            escaped.push(c);
        }
        escaped
    };
    texts.map(literal).collect::<Vec<_>>().join("|")
}

fn has_one(name: &str, texts: &[&str]) -> bool {
    texts.iter().any(|text| name.contains(text))
}

impl Specs {
    fn focus(&self) -> String {
        let driver = format!(r"\[Driver: {}\]", any_of([DRIVER].into_iter()));
        format!("{driver}.*({})", any_of(self.only.iter().copied()))
    }

    fn skip(&self) -> String {
        let all = self.left_out.iter().flat_map(|of| of.names);
        any_of(all.copied())
    }

    fn is_chosen(&self, name: &str) -> bool {
        self.only.is_empty() || has_one(name, self.only)
    }
}

#[derive(Debug, Default)]
struct Counts {
    // Names of the specs.
    passed: Vec<String>,
    failed: Vec<String>,
    // Reasons of the specs that skipped themselves.
    skipped: Vec<String>,
    // Number of specs for each entry of `Specs::left_out`.
    left_out: Vec<usize>,
}

impl Counts {
    fn of(specs: &Specs, report: &Value) -> Self {
        let mut counts = Self {
            left_out: vec![0; specs.left_out.len()],
            ..Self::default()
        };
        let all = report[0]["SpecReports"].as_array().into_iter().flatten();
        for spec in all.filter(|spec| spec["LeafNodeType"] == "It") {
            let name = name(spec);
            let why = spec["Failure"]["Message"].as_str().unwrap_or_default();
            match spec["State"].as_str().unwrap_or_default() {
                "passed" => counts.passed.push(name),
                "pending" => counts.skipped.push("pending".to_owned()),
                "skipped" if !why.is_empty() => counts.skipped.push(why.to_owned()),
                "skipped" if specs.is_chosen(&name) => {
                    let mut left_out = specs.left_out.iter();
                    if let Some(at) = left_out.position(|of| has_one(&name, of.names)) {
                        counts.left_out[at] += 1;
                    }
                }
                "skipped" => {}
                _ => counts.failed.push(format!("{name}: {why}")),
            }
        }
        counts
    }

    /// Returns the texts of `Specs::only` for which no spec passed. Without texts: "all" if none passed.
    fn missing(&self, specs: &Specs) -> Vec<&'static str> {
        let any: &[&str] = match specs.only {
            [] if self.passed.is_empty() => &["all"],
            texts => texts,
        };
        let has_none = |text: &&&str| !self.passed.iter().any(|name| name.contains(**text));
        any.iter().filter(has_none).copied().collect()
    }

    fn table(&self, specs: &Specs) -> String {
        let mut lines = vec![format!(
            "External Storage suite, {}: {} passed, {} failed, {} skipped by themselves",
            specs.driver,
            self.passed.len(),
            self.failed.len(),
            self.skipped.len()
        )];
        for (of, count) in specs.left_out.iter().zip(&self.left_out) {
            let names = of.names.join(", ");
            lines.push(format!("left out {count}: {names}: {}", of.why));
        }
        let mut reasons = self.skipped.clone();
        reasons.sort_unstable();
        for group in reasons.chunk_by(|a, b| a == b) {
            lines.push(format!("skipped {}: {}", group.len(), group[0]));
        }
        lines.join("\n")
    }
}

fn name(spec: &Value) -> String {
    let texts = spec["ContainerHierarchyTexts"].as_array();
    let texts = texts.into_iter().flatten().chain([&spec["LeafNodeText"]]);
    let texts: Vec<&str> = texts.filter_map(Value::as_str).collect();
    texts.join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SPECS: Specs = Specs {
        driver: "driver.yaml",
        only: &["(retain policy)", "data source"],
        left_out: &[LeftOut {
            names: &["[Slow]", "any volume"],
            why: "it is slow",
        }],
    };

    #[test]
    fn texts_of_names_are_literal_in_what_ginkgo_is_given() {
        assert_eq!(
            SPECS.focus(),
            r"\[Driver: csi\.drivebay\.io\].*(\(retain policy\)|data source)"
        );
        assert_eq!(SPECS.skip(), r"\[Slow\]|any volume");
        let all = Specs { only: &[], ..SPECS };
        assert_eq!(all.focus(), r"\[Driver: csi\.drivebay\.io\].*()");
    }

    #[test]
    fn specs_are_counted_by_how_they_ended_and_why_they_were_not_run() {
        let spec = |text: &str, state: &str, why: &str| {
            json!({
                "LeafNodeType": "It",
                "ContainerHierarchyTexts": ["External Storage", "[Testpattern: p]"],
                "LeafNodeText": text,
                "State": state,
                "Failure": {"Message": why},
            })
        };
        let report = json!([{"SpecReports": [
            {"LeafNodeType": "BeforeSuite", "State": "passed"},
            spec("pvc data source", "passed", ""),
            spec("snapshot data source", "failed", "no pod"),
            spec("data source (ROX mode)", "skipped", "no ROX"),
            spec("any volume data source", "skipped", ""),
            // Not chosen by `only`.
            spec("[Slow] growing", "skipped", ""),
        ]}]);
        let counts = Counts::of(&SPECS, &report);
        assert_eq!(
            counts.table(&SPECS),
            "External Storage suite, driver.yaml: 1 passed, 1 failed, 1 skipped by themselves\n\
             left out 1: [Slow], any volume: it is slow\n\
             skipped 1: no ROX"
        );
        assert_eq!(
            counts.failed,
            ["External Storage [Testpattern: p] snapshot data source: no pod"]
        );
        assert_eq!(counts.missing(&SPECS), ["(retain policy)"]);
    }

    #[test]
    fn a_run_without_specs_lacks_all_of_them() {
        let counts = Counts::of(&SPECS, &json!([{"SpecReports": []}]));
        assert_eq!(counts.missing(&SPECS), SPECS.only);
        let all = Specs { only: &[], ..SPECS };
        assert_eq!(counts.missing(&all), ["all"]);
    }
}
