//! Model of a drive: the duration of its requests.
//!
//! | parameter | NVMe | SATA SSD | HDD | why |
//! |---|---|---|---|---|
//! | read of 4 KiB, written before | 75–110 µs | 120–220 µs | 3–5 ms + half a turn, more over the whole drive | data sheets; a turn at 7,200/min takes 8.3 ms |
//! | read ahead or never written | 0.35 of it | 0.5 of it | 0.1–0.3 ms | answered from the drive's memory |
//! | write of 4 KiB | 15–40 µs | 40–90 µs | as a read, two thirds of it | write cache |
//! | flush | 0.02 ms with capacitors, 0.8–2.5 ms without | the same | 8–20 ms | |
//! | bandwidth | 2–6 GB/s read, half of it written | 450–550 MB/s | 120–250 MB/s | |
//! | served at once | 32–128 | 8–32 | 1, sorted: exponent 0.75 | channels; NCQ |
//! | garbage collection | every 10–120 min, 1–20 s, 4–20 times the latency of writes, 2–5 of reads; after heavy writing longer | the same | none | |
//! | spread between drives of a model | ±20 % | ±20 % | ±15 % | fill, age, zone |
//! | spread between minutes | ±8 % (log-normal) | ±10 % | ±10 % | |

use drivebay_model::Media;
use drivebay_smart::slow::{Flow, Slice};
use fastrand::Rng;

use super::load::{Offered, Pattern};

/// A drive model, of which several drives are made.
#[derive(Debug, Clone)]
pub(super) struct Model {
    pub(super) name: String,
    pub(super) media: Media,
    read_ms: f64,
    cached_ms: f64,
    write_ms: f64,
    flush_ms: f64,
    read_bw: f64,
    write_bw: f64,
    parallel: f64,
    collects: bool,
}

pub(super) fn between(rng: &mut Rng, from: f64, to: f64) -> f64 {
    from + (to - from) * rng.f64()
}

/// Returns a standard normal deviate.
pub(super) fn normal(rng: &mut Rng) -> f64 {
    let (a, b) = (rng.f64().max(1e-12), rng.f64());
    (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}

impl Model {
    pub(super) fn draw(rng: &mut Rng, media: Media, number: usize) -> Self {
        let name = format!("{media}-{number}");
        let capacitors = rng.bool();
        match media {
            Media::Nvme => {
                let read_ms = between(rng, 0.075, 0.11);
                let read_bw = between(rng, 2e6, 6e6);
                Self {
                    name,
                    media,
                    read_ms,
                    cached_ms: 0.35 * read_ms,
                    write_ms: between(rng, 0.015, 0.04),
                    flush_ms: if capacitors {
                        0.02
                    } else {
                        between(rng, 0.8, 2.5)
                    },
                    read_bw,
                    write_bw: read_bw / 2.0,
                    parallel: between(rng, 32.0, 128.0),
                    collects: true,
                }
            }
            Media::Ssd => {
                let read_ms = between(rng, 0.12, 0.22);
                Self {
                    name,
                    media,
                    read_ms,
                    cached_ms: 0.5 * read_ms,
                    write_ms: between(rng, 0.04, 0.09),
                    flush_ms: if capacitors {
                        0.05
                    } else {
                        between(rng, 0.8, 2.5)
                    },
                    read_bw: between(rng, 450e3, 550e3),
                    write_bw: between(rng, 350e3, 500e3),
                    parallel: between(rng, 8.0, 32.0),
                    collects: true,
                }
            }
            Media::Hdd => Self {
                name,
                media,
                read_ms: between(rng, 7.0, 11.0),
                cached_ms: between(rng, 0.1, 0.3),
                write_ms: between(rng, 4.5, 7.5),
                flush_ms: between(rng, 8.0, 20.0),
                read_bw: between(rng, 120e3, 250e3),
                write_bw: between(rng, 120e3, 250e3),
                parallel: 1.0,
                collects: false,
            },
        }
    }
}

/// Utilization at which a drive is saturated.
const FULL: f64 = 0.97;

/// One drive of a model.
#[derive(Debug, Clone)]
pub(super) struct Device {
    pub(super) model: Model,
    /// Factor relative to others of its model.
    own: f64,
    /// Seconds until the next garbage collection, and its remaining duration.
    collect_in: f64,
    collecting: f64,
    severity: f64,
    /// Bytes written recently, which bring the next collection nearer.
    noise: f64,
}

/// One second of one direction.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Second {
    pub(super) requests: f64,
    pub(super) bytes: f64,
    pub(super) wait_ms: f64,
}

