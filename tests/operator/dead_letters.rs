//! `tidings dead-letters`, while the bridge runs and when it does not.

use std::time::Duration;

use tidings::demo::api_server::EventObject;

use crate::{
    stage::{REFUSAL, Stage},
    support::{sink_status, until},
};

#[tokio::test(flavor = "multi_thread")]
async fn they_are_listed_and_shown() {
    let mut stage = Stage::set().await;
    stage.events(["poison one", "fine", "poison two", "poison\nthree"]).await;
    let list = ["dead-letters", "list"];
    let listed = stage.run(&list).await;
    insta::assert_snapshot!(stage.steady(&listed.stdout));
    assert_eq!((listed.code, listed.stderr.as_str()), (0, ""));
    let json = stage.run(&["dead-letters", "list", "--output", "json"]).await.json();
    let letters = json.as_array().unwrap();
    assert_eq!(letters.len(), 3);
    assert!(letters.iter().all(|letter| letter["reason"] == crate::stage::REFUSAL));
    let numbers = stage.numbers().await;
    assert!(numbers.is_sorted_by(|a, b| a > b), "{numbers:?}");

    let newest = numbers[0].to_string();
    let shown = stage.run(&["dead-letters", "show", &newest]).await.ok();
    insta::assert_snapshot!(stage.steady(&shown));
    let whole = stage.run(&["dead-letters", "show", &newest, "--output", "json"]).await.json();
    assert_eq!(whole["envelope"]["event"]["message"], "poison\nthree");
    assert_eq!(whole["envelope"]["id"], whole["id"]);

    // The same of the journal alone.
    stage.stop().await;
    assert_eq!(stage.run(&list).await.ok(), listed.stdout);
    assert_eq!(stage.run(&["dead-letters", "show", &newest]).await.ok(), shown);
    assert_eq!(
        stage.run(&["dead-letters", "show", &newest, "--output", "json"]).await.json(),
        whole
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_can_be_cut_and_narrowed() {
    let mut stage = Stage::set().await;
    stage.poison(40).await;
    for running in [true, false] {
        if !running {
            stage.stop().await;
        }
        let all = stage.numbers().await;
        assert_eq!(all.len(), 40, "running: {running}");
        let few = stage.run(&["dead-letters", "list", "--limit", "35", "--output", "json"]).await;
        assert_eq!(few.stderr, "there are older ones, too: --limit shows more than 35\n");
        assert_eq!(few.json().as_array().unwrap().len(), 35);
        let exact = stage.run(&["dead-letters", "list", "--limit", "40"]).await;
        assert_eq!((exact.stderr.as_str(), exact.stdout.lines().count()), ("", 41));
        for (arguments, count) in [
            (["--sink", "pager"], 40),
            (["--sink", "other"], 0),
            (["--class", "invalid"], 40),
            (["--class", "too-large"], 0),
        ] {
            let list = [&["dead-letters", "list", "--output", "json"][..], &arguments].concat();
            let listed = stage.run(&list).await.json();
            assert_eq!(listed.as_array().unwrap().len(), count, "{arguments:?}");
        }
        let none = stage.run(&["dead-letters", "list", "--sink", "other"]).await;
        let doubt = "there are none, nor is a sink `other` configured: the sinks are pager\n";
        assert_eq!((none.stdout.as_str(), none.stderr.as_str()), ("", doubt));
        for what in ["retry", "drop"] {
            let none = stage.run(&["dead-letters", what, "--all", "--sink", "pagre"]).await;
            let doubt = "there are none, nor is a sink `pagre` configured: did you mean `pager`?\n";
            assert_eq!((none.code, none.stderr.as_str()), (0, doubt), "{what}");
            assert!(none.stdout.starts_with("0 dead letters: "), "{none:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retried_letter_that_is_delivered_is_none_any_more() {
    let stage = Stage::set().await;
    let others = stage.events(["poison one", "fine", "poison two"]).await;
    let numbers = stage.numbers().await;
    stage.sink.accept_everything();
    let oldest = numbers[1].to_string();
    let said = stage.run(&["dead-letters", "retry", &oldest]).await;
    assert_eq!(said.ok(), "1 dead letter: will be sent again\n");
    let view = stage.bridge().view();
    until("one is delivered", || sink_status(&view, "pager").dead_lettered == 1).await;
    stage.until_kept(&[numbers[0]]).await;
    let said = stage.run(&["dead-letters", "retry", "--all", "--sink", "pager"]).await;
    assert_eq!(said.ok(), "1 dead letter: will be sent again\n");
    until("both are delivered", || sink_status(&view, "pager").dead_lettered == 0).await;
    stage.until_kept(&[]).await;
    let received: Vec<_> = stage.sink.received().into_iter().map(|event| event.envelope).collect();
    assert_eq!(received.iter().filter(|envelope| envelope.contains("poison")).count(), 2);
    assert_eq!(sink_status(&view, "pager").delivered, others + 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_stopped_bridge_they_are_sent_when_it_starts_again() {
    let mut stage = Stage::set().await;
    let others = stage.events(["poison one", "poison two", "poison three"]).await;
    let numbers = stage.numbers().await;
    stage.stop().await;
    let said = stage.run(&["dead-letters", "drop", &numbers[0].to_string()]).await;
    assert_eq!(said.ok(), "1 dead letter: dropped\n");
    let said = stage.run(&["dead-letters", "retry", &numbers[1].to_string()]).await;
    assert_eq!(said.ok(), "1 dead letter: will be sent again when the bridge starts again\n");
    let listed = stage.run(&["dead-letters", "list"]).await.ok();
    insta::assert_snapshot!(stage.steady(&listed));
    stage.sink.accept_everything();
    stage.start().await;
    let view = stage.bridge().view();
    until("it is delivered", || sink_status(&view, "pager").delivered == others + 1).await;
    stage.until_kept(&[numbers[2]]).await;
    let received = stage.sink.received();
    let poison: Vec<_> =
        received.iter().filter(|event| event.envelope.contains("poison")).collect();
    assert!(poison.len() == 1 && poison[0].envelope.contains("poison two"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_holds_others_up_is_put_away_by_hand() {
    let stage = Stage::set().await;
    let put_away = ["dead-letters", "put-away", "--sink", "pager"];
    let nothing = stage.run(&put_away).await;
    assert_eq!(nothing.code, 1);
    assert!(
        nothing.stderr.contains("nothing is held up at the sink `pager`\nhint: "),
        "{nothing:?}"
    );
    // Nobody else is taken, so nobody is to blame.
    let event = EventObject::about_pod("shop", "web-0", "BackOff", "poison");
    stage.server.create(event).unwrap();
    let view = stage.bridge().view();
    until("it is named", || !sink_status(&view, "pager").heads.is_empty()).await;
    let said = stage.run(&put_away).await.ok();
    assert!(said.starts_with("Pod/web-0 in shop (") && said.contains(REFUSAL), "{said}");
    until("it is a dead letter", || sink_status(&view, "pager").dead_lettered == 1).await;
    let blocked = ["dead-letters", "list", "--class", "blocked", "--output", "json"];
    until_listed(&stage, &blocked, 1).await;
    let other = stage.run(&["dead-letters", "put-away", "--sink", "pagre"]).await;
    assert!(other.stderr.contains("did you mean `pager`?"), "{other:?}");
}

async fn until_listed(stage: &Stage, list: &[&str], count: usize) {
    let listed = async { while stage.run(list).await.json().as_array().unwrap().len() != count {} };
    tokio::time::timeout(Duration::from_mins(1), listed).await.expect("it is listed");
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_ones_are_gone() {
    let mut stage = Stage::set().await;
    stage.events(["poison", "poison", "poison", "poison"]).await;
    let numbers = stage.numbers().await;
    let [a, b] = [numbers[0].to_string(), numbers[2].to_string()];
    let said = stage.run(&["dead-letters", "drop", &a, &b]).await;
    assert_eq!(said.ok(), "2 dead letters: dropped\n");
    assert_eq!(stage.numbers().await, [numbers[1], numbers[3]]);
    let said = stage.run(&["dead-letters", "drop", "--all", "--class", "too-large"]).await;
    assert_eq!(said.ok(), "0 dead letters: dropped\n");
    stage.stop().await;
    assert_eq!(stage.numbers().await, [numbers[1], numbers[3]]);
    let said = stage.run(&["dead-letters", "drop", "--all"]).await;
    assert_eq!(said.ok(), "2 dead letters: dropped\n");
    assert!(stage.numbers().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_that_is_not_there_is_said() {
    let mut stage = Stage::set().await;
    stage.events(["poison"]).await;
    let mut said = Vec::new();
    for running in [true, false] {
        if !running {
            stage.stop().await;
        }
        for what in ["show", "retry", "drop"] {
            let answer = stage.run(&["dead-letters", what, "4711"]).await;
            assert_eq!((answer.code, answer.stdout.as_str()), (1, ""), "{answer:?}");
            said.push(format!("{what}, running: {running}\n{}", answer.stderr));
        }
    }
    insta::assert_snapshot!(stage.steady(&said.join("\n")));
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_may_run_at_once() {
    let stage = Stage::set().await;
    stage.poison(20).await;
    stage.sink.accept_everything();
    let numbers: Vec<String> = stage.numbers().await.iter().map(u64::to_string).collect();
    let retry = ["dead-letters", "retry", "--all"];
    let drop = [&["dead-letters", "drop"][..], &[&*numbers[0], &*numbers[1]]].concat();
    let list = ["dead-letters", "list"];
    let (retried, dropped, listed, again) =
        tokio::join!(stage.run(&retry), stage.run(&drop), stage.run(&list), stage.run(&list));
    // Whoever comes first has them; nobody fails but by what is not there any more.
    assert!(retried.code == 0 && listed.code == 0 && again.code == 0, "{retried:?} {listed:?}");
    assert!(dropped.code == 0 || dropped.stderr.contains("there is no dead letter"), "{dropped:?}");
    let view = stage.bridge().view();
    until("none waits", || {
        let sink = sink_status(&view, "pager");
        sink.dead_lettered <= 2
    })
    .await;
}
