//! Logs, to stderr, and the last words of a run.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    collections::VecDeque,
    fmt::Display,
    io::{self, IsTerminal as _, Write},
    process::ExitCode,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::retry_on_intr,
};
use tracing_subscriber::EnvFilter;

use crate::config::{LogFormat, LogLevel, LogSettings};

/// So many lines wait for whoever reads stderr; more are dropped, and counted.
const WAITING: usize = 8192;

/// Somebody who reads now and then is not told of dropped lines in every other one.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// How long the end of the program waits for whoever reads stderr.
const END_WITHIN: Duration = Duration::from_secs(3);

/// The log of the process. When it is dropped, what has been said is written.
pub(super) struct Log(Arc<Lines>);

/// Installs the subscriber of the process, and has panics be lines of the log, too.
pub(super) fn start(settings: LogSettings) -> io::Result<Log> {
    let level = match settings.level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    };
    // Libraries under it speak of every connection; below warnings that is for whoever debugs them.
    let filter = match settings.level {
        // Those that carry what sinks send and hear (h2, hyper, reqwest, rustls and what is to come)
        // are not heard: they would show headers, and receivers' words as they were said. What
        // librdkafka says passes through the sink's secrets.
        LogLevel::Trace => EnvFilter::new(
            "warn,kube_client=trace,librdkafka=trace,kube_machinery=trace,tidings=trace",
        ),
        // The client reports each failed request as an error of its own; the reflector says what it
        // means, and once.
        _ => EnvFilter::new(format!("warn,kube_client=off,kube_machinery={level},tidings={level}")),
    };
    let lines = Lines::written_by_a_thread()?;
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // By default it says with `eprintln!`, which panics, that stderr cannot be written.
        .log_internal_errors(false)
        .with_writer(Arc::clone(&lines));
    let installed = match settings.format {
        LogFormat::Json => logs.json().flatten_event(true).try_init(),
        LogFormat::Text => {
            let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            logs.with_ansi(colours).with_target(false).try_init()
        }
    };
    // A program that embeds this one may have installed its own.
    drop(installed);
    // The standard hook writes to stderr itself, and waits for whoever reads it.
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = Backtrace::capture();
        let captured = backtrace.status() == BacktraceStatus::Captured;
        let backtrace = captured.then(|| tracing::field::display(&backtrace));
        let thread = std::thread::current();
        tracing::error!(thread = thread.name(), backtrace, "{panic}");
    }));
    Ok(Log(lines))
}

impl Log {
    /// Says why the program ends.
    pub(super) fn failed(&self, error: &(impl Display + ?Sized), code: u8) -> ExitCode {
        self.0.tell();
        let mut waiting = self.0.locked();
        // No line comes after it, so there is room for it.
        waiting.lines.push_back(format!("error: {error}\n").into_bytes());
        self.0.changed.notify_all();
        ExitCode::from(code)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.0.tell();
        let waiting = self.0.locked();
        let unwritten = |waiting: &mut Waiting| waiting.writing || !waiting.lines.is_empty();
        // Of a reader who does not read even now there is nobody to tell.
        drop(self.0.changed.wait_timeout_while(waiting, END_WITHIN, unwritten));
    }
}

/// Lines for stderr.
///
/// A thread of its own writes them: somebody who stops reading them, or a stderr that fails, neither
/// holds up nor ends anything else. (The writer of tracing-appender would do for this, but for what it
/// writes to stdout when nobody reads, and that it does not tell of a write that fails.)
#[derive(Default)]
struct Lines {
    waiting: Mutex<Waiting>,
    /// There is a line to write, or it has been written.
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    lines: VecDeque<Vec<u8>>,
    /// Another one is being written.
    writing: bool,
    /// How many were not written, in all,
    dropped: u64,
    /// and how many of them have been told, and when.
    told: (u64, Option<Instant>),
}

impl Lines {
    fn written_by_a_thread() -> io::Result<Arc<Self>> {
        let lines = Arc::new(Self::default());
        let written = Arc::clone(&lines);
        let writing = move || {
            loop {
                written.write_next();
            }
        };
        std::thread::Builder::new().name("stderr".into()).spawn(writing)?;
        Ok(lines)
    }

    fn locked(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_next(&self) {
        let none = |waiting: &mut Waiting| waiting.lines.is_empty();
        let waiting = self.changed.wait_while(self.locked(), none);
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        let line = waiting.lines.pop_front().unwrap_or_default();
        waiting.writing = true;
        drop(waiting);
        let written = to_stderr(&line).is_ok();
        let mut waiting = self.locked();
        waiting.writing = false;
        waiting.dropped += u64::from(!written);
        let told_now = waiting.told.1.is_some_and(|at| at.elapsed() < TELL_EVERY);
        drop(waiting);
        self.changed.notify_all();
        // While nothing can be written there is nobody to tell.
        if written && !told_now {
            self.tell();
        }
    }

    /// Says how many lines are missing, if they have become more: all of them, so that it does no harm
    /// when this line is dropped as well.
    fn tell(&self) {
        let mut waiting = self.locked();
        let lines = waiting.dropped;
        if lines == waiting.told.0 {
            return;
        }
        waiting.told = (lines, Some(Instant::now()));
        drop(waiting);
        // Whatever the level of the log is.
        tracing::error!(lines, "lines of this log are missing, which stderr did not take");
    }
}

impl Write for &Lines {
    /// Takes a whole line, as the subscriber hands it over.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut waiting = self.locked();
        if waiting.lines.len() < WAITING {
            waiting.lines.push_back(line.to_vec());
            self.changed.notify_all();
        } else {
            waiting.dropped += 1;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes to stderr, and waits for room there, also where writes do not: supervisors and ssh hand on
/// such pipes.
fn to_stderr(mut line: &[u8]) -> io::Result<()> {
    let mut stderr = io::stderr();
    while !line.is_empty() {
        match stderr.write(line) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => line = &line[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                retry_on_intr(|| poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], None))?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_those_that_may_wait_are_dropped_and_counted() {
        let lines = Lines::default();
        for _ in 0..WAITING + 3 {
            (&lines).write_all(b"a line\n").unwrap();
        }
        let waiting = lines.locked();
        assert_eq!((waiting.lines.len(), waiting.dropped), (WAITING, 3));
    }
}
