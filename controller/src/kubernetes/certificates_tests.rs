//! Several pods that share one set of Secrets.

#![allow(clippy::unwrap_used)]

use std::{cell::RefCell, collections::BTreeMap};

use kube::core::Status;

use super::*;

/// An API server's Secrets and ConfigMaps. Each write requires the version that was read, and first yields to the other pods.
#[derive(Default)]
struct Server {
    secrets: RefCell<BTreeMap<String, Secret>>,
    maps: RefCell<BTreeMap<String, ConfigMap>>,
    writes: RefCell<Vec<String>>,
}

impl Server {
    fn put<K: Resource + Clone>(
        &self,
        all: &RefCell<BTreeMap<String, K>>,
        object: &K,
    ) -> Result<(), kube::Error> {
        let name = object.meta().name.clone().unwrap();
        let mut all = all.borrow_mut();
        let there = all
            .get(&name)
            .and_then(|there| there.meta().resource_version.clone());
        if there != object.meta().resource_version {
            let status = Status::failure("it was changed", "Conflict").with_code(409);
            return Err(kube::Error::Api(status.boxed()));
        }
        self.writes.borrow_mut().push(name.clone());
        let mut object = object.clone();
        object.meta_mut().resource_version = Some(self.writes.borrow().len().to_string());
        all.insert(name, object);
        Ok(())
    }
}

impl Objects for Server {
    async fn secret(&self, name: &str) -> Result<Option<Secret>, kube::Error> {
        tokio::task::yield_now().await;
        Ok(self.secrets.borrow().get(name).cloned())
    }

    async fn config_map(&self, name: &str) -> Result<Option<ConfigMap>, kube::Error> {
        tokio::task::yield_now().await;
        Ok(self.maps.borrow().get(name).cloned())
    }

    async fn put_secret(&self, secret: &Secret) -> Result<(), kube::Error> {
        tokio::task::yield_now().await;
        self.put(&self.secrets, secret)
    }

    async fn put_config_map(&self, map: &ConfigMap) -> Result<(), kube::Error> {
        tokio::task::yield_now().await;
        self.put(&self.maps, map)
    }
}

fn args(tokens: bool) -> KubernetesArgs {
    KubernetesArgs {
        secret: "controller".into(),
        nodes_ca_secret: "nodes-ca".into(),
        ca_config_map: tokens.then(|| "ca".into()),
        names: vec!["drivebay-controller".parse().unwrap()],
        days: 30,
        out: "/tls".into(),
    }
}

#[tokio::test]
async fn pods_that_start_at_once_end_with_one_ca() {
    for (tokens, objects) in [
        (true, ["controller", "ca"]),
        (false, ["nodes-ca", "controller"]),
    ] {
        let (server, args) = (Server::default(), args(tokens));
        let (a, b, c) = tokio::join!(
            keep(&server, &args),
            keep(&server, &args),
            keep(&server, &args)
        );
        let a = a.unwrap().controller;
        assert_eq!(b.unwrap().controller, a);
        assert_eq!(c.unwrap().controller, a);
        assert_eq!(*server.writes.borrow(), objects, "each once, in this order");
        let later = keep(&server, &args).await.unwrap();
        assert_eq!((later.controller, later.reason), (a, None));
        assert_eq!(server.writes.borrow().len(), 2);
    }
}

#[tokio::test]
async fn a_pod_that_ends_before_it_has_published_leaves_that_to_the_next() {
    let (server, args) = (Server::default(), args(true));
    let first = keep(&server, &args).await.unwrap().controller;
    server.maps.borrow_mut().clear();
    assert_eq!(keep(&server, &args).await.unwrap().controller, first);
    let published = server.maps.borrow()["ca"].data.as_ref().unwrap()[CA].clone();
    assert_eq!(published, first.ca);
}

#[tokio::test]
async fn what_others_have_written_into_the_objects_stays() {
    let (server, args) = (Server::default(), args(true));
    keep(&server, &args).await.unwrap();
    for map in server.maps.borrow_mut().values_mut() {
        map.data = Some([("more".to_owned(), "kept".to_owned())].into());
        map.metadata.annotations = Some([("helm.sh/resource-policy".into(), "keep".into())].into());
    }
    keep(&server, &args).await.unwrap();
    let maps = server.maps.borrow();
    assert_eq!(maps["ca"].data.as_ref().unwrap().len(), 2);
    assert!(maps["ca"].metadata.annotations.is_some());
}

#[tokio::test]
async fn a_secret_of_ours_is_no_object_of_the_chart() {
    let (server, args) = (Server::default(), args(false));
    keep(&server, &args).await.unwrap();
    for secret in server.secrets.borrow().values() {
        let labels = secret.metadata.labels.as_ref().unwrap();
        assert!(
            !labels.contains_key("app.kubernetes.io/instance"),
            "{labels:?}"
        );
        assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
    }
}

#[tokio::test]
async fn a_secret_without_its_keys_is_refused_by_name() {
    let (server, args) = (Server::default(), args(true));
    let empty = Secret {
        metadata: metadata("controller"),
        ..Secret::default()
    };
    server.put(&server.secrets, &empty).unwrap();
    let error = keep(&server, &args).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("Secret controller has no ca.crt"),
        "{error}"
    );
    assert_eq!(server.writes.borrow().len(), 1, "nothing is overwritten");
}
