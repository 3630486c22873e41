//! Failures of the network, in a person's words.
//!
//! The libraries say it in layers ("error sending request", "client error (Connect)", "tcp connect
//! error", "Connection refused (os error 111)"), of which only the innermost helps. This walks
//! down to it, and says whose fault it is.

use std::{error::Error, io, time::Duration};

use rustls::{AlertDescription, CertificateError, Error as TlsError};

use crate::bridge::{Failure, FailureClass, Fault, Secrets, Status};

/// The failure that a failed exchange with `peer` (`host:port`) is. Once there was a connection the end of it is a
/// cut, which may be for what was sent on it; TLS, and what was never sent, is the sink's.
pub(crate) fn to_failure(
    error: &(dyn Error + 'static),
    connected: bool,
    peer: &str,
    secrets: &Secrets,
) -> Failure {
    let (class, reason) = describe(error, peer);
    let failure = Failure::new(class, secrets.reason(reason));
    if class == FailureClass::Misconfigured || !connected || is_unsent(error) {
        return failure;
    }
    Failure { fault: Fault::RecordForNow, status: Status::Cut, ..failure }
}

/// The failure of a request that was written and had no answer within a time.
pub(crate) fn silence(within: Duration, peer: &str, secrets: &Secrets) -> Failure {
    let reason = secrets.reason(format_args!("no answer from {peer} within {within:?}"));
    Failure::silence(reason)
}

/// Whether a request was not begun to be written.
fn is_unsent(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(current) = next {
        if current.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled) {
            return true;
        }
        next = current.source();
    }
    false
}

/// Whether a connection ended before an answer had come, of whatever end and for whatever reason.
pub(crate) fn is_cut(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(current) = next {
        if let Some(hyper) = current.downcast_ref::<hyper::Error>()
            && (hyper.is_incomplete_message() || hyper.is_canceled() || hyper.is_closed())
        {
            return true;
        }
        if let Some(io) = current.downcast_ref::<io::Error>() {
            return matches!(
                io.kind(),
                io::ErrorKind::ConnectionReset
                    | io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::BrokenPipe
                    | io::ErrorKind::UnexpectedEof
            );
        }
        next = current.source();
    }
    false
}

fn describe(error: &(dyn Error + 'static), peer: &str) -> (FailureClass, String) {
    let mut texts: Vec<String> = Vec::new();
    let mut resolving = false;
    let mut next = Some(error);
    while let Some(current) = next {
        if let Some(tls) = current.downcast_ref::<TlsError>() {
            return describe_tls(tls, peer);
        }
        if let Some(io) = current.downcast_ref::<io::Error>() {
            let inner = io.get_ref();
            if let Some(tls) = inner.and_then(|inner| inner.downcast_ref::<TlsError>()) {
                return describe_tls(tls, peer);
            }
            if let Some(known) = describe_io(io, resolving, peer) {
                return known;
            }
            // `source` steps over the error that an `io::Error` wraps.
            if let Some(inner) = inner {
                next = Some(inner);
                continue;
            }
        }
        let text = current.to_string();
        resolving |= text == "dns error";
        // Layers that repeat the one below, or say nothing.
        if !LAYERS.contains(&text.as_str()) && !texts.iter().any(|known| known.contains(&text)) {
            texts.push(text);
        }
        next = current.source();
    }
    let detail = if texts.is_empty() { "no details".to_owned() } else { texts.join(": ") };
    if resolving {
        return (FailureClass::Unavailable, format!("cannot resolve the name of {peer}: {detail}"));
    }
    (FailureClass::Unavailable, format!("exchange with {peer} failed: {detail}"))
}

const LAYERS: [&str; 8] = [
    "error sending request",
    "client error (Connect)",
    "client error (SendRequest)",
    "tcp connect error",
    "transport error",
    "dns error",
    "connection error",
    "error reading a body from connection",
];

fn describe_io(error: &io::Error, resolving: bool, peer: &str) -> Option<(FailureClass, String)> {
    let class = FailureClass::Unavailable;
    if resolving {
        return Some((class, format!("cannot resolve the name of {peer}: {error}")));
    }
    let reason = match error.kind() {
        io::ErrorKind::ConnectionRefused => format!("connection refused by {peer}"),
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => format!("connection cut by {peer}"),
        io::ErrorKind::HostUnreachable => format!("no route to {peer}"),
        io::ErrorKind::NetworkUnreachable => format!("the network of {peer} cannot be reached"),
        io::ErrorKind::TimedOut => {
            return Some((FailureClass::Timeout, format!("no connection to {peer} in time")));
        }
        _ => return None,
    };
    Some((class, reason))
}

fn describe_tls(error: &TlsError, peer: &str) -> (FailureClass, String) {
    let reason = match error {
        TlsError::InvalidCertificate(why) => {
            let why = match why {
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    "has expired".to_owned()
                }
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    "is not valid yet".to_owned()
                }
                // The second: by one of the same name as a trusted one, and another key.
                CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                    "is signed by an authority that is not trusted (tls.ca)".to_owned()
                }
                CertificateError::NotValidForName
                | CertificateError::NotValidForNameContext { .. } => {
                    format!("is for another name (tls.serverName): {why}")
                }
                CertificateError::Revoked => "has been revoked".to_owned(),
                other => format!("cannot be accepted: {other}"),
            };
            format!("the certificate of {peer} {why}")
        }
        TlsError::AlertReceived(alert) => match alert {
            AlertDescription::CertificateRequired
            | AlertDescription::HandshakeFailure
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied => format!(
                "{peer} does not accept our certificate, or asks for one (tls.cert, tls.key): \
                {alert:?}"
            ),
            AlertDescription::UnrecognisedName => {
                format!("{peer} does not know the name that it was asked for (tls.serverName)")
            }
            other => format!("{peer} ended the TLS handshake: {other:?}"),
        },
        TlsError::InvalidMessage(_) => {
            format!("{peer} does not speak TLS; http:// instead of https://?")
        }
        other => format!("TLS with {peer} failed: {other}"),
    };
    (FailureClass::Misconfigured, reason)
}
