//! A view that was lost is brought up from the whole log, in bounded memory.

use std::time::Duration;

use tidings_log::{FrameBuilder, LogOptions, Sync};

use super::*;

const FRAMES: u64 = 80;
const IN_A_FRAME: u64 = 500;

fn options(path: &std::path::Path) -> JournalOptions {
    JournalOptions {
        path: path.to_owned(),
        log: LogOptions {
            retention_size: 64 << 20,
            retention_age: Duration::from_hours(24),
            sync: Sync::Never,
        },
        dead_letters: 1 << 20,
        max_event: 256 << 10,
    }
}

/// Appends a version of an Event in a frame of its own.
fn append(log: &mut Log, uid: &str, version: u64) {
    let resume = Resume { epoch: 0, resource_version: version };
    let mut builder = FrameBuilder::new("*".into(), resume);
    let envelope = format!(r#"{{"id":"{uid}-{version}","occurrences":1}}"#);
    builder.record(|out| out.extend_from_slice(envelope.as_bytes()));
    log.append(&mut builder, now_ms()).unwrap();
}

fn known(restored: &Restored, uid: &str) -> Option<u64> {
    let entry = restored.seen.get(UidKey::of(uid)).unwrap();
    entry.map(|entry| entry.resource_version)
}

/// As the keeper does.
fn save(restored: &mut Restored) {
    let (seen, applied) = restored.seen.take().unwrap();
    let sources = restored.sources.clone();
    let commit = StateCommit { seen, sources, applied, ..StateCommit::default() };
    restored.state.commit(&commit).unwrap();
}

#[test]
fn what_a_log_lost_at_its_end_is_no_repeat_after_a_crash_in_the_midst_of_reading_it_again() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path());
    let file = dir.path().join("00000000000000000001.log");
    let mut log = Restored::open(&options).unwrap().log;
    append(&mut log, "a", 10);
    let kept = std::fs::metadata(&file).unwrap().len();
    append(&mut log, "b", 20);
    append(&mut log, "c", 30);
    append(&mut log, "a", 40);
    drop(log);
    save(&mut Restored::open(&options).unwrap());
    std::fs::File::options().write(true).open(&file).unwrap().set_len(kept).unwrap();
    {
        let mut restored = Restored::open(&options).unwrap();
        let versions = ["a", "b", "c"].map(|uid| known(&restored, uid));
        assert_eq!(versions, [Some(10), None, None]);
        // One has been read again, and the process is killed before the keeper saves anything.
        append(&mut restored.log, "b", 20);
    }
    let restored = Restored::open(&options).unwrap();
    assert_eq!(restored.resume["*"].resource_version, 20);
    let versions = ["a", "b", "c"].map(|uid| known(&restored, uid));
    assert_eq!(versions, [Some(10), Some(20), None]);
}

#[test]
fn a_view_that_misses_the_end_of_the_log_is_not_whole() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path());
    let mut restored = Restored::open(&options).unwrap();
    append(&mut restored.log, "a", 10);
    drop(restored);
    let mut restored = Restored::open(&options).unwrap();
    restored.sources.get_mut("*").unwrap().whole_from = Some(0);
    save(&mut restored);
    append(&mut restored.log, "b", 20);
    // The segment is sealed, and is gone; the next one's header knows the resume point.
    restored.log.retain(now_ms() + 2 * 60 * 60 * 1000, None).unwrap();
    drop(restored);
    std::fs::remove_file(dir.path().join("00000000000000000001.log")).unwrap();
    let restored = Restored::open(&options).unwrap();
    assert_eq!(restored.resume["*"].resource_version, 20);
    assert_eq!((known(&restored, "a"), known(&restored, "b")), (Some(10), None));
    assert_eq!(restored.sources["*"].whole_from, Some(20));
}

#[test]
fn what_is_known_of_more_events_than_memory_may_hold_comes_from_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path());
    let uid = |number: u64| format!("00000000-0000-4000-8000-{:012x}", number * 0x1_0000_0001);
    {
        let mut log = Restored::open(&options).unwrap().log;
        for frame in 0..FRAMES {
            let version = |of: u64| of + 1;
            let resume = Resume { epoch: 0, resource_version: version((frame + 1) * IN_A_FRAME) };
            let mut builder = FrameBuilder::new("*".into(), resume);
            for number in frame * IN_A_FRAME..(frame + 1) * IN_A_FRAME {
                let id = format!("{}-{}", uid(number), version(number));
                let envelope = format!(r#"{{"id":"{id}","occurrences":{number}}}"#);
                builder.record(|out| out.extend_from_slice(envelope.as_bytes()));
            }
            // The first of each frame goes with the next one.
            if frame > 0 {
                builder.forget(UidKey::of(&uid((frame - 1) * IN_A_FRAME)).0);
            }
            log.append(&mut builder, now_ms()).unwrap();
        }
    }
    // Nothing but the log was saved; the second start finds what the first did on the way.
    for _ in 0..2 {
        let restored = Restored::open(&options).unwrap();
        assert_eq!((restored.applied, restored.sources["*"].id), (1, 0));
        for number in 0..FRAMES * IN_A_FRAME {
            let forgotten = number % IN_A_FRAME == 0 && number < (FRAMES - 1) * IN_A_FRAME;
            let entry = SeenEntry::new(number + 1, number, 0);
            let known = restored.seen.get(UidKey::of(&uid(number))).unwrap();
            assert_eq!(known, (!forgotten).then_some(entry), "{number}");
        }
        // What waits to be saved is what memory may hold.
        let (batch, applied) = restored.seen.take().unwrap();
        assert!(batch.len() < 30_000, "{}", batch.len());
        assert_eq!(applied, FRAMES * IN_A_FRAME + 1);
    }
}
