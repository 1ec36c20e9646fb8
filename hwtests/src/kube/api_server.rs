//! A real API server without a cluster: etcd and kube-apiserver, for tests of what is written to it.

use std::{
    env, fs,
    net::TcpListener,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;

use super::wait;
use crate::{Trouble, children::Process, tools};

/// Limit for the first answer.
const START_LIMIT: Duration = Duration::from_secs(120);
const TOKEN: &str = "a-test-of-this-machine";

/// etcd and kube-apiserver on free ports of 127.0.0.1; both end when this is dropped.
#[derive(Debug)]
pub struct ApiServer {
    programs: PathBuf,
    kubeconfig: PathBuf,
    _processes: [Process; 2],
}

impl ApiServer {
    /// Starts both with their files in `dir`, from the programs of the cluster that hwtests/kubernetes started.
    ///
    /// # Errors
    /// `DRIVEBAY_CLUSTER` is not set, a program cannot be started, or the API server does not answer in time: with its log.
    pub fn start(dir: &Path) -> Result<Self, Trouble> {
        let cluster = env::var("DRIVEBAY_CLUSTER").map_err(|_| {
            Trouble::new(
                "DRIVEBAY_CLUSTER is not set: run hwtests/kubernetes, which has the programs",
            )
        })?;
        let programs = Path::new(&cluster).join("bin");
        let [clients, peers, port] = free_ports()?;
        let file = |name: &str| dir.join(name).display().to_string();
        tools::run(
            "openssl",
            &["genrsa", "-out", &file("accounts.key"), "2048"],
        )?;
        fs::write(
            dir.join("tokens.csv"),
            format!("{TOKEN},admin,1,system:masters\n"),
        )?;
        let start = |name: &str, args: &[String]| {
            let program = programs.join(name).display().to_string();
            Process::start(&program, args, &dir.join(format!("{name}.log")))
        };
        let etcd = start(
            "etcd",
            &[
                format!("--data-dir={}", file("etcd")),
                "--unsafe-no-fsync".to_owned(),
                "--log-level=warn".to_owned(),
                format!("--listen-client-urls=http://127.0.0.1:{clients}"),
                format!("--advertise-client-urls=http://127.0.0.1:{clients}"),
                format!("--listen-peer-urls=http://127.0.0.1:{peers}"),
            ],
        )?;
        let api = start(
            "kube-apiserver",
            &[
                format!("--etcd-servers=http://127.0.0.1:{clients}"),
                "--bind-address=127.0.0.1".to_owned(),
                "--endpoint-reconciler-type=none".to_owned(),
                format!("--secure-port={port}"),
                format!("--cert-dir={}", file("certs")),
                format!("--token-auth-file={}", file("tokens.csv")),
                "--authorization-mode=AlwaysAllow".to_owned(),
                "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
                "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
                format!("--service-account-key-file={}", file("accounts.key")),
                format!(
                    "--service-account-signing-key-file={}",
                    file("accounts.key")
                ),
            ],
        )?;
        // The certificate is self-signed, and no other host has this address.
        let kubeconfig = dir.join("kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: it\n\
             clusters: [{{name: it, cluster: {{server: 'https://127.0.0.1:{port}', insecure-skip-tls-verify: true}}}}]\n\
             users: [{{name: it, user: {{token: {TOKEN}}}}}]\n\
             contexts: [{{name: it, context: {{cluster: it, user: it}}}}]\n"
        );
        fs::write(&kubeconfig, text)?;
        let this = Self {
            programs,
            kubeconfig,
            _processes: [api, etcd],
        };
        let ready = || this.kubectl(&["get", "--raw", "/readyz"]).ok();
        match wait::poll(START_LIMIT, ready) {
            Some(_) => Ok(this),
            None => Err(Trouble::new(
                fs::read_to_string(dir.join("kube-apiserver.log")).unwrap_or_default(),
            )),
        }
    }

    /// Returns the path of the clients' kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Runs kubectl; returns the output.
    ///
    /// # Errors
    /// kubectl failed; the error has the output.
    pub fn kubectl(&self, words: &[&str]) -> Result<String, Trouble> {
        let kubectl = self.programs.join("kubectl").display().to_string();
        let config = format!("--kubeconfig={}", self.kubeconfig.display());
        tools::run(&kubectl, &[&[config.as_str()], words].concat())
    }

    /// Returns the items of a list.
    ///
    /// # Errors
    /// kubectl failed.
    pub fn list(&self, resource: &str) -> Result<Vec<Value>, Trouble> {
        let text = self.kubectl(&["get", resource, "--output", "json"])?;
        let mut list: Value = serde_json::from_str(&text)
            .map_err(|error| Trouble::doing(format!("reading the list of {resource}"), &error))?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            _ => Err(Trouble::new(format!("no list of {resource}"))),
        }
    }

    /// Returns the number of requests that write objects of this resource, failed ones too, from the API server's metrics.
    ///
    /// # Errors
    /// kubectl failed.
    pub fn writes(&self, resource: &str) -> Result<u64, Trouble> {
        let page = self.kubectl(&["get", "--raw", "/metrics"])?;
        let of = format!("resource=\"{resource}\"");
        let verbs = ["APPLY", "DELETE", "PATCH", "POST", "PUT"];
        let verbs = verbs.map(|verb| format!("verb=\"{verb}\""));
        let counts = page
            .lines()
            .filter(|line| line.starts_with("apiserver_request_total{") && line.contains(&of))
            .filter(|line| verbs.iter().any(|verb| line.contains(verb)))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(counts.sum::<f64>() as u64)
    }
}

/// Returns free ports of 127.0.0.1, each different: every listener is kept until all are bound. Another process may bind one of them
/// before it is used.
fn free_ports<const N: usize>() -> Result<[u16; N], Trouble> {
    let mut listeners = Vec::new();
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        *port = listener.local_addr()?.port();
        listeners.push(listener);
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn free_ports_are_different() {
        let ports: [u16; 200] = free_ports().unwrap();
        assert_eq!(BTreeSet::from(ports).len(), ports.len());
    }
}
