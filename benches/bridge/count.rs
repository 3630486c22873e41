//! The counting sink: as little work for each event as still tells which one it was, because it
//! shares the machine with what is measured.
//!
//! HTTP/1.1 by hand: a thread for each connection, a buffer that is used again, one read and one
//! write for a request that fits. Nothing is parsed; ids are found by what stands before them.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use memchr::memmem;
use tidings_testkit::api_server::sent_at;

use crate::{
    Result,
    request::{ENVELOPE, frames, head},
    tally::{Tally, Wire, hash, now_us},
};

/// The bytes before the id of a document.
const DOCUMENT: &[u8] = br#""event":{"id":""#;
/// The attribute of a log record that holds the id.
const ATTRIBUTE: &[u8] = b"log.record.uid";
/// The bytes before the id of an object for Splunk, or of an entry for Loki.
const FIELD: &[u8] = br#""event_id":""#;
/// The bytes before the id in a line of a bulk request.
const ACTION: &[u8] = br#""_id":""#;
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const BULK_ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{\"errors\":false}";
const HEC_ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{\"code\":0}";
const BUFFER: usize = 256 * 1024;
/// How often a file is looked at for more.
const LOOK: Duration = Duration::from_millis(5);

/// Serves until stdin ends. Says its address first, or the file that it reads; `total` is answered with the number of events
/// so far, `report` with the whole [`Tally`] as JSON.
pub(crate) fn run(wire: Wire, file: &Path) -> Result<()> {
    let tally = Arc::new(Mutex::new(Tally::default()));
    let shared = Arc::clone(&tally);
    if wire == Wire::Lines {
        let path = file.to_owned();
        thread::spawn(move || {
            if let Err(error) = follow(&path, &shared) {
                eprintln!("counting sink: {error}");
            }
        });
        println!("{}", file.display());
    } else {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        println!("{}", listener.local_addr()?);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let tally = Arc::clone(&shared);
                thread::spawn(move || {
                    if let Err(error) = connection(stream, wire, &tally) {
                        eprintln!("counting sink: {error}");
                    }
                });
            }
        });
    }
    for request in io::stdin().lines() {
        match request?.as_str() {
            "total" => println!("{}", lock(&tally).events),
            "report" => println!("{}", serde_json::to_string(&*lock(&tally))?),
            other => return Err(format!("the sink does not know {other:?}").into()),
        }
    }
    Ok(())
}

fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

fn connection(mut stream: TcpStream, wire: Wire, tally: &Mutex<Tally>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let finder = memmem::Finder::new(match wire {
        Wire::Json | Wire::StampedJson | Wire::Syslog | Wire::Lines => ENVELOPE,
        Wire::Ecs => DOCUMENT,
        Wire::Bulk => ACTION,
        Wire::Hec => FIELD,
        Wire::Otlp => ATTRIBUTE,
    });
    let mut buffer = vec![0; BUFFER];
    let mut filled = 0;
    loop {
        let (body, end) = loop {
            let read = if wire == Wire::Syslog { frames } else { head };
            if let Some((body, length)) = read(&buffer[..filled])? {
                if buffer.len() < body + length {
                    buffer.resize(body + length, 0);
                }
                if filled >= body + length {
                    break (body, body + length);
                }
            }
            match stream.read(&mut buffer[filled..])? {
                0 => return Ok(()),
                read => filled += read,
            }
        };
        note(&buffer[body..end], wire, &finder, tally)?;
        stream.write_all(match wire {
            Wire::Bulk => BULK_ANSWER,
            Wire::Hec => HEC_ANSWER,
            Wire::Syslog => b"",
            _ => ANSWER,
        })?;
        buffer.copy_within(end..filled, 0);
        filled -= end;
    }
}

/// Reads a file while it is written. A read counts as a request.
fn follow(path: &Path, tally: &Mutex<Tally>) -> io::Result<()> {
    let finder = memmem::Finder::new(ENVELOPE);
    while !path.exists() {
        thread::sleep(LOOK);
    }
    let mut file = File::open(path)?;
    let mut buffer = vec![0; BUFFER];
    let mut filled = 0;
    loop {
        match file.read(&mut buffer[filled..])? {
            0 => thread::sleep(LOOK),
            read => filled += read,
        }
        if let Some(end) = memchr::memrchr(b'\n', &buffer[..filled]) {
            note(&buffer[..=end], Wire::Lines, &finder, tally)?;
            buffer.copy_within(end + 1..filled, 0);
            filled -= end + 1;
        }
    }
}

fn note(
    body: &[u8],
    wire: Wire,
    finder: &memmem::Finder<'_>,
    tally: &Mutex<Tally>,
) -> io::Result<()> {
    let now = now_us();
    let mut tally = lock(tally);
    let before = tally.ids.len();
    let mut places = finder.find_iter(body).peekable();
    while let Some(at) = places.next() {
        let rest = &body[at + finder.needle().len()..];
        let id = match wire {
            Wire::Otlp => attribute_value(rest),
            _ => memchr::memchr(b'"', rest).map(|end| &rest[..end]),
        };
        tally.ids.push(hash(id.ok_or_else(|| bad("an event without an id"))?));
        if wire == Wire::StampedJson {
            let event = &body[at..places.peek().copied().unwrap_or(body.len())];
            let sent = std::str::from_utf8(event).ok().and_then(sent_at);
            tally.latencies_us.push(now - sent.ok_or_else(|| bad("an event without a time"))?);
        }
    }
    let events = tally.ids.len() - before;
    tally.requests += 1;
    tally.arrived(events, now);
    Ok(())
}

/// The text of a `KeyValue`'s `AnyValue`, shorter than 128 bytes: field 2, its length, field 1,
/// its length, the text.
fn attribute_value(after_key: &[u8]) -> Option<&[u8]> {
    match after_key {
        [0x12, _, 0x0a, length @ 0..=127, rest @ ..] => rest.get(..usize::from(*length)),
        _ => None,
    }
}

fn bad(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
