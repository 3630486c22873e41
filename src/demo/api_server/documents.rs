//! What clients such as kubectl read before they ask for anything.

pub(super) const VERSION: &str = r#"{"major":"1","minor":"34","emulationMajor":"1","emulationMinor":"34","minCompatibilityMajor":"1","minCompatibilityMinor":"33","gitVersion":"v1.34.4","gitCommit":"","gitTreeState":"clean","buildDate":"2026-02-10T00:00:00Z","goVersion":"go1.24","compiler":"gc","platform":"linux/amd64"}"#;

pub(super) const API_VERSIONS: &str =
    r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[]}"#;

pub(super) const API_GROUPS: &str = r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[]}"#;

pub(super) const CORE_RESOURCES: &str = r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"events","singularName":"event","namespaced":true,"kind":"Event","verbs":["create","delete","get","list","patch","watch"],"shortNames":["ev"]},{"name":"namespaces","singularName":"namespace","namespaced":false,"kind":"Namespace","verbs":["get"],"shortNames":["ns"]}]}"#;
