//! The same records, the same decisions: live, late and again; and no increment is lost on the way.

mod messages;

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidings_log::{Log, LogOptions, Sync};

use super::*;
use crate::{
    bridge::{Overflow, SinkProgress},
    event::{Change, Cluster, Envelope, EnvelopeHead, Incoming, Text},
    journal::{CorrelatorInputs, Inputs, Ranges, SinkState},
};

/// A journal that has room for whatever is held for 600 s.
const ROOMY: u64 = 1 << 30;

/// The sizes of journals that have so little of it that five records fill it, or some more.
fn retention_size() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![ROOMY, HOLD_SHARE * 2_000, HOLD_SHARE * 10_000])
}

/// A version of an Event as the journal has it.
#[derive(Clone, Debug)]
struct Version {
    object: u8,
    message: u8,
    warning: bool,
    delta: u64,
    /// Since the version before, in milliseconds.
    after_ms: u64,
}

fn version() -> impl Strategy<Value = Version> {
    let after = prop_oneof![
        20 => 0u64..20,
        4 => 1_000u64..60_000,
        2 => prop::sample::select(vec![299_999u64, 300_000, 300_001, 599_999, 600_000, 600_001]),
    ];
    (0u8..3, 0u8..14, any::<bool>(), 0u64..4, after).prop_map(
        |(object, message, warning, delta, after_ms)| Version {
            object,
            message,
            warning,
            delta,
            after_ms,
        },
    )
}

/// A record, its time, and whether the sink wants it.
type Read = (Record, u64, bool);

fn records(versions: &[Version]) -> Vec<Read> {
    let mut time_ms = 1_700_000_000_000;
    let record = |(at, version): (usize, &Version)| {
        time_ms += version.after_ms;
        let event = format!(
            r#"{{"involvedObject":{{"kind":"Pod","uid":"u{}"}},"source":{{"component":"c"}},"reason":"R","type":"{}","message":"m{}"}}"#,
            version.object,
            if version.warning { "Warning" } else { "Normal" },
            version.message,
        );
        let seq = at as u64 + 1;
        let envelope = format!(
            r#"{{"id":"e-{seq}","cluster":{{}},"change":"created","time":"","observedTime":"","occurrences":1,"delta":{},"replayed":false,"event":{event}}}"#,
            version.delta,
        );
        (Record { seq, envelope: envelope.into() }, time_ms, true)
    };
    versions.iter().enumerate().map(record).collect()
}

/// What a sink would have been sent: sequence, delta, and what stands beside it.
type Sent = Vec<(u64, u64, Correlation)>;

#[derive(Default, Debug)]
struct Outcome {
    sent: Sent,
    /// The messages that each of them tells.
    messages: Vec<Messages>,
    correlated_away: u64,
    inputs: Inputs,
}

fn announce(outcome: &mut Outcome, summary: Summary) {
    outcome.correlated_away += summary.pending - 1;
    outcome.sent.push((summary.seq, summary.delta, summary.correlation));
    outcome.messages.push(summary.messages);
}

fn run(correlator: &mut Correlator, records: &[Read]) -> Outcome {
    let mut outcome = Outcome::default();
    for (record, time_ms, wanted) in records {
        let (seq, time_ms) = (record.seq, *time_ms);
        correlator.read(record.envelope.len());
        let read_bytes = correlator.held.read_bytes();
        let any_due = correlator.is_due(time_ms);
        while let Some(summary) = correlator.due(time_ms) {
            announce(&mut outcome, summary);
        }
        let (parts, event) = read(record).unwrap();
        let names = correlator.names(&parts, &event);
        let counted = wanted.then_some((names, parts.delta));
        if any_due || *wanted {
            Input { seq, time_ms, read_bytes, counted }.add_to(&mut outcome.inputs);
        }
        if !wanted {
            continue;
        }
        match correlator.decide(&names, seq, parts.delta, time_ms) {
            Decision::Send { correlation, messages, delta, released } => {
                outcome.correlated_away += released;
                outcome.sent.push((seq, delta, correlation));
                outcome.messages.push(messages);
            }
            Decision::Hold { evicted } => {
                if let Some(evicted) = evicted {
                    announce(&mut outcome, evicted);
                }
            }
        }
    }
    outcome
}

