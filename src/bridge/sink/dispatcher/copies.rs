//! Records that earlier runs have set aside, taken in hand at the start.

use std::collections::HashMap;

use bytes::Bytes;
use tokio::{task::spawn_blocking, time::sleep};

use super::{Dispatcher, Source, Tickets, hand::ROOM, reads::READ_RETRY};
use crate::{
    bridge::{
        sink::delivery::{FIRST_RESEND, Ticket},
        tasks::answer_of,
    },
    event::{Origin, Record},
    journal::{ReadError, SetAside},
};

/// A record that is set aside.
struct SavedCopy {
    sequence: u64,
    /// Without an envelope where there are many: that is read again when it is sent.
    copy: SetAside,
    namespace: Box<str>,
    ticket: Ticket,
}

impl Dispatcher {
    /// Takes in hand what earlier runs have set aside, in order, once the sink has been asked which parts its
    /// receiver has. Nothing is sent before, because it comes first of its objects.
    pub(super) async fn take_copies(&mut self) {
        let stop = self.parts.stop.clone();
        loop {
            let (source, tickets) = (self.source.clone(), self.tickets.clone());
            let reading = answer_of(spawn_blocking(move || saved(&source, &tickets)));
            let error = tokio::select! {
                copies = reading => match copies {
                    Ok(copies) => {
                        self.relocates = false;
                        return self.take_in_hand(copies);
                    }
                    Err(error) => error,
                },
                () = stop.over() => return,
            };
            tracing::error!(
                sink = self.parts.options.name,
                %error,
                "the events set aside cannot be read: trying again"
            );
            tokio::select! {
                () = sleep(READ_RETRY) => {}
                () = stop.over() => return,
            }
        }
    }

    /// Works out again which destinations what waits beside the lanes is for: it may have been taken in hand while
    /// nobody answered how many there are.
    pub(super) async fn relocate(&mut self) {
        let of = match self.destinations.take() {
            Some(of) => of,
            None => match destinations(self.source.clone(), self.tickets.clone()).await {
                Ok(of) => of,
                Err(error) => {
                    let sink = &self.parts.options.name;
                    return tracing::error!(sink, %error, "the events set aside cannot be read");
                }
            },
        };
        let Self { delivery, hand, resends, tickets, .. } = self;
        let destination = |number| match number {
            FIRST_RESEND.. => Some(tickets.ticket(resends.record(number)?, true).destination),
            _ => of.get(&hand.sequence(number)?).copied(),
        };
        self.relocates = !delivery.relocate(destination);
        self.destinations = self.relocates.then_some(of);
    }

    fn take_in_hand(&mut self, copies: Vec<SavedCopy>) {
        for SavedCopy { sequence, copy, namespace, ticket } in copies {
            let number = self.delivery.push_set_aside(ticket);
            self.hand.push_copy(number, sequence, namespace, copy);
        }
    }
}

/// The destinations of all that a sink has set aside, by sequence.
async fn destinations(source: Source, tickets: Tickets) -> Result<HashMap<u64, u64>, ReadError> {
    let copies = answer_of(spawn_blocking(move || saved(&source, &tickets))).await?;
    Ok(copies.iter().map(|copy| (copy.sequence, copy.ticket.destination)).collect())
}

/// All that a sink has set aside. Blocks on the disk.
fn saved(source: &Source, tickets: &Tickets) -> Result<Vec<SavedCopy>, ReadError> {
    let (mut copies, mut bytes) = (Vec::new(), 0);
    source.set_aside.for_each(&source.sink, |sequence, mut copy| {
        let record = Record { seq: sequence, envelope: copy.envelope.clone() };
        let ticket = tickets.ticket(&record, true);
        let namespace = (*Origin::namespace_of(&record.envelope)).into();
        bytes += copy.envelope.len();
        if bytes > ROOM {
            copy.envelope = Bytes::new();
        }
        copies.push(SavedCopy { sequence, copy, namespace, ticket });
    })?;
    Ok(copies)
}
