//! Fuzz targets, and their replay in tests: the seeds of each target and a fixed number of mutated ones, the same in each run. libFuzzer
//! runs the same targets in `hwtests/fuzz`.

#![allow(clippy::panic, reason = "a property that does not hold is a panic")]

/// A parser of untrusted bytes, with the properties of its results.
pub struct Target {
    /// Name of the target in `hwtests/fuzz`.
    pub name: &'static str,
    /// Must panic if a property does not hold.
    pub run: fn(&[u8]),
    /// Initial inputs, including those that found a defect.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Number of mutated seeds that a test runs.
    pub replays: usize,
}

/// Returns texts as seeds.
pub fn seeds<T: AsRef<[u8]>>(texts: impl IntoIterator<Item = T>) -> Vec<Vec<u8>> {
    texts
        .into_iter()
        .map(|text| text.as_ref().to_vec())
        .collect()
}

/// True if the names of all targets are distinct.
pub fn names_differ(targets: &[Target]) -> bool {
    let names: std::collections::BTreeSet<_> = targets.iter().map(|target| target.name).collect();
    names.len() == targets.len()
}

pub fn replay_all(targets: &[Target]) {
    targets.iter().for_each(replay);
}

/// Runs the seeds and `target.replays` mutations of them. Panics if a property does not hold.
fn replay(target: &Target) {
    let seeds = (target.seeds)();
    assert!(!seeds.is_empty(), "{} has no seeds", target.name);
    let mut random = fastrand::Rng::with_seed(14);
    for seed in &seeds {
        checked(target, seed);
    }
    for _ in 0..target.replays {
        let mut bytes = random.choice(&seeds).cloned().unwrap_or_default();
        for _ in 0..random.usize(1..8) {
            change(&mut bytes, &seeds, &mut random);
        }
        checked(target, &bytes);
    }
}

/// Runs one input, and names it in the panic if the target panics; it should become a seed then.
fn checked(target: &Target, input: &[u8]) {
    if std::panic::catch_unwind(|| (target.run)(input)).is_err() {
        panic!("{}: this input: {}", target.name, input.escape_ascii());
    }
}

/// Applies one random mutation of a kind that parsers tend to mishandle.
fn change(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut fastrand::Rng) {
    const ODD: [u8; 8] = [0, 1, 0x7f, 0x80, 0xff, b'\n', b'"', b'9'];
    const NUMBERS: [&[u8]; 4] = [
        b"18446744073709551615",
        b"-1",
        b"9223372036854775808",
        b"1e999",
    ];
    let at = random.usize(..=bytes.len());
    let len = random.usize(..=(bytes.len() - at).min(64));
    match random.u8(..9) {
        0 if at < bytes.len() => bytes[at] ^= 1 << random.u8(..8),
        1 if at < bytes.len() => bytes[at] = random.choice(ODD).unwrap_or(0),
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(at..at + len)),
        4 => {
            let copy = bytes[at..at + len].to_vec();
            let to = random.usize(..=bytes.len());
            bytes.splice(to..to, copy);
        }
        5 => {
            let other = random.choice(seeds).map_or(&[][..], Vec::as_slice);
            let from = random.usize(..=other.len());
            let part = &other[from..(from + 64).min(other.len())];
            bytes.splice(at..at + len, part.iter().copied());
        }
        6 => {
            let number = random.choice(NUMBERS).unwrap_or_default();
            bytes.splice(at..at + len.min(8), number.iter().copied());
        }
        7 => {
            let value = random.u64(..) >> random.u8(..64);
            let end = (at + 8).min(bytes.len());
            let raw = value.to_le_bytes();
            bytes[at..end].copy_from_slice(&raw[..end - at]);
        }
        _ => bytes.insert(at, random.u8(..)),
    }
}
