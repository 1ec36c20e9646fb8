//! Reads a device and writes a file on it at random places, past the cache, until it is killed.
//!
//! It is a separate process: the process that serves a drive must not wait for it (`drivebay_hwtests::hang`).

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::Duration,
};

use clap::Parser;

const BLOCK: usize = 4096;

/// Puts a load on a drive; for tests.
#[derive(Debug, Parser)]
struct Options {
    /// Is read.
    device: PathBuf,
    /// Is written, one request in eight; its size says how much of both is used.
    file: PathBuf,
    /// Requests at a time.
    #[arg(long, default_value_t = 2)]
    depth: u32,
    /// Milliseconds between two requests.
    #[arg(long, default_value_t = 2)]
    pause: u64,
}

fn open(path: &Path, write: bool) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(write)
        .custom_flags(nix::libc::O_DIRECT)
        .open(path)
}

fn requests(device: &File, file: &File, blocks: u64, pause: Duration) -> io::Result<()> {
    let mut room = vec![0u8; 2 * BLOCK];
    let skip = room.as_ptr().align_offset(BLOCK);
    let block = &mut room[skip..skip + BLOCK];
    loop {
        let at = fastrand::u64(..blocks) * BLOCK as u64;
        if fastrand::u8(..8) == 0 {
            file.write_all_at(block, at)?;
        } else {
            device.read_exact_at(block, at)?;
        }
        #[expect(clippy::disallowed_methods, reason = "the pace of the load")]
        thread::sleep(pause);
    }
}

fn run(options: &Options) -> io::Result<()> {
    let device = open(&options.device, false)?;
    let file = open(&options.file, true)?;
    let blocks = (file.metadata()?.len() / BLOCK as u64).max(1);
    let pause = Duration::from_millis(options.pause);
    thread::scope(|scope| {
        let all: Vec<_> = (0..options.depth)
            .map(|_| scope.spawn(|| requests(&device, &file, blocks, pause)))
            .collect();
        all.into_iter().try_for_each(|one| {
            one.join()
                .unwrap_or_else(|_| Err(io::Error::other("panicked")))
        })
    })
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("drivebay-load: {error}");
            ExitCode::FAILURE
        }
    }
}
