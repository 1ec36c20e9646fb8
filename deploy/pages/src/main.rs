//! `drivebay-pages DIR`: writes man pages and shell completions of both programs, from the definitions that they parse their
//! command lines with. A program of its own, so that those that are shipped do without the crates for it.

use std::{env, fs, io, path::Path, process::ExitCode};

use clap::{Command, CommandFactory};
use clap_complete::{
    Shell::{Bash, Fish, Zsh},
    generate_to,
};

fn main() -> ExitCode {
    let Some(dir) = env::args_os().nth(1) else {
        eprintln!("drivebay-pages: usage: drivebay-pages DIR");
        return ExitCode::from(2);
    };
    let programs = [
        drivebay_cli::Cli::command(),
        drivebay_controller::config::Cli::command(),
    ];
    for program in programs {
        if let Err(error) = write(program, Path::new(&dir)) {
            eprintln!("drivebay-pages: cannot write to {}: {error}", dir.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn write(program: Command, dir: &Path) -> io::Result<()> {
    let (man, completions) = (dir.join("man"), dir.join("completions"));
    fs::create_dir_all(&man)?;
    fs::create_dir_all(&completions)?;
    // Without the commit, so that the same definitions make the same pages. Pages wrap by themselves.
    let program = program.version(env!("CARGO_PKG_VERSION"));
    let name = program.get_name().to_owned();
    for shell in [Bash, Zsh, Fish] {
        let file = generate_to(shell, &mut program.clone(), &name, &completions)?;
        if shell == Bash {
            // clap_complete 4.6.11 takes the hyphen in a program's name for the beginning of a subcommand, in half the places.
            let wrong = name.replace('-', "__subcmd__");
            let text = fs::read_to_string(&file)?.replace(&wrong, &name.replace('-', "__"));
            fs::write(file, text)?;
        }
    }
    clap_mangen::generate_to(program, &man)?;
    for page in fs::read_dir(man)? {
        let page = page?.path();
        fs::write(&page, as_written(&fs::read_to_string(&page)?))?;
    }
    Ok(())
}

/// Examples and exit codes stand behind a command's help as they are to be seen: their lines are not filled.
fn as_written(page: &str) -> String {
    page.replace("\n.SH EXTRA\n", "\n.SH NOTES\n.nf\n")
        .replace("\n.SH VERSION\n", "\n.fi\n.SH VERSION\n")
}
