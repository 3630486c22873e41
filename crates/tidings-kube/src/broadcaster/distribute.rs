//! The loop between the incoming queue and the watchers.

use tokio::sync::{oneshot, watch};

use super::{flush::Mark, full_channel::FullChannel, queue::Receiver, watcher::Outlet};

/// What goes through the incoming queue.
#[derive(Debug)]
pub(super) enum Message<T> {
    Item(T),
    /// A watcher, and whom to tell that it is registered.
    Register(Outlet<T>, oneshot::Sender<()>),
    /// Something to be put into every queue.
    Flush(Mark),
}

/// Hands out what is queued until the queue ends, then closes the watchers, then ends `running`.
pub(super) async fn distribute<T: Clone>(
    mut incoming: Receiver<Message<T>>,
    full: FullChannel<T>,
    running: watch::Sender<()>,
) {
    let mut outlets: Vec<Outlet<T>> = Vec::new();
    while let Some(message) = incoming.next().await {
        match message {
            Message::Item(item) => hand_out(item, &mut outlets, &full).await,
            Message::Register(outlet, registered) => {
                // Where watchers come and go without an item between, this is where they are forgotten.
                outlets.retain(|outlet| !outlet.is_stopped());
                outlets.push(outlet);
                // A caller that has gone away has taken its watcher with it.
                let _ = registered.send(());
            }
            Message::Flush(mark) => {
                for outlet in &outlets {
                    if has_place(outlet, &full).await {
                        outlet.mark(&mark);
                    }
                }
            }
        }
    }
    drop(outlets);
    drop(running);
}

async fn hand_out<T: Clone>(item: T, outlets: &mut Vec<Outlet<T>>, full: &FullChannel<T>) {
    let mut at = 0;
    while let Some(outlet) = outlets.get_mut(at) {
        if has_place(outlet, full).await && outlet.offer(&item, full) {
            at += 1;
        } else {
            outlets.remove(at);
        }
    }
}

/// Waits for a place, where that is the policy; `false` if the watcher is gone.
async fn has_place<T: Clone>(outlet: &Outlet<T>, full: &FullChannel<T>) -> bool {
    if full.waits() { outlet.take_place().await } else { !outlet.is_stopped() }
}
