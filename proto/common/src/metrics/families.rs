//! The series of one scrape: names, types and help from tables, label values from the current state. A series that is put twice appears
//! once, since Prometheus refuses a whole scrape for one duplicate.

use std::collections::BTreeMap;

use prometheus::{
    Encoder, TextEncoder,
    proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType},
};

/// Definition of a metric, the same wherever its name is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Def {
    /// Name with the unit as suffix, by Prometheus' conventions.
    pub name: &'static str,
    /// HELP text: one sentence that ends with a full stop, and names the unit if the metric has one.
    pub help: &'static str,
    /// True for a counter, false for a gauge.
    pub counter: bool,
    /// Label names, in the order of the values.
    pub labels: &'static [&'static str],
}

/// Defines a gauge: its value can rise and fall. `labels`: label names, in the order in which [`Families::put`] takes the values.
pub const fn gauge(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Def {
    Def {
        name,
        help,
        counter: false,
        labels,
    }
}

/// Defines a counter: it only increases until the process, or the drive, is reset.
pub const fn counter(
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
) -> Def {
    Def {
        name,
        help,
        counter: true,
        labels,
    }
}

/// Value of an info metric, whose labels have the information.
pub const fn one() -> f64 {
    1.0
}

/// Returns 1 for true, 0 for false.
pub fn truth(is: bool) -> f64 {
    f64::from(u8::from(is))
}

/// Returns a count or a size; rounded above 2^53.
pub fn number(value: u64) -> f64 {
    value as f64
}

#[derive(Debug)]
struct Family {
    def: Def,
    // By label values, so that no series is there twice.
    series: BTreeMap<Vec<String>, f64>,
}

/// The series of one scrape.
#[derive(Debug, Default)]
pub struct Families {
    families: BTreeMap<&'static str, Family>,
    // Built by the library: histograms and the process collector.
    ready: Vec<MetricFamily>,
}

/// A scrape could not be encoded.
#[derive(Debug, thiserror::Error)]
#[error("the metrics cannot be written as text")]
pub struct EncodeError(#[from] prometheus::Error);

impl Families {
    /// Puts one series in, or replaces its value if the labels are the same. Label values must be in the order of the definition.
    pub fn put(&mut self, def: &Def, labels: &[&str], value: f64) {
        debug_assert_eq!(def.labels.len(), labels.len(), "{}", def.name);
        let family = self.families.entry(def.name).or_insert_with(|| Family {
            def: *def,
            series: BTreeMap::new(),
        });
        let labels = labels.iter().map(|value| (*value).to_owned()).collect();
        family.series.insert(labels, value);
    }

    /// Like [`put`](Self::put); does nothing without a value.
    pub fn put_known(&mut self, def: &Def, labels: &[&str], value: Option<f64>) {
        if let Some(value) = value {
            self.put(def, labels, value);
        }
    }

    /// Adds families that a registry has gathered.
    pub fn extend(&mut self, ready: Vec<MetricFamily>) {
        self.ready.extend(ready);
    }

    /// Returns the number of series from definitions; without histograms and the process collector.
    pub fn len(&self) -> usize {
        self.families
            .values()
            .map(|family| family.series.len())
            .sum()
    }

    /// True if `len` is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Encodes all series in Prometheus' text format, version 0.0.4.
    pub fn encode(self) -> Result<String, EncodeError> {
        let mut families: Vec<MetricFamily> = self.families.into_values().map(family).collect();
        families.extend(self.ready);
        // The encoder refuses families without series.
        families.retain(|family| !family.get_metric().is_empty());
        Ok(TextEncoder::new().encode_to_string(&families)?)
    }
}

/// Returns the content type of `encode`'s text.
pub fn content_type() -> String {
    format!("{}; charset=utf-8", TextEncoder::new().format_type())
}

fn family(family: Family) -> MetricFamily {
    let Family { def, series } = family;
    let mut made = MetricFamily::default();
    made.set_name(def.name.to_owned());
    made.set_help(def.help.to_owned());
    made.set_field_type(if def.counter {
        MetricType::COUNTER
    } else {
        MetricType::GAUGE
    });
    let metrics = series.into_iter().map(|(values, value)| {
        let mut metric = Metric::default();
        let labels = def.labels.iter().zip(values).map(|(name, value)| {
            let mut label = LabelPair::default();
            label.set_name((*name).to_owned());
            label.set_value(value);
            label
        });
        metric.set_label(labels.collect());
        if def.counter {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        metric
    });
    made.set_metric(metrics.collect());
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: Def = gauge("drivebay_test_info", "A test.", &["a", "b"]);
    const TOTAL: Def = counter("drivebay_test_total", "Another.", &[]);

    #[test]
    fn a_series_that_is_put_twice_is_there_once() {
        let mut families = Families::default();
        families.put(&INFO, &["x", "y"], 1.0);
        families.put(&INFO, &["x", "y"], 2.0);
        families.put(&INFO, &["x", "z"], 1.0);
        assert_eq!(families.len(), 2);
        let text = families.encode().unwrap();
        assert_eq!(text.matches("a=\"x\",b=\"y\"").count(), 1, "{text}");
    }

    #[test]
    fn what_hardware_reports_of_itself_cannot_break_the_format() {
        let mut families = Families::default();
        families.put(&INFO, &["a\"b\\c\nd", ""], 1.0);
        families.put(&TOTAL, &[], 3.0);
        let text = families.encode().unwrap();
        assert!(text.contains(r#"a="a\"b\\c\nd",b="""#), "{text}");
        assert!(
            text.contains("# TYPE drivebay_test_total counter\ndrivebay_test_total 3\n"),
            "{text}"
        );
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let mut families = Families::default();
        families.put_known(&TOTAL, &[], None);
        assert!(families.is_empty());
        assert_eq!(families.encode().unwrap(), "");
    }
}
