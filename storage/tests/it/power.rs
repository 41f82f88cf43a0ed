//! Power cuts on a real file system: ext4 in a file, shut down without flushing anything, mounted
//! again. Needs root, loop devices, mkfs.ext4 and python3 (for one ioctl), so it is run by hand:
//!
//! ```text
//! cargo test -p storage --test it -- --ignored --exact power::nothing_acknowledged_is_missing_after_a_power_cut
//! ```

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::child;
use crate::crash::{CHILD, Told};
use crate::machine;
use crate::model;
use crate::random::Random;

const ROUNDS: u64 = 12;
const IMAGE_BYTES: u64 = 512 << 20;
/// `EXT4_IOC_SHUTDOWN` with `EXT4_GOING_FLAGS_NOLOGFLUSH`.
const SHUTDOWN: &str = "import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))";

/// A mounted file system, unmounted in the end.
struct Mounted {
    image: PathBuf,
    point: PathBuf,
}

impl Mounted {
    fn new(dir: &Path) -> Mounted {
        let mounted = Mounted {
            image: dir.join("image"),
            point: dir.join("mount"),
        };
        File::create(&mounted.image)
            .unwrap()
            .set_len(IMAGE_BYTES)
            .unwrap();
        std::fs::create_dir(&mounted.point).unwrap();
        run(Command::new("mkfs.ext4").arg("-q").arg(&mounted.image));
        mounted.mount();
        mounted
    }

    fn mount(&self) {
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(&self.image)
            .arg(&self.point));
    }

    fn cut_power(&self) {
        run(Command::new("python3")
            .args(["-c", SHUTDOWN])
            .arg(&self.point));
    }

    fn unmount(&self) {
        run(Command::new("umount").arg(&self.point));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // After a failed assertion it may be unmounted already.
        let _ = Command::new("umount").arg(&self.point).status();
    }
}

fn run(command: &mut Command) {
    let status = command
        .status()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}

#[test]
#[ignore = "needs root and a loop device"]
fn nothing_acknowledged_is_missing_after_a_power_cut() {
    let dir = TempDir::new().unwrap();
    let mounted = Mounted::new(dir.path());
    let data = mounted.point.join("data");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let mut random = Random(6);
    let mut told = Told::default();
    for round in 0..ROUNDS {
        let mut child = child::start(child::plain(), CHILD, &data);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut wanted = random.below(1_000);
        let mut truncated = false;
        // Not before it has truncated: what it says later is not listened to.
        while wanted > 0 || !truncated {
            let line = lines.next().expect("the child goes on").unwrap();
            truncated |= child::said(&line).starts_with("entries");
            told.listen(&line);
            wanted = wanted.saturating_sub(1);
        }
        mounted.cut_power();
        child.kill().unwrap();
        child.wait().unwrap();
        mounted.unmount();
        mounted.mount();

        let storage = machine::open(&data).unwrap_or_else(|error| panic!("{round}: {error}"));
        let found = runtime.block_on(model::found(&storage)).unwrap();
        told.check(round, &storage, &found);
        drop(storage);
    }
    mounted.unmount();
}