fn run_to_the_end(correlator: &mut Correlator, records: &[Read]) -> Outcome {
    let mut outcome = run(correlator, records);
    while let Some(summary) = correlator.due(u64::MAX) {
        announce(&mut outcome, summary);
    }
    outcome
}

fn suppress() -> Correlator {
    suppress_in(ROOMY)
}

fn suppress_in(retention_size: u64) -> Correlator {
    Correlator::new(CorrelateMode::Suppress, &Keys::random(), retention_size).unwrap()
}

proptest! {
    #[test]
    fn every_increment_comes_out_once_and_every_version_has_one_fate(
        versions in prop::collection::vec(version(), 1..300),
        size in retention_size(),
    ) {
        let records = records(&versions);
        let outcome = run_to_the_end(&mut suppress_in(size), &records);
        let came_in: u64 = versions.iter().map(|version| version.delta).sum();
        let came_out: u64 = outcome.sent.iter().map(|(_, delta, _)| delta).sum();
        prop_assert_eq!(came_in, came_out);
        let stood_for: u64 = outcome.sent.iter().map(|sent| sent.2.summarises.unwrap_or(1)).sum();
        prop_assert_eq!(stood_for, records.len() as u64);
        prop_assert_eq!(outcome.sent.len() as u64 + outcome.correlated_away, records.len() as u64);
        let mut once: Vec<_> = outcome.sent.iter().map(|sent| sent.0).collect();
        once.sort_unstable();
        once.dedup();
        prop_assert_eq!(once.len(), outcome.sent.len());
    }

    /// Killed when the sink had settled `settled` records and the state knew `saved` of them.
    #[test]
    fn a_run_after_a_kill_decides_as_the_one_before(
        versions in prop::collection::vec(version(), 1..200),
        saved in any::<prop::sample::Index>(),
        settled in any::<prop::sample::Index>(),
        size in retention_size(),
        wanted in prop::collection::vec(prop::bool::weighted(0.8), 200),
    ) {
        let mut records = records(&versions);
        for (record, wanted) in records.iter_mut().zip(wanted) {
            record.2 = wanted;
        }
        let settled = settled.index(records.len() + 1);
        let saved = saved.index(settled + 1);
        let mut straight = suppress_in(size);
        run(&mut straight, &records[..saved]);
        let state = straight.to_bytes();
        let inputs = run(&mut straight, &records[saved..settled]).inputs;
        let mut again = Correlator::load(&state).unwrap();
        let (next, read_bytes) = (settled as u64 + 1, straight.held.read_bytes());
        again.catch_up(&CorrelatorInputs { next, read_bytes, inputs }, saved as u64 + 1);
        prop_assert_eq!(again.held(), straight.held());
        prop_assert_eq!(again.to_bytes(), straight.to_bytes());
        let (a, b) = (
            run_to_the_end(&mut straight, &records[settled..]),
            run_to_the_end(&mut again, &records[settled..]),
        );
        prop_assert_eq!(a.sent, b.sent);
        prop_assert_eq!(a.correlated_away, b.correlated_away);
    }

    #[test]
    fn annotating_says_what_suppressing_does(
        versions in prop::collection::vec(version(), 1..200),
    ) {
        let records = records(&versions);
        let mut annotate = Correlator::new(CorrelateMode::Annotate, &Keys::random(), ROOMY).unwrap();
        let said = run_to_the_end(&mut annotate, &records).sent;
        let done = run(&mut suppress(), &records).sent;
        prop_assert_eq!(said.len(), records.len());
        prop_assert!(said.iter().zip(&versions).all(|(sent, version)| sent.1 == version.delta));
        let sent: BTreeMap<u64, Correlation> = done
            .into_iter()
            .filter(|sent| sent.2.action != CorrelationAction::Summary)
            .map(|(seq, _, correlation)| (seq, Correlation { summarises: None, ..correlation }))
            .collect();
        let not_skipped = said.into_iter().filter(|sent| sent.2.action != CorrelationAction::Skip);
        prop_assert_eq!(not_skipped.map(|sent| (sent.0, sent.2)).collect::<BTreeMap<_, _>>(), sent);
    }

    #[test]
    fn damaged_bytes_are_an_error_at_worst(
        versions in prop::collection::vec(version(), 0..60),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let mut correlator = suppress();
        run(&mut correlator, &records(&versions));
        let mut bytes = correlator.to_bytes();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] = byte }
        let _ = Correlator::load(&bytes);
    }
}

