//! What can go wrong with a data directory.

use std::io;
use std::path::{Path, PathBuf};

/// How to go on with a node whose data cannot be trusted; part of every message about damage.
const REBUILD: &str = "To rebuild this node from its peers: stop it, delete its data directory, \
                       and start it again; it joins under a new id";

/// An error of the store. Each variant asks something else of the operator.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused an operation.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried: completes "cannot ...".
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// The directory does not hold what this node has acknowledged, or that cannot be told.
    #[error("{}{}: {what}. {REBUILD}", path.display(), At(*offset))]
    Corrupted {
        /// The file or directory.
        path: PathBuf,
        /// Where in the file, in bytes, if it is one place.
        offset: Option<u64>,
        /// What is wrong with it.
        what: String,
    },
    /// The directory was written by another version of the program, or is not one of ours.
    #[error("{}: {found}; this program knows format {known}. Start the version that wrote it, or use another data directory", path.display())]
    UnknownFormat {
        /// The file that tells the format.
        path: PathBuf,
        /// What it says.
        found: String,
        /// The version that this program reads and writes.
        known: u32,
    },
    /// A write or a sync failed earlier. What the disk kept cannot be known, so the process must stop.
    #[error("storage stopped after a failure: {0}")]
    Poisoned(String),
    /// Another process has the data directory open.
    #[error("{} is in use by another process", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// The caller asked for something that the store refuses: a mistake in the program.
    #[error("refused: {0}")]
    Refused(String),
}

/// The part of a message that names an offset.
struct At(Option<u64>);

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(offset) => write!(f, " at byte {offset}"),
            None => Ok(()),
        }
    }
}

impl Error {
    /// Wraps an operating system error with what was tried on which file.
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Error {
        Error::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }

    /// A file is damaged at one place.
    pub(crate) fn damaged(path: &Path, offset: u64, what: impl Into<String>) -> Error {
        Error::Corrupted {
            path: path.to_owned(),
            offset: Some(offset),
            what: what.into(),
        }
    }

    /// A file or directory as a whole is not what it must be.
    pub(crate) fn corrupted(path: &Path, what: impl Into<String>) -> Error {
        Error::Corrupted {
            path: path.to_owned(),
            offset: None,
            what: what.into(),
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match &error {
            Error::Io { source, .. } => source.kind(),
            Error::Corrupted { .. } | Error::UnknownFormat { .. } => io::ErrorKind::InvalidData,
            Error::Poisoned(_) => io::ErrorKind::BrokenPipe,
            Error::Locked { .. } => io::ErrorKind::ResourceBusy,
            Error::Refused(_) => io::ErrorKind::InvalidInput,
        };
        io::Error::new(kind, error)
    }
}
