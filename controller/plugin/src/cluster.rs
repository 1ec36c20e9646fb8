//! Requests to the cluster's API server.

use std::time::Duration;

use drivebay_common::pick::{self, Kind, Names, Part, Typed};
use drivebay_objects::{
    drive::{Drive, DriveStatus},
    task::DriveTask,
};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::{
    Api, Client, Config,
    api::{ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    args::AccessArgs,
    error::{PluginError, SNAPSHOT_CONTENTS},
};

/// Most objects per page of a list; further pages are requested until the list is complete.
const PAGE: u32 = 500;

/// Time without any byte of an answer after which a request has failed.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Kind of object in messages about its name.
pub(crate) const DRIVE: Kind = Kind {
    name: "drive",
    list: "kubectl drivebay drives",
};

/// Client with the rights of its user.
pub(crate) struct Cluster {
    client: Client,
}

impl Cluster {
    /// Sets up a client as kubectl does.
    ///
    /// # Errors
    /// The kubeconfig cannot be read, or names no usable cluster.
    pub(crate) async fn connect(access: &AccessArgs) -> Result<Self, PluginError> {
        let options = KubeConfigOptions {
            context: access.context.clone(),
            ..KubeConfigOptions::default()
        };
        let config = match &access.kubeconfig {
            Some(path) => match Kubeconfig::read_from(path) {
                Ok(kubeconfig) => Config::from_custom_kubeconfig(kubeconfig, &options).await,
                Err(error) => Err(error),
            },
            None => Config::from_kubeconfig(&options).await,
        };
        let mut config = config.map_err(PluginError::Kubeconfig)?;
        config.read_timeout = Some(READ_TIMEOUT);
        let client =
            Client::try_from(config).map_err(|error| PluginError::Client(Box::new(error)))?;
        Ok(Self { client })
    }

    /// Returns all objects, page by page.
    async fn list<K>(
        &self,
        api: Api<K>,
        act: &'static str,
        resource: &'static str,
    ) -> Result<Vec<K>, PluginError>
    where
        K: Clone + std::fmt::Debug + DeserializeOwned,
    {
        let mut all = Vec::new();
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = api.list(&params).await;
            let page = page.map_err(|error| PluginError::of_api(act, resource, error))?;
            all.extend(page.items);
            match page.metadata.continue_ {
                Some(next) if !next.is_empty() => params = params.continue_token(&next),
                _ => return Ok(all),
            }
        }
    }

    /// Returns the drives of these nodes, or of all.
    ///
    /// # Errors
    /// The list failed, or one of the nodes has no drive.
    pub(crate) async fn drives(&self, nodes: &[String]) -> Result<Vec<ListedDrive>, PluginError> {
        let all = Api::<Drive>::all(self.client.clone());
        let all = self.list(all, "list the drives", "Drive objects").await?;
        let all: Vec<ListedDrive> = all.into_iter().filter_map(ListedDrive::of).collect();
        let unknown = nodes.iter();
        let unknown = unknown.filter(|node| !all.iter().any(|drive| drive.status.node == **node));
        let unknown: Vec<String> = unknown.cloned().collect();
        if !unknown.is_empty() {
            return Err(PluginError::NoSuchNode(unknown));
        }
        let mut drives = all;
        drives.retain(|drive| nodes.is_empty() || nodes.contains(&drive.status.node));
        Ok(drives)
    }

    /// Returns the drive with this name, which must not be a prefix.
    pub(crate) async fn drive(&self, name: &str) -> Result<ListedDrive, PluginError> {
        let all = self.drives(&[]).await?;
        let typed = Typed::new(name, None);
        let drive = pick::pick(&all, typed, DRIVE, Part::Whole, ListedDrive::names)?;
        Ok(drive.clone())
    }

    /// Returns the tasks, the newest last.
    pub(crate) async fn tasks(&self) -> Result<Vec<DriveTask>, PluginError> {
        let all = Api::<DriveTask>::all(self.client.clone());
        let mut all = self.list(all, "list the tasks", "DriveTasks").await?;
        all.sort_by(|a, b| {
            let created = |task: &DriveTask| task.metadata.creation_timestamp.clone();
            created(a).cmp(&created(b))
        });
        Ok(all)
    }

    /// Creates a task, and returns it as the API server has stored it, with its generated name.
    pub(crate) async fn create(&self, task: &DriveTask) -> Result<DriveTask, PluginError> {
        let api = Api::<DriveTask>::all(self.client.clone());
        let created = api.create(&PostParams::default(), task).await;
        created.map_err(|error| PluginError::of_api("create the task", "DriveTasks", error))
    }

    /// Returns a task; None if it does not exist.
    pub(crate) async fn task(&self, name: &str) -> Result<Option<DriveTask>, PluginError> {
        let api = Api::<DriveTask>::all(self.client.clone());
        let task = api.get_opt(name).await;
        task.map_err(|error| PluginError::of_api("read the task", "DriveTasks", error))
    }

    /// Returns the name of the user as the API server has authenticated it.
    pub(crate) async fn user(&self) -> Result<String, PluginError> {
        let api = Api::<SelfSubjectReview>::all(self.client.clone());
        let review = SelfSubjectReview::default();
        let answer = api.create(&PostParams::default(), &review).await;
        let answer = answer.map_err(|error| {
            PluginError::of_api("find out your name", "SelfSubjectReviews", error)
        })?;
        let user = answer.status.and_then(|status| status.user_info);
        Ok(user.and_then(|user| user.username).unwrap_or_default())
    }

    /// Returns the contents of volume snapshots of all drivers.
    pub(crate) async fn snapshot_contents(&self) -> Result<Vec<DynamicObject>, PluginError> {
        let kind = GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", "VolumeSnapshotContent");
        let resource = ApiResource::from_gvk(&kind);
        let api = Api::<DynamicObject>::all_with(self.client.clone(), &resource);
        self.list(api, "list the snapshots", SNAPSHOT_CONTENTS)
            .await
    }
}

/// A drive's object: its name and status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ListedDrive {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) status: DriveStatus,
    /// Kernel name with its node, as it may be typed.
    #[serde(skip)]
    pub(crate) place: String,
}

impl ListedDrive {
    /// None for an object without a status, which no controller wrote.
    pub(crate) fn of(drive: Drive) -> Option<Self> {
        let status = drive.status?;
        let place = match status.device.as_str() {
            "" => String::new(),
            device => format!("{}:{device}", status.node),
        };
        Some(Self {
            name: drive.metadata.name?,
            status,
            place,
        })
    }

    pub(crate) fn names(&self) -> Names<'_> {
        let status = &self.status;
        let label = [self.place.as_str(), status.model.as_str()];
        let label: Vec<&str> = label.into_iter().filter(|word| !word.is_empty()).collect();
        let others = [&status.drive, &status.serial, &self.place];
        let others = others.into_iter().map(String::as_str);
        Names {
            id: &self.name,
            others: others.filter(|word| !word.is_empty()).collect(),
            deleted: false,
            label: label.join(", "),
        }
    }

    /// True if a condition has this status.
    pub(crate) fn has(&self, type_: &str, status: &str) -> bool {
        let mut conditions = self.status.conditions.iter();
        conditions.any(|one| one.type_ == type_ && one.status == status)
    }
}
