//! Where the credentials of the API server come from, and the client that is made of them.

use std::{fmt, panic::resume_unwind, path::PathBuf, sync::Mutex};

use http::{HeaderName, HeaderValue};
use jiff::Timestamp;
use kube::{
    Client, Config,
    config::{Kubeconfig, KubeconfigError},
};
use serde_json::json;
use tidings_kube::text::with_causes;
use tokio::task::spawn_blocking;

use super::{ClientError, HINT, lock, plugin, proxy};
use crate::{config::SourceSettings, sinks::Proxy};

/// Where a configuration of a client comes from.
enum Origin {
    /// `source.kubeconfig`.
    File(PathBuf),
    /// `$KUBECONFIG`: files that are merged.
    Environment(std::ffi::OsString),
    /// The service account of a Pod, whose files kube reads again by itself.
    Pod,
    /// `~/.kube/config`.
    Home(Option<PathBuf>),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "the kubeconfig {}", path.display()),
            Self::Environment(paths) => {
                write!(f, "the kubeconfig {} of $KUBECONFIG", paths.display())
            }
            Self::Pod => f.write_str("the service account of this Pod"),
            Self::Home(_) => f.write_str("the kubeconfig ~/.kube/config"),
        }
    }
}

/// Reads the configuration of a client.
pub(in crate::cli) struct Access {
    origin: Origin,
    proxy: Mutex<Proxy>,
}

/// A configuration that was read. Clients can be made of it; its exec plugin has not been run yet.
#[derive(Clone)]
pub(super) struct Read {
    config: Config,
    context: Option<String>,
    user: Option<String>,
    origin: String,
    files: Files,
    /// `source.proxy`. That of the kubeconfig's cluster is in `config`.
    proxy: Proxy,
}

/// A client, and the end of its credentials.
pub(super) struct Made {
    pub(super) client: Client,
    pub(super) of: Read,
    /// The user and the plugin, for messages.
    pub(super) user: String,
    pub(super) since: Timestamp,
    /// The end of its credentials, where it is known.
    pub(super) expires: Option<Timestamp>,
    /// Credentials, to be compared.
    secrets: Vec<u8>,
}

/// Files, with their content from before a client was made of them.
#[derive(Clone, Default, PartialEq)]
struct Files(Vec<(PathBuf, Option<Vec<u8>>)>);

impl Files {
    fn read(paths: Vec<PathBuf>) -> Self {
        let content = |path: &PathBuf| (!is_pipe(path)).then(|| std::fs::read(path).ok()).flatten();
        let read = |path| {
            let content = content(&path);
            (path, content)
        };
        Self(paths.into_iter().map(read).collect())
    }

    /// The same files as they are now.
    fn again(&self) -> Self {
        Self::read(self.0.iter().map(|(path, _)| path.clone()).collect())
    }
}

/// Whether the path exists and is no regular file: a pipe can be read only once.
fn is_pipe(path: &PathBuf) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file())
}

