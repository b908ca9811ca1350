//! Transfers whose log cannot be kept: a state directory that is read-only, full, or fills up, at
//! the start and on resume. Also a sink on a file system that syncs each file by itself.

use super::claims::claims;
use super::resumed::{
    Direction, KilledSide, OBJECT, ResumeScenario, bytes_beneath, files_beneath, identity, is_temporary,
};
use super::stopped::wait_until;
use super::{Fixture, assert_alike, assert_ended, assert_no_strays};
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
fn a_fetch_completes_without_a_log_if_none_can_be_written() {
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    let scenario = ResumeScenario::new(Direction::Fetch, &[]);
    fs::create_dir(scenario.fixture.path("locked")).unwrap();
    let locked = Mounted::bind(&scenario.fixture.path("locked"), Access::ReadOnly).unwrap();
    let (_, told) = scenario.finish(&[&format!("--state-dir={}", locked.path().display())]);
    assert!(told.contains("Read-only file system") && told.contains("cannot be resumed"), "{told}");
    scenario.assert_whole("read-only");
    locked.close().unwrap();
    let full = Mounted::tmpfs(1).unwrap();
    fill(&full.path(), 0);
    fs::remove_dir_all(scenario.sink()).unwrap();
    let (_, told) = scenario.finish(&[&format!("--state-dir={}", full.path().display())]);
    assert!(told.contains("No space left") && told.contains("cannot be resumed"), "{told}");
    scenario.assert_whole("full");
    full.close().unwrap();
}

/// There is space for the lock, for the run history, or for a part of the log.
#[test]
fn a_state_directory_that_fills_up_costs_only_the_log() {
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    for (direction, but_kib) in [Direction::Send, Direction::Fetch]
        .into_iter()
        .flat_map(|direction| [4, 8, 16, 24, 32, 48].map(|but| (direction, but)))
    {
        let scenario =
            ResumeScenario::new(direction, &["--sync=object", "--log-mechanism=file", "--log-encoding=int"]);
        let small = Mounted::tmpfs(1).unwrap();
        fill(&small.path(), but_kib);
        fs::create_dir(scenario.fixture.path("state")).unwrap();
        let seen = Mounted::bind_at(&small.path(), &scenario.fixture.path("state")).unwrap();
        scenario.finish(&[]);
        scenario.wait_for_remote_exit();
        scenario.assert_whole(&format!("{direction:?}: {but_kib} KiB were free"));
        seen.close().unwrap();
        small.close().unwrap();
    }
}

/// From then on the log records nothing. Its earlier entries are true; later objects are compared
/// or sent again.
#[test]
fn a_job_killed_after_its_log_ran_out_of_space_resumes() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let styles = [
        (Direction::Send, "--log-mechanism=universal", "--log-encoding=bit8", KilledSide::Sink, 6),
        (Direction::Fetch, "--log-mechanism=file", "--log-encoding=int", KilledSide::Source, 4),
        (Direction::Send, "--log-mechanism=transaction:2", "--log-encoding=char", KilledSide::Both, 9),
        (Direction::Fetch, "--log-mechanism=universal", "--log-encoding=enc", KilledSide::Both, 7),
    ];
    for ((direction, mechanism, encoding, victim, writes), is_freed) in
        styles.into_iter().flat_map(|style| [true, false].map(|is_freed| (style, is_freed)))
    {
        let what = format!("{direction:?}, {mechanism}, full after {writes}, freed: {is_freed}");
        let scenario = ResumeScenario::new(direction, &["--sync=object", mechanism, encoding]);
        for name in ["store", "state"] {
            fs::create_dir(scenario.fixture.path(name)).unwrap();
        }
        let rules = format!("*/log/* write .. errno ENOSPC after {writes}").parse().unwrap();
        let faults =
            FaultFs::mount(&scenario.fixture.path("store"), &scenario.fixture.path("state"), rules).unwrap();
        let mut child = scenario.start(&["--rate=512K"]);
        let mut said = BufReader::new(child.stderr.take().unwrap());
        wait_until("a full log", || !faults.fired().is_empty());
        // haul reports the error while the job continues.
        let told = said.by_ref().lines().map_while(Result::ok).find(|line| line.contains("No space left"));
        assert!(
            told.as_ref().is_some_and(|told| told.contains("sent again if the job is interrupted")),
            "{what}: {told:?}"
        );
        let came = bytes_beneath(&scenario.sink());
        wait_until("more bytes", || bytes_beneath(&scenario.sink()) > came + 3 * OBJECT);
        scenario.kill(child, victim);
        for claim in scenario.jobs().iter().flat_map(|home| claims(&scenario, home, identity)) {
            assert_ne!(claim.holds, Some(false), "{what}: {}", claim.place);
        }
        let durable = scenario.durable();
        if !is_freed {
            let (_, told) = scenario.finish(&[]);
            assert!(told.contains("No space left") && told.contains("cannot be resumed"), "{what}: {told}");
            scenario.wait_for_remote_exit();
            assert_same_but_for_what_was_left(&scenario);
        }
        faults.set_rules("".parse().unwrap());
        let (summary, told) = scenario.finish(&[]);
        if is_freed {
            scenario.assert_skipped(&summary, durable, &format!("{what}: {told}"));
        }
        scenario.wait_for_remote_exit();
        scenario.assert_whole(&what);
        faults.close();
    }
}