fn repeats(object: u8, message: u8, count: usize, after_ms: u64) -> Vec<Version> {
    vec![Version { object, message, warning: true, delta: 1, after_ms }; count]
}

#[test]
fn an_object_has_25_tokens_and_what_is_held_comes_with_its_next_version() {
    let mut versions = repeats(0, 0, 30, 10);
    versions.extend(repeats(0, 0, 1, 301_000));
    let outcome = run(&mut suppress(), &records(&versions));
    let sequences: Vec<u64> = outcome.sent.iter().map(|sent| sent.0).collect();
    assert_eq!(sequences, (1..=25).chain([31]).collect::<Vec<_>>());
    let (_, delta, last) = &outcome.sent[25];
    let expected = Correlation {
        action: CorrelationAction::Patch,
        aggregated: false,
        count: 31,
        summarises: Some(6),
        ..Correlation::default()
    };
    assert_eq!((*delta, last), (6, &expected));
    assert_eq!(outcome.correlated_away, 5);
}

#[test]
fn what_is_held_comes_as_a_summary_600_seconds_after_the_first_of_it() {
    let mut correlator = suppress();
    let records = records(&repeats(0, 0, 28, 10_000));
    run(&mut correlator, &records);
    let first_held = records[25].1;
    assert_eq!(correlator.next_due_ms(), Some(first_held + 600_000));
    assert_eq!(correlator.due(first_held + 599_999), None);
    let summary = correlator.due(first_held + 600_000).unwrap();
    assert_eq!((summary.seq, summary.delta), (28, 3));
    assert_eq!(summary.correlation.summarises, Some(3));
    assert_eq!((correlator.held(), correlator.next_due_ms()), (0, None));
}

#[test]
fn what_is_held_comes_as_a_summary_when_an_eighth_of_the_journal_is_behind_it() {
    let records = records(&repeats(0, 0, 200, 10));
    let mut correlator = suppress_in(HOLD_SHARE * 10_000);
    let sent = run(&mut correlator, &records).sent;
    let record = records[100].0.envelope.len() as u64 + 160;
    let behind = 10_000_u64.div_ceil(record);
    let (seq, delta, correlation) = &sent[25];
    // 26 is held first. The record that fills the room brings the summary about, and is held anew.
    assert_eq!((*seq, *delta, correlation.summarises), (25 + behind, behind, Some(behind)));
    assert!(sent[25..].iter().all(|(_, delta, _)| *delta == behind), "{sent:?}");
    assert!(sent.len() > 25 + 4, "{sent:?}");
    // In a smaller journal it is due with the next record.
    let mut loaded = Correlator::load(&correlator.to_bytes()).unwrap();
    loaded.switch(CorrelateMode::Suppress);
    loaded.fit(1 << 10);
    loaded.read(0);
    assert!(loaded.is_due(0));
}

