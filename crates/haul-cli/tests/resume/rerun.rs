//! Data that a resumed job trusts, compares again, and copies.

use super::{
    Fixture, OBJECT, RunResult, boot_id, edit_run_history, held_where, kill, logged_file, set_other_boot,
    write, write_run_history,
};
use crate::faults::fixture::{FaultFixture, HOLD, Running, deliver};
use haul_lab::mounts::{FsKind, shared_dir};
use haul_lab::wait_until;
use haul_log::record::{JobRecord, Status};
use rustix::process::{Pid, Signal};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;
use std::time::SystemTime;

#[test]
fn a_rerun_copies_only_missing_data() {
    let Some(fixture) = Fixture::to_cut_off(1) else { return };
    let total = {
        fixture.cut_off(&["--sync=object", "--threads=1"]);
        let claimed = fixture.claimed("interrupted");
        assert_eq!(fixture.record().status, Status::Running, "the killed process did not change the status");
        let ended = fixture.ends(&["--sync=object"]);
        ended.is_fine("the second run");
        assert!(ended.moved() <= ended.count("bytes") - claimed && claimed > 0, "{claimed}: {ended:?}");
        assert!(ended.stderr.contains("a sample of the objects it logged"), "{ended:?}");
        fixture.is_whole("the second run");
        ended.count("bytes_met")
    };
    let record = fixture.record();
    assert_eq!((record.status, record.exit, record.runs), (Status::Finished, Some(0), 2));
    assert_eq!(record.progress.bytes_done, total);
    assert!(record.progress.files_done == record.progress.files_found && record.ended.is_some());
    // A finished job starts again, and its durable files are kept.
    let again = fixture.ends(&["--sync=object"]);
    again.is_fine("restarted");
    assert_eq!((again.count("files_kept") > 0, fixture.record().runs), (true, 1), "{again:?}");
}

#[test]
fn a_copy_without_resume_keeps_no_state() {
    let fixture = Fixture::new(2);
    let output = fixture.haul(&["cp", "-aT", "source", "sink"]).output().unwrap();
    assert!(output.status.success() && !fixture.path("state").exists());
    for option in
        ["--sync=none", "--log-mechanism=file", "--log-encoding=int", "--verify-resume", "--state-dir=x"]
    {
        let output = fixture.haul(&["cp", option, "-aT", "source", "sink"]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && said.contains("needs --resume"), "{said}");
    }
    let refused =
        ["--print-hash", "--backup", "-n", "-u", "--remove-destination", "--waybill=w", "--length=5"];
    for option in
        refused.into_iter().chain(["--no-preserve=timestamps", "-s", "--attributes-only", "--verify=stream"])
    {
        let output = fixture.haul(&["cp", option, "--resume", "-aT", "source", "sink2"]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            output.status.code() == Some(1) && said.contains("cannot combine --resume with"),
            "{option}: {said}"
        );
        assert!(!fixture.path("sink2").exists());
    }
}

#[test]
fn an_interrupt_keeps_copied_data_and_a_clean_log() {
    let Some(faulty) = FaultFixture::new("") else { return };
    fs::create_dir(faulty.path("store/source")).unwrap();
    write(&faulty.path("store/source/victim"), 40 * OBJECT, 3);
    faulty.rules(&format!("*victim read {}.. delay {HOLD} times 1", 20 * OBJECT));
    let cp = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
        command.args(["cp", "-aT", "--resume", "--json", "--threads=1", "--split-size=64K", "--sync=object"]);
        command.arg("--state-dir").arg(faulty.path("state"));
        command.arg(faulty.path("view/source")).arg(faulty.path("sink")).env("LC_ALL", "C");
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        command
    };
    let child = cp().spawn().unwrap();
    faulty.held();
    deliver(Pid::from_child(&child), Signal::INT);
    faulty.release();
    let ended = RunResult::of(child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert!(ended.stderr.contains("interrupted: to resume, run: haul cp "), "{ended:?}");
    let sink = faulty.path("sink/victim");
    assert_eq!(fs::metadata(&sink).unwrap().mtime(), 0, "it does not look finished");
    faulty.rules("");
    let ended = RunResult::of(cp().output().unwrap());
    ended.is_fine("the second run");
    assert!(!ended.stderr.contains("sample"), "it ended in order: {ended:?}");
    assert!(ended.count("bytes_kept") >= 10 * OBJECT && ended.moved() <= 30 * OBJECT, "{ended:?}");
    assert!(fs::read(faulty.path("store/source/victim")).unwrap() == fs::read(sink).unwrap());
}

