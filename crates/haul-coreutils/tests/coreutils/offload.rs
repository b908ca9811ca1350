//! Tests of copies inside the file system (copy_file_range), and of the fallback after each kind of
//! refusal. The file system is FUSE, which receives the same requests as NFS, SMB and Ceph servers.

use super::bed::{Place, Told, copy_file, onto, run};
use super::variants::plain;
use haul_coreutils::cp::CopyRules;
use haul_lab::faults::{FaultFs, Fired, Op};
use haul_lab::needs::{Need, met_or_skip};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const LEN: u64 = (1 << 20) + 7;

/// A folder `store` that is mounted as `view`.
struct View {
    faults: FaultFs,
    place: Place,
}

impl View {
    fn new(rules: &str) -> Option<View> {
        if !met_or_skip(&[Need::Fuse]) {
            return None;
        }
        let place = Place::new();
        let [store, view] = ["store", "view"].map(|name| place.path(name));
        fs::create_dir(&store).unwrap();
        fs::create_dir(&view).unwrap();
        let faults = FaultFs::mount(&store, &view, rules.parse().unwrap()).unwrap();
        Some(View { faults, place })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path(name)
    }

    /// Returns the number of operations of this kind that the rules matched.
    fn fired(&self, op: Op) -> usize {
        self.faults.fired().iter().filter(|fired: &&Fired| fired.op == op).count()
    }

    fn copy(&self) -> Told {
        run(&onto(&self.path("view/source"), &self.path("view/sink"), CopyRules::default(), &plain()))
    }
}

/// Copies a random file under these rules and checks that all of it arrives without a report.
fn arrives_under(rules: &str) -> Option<View> {
    let view = View::new("")?;
    let bytes = view.place.noise("store/source", LEN);
    view.faults.set_rules(rules.parse().unwrap());
    view.copy().is_fine();
    view.faults.set_rules("".parse().unwrap());
    assert!(fs::read(view.path("store/sink")).unwrap() == bytes, "{rules}");
    Some(view)
}

#[test]
fn offload_is_used_if_the_file_system_supports_it() {
    let Some(view) = arrives_under("sink copy .. delay 0") else { return };
    assert!(view.fired(Op::Copy) >= 17, "each of 17 objects: {}", view.fired(Op::Copy));
}

#[test]
fn short_offloaded_copy_is_continued() {
    let Some(view) = arrives_under("sink copy .. short 1000") else { return };
    assert!(view.fired(Op::Copy) > 1000);
}

#[test]
fn offloaded_copy_of_zero_bytes_is_not_trusted() {
    for rule in ["sink copy .. short 0", "sink copy 70000.. short 0", "sink copy 600000.. short 0 times 1"] {
        let Some(view) = arrives_under(rule) else { return };
        assert!(view.fired(Op::Copy) >= 1, "{rule}");
    }
}

#[test]
fn offload_error_falls_back_to_read_and_write() {
    for errno in [
        "EXDEV",
        "EINVAL",
        "ENOSYS",
        "ENOTSUP",
        "EPERM",
        "EACCES",
        "EFBIG",
        "ETXTBSY",
        "ENOENT",
        "EIO",
        "ESTALE",
        "ETIMEDOUT",
    ] {
        for bytes in ["..", "100000.."] {
            let Some(view) = arrives_under(&format!("sink copy {bytes} errno {errno}")) else { return };
            assert!(view.fired(Op::Copy) >= 1, "{errno}");
        }
    }
}

#[test]
fn error_names_the_side_that_failed() {
    for (rule, word) in [
        ("source read 500000.. errno EIO", "error reading"),
        ("sink write 500000.. errno EIO", "error writing"),
        ("sink write 500000.. errno ENOSPC", "error writing"),
    ] {
        let Some(view) = View::new("") else { return };
        view.place.noise("store/source", LEN);
        view.faults.set_rules(rule.parse().unwrap());
        let told = view.copy();
        assert_eq!(told.outcome.failures, 1, "{rule}");
        assert!(told.failed[0].contains(word), "{rule}: {:?}", told.failed);
    }
}

#[test]
fn offload_copies_only_data_ranges() {
    let Some(view) = View::new("") else { return };
    let file = File::create(view.path("store/source")).unwrap();
    file.set_len(64 << 20).unwrap();
    file.write_all_at(&[7; 200_000], 30 << 20).unwrap();
    view.faults.set_rules(
        "sink copy .. delay 0\nsink copy ..31457280 errno EIO\nsink copy 31719424.. errno EIO"
            .parse()
            .unwrap(),
    );
    view.copy().is_fine();
    assert!(view.fired(Op::Copy) >= 1);
    let beyond =
        view.faults.fired().iter().filter(|fired| fired.op == Op::Copy && fired.from < 30 << 20).count();
    assert_eq!(beyond, 0, "holes were copied");
    assert!(fs::read(view.path("store/sink")).unwrap() == fs::read(view.path("store/source")).unwrap());
}

#[test]
fn offload_is_not_tried_across_file_systems() {
    let Some(view) = View::new("* copy .. errno EIO") else { return };
    let bytes = view.place.noise("outside", LEN);
    copy_file(&view.path("outside"), &view.path("view/sink"), &plain());
    copy_file(&view.path("view/sink"), &view.path("back"), &plain());
    assert_eq!(view.fired(Op::Copy), 0);
    assert!(fs::read(view.path("back")).unwrap() == bytes);
}
