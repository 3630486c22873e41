//! Receivers repeat what they were sent: "Cannot POST /services/T0/B0/x" is some frameworks' whole
//! 404. What they say goes to the log, to the status page and into Events, so the secrets of the
//! request are taken out of it.

use http::Uri;

use super::super::WebhookOptions;

/// What is shorter is no secret, and may stand anywhere.
const SHORTEST: usize = 6;
/// A part of a path that is as long, or has a digit, is more than a word.
const NO_WORD: usize = 20;

/// The texts that nobody else is to read, the longest first.
#[derive(Clone)]
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    pub(super) fn of(options: &WebhookOptions, uri: &Uri) -> Self {
        let (path, query) = (uri.path(), uri.query().unwrap_or_default());
        let whole = uri.path_and_query().map_or(path, |both| both.as_str());
        let values = query.split('&').map(|pair| pair.split_once('=').map_or(pair, |(_, v)| v));
        let parts = path
            .split('/')
            .filter(|part| part.len() >= NO_WORD || part.bytes().any(|byte| byte.is_ascii_digit()));
        let headers = options.headers.iter().map(|(_, value)| value.expose());
        // A header may be a scheme and a secret.
        let headers = headers
            .flat_map(|value| [Some(value), value.split_once(' ').map(|(_, secret)| secret)]);
        let mut texts: Vec<String> = [whole, path, query]
            .into_iter()
            .chain(parts)
            .chain(values)
            .chain(headers.flatten())
            .filter(|text| text.len() >= SHORTEST)
            .map(str::to_owned)
            .collect();
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        Self(texts)
    }

    /// A text with an ellipsis for each secret in it.
    pub(super) fn conceal(&self, text: &str) -> String {
        let once = |text: String, secret: &String| text.replace(secret.as_str(), "…");
        self.0.iter().fold(text.to_owned(), once)
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets(…)")
    }
}