/// One second of a drive.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seconds {
    pub(super) read: Second,
    pub(super) write: Second,
    pub(super) flushes: f64,
    pub(super) busy_ms: f64,
}

impl Seconds {
    pub(super) fn add(&mut self, more: &Self) {
        for (side, more) in [(&mut self.read, &more.read), (&mut self.write, &more.write)] {
            side.requests += more.requests;
            side.bytes += more.bytes;
            side.wait_ms += more.wait_ms;
        }
        self.flushes += more.flushes;
        self.busy_ms += more.busy_ms;
    }

    /// Returns five seconds as the kernel's counters show them, in whole numbers.
    pub(super) fn counted(&self) -> Slice {
        let flow = |side: &Second| Flow {
            requests: side.requests.round() as u64,
            bytes: side.bytes.round() as u64,
            wait_ms: side.wait_ms.round() as u64,
        };
        Slice {
            millis: 5000,
            reads: flow(&self.read),
            writes: flow(&self.write),
            flushes: self.flushes.round() as u64,
            busy_ms: self.busy_ms.round() as u64,
        }
    }
}

impl Device {
    pub(super) fn draw(rng: &mut Rng, model: &Model) -> Self {
        let spread = if model.media == Media::Hdd { 0.15 } else { 0.2 };
        Self {
            model: model.clone(),
            own: between(rng, 1.0 - spread, 1.0 + spread),
            collect_in: between(rng, 60.0, 3600.0),
            collecting: 0.0,
            severity: 4.0,
            noise: 1.0,
        }
    }

    /// Starts a minute, which differs a little from the last.
    pub(super) fn begin_minute(&mut self, rng: &mut Rng) {
        let spread = if self.model.media == Media::Nvme {
            0.08
        } else {
            0.1
        };
        self.noise = (spread * normal(rng)).exp();
    }

    /// Returns the duration of a request that is alone, and the share of the drive that it occupies.
    fn service(&self, stream: &Offered, slow: f64) -> (f64, f64) {
        let model = &self.model;
        let (base, bandwidth) = match (stream.reads, stream.pattern) {
            (true, Pattern::Random) => (model.read_ms, model.read_bw),
            (true, Pattern::Sequential) => (model.cached_ms, model.read_bw),
            (false, Pattern::Random) => (model.write_ms, model.write_bw),
            (false, Pattern::Sequential) => (model.write_ms.min(model.cached_ms), model.write_bw),
        };
        let base = base * stream.reach;
        let transfer = stream.size / bandwidth;
        let flush = stream.flushed * model.flush_ms;
        let mut alone = base + transfer;
        if self.collecting > 0.0 {
            // Sequential writes leave little garbage.
            alone *= if stream.reads || stream.pattern == Pattern::Sequential {
                self.severity.sqrt()
            } else {
                self.severity
            };
        }
        let factor = slow * self.own * self.noise;
        // A transfer occupies the whole drive, the rest of a request one of its channels.
        let occupied = base / model.parallel + transfer;
        (
            (alone + flush) * factor,
            occupied * factor * (alone / (base + transfer)),
        )
    }