impl Access {
    /// `source.kubeconfig`, else `$KUBECONFIG`, else the service account of the Pod, else
    /// `~/.kube/config`.
    pub(super) fn of(source: &SourceSettings) -> Self {
        let in_env = std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty());
        let in_cluster = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        let origin = match (&source.kubeconfig, in_env) {
            (Some(path), _) => Origin::File(path.clone()),
            (None, Some(paths)) => Origin::Environment(paths),
            (None, None) if in_cluster => Origin::Pod,
            (None, None) => {
                Origin::Home(std::env::home_dir().map(|home| home.join(".kube/config")))
            }
        };
        Self { origin, proxy: Mutex::new(source.proxy.clone()) }
    }

    /// Sends requests through another proxy, from the next one on.
    pub(in crate::cli) fn set_proxy(&self, proxy: Proxy) {
        *lock(&self.proxy) = proxy;
    }

    pub(super) fn proxy(&self) -> Proxy {
        lock(&self.proxy).clone()
    }

    pub(super) fn has_other_proxy(&self, before: &Read) -> bool {
        before.proxy != *lock(&self.proxy)
    }

    /// Whether a file or `source.proxy` has changed since.
    pub(super) fn has_changed(&self, before: &Read) -> bool {
        self.has_other_proxy(before) || before.files.again() != before.files
    }

    /// Reads the configuration. After the start it keeps the context of `before`, and refuses another API
    /// server.
    pub(super) fn read(&self, before: Option<&Read>) -> Result<Read, ClientError> {
        let failed = |error: String| {
            ClientError::new(format!("{} cannot be used", self.origin), error, HINT)
        };
        let read = match (self.kubeconfigs().map_err(failed)?, before) {
            (None, _) => {
                let config = Config::incluster().map_err(|error| failed(with_causes(&error)))?;
                self.read_of(config, None, None, Files::default())
            }
            (Some(paths), Some(before)) if paths.iter().any(is_pipe) => {
                let (files, proxy) = (before.files.again(), self.proxy());
                Read { files, proxy, ..before.clone() }
            }
            (Some(paths), _) => self.read_kubeconfigs(&paths, before).map_err(failed)?,
        };
        if let Some(before) = before
            && before.config.cluster_url != read.config.cluster_url
        {
            let error =
                format!("expected the API server {}, found {}", before.address(), read.address());
            let hint = "restart Tidings to follow another API server";
            return Err(ClientError { hint, ..failed(error) });
        }
        Ok(read)
    }

    fn read_of(
        &self,
        mut config: Config,
        context: Option<String>,
        user: Option<String>,
        files: Files,
    ) -> Read {
        // Its retries would hide errors from the reflector, whose own waits are the rule.
        config.default_retry = false;
        let agent = HeaderValue::from_static(concat!("tidings/", env!("CARGO_PKG_VERSION")));
        config.headers.push((HeaderName::from_static("user-agent"), agent));
        Read { config, context, user, origin: self.origin.to_string(), files, proxy: self.proxy() }
    }

    /// The files, which are merged; nothing in a Pod.
    fn kubeconfigs(&self) -> Result<Option<Vec<PathBuf>>, String> {
        Ok(match &self.origin {
            Origin::Pod => None,
            Origin::File(path) => Some(vec![path.clone()]),
            Origin::Environment(paths) => {
                let paths = std::env::split_paths(paths);
                Some(paths.filter(|path| !path.as_os_str().is_empty()).collect())
            }
            Origin::Home(path) => {
                let path = path.clone().ok_or_else(|| with_causes(&KubeconfigError::FindPath))?;
                Some(vec![path])
            }
        })
    }

    fn read_kubeconfigs(&self, paths: &[PathBuf], before: Option<&Read>) -> Result<Read, String> {
        // Before kube reads them, so that a later change is found.
        let mut files = Files::read(paths.to_vec());
        let mut kubeconfig = paths
            .iter()
            .try_fold(Kubeconfig::default(), |all, path| all.merge(Kubeconfig::read_from(path)?))
            // Further lines quote the file, with the secrets in it.
            .map_err(|error| error.to_string().lines().next().unwrap_or_default().to_owned())?;
        if let Some(before) = before {
            kubeconfig.current_context.clone_from(&before.context);
        }
        let context = kubeconfig.current_context.clone();
        let Chosen { user, proxy, paths } = Chosen::of(&kubeconfig);
        files.0.extend(Files::read(paths).0);
        let proxy = proxy.map(|proxy| proxy.parse()).transpose();
        let proxy = proxy.map_err(|error| format!("the cluster's proxy-url: {error}"))?;
        let mut config = Config::try_from(kubeconfig).map_err(|error| with_causes(&error))?;
        config.proxy_url = proxy;
        Ok(self.read_of(config, context, user, files))
    }
}

impl Read {
    /// The API server's address as it may be shown.
    pub(super) fn address(&self) -> String {
        let uri = &self.config.cluster_url;
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let host = authority.rsplit('@').next().unwrap_or_default();
        format!("{}://{host}{}", uri.scheme_str().unwrap_or_default(), uri.path())
    }

