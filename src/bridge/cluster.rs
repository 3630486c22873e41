//! Which cluster the API server is of: the uid of its namespace kube-system.

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt as _};
use tidings_kube::text::{short, with_causes};
use tokio::time::timeout;

use super::{restore::Restored, shared::lock};
use crate::event::Cluster;

/// An API server that takes longer for one get is taken for one that does not answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// What to do about a 401.
const NOT_ACCEPTED: &str = "the credentials are not accepted: check the token or certificate of the kubeconfig or service account";

/// The journal holds the events of another cluster.
#[derive(Debug, thiserror::Error)]
#[error(
    "the journal {journal} holds the events of the cluster {journalled}, and the API server is of the cluster {server}\n\
     hint: point journal.path to another directory, or the kubeconfig to the cluster that the journal is of"
)]
pub struct ClusterError {
    /// The journal's directory.
    pub journal: String,
    /// The uid that it remembers.
    pub journalled: String,
    /// The uid that the API server gives, or the configuration.
    pub server: String,
}

/// What the API server says.
pub(super) enum Answer {
    Uid(String),
    /// It will not tell, and why.
    Refused(String),
    /// Not now, why, and what a person can do about it.
    None {
        reason: String,
        hint: Option<&'static str>,
    },
}

/// Asks once.
pub(super) async fn ask(client: &Client) -> Answer {
    let namespaces = Api::<Namespace>::all(client.clone());
    match timeout(ANSWER_WITHIN, namespaces.get("kube-system")).await {
        Ok(Ok(namespace)) => namespace.uid().map_or_else(
            || Answer::Refused("the namespace kube-system has no uid".into()),
            Answer::Uid,
        ),
        // What it says to these does not change by asking again; to a 401 it may.
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 403 | 404) => {
            Answer::Refused(short(&status.message).into_owned())
        }
        Ok(Err(kube::Error::Api(status))) => Answer::None {
            reason: format!(
                "{} ({} {})",
                short(&status.message),
                status.code,
                short(&status.reason)
            ),
            hint: (status.code == 401).then_some(NOT_ACCEPTED),
        },
        Ok(Err(error)) => Answer::None { reason: with_causes(&error), hint: None },
        Err(_) => {
            let reason = format!("no answer within {} s", ANSWER_WITHIN.as_secs());
            Answer::None { reason, hint: None }
        }
    }
}

/// Finds out which cluster it is, and holds it against the one that the journal is of.
pub(super) struct Identity {
    client: Client,
    journal: String,
    journalled: Option<String>,
    /// The cluster as far as it is known.
    pub(super) cluster: Arc<Mutex<Cluster>>,
    known: bool,
    /// Why it was not known the last time.
    pub(super) complaint: Arc<Mutex<Option<String>>>,
}

impl Identity {
    pub(super) fn new(
        client: Client,
        configured: Cluster,
        restored: &Restored,
        journal: &Path,
    ) -> Self {
        Self {
            client,
            journal: journal.display().to_string(),
            journalled: restored.cluster_uid.clone(),
            known: false,
            complaint: Arc::default(),
            cluster: Arc::new(Mutex::new(configured)),
        }
    }

    /// Asks once, unless it is known; answers whether it is now, or never will be.
    ///
    /// # Errors
    ///
    /// The journal is of another cluster.
    pub(super) async fn ask_once(&mut self) -> Result<bool, ClusterError> {
        if self.known {
            return Ok(true);
        }
        let configured = lock(&self.cluster).uid.clone();
        let uid = match configured {
            Some(uid) => uid,
            None => match ask(&self.client).await {
                Answer::Uid(uid) => uid,
                Answer::Refused(reason) => {
                    let hint = "grant get on the namespace kube-system, or set cluster.uid";
                    // A refusal says nothing of another cluster, and keys are made of the uid.
                    let remembered = self.journalled.clone();
                    match &remembered {
                        Some(uid) => tracing::warn!(
                            reason,
                            hint,
                            uid,
                            "the cluster's uid is not told: it is taken for the journal's"
                        ),
                        None => tracing::warn!(
                            reason,
                            hint,
                            "the cluster's uid is not known and is left out"
                        ),
                    }
                    lock(&self.cluster).uid = remembered;
                    self.known = true;
                    return Ok(true);
                }
                Answer::None { reason, hint } => {
                    let before = lock(&self.complaint).replace(reason.clone());
                    if before.as_ref() != Some(&reason) {
                        tracing::warn!(
                            reason,
                            hint,
                            "the API server does not say which cluster it is of: trying until it does"
                        );
                    }
                    return Ok(false);
                }
            },
        };
        if let Some(journalled) = self.journalled.clone().filter(|known| *known != uid) {
            return Err(ClusterError { journal: self.journal.clone(), journalled, server: uid });
        }
        lock(&self.cluster).uid = Some(uid);
        self.known = true;
        Ok(true)
    }
}
