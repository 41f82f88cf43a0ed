//! Every kind of damage to a data directory: it opens with all that was acknowledged, or it refuses
//! in one line that names the file and says how to go on. Never a panic, never less.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use storage::Storage;
use tempfile::TempDir;

use crate::machine::{self, SEGMENT_BYTES};
use crate::model::{self, Acknowledged, Model};
use crate::random::Random;

/// How a damaged directory may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Opens,
    Refuses,
    Either,
}

/// Directories to be damaged, and what had been acknowledged.
struct Fixture {
    /// As a kill left it.
    killed: TempDir,
    /// As a clean stop left it.
    closed: TempDir,
    /// As it was before the last vote, entries and value.
    earlier: TempDir,
    acknowledged: Acknowledged,
}

impl Fixture {
    async fn new() -> Fixture {
        let closed = machine::fast_directory();
        let mut model = Model::open(closed.path());
        model.live_a_little().await;
        // To the beginning of a segment, so that what follows is in one.
        let mut next = 122;
        let segment = end(closed.path()).0;
        while end(closed.path()).0 == segment {
            model.append(3, next..next + 1).await;
            next += 1;
        }
        let earlier = machine::fast_directory();
        model::copy(closed.path(), earlier.path());
        model.vote(machine::vote(4, 2)).await;
        model.append(4, next..next + 1).await;
        model.append(4, next + 1..next + 4).await;
        model.put(b"newest");
        let killed = machine::fast_directory();
        model::copy(closed.path(), killed.path());
        Fixture {
            killed,
            closed,
            earlier,
            acknowledged: model.acknowledged,
        }
    }

    /// Where the records end.
    fn end(&self) -> (String, u64) {
        end(self.killed.path())
    }

    /// Segments that have records, oldest first.
    fn used(&self) -> Vec<String> {
        let newest = self.end().0;
        let mut used = model::segments(self.killed.path());
        used.retain(|segment| *segment <= newest);
        assert!(used.len() >= 4, "{used:?}");
        used
    }

    /// Damages a copy of what a kill left and opens it.
    async fn check(&self, name: &str, expected: Expected, damage: impl FnOnce(&Path)) {
        self.check_copy(&self.killed, name, expected, damage).await;
    }

    async fn check_copy(
        &self,
        original: &TempDir,
        name: &str,
        expected: Expected,
        damage: impl FnOnce(&Path),
    ) {
        let copy = machine::fast_directory();
        model::copy(original.path(), copy.path());
        damage(copy.path());
        let opened = catch_unwind(AssertUnwindSafe(|| machine::open(copy.path())));
        match opened.unwrap_or_else(|_| panic!("{name}: opening panicked")) {
            Ok(storage) => {
                assert_ne!(expected, Expected::Refuses, "{name}: opened");
                self.has_everything(name, &storage).await;
            }
            Err(error) => {
                let line = error.to_string();
                assert_ne!(expected, Expected::Opens, "{name}: {line}");
                assert!(!line.contains('\n'), "{name}: {line}");
                assert!(
                    line.contains(copy.path().to_str().unwrap()),
                    "{name}: {line}"
                );
                let advice = ["rebuild this node from its peers", "Start the version"];
                assert!(
                    advice.iter().any(|advice| line.contains(advice)),
                    "{name}: {line}"
                );
            }
        }
    }

    async fn has_everything(&self, name: &str, storage: &Storage) {
        let found = model::found(storage).await;
        let found = found.unwrap_or_else(|error| panic!("{name}: opened, then {error}"));
        assert_eq!(found, self.acknowledged, "{name}");
    }
}

/// Where the records end: the segment and the offset, from the newer slot of the watermark.
fn end(dir: &Path) -> (String, u64) {
    let file = File::open(dir.join("wal/watermark")).unwrap();
    let slots = [0, 4096].map(|offset| {
        let mut slot = [[0; 8]; 3];
        file.read_exact_at(slot.as_flattened_mut(), offset).unwrap();
        slot.map(u64::from_le_bytes)
    });
    let [_, segment, offset] = slots.into_iter().max().unwrap();
    (format!("wal/{segment:016x}.log"), offset)
}

fn write(path: &Path, offset: u64, bytes: &[u8]) {
    File::options()
        .write(true)
        .open(path)
        .unwrap()
        .write_all_at(bytes, offset)
        .unwrap();
}

fn cut(path: &Path, length: u64) {
    File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(length)
        .unwrap();
}

#[tokio::test]
async fn undamaged_directories_open() {
    let fixture = Fixture::new().await;
    fixture.check("killed", Expected::Opens, |_| ()).await;
    fixture
        .check_copy(&fixture.closed, "closed", Expected::Opens, |_| ())
        .await;
}

