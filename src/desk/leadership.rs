//! Coming to serve, ceasing to, and what everybody is told meanwhile.

use raft::{Activation, Activity};
use wire::{Reason, Reply};

use super::Desk;
use super::event::{Effect, Leadership, SessionId};
use super::span::Span;

impl Desk {
    pub(super) fn opened(&mut self, id: SessionId, effects: &mut Vec<Effect>) {
        self.sessions.open(id);
        if let Some(address) = self.known_leader() {
            effects.push(Effect::Reply(id, Reply::Leader(address.to_owned())));
        }
    }

    /// The process may serve from here on, unless that is over already: a revocation comes on a
    /// way of its own and may be the faster one.
    pub(super) fn activated(&mut self, activation: Activation, effects: &mut Vec<Effect>) {
        let newest = self
            .span
            .as_ref()
            .map_or(self.revoked, |span| span.activity);
        if self.stopping || activation.activity <= newest.max(self.revoked) {
            return;
        }
        // An activity follows another one only when that one is over.
        self.lose_activity(effects);
        let tally = std::mem::take(&mut self.tally);
        self.span = Some(Span::new(activation, self.limits, tally));
        self.announce(effects);
    }

    pub(super) fn revoke(&mut self, activity: Activity, effects: &mut Vec<Effect>) {
        self.revoked = self.revoked.max(activity);
        if self
            .span
            .as_ref()
            .is_some_and(|span| span.activity <= self.revoked)
        {
            self.lose_activity(effects);
        }
        self.announce(effects);
    }

    /// Ends the activity, if there is one. Where an acquire was proposed, only silence is true:
    /// its session is closed. All others are told, once for each request, that nothing of theirs
    /// was done. (A release may be done nevertheless; it is safe to ask for again.)
    pub(super) fn lose_activity(&mut self, effects: &mut Vec<Effect>) {
        let Some(span) = self.span.take() else {
            return;
        };
        let refusal = self.refusal();
        self.sessions.retain(|id, session| {
            if session.is_proposed() {
                effects.push(Effect::Close(id));
                return false;
            }
            let unanswered = session.unanswered();
            session.refused |= unanswered > 0;
            session.forget_requests();
            let refusals = std::iter::repeat_n(Effect::Reply(id, refusal.clone()), unanswered);
            effects.extend(refusals);
            let finish = session.finish(id);
            let goes_on = finish.is_none();
            effects.extend(finish);
            goes_on
        });
        effects.extend(std::iter::repeat_n(Effect::ReleaseSettled, span.releases));
        self.tally = span.tally;
    }

    /// Tells every session who leads now, if that is known and is news.
    pub(super) fn announce(&mut self, effects: &mut Vec<Effect>) {
        let known = self.known_leader();
        if known == self.announced.as_deref() {
            return;
        }
        let known = known.map(str::to_owned);
        if let Some(address) = &known {
            let push = |id| Effect::Reply(id, Reply::Leader(address.clone()));
            effects.extend(self.sessions.open_ids().map(push));
        }
        self.announced = known;
    }

    /// The leader's client address. This node names itself only while it serves.
    fn known_leader(&self) -> Option<&str> {
        let own = self.own.as_deref()?;
        match &self.leadership {
            _ if self.span.is_some() => Some(own),
            Some(Leadership::Other(address)) => Some(address),
            _ => None,
        }
    }

    /// What to say to a request that is not even tried.
    pub(super) fn refusal(&self) -> Reply {
        match &self.leadership {
            // The node serves, but the session was refused before.
            _ if self.span.is_some() => Reply::Error(Reason::NotActive),
            Some(Leadership::Other(address)) => Reply::Moved(address.clone()),
            Some(Leadership::Unknown) if !self.stopping => Reply::Error(Reason::NoLeader),
            _ => Reply::Error(Reason::NotActive),
        }
    }
}
