//! A server whose files leave the destination by a way that no check of a path notices: the kernel
//! refuses them.

use super::*;
use haul_engine::transfer::fetch_confined;
use haul_lab::needs::shown_or_skip;
use haul_sys::sandbox;

/// Fetches two files into a directory that is moved out of the destination between them. Returns
/// the outcome of the second file, and true if it was written.
fn second_in_moved_directory(fetching: Fetching) -> (Ended, bool) {
    let pair = Pair::new();
    let (from, outside) = (pair.sink().join("d"), tempfile::tempdir().unwrap());
    let to = outside.path().join("d");
    let options = small_objects();
    let job = FetchJob { options, ..FetchJob::new(vec![b"".to_vec()], pair.sink().into()) };
    let mut second = None;
    let told = fetched_with(fetching, job, |peer| {
        assert_eq!(offered(peer, 0, b"d", FileKind::Directory), Ended::Done(Level::Verified));
        assert_eq!(wrote(peer, 1, b"d/one", b"abc"), Ended::Done(Level::Verified));
        fs::rename(&from, &to).unwrap();
        second = Some(wrote(peer, 2, b"d/two", b"abc"));
        peer.part(3);
    });
    assert!(told.ended.is_ok(), "{:?}", told.ended);
    (second.unwrap(), to.join("two").exists())
}

#[test]
fn the_kernel_refuses_a_fetch_to_write_outside_its_destination() {
    if !shown_or_skip(sandbox::version().is_some(), "a kernel with Landlock") {
        return;
    }
    let (second, is_written) = second_in_moved_directory(fetch_confined);
    let Ended::Failed(reason) = second else { panic!("{second:?}") };
    assert!(reason.to_string().contains("Permission denied"), "{reason}");
    assert!(!is_written);
    // Nothing else refuses it, and this thread is not confined.
    let (second, is_written) = second_in_moved_directory(fetch);
    assert_eq!((second, is_written), (Ended::Done(Level::Verified), true));
}
