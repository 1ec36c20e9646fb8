//! Prints the quality of detecting slow drives among loaded ones: recall, precision and time to the finding over many generated traces.

use std::process::ExitCode;

use clap::Parser;
use drivebay_hwtests::slow_traces::{evaluate, replay};

/// Evaluates the comparison of drives on generated traces.
#[derive(Debug, Parser)]
struct Options {
    /// Slow traces; as many healthy ones are added.
    #[arg(long, default_value_t = 1000)]
    traces: u64,
    /// Seed of the first trace.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Healthy nodes over eight hours.
    #[arg(long, default_value_t = 50)]
    nodes: u64,
    /// Show also each load, shape and factor, and name every miss and every false alarm.
    #[arg(long)]
    verbose: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let table = evaluate(options.seed, options.traces);
    print!("{}", table.render());
    if options.verbose {
        print!("{}", table.render_cells());
        for line in table.missed.iter().chain(&table.false_alarms) {
            println!("  {line}");
        }
    }
    let mut alarms = Vec::new();
    for node in 0..options.nodes {
        alarms.extend(replay(options.seed ^ (node << 20), 8));
    }
    println!(
        "{} nodes over eight hours of load, bursts and erases: {} findings",
        options.nodes,
        alarms.len()
    );
    for alarm in &alarms {
        println!("  {alarm}");
    }
    let all = table.all();
    if all.recall() >= 0.95 && table.precision() >= 0.99 {
        ExitCode::SUCCESS
    } else {
        println!("below 0.95 recall or 0.99 precision");
        ExitCode::FAILURE
    }
}
