//! Counts and durations of calls by method and code, recorded where calls are logged.

use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};

use prometheus::{
    HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry,
    process_collector::ProcessCollector, proto::MetricFamily,
};
use tonic::Code;

/// Seconds, from answers out of memory to those that wait for a slow drive; the kubelet's timeout is 120.
const BUCKETS: [f64; 11] = [
    0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0,
];

struct Calls {
    ended: IntCounterVec,
    took: HistogramVec,
    running: IntGaugeVec,
}

struct Registered {
    registry: Registry,
    // None if the library refuses the definitions, which a test rules out.
    calls: Option<Calls>,
}

// Global, since one process is one program: all its services count in one place.
static REGISTERED: LazyLock<Registered> = LazyLock::new(|| {
    let registry = Registry::new();
    let calls = match register(&registry) {
        Ok(calls) => Some(calls),
        Err(error) => {
            tracing::error!(%error, "gRPC call metrics unavailable");
            None
        }
    };
    Registered { registry, calls }
});

fn register(registry: &Registry) -> prometheus::Result<Calls> {
    let ended = IntCounterVec::new(
        Opts::new(
            "drivebay_rpc_total",
            "Completed gRPC calls by method and code.",
        ),
        &["method", "code"],
    )?;
    let took = HistogramVec::new(
        HistogramOpts::new(
            "drivebay_rpc_duration_seconds",
            "Duration of gRPC calls in seconds, by method.",
        )
        .buckets(BUCKETS.to_vec()),
        &["method"],
    )?;
    let running = IntGaugeVec::new(
        Opts::new("drivebay_rpc_running", "gRPC calls in progress, by method."),
        &["method"],
    )?;
    registry.register(Box::new(ended.clone()))?;
    registry.register(Box::new(took.clone()))?;
    registry.register(Box::new(running.clone()))?;
    registry.register(Box::new(ProcessCollector::for_self()))?;
    Ok(Calls {
        ended,
        took,
        running,
    })
}

/// A running call. If it is dropped without `ended`, the client has cancelled it and it counts as Canceled.
#[derive(Debug)]
pub struct Running {
    method: &'static str,
    code: Option<Code>,
    began: Instant,
}

/// Starts counting a call. `method` must be a constant of the program, which bounds the number of label values.
pub fn start(method: &'static str) -> Running {
    if let Some(calls) = &REGISTERED.calls {
        calls.running.with_label_values(&[method]).inc();
    }
    Running {
        method,
        code: None,
        began: Instant::now(),
    }
}

impl Running {
    /// Sets the code that the call ended with; returns its duration.
    pub fn ended(mut self, code: Code) -> Duration {
        self.code = Some(code);
        self.began.elapsed()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let (method, took) = (self.method, self.began.elapsed());
        let code = self.code.unwrap_or_else(|| {
            let milliseconds = took.as_millis();
            tracing::info!(method, code = ?Code::Cancelled, milliseconds, "gRPC call cancelled by its client");
            Code::Cancelled
        });
        if let Some(calls) = &REGISTERED.calls {
            let labels = [method, code_name(code)];
            calls.running.with_label_values(&[method]).dec();
            calls.ended.with_label_values(&labels).inc();
            calls
                .took
                .with_label_values(&[method])
                .observe(took.as_secs_f64());
        }
    }
}

/// Returns the families of calls and of the process (CPU time, memory, open files), for a scrape.
pub fn gather() -> Vec<MetricFamily> {
    REGISTERED.registry.gather()
}

/// Returns a code's name as in the metrics of the CSI sidecars, so that one query matches both.
pub fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Families;

    fn scraped() -> String {
        let mut families = Families::default();
        families.extend(gather());
        families.encode().unwrap()
    }

    #[test]
    fn a_call_is_counted_by_method_and_code_and_timed() {
        start("OneThatWorks").ended(Code::Ok);
        start("OneThatFails").ended(Code::ResourceExhausted);
        let text = scraped();
        for line in [
            r#"drivebay_rpc_total{code="OK",method="OneThatWorks"} 1"#,
            r#"drivebay_rpc_total{code="ResourceExhausted",method="OneThatFails"} 1"#,
            r#"drivebay_rpc_duration_seconds_count{method="OneThatFails"} 1"#,
            r#"drivebay_rpc_running{method="OneThatWorks"} 0"#,
        ] {
            assert!(text.contains(line), "no {line} in\n{text}");
        }
    }

    #[test]
    fn a_call_whose_caller_went_away_is_counted_as_canceled() {
        drop(start("OneThatIsDropped"));
        let line = r#"drivebay_rpc_total{code="Canceled",method="OneThatIsDropped"} 1"#;
        assert!(scraped().contains(line));
    }

    #[test]
    fn the_process_reports_its_own_metrics() {
        let text = scraped();
        for name in [
            "process_cpu_seconds_total",
            "process_resident_memory_bytes",
            "process_open_fds",
        ] {
            assert!(text.contains(&format!("\n{name} ")), "{name}");
        }
    }
}
