//! What an HTTP status means to the bridge.
//!
//! | status | outcome |
//! |---|---|
//! | 2xx | delivered (the sink's to say) |
//! | 400, 422 | refused: invalid |
//! | 413 | refused: too large |
//! | 408 | retry: timeout, `Retry-After` honoured |
//! | 425 | retry: unavailable, `Retry-After` honoured |
//! | 429 | retry: throttled, `Retry-After` honoured |
//! | 5xx | retry: unavailable, `Retry-After` honoured |
//! | 1xx, 3xx, 401, 403, 404, 405, 410, any other 4xx | retry: misconfigured |
//!
//! Only an answer about the payload refuses. The other 4xx are about us, the address or how it is
//! spoken to (406, 411, 415, 421, 426, 431 …): a person has to look, and nothing must be lost until
//! then.

use std::time::Duration;

use http::{HeaderValue, StatusCode, Uri};

use crate::bridge::{Outcome, RefusedClass, RetryClass, Secrets};

/// The outcome of an answer other than 2xx, whose body says `words`.
pub(super) fn to_outcome(
    status: StatusCode,
    after: Option<Duration>,
    words: &str,
    secrets: &Secrets,
) -> Outcome {
    let mut reason = format!("HTTP {}", status.as_u16());
    if let Some(phrase) = status.canonical_reason() {
        reason = format!("{reason} {phrase}");
    }
    if !words.trim().is_empty() {
        reason = format!("{reason}: {words}");
    }
    let reason = secrets.reason(reason);
    let (class, after) = match status.as_u16() {
        400 | 422 => return Outcome::Refused { class: RefusedClass::Invalid, reason },
        413 => return Outcome::Refused { class: RefusedClass::TooLarge, reason },
        408 => (RetryClass::Timeout, after),
        429 => (RetryClass::Throttled, after),
        425 | 500.. => (RetryClass::Unavailable, after),
        _ => (RetryClass::Misconfigured, None),
    };
    Outcome::Retry { after, class, reason }
}

/// What there is to know about a redirect, which nobody follows: a POST would become a GET, or the
/// events and their credentials would go where nobody has configured them to. Of the address only
/// the server is told: paths and queries hold secrets.
pub(super) fn points_to(location: &HeaderValue) -> String {
    let uri = location.to_str().ok().and_then(|text| text.parse::<Uri>().ok());
    let server = uri.as_ref().and_then(|uri| Some((uri.scheme()?, uri.host()?, uri.port())));
    let place = match server {
        Some((scheme, host, Some(port))) => format!("{scheme}://{host}:{port}"),
        Some((scheme, host, None)) => format!("{scheme}://{host}"),
        None => "another path of the same server".to_owned(),
    };
    format!("points to {place}; redirects are not followed, configure the address itself")
}

/// `Retry-After`: seconds, or a date, of which one past means now.
pub(super) fn retry_after(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    Some(Duration::try_from(date.duration_since(jiff::Timestamp::now())).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_outcome() {
        for code in 100..=999 {
            let status = StatusCode::from_u16(code).unwrap();
            let after = Some(Duration::from_secs(3));
            let outcome = to_outcome(status, after, " its\n words ", &Secrets::none());
            let (class, honoured) = match code {
                400 | 422 | 413 => {
                    let Outcome::Refused { class, reason } = outcome else { panic!("{code}") };
                    assert_eq!(class == RefusedClass::TooLarge, code == 413);
                    assert!(reason.ends_with(": its words"), "{reason}");
                    continue;
                }
                408 => (RetryClass::Timeout, true),
                429 => (RetryClass::Throttled, true),
                425 | 500.. => (RetryClass::Unavailable, true),
                _ => (RetryClass::Misconfigured, false),
            };
            let Outcome::Retry { after, class: found, .. } = outcome else { panic!("{code}") };
            assert_eq!((found, after.is_some()), (class, honoured), "{code}");
        }
    }

    #[test]
    fn a_redirect_is_told_without_its_path() {
        let hint = "; redirects are not followed, configure the address itself";
        for (location, place) in [
            ("https://new.example/T0/secret?key=s3cret", "https://new.example"),
            ("http://user:s3cret@new.example:81/", "http://new.example:81"),
            ("/T1/secret", "another path of the same server"),
            ("https://[::1]:8443/x", "https://[::1]:8443"),
            ("no address", "another path of the same server"),
        ] {
            let told = points_to(&HeaderValue::from_static(location));
            assert_eq!(told, format!("points to {place}{hint}"));
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let read = |text: &str| retry_after(&HeaderValue::from_str(text).unwrap());
        assert_eq!(read("100"), Some(Duration::from_secs(100)));
        assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(90);
        let soon =
            jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&soon).unwrap();
        let wait = read(&soon).unwrap();
        assert!(wait > Duration::from_secs(85) && wait <= Duration::from_secs(90), "{wait:?}");
        for nothing in ["", "soon", "-3", "1.5"] {
            assert_eq!(read(nothing), None, "{nothing:?}");
        }
    }
}
