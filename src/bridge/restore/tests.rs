//! A view that was lost is brought up from the whole log, in bounded memory.

use std::time::Duration;

use super::*;
use crate::journal::{FrameBuilder, LogOptions, Sync};

const FRAMES: u64 = 80;
const IN_A_FRAME: u64 = 500;

#[test]
fn what_is_known_of_more_events_than_memory_may_hold_comes_from_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let options = JournalOptions {
        path: dir.path().to_owned(),
        log: LogOptions {
            retention_size: 64 << 20,
            retention_age: Duration::from_hours(24),
            sync: Sync::Never,
        },
        dead_letters: 1 << 20,
    };
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
                builder.forget(UidKey::of(&uid((frame - 1) * IN_A_FRAME)));
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
