//! A future may be dropped at any moment. Here each call is run again and again against the same
//! script and dropped one step later each time: after so many turns of the runtime, with time
//! passing in between, and instead of its first, second, ... poll. The runs are the same each time up
//! to that moment, so every moment at which the call can be dropped is seen.
//!
//! Whatever the moment: no lock stays held that nobody knows of, no call is sent twice, the
//! others on the connection go on, and every place under a limit is free in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use wire::{Acquire, Request};

use super::*;

/// What the server makes of the acquire of `k`, and of the releases of `k` and `r`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Script {
    Answer,
    AnswerLater,
    TimeOut,
    Busy,
    /// Refuses the first session, answers on the next.
    Move,
    /// Ends the first connection, answers on the next.
    Cut,
    /// Says nothing to it, ever.
    Silence,
}

const SCRIPTS: [Script; 7] = [
    Script::Answer,
    Script::AnswerLater,
    Script::TimeOut,
    Script::Busy,
    Script::Move,
    Script::Cut,
    Script::Silence,
];

/// When [`Script::AnswerLater`] answers, and when the bystander's call is granted.
const LATER: Duration = ms(500);
const BYSTANDER: Duration = ms(4000);

/// A lock service that is small enough to be looked through.
#[derive(Default)]
struct Model {
    held: BTreeSet<Token>,
    granted: u64,
    /// How often each owner's request came, refused ones not counted.
    asked: BTreeMap<u64, u32>,
    connections: u32,
}

impl Model {
    fn grant(&mut self, acquire: &Acquire) -> Reply {
        self.granted += 1;
        self.held.insert(Token(self.granted));
        granted(self.granted, acquire)
    }

    fn release(&mut self, release: &wire::Release) -> Reply {
        let (token, key) = (release.token, release.key.clone());
        match self.held.remove(&token) {
            true => Reply::Released { token, key },
            false => Reply::NotCurrent { token, key },
        }
    }
}

type Shared = Arc<Mutex<Model>>;

/// Serves one connection after the other, whatever comes.
async fn serve(mut server: Server, script: Script, model: Shared) {
    loop {
        let mut peer = server.accept().await;
        model.lock().unwrap().connections += 1;
        connection(&mut peer, script, &model).await;
    }
}

/// Serves one connection until its end.
async fn connection(peer: &mut Peer, script: Script, model: &Shared) {
    let is_first = model.lock().unwrap().connections == 1;
    // By the moment at which they are made.
    let mut later: Vec<(Instant, Request)> = Vec::new();
    loop {
        let next = later.iter().map(|(at, _)| *at).min();
        let due = async {
            match next {
                Some(next) => tokio::time::sleep_until(next).await,
                None => std::future::pending().await,
            }
        };
        let request = tokio::select! {
            biased;
            () = due => {
                let index = later.iter().position(|(at, _)| Some(*at) == next).unwrap();
                let (_, request) = later.remove(index);
                let reply = match &request {
                    Request::Acquire(acquire) => model.lock().unwrap().grant(acquire),
                    Request::Release(release) => model.lock().unwrap().release(release),
                };
                peer.say(reply).await;
                continue;
            }
            request = peer.next() => request,
        };
        let Some(request) = request else { return };
        let scripted = match &request {
            Request::Acquire(acquire) => acquire.key.as_str() == "k",
            Request::Release(release) => matches!(release.key.as_str(), "k" | "r"),
        };
        if let Request::Acquire(acquire) = &request {
            let mut model = model.lock().unwrap();
            *model.asked.entry(acquire.owner.0).or_default() += 1;
        }
        match (script, request) {
            (Script::Move, _) if scripted && is_first => {
                model.lock().unwrap().asked.clear();
                return peer.say(Reply::Moved("a:1".into())).await;
            }
            (Script::Cut, _) if scripted && is_first => return,
            (Script::Silence, _) if scripted => {}
            (Script::AnswerLater, request) if scripted => {
                later.push((Instant::now() + LATER, request));
            }
            (Script::TimeOut, Request::Acquire(acquire)) if scripted => {
                peer.time_out(&acquire).await;
            }
            (Script::Busy, Request::Acquire(acquire)) if scripted => {
                let (owner, key) = (acquire.owner, acquire.key);
                peer.say(Reply::Busy { owner, key }).await;
            }
            (_, Request::Acquire(acquire)) if acquire.key.as_str() == "b" => {
                later.push((Instant::now() + BYSTANDER, Request::Acquire(acquire)));
            }
            (_, Request::Acquire(acquire)) => {
                let reply = model.lock().unwrap().grant(&acquire);
                peer.say(reply).await;
            }
            (_, Request::Release(release)) => {
                let reply = model.lock().unwrap().release(&release);
                peer.say(reply).await;
            }
        }
    }
}