    /// Warns if there is a proxy in the environment that is not used.
    pub(super) fn warn_of_unused_proxy(&self) {
        if self.config.proxy_url.is_none() && self.proxy == Proxy::None {
            proxy::warn_of_unused(&self.config.cluster_url);
        }
    }

    /// Makes a client, with the credentials of the plugin where there is one.
    ///
    /// A proxy is used where `source.proxy` or the kubeconfig's cluster names one. kube would take one of
    /// the environment, too, beside a kubeconfig though not in a Pod.
    pub(super) async fn client(self) -> Result<Made, ClientError> {
        let since = Timestamp::now();
        let (mut config, mut expires) = (self.config.clone(), None);
        config.proxy_url = proxy::chosen(&self.proxy, config.proxy_url, &config.cluster_url)?;
        let mut user = match &self.user {
            Some(user) => format!("user {user:?} of {}", self.origin),
            None => self.origin.clone(),
        };
        if let Some(plugin) = plugin::of(&config.auth_info) {
            let plugin_of_user =
                format!("exec plugin {:?}", plugin.command.as_deref().unwrap_or_default());
            let answer = plugin::run(plugin).await.map_err(|error| {
                let what = format!("the {plugin_of_user} of {user} cannot be used");
                ClientError::new(what, error, "run it by hand, as the user that Tidings runs as")
            })?;
            user = format!("{user}, {plugin_of_user}, which answered {}", answer.what);
            expires = answer.expires;
            answer.give(&mut config.auth_info);
        }
        // Reads files, and an `auth-provider` may run a command.
        let making = spawn_blocking(move || {
            let info = json!(config.auth_info);
            if info["token"].as_str().is_some_and(|token| !plugin::is_token(token)) {
                return Err("expected a token of one line, found other characters".to_owned());
            }
            let token_file = config.auth_info.token_file.iter();
            let token = token_file.filter_map(|path| std::fs::read(path).ok()).flatten();
            let secrets = info.to_string().into_bytes().into_iter().chain(token).collect();
            let client = Client::try_from(config).map_err(|error| with_causes(&error))?;
            Ok((client, secrets))
        });
        let made_of = making.await.unwrap_or_else(|error| resume_unwind(error.into_panic()));
        let (client, secrets) = made_of.map_err(|error| {
            ClientError::new(format!("{} cannot be used", self.origin), error, HINT)
        })?;
        Ok(Made { client, of: self, user, since, expires, secrets })
    }
}

impl Made {
    /// Whether credentials, files and proxy are the same.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        self.secrets == other.secrets
            && self.of.files == other.of.files
            && self.of.proxy == other.of.proxy
            && self.expires == other.expires
    }
}

/// The parts that the current context names.
#[derive(Default)]
struct Chosen {
    user: Option<String>,
    proxy: Option<String>,
    /// The files of certificates and keys. kube itself reads the file of a token again.
    paths: Vec<PathBuf>,
}

impl Chosen {
    fn of(kubeconfig: &Kubeconfig) -> Self {
        let context = kubeconfig.current_context.as_ref();
        let named = kubeconfig.contexts.iter().find(|named| Some(&named.name) == context);
        let Some(context) = named.and_then(|named| named.context.as_ref()) else {
            return Self::default();
        };
        let cluster = kubeconfig.clusters.iter().find(|named| named.name == context.cluster);
        let cluster = cluster.and_then(|named| named.cluster.as_ref());
        let user = context.user.clone();
        let info = kubeconfig.auth_infos.iter().find(|named| Some(&named.name) == user.as_ref());
        let info = info.and_then(|named| named.auth_info.as_ref());
        let of_cluster = cluster.and_then(|cluster| cluster.certificate_authority.as_ref());
        let of_user = info.map(|info| [&info.client_certificate, &info.client_key]);
        let of_user = of_user.into_iter().flatten().flatten();
        let proxy = cluster.and_then(|cluster| cluster.proxy_url.clone());
        Self {
            user,
            proxy: proxy.filter(|url| !url.is_empty()),
            paths: of_cluster.into_iter().chain(of_user).map(PathBuf::from).collect(),
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.origin.fmt(f)
    }
}
