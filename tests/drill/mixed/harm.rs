//! What goes wrong, and in which order.

use std::time::Duration;

use fastrand::Rng;
use rdkafka::types::RDKafkaRespErr;
use tidings_testkit::api_server::{Ending, Fault, On, Place, StreamFault};

use super::POISON;
use crate::crash::STARTS_WITHIN;
use crate::faulty_disk::Fault as SyncFault;
use crate::nasty::{Collects, Manner, Produces};
use crate::receiver::Mode;

/// So many of the stage's webhooks are harmed by chance; the one behind them is away for long.
const WEBHOOKS: usize = 3;

/// What goes wrong for a while.
#[derive(Clone, Debug)]
pub(super) enum Harm {
    /// Perhaps its next start is killed, too, after so long.
    Kill(Option<Duration>),
    /// Killed, and started only after a while.
    Absence,
    /// The same, while an Event comes and goes that nobody can have seen.
    AbsenceUnseen,
    Stop,
    Webhook(usize, Mode),
    /// An event that a webhook refuses.
    Poison(usize),
    /// The webhook over TLS, which takes one event a request.
    Secure(Manner),
    Certificate,
    /// That of the two Collectors.
    Collector(usize, Collects),
    /// An event that a Collector drops from what it takes.
    PoisonCollected(usize),
    /// An event that is larger than what a Collector takes.
    TooLarge(usize),
    Kafka(Produces),
    ApiServerAway,
    /// Away, and its history with it.
    Compaction,
    Connections,
    MidLine,
    /// Another certificate of the API server.
    ApiServerCertificate,
    /// Answers, and streams as far as they are.
    Answers(On, Fault),
    DiskFull,
    DiskReadOnly,
    Sync(SyncFault),
}

impl Harm {
    /// Each kind once, by chance in what it is and when it comes; without `ends` none that ends the
    /// bridge.
    pub(super) fn deck(random: &mut Rng, ends: bool) -> Vec<Self> {
        let mut deck = vec![
            Self::ApiServerAway,
            Self::Compaction,
            Self::Connections,
            Self::MidLine,
            Self::ApiServerCertificate,
            Self::DiskFull,
            Self::DiskReadOnly,
            Self::Sync(SyncFault::Sync),
            Self::Sync(SyncFault::SlowSync),
            Self::Certificate,
        ];
        if ends {
            let soon = STARTS_WITHIN.mul_f64(random.f64());
            let kills = [Self::Kill(None), Self::Kill(Some(soon))];
            deck.extend([Self::Absence, Self::AbsenceUnseen, Self::Stop].into_iter().chain(kills));
        }
        deck.extend(modes().map(|mode| Self::Webhook(random.usize(..WEBHOOKS), mode)));
        deck.extend((0..WEBHOOKS).map(Self::Poison));
        deck.extend(manners().map(Self::Secure));
        for collector in 0..2 {
            deck.extend(collects().map(|collects| Self::Collector(collector, collects)));
            deck.extend([Self::PoisonCollected(collector), Self::TooLarge(collector)]);
        }
        deck.extend(produces().map(Self::Kafka));
        deck.extend(answers(random).map(|(on, fault)| Self::Answers(on, fault)));
        random.shuffle(&mut deck);
        deck
    }

    /// Whether the bridge ends by it.
    pub(super) fn ends(&self) -> bool {
        use Harm::{Absence, AbsenceUnseen, Kill, Stop};
        matches!(self, Kill(_) | Absence | AbsenceUnseen | Stop)
    }

    /// Whether both may happen at the same time. A bridge does not start where it can neither write
    /// nor sync, and says so.
    pub(super) fn goes_with(&self, other: &Self) -> bool {
        let bars_a_start = |harm: &Self| matches!(harm, Self::DiskReadOnly | Self::Sync(_));
        !(self.ends() && bars_a_start(other) || other.ends() && bars_a_start(self))
    }
}

fn modes() -> impl Iterator<Item = Mode> {
    let slow = Mode::Slow(Duration::from_millis(300));
    let answers = [Mode::Answer(503), Mode::Answer(429)];
    [Mode::Down, Mode::Hang, Mode::Reset, Mode::Cut, slow].into_iter().chain(answers)
}

fn manners() -> impl Iterator<Item = Manner> {
    let answer = |status, headers: &str| Manner::Answer(status, headers.to_owned(), "");
    [
        answer("503 Service Unavailable", ""),
        answer("301 Moved Permanently", "location: http://127.0.0.1:9/\r\n"),
        answer("401 Unauthorized", ""),
        Manner::Later { seconds: 2, as_date: false },
        Manner::Later { seconds: 2, as_date: true },
        Manner::Reset,
        Manner::Hang,
        Manner::Drip,
        Manner::DripBody,
        Manner::Huge,
    ]
    .into_iter()
}

fn collects() -> impl Iterator<Item = Collects> {
    let asks = Collects::Nothing { retry_after: Some(Duration::from_secs(2)) };
    [Collects::Nothing { retry_after: None }, asks, Collects::Unavailable].into_iter()
}

/// What a Collector does to poison.
pub(super) const WITHOUT_POISON: Collects = Collects::AllWithout(POISON);

fn produces() -> impl Iterator<Item = Produces> {
    use RDKafkaRespErr as Error;
    [
        Produces::Down,
        Produces::Nothing(Error::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED),
        Produces::Nothing(Error::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART),
        Produces::Nothing(Error::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS),
    ]
    .into_iter()
}

fn answers(random: &mut Rng) -> impl Iterator<Item = (On, Fault)> + use<> {
    let after = random.usize(..200);
    let stream = |then| Fault::Stream { after, then };
    [
        (On::Any, Fault::TooManyRequests { retry_after: 1 }),
        (On::Any, Fault::Unavailable),
        (On::Any, Fault::InternalError),
        (On::Any, Fault::Reset),
        (On::Watch, Fault::Gone),
        (On::Watch, Fault::EmptyStream),
        (On::Watch, stream(StreamFault::Expired)),
        (On::Watch, stream(StreamFault::Stall)),
        (On::Watch, stream(StreamFault::Cut(Place::MidLine, Ending::Reset))),
        (On::Watch, Fault::Slow { bytes_per_second: 20_000 }),
    ]
    .into_iter()
}