/// When a future is dropped.
#[derive(Clone, Copy, Debug)]
enum Drop {
    /// After so many steps of everything else.
    AfterSteps(u32),
    /// Instead of being polled once more.
    InsteadOfPoll(u32),
}

/// So many turns of the runtime; after each dozen some time passes.
async fn steps(count: u32) {
    for step in 1..=count {
        if step % 12 == 0 {
            tokio::time::sleep(ms(250)).await;
        } else {
            tokio::task::yield_now().await;
        }
    }
}

/// Runs the future until it ends or is dropped; whether it ended.
async fn run_until(future: impl Future, drop: Drop) -> bool {
    let mut future = pin!(future);
    match drop {
        Drop::AfterSteps(count) => {
            let mut steps = pin!(steps(count));
            poll_fn(|cx| {
                if steps.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(false);
                }
                future.as_mut().poll(cx).map(|_| true)
            })
            .await
        }
        Drop::InsteadOfPoll(count) => {
            let mut polls = 0;
            poll_fn(|cx| {
                if polls == count {
                    return Poll::Ready(false);
                }
                polls += 1;
                future.as_mut().poll(cx).map(|_| true)
            })
            .await
        }
    }
}

/// What is done and dropped.
#[derive(Clone, Copy, Debug)]
enum Call {
    Acquire,
    WithLock,
    Release,
    WaitReady,
    Close,
}

/// One run; whether the call ended before it was dropped.
async fn run(call: Call, script: Script, drop: Drop) -> bool {
    let case = format!("{call:?}, {script:?}, {drop:?}");
    let server = Server::alone();
    let broker = server.broker();
    let model = Shared::default();
    let serving = tokio::spawn(serve(server, script, Arc::clone(&model)));
    let bystander = ask(&broker, "b", 20_000);
    let asked = broker.acquire("k").wait(ms(1000));
    let ended = match call {
        Call::Acquire => run_until(asked.work_budget(ms(1000)), drop).await,
        Call::WithLock => {
            let work = asked.with_lock(ms(1000), async |_| steps(20).await);
            run_until(work, drop).await
        }
        Call::Release => {
            // A key whose acquire is answered whatever the script says, which is for the release.
            let ticket = broker.acquire("r").work_budget(ms(1000)).await;
            run_until(ticket.unwrap().release(), drop).await
        }
        Call::WaitReady => run_until(broker.wait_ready(ms(1000)), drop).await,
        Call::Close => run_until(broker.close(), drop).await,
    };
    let is_closed = broker.dispatcher().is_closing();
    match outcome(bystander).await {
        Ok(ticket) => {
            let outcome = ticket.release().await;
            assert!(outcome.is_ok(), "{case}: {outcome:?}");
        }
        Err(Error::Indeterminate | Error::Closed) if is_closed => {}
        // The others pay only for a connection that is gone or as good as that.
        Err(Error::Indeterminate) => {
            assert!(matches!(script, Script::Cut | Script::Silence), "{case}");
        }
        Err(error) => panic!("{case}: {error:?}"),
    }
    // Longer than every patience.
    tokio::time::sleep(ms(20_000)).await;
    assert!(broker.dispatcher().is_idle(), "{case}: something is left");
    let model = model.lock().unwrap();
    let twice = model.asked.values().any(|times| *times > 1);
    assert!(!twice, "{case}: a request was sent twice");
    // Where releases are not answered, or the answer that would be given back was lost with its
    // connection, leases take care.
    let left_to_leases = matches!(script, Script::Silence | Script::Cut) || is_closed;
    assert!(
        left_to_leases || model.held.is_empty(),
        "{case}: {:?} is held by nobody",
        model.held
    );
    serving.abort();
    ended
}

/// Drops the call one step later each time, until it ends by itself.
async fn drop_at_every_step(call: Call) {
    for script in SCRIPTS {
        for dropped in [Drop::AfterSteps as fn(u32) -> Drop, Drop::InsteadOfPoll] {
            let mut count = 0;
            while !run(call, script, dropped(count)).await {
                count += 1;
                assert!(count < 400, "{call:?}, {script:?}: it never ends");
            }
            assert!(count > 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_can_be_dropped_at_any_moment() {
    drop_at_every_step(Call::Acquire).await;
}

#[tokio::test(start_paused = true)]
async fn work_under_a_lock_can_be_dropped_at_any_moment() {
    drop_at_every_step(Call::WithLock).await;
}

#[tokio::test(start_paused = true)]
async fn a_release_can_be_dropped_at_any_moment() {
    drop_at_every_step(Call::Release).await;
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_connection_can_be_dropped_at_any_moment() {
    drop_at_every_step(Call::WaitReady).await;
}

#[tokio::test(start_paused = true)]
async fn closing_can_be_dropped_at_any_moment() {
    drop_at_every_step(Call::Close).await;
}
