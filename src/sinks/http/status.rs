//! The meaning of an HTTP status to the bridge.
//!
//! | status | class | fault |
//! |---|---|---|
//! | 2xx | delivered (the sink's to say) | |
//! | 400, 422 | refused: invalid | a record's, for good |
//! | 413 | refused: too large | a record's, for good |
//! | 408 | timeout, `Retry-After` honoured | a record's, for now |
//! | 425, 5xx | unavailable, `Retry-After` honoured | a record's, for now |
//! | 429 | throttled, `Retry-After` honoured | the sink's |
//! | 401, 407, 511 | misconfigured; 511 unavailable | the sink's |
//! | 403 in words about credentials | misconfigured | the sink's |
//! | 1xx, 3xx, any other 4xx | misconfigured | a record's, for good |
//!
//! With `Retry-After` it is always the sink's fault.
//!
//! Only an answer about the payload refuses. The other 4xx are about us, the address or how it is
//! spoken to (405, 410, 411, 421, 426 …), or a firewall's about a text: a person has to look, and nothing
//! must be lost until then.

use std::time::Duration;

use http::{HeaderValue, StatusCode, Uri};

use crate::{
    bridge::{Failure, FailureClass, Fault, RefusedClass, Secrets, Status},
    event::Record,
    sinks::http::credentials,
};

/// The failure that a status other than 2xx of an answer to some records is, which says `words`.
pub(crate) fn to_failure(
    status: StatusCode,
    after: Option<Duration>,
    words: &str,
    sent: &[Record],
    secrets: &Secrets,
) -> Failure {
    let reason = self::words(status, words);
    let code = status.as_u16();
    let class = match code {
        400 | 422 => FailureClass::Refused(RefusedClass::Invalid),
        413 => FailureClass::Refused(RefusedClass::TooLarge),
        408 => FailureClass::Timeout,
        429 => FailureClass::Throttled,
        425 | 500.. => FailureClass::Unavailable,
        _ => FailureClass::Misconfigured,
    };
    let fault = match code {
        _ if after.is_some() => Fault::Sink,
        401 | 407 | 429 | 511 => Fault::Sink,
        403 if credentials::are_spoken_of(words, sent) => Fault::Sink,
        408 | 425 | 500.. => Fault::RecordForNow,
        _ => Fault::RecordForGood,
    };
    let honoured = matches!(code, 408 | 425 | 429 | 500..);
    let after = after.filter(|_| honoured);
    let status = Status::Http(code);
    Failure { fault, status, after, ..Failure::new(class, secrets.reason(reason)) }
}

/// The status of an answer, and the words of its body.
pub(super) fn words(status: StatusCode, body: &str) -> String {
    let mut words = format!("HTTP {}", status.as_u16());
    if let Some(phrase) = status.canonical_reason() {
        words = format!("{words} {phrase}");
    }
    if body.trim().is_empty() { words } else { format!("{words}: {body}") }
}

/// Words about a redirect, which nobody follows: a POST would become a GET, or the
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
    use crate::sinks::fixtures;

    fn failure(code: u16, after: Option<Duration>, words: &str) -> Failure {
        let status = StatusCode::from_u16(code).unwrap();
        to_failure(status, after, words, &fixtures::batch(1..=2).records, &Secrets::none())
    }

    #[test]
    fn every_status_has_its_failure() {
        use FailureClass::{Misconfigured, Refused, Throttled, Timeout, Unavailable};
        for code in 100..=999 {
            let (class, fault) = match code {
                400 | 422 => (Refused(RefusedClass::Invalid), Fault::RecordForGood),
                413 => (Refused(RefusedClass::TooLarge), Fault::RecordForGood),
                408 => (Timeout, Fault::RecordForNow),
                429 => (Throttled, Fault::Sink),
                511 => (Unavailable, Fault::Sink),
                425 | 500.. => (Unavailable, Fault::RecordForNow),
                401 | 407 => (Misconfigured, Fault::Sink),
                _ => (Misconfigured, Fault::RecordForGood),
            };
            let found = failure(code, None, " its\n words ");
            assert_eq!((found.class, found.fault, found.after), (class, fault, None), "{code}");
            assert_eq!(found.status, Status::Http(code));
            assert!(found.reason.ends_with(": its words"), "{}", found.reason);
            // Who asks for time blames no record.
            let asked = Some(Duration::from_secs(3));
            let found = failure(code, asked, "");
            let honoured = !matches!(class, Misconfigured | Refused(_));
            let expected = (class, Fault::Sink, asked.filter(|_| honoured));
            assert_eq!((found.class, found.fault, found.after), expected, "{code}");
        }
    }

    #[test]
    fn a_403_that_speaks_of_credentials_is_no_fault_of_a_record() {
        for (code, words, fault) in [
            (403, "Invalid token", Fault::Sink),
            (403, "blocked by rule 942100", Fault::RecordForGood),
            (404, "no such token", Fault::RecordForGood),
        ] {
            assert_eq!(failure(code, None, words).fault, fault, "{code} {words}");
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
