//! A client that speaks the protocol and nothing more: one connection to one node, no routing, no
//! second try. What it hears is in the history just as the server said it.
//!
//! A reader of its own matches replies, so answers have exact times, requests can be pipelined, and
//! an answer to nothing is found. The session is over when the connection is, or when the node
//! refused: the protocol makes a refusal definitive for the whole session, and the history says so
//! of every acquire that is not answered.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use wire::{
    Acquire, AuthToken, Decode, Key, Lease, Owner, Reason, Release, Reply, Request, Token, Wait,
    decode_challenge, decode_reply, digest, encode_request,
};

use crate::cluster::AUTH_TOKEN;
use crate::history::{Answer, By, Call, Doubt, OpId, Recorder, Refusal, What};

/// How long connecting, TLS and the handshake may take together.
const OPEN_TIME_MAX: Duration = Duration::from_secs(3);

/// How long after a wait is over an answer is still waited for.
const SILENCE_MAX: Duration = Duration::from_secs(6);

/// Where and how to connect.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) tls: Option<Arc<rustls::ClientConfig>>,
    /// Numbers sessions.
    pub(crate) sessions: Arc<AtomicU64>,
}

/// Bytes in both directions.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A byte stream, in TLS or not.
pub(crate) type Pipe = Pin<Box<dyn Stream>>;

/// Connects and waits for the challenge; the stream and its nonce's digest, with what came behind
/// it.
pub(crate) async fn connect(
    tls: Option<&Arc<rustls::ClientConfig>>,
    node: &str,
) -> io::Result<Pipe> {
    let socket = TcpStream::connect(node).await?;
    socket.set_nodelay(true)?;
    let mut pipe: Pipe = match tls {
        None => Box::pin(socket),
        Some(config) => {
            let host = node.rsplit_once(':').map_or(node, |(host, _)| host);
            let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
            let connector = TlsConnector::from(Arc::clone(config));
            Box::pin(connector.connect(name, socket).await?)
        }
    };
    let mut line = Vec::new();
    loop {
        match decode_challenge(&line) {
            Decode::Complete(nonce, _) => {
                let mut answer = digest(&AuthToken::new(AUTH_TOKEN), &nonce).to_vec();
                answer.push(b'\n');
                pipe.write_all(&answer).await?;
                pipe.flush().await?;
                return Ok(pipe);
            }
            Decode::Incomplete(_) => line.push(pipe.read_u8().await?),
            Decode::Refused(_) => return Err(ErrorKind::InvalidData.into()),
        }
    }
}

/// One connection to one node.
pub(crate) struct Session {
    pub(crate) node: String,
    client: u32,
    recorder: Arc<Recorder>,
    writer: AsyncMutex<WriteHalf<Pipe>>,
    state: Arc<Mutex<State>>,
    reader: JoinHandle<()>,
}

/// What a session waits for.
struct State {
    number: u64,
    recorder: Arc<Recorder>,
    acquires: BTreeMap<Owner, oneshot::Sender<Came>>,
    releases: BTreeMap<(Token, Key), VecDeque<Waiting>>,
    leader: Option<String>,
    /// Nothing can be asked any more.
    over: bool,
    /// Nothing is heard any more: what comes late is not astray.
    deaf: bool,
    /// What becomes of that which is not answered when the connection ends.
    at_the_end: Doubt,
}

/// Who waits for a release's answer.
enum Waiting {
    /// The call.
    Call(OpId, oneshot::Sender<Came>),
    /// The acquire that has arrived when it comes.
    Arrival(OpId),
}

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    Ok(Answer),
    Fail(Refusal),
    Unknown,
}

impl Came {
    /// The token of a grant.
    pub(crate) fn token(self) -> Option<u64> {
        match self {
            Self::Ok(Answer::Granted { token, .. }) => Some(token),
            _ => None,
        }
    }

    /// Whether the node said that it does not serve.
    pub(crate) fn is_refusal(self) -> bool {
        matches!(
            self,
            Self::Fail(Refusal::Moved | Refusal::NoLeader | Refusal::NotActive)
        )
    }
}

/// A call on its way.
pub(crate) struct Pending {
    pub(crate) op: OpId,
    answer: oneshot::Receiver<Came>,
    patience: Duration,
}

impl Session {
    /// Connects `client` to `node`.
    pub(crate) async fn open(endpoint: &Endpoint, client: u32, node: &str) -> io::Result<Self> {
        let pipe = timeout(OPEN_TIME_MAX, connect(endpoint.tls.as_ref(), node)).await??;
        Ok(Self::over(pipe, endpoint, client, node))
    }