#[test]
fn twelve_messages_of_one_reason_are_aggregated_from_the_tenth_on() {
    let versions: Vec<_> = (0..12).flat_map(|message| repeats(0, message, 1, 10)).collect();
    let outcome = run(&mut suppress(), &records(&versions));
    let aggregated: Vec<bool> = outcome.sent.iter().map(|sent| sent.2.aggregated).collect();
    assert_eq!(aggregated, [vec![false; 9], vec![true; 3]].concat());
    let counts: Vec<u64> = outcome.sent[9..].iter().map(|sent| sent.2.count).collect();
    assert_eq!(counts, [1, 2, 3]);
}

#[test]
fn no_more_is_held_than_there_is_room_for() {
    let mut correlator = suppress();
    let mut versions = Vec::new();
    // One object that has no tokens, about which ever more is said.
    for _ in 0..25 {
        versions.extend(repeats(0, 0, 1, 0));
    }
    let mut records = records(&versions);
    for at in 0..defaults::LRU_CACHE_SIZE as u64 + 10 {
        let seq = 26 + at;
        let text = String::from_utf8(records[0].0.envelope.to_vec()).unwrap();
        // Other reasons, or they would be aggregated.
        let envelope = text.replace("\"reason\":\"R\"", &format!("\"reason\":\"R{at}\"")).into();
        records.push((Record { seq, envelope }, records[0].1, true));
    }
    let outcome = run(&mut correlator, &records);
    assert_eq!(correlator.held(), defaults::LRU_CACHE_SIZE as u64);
    let evicted: Vec<u64> = outcome.sent[25..].iter().map(|sent| sent.0).collect();
    assert_eq!(evicted, (26..36).collect::<Vec<_>>());
}

#[test]
fn what_is_held_when_the_mode_changes_is_let_go() {
    let mut correlator = suppress();
    run(&mut correlator, &records(&repeats(0, 0, 28, 10)));
    assert!(!correlator.lets_go());
    let state = correlator.to_bytes();
    for mode in [CorrelateMode::Annotate, CorrelateMode::None] {
        let mut loaded = Correlator::load(&state).unwrap();
        assert!(!loaded.lets_go());
        loaded.switch(mode);
        assert!(loaded.lets_go());
    }
    correlator.let_go();
    assert!(Correlator::load(&correlator.to_bytes()).unwrap().lets_go());
}

/// The state as Tidings 0.1 would have saved it.
fn as_saved_earlier(correlator: &Correlator) -> Vec<u8> {
    let mut bytes = correlator.to_bytes();
    bytes[0] = 2;
    // A flag follows what is held.
    let mut entry_end = bytes.len() - 1;
    let entries: Vec<_> = correlator.held.iter().collect();
    for (_, entry) in entries.into_iter().rev() {
        let mut messages = Vec::new();
        entry.messages.save(&mut messages);
        bytes.drain(entry_end - messages.len()..entry_end);
        // A key, eight numbers and a flag are left.
        entry_end -= messages.len() + 16 + 8 * 8 + 1;
        let pending = entry_end + 16 + 6 * 8;
        bytes.drain(pending..pending + 8);
    }
    bytes
}

/// Runs as a build before version 3 would have: its keys did not begin with the cluster and the
/// Event's namespace.
fn run_earlier(correlator: &mut Correlator, records: &[Read]) {
    for (record, time_ms, _) in records {
        let (parts, event) = read(record).unwrap();
        let (object, reason) = (&event.involved_object, &event.reason);
        let reporter = correlator.keys.prefix(&[
            &event.source.component,
            &event.source.host,
            &object.kind,
            &object.namespace,
            &object.name,
            &object.uid,
            &object.api_version,
            &event.type_,
        ]);
        let names = Names {
            event: reporter.key(&["event", reason, &object.field_path, &event.message]),
            group: reporter.key(&["group", reason, "", ""]),
            local: correlator.keys.separated(&[&event.message]),
            spam: reporter.key(&[]),
        };
        correlator.read(record.envelope.len());
        correlator.decide(&names, record.seq, parts.delta, *time_ms);
    }
}

