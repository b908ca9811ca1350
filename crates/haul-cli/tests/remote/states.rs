//! Transfers whose log cannot be kept: a state directory that is read-only, full, or fills up, at
//! the start and on resume. Also a sink on a file system that syncs each file by itself.

use super::claims::claims;
use super::resumed::{OBJECT, Play, Victim, Way, bytes_beneath, files_beneath, identity, is_temporary};
use super::stopped::wait_until;
use super::{Bed, assert_alike, assert_ended, assert_no_strays};
use haul_lab::faults::{Action, FaultFs};
use haul_lab::mounts::{Access, Mounted};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::newer;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Fills a file system except for `but_kib` KiB.
fn fill(dir: &Path, but_kib: usize) {
    use std::io::Write;
    let mut filler = fs::File::create(dir.join("filler")).unwrap();
    while filler.write_all(&[1; 4096]).is_ok() {}
    let len = filler.metadata().unwrap().len();
    filler.set_len(len.saturating_sub(but_kib as u64 * 1024)).unwrap();
}

#[test]
fn a_fetching_is_done_without_a_log_where_none_can_be_written() {
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    let play = Play::new(Way::Fetch, &[]);
    fs::create_dir(play.bed.path("locked")).unwrap();
    let locked = Mounted::bind(&play.bed.path("locked"), Access::ReadOnly).unwrap();
    let (_, told) = play.finish(&[&format!("--state-dir={}", locked.path().display())]);
    assert!(told.contains("Read-only file system") && told.contains("cannot be resumed"), "{told}");
    play.assert_whole("read-only");
    locked.close().unwrap();
    let full = Mounted::tmpfs(1).unwrap();
    fill(&full.path(), 0);
    fs::remove_dir_all(play.sink()).unwrap();
    let (_, told) = play.finish(&[&format!("--state-dir={}", full.path().display())]);
    assert!(told.contains("No space left") && told.contains("cannot be resumed"), "{told}");
    play.assert_whole("full");
    full.close().unwrap();
}

/// There is space for the lock, for the run history, or for a part of the log.
#[test]
fn a_state_directory_that_fills_up_meanwhile_costs_the_log_and_nothing_else() {
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    for (way, but_kib) in
        [Way::Send, Way::Fetch].into_iter().flat_map(|way| [4, 8, 16, 24, 32, 48].map(|but| (way, but)))
    {
        let play = Play::new(way, &["--sync=object", "--log-mechanism=file", "--log-encoding=int"]);
        let small = Mounted::tmpfs(1).unwrap();
        fill(&small.path(), but_kib);
        fs::create_dir(play.bed.path("state")).unwrap();
        let seen = Mounted::bind_at(&small.path(), &play.bed.path("state")).unwrap();
        play.finish(&[]);
        play.far_side_is_gone();
        play.assert_whole(&format!("{way:?}: {but_kib} KiB were free"));
        seen.close().unwrap();
        small.close().unwrap();
    }
}

/// From then on the log records nothing. Its earlier entries are true; later objects are compared
/// or sent again.
#[test]
fn a_job_that_is_killed_after_its_log_found_no_room_goes_on() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let styles = [
        (Way::Send, "--log-mechanism=universal", "--log-encoding=bit8", Victim::Sink, 6),
        (Way::Fetch, "--log-mechanism=file", "--log-encoding=int", Victim::Source, 4),
        (Way::Send, "--log-mechanism=transaction:2", "--log-encoding=char", Victim::Both, 9),
        (Way::Fetch, "--log-mechanism=universal", "--log-encoding=enc", Victim::Both, 7),
    ];
    for ((way, mechanism, encoding, victim, writes), is_freed) in
        styles.into_iter().flat_map(|style| [true, false].map(|is_freed| (style, is_freed)))
    {
        let what = format!("{way:?}, {mechanism}, full after {writes}, freed: {is_freed}");
        let play = Play::new(way, &["--sync=object", mechanism, encoding]);
        for name in ["store", "state"] {
            fs::create_dir(play.bed.path(name)).unwrap();
        }
        let rules = format!("*/log/* write .. errno ENOSPC after {writes}").parse().unwrap();
        let faults = FaultFs::mount(&play.bed.path("store"), &play.bed.path("state"), rules).unwrap();
        let mut child = play.start(&["--rate=512K"]);
        let mut said = BufReader::new(child.stderr.take().unwrap());
        wait_until("a full log", || !faults.fired().is_empty());
        // haul reports the error while the job continues.
        let told = said.by_ref().lines().map_while(Result::ok).find(|line| line.contains("No space left"));
        assert!(
            told.as_ref().is_some_and(|told| told.contains("sent again if the job is interrupted")),
            "{what}: {told:?}"
        );
        let came = bytes_beneath(&play.sink());
        wait_until("more bytes", || bytes_beneath(&play.sink()) > came + 3 * OBJECT);
        play.kill(child, victim);
        for claim in play.jobs().iter().flat_map(|home| claims(&play, home, identity)) {
            assert_ne!(claim.holds, Some(false), "{what}: {}", claim.place);
        }
        let durable = play.durable();
        if !is_freed {
            let (_, told) = play.finish(&[]);
            assert!(told.contains("No space left") && told.contains("cannot be resumed"), "{what}: {told}");
            play.far_side_is_gone();
            assert_same_but_for_what_was_left(&play);
        }
        faults.set_rules("".parse().unwrap());
        let (summary, told) = play.finish(&[]);
        if is_freed {
            play.assert_spared(&summary, durable, &format!("{what}: {told}"));
        }
        play.far_side_is_gone();
        play.assert_whole(&what);
        faults.close();
    }
}