    fn over(pipe: Pipe, endpoint: &Endpoint, client: u32, node: &str) -> Self {
        let (read, write) = split(pipe);
        let state = Arc::new(Mutex::new(State {
            number: endpoint.sessions.fetch_add(1, Ordering::Relaxed),
            recorder: Arc::clone(&endpoint.recorder),
            acquires: BTreeMap::new(),
            releases: BTreeMap::new(),
            leader: None,
            over: false,
            deaf: false,
            at_the_end: Doubt::Lost,
        }));
        let reader = tokio::spawn(listen(read, Arc::clone(&state)));
        Self {
            node: node.to_owned(),
            client,
            recorder: Arc::clone(&endpoint.recorder),
            writer: AsyncMutex::new(write),
            state,
            reader,
        }
    }

    /// Whether it can still be asked.
    pub(crate) fn is_over(&self) -> bool {
        lock(&self.state).over
    }

    /// Whom the node named the leader, last.
    pub(crate) fn leader(&self) -> Option<String> {
        lock(&self.state).leader.clone()
    }

    /// Sends an acquire.
    pub(crate) async fn acquire(&self, key: &str, wait_s: u8, lease_s: u8) -> Pending {
        let call = Call::Acquire {
            key: key.to_owned(),
            wait_s,
            lease_s,
            by: By::Raw,
            node: self.node.clone(),
        };
        let request = |op| {
            Request::Acquire(Acquire {
                wait: Wait(wait_s),
                lease: Lease::from_seconds(lease_s).expect("workloads ask for real leases"),
                owner: Owner(op),
                key: parse(key),
            })
        };
        let patience = Duration::from_secs(wait_s.into()) + SILENCE_MAX;
        let wait_for = |state: &mut State, op, answer| {
            state.acquires.insert(Owner(op), answer);
        };
        self.send(call, request, wait_for, patience).await
    }

    /// Sends a release.
    pub(crate) async fn release(&self, key: &str, token: u64) -> Pending {
        let call = Call::Release {
            key: key.to_owned(),
            token,
            by: By::Raw,
        };
        let key = parse(key);
        let request = |_| {
            let (token, key) = (Token(token), key.clone());
            Request::Release(Release { token, key })
        };
        let wait_for = |state: &mut State, op, answer| {
            let waiting = state.releases.entry((Token(token), key.clone()));
            waiting.or_default().push_back(Waiting::Call(op, answer));
        };
        self.send(call, request, wait_for, SILENCE_MAX).await
    }

    /// Lets the history know when the acquire `op` has surely arrived: sends a release of no token
    /// behind it.
    pub(crate) async fn prove_arrival(&self, key: &str, op: OpId) {
        let release = Release {
            token: Token(0),
            key: parse(key),
        };
        {
            let mut state = lock(&self.state);
            let waiting = state.releases.entry((release.token, release.key.clone()));
            waiting.or_default().push_back(Waiting::Arrival(op));
        }
        self.write(&Request::Release(release)).await;
    }

    async fn send(
        &self,
        call: Call,
        request: impl FnOnce(OpId) -> Request,
        wait_for: impl FnOnce(&mut State, OpId, oneshot::Sender<Came>),
        patience: Duration,
    ) -> Pending {
        let (sender, answer) = oneshot::channel();
        let op = self.recorder.invoke(self.client, call);
        let over = {
            let mut state = lock(&self.state);
            if state.over {
                self.recorder.write(What::Fail {
                    op,
                    why: Refusal::Unsent,
                });
                let _ = sender.send(Came::Fail(Refusal::Unsent));
            } else {
                wait_for(&mut state, op, sender);
            }
            state.over
        };
        if !over {
            self.write(&request(op)).await;
        }
        Pending {
            op,
            answer,
            patience,
        }
    }

    /// A failure shows in the reader as well, which ends what is under way.
    async fn write(&self, request: &Request) {
        let mut bytes = Vec::new();
        encode_request(request, &mut bytes);
        let mut writer = self.writer.lock().await;
        let written = timeout(SILENCE_MAX, async {
            writer.write_all(&bytes).await?;
            writer.flush().await
        });
        if !matches!(written.await, Ok(Ok(()))) {
            lock(&self.state).end(Doubt::Lost);
        }
    }

    /// Waits for a call's end.
    pub(crate) async fn end(&self, pending: Pending) -> Came {
        match timeout(pending.patience, pending.answer).await {
            Ok(came) => came.unwrap_or(Came::Unknown),
            Err(_) => {
                lock(&self.state).end(Doubt::Silent);
                Came::Unknown
            }
        }
    }

    /// Acquires and waits for the answer.
    pub(crate) async fn ask(&self, key: &str, wait_s: u8, lease_s: u8) -> Came {
        let pending = self.acquire(key, wait_s, lease_s).await;
        self.end(pending).await
    }

