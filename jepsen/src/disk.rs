//! A node's disk: an ext4 file system in a file, or, where that is not possible, a plain directory
//! or a container's volume.
//!
//! *Loss of everything not synced* is done like this: every node's data is on a file system of its
//! own, mounted with a journal from a loop device. The file system is shut down without flushing
//! anything (`EXT4_IOC_SHUTDOWN` with `NOLOGFLUSH`), which is what a power cut does to it: what was
//! not synced stays in a page cache that is thrown away. The process is killed, the file system
//! unmounted and mounted again, and what is on it then is what a machine would find after its
//! restart.
//!
//! A *slow* disk stands still for a while, again and again (`fsfreeze`). A *full* one has a file
//! that takes all room.
//!
//! The image is deleted as soon as it is mounted, and the loop device lets go of it with its last
//! user: nothing is left behind when the mount namespace goes.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, output, run, words};

/// Size of an image in bytes; only what is used takes room.
const IMAGE_BYTES: u64 = 400 << 20;

/// How often the journal is committed by itself, in seconds: seldom, so that a power cut takes
/// much.
const COMMIT_S: u32 = 60;

/// `EXT4_IOC_SHUTDOWN` with `EXT4_GOING_FLAGS_NOLOGFLUSH`.
const SHUTDOWN: &str = "import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))";

/// One node's disk.
pub(crate) struct Disk {
    /// Where it is mounted, or just a directory.
    root: PathBuf,
    /// Where the node keeps its data.
    data: PathBuf,
    image: Option<Image>,
    /// Between [`Disk::fill`] and [`Disk::empty`].
    full: bool,
}

/// A loop device; kept open, so that it survives an unmount.
struct Image {
    device: String,
    _open: File,
}

impl Disk {
    /// A file system of its own, mounted at `root`.
    pub(crate) async fn image(root: &Path) -> Result<Self, Error> {
        let file = root.with_extension("ext4");
        let failed = |error| Error::of(format!("making {}", file.display()), error);
        fs::create_dir_all(root).map_err(failed)?;
        File::create(&file)
            .and_then(|file| file.set_len(IMAGE_BYTES))
            .map_err(failed)?;
        run(words("mkfs.ext4 -q -m 0").arg(&file)).await?;
        let device = run(words("losetup -f --show").arg(&file)).await?;
        let device = device.trim().to_owned();
        let open = File::open(&device).map_err(failed)?;
        // From here on the device is free when nobody uses it.
        run(&mut words(&format!("losetup -d {device}"))).await?;
        fs::remove_file(&file).map_err(failed)?;
        let disk = Self {
            root: root.to_owned(),
            data: root.join("data"),
            image: Some(Image {
                device,
                _open: open,
            }),
            full: false,
        };
        disk.mount().await?;
        Ok(disk)
    }

    /// A directory, which is all the node's data.
    pub(crate) fn directory(data: PathBuf) -> Self {
        Self {
            root: data.clone(),
            data,
            image: None,
            full: false,
        }
    }

    /// Whether it has no room: a node that starts on it ends.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// Where the node keeps its data.
    pub(crate) fn data_dir(&self) -> &Path {
        &self.data
    }

    async fn mount(&self) -> Result<(), Error> {
        if let Some(image) = &self.image {
            let options = format!("mount -t ext4 -o commit={COMMIT_S} {}", image.device);
            run(words(&options).arg(&self.root)).await?;
        }
        Ok(())
    }

    /// Throws away what is not synced. The node must be killed before [`Disk::restore`].
    pub(crate) async fn cut_power(&self) -> Result<(), Error> {
        run(words("python3 -c").arg(SHUTDOWN).arg(&self.root)).await?;
        Ok(())
    }

    /// Mounts anew what a power cut has left.
    pub(crate) async fn restore(&self) -> Result<(), Error> {
        run(words("umount").arg(&self.root)).await?;
        self.mount().await
    }

    /// Unmounts it.
    pub(crate) async fn close(&self) -> Result<(), Error> {
        if self.image.is_some() {
            run(words("umount").arg(&self.root)).await?;
        }
        Ok(())
    }

    /// Lets nothing be written until [`Disk::thaw`].
    pub(crate) async fn freeze(&self) -> Result<(), Error> {
        run(words("fsfreeze -f").arg(&self.root)).await?;
        Ok(())
    }

    /// Ends [`Disk::freeze`]; no error if it is not frozen.
    pub(crate) async fn thaw(&self) -> Result<(), Error> {
        output(words("fsfreeze -u").arg(&self.root)).await?;
        Ok(())
    }

    /// Takes all room; how many bytes are left.
    pub(crate) async fn fill(&mut self) -> Result<u64, Error> {
        self.full = true;
        let room = self.room()?;
        // What cannot be had in one piece is left over; then in smaller ones.
        for part in 0..6_u32 {
            let bytes = self.room()? >> part;
            if bytes > 0 {
                let size = format!("fallocate -l {bytes}");
                output(words(&size).arg(self.root.join(format!("filler-{part}")))).await?;
            }
        }
        let left = self.room()?;
        if left >= room {
            return Err(Error("the disk could not be filled".into()));
        }
        Ok(left)
    }

    /// Ends [`Disk::fill`].
    pub(crate) fn empty(&mut self) -> Result<(), Error> {
        self.full = false;
        for part in 0..6 {
            // Not every part was made.
            let _ = fs::remove_file(self.root.join(format!("filler-{part}")));
        }
        Ok(())
    }

    fn room(&self) -> Result<u64, Error> {
        let room = rustix::fs::statvfs(&self.root);
        let room = room.map_err(|error| Error::of("looking at a disk", error))?;
        Ok(room.f_bavail * room.f_frsize)
    }

    /// Deletes the node's data; it must not run.
    pub(crate) fn wipe(&self) -> Result<(), Error> {
        empty(&self.data).map_err(|error| Error::of("wiping a disk", error))
    }
}

/// Deletes what is in a directory. The directory itself may be a volume, which stays.
fn empty(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wiped_directory_is_empty_and_there() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("log/old")).unwrap();
        fs::write(dir.path().join("log/old/1"), "1").unwrap();
        fs::write(dir.path().join("vote"), "2").unwrap();
        Disk::directory(dir.path().to_owned()).wipe().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
