//! Resolving `{env: NAME}` and `{file: PATH}`.

use std::{
    fs::File,
    io::{self, Read as _},
};

use super::{Text, Variables, Wrong, wrong};

/// Whether what references name must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckSecrets {
    /// A secret must be there.
    Required,
    /// A secret need not be there: the check runs where the secrets are not. Those that are there are checked.
    Optional,
}

/// A larger file is no secret, nor any other text that belongs into a configuration.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The text itself. `None`: it is not there, and need not be. No error carries the value.
pub(crate) fn resolve(
    text: &Text,
    variables: &Variables,
    secrets: CheckSecrets,
) -> Result<Option<String>, Wrong> {
    let resolved = match text {
        Text::Plain(text) => return Ok(Some(text.clone())),
        Text::Env(name) => from_env(name, variables),
        Text::File(path) => read_file(path).and_then(|text| {
            let text =
                text.strip_suffix('\n').map_or(&*text, |t| t.strip_suffix('\r').unwrap_or(t));
            if text.is_empty() {
                let wrong = wrong(format!("the file {path} is empty"));
                return Err(wrong.hint("write the value into it"));
            }
            Ok(text.to_owned())
        }),
    };
    match (resolved, secrets) {
        (Err(_), CheckSecrets::Optional) => Ok(None),
        (resolved, _) => resolved.map(Some),
    }
}

/// Whether a text may be the name of an environment variable, and not a value in its place.
pub(crate) fn is_variable(text: &str) -> bool {
    let is_part =
        |byte| matches!(byte, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.');
    text.bytes().all(is_part)
}

/// Whether a text may be meant as a name: a value often has a blank.
pub(crate) fn is_word(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn from_env(name: &str, variables: &Variables) -> Result<String, Wrong> {
    if !is_variable(name) {
        // Which may be the value.
        return Err(wrong("expected the name of an environment variable, found another text")
            .hint("a name is made of letters, digits and `_`"));
    }
    let unset =
        |what| wrong(format!("the environment variable {name} {what}")).hint(format!("set {name}"));
    let value = variables
        .get(name)
        .ok_or_else(|| unset("is not set"))?
        .to_str()
        .ok_or_else(|| unset("is not UTF-8"))?;
    if value.is_empty() {
        return Err(unset("is empty"));
    }
    Ok(value.to_owned())
}

/// The text that a file holds, as it is.
fn read_file(path: &str) -> Result<String, Wrong> {
    let text = read_bytes(path).and_then(|bytes| {
        String::from_utf8(bytes).map_err(|_| wrong("is not UTF-8 text").hint("name a text file"))
    });
    text.map_err(|error| Wrong { what: format!("the file {path} {}", error.what), ..error })
}

/// The bytes that a file holds. The error says of it what follows its name.
pub(crate) fn read_bytes(path: &str) -> Result<Vec<u8>, Wrong> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| unreadable(&error))?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len > MAX_FILE_BYTES) {
        return Err(wrong("is larger than 1 MiB").hint("name another"));
    }
    Ok(bytes)
}

/// The refusal of a file that cannot be read. It says what follows the file's name.
pub(crate) fn unreadable(error: &io::Error) -> Wrong {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "create it, or mount the Secret that holds it",
        io::ErrorKind::PermissionDenied => "make it readable for the user of the process",
        _ => "name a readable file",
    };
    wrong(format!("cannot be read: {error}")).hint(hint)
}