/// A run that cannot revoke the log entries of an earlier run does not trust them.
#[test]
fn a_job_whose_log_turned_read_only_begins_anew_and_goes_on_when_it_can_be_written() {
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    let play = Play::new(Way::Fetch, &["--sync=object"]);
    play.cut_off(Victim::Sink);
    let state = play.bed.path("state/haul");
    let locked = Mounted::bind(&state, Access::ReadOnly).unwrap();
    let (summary, told) = play.finish(&[&format!("--state-dir={}", locked.path().display())]);
    assert!(told.contains("cannot be resumed"), "{told}");
    assert_eq!(summary["bytes_of_earlier_runs"], 0, "{summary}");
    assert_same_but_for_what_was_left(&play);
    locked.close().unwrap();
    play.finish(&[]);
    play.assert_whole("once it can be written");
}

/// Only the newer program can read the log: neither the log nor the files that it describes are
/// changed.
#[test]
fn a_log_of_a_newer_program_is_left_as_it_is_and_the_job_done_without_one() {
    let play = Play::new(Way::Fetch, &["--sync=object"]);
    play.cut_off(Victim::Sink);
    let index = play.jobs()[0].join("log/universal.index");
    let mut left = fs::read(&index).unwrap();
    newer::log(&mut left, 2);
    fs::write(&index, &left).unwrap();
    let (summary, told) = play.finish(&[]);
    assert!(told.contains("version 2") && told.contains("cannot be resumed"), "{told}");
    assert_eq!(summary["bytes_of_earlier_runs"], 0, "{summary}");
    assert_same_but_for_what_was_left(&play);
    assert!(fs::read(&index).unwrap() == left);
}

/// Another process takes the rest of the space between the two runs.
#[test]
fn a_job_whose_state_directory_is_full_by_now_is_done_and_leaves_nothing_once_there_is_room() {
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    let state = Mounted::tmpfs(1).unwrap();
    let play = Play::new(Way::Fetch, &["--sync=object"]);
    fs::create_dir(play.bed.path("state")).unwrap();
    let seen = Mounted::bind_at(&state.path(), &play.bed.path("state")).unwrap();
    play.cut_off(Victim::Sink);
    fill(&state.path(), 0);
    play.finish(&[]);
    assert_same_but_for_what_was_left(&play);
    fs::remove_file(state.path().join("filler")).unwrap();
    play.finish(&[]);
    play.assert_whole("with room");
    seen.close().unwrap();
    state.close().unwrap();
}

#[test]
fn a_server_without_room_for_logs_says_so_and_takes_what_is_sent() {
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    let bed = Bed::new();
    bed.tree("data");
    for (name, words) in [("locked", "Read-only file system"), ("full", "No space left")] {
        fs::create_dir(bed.path(name)).unwrap();
        let place = match name {
            "locked" => Mounted::bind(&bed.path(name), Access::ReadOnly).unwrap(),
            _ => Mounted::tmpfs(1).unwrap(),
        };
        if name == "full" {
            fill(&place.path(), 0);
        }
        let server = bed.serve(&["--root", "there", "--state-dir", place.path().to_str().unwrap()]);
        assert_ended(&bed.run(&["send", "--ticket-file", "ticket", "data", &format!(":{name}")]), 0);
        let line = server.says("cannot be resumed");
        assert!(line.contains(words), "{line}");
        assert_alike(&bed.path("data"), &bed.path("there").join(name).join("data"));
        assert_no_strays(&bed.path("there"));
        drop(server);
        place.close().unwrap();
    }
}

/// A FUSE file system is not synced as a whole: haul syncs each file and then logs it.
#[test]
fn a_sink_that_syncs_file_by_file_goes_on_where_it_was_killed() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let play = Play::new(Way::Fetch, &["--sync=object", "--verify=reread"]);
    for name in ["store", "in"] {
        fs::create_dir(play.bed.path(name)).unwrap();
    }
    // The shortest delay, so that the file system reports each sync.
    let rules = "* fsync .. delay 1\n".parse().unwrap();
    let faults = FaultFs::mount(&play.bed.path("store"), &play.bed.path("in"), rules).unwrap();
    play.cut_off(Victim::Sink);
    let (finished, logged) = play.durable();
    assert!(logged > 0);
    let (summary, _) = play.finish(&[]);
    assert!(summary["bytes_of_earlier_runs"].as_u64().unwrap() >= finished + logged, "{summary}");
    play.assert_whole("FUSE");
    let synced: Vec<_> =
        faults.fired().into_iter().filter(|fired| fired.action == Action::Delay(1)).collect();
    let many = files_beneath(&play.source()).len();
    assert!(synced.len() >= many, "{} syncs of {many} files", synced.len());
    faults.close();
}

/// Asserts that all files are at the sink, and that files of the interrupted run wait to be
/// resumed.
fn assert_same_but_for_what_was_left(play: &Play) {
    for path in files_beneath(&play.source()) {
        let name = path.strip_prefix(play.source()).unwrap();
        assert!(fs::read(play.sink().join(name)).unwrap() == fs::read(&path).unwrap(), "{name:?}");
    }
    assert!(files_beneath(&play.sink()).iter().any(|path| is_temporary(path)), "the job is not over");
}
