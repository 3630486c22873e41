//! Random sequences of everything that can be done, beside a model that is nothing but queues.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use tokio::task::JoinHandle;

use super::*;

#[derive(Clone, Debug)]
enum Op {
    Watch {
        prefix: usize,
    },
    Publish,
    PublishOrDrop,
    /// Of the watchers there are, the n-th modulo their number.
    Read(usize),
    Stop(usize),
    /// The watcher itself is dropped.
    Leave(usize),
    Shutdown,
    /// The loop runs as far as it can.
    Settle,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => prop_oneof![Just(0), 0usize..8].prop_map(|prefix| Op::Watch { prefix }),
        10 => Just(Op::Publish),
        16 => Just(Op::PublishOrDrop),
        20 => any::<usize>().prop_map(Op::Read),
        2 => any::<usize>().prop_map(Op::Stop),
        1 => any::<usize>().prop_map(Op::Leave),
        1 => Just(Op::Shutdown),
        6 => Just(Op::Settle),
    ]
}

/// How a call that may wait has ended.
#[derive(Debug, PartialEq)]
enum End {
    Published(Result<(), Stopped>),
    /// The number of the watcher.
    Registered(Result<usize, Stopped>),
    ShutDown,
}

enum Message {
    Item(u64),
    /// The call's number and the prefix.
    Register(usize, Vec<u64>),
}

#[derive(Default)]
struct Channel {
    items: VecDeque<u64>,
    capacity: usize,
    dropped: u64,
    /// Nothing goes in any more.
    ended: bool,
}

struct Model {
    waits: bool,
    watcher_queue: usize,
    incoming_queue: usize,
    /// Calls that wait for room, by number.
    line: VecDeque<(usize, Message)>,
    incoming: VecDeque<Message>,
    /// What the loop hands out, and to how many it has.
    hand: Option<(u64, usize)>,
    channels: Vec<Channel>,
    closed: bool,
    /// Calls that wait for the end of the loop.
    shutdowns: Vec<usize>,
    ends: BTreeMap<usize, End>,
}

impl Model {
    fn request(&mut self, call: usize, message: Message) {
        self.line.push_back((call, message));
        self.settle();
    }

    fn shutdown(&mut self, call: usize) {
        self.closed = true;
        self.shutdowns.push(call);
        self.settle();
    }

    fn publish_or_drop(&mut self, item: u64) -> Result<(), NotSent<u64>> {
        if self.closed {
            return Err(NotSent::Stopped(item));
        }
        if self.incoming.len() == self.incoming_queue {
            return Err(NotSent::Full(item));
        }
        self.incoming.push_back(Message::Item(item));
        Ok(())
    }

    fn read(&mut self, watcher: usize) -> Result<Option<u64>, Empty> {
        let channel = &mut self.channels[watcher];
        match channel.items.pop_front() {
            None if !channel.ended => Err(Empty),
            item => Ok(item),
        }
    }

    fn settle(&mut self) {
        loop {
            self.let_in();
            if let Some((item, at)) = self.hand.take() {
                if !self.hand_out(item, at) {
                    return;
                }
            } else {
                match self.incoming.pop_front() {
                    Some(Message::Item(item)) => self.hand = Some((item, 0)),
                    Some(Message::Register(call, prefix)) => self.register(call, prefix),
                    None => break,
                }
            }
        }
        if self.closed {
            self.channels.iter_mut().for_each(|channel| channel.ended = true);
            self.ends.extend(self.shutdowns.drain(..).map(|call| (call, End::ShutDown)));
        }
    }

    fn let_in(&mut self) {
        while self.closed || self.incoming.len() < self.incoming_queue {
            let Some((call, message)) = self.line.pop_front() else { return };
            let result = if self.closed { Err(Stopped) } else { Ok(()) };
            match &message {
                Message::Item(_) => drop(self.ends.insert(call, End::Published(result))),
                Message::Register(..) if self.closed => {
                    self.ends.insert(call, End::Registered(Err(Stopped)));
                }
                Message::Register(..) => {}
            }
            if !self.closed {
                self.incoming.push_back(message);
            }
        }
    }

    fn register(&mut self, call: usize, prefix: Vec<u64>) {
        self.ends.insert(call, End::Registered(Ok(self.channels.len())));
        let needed = if prefix.is_empty() { 0 } else { prefix.len() + 1 };
        let capacity = self.watcher_queue.max(needed);
        self.channels.push(Channel { items: prefix.into(), capacity, ..Channel::default() });
    }

    /// Whether every watcher has had its turn.
    fn hand_out(&mut self, item: u64, from: usize) -> bool {
        for (at, channel) in self.channels.iter_mut().enumerate().skip(from) {
            if channel.ended {
                continue;
            }
            if channel.items.len() < channel.capacity {
                channel.items.push_back(item);
            } else if self.waits {
                self.hand = Some((item, at));
                return false;
            } else {
                channel.dropped += 1;
            }
        }
        true
    }
}

enum Call {
    Publish(JoinHandle<Result<(), Stopped>>),
    Watch(JoinHandle<Result<Watcher<u64>, Stopped>>),
    Shutdown(JoinHandle<()>),
}

impl Call {
    fn is_finished(&self) -> bool {
        match self {
            Self::Publish(task) => task.is_finished(),
            Self::Watch(task) => task.is_finished(),
            Self::Shutdown(task) => task.is_finished(),
        }
    }
}

