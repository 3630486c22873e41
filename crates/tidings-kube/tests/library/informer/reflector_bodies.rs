//! Bodies that are cut, compressed, large, or no watch at all.

use std::{io, time::Duration};

use bytes::Bytes;
use serde_json::json;

use super::{
    scripted::{Answer, Ending},
    support::{follow, is_wait, list, object, watch},
};

fn line(kind: &str, object: &serde_json::Value) -> String {
    json!({"type": kind, "object": object}).to_string() + "\n"
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_cut_is_taken_up_behind_its_last_whole_line() {
    let mut wide = object("ü", "12");
    wide["data"] = json!({"text": "ü"});
    let whole = line("ADDED", &object("b", "11"));
    let cut = line("ADDED", &wide);
    let mid_line = cut.len() / 2;
    let mid_character = cut.find('ü').unwrap() + 1;
    for at in [mid_line, mid_character, cut.len() - 1] {
        for ending in [Ending::Close(Duration::ZERO), Ending::Break(io::ErrorKind::ConnectionReset)]
        {
            let pieces = vec![
                (Duration::from_millis(5), Bytes::from(whole.clone())),
                (Duration::from_millis(5), Bytes::copy_from_slice(&cut.as_bytes()[..at])),
            ];
            let followed = follow([
                list(&["a@5"], "10"),
                Answer::stream(pieces, ending),
                Answer::watch([(5, "ADDED", wide.clone())], Ending::Open),
            ]);
            followed.requests(3).await;
            assert_eq!(followed.calls()[2], "watch from \"11\"");
            tokio::time::sleep(Duration::from_millis(10)).await;
            let lines = followed.store.lines();
            assert_eq!(lines, ["replace [a@5] at 10", "add b@11", "add ü@12"], "{ending:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_may_be_cut_anywhere_into_pieces() {
    let text = line("ADDED", &object("ü", "11")) + &line("MODIFIED", &object("ü", "12"));
    let bytes: Vec<u8> = text.into_bytes();
    let piece = |byte: &u8| (Duration::from_millis(1), Bytes::copy_from_slice(&[*byte]));
    let followed = follow([
        list(&["a@5"], "10"),
        Answer::stream(bytes.iter().map(piece).collect(), Ending::Open),
    ]);
    followed.requests(2).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(followed.store.lines()[1..], ["add ü@11", "update ü@12"]);
}

#[tokio::test(start_paused = true)]
async fn a_line_of_eight_mib_is_taken() {
    let mut large = object("b", "11");
    large["data"] = json!({"text": "ü".repeat(4 << 20)});
    let text = Bytes::from(line("ADDED", &large));
    assert!(text.len() > 8 << 20);
    let pieces = (0..text.len())
        .step_by(64 << 10)
        .map(|at| (Duration::from_millis(1), text.slice(at..text.len().min(at + (64 << 10)))));
    let followed = follow([list(&["a@5"], "10"), Answer::stream(pieces.collect(), Ending::Open)]);
    followed.requests(2).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(followed.store.lines()[1], "add b@11");
}

#[tokio::test(start_paused = true)]
async fn what_is_no_watch_event_ends_the_round() {
    for garbage in ["<html>login</html>\n", "{\"type\":\"ADDED\"}\n", "{}\n", "\u{0}\n"] {
        let pieces = vec![
            (Duration::from_millis(5), Bytes::from(line("ADDED", &object("b", "11")))),
            (Duration::from_millis(5), Bytes::from(garbage)),
        ];
        let followed = follow([
            list(&["a@5"], "10"),
            Answer::stream(pieces, Ending::Open),
            list(&["a@5"], "20"),
        ]);
        followed.requests(3).await;
        assert_eq!(followed.calls()[2], "list at \"11\"", "{garbage}");
        assert!(is_wait(followed.waits()[2], 0));
        let said = followed.health();
        assert!(said.lists == 2 && said.watches >= 1, "{said:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_of_html_in_place_of_a_watch_is_a_very_short_one() {
    // No line feed, so there is no line in it.
    let followed = follow([
        list(&["a@5"], "10"),
        Answer::body(200, "<html>login</html>"),
        list(&["a@5"], "20"),
        watch(&[], Ending::Open),
    ]);
    followed.requests(4).await;
    assert_eq!(followed.calls()[2], "list at \"10\"");
    assert!(is_wait(followed.waits()[2], 0));
}

/// kube decompresses below the service that a scripted server stands in for, so this one is real.
#[tokio::test]
async fn a_list_may_be_compressed_and_a_watch_must_not() {
    use std::io::Write as _;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::ApiResource;
    use tidings_kube::{
        client_without_retry,
        reflector::{Reflector, ReflectorOptions, ResourceApi},
    };
    use tidings_testkit::receiver::{HttpReceiver, Step};

    use super::told::Told;

    let server = HttpReceiver::start(|_, request| {
        let encoding = request.header("accept-encoding");
        if request.line().contains("watch=true") {
            assert_eq!(encoding, Some("identity"));
            let line = line("ADDED", &object("b", "11"));
            return vec![Step::answer("200 OK", "", line)];
        }
        assert!(encoding.unwrap().contains("gzip"));
        let list = json!({"metadata": {"resourceVersion": "10"}, "items": [object("a", "5")]});
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packed.write_all(list.to_string().as_bytes()).unwrap();
        let packed = packed.finish().unwrap();
        vec![Step::answer("200 OK", "content-encoding: gzip\r\n", packed)]
    });
    let server = server.unwrap();
    let url = server.url("http");
    let client = client_without_retry(kube::Config::new(url.parse().unwrap())).unwrap();
    let store = Told::default();
    let api = ResourceApi::new(client, &ApiResource::erase::<ConfigMap>(&()));
    let reflector = Reflector::new(api, store.clone(), ReflectorOptions::default());
    let running = tokio::spawn(reflector.run());
    while store.lines().len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.lines()[..2], ["replace [a@5] at 10", "add b@11"]);
    running.abort();
}
