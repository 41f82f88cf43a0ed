//! The handshake's lines and digest, as data.
//!
//! The server says `SHA-256 ` and a nonce; the client answers with the base64url of
//! SHA-256(auth token ‖ nonce). The auth token itself never travels, and a digest that was
//! overheard fits no other connection, since each has a nonce of its own. Digests are compared in
//! constant time, so a wrong one tells nothing of how much of it was right.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

use crate::{Decode, Reason};

/// Longest handshake line, newline excluded, in bytes.
pub const HANDSHAKE_LINE_BYTES_MAX: usize = 256;

/// How many random bytes make a nonce.
pub const NONCE_RANDOM_BYTES: usize = 6;

/// Length of a nonce as it travels, in base64url characters.
pub const NONCE_BYTES: usize = 8;

/// Length of a digest as it travels, in base64url characters.
pub const DIGEST_BYTES: usize = 43;

const CHALLENGE_PREFIX: &[u8] = b"SHA-256 ";

/// The secret that clients and servers share; empty when none is configured.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AuthToken(Box<[u8]>);

impl AuthToken {
    /// The token made of these bytes. Every byte counts, whitespace too.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into().into_boxed_slice())
    }

    /// Whether it is the empty token, which protects nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for AuthToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthToken(..)")
    }
}

/// What one connection's digest is salted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonce([u8; NONCE_BYTES]);

impl Nonce {
    /// The nonce of these bytes, which must come fresh from the system's random source.
    pub fn from_random(random: [u8; NONCE_RANDOM_BYTES]) -> Self {
        let mut text = [0; NONCE_BYTES];
        URL_SAFE_NO_PAD
            .encode_slice(random, &mut text)
            .expect("6 bytes are exactly 8 base64url characters");
        Self(text)
    }

    /// The line that challenges a client, newline included.
    pub fn challenge(&self) -> Vec<u8> {
        [CHALLENGE_PREFIX, &self.0, b"\n"].concat()
    }
}

/// Reads the server's challenge from the front of `buf`. Anything but a challenge in exactly this
/// form is refused as [`Reason::BadRequest`], or, when it is an `E`, for the reason that it names.
pub fn decode_challenge(buf: &[u8]) -> Decode<Nonce> {
    match decode_line(buf) {
        Decode::Complete(line, consumed) => match nonce(line) {
            Some(nonce) => Decode::Complete(nonce, consumed),
            None => Decode::Refused(refusal(line).unwrap_or(Reason::BadRequest)),
        },
        Decode::Incomplete(_) => Decode::Incomplete(0),
        Decode::Refused(reason) => Decode::Refused(reason),
    }
}

fn nonce(line: &[u8]) -> Option<Nonce> {
    let text: [u8; NONCE_BYTES] = line.strip_prefix(CHALLENGE_PREFIX)?.try_into().ok()?;
    let base64url = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    text.iter().all(base64url).then_some(Nonce(text))
}

fn refusal(line: &[u8]) -> Option<Reason> {
    Reason::from_bytes(line.strip_prefix(b"E")?)
}

/// Reads one handshake line from the front of `buf`: the line without its newline, and its length
/// with it. At most [`HANDSHAKE_LINE_BYTES_MAX`] bytes and the newline are looked at.
pub fn decode_line(buf: &[u8]) -> Decode<&[u8]> {
    match buf
        .iter()
        .take(HANDSHAKE_LINE_BYTES_MAX + 1)
        .position(|byte| *byte == b'\n')
    {
        Some(end) => Decode::Complete(&buf[..end], end + 1),
        None if buf.len() > HANDSHAKE_LINE_BYTES_MAX => Decode::Refused(Reason::LineTooLong),
        None => Decode::Incomplete(0),
    }
}

/// The digest that proves `token` against `nonce`, without a newline.
pub fn digest(token: &AuthToken, nonce: &Nonce) -> [u8; DIGEST_BYTES] {
    let hash = Sha256::new()
        .chain_update(&token.0)
        .chain_update(nonce.0)
        .finalize();
    let mut text = [0; DIGEST_BYTES];
    URL_SAFE_NO_PAD
        .encode_slice(hash, &mut text)
        .expect("32 bytes are exactly 43 base64url characters");
    text
}

