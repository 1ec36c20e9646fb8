//! `drivebay-controller certs kubernetes`: the cluster's certificates, created by the first pod that finds none.
//!
//! A pod reads the stored objects, has [`cluster::plan`] decide, and writes the result. Each write requires the version that
//! was read, so that only one of several concurrent pods succeeds; the others read again and keep its result.

use std::{
    future::Future,
    time::{Duration, SystemTime},
};

use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
};
use kube::{
    Api, Client, Resource,
    api::{ObjectMeta, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::certs::{
    CertsError,
    args::KubernetesArgs,
    cluster::{self, CA, CERTIFICATE, KEY, Plan, PlanError, Stored, TlsSecret},
};

/// Most attempts. Concurrent pods need at most as many as there are pods; beyond that, another writer interferes.
const ATTEMPTS: usize = 16;
/// Timeout of the whole command. The kubelet runs it again later.
const DEADLINE: Duration = Duration::from_secs(60);

/// The certificates cannot be created or stored.
#[derive(Debug, thiserror::Error)]
pub enum CertificatesError {
    #[error(
        "this is not a pod with a ServiceAccount token; the command is for the chart's init container, on a host see `certs init`"
    )]
    NotAPod(#[source] kube::config::InClusterError),
    #[error("cannot set up a client of the API server")]
    Client(#[source] Box<kube::Error>),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("cannot read {kind} {name}")]
    Read {
        kind: &'static str,
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("cannot write {kind} {name}")]
    Write {
        kind: &'static str,
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error(
        "Secret {secret} has no {key} in PEM form; correct it, or delete it, and a new one is created"
    )]
    Incomplete { secret: String, key: &'static str },
    #[error(
        "another writer changed the certificates {ATTEMPTS} times while they were written; find out what else writes Secret {secret}"
    )]
    Contended { secret: String },
    #[error("the API server did not answer within {} s", DEADLINE.as_secs())]
    Late,
    #[error(transparent)]
    Files(#[from] CertsError),
}

/// Creates the cluster's certificates where they are missing, and writes the controller's files into `args.out`. Returns a summary.
///
/// # Errors
/// [`CertificatesError`]. Objects written before the error are complete and stay; the same command run again continues from there.
pub async fn certificates(args: &KubernetesArgs) -> Result<String, CertificatesError> {
    // KUBECONFIG is ignored: it may name another cluster.
    let config = kube::Config::incluster().map_err(CertificatesError::NotAPod)?;
    let client =
        Client::try_from(config).map_err(|error| CertificatesError::Client(Box::new(error)))?;
    let plan = tokio::time::timeout(DEADLINE, keep(&Namespace(client), args)).await;
    let plan = plan.map_err(|_| CertificatesError::Late)??;
    cluster::write(&args.out, &plan.controller)?;
    let secret = &args.secret;
    Ok(match &plan.reason {
        None => format!("kept the certificate in Secret {secret}\n"),
        Some(reason) => format!("created a certificate in Secret {secret}: {reason}\n"),
    })
}

/// Secrets and ConfigMaps of one namespace.
trait Objects {
    fn secret(&self, name: &str) -> impl Future<Output = Result<Option<Secret>, kube::Error>>;
    fn config_map(
        &self,
        name: &str,
    ) -> impl Future<Output = Result<Option<ConfigMap>, kube::Error>>;
    /// Creates the object, or replaces the version that was read.
    fn put_secret(&self, secret: &Secret) -> impl Future<Output = Result<(), kube::Error>>;
    fn put_config_map(&self, map: &ConfigMap) -> impl Future<Output = Result<(), kube::Error>>;
}

/// Objects of this pod's namespace.
struct Namespace(Client);

impl Objects for Namespace {
    async fn secret(&self, name: &str) -> Result<Option<Secret>, kube::Error> {
        Api::default_namespaced(self.0.clone()).get_opt(name).await
    }

    async fn config_map(&self, name: &str) -> Result<Option<ConfigMap>, kube::Error> {
        Api::default_namespaced(self.0.clone()).get_opt(name).await
    }

    async fn put_secret(&self, secret: &Secret) -> Result<(), kube::Error> {
        put(&Api::default_namespaced(self.0.clone()), secret).await
    }

    async fn put_config_map(&self, map: &ConfigMap) -> Result<(), kube::Error> {
        put(&Api::default_namespaced(self.0.clone()), map).await
    }
}

async fn put<K>(api: &Api<K>, object: &K) -> Result<(), kube::Error>
where
    K: Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let (meta, how) = (object.meta(), PostParams::default());
    match (&meta.resource_version, &meta.name) {
        (Some(_), Some(name)) => api.replace(name, &how, object).await?,
        _ => api.create(&how, object).await?,
    };
    Ok(())
}

/// True if another pod was faster: the object exists, has another version, or was deleted.
fn is_lost(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 404 | 409))
}

