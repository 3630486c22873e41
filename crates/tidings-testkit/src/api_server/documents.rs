//! What clients such as kubectl read before they ask for anything: the version, and discovery.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::resource::{Catalogue, Resource};

pub(super) const VERSION: &str = r#"{"major":"1","minor":"34","emulationMajor":"1","emulationMinor":"34","minCompatibilityMajor":"1","minCompatibilityMinor":"33","gitVersion":"v1.34.4","gitCommit":"","gitTreeState":"clean","buildDate":"2026-02-10T00:00:00Z","goVersion":"go1.24","compiler":"gc","platform":"linux/amd64"}"#;

pub(super) const API_VERSIONS: &str =
    r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[]}"#;

/// All groups but the core one.
pub(super) fn groups(catalogue: &Catalogue) -> Value {
    let names: BTreeSet<&str> = catalogue
        .iter()
        .map(|(_, resource)| resource.group.as_str())
        .filter(|group| !group.is_empty())
        .collect();
    let groups: Vec<Value> =
        names.into_iter().filter_map(|name| group_members(catalogue, name)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// One group; none if nothing is of it.
pub(super) fn group(catalogue: &Catalogue, name: &str) -> Option<Value> {
    let mut group = json!({"kind": "APIGroup", "apiVersion": "v1"});
    let members = group_members(catalogue, name)?;
    group.as_object_mut()?.extend(members.as_object()?.clone());
    Some(group)
}

fn group_members(catalogue: &Catalogue, name: &str) -> Option<Value> {
    let mut versions: Vec<Value> = Vec::new();
    for (_, resource) in catalogue.iter().filter(|(_, resource)| resource.group == name) {
        let version = json!({"groupVersion": resource.api_version(), "version": resource.version});
        if !versions.contains(&version) {
            versions.push(version);
        }
    }
    let preferred = versions.first()?.clone();
    Some(json!({"name": name, "versions": versions, "preferredVersion": preferred}))
}

/// The resources of one version of a group; none if there are none.
pub(super) fn resources(catalogue: &Catalogue, group: &str, version: &str) -> Option<Value> {
    let of_it: Vec<&Resource> = catalogue
        .iter()
        .map(|(_, resource)| resource)
        .filter(|resource| resource.group == group && resource.version == version)
        .collect();
    let api_version = of_it.first()?.api_version();
    let resources: Vec<Value> = of_it
        .iter()
        .map(|resource| {
            json!({
                "name": resource.plural,
                "singularName": resource.kind.to_lowercase(),
                "namespaced": resource.namespaced,
                "kind": resource.kind,
                "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
            })
        })
        .collect();
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version,
        "resources": resources,
    }))
}