#[test]
fn what_an_earlier_build_held_comes_out_first_and_only_the_last_of_it_has_no_fate() {
    // It had saved its correlator before it held anything, and after.
    for saved in [20, 30] {
        let mut correlator = suppress();
        let records = records(&repeats(0, 0, 40, 10));
        run_earlier(&mut correlator, &records[..saved]);
        let mut earlier = Correlator::load(&as_saved_earlier(&correlator)).unwrap();
        assert_eq!(earlier.held(), correlator.held().min(1));
        assert_eq!(earlier.holding().mark, correlator.holding().mark);
        // It is brought up with the keys and the fates that the build before gave.
        for (record, time_ms, wanted) in &records[saved..] {
            earlier.bring_up(record, *time_ms, *wanted);
        }
        run_earlier(&mut correlator, &records[saved..]);
        assert_eq!((correlator.held(), earlier.held()), (15, 1));
        assert_eq!(earlier.holding().mark, correlator.holding().mark);
        earlier.switch(CorrelateMode::Suppress);
        assert!(earlier.lets_go());
        let summary = earlier.due(u64::MAX).unwrap();
        assert_eq!((summary.seq, summary.delta, summary.pending), (40, 15, 1));
        assert_eq!(summary.correlation.summarises, Some(15));
    }
}

#[test]
fn what_was_held_at_the_last_save_is_salvaged_as_far_as_it_is_still_held() {
    let mut correlator = suppress();
    let mut versions = repeats(0, 0, 28, 10);
    versions.extend(repeats(1, 0, 30, 10));
    run(&mut correlator, &records(&versions));
    assert_eq!(correlator.held(), 3 + 5);
    for (held, expected) in
        [(9, vec![3, 5]), (8, vec![3, 5]), (6, vec![1, 5]), (5, vec![5]), (0, vec![])]
    {
        let mut salvaged = Correlator::load(&correlator.to_bytes()).unwrap();
        salvaged.salvage(held);
        assert_eq!((salvaged.held(), salvaged.lets_go()), (held.min(8), held > 0));
        let sent = std::iter::from_fn(|| salvaged.due(u64::MAX));
        assert_eq!(sent.map(|summary| summary.pending).collect::<Vec<_>>(), expected);
        assert_eq!((salvaged.held(), salvaged.holding().mark), (0, 0));
    }
}

#[test]
fn what_was_let_go_once_is_no_reason_to_let_go_what_is_held_later() {
    let mut correlator = suppress();
    let records = records(&repeats(0, 0, 30, 10));
    // With nothing held there is nothing to let go.
    correlator.switch(CorrelateMode::Annotate);
    correlator.switch(CorrelateMode::Suppress);
    run(&mut correlator, &records[..28]);
    assert!(!correlator.lets_go());
    correlator.let_go();
    while correlator.due(u64::MAX).is_some() {}
    run(&mut correlator, &records[28..]);
    assert_eq!(correlator.held(), 2);
    assert!(!Correlator::load(&correlator.to_bytes()).unwrap().lets_go());
}

#[test]
fn a_mode_that_is_changed_and_changed_back_lets_go_all_the_same() {
    let mut correlator = suppress();
    run(&mut correlator, &records(&repeats(0, 0, 28, 10)));
    correlator.switch(CorrelateMode::Annotate);
    // Some of it may be out when the run in that mode ends.
    let mut again = Correlator::load(&correlator.to_bytes()).unwrap();
    again.switch(CorrelateMode::Suppress);
    assert!(again.lets_go());
}

