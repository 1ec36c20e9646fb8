//! All fuzz targets of agent and controller in one libFuzzer program, since linking it takes minutes: `DRIVEBAY_FUZZ_TARGET`
//! says which one runs (`list`: their names are printed), `DRIVEBAY_FUZZ_SEEDS` in which directory its seeds are put.

#![no_main]

use std::{env, fs, path::Path, sync::OnceLock};

use libfuzzer_sys::fuzz_target;

type Run = fn(&[u8]);

static RUN: OnceLock<Run> = OnceLock::new();

fuzz_target!(init: choose(), |data: &[u8]| {
    if let Some(run) = RUN.get() {
        run(data);
    }
});

/// Name, what is run, seeds.
type Named = (&'static str, Run, fn() -> Vec<Vec<u8>>);

fn targets() -> Vec<Named> {
    let agent = drivebay_agent::fuzzing::targets().into_iter();
    let controller = drivebay_controller::fuzzing::targets().into_iter();
    let agent = agent.map(|target| (target.name, target.run, target.seeds));
    let controller = controller.map(|target| (target.name, target.run, target.seeds));
    agent.chain(controller).collect()
}

fn choose() {
    let wanted = env::var("DRIVEBAY_FUZZ_TARGET").unwrap_or_default();
    if wanted == "list" {
        for (name, ..) in targets() {
            println!("{name}");
        }
        std::process::exit(0);
    }
    let Some((_, run, seeds)) = targets().into_iter().find(|(name, ..)| *name == wanted) else {
        eprintln!("there is no target {wanted:?}; DRIVEBAY_FUZZ_TARGET=list names them all");
        std::process::exit(2);
    };
    if let Some(directory) = env::var_os("DRIVEBAY_FUZZ_SEEDS") {
        for (number, seed) in seeds().iter().enumerate() {
            let path = Path::new(&directory).join(format!("seed-{number}"));
            fs::write(path, seed).expect("the directory of the seeds is writable");
        }
    }
    RUN.get_or_init(|| run);
}
