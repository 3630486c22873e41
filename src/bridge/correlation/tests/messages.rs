//! Which messages are told of what is held, and how little it takes to know them.

use tidings_log::{FrameBuilder, Resume};

use super::*;
use crate::{event::SummarisedMessage, journal::Ranges};

/// An Event about an object, what it says, and the time since the one before, in milliseconds.
type Saying = (u8, String, u64);

fn saying(sayings: &[Saying]) -> Vec<Read> {
    let mut time_ms = 1_700_000_000_000;
    let record = |(at, (object, text, after_ms)): (usize, &Saying)| {
        time_ms += after_ms;
        let (seq, text) = (at as u64 + 1, serde_json::to_string(text).unwrap());
        let envelope = format!(
            r#"{{"id":"e-{seq}","cluster":{{}},"change":"created","time":"","observedTime":"","occurrences":1,"delta":1,"replayed":false,"event":{{"involvedObject":{{"uid":"u{object}"}},"reason":"R","message":{text}}}}}"#
        );
        (Record { seq, envelope: envelope.into() }, time_ms, true)
    };
    sayings.iter().enumerate().map(record).collect()
}

/// Some of a few texts, or each its own.
fn sayings() -> impl Strategy<Value = Vec<Saying>> {
    let text = prop_oneof![
        2 => (0u8..14).prop_map(|n| format!("m{n}")),
        1 => (0u8..60).prop_map(|n| format!("n{n}")),
        1 => "[a-zé\"\\\\\n]{0,60}",
    ];
    let after = prop_oneof![20 => 0u64..20, 1 => Just(300_001u64), 1 => 100_000u64..400_000];
    prop::collection::vec((0u8..2, text, after), 1..250)
}

/// How many different texts there are among versions, and which versions bore the first four, and of
/// the others the last four.
fn expected(versions: &[(u64, &str)]) -> (u64, Vec<u64>) {
    let mut different = Vec::<(u64, &str)>::new();
    for version in versions {
        if different.iter().all(|known| known.1 != version.1) {
            different.push(*version);
        }
    }
    let first = &different[..different.len().min(4)];
    let mut last = Vec::<(u64, &str)>::new();
    for version in versions.iter().rev() {
        if last.len() < 4 && first.iter().chain(&last).all(|told| told.1 != version.1) {
            last.push(*version);
        }
    }
    let told = first.iter().chain(last.iter().rev()).map(|(seq, _)| *seq).collect();
    (different.len().min(32) as u64, told)
}

proptest! {
    #[test]
    fn each_delivery_tells_the_first_and_the_last_messages_that_it_stands_for(
        sayings in sayings(),
        size in retention_size(),
    ) {
        let records = saying(&sayings);
        let mut annotate = Correlator::new(CorrelateMode::Annotate, &Keys::random(), size).unwrap();
        let said = run(&mut annotate, &records).sent;
        let outcome = run_to_the_end(&mut suppress_in(size), &records);
        let mut delivered: BTreeMap<u64, &Messages> = BTreeMap::new();
        for (sent, messages) in outcome.sent.iter().zip(&outcome.messages) {
            delivered.insert(sent.0, messages);
        }
        // Of each object, what is counted together is announced together, in its order.
        let mut held = BTreeMap::<(u8, Option<&str>), Vec<(u64, &str)>>::new();
        for (at, (object, text, _)) in sayings.iter().enumerate() {
            let (seq, _, correlation) = &said[at];
            let own = Some(&**text).filter(|_| !correlation.aggregated);
            let together = held.entry((*object, own)).or_default();
            together.push((*seq, text));
            if let Some(messages) = delivered.get(seq) {
                let (distinct, told) = expected(together);
                together.clear();
                if distinct > 1 {
                    prop_assert_eq!(messages.distinct(), distinct);
                    prop_assert_eq!((*messages).clone().sequences().collect::<Vec<_>>(), told);
                } else {
                    prop_assert!(messages.distinct() <= 1);
                }
            }
        }
    }

    #[test]
    fn what_is_held_takes_no_more_for_any_texts_and_is_the_same_when_it_is_loaded(
        sayings in sayings(),
        more in sayings(),
    ) {
        let mut correlator = suppress();
        run(&mut correlator, &saying(&sayings));
        for (_, entry) in correlator.held.iter() {
            let mut bytes = Vec::new();
            entry.messages.save(&mut bytes);
            // Two counts, 32 messages, the versions of four, and four with their versions.
            prop_assert!(bytes.len() <= 2 + 32 * 8 + 4 * 8 + 4 * 16);
        }
        // As much as with the shortest texts that differ where those do.
        let mut texts: Vec<&str> = sayings.iter().map(|saying| &*saying.1).collect();
        texts.sort_unstable();
        texts.dedup();
        let short = sayings.iter().map(|(object, text, after_ms)| {
            (*object, texts.binary_search(&&**text).unwrap().to_string(), *after_ms)
        });
        let mut of_short = suppress();
        run(&mut of_short, &saying(&short.collect::<Vec<_>>()));
        let state = correlator.to_bytes();
        prop_assert_eq!(state.len(), of_short.to_bytes().len());
        let mut loaded = Correlator::load(&state).unwrap();
        prop_assert_eq!(loaded.to_bytes(), state);
        let more = saying(&more);
        let (a, b) = (run_to_the_end(&mut correlator, &more), run_to_the_end(&mut loaded, &more));
        prop_assert_eq!(a.messages, b.messages);
    }
}

