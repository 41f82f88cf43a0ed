//! The handshake of [`auth`](super::auth) over a connection, from both sides.
//!
//! Neither function has a deadline of its own: the callers bound the whole of it, so that a peer
//! which sends a byte now and then gains nothing.

use storage::codec;

use super::auth::{
    Answer, Challenge, Hello, Lane, Nonce, Proof, Refusal, Role, check_challenge, decode_hello,
    judge,
};
use super::connection::Connection;
use super::frame::HANDSHAKE_FRAME_BYTES_MAX;
use super::{Error, Identity};

/// Proves this node to the peer that was dialled, and has it prove itself.
pub(crate) async fn dial(
    connection: &mut Connection,
    own: &Identity,
    lane: Lane,
    wanted: Option<u64>,
) -> Result<(), Error> {
    let hello = Hello::new(own, lane, wanted, Nonce::random()?);
    send(connection, &hello).await?;
    let challenge: Challenge = receive(connection).await?;
    check_challenge(&hello, &challenge)?;

    send(
        connection,
        &Proof::new(own, Role::Dialer, &hello, &challenge),
    )
    .await?;
    let proof: Proof = receive(connection).await?;
    if !proof.holds(own, Role::Acceptor, &hello, &challenge) {
        return Err(Error::Untrusted("it does not know the cluster secret"));
    }
    connection.set_trusted();
    Ok(())
}

/// A dialer that has proved itself.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) lane: Lane,
    pub(crate) node_id: u64,
    pub(crate) cluster_id: Option<u128>,
}

/// Has the dialer prove itself. `admit` decides, when it has, whether this node takes it; it gets
/// what the decision rests on. A refusal is told to the dialer and returned as an error.
pub(crate) async fn accept(
    connection: &mut Connection,
    own: &Identity,
    raft_ready: impl FnOnce() -> bool,
    admit: impl FnOnce() -> Result<(), Refusal>,
) -> Result<Accepted, Error> {
    let hello = decode_hello(&connection.expect().await?)?;
    let challenge = match Challenge::answer(own, &hello, Nonce::random()?) {
        Ok(challenge) => challenge,
        Err(refusal) => return refuse(connection, refusal).await,
    };
    send(connection, &Answer::Accepted(&challenge)).await?;

    let proof: Proof = codec::decode(&connection.expect().await?, HANDSHAKE_FRAME_BYTES_MAX)?;
    if !proof.holds(own, Role::Dialer, &hello, &challenge) {
        return refuse(connection, Refusal::Secret).await;
    }
    if let Err(refusal) = judge(&hello, &challenge, raft_ready()).and_then(|()| admit()) {
        return refuse(connection, refusal).await;
    }
    let proof = Proof::new(own, Role::Acceptor, &hello, &challenge);
    send(connection, &Answer::Accepted(proof)).await?;
    connection.set_trusted();
    Ok(Accepted {
        lane: hello.lane,
        node_id: hello.node_id,
        cluster_id: hello.cluster_id,
    })
}

/// Reads the dialer's first message and refuses it: without reading, the close would reset the
/// connection and the dialer might never see the reason.
pub(crate) async fn turn_away(connection: &mut Connection, why: Refusal) -> Result<(), Error> {
    connection.expect().await?;
    send(connection, &Answer::<()>::Refused(why)).await
}

async fn refuse(connection: &mut Connection, why: Refusal) -> Result<Accepted, Error> {
    send(connection, &Answer::<()>::Refused(why.clone())).await?;
    Err(Error::Refused(why))
}

async fn send<T: serde::Serialize>(connection: &mut Connection, message: &T) -> Result<(), Error> {
    connection
        .send(|out| Ok(codec::encode_into(message, out)?))
        .await
}

async fn receive<T: serde::de::DeserializeOwned>(connection: &mut Connection) -> Result<T, Error> {
    let frame = connection.expect().await?;
    match codec::decode(&frame, HANDSHAKE_FRAME_BYTES_MAX)? {
        Answer::Accepted(message) => Ok(message),
        Answer::Refused(why) => Err(Error::Refused(why)),
    }
}
