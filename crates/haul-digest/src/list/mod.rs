//! Lists of checksums in the formats of common tools, and the checksums that each line states.
//!
//! A [`Reader`] takes the lines of one list in order, and remembers earlier information (a header
//! with columns, comments of a certain kind). Each line is recognized by itself, so a list may mix
//! formats. A digest without a stated algorithm yields every [`Interpretation`] that fits; only the
//! hash of the file determines which one matches.
//!
//! ```text
//! bytes of a list -> lines -> Reader -> Claim { name, dialect, stated: [Stated, ...] }
//!                                         all of `stated` must hold
//!                                       Stated { meanings: [Interpretation, ...] }
//!                                         one of its meanings must hold
//! ```

mod bag;
mod claim;
mod damage;
mod digits;
mod escape;
mod fields;
mod hint;
mod plain;
mod reader;
mod tagged;

pub use bag::BagRules;
pub use claim::{Blocks, Claim, Dialect, Flaw, Foreign, Interpretation, Line, Span, StatedChecksum};
pub use damage::is_start_of_an_entry;
pub use escape::{escape, unescape};
pub use hint::{Hints, Kind, forced};
pub use reader::Reader;