struct Rig {
    model: Model,
    broadcaster: Broadcaster<u64>,
    calls: BTreeMap<usize, Call>,
    /// By the number that the model gives them.
    watchers: BTreeMap<usize, Watcher<u64>>,
    next: usize,
    dropped: u64,
}

impl Rig {
    fn new(waits: bool, watcher_queue: usize, incoming_queue: usize) -> Self {
        let full = if waits {
            FullChannel::Wait { queue: watcher_queue }
        } else {
            FullChannel::Drop { queue: watcher_queue }
        };
        let model = Model {
            waits,
            watcher_queue,
            incoming_queue,
            line: VecDeque::new(),
            incoming: VecDeque::new(),
            hand: None,
            channels: Vec::new(),
            closed: false,
            shutdowns: Vec::new(),
            ends: BTreeMap::new(),
        };
        let broadcaster = Broadcaster::new(incoming_queue, full);
        let (calls, watchers) = (BTreeMap::new(), BTreeMap::new());
        Self { model, broadcaster, calls, watchers, next: 0, dropped: 0 }
    }

    async fn run(mut self, ops: Vec<Op>) {
        for op in ops {
            self.next += 1;
            self.play(op).await;
        }
        self.next += 1;
        self.play(Op::Shutdown).await;
        // Each read may let the loop go on.
        while !self.calls.is_empty() {
            for watcher in 0..self.watchers.len() {
                self.play(Op::Read(watcher)).await;
            }
            self.settle().await;
        }
        for (number, mut watcher) in self.watchers {
            let left: Vec<_> = self.model.channels[number].items.drain(..).collect();
            assert_eq!(rest(&mut watcher).await, left);
        }
    }

    async fn play(&mut self, op: Op) {
        if matches!(op, Op::Watch { .. } | Op::Publish) {
            // A call may overtake one that has been given its place and has not run since.
            self.settle().await;
        }
        let (call, item, broadcaster) = (self.next, self.next as u64, self.broadcaster.clone());
        match op {
            Op::Watch { prefix } => {
                let prefix: Vec<u64> = (0..prefix as u64).map(|n| n + item * 1_000_000).collect();
                let ours = prefix.clone();
                let task = tokio::spawn(async move { broadcaster.watch_with_prefix(ours).await });
                self.calls.insert(call, Call::Watch(task));
                self.model.request(call, Message::Register(call, prefix));
                self.settle().await;
            }
            Op::Publish => {
                let task = tokio::spawn(async move { broadcaster.publish(item).await });
                self.calls.insert(call, Call::Publish(task));
                self.model.request(call, Message::Item(item));
                self.settle().await;
            }
            Op::Shutdown => {
                let task = tokio::spawn(async move { broadcaster.shutdown().await });
                self.calls.insert(call, Call::Shutdown(task));
                self.model.shutdown(call);
                self.settle().await;
            }
            Op::PublishOrDrop => {
                let sent = self.model.publish_or_drop(item);
                assert_eq!(broadcaster.publish_or_drop(item), sent);
                self.dropped += u64::from(matches!(sent, Err(NotSent::Full(_))));
                assert_eq!(broadcaster.dropped(), self.dropped);
            }
            Op::Read(nth) => {
                if let Some(number) = self.nth(nth) {
                    let watcher = self.watchers.get_mut(&number).unwrap();
                    assert_eq!(watcher.try_next(), self.model.read(number));
                }
            }
            Op::Stop(nth) => {
                if let Some(number) = self.nth(nth) {
                    self.watchers[&number].stopper().stop();
                    self.model.channels[number].ended = true;
                }
            }
            Op::Leave(nth) => {
                if let Some(number) = self.nth(nth) {
                    self.watchers.remove(&number);
                    self.model.channels[number].ended = true;
                }
            }
            Op::Settle => self.settle().await,
        }
    }

    fn nth(&self, n: usize) -> Option<usize> {
        let count = self.watchers.len();
        (count > 0).then(|| *self.watchers.keys().nth(n % count).unwrap())
    }

    /// Lets the loop run, and looks at everything that can be seen.
    async fn settle(&mut self) {
        settle().await;
        self.model.settle();
        let finished: Vec<usize> =
            self.calls.iter().filter(|(_, call)| call.is_finished()).map(|(&n, _)| n).collect();
        assert_eq!(finished, self.model.ends.keys().copied().collect::<Vec<_>>());
        for (number, end) in std::mem::take(&mut self.model.ends) {
            let really = match self.calls.remove(&number).unwrap() {
                Call::Publish(task) => End::Published(task.await.unwrap()),
                Call::Shutdown(task) => {
                    task.await.unwrap();
                    End::ShutDown
                }
                Call::Watch(task) => End::Registered(task.await.unwrap().map(|watcher| {
                    let End::Registered(Ok(number)) = end else {
                        panic!("registered, where the model has {end:?}")
                    };
                    self.watchers.insert(number, watcher);
                    number
                })),
            };
            assert_eq!(really, end);
        }
        for (&number, watcher) in &self.watchers {
            let channel = &self.model.channels[number];
            assert_eq!(watcher.capacity(), channel.capacity);
            assert_eq!(watcher.dropped(), channel.dropped);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn it_does_what_plain_queues_do(
        ops in prop::collection::vec(op(), 1..120),
        waits in any::<bool>(),
        watcher_queue in 1usize..5,
        incoming_queue in 1usize..5,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async { Rig::new(waits, watcher_queue, incoming_queue).run(ops).await });
    }
}