    /// Releases and waits for the answer.
    pub(crate) async fn give_back(&self, key: &str, token: u64) -> Came {
        let pending = self.release(key, token).await;
        self.end(pending).await
    }

    /// Goes away, whatever is under way: it says no more, and asks for nothing of what is said.
    ///
    /// What the node had said by then is heard to the end, in the background. A grant among it was
    /// delivered, and stays though nobody is there to use it; without having listened nobody could
    /// tell it from one that the server must give back.
    pub(crate) async fn vanish(mut self) {
        {
            let mut state = lock(&self.state);
            (state.over, state.at_the_end) = (true, Doubt::Vanished);
        }
        // It can fail only if the connection is over already.
        let _ = timeout(SILENCE_MAX, self.writer.get_mut().shutdown()).await;
        tokio::spawn(async move {
            // Who can't be heard to the end has vanished all the same.
            let _ = timeout(SILENCE_MAX, &mut self.reader).await;
        });
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.reader.abort();
        lock(&self.state).end(Doubt::Vanished);
    }
}

impl State {
    /// What is not answered now never will be.
    fn end(&mut self, why: Doubt) {
        (self.over, self.deaf) = (true, true);
        for (owner, _) in std::mem::take(&mut self.acquires) {
            self.recorder.write(What::Info { op: owner.0, why });
        }
        self.end_releases(why);
    }

    fn end_releases(&mut self, why: Doubt) {
        for waiting in std::mem::take(&mut self.releases).into_values().flatten() {
            if let Waiting::Call(op, _) = waiting {
                self.recorder.write(What::Info { op, why });
            }
        }
    }

    /// The node does not serve: definitive for every acquire of the session.
    fn refuse(&mut self, why: Refusal) {
        self.over = true;
        for (owner, answer) in std::mem::take(&mut self.acquires) {
            self.recorder.write(What::Fail { op: owner.0, why });
            let _ = answer.send(Came::Fail(why));
        }
        self.end_releases(Doubt::Refused);
    }

    fn hear(&mut self, reply: Reply) {
        if self.deaf {
            return;
        }
        let known = match &reply {
            Reply::Granted { token, owner, .. } => {
                let answer = Answer::Granted {
                    token: token.0,
                    valid_until: None,
                };
                self.acquired(*owner, Came::Ok(answer))
            }
            Reply::TimedOut { owner, .. } => self.acquired(*owner, Came::Fail(Refusal::TimedOut)),
            Reply::Busy { owner, .. } => self.acquired(*owner, Came::Fail(Refusal::Busy)),
            Reply::Released { token, key } => self.released(*token, key, Answer::Released),
            Reply::NotCurrent { token, key } => self.released(*token, key, Answer::NotCurrent),
            Reply::Leader(address) => {
                self.leader = Some(address.clone());
                true
            }
            Reply::Moved(address) => {
                self.leader = Some(address.clone());
                self.refuse(Refusal::Moved);
                true
            }
            Reply::Error(Reason::NoLeader) => {
                self.refuse(Refusal::NoLeader);
                true
            }
            Reply::Error(Reason::NotActive) => {
                self.refuse(Refusal::NotActive);
                true
            }
            Reply::Error(_) => false,
        };
        if !known {
            self.recorder.write(What::Stray {
                session: self.number,
                frame: format!("{reply:?}"),
            });
        }
    }

    fn acquired(&mut self, owner: Owner, came: Came) -> bool {
        let Some(waiting) = self.acquires.remove(&owner) else {
            return false;
        };
        let op = owner.0;
        self.recorder.write(match came {
            Came::Ok(answer) => What::Ok { op, answer },
            Came::Fail(why) => What::Fail { op, why },
            Came::Unknown => return false,
        });
        let _ = waiting.send(came);
        true
    }

    fn released(&mut self, token: Token, key: &Key, answer: Answer) -> bool {
        let waiting = self.releases.get_mut(&(token, key.clone()));
        match waiting.and_then(VecDeque::pop_front) {
            None => false,
            Some(Waiting::Arrival(op)) => {
                // An acquire that is answered already needs no proof.
                if self.acquires.contains_key(&Owner(op)) {
                    self.recorder.write(What::Arrived { op });
                }
                true
            }
            Some(Waiting::Call(op, waiting)) => {
                self.recorder.write(What::Ok { op, answer });
                let _ = waiting.send(Came::Ok(answer));
                true
            }
        }
    }
}

