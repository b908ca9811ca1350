//! Lists of checksums, as the tools of the field write them: what each line claims.
//!
//! A [`Reader`] takes the lines of one list, one after the other, and knows what the list said before (a header with
//! columns, remarks of a certain kind). Each line is judged for itself, so that a list may mix forms. A digest that
//! does not tell what it is comes back with every [`Meaning`] that fits; which of them holds is known once the file is
//! hashed.
//!
//! ```text
//! bytes of a list -> lines -> Reader -> Claim { name, dialect, stated: [ Stated { meanings: [ Meaning ] } ] }
//!                                         all of `stated` must hold; of its meanings one
//! ```

mod bag;
mod claim;
mod digits;
mod escape;
mod fields;
mod hint;
mod plain;
mod reader;
mod tagged;

pub use bag::BagRules;
pub use claim::{Blocks, Claim, Dialect, Flaw, Foreign, Line, Meaning, Span, Stated};
pub use escape::{escape, unescape};
pub use hint::{Hints, Kind, forced};
pub use reader::Reader;
