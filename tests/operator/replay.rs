//! `tidings replay`.

use std::process::Stdio;

use serde_json::json;
use tidings::bridge::FailureClass;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use crate::{
    commands,
    stage::Stage,
    support::{invalid, retry, sink_status, until},
};

#[tokio::test(flavor = "multi_thread")]
async fn records_of_the_journal_are_sent_again_under_the_same_ids() {
    let stage = Stage::set().await;
    stage.events(["one", "two", "three"]).await;
    let first = stage.sink.ids();
    let before = sink_status(&stage.bridge().view(), "pager");
    let said = stage.run(&["replay", "--sink", "pager", "--since", "1h"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    insta::assert_snapshot!(said.stdout);
    let received = stage.sink.received();
    assert_eq!(stage.sink.ids(), [first.clone(), first].concat());
    assert!(received[3..].iter().all(|event| event.replayed));
    let after = sink_status(&stage.bridge().view(), "pager");
    assert_eq!((after.seen, after.delivered), (before.seen, before.delivered));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_position_and_a_filter_narrow_it() {
    let stage = Stage::set().await;
    stage.events(["one", "two", "three", "four"]).await;
    let third = stage.sink.received()[2].seq.to_string();
    let said = stage
        .run(&[
            "replay",
            "--sink",
            "pager",
            "--from",
            &third,
            "--match",
            "event.message != 'four'",
            "--output",
            "json",
        ])
        .await
        .json();
    let expected = json!({"sink": "pager", "complete": true, "state": "done"});
    assert!(expected.as_object().unwrap().iter().all(|(key, value)| said[key] == *value), "{said}");
    assert_eq!((&said["read"], &said["matched"]), (&2.into(), &1.into()));
    assert_eq!(
        (&said["delivered"], &said["refused"], &said["gone"]),
        (&1.into(), &0.into(), &0.into())
    );
    assert!(stage.sink.received()[4].envelope.contains("three"));
    assert_eq!(stage.sink.received().len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_event_is_told_and_the_replay_is_not_whole() {
    let stage = Stage::set().await;
    stage.events(["one", "two", "three"]).await;
    stage.sink.refuse(|event| event.envelope.contains("two").then(|| invalid("no more of these")));
    let said = stage.run(&["replay", "--sink", "pager", "--from", "1"]).await;
    assert_eq!(said.code, 1);
    insta::assert_snapshot!(said.stdout);
    assert!(stage.numbers().await.is_empty(), "no dead letter of what was delivered once");
}

#[tokio::test(flavor = "multi_thread")]
async fn replay_says_so_where_the_journal_does_not_reach() {
    let stage = Stage::set().await;
    stage.events(["one", "two"]).await;
    let said = stage.run(&["replay", "--sink", "pager", "--since", "2h"]).await;
    assert!(said.stderr.contains("pager: the journal has nothing older than "), "{said:?}");
    let said = stage.run(&["replay", "--sink", "pager", "--from", "1"]).await;
    assert!(!said.stderr.contains("nothing"), "{said:?}");
    let said = stage.run(&["replay", "--sink", "pager", "--from", "4711"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    let note = "pager: the sink has been sent nothing from position 4711 on: what it was sent \
                ends before position 3\n";
    assert!(said.stderr.contains(note), "{said:?}");
}

/// A replay that waits for a receiver that does not answer.
async fn hanging(stage: &Stage, output: &str) -> Child {
    stage.sink.hold(true);
    let attempts = stage.sink.attempts().len();
    let arguments = ["replay", "--sink", "pager", "--from", "1", "--output", output];
    let mut command = commands::command(&stage.config(), &arguments);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the replay has reached the receiver", || stage.sink.attempts().len() > attempts).await;
    child
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_it_says_from_where_to_go_on() {
    let stage = Stage::set().await;
    stage.events(["one", "two", "three"]).await;
    let mut child = hanging(&stage, "text").await;
    // A second one has to wait.
    let second = stage.run(&["replay", "--sink", "pager", "--from", "1"]).await;
    assert_eq!((second.code, second.stdout.as_str()), (1, ""));
    assert!(second.stderr.contains("is under way\nhint: "), "{second:?}");

    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    while !said.next_line().await.unwrap().unwrap().contains("; it waits: ") {}
    let pid = child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().await.unwrap().success());
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    insta::assert_snapshot!(String::from_utf8(output.stdout).unwrap());

    // The bridge has noticed that nobody waits for it any more.
    stage.sink.hold(false);
    let mut third = stage.run(&["replay", "--sink", "pager", "--from", "1"]).await;
    while third.stderr.contains("is under way") {
        third = stage.run(&["replay", "--sink", "pager", "--from", "1"]).await;
    }
    assert_eq!(third.code, 0, "{third:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bridge_that_stops_ends_it() {
    let mut stage = Stage::set().await;
    stage.events(["one", "two", "three"]).await;
    let child = hanging(&stage, "json").await;
    stage.sink.refuse(|_| Some(retry(FailureClass::Unavailable)));
    stage.sink.hold(false);
    stage.stop().await;
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["complete"], false, "{said}");
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(why.contains("the bridge stopped before the replay was done\nhint: "), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_impossible_replay_is_refused_before_anything_is_sent() {
    let stage = Stage::set().await;
    stage.events(["one"]).await;
    let mut said = Vec::new();
    for arguments in [
        &["replay", "--sink", "pagr", "--since", "1h"][..],
        &["replay", "--sink", "somewhere", "--since", "1h"],
        &["replay", "--sink", "pager", "--since", "1h", "--match", "event.typ == 'Warning'"],
        &["replay", "--sink", "pager", "--since", "1h", "--match", "event.type =="],
        &["replay", "--sink", "pager", "--since", "1h", "--match", "object.labels.team == 'a'"],
    ] {
        let answer = stage.run(arguments).await;
        assert_eq!((answer.code, answer.stdout.as_str()), (2, ""), "{answer:?}");
        said.push(format!("$ tidings {}\n{}", arguments.join(" "), answer.stderr));
    }
    insta::assert_snapshot!(said.join("\n"));
    assert_eq!(stage.sink.received().len(), 1);
}