#[test]
fn a_lost_log_costs_reads_but_no_copies() {
    let fixture = Fixture::new(4);
    fixture.ends(&[]).is_fine("first");
    fs::remove_dir_all(fixture.path("state")).unwrap();
    let inode = fs::metadata(fixture.path("sink/large2")).unwrap().ino();
    // One object of a file differs, and the end of another file is missing.
    let sink = File::options().write(true).open(fixture.path("sink/large2")).unwrap();
    sink.write_all_at(b"rot", 3 * OBJECT + 5).unwrap();
    let cut = File::options().write(true).open(fixture.path("sink/large3")).unwrap();
    cut.set_len(2 * OBJECT + 7).unwrap();
    let rest = fs::metadata(fixture.path("source/large3")).unwrap().len() - 2 * OBJECT;
    let ended = fixture.ends(&[]);
    ended.is_fine("without a log");
    fixture.is_whole("without a log");
    // If links are kept, files with several names are created again. If workers process both names
    // concurrently, the second name may have lost its other name: its bytes are compared as well.
    let linked = fs::metadata(fixture.path("source/large0")).unwrap().len();
    let differs = OBJECT + rest;
    assert!([differs, differs + linked].contains(&ended.moved()), "{differs} {linked}: {ended:?}");
    assert_eq!(fs::metadata(fixture.path("sink/large2")).unwrap().ino(), inode);
}

#[test]
fn a_source_changed_between_runs_is_copied_in_its_new_state() {
    let Some(fixture) = Fixture::to_cut_off(5) else { return };
    fixture.cut_off(&["--sync=object", "--threads=1"]);
    let name = fixture.logged_file().0.replace("sink/", "source/");
    let len = fs::metadata(fixture.path(&name)).unwrap().len();
    write(&fixture.path(&name), len, 77);
    fixture.ends(&["--sync=object"]).is_fine("a new version");
    fixture.is_whole("a new version");
}

