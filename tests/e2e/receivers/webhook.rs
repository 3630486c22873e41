//! A webhook that does as it is told, and checks what a receiver of Standard Webhooks should.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use tidings_testkit::ledger::{Delivery, SharedLedger, envelopes};
use tidings_testkit::receiver::{HttpReceiver, Received, Step};

/// The key of the signatures, in the form in which it is configured.
pub(crate) const SECRET: &str = "whsec_dGlkaW5ncyBlbmQtdG8tZW5kIHRlc3Rz";

/// The webhook's way with a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    /// Takes it.
    Take,
    /// Takes nothing and answers this.
    Answer(&'static str),
    /// Takes it, and cuts the connection instead of answering.
    Cut,
    /// Answers 400 to whatever holds an Event of this name.
    Refuse(&'static str),
}

/// The number of requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Requests {
    /// Requests that were taken.
    pub(crate) taken: usize,
    /// Requests that were not.
    pub(crate) turned_away: usize,
    /// The number of events of the largest.
    pub(crate) largest: usize,
}

/// A webhook on a port of its own.
pub(crate) struct WebhookReceiver {
    pub(crate) ledger: SharedLedger,
    state: Arc<Mutex<(Mode, Requests)>>,
    receiver: HttpReceiver,
}

impl WebhookReceiver {
    /// Starts one that takes everything.
    pub(crate) fn start() -> Self {
        let ledger = SharedLedger::default();
        let state = Arc::new(Mutex::new((Mode::Take, Requests::default())));
        let (kept, told) = (ledger.clone(), Arc::clone(&state));
        let answer = move |_, request: &Received| vec![take(&kept, &mut lock(&told), request)];
        let receiver = HttpReceiver::start(answer).expect("a free port");
        Self { ledger, state, receiver }
    }

    pub(crate) fn url(&self) -> String {
        self.receiver.url("http") + "/hook"
    }

    pub(crate) fn set(&self, mode: Mode) {
        lock(&self.state).0 = mode;
    }

    pub(crate) fn requests(&self) -> Requests {
        lock(&self.state).1
    }
}

fn take(ledger: &SharedLedger, state: &mut (Mode, Requests), request: &Received) -> Step {
    let (mode, requests) = state;
    if request.line() != "POST /hook HTTP/1.1" {
        ledger.complain(format!("expected POST /hook, found {}", request.line()));
    }
    let body = &request.body;
    let Ok(envelopes) = envelopes(body) else {
        ledger.complain(format!("no envelopes: {}", String::from_utf8_lossy(body)));
        return Step::answer("422 Unprocessable Entity", "", "");
    };
    let refused = match mode {
        Mode::Take | Mode::Cut => None,
        Mode::Answer(status) => Some(*status),
        Mode::Refuse(name) => {
            let member = format!("\"name\":\"{name}\"");
            envelopes.iter().any(|one| one.contains(&member)).then_some("400 Bad Request")
        }
    };
    requests.largest = requests.largest.max(envelopes.len());
    if let Some(status) = refused {
        requests.turned_away += 1;
        return Step::answer(status, "", "");
    }
    requests.taken += 1;
    if let Err(complaint) = verify(request) {
        ledger.complain(complaint);
    }
    let single = body[0] == b'{';
    for envelope in envelopes {
        let delivery = Delivery::of_envelope(envelope);
        if let Ok(Delivery { id, .. }) = &delivery
            && single
            && request.header("webhook-id") != Some(id)
        {
            ledger.complain(format!("expected webhook-id {id}, found another"));
        }
        ledger.take([delivery]);
    }
    match mode {
        Mode::Cut => Step::Cut,
        _ => Step::answer("204 No Content", "", ""),
    }
}

/// Checks the signature as the specification of Standard Webhooks says.
fn verify(request: &Received) -> Result<(), String> {
    let header = |name| request.header(name).unwrap_or_default();
    let key = SECRET.strip_prefix("whsec_").and_then(|key| STANDARD.decode(key).ok());
    let mut mac = Hmac::<Sha256>::new_from_slice(&key.expect("a key in base64")).expect("a key");
    let (id, timestamp) = (header("webhook-id"), header("webhook-timestamp"));
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(&request.body);
    let wanted = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    let told = header("webhook-signature");
    if told == wanted {
        return Ok(());
    }
    Err(format!("expected the signature {wanted} of {id}, found {told}"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
