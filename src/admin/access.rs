//! Who may see and do what.
//!
//! | | on loopback | beyond loopback |
//! |---|---|---|
//! | health, metrics | anybody | anybody |
//! | status, locks | anybody | with the token; nobody if none is set |
//! | what changes something | with the token; nobody if none is set | the same |
//!
//! Names of locks are data of the service's users, so beyond the machine they are shown to who has
//! proved to be entitled; health and metrics hold none. Tokens are compared in constant time.

use axum::http::StatusCode;
use subtle::ConstantTimeEq;

use crate::config::Secret;

/// How the header field begins that carries the token.
const SCHEME: &str = "Bearer ";

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// To see names, members and numbers.
    Read,
    /// To change something.
    Change,
}

/// The endpoint's settings of access.
pub(super) struct Access {
    token: Option<Secret>,
    loopback: bool,
}

/// Why a request is refused: a status and a sentence.
pub(super) type Refusal = (StatusCode, &'static str);

impl Access {
    pub(super) fn new(token: Option<Secret>, loopback: bool) -> Self {
        Self { token, loopback }
    }

    /// Decides on a request that came with this `Authorization` field.
    pub(super) fn check(&self, need: Need, authorization: Option<&[u8]>) -> Result<(), Refusal> {
        if need == Need::Read && self.loopback {
            return Ok(());
        }
        let Some(token) = &self.token else {
            let sentence = match need {
                Need::Read => {
                    "status and locks are shown beyond loopback only with a token: set ADMIN_TOKEN \
                     or ADMIN_TOKEN_FILE on the server"
                }
                Need::Change => {
                    "this is off without a token: set ADMIN_TOKEN or ADMIN_TOKEN_FILE on the server"
                }
            };
            return Err((StatusCode::FORBIDDEN, sentence));
        };
        let shown = authorization.and_then(|field| field.strip_prefix(SCHEME.as_bytes()));
        match shown {
            Some(shown) if bool::from(shown.ct_eq(&token.0)) => Ok(()),
            Some(_) => Err((
                StatusCode::UNAUTHORIZED,
                "the bearer token is not the server's admin token",
            )),
            None => Err((
                StatusCode::UNAUTHORIZED,
                "this needs the server's admin token: Authorization: Bearer TOKEN",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(token: Option<&str>, loopback: bool, need: Need, shown: Option<&str>) -> u16 {
        let token = token.map(|token| Secret(token.as_bytes().to_vec()));
        let access = Access::new(token, loopback);
        match access.check(need, shown.map(str::as_bytes)) {
            Ok(()) => 200,
            Err((status, _)) => status.as_u16(),
        }
    }

    #[test]
    fn reading_is_free_on_loopback_only() {
        for (token, loopback, shown, expected) in [
            (None, true, None, 200),
            (Some("t"), true, None, 200),
            (None, false, None, 403),
            (None, false, Some("Bearer "), 403),
            (Some("t"), false, None, 401),
            (Some("t"), false, Some("Bearer x"), 401),
            (Some("t"), false, Some("Basic t"), 401),
            (Some("t"), false, Some("Bearer t"), 200),
        ] {
            let got = verdict(token, loopback, Need::Read, shown);
            assert_eq!(got, expected, "{token:?} {loopback} {shown:?}");
        }
    }

    #[test]
    fn changing_needs_the_token_everywhere() {
        for loopback in [true, false] {
            for (token, shown, expected) in [
                (None, None, 403),
                (None, Some("Bearer "), 403),
                (Some("t"), None, 401),
                (Some("t"), Some("Bearer tt"), 401),
                (Some("t"), Some("Bearer t"), 200),
            ] {
                let got = verdict(token, loopback, Need::Change, shown);
                assert_eq!(got, expected, "{token:?} {shown:?}");
            }
        }
    }
}