/// A run that cannot revoke the log entries of an earlier run does not trust them.
#[test]
fn a_job_with_a_read_only_log_restarts_and_is_completed_later() {
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    let scenario = ResumeScenario::new(Direction::Fetch, &["--sync=object"]);
    scenario.cut_off(KilledSide::Sink);
    let state = scenario.fixture.path("state/haul");
    let locked = Mounted::bind(&state, Access::ReadOnly).unwrap();
    let (summary, told) = scenario.finish(&[&format!("--state-dir={}", locked.path().display())]);
    assert!(told.contains("cannot be resumed"), "{told}");
    assert_eq!(summary["bytes_of_earlier_runs"], 0, "{summary}");
    assert_same_but_for_what_was_left(&scenario);
    locked.close().unwrap();
    scenario.finish(&[]);
    scenario.assert_whole("once it can be written");
}

/// Only the newer program can read the log: neither the log nor the files that it describes are
/// changed.
#[test]
fn a_newer_log_is_unchanged_and_the_job_runs_without_a_log() {
    let scenario = ResumeScenario::new(Direction::Fetch, &["--sync=object"]);
    scenario.cut_off(KilledSide::Sink);
    let index = scenario.jobs()[0].join("log/universal.index");
    let mut left = fs::read(&index).unwrap();
    newer::log(&mut left, 2);
    fs::write(&index, &left).unwrap();
    let (summary, told) = scenario.finish(&[]);
    assert!(told.contains("version 2") && told.contains("cannot be resumed"), "{told}");
    assert_eq!(summary["bytes_of_earlier_runs"], 0, "{summary}");
    assert_same_but_for_what_was_left(&scenario);
    assert!(fs::read(&index).unwrap() == left);
}

/// Another process takes the rest of the space between the two runs.
#[test]
fn a_job_with_a_full_state_directory_completes_and_is_cleaned_up_later() {
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    let state = Mounted::tmpfs(1).unwrap();
    let scenario = ResumeScenario::new(Direction::Fetch, &["--sync=object"]);
    fs::create_dir(scenario.fixture.path("state")).unwrap();
    let seen = Mounted::bind_at(&state.path(), &scenario.fixture.path("state")).unwrap();
    scenario.cut_off(KilledSide::Sink);
    fill(&state.path(), 0);
    scenario.finish(&[]);
    assert_same_but_for_what_was_left(&scenario);
    fs::remove_file(state.path().join("filler")).unwrap();
    scenario.finish(&[]);
    scenario.assert_whole("with room");
    seen.close().unwrap();
    state.close().unwrap();
}

#[test]
fn a_server_without_space_for_logs_warns_and_accepts_files() {
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    let fixture = Fixture::new();
    fixture.tree("data");
    for (name, words) in [("locked", "Read-only file system"), ("full", "No space left")] {
        fs::create_dir(fixture.path(name)).unwrap();
        let place = match name {
            "locked" => Mounted::bind(&fixture.path(name), Access::ReadOnly).unwrap(),
            _ => Mounted::tmpfs(1).unwrap(),
        };
        if name == "full" {
            fill(&place.path(), 0);
        }
        let server = fixture.serve(&["--root", "there", "--state-dir", place.path().to_str().unwrap()]);
        assert_ended(&fixture.run(&["send", "--ticket-file", "ticket", "data", &format!(":{name}")]), 0);
        let line = server.wait_for_log("cannot be resumed");
        assert!(line.contains(words), "{line}");
        assert_alike(&fixture.path("data"), &fixture.path("there").join(name).join("data"));
        assert_no_strays(&fixture.path("there"));
        drop(server);
        place.close().unwrap();
    }
}

/// A FUSE file system is not synced as a whole: haul syncs each file and then logs it.
#[test]
fn a_sink_that_syncs_file_by_file_resumes_after_a_kill() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let scenario = ResumeScenario::new(Direction::Fetch, &["--sync=object", "--verify=reread"]);
    for name in ["store", "in"] {
        fs::create_dir(scenario.fixture.path(name)).unwrap();
    }
    // The shortest delay, so that the file system reports each sync.
    let rules = "* fsync .. delay 1\n".parse().unwrap();
    let faults =
        FaultFs::mount(&scenario.fixture.path("store"), &scenario.fixture.path("in"), rules).unwrap();
    scenario.cut_off(KilledSide::Sink);
    let (finished, logged) = scenario.durable();
    assert!(logged > 0);
    let (summary, _) = scenario.finish(&[]);
    assert!(summary["bytes_of_earlier_runs"].as_u64().unwrap() >= finished + logged, "{summary}");
    scenario.assert_whole("FUSE");
    let synced: Vec<_> =
        faults.fired().into_iter().filter(|fired| fired.action == Action::Delay(1)).collect();
    let many = files_beneath(&scenario.source()).len();
    assert!(synced.len() >= many, "{} syncs of {many} files", synced.len());
    faults.close();
}

/// Asserts that all files are at the sink, and that files of the interrupted run wait to be
/// resumed.
fn assert_same_but_for_what_was_left(scenario: &ResumeScenario) {
    for path in files_beneath(&scenario.source()) {
        let name = path.strip_prefix(scenario.source()).unwrap();
        assert!(fs::read(scenario.sink().join(name)).unwrap() == fs::read(&path).unwrap(), "{name:?}");
    }
    assert!(files_beneath(&scenario.sink()).iter().any(|path| is_temporary(path)), "the job is not over");
}
