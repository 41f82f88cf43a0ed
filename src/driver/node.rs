//! What a node tells the driver: the apply stream and the status. Single mode has neither.

use raft::{Activity, Feed, Status};
use tokio::sync::{mpsc, watch};

use crate::desk::{Event, Leadership};

/// The apply stream.
pub(super) struct ApplyStream(Option<mpsc::Receiver<Feed>>);

impl ApplyStream {
    pub(super) fn new(feed: Option<mpsc::Receiver<Feed>>) -> Self {
        Self(feed)
    }

    /// The next message; `None`, once, when the node is gone.
    pub(super) async fn next(&mut self) -> Option<Feed> {
        match &mut self.0 {
            Some(feed) => {
                let next = feed.recv().await;
                if next.is_none() {
                    self.0 = None;
                }
                next
            }
            None => std::future::pending().await,
        }
    }

    /// The next message that is there already.
    pub(super) fn try_next(&mut self) -> Option<Feed> {
        self.0.as_mut()?.try_recv().ok()
    }
}

/// Who leads and what is revoked, as events for the desk.
pub(super) struct StatusWatch {
    status: Option<watch::Receiver<Status>>,
    own: Option<String>,
    told_leader: Option<Leadership>,
    told_revoked: Activity,
}

impl StatusWatch {
    pub(super) fn new(status: Option<watch::Receiver<Status>>, own: Option<String>) -> Self {
        let mut status = status;
        if let Some(status) = &mut status {
            status.mark_changed();
        }
        Self {
            status,
            own,
            told_leader: None,
            told_revoked: Activity::default(),
        }
    }

    /// Waits until there may be something to tell.
    pub(super) async fn changed(&mut self) {
        match &mut self.status {
            Some(status) => {
                if status.changed().await.is_err() {
                    // The apply stream ends as well then, and says so.
                    self.status = None;
                }
            }
            None => std::future::pending().await,
        }
    }

    /// What the desk has not been told yet: first who leads, then what is revoked, so that whoever
    /// is refused learns where to go.
    pub(super) fn news(&mut self) -> [Option<Event>; 2] {
        let Some(status) = &mut self.status else {
            return [None, None];
        };
        let status = status.borrow_and_update();
        let leader = match &status.leader {
            _ if status.leading => Leadership::Own,
            // An address that this node is about to lose, or has just lost, leads nobody anywhere.
            Some(leader) if Some(&leader.client) == self.own.as_ref() => Leadership::Unknown,
            Some(leader) => Leadership::Other(leader.client.clone()),
            None => Leadership::Unknown,
        };
        let revoked = status.revoked;
        drop(status);
        let leads = (self.told_leader.as_ref() != Some(&leader)).then(|| {
            self.told_leader = Some(leader.clone());
            Event::Leader(leader)
        });
        let ends = (revoked > self.told_revoked).then(|| {
            self.told_revoked = revoked;
            Event::Revoked(revoked)
        });
        [leads, ends]
    }

    /// Whether [`news`](Self::news) may have something.
    pub(super) fn has_changed(&self) -> bool {
        self.status
            .as_ref()
            .is_some_and(|status| status.has_changed().unwrap_or(false))
    }
}

#[cfg(test)]
mod tests {
    use raft::Leader;

    use super::*;

    fn told(watch: &mut StatusWatch) -> Vec<String> {
        watch
            .news()
            .into_iter()
            .flatten()
            .map(|event| format!("{event:?}"))
            .collect()
    }

    fn led_by(client: &str) -> Status {
        let leader = Leader {
            id: 1,
            client: client.to_owned(),
        };
        Status {
            leader: Some(leader),
            ..Status::default()
        }
    }

    #[tokio::test]
    async fn each_change_is_told_once_and_the_leader_before_the_revocation() {
        let (sender, receiver) = watch::channel(Status::default());
        let mut watch = StatusWatch::new(Some(receiver), Some("own:1".to_owned()));
        watch.changed().await;
        assert_eq!(told(&mut watch), ["Leader(Unknown)"]);

        sender.send_replace(Status {
            leading: true,
            ..led_by("own:1")
        });
        watch.changed().await;
        assert_eq!(told(&mut watch), ["Leader(Own)"]);
        assert_eq!(told(&mut watch), [""; 0]);

        sender.send_replace(Status {
            revoked: Activity(3),
            ..led_by("other:1")
        });
        assert!(watch.has_changed());
        let expected = ["Leader(Other(\"other:1\"))", "Revoked(Activity(3))"];
        assert_eq!(told(&mut watch), expected);

        sender.send_replace(Status {
            revoked: Activity(3),
            ..led_by("own:1")
        });
        assert_eq!(told(&mut watch), ["Leader(Unknown)"]);
    }
}
