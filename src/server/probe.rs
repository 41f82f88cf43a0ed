//! The front end as others may look at it.

use std::sync::Arc;

use tokio::sync::{Semaphore, watch};

use super::Counters;
use crate::driver::Observer;

/// A view of a running front end; cheap to clone, usable from any thread.
#[derive(Clone)]
pub struct Probe {
    pub(super) driver: Observer,
    pub(super) counters: Arc<Counters>,
    pub(super) slots: Arc<Semaphore>,
    pub(super) connections_max: usize,
    pub(super) stopping: watch::Receiver<bool>,
}

impl Probe {
    /// Asks the desk's task.
    pub fn driver(&self) -> &Observer {
        &self.driver
    }

    /// What the front end has seen.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Connections that are open now, those in their handshake included.
    pub fn connections(&self) -> usize {
        self.connections_max
            .saturating_sub(self.slots.available_permits())
    }

    /// True once a planned stop has begun.
    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }
}
