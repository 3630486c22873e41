//! The rules, with the clock at rest: through the broadcaster, against an API server that does as
//! it is told.

mod accounting;
mod ending;
mod errors;
mod life;
mod patience;
mod server;
mod wire;