/// An Event as a watch brings it, with texts that an envelope could change.
fn event_json(texts: &[String; 6]) -> String {
    let [name, field_path, reason, message, host, instance] =
        texts.clone().map(|text| serde_json::to_string(&text).unwrap());
    format!(
        "{{\n \"metadata\":{{\"uid\":\"u\",\"resourceVersion\":\"7\",\"managedFields\":[{{\"x\":1}}]}},\r\n\
         \"involvedObject\":{{\"kind\":\"Pod\",\"name\":{name},\"fieldPath\":{field_path}}},\
         \"source\":{{\"host\":{host}}},\"reportingInstance\":{instance},\"type\":\"Warning\",\
         \"reason\":{reason},\"message\":{message}}}"
    )
}

proptest! {
    /// A sink that reads the journal counts a version under the same keys as one that gets it live.
    #[test]
    fn the_keys_of_a_record_are_those_of_the_event_that_it_was_made_of(
        texts in prop::array::uniform6("[a-z\"\\\\\n{},:é]{0,8}"),
    ) {
        let keys = Keys::random();
        let json = event_json(&texts);
        let incoming = Incoming::decode(json.as_bytes()).unwrap();
        let name = Some(format!("}},\"change\":{}", texts[0]));
        let cluster = serde_json::to_string(&Cluster { name, ..Cluster::default() }).unwrap();
        let head = EnvelopeHead {
            cluster_json: &cluster,
            change: Change::Created,
            observed_time: "",
            delta: 1,
            replayed: false,
        };
        let mut envelope = Vec::new();
        head.write(&incoming, usize::MAX, &mut envelope);
        let record = Record { seq: 1, envelope: envelope.into() };
        let (parts, event) = read(&record).unwrap();
        prop_assert_eq!(parts.cluster(), &cluster);
        let names = Names::of(keys.prefix(&[&cluster]), &incoming.fields, &keys);
        let read_names = Names::of(keys.prefix(&[parts.cluster()]), &event, &keys);
        prop_assert_eq!(read_names, names);
        // No text of an Event can stand for another namespace or cluster.
        let mut other = incoming.fields.clone();
        other.metadata.namespace = Text("other".into());
        prop_assert_ne!(Names::of(keys.prefix(&[&cluster]), &other, &keys).spam, names.spam);
        let unnamed = keys.prefix(&["{}"]);
        prop_assert_ne!(Names::of(unnamed, &incoming.fields, &keys).spam, names.spam);
    }
}

/// A correlator that is older than the others has keys of its own, and those that ingest made for
/// the others say nothing to it.
#[tokio::test]
async fn keys_of_others_are_not_taken_for_ones_own() {
    let directory = tempfile::tempdir().unwrap();
    let options = LogOptions {
        retention_size: 1 << 20,
        retention_age: Duration::from_secs(60),
        sync: Sync::Never,
    };
    let (log, _) =
        Log::open(&crate::journal::open(directory.path()).unwrap(), options, 0, 0).unwrap();
    let (own, shared) = (Keys::random(), Keys::random());
    let records =
        records(&vec![Version { object: 0, message: 0, warning: false, delta: 1, after_ms: 0 }; 3]);
    for (keys, counts) in [(&shared, [1, 1, 1]), (&own, [1, 2, 3])] {
        let correlator = Correlator::new(CorrelateMode::Annotate, keys, ROOMY);
        let progress = SinkProgress::new(
            "audit",
            "memory",
            Overflow::DropOldest,
            SinkState::default(),
            None,
            &Ranges::default(),
        );
        let mut stage = Stage::new(correlator, None, &shared, log.handle(), &progress);
        let mut counted = Vec::new();
        for (record, time_ms, _) in &records {
            // Of Events that have nothing to do with each other, unlike the records.
            let foreign = shared.separated(&[&record.seq.to_string()]);
            let names = Names { event: foreign, group: foreign, local: foreign, spam: foreign };
            let passed = stage.pass(record.clone(), None, Some(&names), *time_ms).await;
            let envelope = passed.record.unwrap().envelope;
            counted.push(Envelope::parse(&envelope).unwrap().correlation.unwrap().count);
        }
        assert_eq!(counted, counts);
    }
}
