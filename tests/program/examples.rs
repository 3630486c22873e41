//! The examples of the bridge run to their end, and show what they say that they show.

#[path = "../../crates/tidings-kube/tests/library/examples/process.rs"]
#[expect(dead_code, reason = "shared with the examples of tidings-kube, which use more of it")]
mod process;

use self::process::{assert_has, lines, run_alone};

#[tokio::test]
async fn embed_accounts_for_three_events() {
    let (printed, _) = run_alone("embed", &[]).await;
    let account =
        "sink warnings: 3 seen = 2 delivered + 1 filtered + 0 dead-lettered + 0 lost + 0 pending";
    assert_has(&printed, &[account]);
}

#[tokio::test]
async fn own_sink_sends_again_under_the_same_ids() {
    let (printed, _) = run_alone("own_sink", &[]).await;
    let ids = |answered: bool| {
        let end = format!("answered: {answered}");
        let of = |line: &String| Some(line.strip_suffix(&end)?.to_owned());
        lines(&printed).iter().filter_map(of).collect::<Vec<_>>()
    };
    assert!(!ids(false).is_empty());
    assert_eq!(ids(false), ids(true), "{printed}");
}
