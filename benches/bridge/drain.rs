//! A client that reads a watch and does nothing with it: what reading alone costs.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use crate::{
    Result,
    tally::{Tally, now_us},
};

const BUFFER: usize = 256 * 1024;

/// Reads the watch from `version` on until stdin ends. Answers as the counting sink does, but that
/// it knows no ids.
pub(crate) fn run(address: SocketAddr, version: u64) -> Result<()> {
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "GET /api/v1/events?watch=1&resourceVersion={version} HTTP/1.1\r\nHost: {address}\r\n\r\n"
    )?;
    let tally = Arc::new(Mutex::new(Tally::default()));
    let shared = Arc::clone(&tally);
    thread::spawn(move || {
        if let Err(error) = drain(stream, &shared) {
            eprintln!("drain: {error}");
        }
    });
    for request in io::stdin().lines() {
        let tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        match request?.as_str() {
            "total" => println!("{}", tally.events),
            "report" => println!("{}", serde_json::to_string(&*tally)?),
            other => return Err(format!("the drain does not know {other:?}").into()),
        }
    }
    Ok(())
}

fn drain(mut stream: TcpStream, tally: &Mutex<Tally>) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    let (mut feeds, mut framing) = (0, 0);
    loop {
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        // An event ends with a bare line feed; the lines of HTTP's own framing with two bytes.
        feeds += memchr::memchr_iter(b'\n', &buffer[..read]).count();
        framing += memchr::memchr_iter(b'\r', &buffer[..read]).count();
        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.requests += 1;
        // Less than before only between the two bytes of a line of framing.
        let events = feeds.saturating_sub(framing).saturating_sub(tally.events);
        if events > 0 {
            tally.arrived(events, now_us());
        }
    }
}
