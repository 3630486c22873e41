//! Everything that a bridge, and each of its sinks, is made of.

use std::sync::Arc;

use super::{
    CorrelateMode, Enrich, Filter, Heartbeat, JournalOptions, ObjectOptions, Overflow, OwnEvents,
    SendOptions, Sink, SinkStart, SourceOptions,
};
use crate::event::Cluster;

/// One sink and how its watcher treats it. A configuration has the options of a transport in the place
/// of the transport.
#[derive(Clone, Debug)]
pub struct SinkOptions<S = Arc<dyn Sink>> {
    /// Its name; a plain file name too.
    pub name: String,
    /// Its transport, for the status page.
    pub kind: &'static str,
    /// The transport itself.
    pub sink: S,
    /// The events that it wants; `None` for all.
    pub filter: Option<Filter>,
    /// The parts of the objects that events are about that it is told; `None` for nothing.
    pub enrich: Option<Enrich>,
    /// The mode of its correlator.
    pub correlate: CorrelateMode,
    /// How what it wants is sent.
    pub send: SendOptions,
    /// An Event is cut so that the envelope which it is sent in takes no more bytes than this, where
    /// that is less than [`JournalOptions::max_event`]; `None`: it is sent as it was journalled.
    pub max_event: Option<usize>,
    /// Where it starts in a journal with a past.
    pub start: SinkStart,
    /// The policy when it has not had more than the journal is to hold.
    pub overflow: Overflow,
    /// The sink that its dead letters are sent to, beside being kept.
    pub forward_dead_letters: Option<String>,
}

impl<S> SinkOptions<S> {
    /// The default options of a sink: all events, annotated, from now on, one batch after the other.
    pub fn new(name: impl Into<String>, kind: &'static str, sink: S) -> Self {
        Self {
            name: name.into(),
            kind,
            sink,
            filter: None,
            enrich: None,
            correlate: CorrelateMode::default(),
            send: SendOptions::default(),
            max_event: None,
            start: SinkStart::default(),
            overflow: Overflow::default(),
            forward_dead_letters: None,
        }
    }

    /// The same options for another transport.
    pub fn with_sink<T>(self, sink: T) -> SinkOptions<T> {
        SinkOptions {
            name: self.name,
            kind: self.kind,
            sink,
            filter: self.filter,
            enrich: self.enrich,
            correlate: self.correlate,
            send: self.send,
            max_event: self.max_event,
            start: self.start,
            overflow: self.overflow,
            forward_dead_letters: self.forward_dead_letters,
        }
    }
}

/// Everything that a bridge is made of.
pub struct BridgeOptions {
    /// Which cluster; without a uid the API server is asked for it.
    pub cluster: Cluster,
    /// The Events that are read.
    pub source: SourceOptions,
    /// Where to keep it.
    pub journal: JournalOptions,
    /// Where to send it.
    pub sinks: Vec<SinkOptions>,
    /// How objects are read that events are about, if a sink is told of them.
    pub objects: ObjectOptions,
    /// Where to record what the bridge says of itself; `None`: it is logged only.
    pub own_events: Option<OwnEvents>,
    /// By what it notices that a watch is dead; `None`: only the watch's own end tells.
    pub heartbeat: Option<Heartbeat>,
}