#[test]
fn a_recheck_detects_objects_that_differ_from_the_log() {
    for recheck in ["all", "none"] {
        let Some(fixture) = Fixture::to_cut_off(6) else { return };
        fixture.cut_off(&["--sync=object", "--threads=1"]);
        let (name, objects) = fixture.logged_file();
        let sink = File::options().read(true).write(true).open(fixture.path(&name)).unwrap();
        // The test changes one byte in place, so that the file keeps its length wherever its last
        // object ends.
        let victim = objects.last().unwrap() * OBJECT;
        let mut byte = [0];
        sink.read_exact_at(&mut byte, victim).unwrap();
        sink.write_all_at(&[!byte[0]], victim).unwrap();
        drop(sink);
        let ended = fixture.ends(&["--sync=object", &format!("--verify-resume={recheck}")]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let source = fs::read(fixture.path(&name.replace("sink/", "source/"))).unwrap();
        let is_right = source == fs::read(fixture.path(&name)).unwrap();
        assert_eq!(is_right, recheck == "all", "{recheck} {ended:?}");
        assert_eq!(ended.stderr.contains("differed from its log entry"), recheck == "all", "{ended:?}");
    }
}

#[test]
fn a_mismatch_in_the_sample_fails_and_the_next_run_compares_all() {
    let Some(fixture) = Fixture::to_cut_off(7) else { return };
    fixture.cut_off(&["--sync=object", "--threads=1"]);
    let (name, objects) = fixture.logged_file();
    // The first object of each file is in every sample.
    let sink = File::options().write(true).open(fixture.path(&name)).unwrap();
    sink.write_all_at(b"other", objects[0] * OBJECT).unwrap();
    drop(sink);
    let ended = fixture.ends(&["--sync=object", "--verify-resume=sample", "--threads=1"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.stderr.contains("differs from its log entry")
            && ended.stderr.contains("run the same command again"),
        "{ended:?}"
    );
    assert_eq!(fixture.record().status, Status::Failed);
    fixture.ends(&["--sync=object"]).is_fine("after that");
    fixture.is_whole("after that");
}

#[test]
fn a_sample_does_not_change_finished_files_and_detects_lost_data() {
    let fixture = Fixture::empty();
    fs::create_dir(fixture.path("source")).unwrap();
    // With this number of objects, each sample contains some of them.
    write(&fixture.path("source/large"), 400 * OBJECT + 5, 12);
    // The file that was finished last is not in the range of times that are known to be durable.
    write(&fixture.path("source/small"), OBJECT, 13);
    fixture.ends(&["--sync=object"]).is_fine("first");
    let sink = fixture.path("sink/large");
    let finished = fs::metadata(&sink).unwrap();
    let cut_off = || {
        // As if the job had been interrupted at its very end. Any file written until now looks
        // finished.
        let mut record = fixture.record();
        record.status = Status::Running;
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos();
        record.kept.iter_mut().for_each(|kept| kept.until = i128::try_from(now).unwrap());
        assert!(!record.kept.is_empty());
        fs::write(fixture.job().join("record"), record.encode()).unwrap();
        write_run_history(&fixture.job(), &format!("{} 1000 0 object 1060\n", boot_id()));
    };
    cut_off();
    let again = fixture.ends(&["--sync=object", "--verify-resume=sample"]);
    assert_eq!(again.is_fine("nothing was lost").count("files_kept"), 2, "{again:?}");
    let left = fs::metadata(&sink).unwrap();
    let changed = |stat: &fs::Metadata| (stat.ino(), stat.ctime(), stat.ctime_nsec());
    assert_eq!(changed(&left), changed(&finished), "it was written into");
    let lost = File::options().write(true).open(&sink).unwrap();
    lost.write_all_at(&vec![0; finished.len().try_into().unwrap()], 0).unwrap();
    lost.set_modified(finished.modified().unwrap()).unwrap();
    cut_off();
    let none = fixture.ends(&["--sync=object", "--verify-resume=none"]);
    assert_eq!(none.is_fine("the log is trusted").count("files_kept"), 2, "{none:?}");
    cut_off();
    let found = fixture.ends(&["--sync=object", "--verify-resume=sample"]);
    assert!(found.code == Some(1) && found.stderr.contains("differs from its log entry"), "{found:?}");
    fixture.is_whole("what was lost is there again");
    fixture.ends(&["--sync=object"]).is_fine("after that");
    fixture.is_whole("after that");
}

#[test]
fn a_foreign_file_with_matching_size_and_time_is_not_trusted() {
    let fixture = Fixture::new(8);
    fixture.ends(&[]).is_fine("first");
    // The file has the size and time of the source, and other bytes: no run of this job finished
    // it.
    let name = "dir/small3";
    let source = fs::read(fixture.path("source").join(name)).unwrap();
    let mtime = fs::metadata(fixture.path("source").join(name)).unwrap().modified().unwrap();
    fs::write(fixture.path("sink").join(name), vec![7; source.len()]).unwrap();
    File::options().write(true).open(fixture.path("sink").join(name)).unwrap().set_modified(mtime).unwrap();
    fixture.ends(&[]).is_fine("again");
    fixture.is_whole("again");
}

#[test]
fn unsynced_data_is_trusted_until_the_next_boot() {
    for lives in [true, false] {
        let fixture = Fixture::new(9);
        fixture.ends(&["--sync=object"]).is_fine("first");
        let mut record = fixture.record();
        assert!(!record.kept.is_empty() && !record.boot.is_empty());
        // As if a run without syncs had been interrupted at its very end.
        record.status = Status::Running;
        fs::write(fixture.job().join("record"), record.encode()).unwrap();
        write_run_history(&fixture.job(), &format!("{} 1000 0 none 1060\n", boot_id()));
        if !lives {
            set_other_boot(&fixture.job());
        }
        let ended = fixture.ends(&["--sync=none", "--verify-resume=none"]);
        ended.is_fine("the second run");
        fixture.is_whole("the second run");
        assert_eq!(ended.stderr.contains("comparing all logged objects"), !lives, "{ended:?}");
        assert_eq!(ended.count("files_kept") > 0, lives, "{ended:?}");
    }
}

/// The sync policy of a resumed run says nothing about earlier runs. In earlier versions the first
/// runs synced nothing and power was lost. A run that synced then trusted their log, and so did a
/// run after another run on this boot that had done nothing.
#[test]
fn unsynced_data_is_compared_after_a_reboot_whatever_later_runs_sync() {
    for (was_run_again, is_damaged) in [(false, false), (true, false), (true, true)] {
        let Some(fixture) = Fixture::to_cut_off(79) else { return };
        fixture.cut_off(&["--sync=object", "--threads=1"]);
        let job = fixture.job();
        let record = fs::read(job.join("record")).unwrap();
        set_other_boot(&job);
        edit_run_history(&job, |lines| lines.replace(" object ", " none "));
        if is_damaged {
            fs::write(job.join("begun"), "").unwrap();
        }
        if was_run_again {
            // Before it ended, such a run did nothing but record its boot.
            fs::write(job.join("record"), record).unwrap();
        }
        let (name, objects) = fixture.logged_file();
        let sink = File::options().write(true).open(fixture.path(&name)).unwrap();
        sink.write_all_at(b"lost", objects[0] * OBJECT).unwrap();
        drop(sink);
        let ended = fixture.ends(&["--sync=group", "--verify-resume=none"]);
        ended.is_fine("the last run");
        assert!(
            ended.stderr.contains("comparing all logged objects"),
            "{was_run_again}, {is_damaged}: {ended:?}"
        );
        fixture.is_whole("the last run");
        assert!(!job.join("begun").exists(), "it goes with the job");
    }
}

/// The clock may have stepped back across the reboot. Files that this run finishes may have the
/// same times as files that the power loss damaged.
#[test]
fn file_times_of_an_earlier_boot_are_not_trusted_after_a_reboot() {
    for is_another_life in [false, true] {
        let fixture = Fixture::new(80);
        fixture.ends(&["--sync=object"]).is_fine("the first run");
        // As if the job had been interrupted at its very end.
        let job = fixture.job();
        let record = JobRecord { status: Status::Running, ..fixture.record() };
        fs::write(job.join("record"), record.encode()).unwrap();
        // The clock had reached the year 2100.
        write_run_history(&job, &format!("{} 1000 0 object 4102444800\n", boot_id()));
        if is_another_life {
            set_other_boot(&job);
        }
        fs::remove_dir_all(fixture.path("sink")).unwrap();
        fixture.ends(&["--sync=object", "--threads=1"]).is_fine("the second run");
        fixture.is_whole("the second run");
        let kept = fixture.record().kept;
        let is_told = kept.iter().any(|kept| !record.kept.contains(kept));
        assert_eq!(is_told, !is_another_life, "{:?}, then {kept:?}", record.kept);
    }
}

/// The directory that the copy was to become exists when the same command runs again. For `cp` the
/// command then names another place.
#[test]
fn a_copy_to_a_new_name_resumes_at_that_name() {
    let Some(fixture) = Fixture::to_cut_off(78) else { return };
    let words = [
        "cp",
        "-a",
        "--resume",
        "--json",
        "--split-size=64K",
        "--sync=object",
        "--threads=1",
        "source",
        "sink",
    ];
    fixture.cut_off_words(&words);
    let again = RunResult::of(fixture.haul(&words).output().unwrap());
    assert!(again.is_fine("the second run").count("bytes_kept") > 0, "{again:?}");
    fixture.is_whole("the second run");
    assert!(!fixture.path("sink/source").exists());
    // Without `--json`, which prints the counts.
    let words: Vec<&str> = words.into_iter().filter(|word| *word != "--json").collect();
    let complete = fixture.haul(&words).output().unwrap();
    let reported = String::from_utf8(complete.stderr).unwrap();
    assert!(complete.status.success() && reported.contains("haul cp: already complete: "), "{reported}");
    assert!(!fixture.path("sink/source").exists());
    // After `--restart` the target is a directory to copy into, as with cp.
    let restarted = fixture.haul(&[&words[..], &["--restart"]].concat()).output().unwrap();
    assert!(restarted.status.success(), "{restarted:?}");
    assert!(!fixture.record().words.iter().any(|word| word == b"--restart"), "a later run resumes the job");
    assert!(fixture.path("sink/source/large1").exists());
}

/// haul strips the slashes only if the copy goes into a directory. The job of the first run was
/// identified by the source with slashes.
#[test]
fn a_copy_to_a_new_name_resumes_with_stripped_slashes() {
    let fixture = Fixture::new(78);
    let words = ["cp", "-r", "--resume", "--strip-trailing-slashes", "source/", "sink"];
    for run in ["first", "again"] {
        let ended = fixture.haul(&words).output().unwrap();
        assert!(ended.status.success(), "{run}: {ended:?}");
        assert!(!fixture.path("sink/source").exists(), "{run}");
    }
}

/// A finished file that differs from its source is copied again, and no other file.
#[test]
fn only_a_changed_small_file_is_copied_again() {
    let fixture = Fixture::empty();
    fs::create_dir(fixture.path("source")).unwrap();
    for number in 0..20_u8 {
        fs::write(fixture.path(&format!("source/{number}")), vec![number; 8000]).unwrap();
    }
    fixture.ends(&[]).is_fine("the first run");
    File::options().write(true).open(fixture.path("sink/7")).unwrap().set_len(8001).unwrap();
    let again = fixture.ends(&[]);
    assert_eq!(again.is_fine("the second run").moved(), 8000, "{again:?}");
    fixture.is_whole("the second run");
}

/// The directory was held by an O_PATH descriptor, which syncfs(2) does not accept if it syncs the
/// complete file system.
#[test]
fn files_copied_into_a_directory_are_synced() {
    for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
        let Some(room) = shared_dir(kind) else { continue };
        for (number, words) in [
            &["f", "d"][..],
            &["f", "g", "d"],
            &["-t", "d", "f"],
            &["--sync=object", "f", "d"],
            &["--sync=object", "-t", "d", "f", "g"],
            &["f", "d/new"],
        ]
        .iter()
        .enumerate()
        {
            let fixture = Fixture { home: tempfile::tempdir_in(room.path()).unwrap() };
            fs::create_dir(fixture.path("d")).unwrap();
            ["f", "g"].iter().for_each(|name| fs::write(fixture.path(name), name).unwrap());
            let output = fixture.haul(&[&["cp", "--resume"], *words].concat()).output().unwrap();
            assert!(output.status.success() && output.stderr.is_empty(), "{kind:?} {words:?}: {output:?}");
            let names = fs::read_dir(fixture.path("d")).unwrap().count();
            assert_eq!(names, if words.contains(&"g") { 2 } else { 1 }, "{kind:?} {number}");
        }
    }
}

/// A truncated file gets more than its length before its objects are copied again. In earlier
/// versions the log then claimed lost objects.
#[test]
fn log_entries_of_a_truncated_file_are_revoked_before_it_grows() {
    let Some(fixture) = Fixture::to_cut_off(8) else { return };
    let job = fixture.cp(&["--sync=object", "--threads=1"]);
    // The repeated objects follow the next sync; the log claims more than these.
    let is_begun = |(_, objects): &(String, Vec<u64>)| objects.len() > 2;
    let logged = || fixture.facts_or_none().as_ref().and_then(logged_file).filter(is_begun);
    kill(&mut held_where(&job, || logged().is_some()));
    let (name, _) = logged().unwrap();
    let sink = fixture.path(&name);
    File::options().write(true).open(&sink).unwrap().set_len(1).unwrap();
    let len = fs::metadata(fixture.path(&name.replace("sink/", "source/"))).unwrap().len();
    let grows = || fs::metadata(&sink).unwrap().len() > len;
    kill(&mut held_where(&job, grows));
    fixture.claimed("the file has grown");
    fixture.ends(&["--sync=object"]).is_fine("after that");
    fixture.is_whole("after that");
}

/// In earlier versions a group that was logged before the sync of its file claimed objects that a
/// power loss removes.
#[test]
fn no_object_is_logged_before_the_sync_of_its_file() {
    // The job waits for its last object, so that its file is in progress when the group is due. The
    // group waits for the sync.
    let from = FaultFixture::new(&format!("file read {}.. delay {HOLD} times 1", 7 * OBJECT));
    let to = FaultFixture::new(&format!("file fsync .. delay {HOLD} times 1"));
    let (Some(from), Some(to)) = (from, to) else { return };
    write(&from.path("store/file"), 8 * OBJECT, 3);
    let fixture = Fixture::empty();
    let words = ["cp", "--resume", "--split-size=64K", "--threads=1", "--sync=group"];
    let job = Running::new(fixture.haul(&words).args([from.path("view/file"), to.path("view/file")]));
    from.held();
    to.held();
    let logged = || fixture.facts().iter().map(|(_, objects)| objects.len()).sum::<u64>();
    let too_early = logged();
    to.release();
    wait_until("a log of the objects that were synced", || logged() == 7);
    from.release();
    job.end().is_fine();
    assert_eq!(too_early, 0, "objects were logged before the sync");
    assert!(fs::read(from.path("store/file")).unwrap() == fs::read(to.path("store/file")).unwrap());
}

#[test]
fn files_with_objects_of_an_earlier_run_are_not_reported_as_reread() {
    let Some(fixture) = Fixture::to_cut_off(11) else { return };
    let options = ["--sync=object", "--threads=1", "--verify=reread"];
    fixture.cut_off(&options);
    let (name, objects) = fixture.logged_file();
    // Without the objects that the log lacks, which would be compared.
    let sink = File::options().write(true).open(fixture.path(&name)).unwrap();
    sink.set_len((objects.last().unwrap() + 1) * OBJECT).unwrap();
    let output = fixture.cp(&options).output().unwrap();
    let lines = String::from_utf8(output.stdout.clone()).unwrap();
    let ended = RunResult::of(output);
    ended.is_fine("the second run");
    assert!(ended.count("bytes_kept") > 0, "{ended:?}");
    let line = lines.lines().find(|line| line.contains("\"proof\"") && line.contains(&name));
    let line = line.unwrap_or_else(|| panic!("{name}: {lines}"));
    assert!(line.contains("\"proof\":\"durable\""), "{line}");
}