/// Reads until the connection ends.
async fn listen(mut read: ReadHalf<Pipe>, state: Arc<Mutex<State>>) {
    let mut unread = Vec::new();
    let mut chunk = vec![0; 4096];
    loop {
        match decode_reply(&unread) {
            Decode::Complete(reply, consumed) => {
                unread.drain(..consumed);
                lock(&state).hear(reply);
                continue;
            }
            Decode::Incomplete(_) => {}
            Decode::Refused(reason) => {
                let mut state = lock(&state);
                let frame = format!("{reason}: {}", unread.escape_ascii());
                let session = state.number;
                state.recorder.write(What::Stray { session, frame });
                state.end(Doubt::Lost);
                return;
            }
        }
        match read.read(&mut chunk).await {
            Ok(count @ 1..) => unread.extend_from_slice(&chunk[..count]),
            _ => {
                let mut state = lock(&state);
                let why = state.at_the_end;
                state.end(why);
                return;
            }
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn parse(key: &str) -> Key {
    key.parse().expect("workloads use keys that are keys")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{History, Outcome, RunInfo};

    /// What the history says after a session with these calls heard these replies.
    fn heard(calls: impl FnOnce(&mut State, &Recorder), replies: Vec<Reply>) -> History {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history");
        let recorder = Arc::new(Recorder::create(&path, RunInfo::default()).unwrap());
        let mut state = State {
            number: 1,
            recorder: Arc::clone(&recorder),
            acquires: BTreeMap::new(),
            releases: BTreeMap::new(),
            leader: None,
            over: false,
            deaf: false,
            at_the_end: Doubt::Lost,
        };
        calls(&mut state, &recorder);
        for reply in replies {
            state.hear(reply);
        }
        recorder.flush().unwrap();
        History::read(&path).unwrap()
    }

    /// What the history says of an acquire of a client that vanishes and is told `late` then.
    async fn vanished(late: Option<Reply>) -> History {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history");
        let endpoint = Endpoint {
            recorder: Arc::new(Recorder::create(&path, RunInfo::default()).unwrap()),
            tls: None,
            sessions: Arc::default(),
        };
        let (client, mut server) = tokio::io::duplex(4096);
        let session = Session::over(Box::pin(client), &endpoint, 1, "a");
        let pending = session.acquire("k", 1, 1).await;
        session.vanish().await;
        let mut asked = Vec::new();
        server.read_to_end(&mut asked).await.unwrap();
        assert!(!asked.is_empty());
        if let Some(late) = late {
            let mut bytes = Vec::new();
            wire::encode_reply(&late, &mut bytes);
            server.write_all(&bytes).await.unwrap();
        }
        drop(server);
        // It comes to its end, one way or the other.
        let _ = pending.answer.await;
        endpoint.recorder.flush().unwrap();
        History::read(&path).unwrap()
    }

    #[tokio::test]
    async fn what_was_delivered_to_a_client_that_vanished_is_known() {
        let history = vanished(Some(granted(1))).await;
        assert_eq!(history.operations[0].grant().unwrap().token, 9);
        let history = vanished(None).await;
        let outcome = history.operations[0].outcome;
        assert_eq!(outcome, Outcome::Info(Doubt::Vanished));
    }

    fn acquire(state: &mut State, recorder: &Recorder) {
        let call = Call::Acquire {
            key: "k".into(),
            wait_s: 1,
            lease_s: 1,
            by: By::Raw,
            node: "a".into(),
        };
        let op = recorder.invoke(1, call);
        state.acquires.insert(Owner(op), oneshot::channel().0);
    }

    fn granted(owner: u64) -> Reply {
        Reply::Granted {
            token: Token(9),
            owner: Owner(owner),
            key: parse("k"),
        }
    }

    #[test]
    fn an_answer_ends_its_call_and_a_second_one_is_astray() {
        let history = heard(acquire, vec![granted(1), granted(1)]);
        assert_eq!(history.operations[0].grant().unwrap().token, 9);
        assert_eq!(history.strays.len(), 1);
    }

    #[test]
    fn what_comes_after_a_client_gave_up_is_not_astray() {
        let calls = |state: &mut State, recorder: &Recorder| {
            acquire(state, recorder);
            state.end(Doubt::Silent);
        };
        let history = heard(calls, vec![granted(1)]);
        assert_eq!(history.operations[0].outcome, Outcome::Info(Doubt::Silent));
        assert_eq!(history.strays, []);
    }

    #[test]
    fn a_refusal_is_definitive_for_all_acquires_and_a_grant_behind_it_is_astray() {
        let calls = |state: &mut State, recorder: &Recorder| {
            acquire(state, recorder);
            acquire(state, recorder);
        };
        let history = heard(calls, vec![Reply::Moved("b".into()), granted(2)]);
        let refused = Outcome::Fail(Refusal::Moved);
        assert!(history.operations.iter().all(|op| op.outcome == refused));
        assert_eq!(history.strays.len(), 1);
    }
}