/// Whether `answer`, a line without its newline, proves one of `tokens`. All of them are tried and
/// compared in full, so the time taken tells neither which one matched nor how nearly.
pub fn verify(answer: &[u8], nonce: &Nonce, tokens: &[AuthToken]) -> bool {
    let none = Choice::from(0);
    tokens
        .iter()
        .fold(none, |found, token| {
            found | digest(token, nonce).ct_eq(answer)
        })
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nonce_of(text: &str) -> Nonce {
        Nonce(
            text.as_bytes()
                .try_into()
                .expect("a nonce has 8 characters"),
        )
    }

    #[test]
    fn digests_match_the_protocols_vectors() {
        for (token, nonce, expected) in [
            (
                "secret",
                "aB3dEf_g",
                "WvDLEd0VIA9cVatiwxXYXRGMDSXw0ibHllLgAMBffdg",
            ),
            (
                "",
                "AAAAAAAA",
                "w0q2q7eyu1lbwlw7OIyHL9HVdYGaj1XMaJUQKF4hI4U",
            ),
            (
                "pässwörd",
                "-_09azAZ",
                "uJyfwnCcGRpOQEKURI_TCbgJ761iDgnoVrpYtKov6_8",
            ),
        ] {
            let digest = digest(&AuthToken::new(token), &nonce_of(nonce));
            assert_eq!(std::str::from_utf8(&digest), Ok(expected));
        }
    }

    #[test]
    fn either_of_two_tokens_matches_and_no_other() {
        let tokens = [AuthToken::new("old"), AuthToken::new("new")];
        let nonce = Nonce::from_random([1, 2, 3, 4, 5, 6]);
        let proves = |token: &str| verify(&digest(&AuthToken::new(token), &nonce), &nonce, &tokens);
        assert!(proves("old"));
        assert!(proves("new"));
        assert!(!proves(""));
        assert!(!proves("newer"));
    }

    #[test]
    fn a_digest_fits_neither_another_nonce_nor_a_longer_or_shorter_line() {
        let tokens = [AuthToken::new("secret")];
        let nonce = nonce_of("aB3dEf_g");
        let answer = digest(&tokens[0], &nonce);
        assert!(verify(&answer, &nonce, &tokens));
        assert!(!verify(&answer, &nonce_of("aB3dEf_h"), &tokens));
        assert!(!verify(&answer[..42], &nonce, &tokens));
        assert!(!verify(&[&answer[..], b"\r"].concat(), &nonce, &tokens));
        assert!(!verify(b"", &nonce, &tokens));
        assert!(!verify(&answer, &nonce, &[]));
    }

    #[test]
    fn a_challenge_is_read_back() {
        let nonce = Nonce::from_random([0xff, 0xfe, 0, 0x7f, 0x80, 1]);
        let line = nonce.challenge();
        assert_eq!(line.len(), 17);
        assert_eq!(decode_challenge(&line), Decode::Complete(nonce, 17));
        for cut in 0..line.len() {
            assert_eq!(decode_challenge(&line[..cut]), Decode::Incomplete(0));
        }
    }

    #[test]
    fn other_challenges_are_refused() {
        for line in [
            "SHA-512 AAAAAAAA\n",
            "SHA-256 AAAA\n",
            "SHA-256 AAAAAAA+\n",
            "SHA-256 AAAAAAAA\r\n",
            "\n",
        ] {
            assert_eq!(
                decode_challenge(line.as_bytes()),
                Decode::Refused(Reason::BadRequest)
            );
        }
        assert_eq!(
            decode_challenge(b"Enot_active\n"),
            Decode::Refused(Reason::NotActive)
        );
    }

    #[test]
    fn a_line_has_256_bytes_at_most() {
        let mut line = vec![b'x'; HANDSHAKE_LINE_BYTES_MAX];
        assert_eq!(decode_line(&line), Decode::Incomplete(0));
        line.push(b'\n');
        assert_eq!(decode_line(&line), Decode::Complete(&line[..256], 257));
        line[256] = b'x';
        line.push(b'\n');
        assert_eq!(decode_line(&line), Decode::Refused(Reason::LineTooLong));
    }

    #[test]
    fn an_auth_token_is_not_printed() {
        assert_eq!(format!("{:?}", AuthToken::new("secret")), "AuthToken(..)");
    }
}
