//! What sled makes of our writes on the disk.

use std::path::Path;

use tempfile::TempDir;

use crate::machine;

fn bytes(dir: &Path) -> u64 {
    std::fs::metadata(dir.join("sled/db")).unwrap().len()
}

/// sled never syncs the blob files that it puts large values into.
fn assert_no_blobs(dir: &Path) {
    let blobs = std::fs::read_dir(dir.join("sled/blobs")).unwrap();
    assert_eq!(
        blobs.count(),
        0,
        "all values are small enough to be in sled's log"
    );
}

#[test]
fn large_snapshots_make_no_blob_files_and_come_back() {
    let dir = TempDir::new().unwrap();
    let data: Vec<u8> = (0..5_000_000_u32)
        .map(|number| (number % 251) as u8)
        .collect();
    let meta = vec![5; 32 << 10];
    for round in 0..3 {
        let storage = machine::open(dir.path()).unwrap();
        storage.snapshots().save(&meta, &data[round..]).unwrap();
        for number in 0..20_u64 {
            storage
                .put("largest value", &[number as u8; 16 << 10][..16_000])
                .unwrap();
        }
        assert_no_blobs(dir.path());
        let stored = storage.snapshots().load().unwrap().unwrap();
        assert_eq!(
            (&stored.meta[..], &stored.data[..]),
            (&meta[..], &data[round..])
        );
    }
}

#[test]
fn snapshot_after_snapshot_takes_bounded_space() {
    let dir = TempDir::new().unwrap();
    let storage = machine::open(dir.path()).unwrap();
    let data = vec![9; 300_000];
    let mut largest = 0;
    for round in 0..60 {
        storage.snapshots().save(b"", &data).unwrap();
        if round < 20 {
            largest = largest.max(bytes(dir.path()));
        }
    }
    let now = bytes(dir.path());
    assert!(
        now <= largest * 3 / 2,
        "{largest} bytes after 20 snapshots, {now} after 60"
    );
    assert_no_blobs(dir.path());
}

#[test]
fn a_snapshot_or_value_that_is_too_large_changes_nothing() {
    let dir = TempDir::new().unwrap();
    let storage = machine::open(dir.path()).unwrap();
    storage.snapshots().save(b"meta", b"data").unwrap();
    storage.put("name", b"value").unwrap();
    assert!(storage.snapshots().save(&[0; (32 << 10) + 1], b"").is_err());
    assert!(storage.put("name", &[0; 16 << 10]).is_err());
    assert!(storage.put("other", &[0; 16 << 10]).is_err());
    assert_eq!(
        &storage.snapshots().load().unwrap().unwrap().meta[..],
        b"meta"
    );
    assert_eq!(storage.get("name").unwrap().unwrap(), b"value");
    assert!(storage.failed().borrow().is_none());
}