#[tokio::test]
async fn a_tail_that_is_cut_is_refused() {
    let fixture = Fixture::new().await;
    let (segment, end) = fixture.end();
    for bytes in [1, 7, 100, 1_023] {
        let name = format!("{bytes} bytes cut off");
        fixture
            .check(&name, Expected::Refuses, |dir| {
                cut(&dir.join(&segment), end - bytes)
            })
            .await;
        let name = format!("{bytes} bytes cut off, zeros after it");
        // The last seven may be padding, which is zeros anyway.
        let expected = if bytes <= 7 {
            Expected::Either
        } else {
            Expected::Refuses
        };
        fixture
            .check(&name, expected, |dir| {
                cut(&dir.join(&segment), end - bytes);
                cut(&dir.join(&segment), SEGMENT_BYTES.into());
            })
            .await;
        let name = format!("{bytes} bytes cut off the file");
        fixture
            .check(&name, Expected::Refuses, |dir| {
                cut(&dir.join(&segment), u64::from(SEGMENT_BYTES) - bytes);
            })
            .await;
    }
}

#[tokio::test]
async fn what_is_behind_the_tail_does_not_count() {
    let fixture = Fixture::new().await;
    let (segment, end) = fixture.end();
    let rest = (u64::from(SEGMENT_BYTES) - end) as usize;
    let noise = Random(1).noise(rest);
    fixture
        .check("zeros", Expected::Opens, |dir| {
            write(&dir.join(&segment), end, &vec![0; rest])
        })
        .await;
    fixture
        .check("noise", Expected::Opens, |dir| {
            write(&dir.join(&segment), end, &noise)
        })
        .await;
    for (name, bytes) in [
        ("more zeros", vec![0; 5_000]),
        ("more noise", Random(2).noise(5_000)),
    ] {
        fixture
            .check(name, Expected::Refuses, |dir| {
                write(&dir.join(&segment), SEGMENT_BYTES.into(), &bytes);
            })
            .await;
    }
}

#[tokio::test]
async fn zeros_from_inside_a_record_are_refused() {
    let fixture = Fixture::new().await;
    let (newest, end) = fixture.end();
    let mut random = Random(3);
    for segment in fixture.used() {
        for _ in 0..3 {
            let end = if segment == newest {
                end
            } else {
                u64::from(SEGMENT_BYTES) / 2
            };
            let from = random.below(end);
            let name = format!("zeros from byte {from} of {segment}");
            fixture
                .check(&name, Expected::Refuses, |dir| {
                    let zeros = vec![0; (u64::from(SEGMENT_BYTES) - from) as usize];
                    write(&dir.join(&segment), from, &zeros);
                })
                .await;
        }
    }
}

#[tokio::test]
async fn one_flipped_bit_anywhere_is_harmless_or_refused() {
    let fixture = Fixture::new().await;
    let mut files = fixture.used();
    files.extend(["wal/watermark", "format", "sled/db", "sled/conf"].map(str::to_owned));
    let mut random = Random(4);
    for round in 0..160 {
        let file = &files[round % files.len()];
        let bytes = fs::read(fixture.killed.path().join(file)).unwrap();
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64 + 1;
        let bit = random.below(used * 8);
        let name = format!("bit {bit} of {file}");
        fixture
            .check(&name, Expected::Either, |dir| {
                let byte = bytes[(bit / 8) as usize] ^ (1 << (bit % 8));
                write(&dir.join(file), bit / 8, &[byte]);
            })
            .await;
    }
}

#[tokio::test]
async fn a_segment_that_is_missing_or_short_is_refused() {
    let fixture = Fixture::new().await;
    let used = fixture.used();
    for segment in [&used[0], &used[used.len() / 2], &used[used.len() - 1]] {
        let refused = Expected::Refuses;
        fixture
            .check(&format!("{segment} missing"), refused, |dir| {
                fs::remove_file(dir.join(segment)).unwrap();
            })
            .await;
        for length in [
            0,
            10,
            4_096,
            u64::from(SEGMENT_BYTES) / 2,
            u64::from(SEGMENT_BYTES) - 1,
        ] {
            let name = format!("{segment} with {length} bytes");
            fixture
                .check(&name, refused, |dir| cut(&dir.join(segment), length))
                .await;
        }
        fixture
            .check(&format!("{segment} full of zeros"), refused, |dir| {
                write(&dir.join(segment), 0, &vec![0; SEGMENT_BYTES as usize]);
            })
            .await;
    }
}

