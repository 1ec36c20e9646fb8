//! `drivebay-pages DIR`: writes what packages hold beside both programs and is made from the code: man pages, from the definitions that
//! they parse their command lines with; the scripts by which shells have them complete a command line; and the agent's configuration
//! as it is installed. A program of its own, so that those that are shipped do without the crates for man pages.

#![cfg_attr(test, allow(clippy::expect_used, clippy::panic, clippy::unwrap_used))]

use std::{env, fs, io, path::Path, process::ExitCode};

use clap::{Command, CommandFactory};
use clap_complete::env::Shells;

mod configuration;
mod man;
mod program;

fn main() -> ExitCode {
    let Some(dir) = env::args_os().nth(1) else {
        eprintln!("drivebay-pages: usage: drivebay-pages DIR");
        return ExitCode::from(2);
    };
    match write_all(Path::new(&dir)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("drivebay-pages: cannot write to {}: {error}", dir.display());
            ExitCode::FAILURE
        }
    }
}

fn write_all(dir: &Path) -> io::Result<()> {
    let (pages, completions) = (dir.join("man"), dir.join("completions"));
    fs::create_dir_all(&pages)?;
    fs::create_dir_all(&completions)?;
    let programs = [
        (drivebay_cli::Cli::command(), program::agent()),
        (
            drivebay_controller::config::Cli::command(),
            program::controller(),
        ),
    ];
    for (command, program) in programs {
        // Without the commit, so that the same definitions make the same pages.
        let command = command.version(env!("CARGO_PKG_VERSION"));
        register(&command, &completions)?;
        man::write(&command, &program, &pages)?;
    }
    fs::write(pages.join("drivebay.toml.5"), configuration::page())?;
    fs::write(dir.join("drivebay.toml"), drivebay_config::packaged())
}

/// The scripts that have the program itself complete: what it prints itself with `COMPLETE=SHELL`, and found in PATH.
fn register(command: &Command, dir: &Path) -> io::Result<()> {
    let name = command.get_name();
    for (shell, file) in [
        ("bash", format!("{name}.bash")),
        ("zsh", format!("_{name}")),
        ("fish", format!("{name}.fish")),
    ] {
        let shells = Shells::builtins();
        let Some(completer) = shells.completer(shell) else {
            return Err(io::Error::other(format!("no completions for {shell}")));
        };
        let mut script = Vec::new();
        completer.write_registration("COMPLETE", name, name, name, &mut script)?;
        fs::write(dir.join(file), script)?;
    }
    Ok(())
}