async fn keep(objects: &impl Objects, args: &KubernetesArgs) -> Result<Plan, CertificatesError> {
    for _ in 0..ATTEMPTS {
        if let Some(plan) = attempt(objects, args).await? {
            return Ok(plan);
        }
    }
    Err(CertificatesError::Contended {
        secret: args.secret.clone(),
    })
}

/// Runs one attempt. None if an object was changed between its read and its write.
async fn attempt(
    objects: &impl Objects,
    args: &KubernetesArgs,
) -> Result<Option<Plan>, CertificatesError> {
    // Read in the reverse of the write order, so that an object that is read later is at least as new.
    let map = match &args.ca_config_map {
        None => None,
        Some(name) => {
            let read = objects.config_map(name).await;
            read.map_err(cannot_read("ConfigMap", name))?
        }
    };
    let controller = objects.secret(&args.secret).await;
    let controller = controller.map_err(cannot_read("Secret", &args.secret))?;
    let nodes_ca = objects.secret(&args.nodes_ca_secret).await;
    let nodes_ca = nodes_ca.map_err(cannot_read("Secret", &args.nodes_ca_secret))?;
    let stored = Stored {
        controller: contents(controller.as_ref(), &args.secret)?,
        nodes_ca: contents(nodes_ca.as_ref(), &args.nodes_ca_secret)?,
        published: map
            .as_ref()
            .and_then(|map| map.data.as_ref()?.get(CA).cloned()),
    };
    let plan = cluster::plan(args, &stored, SystemTime::now())?;
    if let Some(ca) = &plan.nodes_ca {
        let name = &args.nodes_ca_secret;
        let put = objects.put_secret(&filled(nodes_ca, name, ca)).await;
        if !written(put, "Secret", name)? {
            return Ok(None);
        }
    }
    if plan.reason.is_some() {
        let filled = filled(controller, &args.secret, &plan.controller);
        let put = objects.put_secret(&filled).await;
        if !written(put, "Secret", &args.secret)? {
            return Ok(None);
        }
    }
    if let Some(name) = args.ca_config_map.as_ref().filter(|_| plan.publish) {
        let published = published(map, name, &plan.controller.ca);
        let put = objects.put_config_map(&published).await;
        if !written(put, "ConfigMap", name)? {
            return Ok(None);
        }
    }
    Ok(Some(plan))
}

/// Returns true if the object was written, and false if another pod was faster.
fn written(
    put: Result<(), kube::Error>,
    kind: &'static str,
    name: &str,
) -> Result<bool, CertificatesError> {
    match put {
        Ok(()) => Ok(true),
        Err(error) if is_lost(&error) => Ok(false),
        Err(source) => Err(CertificatesError::Write {
            kind,
            name: name.to_owned(),
            source: Box::new(source),
        }),
    }
}

fn cannot_read(kind: &'static str, name: &str) -> impl FnOnce(kube::Error) -> CertificatesError {
    move |source| CertificatesError::Read {
        kind,
        name: name.to_owned(),
        source: Box::new(source),
    }
}

fn contents(secret: Option<&Secret>, name: &str) -> Result<Option<TlsSecret>, CertificatesError> {
    let Some(secret) = secret else {
        return Ok(None);
    };
    let pem = |key: &'static str| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(key));
        bytes
            .and_then(|bytes| String::from_utf8(bytes.0.clone()).ok())
            .ok_or_else(|| CertificatesError::Incomplete {
                secret: name.to_owned(),
                key,
            })
    };
    Ok(Some(TlsSecret {
        ca: pem(CA)?,
        certificate: pem(CERTIFICATE)?,
        key: pem(KEY)?,
    }))
}

fn filled(existing: Option<Secret>, name: &str, with: &TlsSecret) -> Secret {
    let mut secret = existing.unwrap_or_else(|| Secret {
        metadata: metadata(name),
        type_: Some("kubernetes.io/tls".to_owned()),
        ..Secret::default()
    });
    let data = secret.data.get_or_insert_default();
    for (key, pem) in [
        (CA, &with.ca),
        (CERTIFICATE, &with.certificate),
        (KEY, &with.key),
    ] {
        data.insert(key.to_owned(), ByteString(pem.clone().into_bytes()));
    }
    secret
}

fn published(existing: Option<ConfigMap>, name: &str, ca: &str) -> ConfigMap {
    let mut map = existing.unwrap_or_else(|| ConfigMap {
        metadata: metadata(name),
        ..ConfigMap::default()
    });
    let data = map.data.get_or_insert_default();
    data.insert(CA.to_owned(), ca.to_owned());
    map
}

/// Without `app.kubernetes.io/instance`: GitOps tools take objects with that label for the chart's, and delete those that the
/// chart does not contain.
fn metadata(name: &str) -> ObjectMeta {
    let labels = [
        ("app.kubernetes.io/part-of", "drivebay"),
        ("app.kubernetes.io/managed-by", "drivebay-controller"),
    ];
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(labels.map(owned).into()),
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
#[path = "certificates_tests.rs"]
mod tests;
