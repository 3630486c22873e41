//! A client's way through a [front](super::Front): a kubeconfig with its authority, and a bearer token
//! in a file.

use std::fs;
use std::path::PathBuf;

use serde_json::json;
use tempfile::TempDir;

use super::{Authority, Front};

/// See the [module](self).
pub(crate) struct Access {
    folder: TempDir,
}

impl Access {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    /// A file beside the kubeconfig.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where the kubeconfig is, once it [leads](Self::lead_to) anywhere.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.file("kubeconfig")
    }

    /// Writes the kubeconfig.
    pub(crate) fn lead_to(&self, front: &Front, authority: &Authority) {
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "drill", "cluster": {
                "server": front.url(),
                "certificate-authority": authority.write(self.folder.path()),
            }}],
            "users": [{"name": "drill", "user": {"tokenFile": self.file("token")}}],
            "contexts": [{"name": "drill", "context": {"cluster": "drill", "user": "drill"}}],
            "current-context": "drill",
        });
        fs::write(self.kubeconfig(), config.to_string()).expect("the kubeconfig");
    }

    /// Puts this into the token file, in one step, as a kubelet does it.
    pub(crate) fn give_token(&self, token: &str) {
        let new = self.file("token.new");
        fs::write(&new, token).expect("the token");
        fs::rename(new, self.file("token")).expect("the token's place");
    }
}
