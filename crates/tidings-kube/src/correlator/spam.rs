//! How many events are too many.

use super::{Damaged, Key, bounded::Bounded, saved::Reader};

/// The version of the form of [`SpamFilter::save`].
const VERSION: u8 = 1;

const NANOSECONDS: i64 = 1_000_000_000;

/// A token bucket for each key, as client-go's `EventSourceObjectSpamFilter` with its
/// `flowcontrol` limiter and `golang.org/x/time/rate` below that.
///
/// A bucket begins with `burst` tokens and gets `qps` more each second, up to `burst`. An event
/// takes one, or is held back; then nothing is taken, and time goes on counting. The arithmetic is
/// Go's to the last bit: the rate has single precision, the rest double, and a token that is less
/// than a nanosecond away counts as there. When the clock goes back no token comes, but an event
/// that is let through sets the bucket's time back, so that the time up to then counts once more.
///
/// With a `burst` below 1 no event is let through, with a `qps` that is not positive no token comes
/// back. At most `lru_size` buckets are kept, 40 bytes each; one that is forgotten begins full.
#[derive(Debug)]
pub struct SpamFilter {
    buckets: Bounded<Bucket>,
    burst: i64,
    /// Tokens a second.
    rate: f64,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    last_ns: i64,
}

impl SpamFilter {
    /// `lru_size`: buckets, 0 keeps none; `burst`: tokens; `qps`: tokens a second.
    pub fn new(lru_size: usize, burst: i64, qps: f32) -> Self {
        Self { buckets: Bounded::new(lru_size), burst, rate: f64::from(qps) }
    }

    /// Whether an event of this key may pass at `now_ns` nanoseconds since the Unix epoch.
    pub fn allow(&mut self, key: Key, now_ns: i64) -> bool {
        let (burst, rate) = (self.burst, self.rate);
        if let Some(bucket) = self.buckets.get_mut(key) {
            let elapsed_ns = now_ns.saturating_sub(bucket.last_ns).max(0);
            return bucket.take(elapsed_ns, now_ns, burst, rate);
        }
        let mut bucket = Bucket { tokens: burst as f64, last_ns: now_ns };
        let allowed = bucket.take(0, now_ns, burst, rate);
        self.buckets.put(key, bucket);
        allowed
    }

    /// Appends what is known, for [`load`](Self::load): a version byte (1), the number of buckets,
    /// and for each, from the least recent to the most recent, its key, its tokens as a
    /// double and the time of the last event that passed. Numbers have 64 bits and are little
    /// endian.
    pub fn save(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        out.extend_from_slice(&(self.buckets.len() as u64).to_le_bytes());
        for (key, bucket) in self.buckets.iter() {
            out.extend_from_slice(&key.to_bytes());
            out.extend_from_slice(&bucket.tokens.to_le_bytes());
            out.extend_from_slice(&bucket.last_ns.to_le_bytes());
        }
    }

    /// What [`save`](Self::save) left at the front of the bytes, and the rest of them. The limits
    /// may be others than before: what is beyond them is forgotten.
    ///
    /// # Errors
    ///
    /// The bytes are not of that form.
    pub fn load(
        bytes: &[u8],
        lru_size: usize,
        burst: i64,
        qps: f32,
    ) -> Result<(Self, &[u8]), Damaged> {
        let mut loaded = Self::new(lru_size, burst, qps);
        let mut bytes = Reader::new(bytes);
        bytes.version(VERSION)?;
        for _ in 0..bytes.u64()? {
            let key = bytes.key()?;
            // No bucket is a whole token in debt; one without a number of them is.
            let bucket = Bucket { tokens: bytes.f64()?.max(-1.0), last_ns: bytes.i64()? };
            loaded.buckets.put(key, bucket);
        }
        Ok((loaded, bytes.rest()))
    }
}

impl Bucket {
    /// Takes a token, if there is one; `rate.Limiter.AllowN(now, 1)`.
    fn take(&mut self, elapsed_ns: i64, now_ns: i64, burst: i64, rate: f64) -> bool {
        let mut tokens = self.tokens + gained(elapsed_ns, rate);
        if tokens > burst as f64 {
            tokens = burst as f64;
        }
        tokens -= 1.0;
        let allowed = burst >= 1 && (tokens >= 0.0 || is_there(-tokens, rate));
        if allowed {
            *self = Self { tokens, last_ns: now_ns };
        }
        allowed
    }
}

/// Tokens that come in a time.
fn gained(elapsed_ns: i64, rate: f64) -> f64 {
    if rate <= 0.0 {
        return 0.0;
    }
    let seconds = (elapsed_ns / NANOSECONDS) as f64;
    let nanoseconds = (elapsed_ns % NANOSECONDS) as f64;
    (seconds + nanoseconds / 1e9) * rate
}

/// Whether the wait for so many tokens, in whole nanoseconds of 64 bits, is none.
///
/// At a rate below about 1e-10 the wait is beyond 64 bits. What Go makes of that is up to the
/// processor; on amd64 it is a wait of less than nothing, so everything passes.
fn is_there(tokens: f64, rate: f64) -> bool {
    const TOO_LONG: f64 = (1_u64 << 63) as f64;
    if rate <= 0.0 {
        return false;
    }
    let wait_ns = 1e9 * (tokens / rate);
    // An infinite rate may leave a bucket with no number at all; Go lets that pass too.
    !(1.0..TOO_LONG).contains(&wait_ns)
}
