//! Events that a sink refuses.

use std::time::Duration;

use crate::accounts::{list_dead_letters, number, retry_dead_letters, sink_of};
use crate::frame::{Company, Drill, Page, Run};
use crate::receiver::Mode;
use crate::scripted::{Sink, Stage};
use crate::wait::{until, until_within};

pub(crate) const DRILLS: [Drill; 2] = [
    Drill {
        name: "poison",
        what: "one event among many is always answered 400; the command sends it again once it is taken",
        full: "1 of 10 000",
        short: Some("1 of 2 000"),
        company: Company::Any,
        long: false,
        run: |run| Box::pin(poison(run)),
    },
    Drill {
        name: "all-refused",
        what: "every event is answered 400: somebody has to mend the sink, and nothing is given up",
        full: "10 000 events",
        short: Some("2 000 events"),
        company: Company::Any,
        long: false,
        run: |run| Box::pin(all_refused(run)),
    },
];

/// The message that a receiver cannot bear.
pub(crate) const POISON: &str = "a poisonous message";

async fn poison(run: Run) -> Page {
    let events = run.size(10_000, 2_000);
    let sinks = vec![Sink::new("audit").await, Sink::new("pager").await];
    let mut stage = Stage::set(sinks, run.seed, |_| {});
    stage.open().await;
    stage.sinks[1].receiver.set(Mode::refuse(400, &[POISON])).await;
    let mut writer = stage.writer().burst(events / 2).await;
    writer.write_alone("Poison", POISON);
    let writer = writer.burst(events - events / 2 - 1).await;
    stage.settle_among_others(writer).await;
    let events = stage.record.len();
    let said = stage.bridge.logged("dead-lettered").expect("the log says what was put away");
    assert!(said.to_string().contains("400"), "the log gives the reason: {said}");
    let pager = stage.bridge.sink("pager").await;
    let fates = (number(&pager, "delivered"), number(&pager, "deadLettered"));
    assert_eq!(fates, (events as u64 - 1, 1), "delivered, dead-lettered: {pager}");
    let letters = list_dead_letters(&stage.bridge, "pager", 1).await;
    assert!(letters[0]["reason"].to_string().contains("400"), "why it is one: {letters:?}");
    stage.sinks[1].receiver.set(Mode::Take).await;
    assert_eq!(retry_dead_letters(&stage.bridge, "pager").await, 1, "one dead letter");
    let fault = format!("400 for 1 of {events}, then mended");
    let rows = stage.finish().await.into_iter().map(|(sink, verdict)| {
        assert_eq!(verdict.repeated, 0, "{}: {verdict}", sink.name);
        let row = sink.has_all(&verdict, &fault);
        if sink.name == "pager" {
            row.note("1 dead letter, taken when it was retried")
        } else {
            row
        }
    });
    Page::Rows(rows.collect())
}

async fn all_refused(run: Run) -> Page {
    let events = run.size(10_000, 2_000);
    let sinks = vec![Sink::new("audit").await, Sink::new("pager").await];
    let mut stage = Stage::set(sinks, run.seed, |_| {});
    stage.open().await;
    stage.sinks[1].receiver.set(Mode::Answer(400)).await;
    stage.writer().burst(events).await;
    stage.has_arrived(0).await;
    let pager = async |stage: &Stage| sink_of(&stage.bridge.status().await, "pager").clone();
    until_within(Duration::from_mins(1), "the sink is known to be misconfigured", async || {
        pager(&stage).await["state"] == "misconfigured"
    })
    .await;
    // Long enough for it to try again and again.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let later = pager(&stage).await;
    let (letters, kept) = (number(&later, "deadLettered"), number(&later, "pending"));
    assert_eq!((letters, kept), (0, events as u64), "the journal keeps all of it: {later}");
    stage.sinks[1].receiver.set(Mode::Take).await;
    until("it is well again", async || pager(&stage).await["state"] == "healthy").await;
    let fault = "400 for everything, then mended".to_owned();
    let rows = stage.finish().await.into_iter().map(|(sink, verdict)| match sink.name {
        "audit" => sink.has_all(&verdict, &fault),
        _ => {
            let note = format!("no dead letter; the journal kept {kept} meanwhile");
            sink.has_all(&verdict, &fault).note(&note)
        }
    });
    Page::Rows(rows.collect())
}
