//! The log store that the tickets of a server share for interrupted jobs: the server evicts a job
//! of the client that is above its share.

use super::assert_no_strays;
use super::resumed::{files_beneath, is_temporary};
use super::ticketed::{ServerFixture, whole};
use std::fs;
use std::os::unix::fs::symlink;

#[test]
fn the_least_recently_used_job_of_any_ticket_is_evicted() {
    let desk = ServerFixture::new("log-jobs = 2");
    let server = desk.serve();
    desk.cut_off("one.ticket", ":x");
    let first = desk.jobs().remove(0);
    // Waits until the session has released its slot.
    server.wait_for_log("incomplete");
    desk.cut_off("one.ticket", ":y");
    server.wait_for_log("incomplete");
    let second = desk.jobs().into_iter().find(|job| *job != first).unwrap();
    desk.cut_off("other.ticket", ":z");
    server.wait_for_log("incomplete");
    let jobs = desk.jobs();
    assert!(jobs.len() == 2 && jobs.contains(&second) && !jobs.contains(&first), "{jobs:?}");
    assert_no_strays(&desk.fixture.path("in/x"));
    let third = jobs.into_iter().find(|job| *job != second).unwrap();
    // The evicted job starts from the beginning, and evicts the one that is the oldest now.
    let anew = whole(&desk.fixture.run(&desk.sending("one.ticket", ":x", &[])));
    assert_eq!(anew["bytes_of_earlier_runs"], 0, "{anew}");
    desk.assert_whole("x", 1);
    assert_no_strays(&desk.fixture.path("in/y"));
    let durable = desk.durable(&third, &desk.fixture.path("in/z/data"));
    desk.finish(&desk.sending("other.ticket", ":z", &[]), durable, "out");
    desk.assert_whole("z", 0);
}

/// The evicted job has incomplete files beneath another root than the session that needs its space,
/// and the kernel confines that session to its own root.
#[test]
fn an_evicted_job_loses_its_incomplete_files_beneath_another_root() {
    let desk = ServerFixture::new("log-jobs = 2");
    let config = desk.fixture.path("serve.toml");
    let text = fs::read_to_string(&config).unwrap();
    let shared = "root = 'in'\nticket = 'other.ticket'";
    assert!(text.contains(shared), "{text}");
    fs::write(config, text.replace(shared, "root = 'in/other'\nticket = 'other.ticket'")).unwrap();
    fs::create_dir(desk.fixture.path("in/other")).unwrap();
    // The fixture looks for the files in `in`.
    symlink("other/z", desk.fixture.path("in/z")).unwrap();
    let server = desk.serve();
    for (ticket, to) in [("one.ticket", ":x"), ("one.ticket", ":y"), ("other.ticket", ":z")] {
        desk.cut_off(ticket, to);
        // Waits until the session has released its slot.
        server.wait_for_log("incomplete");
    }
    let partial = |dir: &str| {
        let files = files_beneath(&desk.fixture.path(dir));
        files.iter().filter(|path| is_temporary(path)).count()
    };
    assert_eq!(partial("in/x"), 0, "the evicted job");
    assert!(partial("in/y") > 0 && partial("in/other/z") > 0, "the other jobs");
}
