//! What fuzzing starts from: `fuzz/seeds/<target>/`, made here.
//!
//! `cargo test --test program -- --ignored fuzz_seeds` writes them again, after a change of a format.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use tidings_log::{FrameBuilder, Log, LogOptions, Resume, Sync};

/// By file, below the folder of its target.
type Seeds = BTreeMap<PathBuf, Vec<u8>>;

const EVENT: &str = r#"{"kind":"Event","apiVersion":"v1","metadata":{"name":"web-0.17a","namespace":"shop","uid":"0d8c5c1e-7f6c-4f0a-9f6e-0a1b2c3d4e5f","resourceVersion":"7","creationTimestamp":"2026-01-02T03:04:05Z","managedFields":[{"manager":"kubelet","operation":"Update"}]},"involvedObject":{"kind":"Pod","namespace":"shop","name":"web-0","uid":"p"},"reason":"BackOff","message":"Back-off \"restarting\"\n","source":{"component":"kubelet","host":"n1"},"firstTimestamp":"2026-01-02T03:04:05Z","lastTimestamp":"2026-01-02T03:04:06Z","count":3,"type":"Warning"}"#;

fn seeds() -> Seeds {
    let mut seeds = Seeds::new();
    let mut add = |target: &str, name: &str, bytes: &[u8]| {
        seeds.insert(Path::new(target).join(name), bytes.to_vec());
    };

    // A byte that says where the body is cut, and the body.
    let line = |kind: &str| format!("\x40{{\"type\":\"{kind}\",\"object\":{EVENT}}}\n");
    for kind in ["ADDED", "DELETED"] {
        add("watch_line", &kind.to_lowercase(), line(kind).as_bytes());
    }
    add(
        "watch_line",
        "bookmark-and-error",
        b"\x10{\"object\":{\"kind\":\"Event\",\"metadata\":{\"resourceVersion\":\"9\"}},\"type\":\"BOOKMARK\"}\r\n\n{\"type\":\"ERROR\",\"object\":{\"code\":410}}\n",
    );
    let list = format!(
        "\x20{{\"kind\":\"EventList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"9\",\"continue\":\"c\"}},\"items\":[{EVENT},{{\"a\":[1,\"]}}\\\"\"]}}]}}\n"
    );
    add("list_items", "two", list.as_bytes());
    add("list_items", "none", b"\x01{\"items\":null,\"metadata\":{\"resourceVersion\":\"1\"}}");

    add(
        "configuration",
        "short",
        b"journal: {path: /var/lib/t, retention: {size: 1GiB, age: 1.5h}}\nsinks:\n  a: {webhook: {url: {env: TOKEN}}, match: 'event.type == \"Warning\"', retry: {initial: 1s}}\n",
    );

    for (name, text) in [
        ("type", r#"event.type == "Warning" && event.count > 2"#),
        ("regex", r#"event.involvedObject.name.matches("^web-[0-9]+$") || !has(event.series)"#),
        ("labels", r#""app" in event.metadata.labels && object.owners.exists(o, o.kind == "Job")"#),
        ("time", r#"timestamp(time) > timestamp("2026-01-01T00:00:00Z") ? delta * 2 > 1 : false"#),
        ("list", r#"event.reason in ["BackOff", "Failed"] && size(event.message) < 100"#),
        ("loops", r#"event.metadata.labels.all(a, event.metadata.labels.exists(b, a + b != "x"))"#),
        ("doubled", r#"size(["a"].map(x, x + x).map(x, x + x)) == event.metadata.labels.size()"#),
    ] {
        add("cel", name, text.as_bytes());
    }

    // A byte that says what it is: a selection of letters, a replay, a query.
    for (name, text) in [
        ("numbers", "0{\"numbers\": [1, 18446744073709551615]}"),
        ("all", "0{\"all\": true, \"sink\": \"pager\", \"class\": \"invalid\"}"),
        (
            "since",
            "1{\"sink\": \"pager\", \"since\": \"2026-01-02T03:04:05Z\", \"match\": \"delta > 1\"}",
        ),
        ("from", "1{\"sink\": \"pager\", \"from\": 7}"),
        ("query", "2sink=a%20b&class=invalid&limit=10&before=7"),
    ] {
        add("admin_input", name, text.as_bytes());
    }

    let [first, second] = segments();
    for (name, segments) in [("one", [&*first, b""]), ("two", [&*first, &*second])] {
        let length = u16::try_from(first.len()).unwrap().to_le_bytes();
        add("journal_recovery", name, &[&length, segments[0], segments[1]].concat());
    }

    // Where, how many, what; then positions.json.
    add("state_recovery", "whole", b"{\"epoch\":2,\"sinks\":{\"audit\":{\"*\":\"17\"}}}");
    add("state_recovery", "magic", b"\x00\x00\x00\x01x");
    add("state_recovery", "slots", b"\x00\x00\x40\x08\0\0\0\0\0\0\0\0\x00\x00\xc0\x02\xff\xff{");
    add("state_recovery", "pages", b"\x00\x10\x00\x04\x01\x00\x02\x00\x00\x20\x10\x01\x07");

    // Two bytes of status, the length of Retry-After, that, and the body.
    for (name, status, after, body) in [
        ("throttled", 429u16, "17", "slow down"),
        ("date", 503, "Sun, 06 Nov 1994 08:49:37 GMT", ""),
        ("refused", 400, "", "Cannot POST /hook/T0ken-0123456789\n"),
        ("taken", 204, "", ""),
    ] {
        let length = [u8::try_from(after.len()).unwrap()];
        let head = [&status.to_be_bytes()[..], &length].concat();
        add("webhook_response", name, &[&head, after.as_bytes(), body.as_bytes()].concat());
    }

    // How it comes, how many were sent, status, the length of the words, them, and the body.
    let partial: &[u8] = b"\x0a\x0d\x08\x03\x12\x09too old\n\n";
    add("otlp_response", "partial", &[b"\x00\x0a\x00\xc8\x00", partial].concat());
    let info = b"\x0a\x04\x08\x05\x10\x01";
    let url = b"type.googleapis.com/google.rpc.RetryInfo";
    let any = [b"\x0a\x28", &url[..], b"\x12\x06", &info[..]].concat();
    let length = u8::try_from(any.len()).unwrap();
    let details = [b"\x08\x08\x12\x04full\x1a", &[length][..], &any].concat();
    add("otlp_response", "retry-info", &[b"\x01\x0a\x00\x08\x04full", &details[..]].concat());
    add("otlp_response", "http-throttled", &[b"\x00\x01\x01\xad\x0217", &details[..]].concat());
    seeds
}

/// Two segments of one log, each with frames of all kinds.
fn segments() -> [Vec<u8>; 2] {
    let dir = tempfile::tempdir().unwrap();
    let directory = tidings::journal::open(dir.path()).unwrap();
    let options = LogOptions {
        retention_size: 1 << 20,
        retention_age: Duration::from_secs(3600),
        sync: Sync::Never,
    };
    let (mut log, _) = Log::open(&directory, options, 0, 1_000).unwrap();
    log.set_cluster_uid("c");
    // A segment is sealed after an hour.
    for time_ms in [2_000, 7_202_000] {
        for records in [1, 0, 2] {
            let mut builder = FrameBuilder::new("*".into(), Resume::default());
            let version = time_ms + records;
            builder.set_resume(Resume { epoch: 1, resource_version: version });
            for record in 0..records {
                let envelope = format!("{{\"id\":\"u{record}-{version}\",\"delta\":1}}");
                builder.record(|out| out.extend_from_slice(envelope.as_bytes()));
            }
            log.append(&mut builder, time_ms + records).unwrap();
        }
    }
    [1, 4].map(|first| fs::read(dir.path().join(format!("{first:020}.log"))).unwrap())
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds")
}

#[test]
#[ignore = "writes fuzz/seeds again"]
fn write() {
    // There may be none.
    let _ = fs::remove_dir_all(folder());
    for (path, bytes) in seeds() {
        let path = folder().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

#[test]
fn seeds_are_of_the_formats_as_they_are_and_every_target_has_some() {
    let seeds = seeds();
    for (path, bytes) in &seeds {
        let stored = fs::read(folder().join(path)).unwrap_or_default();
        assert!(
            stored == *bytes,
            "fuzz/seeds/{} is not what it would be now; write them again as the head of {} says",
            path.display(),
            file!()
        );
    }
    let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/fuzz_targets");
    for target in fs::read_dir(targets).unwrap() {
        let target = target.unwrap().path().file_stem().unwrap().to_owned();
        assert!(seeds.keys().any(|path| path.starts_with(&target)), "{}", target.display());
    }
}