#[tokio::test]
async fn a_segment_in_the_place_of_another_is_refused() {
    let fixture = Fixture::new().await;
    let used = fixture.used();
    for (from, to) in [
        (0, used.len() - 1),
        (0, 1),
        (used.len() - 1, 0),
        (1, used.len() - 2),
    ] {
        let name = format!("{} in the place of {}", used[from], used[to]);
        fixture
            .check(&name, Expected::Refuses, |dir| {
                fs::copy(dir.join(&used[from]), dir.join(&used[to])).unwrap();
            })
            .await;
    }
}

#[tokio::test]
async fn an_old_segments_content_in_a_recycled_one_is_not_read() {
    let fixture = Fixture::new().await;
    let used = fixture.used();
    let (newest, end) = fixture.end();
    fixture
        .check("old records behind the tail", Expected::Opens, |dir| {
            let old = fs::read(dir.join(&used[0])).unwrap();
            write(&dir.join(&newest), end, &old[end as usize..]);
        })
        .await;
    fixture
        .check(
            "old records in the prepared segment",
            Expected::Opens,
            |dir| {
                let number = u64::from_str_radix(&newest["wal/".len()..][..16], 16).unwrap();
                let next = dir.join(format!("wal/{:016x}.log", number + 1));
                fs::copy(dir.join(&used[0]), next).unwrap();
            },
        )
        .await;
}

#[tokio::test]
async fn an_older_copy_of_a_part_is_refused() {
    let fixture = Fixture::new().await;
    let (newest, _) = fixture.end();
    let earlier = fixture.earlier.path();
    let restore = |dir: &Path, part: &str| {
        let (from, to) = (earlier.join(part), dir.join(part));
        if from.is_dir() {
            fs::remove_dir_all(&to).unwrap();
            model::copy(&from, &to);
        } else {
            fs::copy(from, to).unwrap();
        }
    };
    let refused = Expected::Refuses;
    fixture
        .check("newest segment", refused, |dir| restore(dir, &newest))
        .await;
    fixture
        .check("sled", refused, |dir| restore(dir, "sled"))
        .await;
    // The watermark went back with the log: only the copy of the vote tells.
    fixture
        .check_copy(&fixture.closed, "log with its watermark", refused, |dir| {
            restore(dir, "wal")
        })
        .await;
    // An older watermark proves less, but nothing is missing.
    fixture
        .check("watermark", Expected::Opens, |dir| {
            restore(dir, "wal/watermark")
        })
        .await;
}

#[tokio::test]
async fn what_a_later_record_proves_is_refused_without_the_watermark() {
    let fixture = Fixture::new().await;
    let (segment, end) = fixture.end();
    let (earlier_segment, earlier_end) = self::end(fixture.earlier.path());
    assert_eq!(segment, earlier_segment, "both ends must be in one segment");
    let vote_record_bytes = 280;
    // As after a power cut, the watermark is of before the last vote. The last write is the one of
    // three entries; it proves the entry before it, and nothing proves it.
    let old_watermark = |dir: &Path| {
        fs::copy(
            fixture.earlier.path().join("wal/watermark"),
            dir.join("wal/watermark"),
        )
        .unwrap();
    };
    for offset in [earlier_end, earlier_end + vote_record_bytes] {
        fixture
            .check(
                &format!("a proven record at byte {offset}"),
                Expected::Refuses,
                |dir| {
                    old_watermark(dir);
                    write(&dir.join(&segment), offset + 9, &[0x55]);
                },
            )
            .await;
    }
    assert!(earlier_end + vote_record_bytes < end);
}

#[tokio::test]
async fn half_a_directory_is_refused() {
    let fixture = Fixture::new().await;
    let refused = Expected::Refuses;
    for part in ["wal", "sled"] {
        fixture
            .check(&format!("{part} removed"), refused, |dir| {
                fs::remove_dir_all(dir.join(part)).unwrap();
            })
            .await;
    }
    for part in ["format", "wal/watermark", "sled/db"] {
        fixture
            .check(&format!("{part} removed"), refused, |dir| {
                fs::remove_file(dir.join(part)).unwrap();
            })
            .await;
        fixture
            .check(&format!("{part} emptied"), refused, |dir| {
                cut(&dir.join(part), 0)
            })
            .await;
    }
    let other = machine::fast_directory();
    drop(machine::open(other.path()).unwrap());
    for part in ["wal", "sled"] {
        fixture
            .check(&format!("{part} of another node"), refused, |dir| {
                fs::remove_dir_all(dir.join(part)).unwrap();
                model::copy(&other.path().join(part), &dir.join(part));
            })
            .await;
    }
}

#[tokio::test]
async fn another_format_is_refused_untouched() {
    let fixture = Fixture::new().await;
    for text in ["ticketing data, format 2\n", "", "something else"] {
        fixture
            .check(&format!("format {text:?}"), Expected::Refuses, |dir| {
                fs::write(dir.join("format"), text).unwrap();
            })
            .await;
    }
}
