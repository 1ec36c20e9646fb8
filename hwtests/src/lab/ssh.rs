//! Connection to a guest: OpenSSH's client over one master connection. Every call has a time limit.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{
    Trouble,
    children::{self, Process},
    wait,
};

/// A command's deadline is enforced in the guest; the client is killed this much later.
const GRACE: Duration = Duration::from_secs(15);
const SHORT: Duration = Duration::from_secs(20);

/// Result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// Exit code; -1 if ssh itself was ended by a signal.
    pub code: i32,
    /// Standard output; invalid UTF-8 is replaced.
    pub stdout: String,
    /// Standard error; invalid UTF-8 is replaced.
    pub stderr: String,
}

impl Ran {
    /// True if it succeeded.
    pub fn ok(&self) -> bool {
        self.code == 0
    }
}

/// A master connection to a guest, over which each command opens a session. Drop ends it.
#[derive(Debug)]
pub struct Ssh {
    control: PathBuf,
    log: PathBuf,
    // Killed with this process, which ends every session.
    _master: Process,
}

impl Ssh {
    /// True if an SSH server greets on the port, which costs a booting guest less than a login.
    pub fn greets(port: u16) -> bool {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let limit = Duration::from_secs(5);
        let Ok(mut stream) = TcpStream::connect_timeout(&address, limit) else {
            return false;
        };
        let mut greeting = [0; 4];
        stream.set_read_timeout(Some(limit)).is_ok()
            && stream.read_exact(&mut greeting).is_ok()
            && &greeting == b"SSH-"
    }

