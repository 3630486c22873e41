//! The sink of a file.

use futures_util::future::BoxFuture;
use jiff::Timestamp;

use super::{FileOptions, rotating::RotatingFile};
use crate::{
    bridge::{Outcome, Sink},
    event::Batch,
    sinks::{SinkBuildError, lines::LineWriter},
};

/// Writes an event as a line to a file. A batch is delivered when the disk has it.
#[derive(Debug)]
pub(super) struct FileSink(LineWriter);

impl FileSink {
    pub(super) fn new(options: &FileOptions) -> Result<Self, SinkBuildError> {
        let mut file = RotatingFile::new(options.path.clone(), options.rotate);
        let write = move |lines: &[u8]| file.write(lines, Timestamp::now());
        Ok(Self(LineWriter::start("file", options.format, write)?))
    }
}

impl Sink for FileSink {
    fn send<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Outcome> {
        Box::pin(self.0.send(batch))
    }
}
