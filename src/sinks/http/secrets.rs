//! The parts of a sink's options that nobody else is to read.

#[cfg(feature = "http-client")]
use super::{
    super::{Proxy, Secret},
    HttpOptions,
    auth::Auth,
};
use crate::template::Template;

/// Headers whose values say what a request is about, and open nothing.
const HARMLESS: [&str; 29] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accountid",
    "cache-control",
    "content-language",
    "content-type",
    "date",
    "expect",
    "from",
    "host",
    "organization",
    "origin",
    "pragma",
    "prefer",
    "priority",
    "projectid",
    "stream-name",
    "thanos-tenant",
    "traceparent",
    "tracestate",
    "user-agent",
    "x-correlation-id",
    "x-honeycomb-dataset",
    "x-p-stream",
    "x-request-id",
    "x-scope-orgid",
    "x-tenant-id",
];
/// Words that stand in front of the credentials in `Authorization`.
#[cfg(feature = "http-client")]
const SCHEMES: [&str; 9] =
    ["apikey", "api-key", "basic", "bearer", "digest", "geniekey", "key", "splunk", "token"];
/// Shorter parts of an address are words of it, but for the values of its query.
const SHORTEST_PART: usize = 6;
/// A part of a path that is as long is more than a word.
pub(crate) const NO_WORD: usize = 16;

/// Whether a header is known to hold no credentials.
pub(crate) fn is_harmless(header: &str) -> bool {
    HARMLESS.iter().any(|harmless| header.eq_ignore_ascii_case(harmless))
}

/// Whether part of an address is made like a key rather than like a word: with digits or capitals
/// within, or long.
pub(crate) fn looks_secret(part: &str) -> bool {
    let within = part.get(1..).unwrap_or_default();
    // The name of a method, such as `chat.postMessage`.
    let is_word = |word: &str| word.len() > 2 && word.bytes().all(|b| b.is_ascii_alphabetic());
    let is_method = part.split_once('.').is_some_and(|(a, b)| {
        is_word(a) && is_word(b) && a.bytes().all(|byte| byte.is_ascii_lowercase())
    });
    part.len() >= SHORTEST_PART
        && !is_method
        && (part.len() >= NO_WORD
            || part.bytes().any(|byte| byte.is_ascii_digit())
            || within.bytes().any(|byte| byte.is_ascii_uppercase()))
}

#[cfg(feature = "http-client")]
impl HttpOptions {
    /// The secret parts of addresses, proxy, headers and credentials.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let mut texts = Vec::new();
        // Each piece of a template is of the path, or of the query once that has begun.
        let mut in_query = None;
        for piece in Template::literals(self.url.expose()) {
            let before = match in_query {
                None => "",
                Some(true) => "http://h?",
                Some(false) if piece.starts_with('/') => "http://h",
                Some(false) => "http://h/",
            };
            address(&format!("{before}{piece}"), &mut texts);
            in_query = Some(piece.contains('?') || in_query == Some(true));
        }
        texts.extend(quoted(self.url.expose()));
        proxy(&self.proxy, &mut texts);
        headers(&self.headers, &mut texts);
        texts.extend(self.auth.iter().flat_map(Auth::secrets));
        if let Some(Auth::OAuth2(options)) = &self.auth {
            address(options.token_url.expose(), &mut texts);
        }
        texts
    }
}

/// The values, and each word behind the first, which may be a scheme that nobody knows here.
#[cfg(feature = "http-client")]
fn headers(headers: &[(String, Secret)], into: &mut Vec<String>) {
    for (_, value) in headers.iter().filter(|(name, _)| !is_harmless(name)) {
        for piece in Template::literals(value.expose()) {
            header(piece.trim(), into);
        }
        into.extend(quoted(value.expose()));
        if Template::is_in(value.expose()) {
            into.push(value.expose().to_owned());
        }
    }
}

/// The texts in the tags of a template that look like keys.
#[cfg(feature = "http-client")]
fn quoted(template: &str) -> impl Iterator<Item = String> {
    Template::quoted(template).filter(|text| looks_secret(text)).map(str::to_owned)
}

/// The same of one value, or of a piece of it beside what a template makes.
#[cfg(feature = "http-client")]
fn header(value: &str, into: &mut Vec<String>) {
    let (first, rest) = value.split_once(char::is_whitespace).unwrap_or((value, ""));
    let is_scheme = !rest.is_empty() && SCHEMES.contains(&&*first.to_ascii_lowercase());
    for credentials in [if is_scheme { "" } else { value }, rest.trim()] {
        into.push(credentials.to_owned());
        if let Some(decoded) = from_base64(credentials) {
            into.extend(decoded.split_once(':').map(|(_, password)| password.to_owned()));
            into.push(decoded);
        }
    }
    let separates = |c: char| c.is_whitespace() || ",;:".contains(c);
    for (at, word) in value.split(separates).enumerate() {
        let (name, word) = word.split_once('=').map_or((None, word), |(n, w)| (Some(n), w));
        let word = word.trim_matches('"');
        if at > 0 || name.is_some() || (!is_scheme && looks_secret(word)) {
            into.push(word.to_owned());
        }
    }
}

