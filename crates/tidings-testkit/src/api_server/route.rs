//! What a request asks for, by its method and path.

use super::{
    faults::On,
    resource::{Catalogue, ResourceId},
    status::ApiStatus,
};
use crate::http::Request;

/// What is done to objects, in RBAC's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
}

impl Verb {
    pub(super) const ALL: [Self; 7] =
        [Self::Get, Self::List, Self::Watch, Self::Create, Self::Update, Self::Patch, Self::Delete];

    /// `get`, `list` and so on.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

/// Something done to objects of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target<'a> {
    pub(super) verb: Verb,
    pub(super) resource: ResourceId,
    /// None: all of them, or a resource without namespaces.
    pub(super) namespace: Option<&'a str>,
    /// Empty where a whole collection is meant.
    pub(super) name: &'a str,
}

impl Target<'_> {
    /// The refusal of someone who lacks the right to this.
    pub(super) fn forbidden(&self, user: &str, catalogue: &Catalogue) -> ApiStatus {
        let resource = &catalogue[self.resource];
        let name = Some(self.name).filter(|name| !name.is_empty());
        // A namespace is looked at within itself.
        let namespace = self.namespace.or(name.filter(|_| resource.name() == "namespaces"));
        ApiStatus::forbidden(user, self.verb.name(), resource, name, namespace)
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route<'a> {
    Objects(Target<'a>),
    /// The versions of the core group.
    Api,
    /// All groups.
    Groups,
    /// One group.
    Group(&'a str),
    /// The resources of a group's version.
    Resources(&'a str, &'a str),
    Version,
    Healthy,
    NoMethod,
    /// A resource that its group does not have.
    NoResource,
    NoPath,
}

impl<'a> Route<'a> {
    pub(super) fn of(request: &'a Request, catalogue: &Catalogue) -> Self {
        let path: Vec<&str> = request.path.trim_matches('/').split('/').collect();
        let get = request.method == "GET";
        match path.as_slice() {
            ["version"] if get => Self::Version,
            ["livez" | "readyz" | "healthz"] if get => Self::Healthy,
            ["api"] if get => Self::Api,
            ["apis"] if get => Self::Groups,
            ["apis", group] if get => Self::Group(group),
            ["api", version] if get => Self::Resources("", version),
            ["apis", group, version] if get => Self::Resources(group, version),
            ["api", version, rest @ ..] => Self::objects(request, catalogue, "", version, rest),
            ["apis", group, version, rest @ ..] => {
                Self::objects(request, catalogue, group, version, rest)
            }
            _ => Self::NoPath,
        }
    }

    fn objects(
        request: &Request,
        catalogue: &Catalogue,
        group: &str,
        version: &str,
        rest: &[&'a str],
    ) -> Self {
        let (namespace, plural, name) = match *rest {
            [plural] => (None, plural, ""),
            [plural, name] => (None, plural, name),
            ["namespaces", namespace, plural] => (Some(namespace), plural, ""),
            ["namespaces", namespace, plural, name] => (Some(namespace), plural, name),
            _ => return Self::NoPath,
        };
        let Some(resource) = catalogue.at(group, version, plural) else {
            let known = catalogue.iter().any(|(_, r)| r.group == group && r.version == version);
            return if known { Self::NoResource } else { Self::NoPath };
        };
        let namespaced = catalogue[resource].namespaced;
        let fits = if name.is_empty() {
            namespaced || namespace.is_none()
        } else {
            namespaced == namespace.is_some()
        };
        if !fits {
            return Self::NoResource;
        }
        let verb = match (request.method.as_str(), name.is_empty()) {
            ("GET", true) if request.flag("watch") => Verb::Watch,
            ("GET", true) => Verb::List,
            ("POST", true) if namespaced == namespace.is_some() => Verb::Create,
            ("GET", false) => Verb::Get,
            ("PUT", false) => Verb::Update,
            ("PATCH", false) => Verb::Patch,
            ("DELETE", false) => Verb::Delete,
            _ => return Self::NoMethod,
        };
        Self::Objects(Target { verb, resource, namespace, name })
    }

    /// What of it there is to do with objects.
    pub(super) fn target(&self) -> Option<&Target<'a>> {
        if let Self::Objects(target) = self { Some(target) } else { None }
    }

    pub(super) fn on(&self) -> On {
        match self.target().map(|target| target.verb) {
            Some(Verb::List) => On::List,
            Some(Verb::Watch) => On::Watch,
            Some(Verb::Get) | None => On::Get,
            Some(Verb::Create | Verb::Update | Verb::Patch | Verb::Delete) => On::Write,
        }
    }
}
