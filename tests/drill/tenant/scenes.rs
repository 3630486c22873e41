//! Which scenes there are: what the receiver stumbles over, how much of it there is, and by which ways
//! it is sent.

use std::fmt;
use std::time::Duration;

use tonic::Code;

use crate::frame::Run;

/// How a receiver fails at an Event of the culprit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A webhook answers this.
    Status(u16),
    /// A webhook resets the connection when it has read the request.
    Reset,
    /// A webhook does not answer.
    Hang,
    /// A Collector answers this, over gRPC.
    Code(Code),
    /// A topic takes nothing so old.
    InvalidTimestamp,
    /// A topic takes nothing so large.
    TooLarge,
}

pub(super) const FAULTS: [Fault; 17] = [
    Fault::Status(400),
    Fault::Status(403),
    Fault::Status(404),
    Fault::Status(406),
    Fault::Status(413),
    Fault::Status(415),
    Fault::Status(422),
    Fault::Status(431),
    Fault::Status(500),
    Fault::Status(502),
    Fault::Code(Code::InvalidArgument),
    Fault::Code(Code::PermissionDenied),
    Fault::Code(Code::Unknown),
    Fault::InvalidTimestamp,
    Fault::TooLarge,
    Fault::Reset,
    Fault::Hang,
];

impl Fault {
    pub(super) fn needs_kafka(self) -> bool {
        matches!(self, Self::InvalidTimestamp | Self::TooLarge)
    }

    /// Whether the answer is about what the Event holds, and stays as it is.
    pub(super) fn is_for_good(self) -> bool {
        match self {
            Self::Status(status) => status < 500,
            Self::Code(code) => code != Code::Unknown,
            Self::InvalidTimestamp | Self::TooLarge => true,
            Self::Reset | Self::Hang => false,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "{status}"),
            Self::Reset => write!(f, "reset when it was read"),
            Self::Hang => write!(f, "no answer"),
            Self::Code(code) => write!(f, "gRPC {code:?}"),
            Self::InvalidTimestamp => write!(f, "Kafka InvalidTimestamp"),
            Self::TooLarge => write!(f, "Kafka MessageSizeTooLarge"),
        }
    }
}

/// One culprit among others that write all the time, and one sink.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene {
    pub(super) fault: Fault,
    /// How many Events of the culprit there are,
    pub(super) culprits: usize,
    /// and whether they come among the others', or one behind the other.
    pub(super) mixed: bool,
    pub(super) batch: usize,
    pub(super) lanes: usize,
    /// `overflow: block`, on a journal that has soon no room for more, if it waits for the culprit.
    pub(super) block: bool,
}

impl Scene {
    /// An Event of the culprit has about so many bytes.
    pub(super) fn bytes(&self) -> usize {
        if self.fault == Fault::TooLarge { 130_000 } else { 1_500 }
    }

    /// `timeout` of the sink.
    pub(super) fn timeout(&self, run: Run) -> Duration {
        match self.fault {
            Fault::Hang => Duration::from_secs(run.size(10, 5)),
            _ => Duration::from_secs(10),
        }
    }

    /// How late one in a hundred of the others' Events may be.
    pub(super) fn limit(&self, run: Run) -> Duration {
        match self.fault {
            Fault::Hang => self.timeout(run) * 4,
            _ => Duration::from_secs(30),
        }
    }
}

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fault, culprits, mixed, batch, lanes, block } = *self;
        let how = if mixed { "mixed" } else { "in a row" };
        let block = if block { ", block" } else { "" };
        write!(f, "{fault}: {culprits} {how}, batch {batch}, lanes {lanes}{block}")
    }
}

/// How many culprits, and whether they are mixed among others.
const CULPRITS: [(usize, bool); 7] = [
    (1, false),
    (21, false),
    (21, true),
    (500, false),
    (500, true),
    (10_000, false),
    (10_000, true),
];

/// More large ones do not fit into memory.
const MOST_LARGE: usize = 500;

/// All scenes, or those that have each of it once.
pub(super) fn scenes(run: Run) -> Vec<Scene> {
    if run.short { short() } else { full() }
}

/// Each fault with each number of culprits, by two of the eight ways that differ in all: so each
/// fault and each number goes by each batch, each number of lanes and each `overflow`.
fn full() -> Vec<Scene> {
    let mut scenes = Vec::new();
    for (at, fault) in FAULTS.into_iter().enumerate() {
        for (then, (culprits, mixed)) in CULPRITS.into_iter().enumerate() {
            if fault == Fault::TooLarge && culprits > MOST_LARGE {
                continue;
            }
            let way = (at + then) % 8;
            scenes.extend([way, 7 - way].map(|way| Scene {
                fault,
                culprits,
                mixed,
                batch: if way & 1 == 0 { 1 } else { 500 },
                lanes: if way & 2 == 0 { 1 } else { 8 },
                block: way & 4 != 0,
            }));
        }
    }
    scenes
}

fn short() -> Vec<Scene> {
    let scene = |fault, (culprits, mixed), (batch, lanes), block| Scene {
        fault,
        culprits,
        mixed,
        batch,
        lanes,
        block,
    };
    const ROW: bool = false;
    const MIXED: bool = true;
    const BLOCK: bool = true;
    // The longest come first.
    vec![
        scene(Fault::Hang, (1, ROW), (500, 1), false),
        scene(Fault::Hang, (500, MIXED), (1, 8), false),
        scene(Fault::TooLarge, (21, MIXED), (500, 8), false),
        scene(Fault::InvalidTimestamp, (500, ROW), (500, 1), BLOCK),
        scene(Fault::Status(403), (1, ROW), (1, 8), false),
        scene(Fault::Status(400), (500, MIXED), (500, 1), BLOCK),
        scene(Fault::Status(413), (21, ROW), (500, 8), false),
        scene(Fault::Status(500), (1, ROW), (1, 1), BLOCK),
        scene(Fault::Status(502), (10_000, ROW), (500, 8), false),
        scene(Fault::Code(Code::PermissionDenied), (21, ROW), (500, 8), BLOCK),
        scene(Fault::Code(Code::Unknown), (500, MIXED), (500, 1), false),
        scene(Fault::Reset, (21, ROW), (1, 8), BLOCK),
    ]
}