#[cfg(feature = "http-client")]
fn proxy(proxy: &Proxy, into: &mut Vec<String>) {
    proxy.addresses().iter().for_each(|(_, url)| address(url, into));
}

/// Of an address user and password, the path, the query, and what of either may be a key.
#[cfg(feature = "http-client")]
fn address(url: &str, into: &mut Vec<String>) {
    let (_, rest) = url.split_once("://").unwrap_or(("", url));
    // The fragment is not sent.
    let (rest, _) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    if let Some((user_info, _)) = authority.rsplit_once('@') {
        into.push(user_info.to_owned());
        into.extend(user_info.split(':').map(str::to_owned));
    }
    let whole = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    let values = query.split('&').map(|pair| pair.split_once('=').map_or(pair, |(_, v)| v));
    let parts = path.split('/').filter(|part| looks_secret(part));
    let parts = [&*whole, path, query].into_iter().chain(parts);
    let all = parts.filter(|text| text.len() >= SHORTEST_PART).chain(values);
    into.extend(all.map(str::to_owned));
}

/// The words of a body that look like keys, with the figures that those have.
pub(crate) fn of_body(template: &str) -> impl Iterator<Item = String> {
    let is_key =
        |word: &&str| word.len() >= NO_WORD / 2 && word.bytes().any(|b| b.is_ascii_digit());
    let ends = |c: char| !c.is_ascii_alphanumeric() && !"+=_-".contains(c);
    let texts = Template::literals(template).chain(Template::quoted(template));
    texts.flat_map(move |text| text.split(ends).filter(is_key)).map(str::to_owned)
}

/// The text that something is the base64 of, if it is of one.
#[cfg(feature = "http-client")]
pub(crate) fn from_base64(text: &str) -> Option<String> {
    use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};

    String::from_utf8(STANDARD_NO_PAD.decode(text.trim_end_matches('=')).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(feature = "http-client")]
    use crate::bridge::Secrets;

    #[cfg(feature = "http-client")]
    #[test]
    fn the_parts_of_an_address_and_of_headers_are_told_apart() {
        let texts = |read: &dyn Fn(&mut Vec<String>)| {
            let mut texts = Vec::new();
            read(&mut texts);
            texts.join("  ")
        };
        assert_eq!(
            texts(&|all| address("https://u:pw@h:1/hooks/T0123/b-s3cr3t?key=k%2F3y9&v=2#top", all)),
            "u:pw  u  pw  /hooks/T0123/b-s3cr3t?key=k%2F3y9&v=2  /hooks/T0123/b-s3cr3t  \
             key=k%2F3y9&v=2  b-s3cr3t  k%2F3y9  2"
        );
        assert_eq!(texts(&|all| address("http://collector:4318", all)), "");
    }

    #[cfg(feature = "http-client")]
    #[test]
    fn a_value_of_a_header_and_its_words_behind_the_first_are_secrets_whatever_the_scheme() {
        let reason = |name: &str, value: &str, said: &str| {
            let mut texts = Vec::new();
            headers(&[(name.to_owned(), Secret::new(value))], &mut texts);
            Secrets::of(texts).reason(said).to_string()
        };
        for (name, value, said, told) in [
            ("Authorization", "Bearer Hunter", "no Bearer Hunter, Hunter", "no Bearer …, …"),
            ("Authorization", "Weird Hunter", "no Weird Hunter, Hunter", "no …, …"),
            ("Authorization", "Weird  Hunter two", "no Hunter, Hunter two", "no …, …"),
            ("Authorization", "ApiKey Hunter", "no ApiKey Hunter", "no ApiKey …"),
            ("Proxy-Authorization", "Weird\tuser:Hunter", "no user:Hunter, Hunter", "no …, …"),
            (
                "authorization",
                "Basic dTpIdW50ZXI=",
                "dTpIdW50ZXI= of u:Hunter, Hunter",
                "… of …, …",
            ),
            (
                "authorization",
                "Weird dTpIdW50ZXI=",
                "dTpIdW50ZXI= of u:Hunter, Hunter",
                "… of …, …",
            ),
            ("Authorization", "Weird a=\"Hunter\", b=word", "no Hunter, no word", "no …, no …"),
            ("X-Api-Key", "correct horse", "no correct horse, horse", "no …, …"),
            ("X-Auth", "user:Hunter", "no user:Hunter, Hunter", "no …, …"),
            ("Cookie", "a=Hunter; sid=word", "no Hunter, no word", "no …, no …"),
            ("X-Api-Key", "k3y", "no k3y", "no k3y"),
            ("X-Scope-OrgID", "prod Hunter", "no prod Hunter", "no prod Hunter"),
        ] {
            assert_eq!(reason(name, value, said), told, "{name}: {value}");
        }
    }

    #[test]
    fn words_of_an_address_are_no_secrets() {
        for word in ["services", "hooks", "v1", "Webhook", "T0123"] {
            assert!(!looks_secret(word), "{word}");
        }
        for key in ["b-s3cr3t", "aBcDeFg", "correct-horse-battery"] {
            assert!(looks_secret(key), "{key}");
        }
    }
}
