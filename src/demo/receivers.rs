//! Receivers in this process, each spoken to over its own protocol: a Kafka broker (librdkafka's
//! mock cluster), an OTLP/gRPC collector and a webhook. Each writes what arrives into a
//! [`Ledger`], and can be taken down and brought back.

mod kafka;
mod ledger;
mod otlp;
mod webhook;

use std::{
    io,
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use futures_util::future::BoxFuture;
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::oneshot,
    task::JoinHandle,
};

pub use self::{
    kafka::KafkaReceiver,
    ledger::{Arrival, Ledger, Tally},
    otlp::OtlpReceiver,
    webhook::WebhookReceiver,
};

/// How a receiver is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// The receiver answers that it cannot now: HTTP 503, gRPC UNAVAILABLE. A broker has no such answer; for
    /// Kafka it is the same as closed.
    Refusing,
    /// Its connections end and new ones are refused.
    Closed,
}

/// Something that events are delivered to.
pub trait Receiver: Send + Sync {
    /// The ledger of what arrived.
    fn ledger(&self) -> &Ledger;

    /// Goes away. Done when nothing is taken any more.
    fn take_down(&self, how: Outage) -> BoxFuture<'_, ()>;

    /// Comes back at the same address.
    ///
    /// # Errors
    /// The port was taken meanwhile.
    fn bring_back(&self) -> BoxFuture<'_, io::Result<()>>;
}

/// A server task that ends when it is told to, and can be started again.
#[derive(Debug, Default)]
struct Serving(Mutex<Option<(oneshot::Sender<()>, JoinHandle<()>)>>);

impl Serving {
    fn slot(&self) -> MutexGuard<'_, Option<(oneshot::Sender<()>, JoinHandle<()>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a server; it is given what ends when it is to stop.
    fn start<F>(&self, serve: impl FnOnce(oneshot::Receiver<()>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, stopped) = oneshot::channel();
        *self.slot() = Some((stop, tokio::spawn(serve(stopped))));
    }

    fn running(&self) -> bool {
        self.slot().is_some()
    }

    /// Stops the server; done when its listener and connections are closed.
    async fn stop(&self) {
        let running = self.slot().take();
        if let Some((stop, task)) = running {
            let _ = stop.send(());
            let _ = task.await;
        }
    }
}

/// Binds a loopback address, or the same one once more.
fn listen(address: Option<SocketAddr>) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0))))?;
    socket.listen(1024)
}

#[cfg(test)]
mod tests;
