//! Tests of the web server through its socket, beside a real listener and real sessions.

mod copies;
mod files;
mod http2;
mod lanes;
mod peers;
mod rules;
mod verification;
mod webtransport;
mod world;
