//! A connection is used for so long; the next one goes where the name leads by then.

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
};

use super::*;

/// An address for receivers: a new connection goes to the one behind it, and those that there are
/// stay where they are.
async fn front(behind: Arc<Mutex<SocketAddr>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let receiver = *behind.lock().unwrap();
            tokio::spawn(async move {
                let mut receiver = TcpStream::connect(receiver).await.unwrap();
                let _ = copy_bidirectional(&mut client, &mut receiver).await;
            });
        }
    });
    address
}

/// Three batches, after the first of which another receiver stands behind the address.
async fn deliver(protocol: OtlpProtocol, max_age: Duration, receivers: [SocketAddr; 2]) {
    let behind = Arc::new(Mutex::new(receivers[0]));
    let address = front(Arc::clone(&behind)).await;
    let mut options = options(format!("http://{address}"), protocol);
    options.connection_max_age = max_age;
    let sink = OtlpSink::new(&options).unwrap();
    for at in 1..=3 {
        assert_eq!(sink.send(&batch(at..=at)).await, Outcome::Delivered);
        *behind.lock().unwrap() = receivers[1];
    }
}

#[tokio::test]
async fn calls_at_once_share_one_connection() {
    let (receiver, behind) = Receiver::start(Ok(partial(0, "")), None).await;
    let address = front(Arc::new(Mutex::new(behind))).await;
    let sink = OtlpSink::new(&options(format!("http://{address}"), OtlpProtocol::Grpc)).unwrap();
    let batches = [1, 2, 3].map(|at| batch(at..=at));
    let outcomes = futures_util::future::join_all(batches.iter().map(|batch| sink.send(batch)));
    assert_eq!(outcomes.await, [Outcome::Delivered, Outcome::Delivered, Outcome::Delivered]);
    assert_eq!(receiver.received.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn new_endpoints_are_found_once_a_connection_is_old() {
    let young = Duration::from_secs(3600);
    for (max_age, expected) in [(young, [3, 0]), (Duration::ZERO, [1, 2])] {
        let old = TestServer::always("200 OK", "", "").await;
        let new = TestServer::always("200 OK", "", "").await;
        deliver(OtlpProtocol::Http, max_age, [old.address, new.address]).await;
        let of = |server: &TestServer| server.received.lock().unwrap().len();
        assert_eq!([of(&old), of(&new)], expected, "HTTP, {max_age:?}");

        let (old, first) = Receiver::start(Ok(partial(0, "")), None).await;
        let (new, second) = Receiver::start(Ok(partial(0, "")), None).await;
        deliver(OtlpProtocol::Grpc, max_age, [first, second]).await;
        let of = |receiver: &Receiver| receiver.received.lock().unwrap().len();
        assert_eq!([of(&old), of(&new)], expected, "gRPC, {max_age:?}");
    }
}
