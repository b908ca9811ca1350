//! Layer 3, pure: the client of a browser, built for WebAssembly.
//!
//! - [`Upload`] and [`Download`] are the two roles of a client as event machines without threads.
//!   They drive the same machines as the engine: `haul_proto::Source` and `haul_proto::Sink`. Bytes
//!   of a lane go in, bytes to send come out, and [`Event`]s are requests and reports to the page.
//! - [`Receipt`] writes the waybill of a job, and [`WaybillReader`] reads any waybill.
//! - `exports` are the functions that JavaScript calls; `js/core.js` is their other side.
//!
//! The crate uses no clock, file, socket or thread. JavaScript passes in the time.

mod download;
mod event;
pub mod exports;
mod frames;
mod link;
mod output;
mod receipt;
mod session;
mod upload;
mod waybill_reader;

pub use download::{Download, KeptFile};
pub use event::{Event, NUMBER_MAX, RECORD_NUMBERS, Record, hex, milliseconds, moment};
pub use link::JobSettings;
pub use output::BLOCK_BYTES;
pub use receipt::{Receipt, ReceiptContent, ReceiptEntry};
pub use session::Session;
pub use upload::{BUFFERS, Upload};
pub use waybill_reader::{Item, RecordedFile, WaybillReader};
