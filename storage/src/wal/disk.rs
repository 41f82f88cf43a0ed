//! The few file operations that the WAL needs, as a seam.
//!
//! The seam is here for one reason: what a power cut leaves (unsynced sectors lost one by one,
//! renames undone, a sync that fails) can only be tried thousands of times a minute on a simulated
//! disk. [`Directory`] is the real one and does nothing clever.

use std::fmt::Debug;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

/// One directory of files.
pub(crate) trait Disk: Debug + Send + Sync {
    /// Where a file is, for messages.
    fn path(&self, name: &str) -> PathBuf;
    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Makes a new file, replacing one of that name.
    fn create(&self, name: &str) -> io::Result<Arc<dyn Blob>>;
    /// Opens a file to read and write.
    fn open(&self, name: &str) -> io::Result<Arc<dyn Blob>>;
    /// Gives a file another name, replacing one of that name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals durable.
    fn sync(&self) -> io::Result<()>;
}

/// One open file.
pub(crate) trait Blob: Debug + Send + Sync {
    /// Length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// Fills `bytes` from `offset`, or fails.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
    /// Writes all of `bytes` at `offset`, or fails.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes everything written so far durable.
    fn sync(&self) -> io::Result<()>;
}

/// A directory of the operating system.
#[derive(Debug)]
pub(crate) struct Directory(pub(crate) PathBuf);

impl Disk for Directory {
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for file in fs::read_dir(&self.0)? {
            // A name that is not UTF-8 is none of ours.
            if let Ok(name) = file?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn Blob>> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        Ok(Arc::new(options.open(self.path(name))?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn Blob>> {
        Ok(Arc::new(
            File::options()
                .read(true)
                .write(true)
                .open(self.path(name))?,
        ))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }
}

impl Blob for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(bytes, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        #[cfg(feature = "planted-bugs")]
        if planted::has(planted::Bug::SkipSync) {
            return Ok(());
        }
        // fdatasync: the length is synced with it when it changed, times need not be.
        self.sync_data()
    }
}