    /// Serves one second. `slow`: factors by which reads and writes take longer.
    pub(super) fn second(
        &mut self,
        rng: &mut Rng,
        streams: &[Offered],
        slow: (f64, f64),
    ) -> Seconds {
        self.collect(rng, streams);
        let services: Vec<(f64, f64)> = streams
            .iter()
            .map(|stream| self.service(stream, if stream.reads { slow.0 } else { slow.1 }))
            .collect();
        let (mut latencies, mut outstanding) = self.balance(streams, &services, 1.0);
        if self.model.media == Media::Hdd && outstanding > 1.0 {
            // The more requests wait, the better a rotating drive sorts them.
            let sorted = outstanding.powf(-0.25).max(0.4);
            (latencies, outstanding) = self.balance(streams, &services, sorted);
        }
        let rates = streams
            .iter()
            .zip(&latencies)
            .map(|(stream, latency)| stream.rate(*latency));
        let rates: Vec<f64> = rates.collect();
        let mut done = Seconds::default();
        let mut total = 0.0;
        for ((rate, latency), stream) in rates.iter().zip(&latencies).zip(streams) {
            let side = if stream.reads {
                &mut done.read
            } else {
                &mut done.write
            };
            side.requests += rate;
            side.bytes += rate * stream.size;
            side.wait_ms += rate * latency;
            done.flushes += rate * stream.flushed * f64::from(u8::from(!stream.reads));
            total += rate;
        }
        // The kernel counts busy time in ticks: a short request counts as half of one.
        done.busy_ms = 1000.0 * (1.0 - (-(outstanding + total * 0.0015)).exp());
        done
    }

    /// Returns the latency of each stream when all share the drive, and the number of outstanding requests. Below saturation the queue
    /// follows from utilization; at saturation all wait until demand equals capacity.
    fn balance(
        &self,
        streams: &[Offered],
        services: &[(f64, f64)],
        sorted: f64,
    ) -> (Vec<f64>, f64) {
        let channels = self.model.parallel;
        let latencies = |full: f64, wait: f64| -> Vec<f64> {
            let busy = full.powf((2.0 * (channels + 1.0)).sqrt() - 1.0) / (1.0 - full);
            let of = services.iter();
            of.map(|(alone, occupied)| {
                let served = if channels > 1.0 {
                    occupied * channels.sqrt()
                } else {
                    *occupied
                };
                alone * sorted.sqrt() + served * sorted * busy + wait
            })
            .collect()
        };
        let used = |latencies: &[f64]| -> f64 {
            let all = streams.iter().zip(services).zip(latencies);
            all.map(|((stream, (_, occupied)), latency)| {
                stream.rate(*latency) * occupied * sorted / 1000.0
            })
            .sum()
        };
        let outstanding = |latencies: &[f64]| -> f64 {
            let all = streams.iter().zip(latencies);
            all.map(|(stream, latency)| stream.rate(*latency) * latency / 1000.0)
                .sum()
        };
        let mut solved = latencies(FULL, 0.0);
        if used(&solved) <= FULL {
            let (mut low, mut high) = (0.0, FULL);
            for _ in 0..25 {
                let full = f64::midpoint(low, high);
                solved = latencies(full, 0.0);
                if used(&solved) > full {
                    low = full
                } else {
                    high = full
                }
            }
        } else {
            let (mut low, mut high) = (0.0, 60_000.0);
            for _ in 0..40 {
                let wait = f64::midpoint(low, high);
                solved = latencies(FULL, wait);
                if used(&solved) > FULL {
                    low = wait
                } else {
                    high = wait
                }
            }
        }
        let depth = outstanding(&solved);
        (solved, depth)
    }

    fn collect(&mut self, rng: &mut Rng, streams: &[Offered]) {
        if !self.model.collects {
            return;
        }
        let written: f64 = streams
            .iter()
            .filter(|stream| !stream.reads)
            .map(|stream| stream.rate(self.model.write_ms) * stream.size)
            .sum();
        if self.collecting > 0.0 {
            self.collecting -= 1.0;
            return;
        }
        self.collect_in -= 1.0 + (written / 100e6).min(4.0);
        if self.collect_in <= 0.0 {
            self.collect_in = between(rng, 600.0, 7200.0);
            self.collecting = between(rng, 1.0, 20.0);
            self.severity = between(rng, 4.0, 20.0);
        }
    }
}
