//! Who is told what.
//!
//! A status and the reasons of a probe hold the words of receivers and the names of sinks, so they are
//! for whoever is on the machine already, or shows the token. Liveness and readiness are for everybody.

use std::sync::{Arc, Mutex, PoisonError};

use axum::{
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use subtle::ConstantTimeEq as _;

use super::connections::Peer;
use crate::{config::ServerDetail, sinks::Secret};

/// What strangers are told, and how somebody shows to be none.
#[derive(Clone, Debug, Default)]
pub(super) struct Access {
    pub(super) detail: ServerDetail,
    pub(super) token: Token,
}

/// The token that a request shows to see everything, if there is one; it may change. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Token(Arc<Mutex<Option<Secret>>>);

impl Token {
    pub(super) fn new(token: Option<Secret>) -> Self {
        Self(Arc::new(Mutex::new(token)))
    }

    /// Replaces the token; `None` removes it.
    pub fn set(&self, token: Option<Secret>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = token;
    }

    fn get(&self) -> Option<Secret> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Access {
    /// Whether a request may see what is open to others only from this detail on.
    pub(super) fn permit(
        &self,
        wanted: ServerDetail,
        peer: Peer,
        headers: &HeaderMap,
    ) -> Result<(), Refused> {
        let Peer::Address(address) = peer else { return Ok(()) };
        // A proxy on this machine says for whom it asks.
        let forwarded =
            headers.contains_key("x-forwarded-for") || headers.contains_key("forwarded");
        let local = address.ip().to_canonical().is_loopback() && !forwarded;
        if local || self.detail >= wanted {
            return Ok(());
        }
        let Some(token) = self.token.get() else {
            return Err(Refused::Elsewhere);
        };
        match shown(headers) {
            Some(shown) if token.expose().as_bytes().ct_eq(shown).into() => Ok(()),
            Some(_) => Err(Refused::Token { found: "another" }),
            None => Err(Refused::Token { found: "none" }),
        }
    }
}

/// Why a request may not see something.
#[derive(Debug)]
pub(super) enum Refused {
    /// It does not come from loopback, and nothing else would open it.
    Elsewhere,
    /// It does not show the token.
    Token { found: &'static str },
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        match self {
            Self::Elsewhere => {
                let what = "expected a request from loopback, as `kubectl port-forward` makes it, found \
                     one from elsewhere: server.detail or server.token opens this to others\n";
                (StatusCode::FORBIDDEN, what).into_response()
            }
            Self::Token { found } => {
                let what = format!(
                    "expected the token of server.token as `Authorization: Bearer TOKEN`, found {found}\n"
                );
                let asked = [(header::WWW_AUTHENTICATE, "Bearer")];
                (StatusCode::UNAUTHORIZED, asked, what).into_response()
            }
        }
    }
}

/// The token that a request shows.
fn shown(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use ServerDetail::{All, Loopback, Metrics};

    use super::*;

    /// What a request for something is answered: 0 if it may see it.
    fn answer(access: &Access, wanted: ServerDetail, from: &str, headers: &[(&str, &str)]) -> u16 {
        let pairs = headers.iter().map(|(name, value)| {
            let name = header::HeaderName::try_from(*name).unwrap();
            (name, value.parse().unwrap())
        });
        let peer = Peer::Address(from.parse().unwrap());
        let refused = access.permit(wanted, peer, &pairs.collect()).err();
        refused.map_or(0, |refused| refused.into_response().status().as_u16())
    }

    #[test]
    fn loopback_sees_everything_in_whichever_family_it_comes() {
        let access = Access::default();
        for from in ["127.0.0.1:1", "127.8.9.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(answer(&access, All, from, &[]), 0, "{from}");
        }
        for from in ["10.0.0.1:1", "[::ffff:10.0.0.1]:1", "[fd00::1]:1", "[::]:1"] {
            assert_eq!(answer(&access, Metrics, from, &[]), 403, "{from}");
        }
        for forwarded in [("x-forwarded-for", "10.0.0.1"), ("forwarded", "for=10.0.0.1")] {
            assert_eq!(answer(&access, All, "127.0.0.1:1", &[forwarded]), 403, "{forwarded:?}");
        }
        assert!(access.permit(All, Peer::Socket, &HeaderMap::new()).is_ok());
    }

    #[test]
    fn others_see_what_the_detail_says_and_all_of_it_with_the_token() {
        for (detail, metrics, status) in [(Loopback, 403, 403), (Metrics, 0, 403), (All, 0, 0)] {
            let access = Access { detail, token: Token::default() };
            let seen = [Metrics, All].map(|wanted| answer(&access, wanted, "10.0.0.1:1", &[]));
            assert_eq!(seen, [metrics, status], "{detail:?}");
        }
        let token = Token::new(Some(Secret::new("a-token-of-sixteen")));
        let access = Access { detail: Metrics, token: token.clone() };
        for (shown, code) in [
            ("Bearer a-token-of-sixteen", 0),
            ("bearer  a-token-of-sixteen", 0),
            ("Bearer a-token-of-sixtee", 401),
            ("Bearer a-token-of-sixteenn", 401),
            ("Bearer ", 401),
            ("Basic a-token-of-sixteen", 401),
            ("a-token-of-sixteen", 401),
            ("", 401),
        ] {
            let shown = [("authorization", shown)];
            assert_eq!(answer(&access, All, "10.0.0.1:1", &shown), code, "{shown:?}");
        }
        assert_eq!(answer(&access, Metrics, "10.0.0.1:1", &[]), 0);
        assert_eq!(answer(&access, All, "10.0.0.1:1", &[]), 401);
        assert_eq!(answer(&access, All, "127.0.0.1:1", &[("authorization", "Bearer x")]), 0);
        token.set(Some(Secret::new("another-token-of-more")));
        let before = [("authorization", "Bearer a-token-of-sixteen")];
        let now = [("authorization", "Bearer another-token-of-more")];
        assert_eq!([before, now].map(|shown| answer(&access, All, "10.0.0.1:1", &shown)), [401, 0]);
    }
}
