//! Resolving `{env: NAME}` and `{file: PATH}`.

use std::{fs::File, io::Read as _};

use super::overlay::Variables;
use crate::document::Text;

/// Whether what references name must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckSecrets {
    /// It must.
    Required,
    /// It need not be: the check runs where the secrets are not. What is there is checked.
    Optional,
}

/// Why a reference leads to nothing. Neither text carries the value.
#[derive(Debug)]
pub(super) struct Unresolved {
    pub(super) what: String,
    pub(super) hint: String,
}

/// A larger file is no secret, nor any other text that belongs into a configuration.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The text itself. `None`: it is not there, and need not be.
pub(super) fn resolve(
    text: &Text,
    variables: &Variables,
    secrets: CheckSecrets,
) -> Result<Option<String>, Unresolved> {
    let resolved = match text {
        Text::Plain(text) => return Ok(Some(text.clone())),
        Text::Env(name) => from_env(name, variables),
        Text::File(path) => read_file(path).and_then(|text| {
            let text =
                text.strip_suffix('\n').map_or(&*text, |t| t.strip_suffix('\r').unwrap_or(t));
            if text.is_empty() {
                let what = format!("the file {path} is empty");
                return Err(Unresolved { what, hint: "write the value into it".to_owned() });
            }
            Ok(text.to_owned())
        }),
    };
    match (resolved, secrets) {
        (Err(_), CheckSecrets::Optional) => Ok(None),
        (resolved, _) => resolved.map(Some),
    }
}

fn from_env(name: &str, variables: &Variables) -> Result<String, Unresolved> {
    let unresolved = |what: String| Unresolved { what, hint: format!("set {name}") };
    let value = variables
        .get(name)
        .ok_or_else(|| unresolved(format!("the environment variable {name} is not set")))?
        .to_str()
        .ok_or_else(|| unresolved(format!("the environment variable {name} is not UTF-8")))?;
    if value.is_empty() {
        return Err(unresolved(format!("the environment variable {name} is empty")));
    }
    Ok(value.to_owned())
}

/// The text that a file holds, as it is.
pub(super) fn read_file(path: &str) -> Result<String, Unresolved> {
    String::from_utf8(read_bytes(path)?).map_err(|_| Unresolved {
        what: format!("the file {path} is not UTF-8 text"),
        hint: "name a text file".to_owned(),
    })
}

/// The bytes that a file holds.
pub(super) fn read_bytes(path: &str) -> Result<Vec<u8>, Unresolved> {
    let unresolved = |what: String, hint: &str| Unresolved { what, hint: hint.to_owned() };
    let unreadable = |error: std::io::Error| {
        let hint = match error.kind() {
            std::io::ErrorKind::NotFound => "create it, or mount the Secret that holds it",
            std::io::ErrorKind::PermissionDenied => "make it readable for the user of the process",
            _ => "name a readable file",
        };
        unresolved(format!("the file {path} cannot be read: {error}"), hint)
    };
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(unreadable)?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len > MAX_FILE_BYTES) {
        return Err(unresolved(format!("the file {path} is larger than 1 MiB"), "name another"));
    }
    Ok(bytes)
}
