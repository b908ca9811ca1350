//! Terms that both sides agree on, and checks of the peer's terms.

use super::jobs::{AGENT, Offer};
use super::packing;
use haul_proto::{
    Accept, Compression, Connect, Features, JobOptions, Keep, PeerText, Reason, Role, SESSION_TOKEN_BYTES,
    Why, Window,
};

/// Reason for refusing to delete for a source that may not read. It would be asked about every
/// name.
const CANNOT_DELETE: &str = "cannot delete here: this ticket may not read, and a list of names would be needed; use a ticket that may also fetch";

/// Returns the terms of the session.
///
/// # Errors
/// Returns the reason for the peer if the session is refused.
pub(super) fn agree(
    asked: &Connect,
    offer: &Offer,
    window: Window,
    token: [u8; SESSION_TOKEN_BYTES],
) -> Result<Accept, Reason> {
    match asked.role {
        Role::Source if !offer.may_write => {
            return Err(Reason::new(Why::Denied, "sending files to this host"));
        }
        Role::Sink if !offer.may_read => {
            return Err(Reason::new(Why::Denied, "fetching files from this host"));
        }
        Role::Source if asked.options.delete && !offer.may_list => {
            return Err(Reason::new(Why::Denied, CANNOT_DELETE));
        }
        Role::Source | Role::Sink => {}
    }
    let mut accept = asked.answer(Features::ALL, window, offer.lanes, token, PeerText::new(AGENT))?;
    // The receiver decides which stored digests it accepts.
    let permitted = match asked.role {
        Role::Source => offer.keep,
        Role::Sink => offer.keep.with(Keep::STORED_SUMS),
    };
    accept.options.keep = Keep(accept.options.keep.0 & permitted.0);
    accept.options.compression = packing::possible(accept.options.compression);
    Ok(accept)
}

/// Checks an answer against the request. The peer may preserve less metadata and compress
/// differently. It must not make this side delete, write in place, or compare in another way than
/// requested.
///
/// # Errors
/// Returns the name of the changed option.
pub(super) fn hold(asked: &JobOptions, accepted: &JobOptions) -> Result<(), &'static str> {
    let packs_unasked = asked.compression == Compression::Off && accepted.compression != Compression::Off;
    if packs_unasked || packing::possible(accepted.compression) != accepted.compression {
        return Err("the compression");
    }
    if !asked.keep.has(accepted.keep) {
        return Err("the kept metadata");
    }
    let free = |options: &JobOptions| JobOptions {
        compression: Compression::Off,
        keep: Keep::default(),
        budget: 0,
        ..options.clone()
    };
    if free(asked) == free(accepted) { Ok(()) } else { Err("the options") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_model::Level;
    use haul_proto::{Unit, Update, Verify};

    #[test]
    fn answer_may_reduce_metadata_and_change_compression() {
        let asked = JobOptions {
            keep: Keep::MODE.with(Keep::TIMES),
            compression: Compression::Zstd(3),
            budget: 7,
            ..JobOptions::default()
        };
        let less = JobOptions { keep: Keep::MODE, compression: Compression::Off, budget: 0, ..asked.clone() };
        for answer in [&asked, &less] {
            assert_eq!(hold(&asked, answer), Ok(()));
        }
    }

    #[test]
    fn answer_that_changes_the_job_is_refused() {
        let asked = JobOptions { keep: Keep::MODE, ..JobOptions::default() };
        let changed = [
            JobOptions { delete: true, ..asked.clone() },
            JobOptions { delete_all: true, ..asked.clone() },
            JobOptions { max_delete: 7, ..asked.clone() },
            JobOptions { in_place: true, ..asked.clone() },
            JobOptions { dry_run: true, ..asked.clone() },
            JobOptions { verify: Verify::None, settle: Level::Received, ..asked.clone() },
            JobOptions { unit: Unit::File, ..asked.clone() },
            JobOptions { update: Update::Missing, ..asked.clone() },
            JobOptions { keep: Keep::MODE.with(Keep::SETUID), ..asked.clone() },
            JobOptions { compression: Compression::Auto, ..asked.clone() },
        ];
        for answer in &changed {
            hold(&asked, answer).expect_err("something was changed");
        }
        let packed = JobOptions { compression: Compression::Auto, ..asked };
        let wild = JobOptions { compression: Compression::Zstd(100), ..packed.clone() };
        hold(&packed, &wild).expect_err("there is no such level");
    }
}