/// So many Events about one object, each with a message of its own.
fn different(count: usize) -> Vec<Saying> {
    (0..count).map(|n| (0, format!("m{n}"), 10)).collect()
}

#[test]
fn beyond_32_messages_the_number_stays_and_the_last_are_told() {
    let mut sayings = different(100);
    // Known among the first, told among the last, and long forgotten.
    sayings.extend([25, 99, 60].map(|n| (0, format!("m{n}"), 10)));
    let outcome = run_to_the_end(&mut suppress(), &saying(&sayings));
    let messages = outcome.messages.last().unwrap();
    assert_eq!(messages.distinct(), 32);
    let told: Vec<u64> = messages.clone().sequences().collect();
    assert_eq!(told, [26, 27, 28, 29, 98, 99, 102, 103]);
}

/// The stage of a sink over a log that has the first so many of the records.
fn stage_over(directory: &tempfile::TempDir, logged: &[Read]) -> (Log, Stage) {
    let options = LogOptions {
        retention_size: 1 << 20,
        retention_age: Duration::from_secs(60),
        sync: Sync::Never,
    };
    let (mut log, _) =
        Log::open(&crate::journal::open(directory.path()).unwrap(), options, 0, 0).unwrap();
    let mut builder = FrameBuilder::new("*".into(), Resume::default());
    for (record, _, _) in logged {
        builder.record(|out| out.extend_from_slice(&record.envelope));
    }
    log.append(&mut builder, logged[0].1).unwrap();
    let keys = Keys::random();
    let correlator = Correlator::new(CorrelateMode::Suppress, &keys, ROOMY);
    let progress = SinkProgress::new(
        "pager",
        "memory",
        Overflow::DropOldest,
        SinkState::default(),
        None,
        &Ranges::default(),
    );
    let stage = Stage::new(correlator, None, &keys, log.handle(), &progress);
    (log, stage)
}

fn told(record: &Record) -> Correlation {
    Envelope::parse(&record.envelope).unwrap().correlation.unwrap()
}

#[tokio::test]
async fn the_next_version_that_is_sent_tells_what_was_held_before_it() {
    let mut sayings = different(30);
    sayings[27].1 = format!("é\"\n{}", "x".repeat(600));
    sayings.push((0, "m30".to_owned(), 301_000));
    let records = saying(&sayings);
    // With the whole log, and where the last three are gone from it.
    for (logged, expected) in [(31, vec![26, 27, 28, 29, 30, 31]), (28, vec![26, 27, 28])] {
        let directory = tempfile::tempdir().unwrap();
        let (_log, mut stage) = stage_over(&directory, &records[..logged]);
        let mut sent = Vec::new();
        for (record, time_ms, _) in &records {
            sent.extend(stage.pass(record.clone(), None, None, *time_ms).await.record);
        }
        assert_eq!(sent.len(), 26);
        assert!(sent[..25].iter().all(|record| told(record).messages.is_empty()));
        let last = told(&sent[25]);
        assert_eq!((last.summarises, last.distinct_messages), (Some(6), Some(6)));
        let messages = expected.into_iter().map(|seq: usize| {
            let text = &sayings[seq - 1].1;
            let message = text[..text.floor_char_boundary(512)].to_owned();
            SummarisedMessage { id: format!("e-{seq}"), message }
        });
        assert_eq!(last.messages, messages.collect::<Vec<_>>());
    }
}
