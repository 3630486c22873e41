//! A connection is used for so long; the next one goes where the name leads by then.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::*;

/// An address for receivers: a new connection goes to the one behind it, and those that there are
/// stay where they are.
#[derive(Clone)]
struct Front {
    address: SocketAddr,
    behind: Arc<Mutex<SocketAddr>>,
    connections: Arc<AtomicUsize>,
    /// So many connections are cut when something comes on them, which is not passed on.
    cuts: Arc<AtomicUsize>,
}

impl Front {
    async fn of(receiver: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let front = Self {
            address: listener.local_addr().unwrap(),
            behind: Arc::new(Mutex::new(receiver)),
            connections: Arc::default(),
            cuts: Arc::default(),
        };
        let accepting = front.clone();
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                accepting.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(accepting.clone().pass_on(client));
            }
        });
        front
    }

    async fn pass_on(self, mut client: TcpStream) {
        let receiver = *self.behind.lock().unwrap();
        let mut receiver = TcpStream::connect(receiver).await.unwrap();
        let (mut asked, mut answered) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        loop {
            tokio::select! {
                read = client.read(&mut asked) => {
                    let Ok(read @ 1..) = read else { return };
                    let left = |cuts: usize| cuts.checked_sub(1);
                    if self.cuts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_ok() {
                        return;
                    }
                    receiver.write_all(&asked[..read]).await.unwrap();
                }
                read = receiver.read(&mut answered) => {
                    let Ok(read @ 1..) = read else { return };
                    client.write_all(&answered[..read]).await.unwrap();
                }
            }
        }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    fn sink(&self, protocol: OtlpProtocol, max_age: Duration) -> Arc<dyn Sink> {
        let mut options = options(format!("http://{}", self.address), protocol);
        options.http.connection_max_age = max_age;
        options.build().unwrap()
    }
}

const HOUR: Duration = Duration::from_secs(3600);

/// Three batches, after the first of which another receiver stands behind the address.
async fn deliver(protocol: OtlpProtocol, max_age: Duration, receivers: [SocketAddr; 2]) {
    let front = Front::of(receivers[0]).await;
    let sink = front.sink(protocol, max_age);
    for at in 1..=3 {
        assert_eq!(sink.send(&batch(at..=at)).await, Outcome::Delivered);
        *front.behind.lock().unwrap() = receivers[1];
    }
}

#[tokio::test]
async fn calls_at_once_share_one_connection() {
    let (receiver, behind) = Receiver::start(Ok(partial(0, "")));
    let front = Front::of(behind).await;
    let sink = front.sink(OtlpProtocol::Grpc, HOUR);
    let batches = [1, 2, 3].map(|at| batch(at..=at));
    let outcomes = futures_util::future::join_all(batches.iter().map(|batch| sink.send(batch)));
    assert_eq!(outcomes.await, [Outcome::Delivered, Outcome::Delivered, Outcome::Delivered]);
    assert_eq!(receiver.received().len(), 3);
    assert_eq!(front.connections(), 1);
}

/// As of a balancer that has forgotten a connection that was idle.
#[tokio::test]
async fn a_connection_used_before_that_ends_without_an_answer_costs_no_attempt() {
    let (receiver, behind) = Receiver::start(Ok(partial(0, "")));
    let front = Front::of(behind).await;
    let sink = front.sink(OtlpProtocol::Grpc, HOUR);
    assert_eq!(sink.send(&batch(1..=1)).await, Outcome::Delivered);
    // What belongs to a call before has come by then.
    let idle = async || tokio::time::sleep(Duration::from_millis(200)).await;
    for n in 2..=4 {
        idle().await;
        front.cuts.store(1, Ordering::SeqCst);
        assert_eq!(sink.send(&batch(n..=n)).await, Outcome::Delivered, "{n}");
    }
    assert_eq!((front.connections(), receiver.received().len()), (4, 4));
    // Once at once, and no more; and not on a connection that is new.
    idle().await;
    for (cuts, connections) in [(2, 5), (1, 6)] {
        front.cuts.store(cuts, Ordering::SeqCst);
        let (class, ..) = parts(sink.send(&batch(5..=5)).await);
        assert_eq!((class, front.connections()), (FailureClass::Unavailable, connections));
    }
    assert_eq!(sink.send(&batch(5..=5)).await, Outcome::Delivered);
}

#[tokio::test]
async fn new_endpoints_are_found_once_a_connection_is_old() {
    for (max_age, expected) in [(HOUR, [3, 0]), (Duration::ZERO, [1, 2])] {
        let old = HttpReceiver::always("200 OK", "", "").unwrap();
        let new = HttpReceiver::always("200 OK", "", "").unwrap();
        deliver(OtlpProtocol::Http, max_age, [old.address, new.address]).await;
        let of = |server: &HttpReceiver| server.received().len();
        assert_eq!([of(&old), of(&new)], expected, "HTTP, {max_age:?}");

        let (old, first) = Receiver::start(Ok(partial(0, "")));
        let (new, second) = Receiver::start(Ok(partial(0, "")));
        deliver(OtlpProtocol::Grpc, max_age, [first, second]).await;
        let of = |receiver: &Receiver| receiver.received().len();
        assert_eq!([of(&old), of(&new)], expected, "gRPC, {max_age:?}");
    }
}
