//! `--debug`: the copy method of a file, in cp's words.

use haul_engine::copy::{ChosenMethod, FileJob, Holes, Moving, Reflink};

/// Returns the method of a file, or `None` if the file did not come so far.
pub(super) fn method(file: &FileJob<'_>, moving: &Moving) -> Option<String> {
    let is_empty = file.sink.is_file() && file.source_stat.size == 0;
    let chosen = file.details.chosen()?;
    Some(words(chosen, file.details.is_offload_refused(), is_empty, moving))
}

fn words(chosen: ChosenMethod, is_offload_refused: bool, is_empty: bool, moving: &Moving) -> String {
    let ChosenMethod { is_cloned, is_offloaded, holes } = chosen;
    let reflink = match moving.reflink {
        _ if is_cloned => "yes",
        Reflink::Never => "no",
        // Bytes to verify must be written.
        _ if moving.verify.needs_bytes() => "no",
        // There is nothing to share, so cloning is not tried.
        _ if is_empty => "unknown",
        _ => "unsupported",
    };
    let offload = match () {
        () if is_cloned || is_empty => "unknown",
        () if is_offloaded && is_offload_refused => "unsupported",
        () if is_offloaded => "yes",
        // Not wanted, or slower than blocks through memory.
        () => "avoided",
    };
    let sparse = match holes {
        _ if is_cloned => "unknown",
        Holes::Dense => "no",
        Holes::OfSource => "SEEK_HOLE",
        Holes::Zeros => "zeros",
    };
    format!("copy offload: {offload}, reflink: {reflink}, sparse detection: {sparse}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_engine::copy::Workers;

    #[test]
    fn refused_offload_is_unsupported() {
        let moving = Moving { reflink: Reflink::Never, ..Moving::with(Workers::exactly(1)) };
        let chosen = ChosenMethod { is_cloned: false, is_offloaded: true, holes: Holes::Zeros };
        let text = |offload| format!("copy offload: {offload}, reflink: no, sparse detection: zeros");
        assert_eq!(words(chosen, false, false, &moving), text("yes"));
        assert_eq!(words(chosen, true, false, &moving), text("unsupported"));
    }
}
