//! The server's side of the auth handshake: challenge, one line, verdict.
//!
//! It has no deadline of its own: whoever runs it bounds it together with the TLS handshake.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::{
    AuthToken, Decode, NONCE_RANDOM_BYTES, Nonce, Reason, Reply, decode_line, encode_reply,
};

use super::input::Input;
use super::transport::Transport;

/// Why a client does not come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It was told why.
    Refused(Reason),
    /// The connection ended.
    Lost,
    /// The system has no random bytes, so nobody can be challenged.
    NoRandomness,
}

/// Challenges the client and checks its answer. What it has sent behind it is in the input.
pub(super) async fn authenticate<T: Transport>(
    stream: &mut T,
    tokens: &[AuthToken],
) -> Result<Input, Failure> {
    let nonce = nonce()?;
    send(stream, &nonce.challenge()).await?;
    let mut input = Input::new();
    let verdict = loop {
        match decode_line(input.pending()) {
            Decode::Complete(answer, consumed) => {
                let proven = wire::verify(answer, &nonce, tokens);
                input.consume(consumed);
                break if proven {
                    Ok(())
                } else {
                    Err(Reason::AuthFailed)
                };
            }
            Decode::Refused(reason) => break Err(reason),
            Decode::Incomplete(_) => match stream.read(input.room()).await {
                Ok(count @ 1..) => input.filled(count),
                Ok(0) | Err(_) => return Err(Failure::Lost),
            },
        }
    };
    match verdict {
        Ok(()) => Ok(input),
        Err(reason) => {
            let mut last = Vec::new();
            encode_reply(&Reply::Error(reason), &mut last);
            send(stream, &last).await?;
            Err(Failure::Refused(reason))
        }
    }
}

fn nonce() -> Result<Nonce, Failure> {
    let mut random = [0; NONCE_RANDOM_BYTES];
    getrandom::fill(&mut random).map_err(|_| Failure::NoRandomness)?;
    Ok(Nonce::from_random(random))
}

async fn send<T: Transport>(stream: &mut T, bytes: &[u8]) -> Result<(), Failure> {
    stream.write_all(bytes).await.map_err(|_| Failure::Lost)?;
    stream.flush().await.map_err(|_| Failure::Lost)
}
