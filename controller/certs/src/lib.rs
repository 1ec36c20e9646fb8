//! `drivebay-controller certs`: a private CA in a directory, and the certificates of controllers and nodes.
//!
//! ```text
//! DIR/ca.pem ca-key.pem                       the CA; only the first one ever leaves DIR
//!     controller.pem controller-key.pem       the controller's, for servers
//!     nodes/NAME/ca.pem node.pem node-key.pem a node's, for clients: all that the node needs
//! ```
//!
//! Only `--renew` overwrites files, and nothing overwrites the CA: without its key no node can be added, and with
//! another CA in its place no node can connect. Keys have mode 0600, created directories 0700. No certificate
//! outlives its CA, since TLS does not check the validity of a trusted CA itself.

#![allow(
    missing_docs,
    reason = "a field's name and type say what it is; a comment adds a unit, a rule or a reason"
)]

pub mod args;
mod authority;
pub mod cluster;
#[cfg(test)]
mod cluster_tests;
mod error;
mod names;
mod place;

use std::{path::Path, time::SystemTime};

use drivebay_common::tls::UtcTime;

use args::{CertsCommand, ControllerArgs, InitArgs, NodeArgs};
use authority::{Authority, Copied, Subject};
pub use error::CertsError;
pub use names::Name;
use place::{Leaf, Pair, exists};

const CA: &str = "ca.pem";
const NODES: &str = "nodes";

/// Runs the command. Returns a summary for the operator: the files made, and the next steps.
///
/// # Errors
/// [`CertsError`]. Files made before the error are complete and stay; the same command run again continues from there.
pub fn run(command: &CertsCommand) -> Result<String, CertsError> {
    let now = SystemTime::now();
    match command {
        CertsCommand::Init(args) => init(args, now),
        CertsCommand::Controller(args) => controller(args, now),
        CertsCommand::Node(args) => node(args, now),
    }
}

fn init(args: &InitArgs, now: SystemTime) -> Result<String, CertsError> {
    let dir = &args.dir;
    let (ca, pair) = (Pair::ca(dir), Pair::controller(dir));
    let mut summary = Summary(place::private_dir(dir)?);
    let fresh = !exists(&ca.certificate)? && !exists(&ca.key)?;
    let authority = if fresh {
        // An existing certificate was not signed by the CA that would be made.
        pair.refuse_if_there(CertsError::controller_of_another_ca)?;
        let authority = Authority::make(dir, args.ca_days, now)?;
        summary.made(&ca, authority.until());
        authority
    } else {
        let authority = Authority::load(dir, now)?;
        pair.refuse_if_there(CertsError::init_again)?;
        let (path, until) = (ca.certificate.display(), UtcTime(authority.until()));
        summary.line(format!(
            "{path} already exists, valid until {until}; it was not changed"
        ));
        authority
    };
    let names = match args.names.as_slice() {
        [] => Name::defaults(),
        given => given.to_vec(),
    };
    let leaf = authority.issue(&Subject::Controller(&names), args.days, now)?;
    pair.create(&leaf)?;
    summary.controller(dir, &pair, &names, &leaf);
    summary.line(format!(
        "Store {} offline, with a backup. Anyone with this key can impersonate any node; without it, no node can be added.",
        ca.key.display()
    ));
    summary.line(format!(
        "Next, for every node: drivebay-controller certs node NODE_ID --dir {}",
        dir.display()
    ));
    Ok(summary.0)
}

fn controller(args: &ControllerArgs, now: SystemTime) -> Result<String, CertsError> {
    let authority = Authority::load(&args.dir, now)?;
    let pair = Pair::controller(&args.dir);
    pair.check(args.renew)?;
    let names = match args.names.as_slice() {
        [] if exists(&pair.certificate)? => Name::of_certificate(&pair.certificate)?,
        [] => Name::defaults(),
        given => given.to_vec(),
    };
    let leaf = authority.issue(&Subject::Controller(&names), args.days, now)?;
    pair.write(&leaf, args.renew)?;
    let mut summary = Summary(String::new());
    summary.controller(&args.dir, &pair, &names, &leaf);
    Ok(summary.0)
}

fn node(args: &NodeArgs, now: SystemTime) -> Result<String, CertsError> {
    let own_dir = || args.dir.join(NODES).join(&args.name);
    let out = args.out.clone().unwrap_or_else(own_dir);
    let authority = Authority::load(&args.dir, now)?;
    let pair = Pair::node(&out);
    pair.check(args.renew)?;
    if exists(&pair.certificate)? {
        authority::refuse_another_nodes(&pair.certificate, &args.name)?;
    }
    let mut summary = Summary(place::private_dir(&out)?);
    let ca = out.join(CA);
    if authority.copy_to(&ca)? == Copied::Differs {
        let of = args.dir.join(CA);
        summary.line(format!(
            "{} differs from {}; it was not changed",
            ca.display(),
            of.display()
        ));
    }
    let leaf = authority.issue(&Subject::Node(&args.name), args.days, now)?;
    pair.write(&leaf, args.renew)?;
    summary.leaf(&pair, &leaf);
    summary.line(format!(
        "The agent of node {} needs ca.pem, node.pem and node-key.pem of {}",
        args.name,
        out.display()
    ));
    Ok(summary.0)
}

/// Text printed when the command is done.
struct Summary(String);

impl Summary {
    fn line(&mut self, line: String) {
        self.0.push_str(&line);
        self.0.push('\n');
    }

    fn made(&mut self, pair: &Pair, until: SystemTime) {
        self.line(format!(
            "made {} and {}, valid until {}",
            pair.certificate.display(),
            pair.key.display(),
            UtcTime(until)
        ));
    }

    fn leaf(&mut self, pair: &Pair, leaf: &Leaf) {
        self.made(pair, leaf.until);
        if leaf.shortened {
            self.line("that is less than asked for: no certificate outlives its CA".to_owned());
        }
    }

    fn controller(&mut self, dir: &Path, pair: &Pair, names: &[Name], leaf: &Leaf) {
        self.leaf(pair, leaf);
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        self.line(format!(
            "The controller needs ca.pem, controller.pem and controller-key.pem of {}",
            dir.display()
        ));
        self.line(format!("Agents can dial it as {}", names.join(", ")));
    }
}