    /// Logs in, retrying until the deadline.
    ///
    /// # Errors
    /// Not within the deadline.
    pub fn connect(
        port: u16,
        key: &Path,
        control: &Path,
        log: &Path,
        limit: Duration,
    ) -> Result<Self, Trouble> {
        let _ = std::fs::remove_file(control);
        let mut args = common(control);
        args.extend(
            [
                "-M",
                "-N",
                "-o",
                "ControlPersist=no",
                "-o",
                "IdentitiesOnly=yes",
            ]
            .map(str::to_owned),
        );
        args.extend([
            "-i".to_owned(),
            key.display().to_string(),
            "-p".to_owned(),
            port.to_string(),
            "root@127.0.0.1".to_owned(),
        ]);
        let mut master = Process::start("ssh", &args, log)?;
        let start = Instant::now();
        while !control.exists() {
            if let Some(status) = master.ended() {
                return Err(Trouble::new(format!(
                    "ssh into the guest ended with {status}"
                )));
            }
            if start.elapsed() > limit {
                return Err(Trouble::new(format!(
                    "no ssh into the guest within {} s",
                    limit.as_secs()
                )));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(Self {
            control: control.to_owned(),
            log: log.to_owned(),
            _master: master,
        })
    }

    fn client(&self) -> Result<Command, Trouble> {
        let mut command = children::mortal("ssh")?;
        command.args(common(&self.control));
        Ok(command)
    }

    /// Starts a shell command whose output the caller reads while it runs.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn(&self, script: &str) -> Result<Child, Trouble> {
        let mut command = self.client()?;
        command
            .arg("root@127.0.0.1")
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        children::start(command).map_err(|error| Trouble::doing("starting ssh", &error))
    }

    /// Runs a shell command with this standard input; it is killed in the guest at its deadline.
    ///
    /// # Errors
    /// The connection is lost, or the deadline passed. A command that fails is not an error.
    pub fn run(
        &self,
        script: &str,
        input: &[u8],
        limit: Duration,
    ) -> Result<(Ran, Vec<u8>), Trouble> {
        let bounded = format!(
            // timeout(1) kills itself with its process group; the shell around it survives to return the status.
            "timeout --signal=KILL {:.1} sh -c {}; exit $?",
            limit.as_secs_f64(),
            quote(script)
        );
        let start = Instant::now();
        let mut child = self.spawn(&bounded)?;
        let (mut stdin, mut stdout, mut stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let ended = thread::scope(|scope| {
            scope.spawn(move || {
                // Fails for a command that does not read its input.
                if let Some(stdin) = &mut stdin {
                    let _ = stdin.write_all(input);
                }
            });
            let out = scope.spawn(move || read_all(stdout.as_mut()));
            let err = scope.spawn(move || read_all(stderr.as_mut()));
            let status = wait::poll(limit + GRACE, || child.try_wait().transpose());
            if status.is_none() {
                let _ = child.kill();
                let _ = child.wait();
            }
            (
                status,
                out.join().unwrap_or_default(),
                err.join().unwrap_or_default(),
            )
        });
        let (status, out, err) = ended;
        let what = |how: &str| {
            Trouble::new(format!(
                "in the guest: {script}\n  {how}\n  stdout: {}\n  stderr: {}\n  logs: {}",
                String::from_utf8_lossy(&out).trim_end(),
                String::from_utf8_lossy(&err).trim_end(),
                self.log.parent().unwrap_or(&self.log).display()
            ))
        };
        let code = match status {
            Some(Ok(status)) => status.code().unwrap_or(-1),
            Some(Err(error)) => return Err(what(&format!("cannot be waited for: {error}"))),
            None => return Err(what("the guest does not answer")),
        };
        // 137 means killed; only after the deadline was it by timeout.
        if code == 137 && start.elapsed() >= limit {
            return Err(what(&format!(
                "not done within {:.1} s",
                limit.as_secs_f64()
            )));
        }
        if code == 255 {
            return Err(what("the connection to the guest is lost"));
        }
        let ran = Ran {
            code,
            stdout: String::from_utf8_lossy(&out).into_owned(),
            stderr: String::from_utf8_lossy(&err).into_owned(),
        };
        Ok((ran, out))
    }

    /// Runs an interactive shell on this terminal until it ends, in this process's group, which owns the terminal.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn interactive(&self) -> Result<(), Trouble> {
        Command::new("ssh")
            .args(common(&self.control))
            .args(["-t", "root@127.0.0.1"])
            .status()
            .map(drop)
            .map_err(|error| Trouble::doing("starting ssh", &error))
    }

    /// Forwards a socket of the guest to a socket here.
    ///
    /// # Errors
    /// ssh refused; the error has its message.
    pub fn forward(&self, here: &Path, there: &Path) -> Result<(), Trouble> {
        let mut command = self.client()?;
        command
            .args(["-O", "forward", "-o", "StreamLocalBindUnlink=yes", "-L"])
            .arg(format!("{}:{}", here.display(), there.display()))
            .arg("root@127.0.0.1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = children::start(command)?;
        let status = wait::poll(SHORT, || child.try_wait().transpose());
        if status.is_none() {
            let _ = child.kill();
        }
        match status {
            Some(Ok(status)) if status.success() => Ok(()),
            _ => Err(Trouble::new(format!(
                "forwarding {}: {}",
                there.display(),
                String::from_utf8_lossy(&read_all(child.stderr.as_mut()))
            ))),
        }
    }
}

fn common(control: &Path) -> Vec<String> {
    let mut args = vec!["-F".to_owned(), "/dev/null".to_owned()];
    for option in [
        "BatchMode=yes",
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=/dev/null",
        "LogLevel=ERROR",
        "ServerAliveInterval=15",
        "ServerAliveCountMax=8",
        "StreamLocalBindUnlink=yes",
    ] {
        args.extend(["-o".to_owned(), option.to_owned()]);
    }
    args.extend(["-S".to_owned(), control.display().to_string()]);
    args
}

fn read_all(from: Option<&mut impl Read>) -> Vec<u8> {
    let mut all = Vec::new();
    if let Some(from) = from {
        let _ = from.read_to_end(&mut all);
    }
    all
}

/// Quotes a word for a shell.
pub fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
