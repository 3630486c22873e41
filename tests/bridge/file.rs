//! The bridge and a file: one line for one event, over rotations, restarts and half a line of a crash.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::Path,
    sync::Arc,
};

use serde_json::Value;
use tidings::{bridge::Sink, config::parse};
use tidings_testkit::api_server::{ApiServer, EventObject};

use crate::support::{MemorySink, Setup, Tuning, server, settled, stop};

const HOSTILE: [&str; 3] = [
    "\n{\"id\":\"forged\",\"event\":{\"message\":\"another line\"}}\n",
    "quote \" backslash \\ NUL \0 CR \r LS \u{2028} NEL \u{85} \u{202e}txt.exe",
    "../../etc/passwd",
];

/// The sink of `config/file.yaml`, with another path and smaller files.
fn shipped(file: &Path) -> Arc<dyn Sink> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/file.yaml");
    let text = fs::read_to_string(path).unwrap();
    let text = text
        .replace("/var/log/tidings/events.ndjson", &file.display().to_string())
        .replace("100MiB", "20kB");
    let settings = parse("file.yaml", &text, []).unwrap_or_else(|error| panic!("{error}"));
    let [sink] = settings.sinks.as_slice() else { panic!("one sink") };
    sink.sink.build().unwrap()
}

fn create(server: &ApiServer, pod: &str, message: &str) {
    server.create(EventObject::about_pod("shop", pod, "Failed", message)).unwrap();
}

/// What the lines of all files hold, the oldest first; each file is within its bound.
fn lines(directory: &Path) -> Vec<Value> {
    let paths = directory.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let (current, mut paths): (Vec<_>, Vec<_>) =
        paths.partition(|path| path.ends_with("events.ndjson"));
    paths.sort();
    paths.extend(current);
    assert!(paths.len() > 3, "{paths:?}");
    let mut lines = Vec::new();
    for path in paths {
        let text = fs::read_to_string(path).unwrap();
        assert!(text.ends_with('\n') && text.len() <= 20_000, "{} bytes", text.len());
        lines.extend(text.lines().map(|line| serde_json::from_str(line).unwrap()));
    }
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_is_a_line_of_its_own() {
    let (server, dir, memory) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let [journal, logs] = ["journal", "logs"].map(|name| dir.path().join(name));
    let file = logs.join("events.ndjson");
    let mut seen = 0;
    for run in 0..3 {
        if run > 0 {
            // As a crash leaves it.
            let mut current = OpenOptions::new().append(true).open(&file).unwrap();
            current.write_all(b"{\"id\":\"half a li").unwrap();
        }
        let mut setup = Setup::new(&server, &journal).sink("memory", &memory);
        setup.sinks.push(("file", shipped(&file), Tuning::default()));
        let bridge = setup.start().await;
        for n in 0..40 {
            create(&server, &format!("api-{run}-{n}"), "m");
        }
        for (n, message) in HOSTILE.into_iter().enumerate() {
            create(&server, &format!("web-{run}-{n}"), message);
        }
        seen += 40 + HOSTILE.len() as u64;
        let status = settled(&bridge.view(), "file", seen).await;
        assert_eq!((status.delivered, status.dead_lettered), (seen, 0));
        settled(&bridge.view(), "memory", seen).await;
        stop(bridge).await;
    }

    let lines = lines(&logs);
    let ids: Vec<_> = lines.iter().map(|line| line["id"].as_str().unwrap()).collect();
    assert_eq!(ids, memory.ids());
    let texts: Vec<_> = lines.iter().map(|line| &line["event"]["message"]).collect();
    for message in HOSTILE {
        assert_eq!(texts.iter().filter(|found| **found == message).count(), 3);
    }
}
