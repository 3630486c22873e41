//! Several scenes of a drill at the same time: they wait more than they work. One that fails does not keep
//! the others from being played.

use std::any::Any;
use std::env;
use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::time::Instant;

use futures_util::{FutureExt as _, StreamExt as _, stream};

/// Plays them, so many at once, or those whose name contains the text of `TIDINGS_DRILL_SCENE`. Panics in the end
/// where one has.
pub(crate) async fn play_all<S: Copy + Display, P: Display>(
    mut scenes: Vec<S>,
    at_once: usize,
    play: impl AsyncFn(S) -> P,
) -> Vec<P> {
    if let Ok(part) = env::var("TIDINGS_DRILL_SCENE") {
        scenes.retain(|scene| scene.to_string().contains(&part));
    }
    let all = scenes.len();
    let play = &play;
    let played = stream::iter(scenes).map(|scene| async move {
        let started = Instant::now();
        let played = AssertUnwindSafe(play(scene)).catch_unwind().await;
        let seconds = started.elapsed().as_secs_f64();
        let played = played.map_err(|panic| format!("{scene}: {}", words(&*panic)));
        match &played {
            Ok(played) => eprintln!("  {scene}: {played}; {seconds:.0} s"),
            Err(why) => eprintln!("  FAILED: {why}; {seconds:.0} s"),
        }
        played
    });
    let played: Vec<Result<P, String>> = played.buffer_unordered(at_once).collect().await;
    let (mut well, mut failed) = (Vec::new(), Vec::new());
    for one in played {
        match one {
            Ok(played) => well.push(played),
            Err(why) => failed.push(why),
        }
    }
    assert!(failed.is_empty(), "{} of {all} scenes failed:\n{}", failed.len(), failed.join("\n"));
    well
}

/// The words of a panic.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").to_owned()
}
