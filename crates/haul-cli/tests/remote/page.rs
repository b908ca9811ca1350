//! The page of `haul serve --web` in Chromium and Firefox: `haul-web/tests/page/*.test.mjs`, in a
//! test each.

use haul_lab::needs::{Need, met_or_skip, shown_or_skip};
use std::path::{Path, PathBuf};
use std::process::Command;

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../haul-web/tests/page").join(name)
}

/// Runs a file of tests under node.
fn run(name: &str) {
    if !met_or_skip(&[Need::Program("node")]) {
        return;
    }
    let found = Command::new("node").arg(script("needs.mjs")).output().unwrap();
    let found = String::from_utf8_lossy(&found.stdout);
    if !shown_or_skip(found.trim() == "ok", found.trim()) {
        return;
    }
    let mut tests = Command::new("node");
    // Limits the file, not each of its tests; these wait at most 45 s for each event.
    tests
        .args(["--test", "--test-timeout=280000"])
        .arg(script(name))
        .env("HAUL_BIN", env!("CARGO_BIN_EXE_haul"));
    let ended = tests.output().unwrap();
    let printed = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{printed}\n{}", String::from_utf8_lossy(&ended.stderr));
    assert!(!printed.contains("# pass 0"), "{printed}");
}

#[test]
fn the_page_starts_in_chromium() {
    run("world.test.mjs");
}

#[test]
fn the_panes_work_in_chromium() {
    run("panes.test.mjs");
}

#[test]
fn the_panes_copy_and_move_in_chromium() {
    run("panes-copy.test.mjs");
}

#[test]
fn the_panes_show_other_servers_in_chromium() {
    run("peers.test.mjs");
}

#[test]
fn long_listings_scroll_in_chromium() {
    run("panes-long.test.mjs");
}

#[test]
fn files_are_verified_and_repaired_in_chromium() {
    run("verify.test.mjs");
}

#[test]
fn jobs_of_the_page_copy_files_both_ways() {
    run("jobs-copy.test.mjs");
}

#[test]
fn jobs_of_the_page_resume_after_a_reload() {
    run("jobs-resume.test.mjs");
}

#[test]
fn jobs_of_the_page_survive_faults() {
    run("jobs-faults.test.mjs");
}

#[test]
fn jobs_of_the_page_run_in_one_tab_at_a_time() {
    run("jobs-tabs.test.mjs");
}

#[test]
fn jobs_of_the_page_save_files_by_the_browser() {
    run("save.test.mjs");
}

#[test]
fn the_drawer_of_the_page_shows_its_jobs() {
    run("drawer.test.mjs");
}

#[test]
fn the_activity_of_the_server_shows_in_chromium() {
    run("activity.test.mjs");
}

#[test]
fn jobs_of_the_page_survive_faults_of_the_server() {
    run("jobs-server.test.mjs");
}

#[test]
fn the_page_copies_both_ways_in_firefox() {
    run("firefox.test.mjs");
}

#[test]
fn the_page_continues_after_a_certificate_is_renewed() {
    run("certificate.test.mjs");
}

#[test]
fn lanes_of_the_page_need_a_certificate_that_the_browser_accepts() {
    run("certificate-lanes.test.mjs");
}

/// A file of tests that is not run here would be forgotten.
#[test]
fn every_file_of_tests_runs() {
    let here = include_str!("page.rs");
    for entry in script("").read_dir().unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".test.mjs") {
            assert!(here.contains(&format!("run(\"{name}\")")), "{name}");
        }
    }
}
