//! Files larger than the available memory: a read-back must come from the device. The kernel counts
//! the bytes that the process reads from devices.

use super::fixture::{HAUL, noise};
use haul_lab::mounts::SmallFs;
use haul_lab::needs::{Need, met_or_skip, shown_or_skip};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const MIB: u64 = 1 << 20;

/// A memory control group of version 1 or 2. It is removed when the value is dropped.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// Creates a group with a limit of `limit` bytes, including the page cache. Returns `None` and
    /// prints a message if no group can be created.
    fn new(limit: u64) -> Option<MemoryGroup> {
        // Control groups have no namespace here, and tests in PID namespaces have the same process
        // IDs.
        let unique = tempfile::NamedTempFile::with_prefix("haul-test-").unwrap();
        let name = unique.path().file_name().unwrap().to_owned();
        let root = Path::new("/sys/fs/cgroup");
        let places = [(root.join("memory"), "memory.limit_in_bytes"), (root.to_owned(), "memory.max")];
        let made = places.iter().find_map(|(place, file)| {
            let group = MemoryGroup(place.join(&name));
            fs::create_dir(&group.0).ok()?;
            // If this fails, dropping the value removes the group.
            fs::write(group.0.join(file), limit.to_string()).ok()?;
            Some(group)
        });
        shown_or_skip(made.is_some(), "the right to make a memory group").then_some(made).flatten()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Only version 1 has this file: pages of files would keep the group alive.
        let _ = fs::write(self.0.join("memory.force_empty"), "1");
        let _ = fs::remove_dir(&self.0);
    }
}

/// Result of a command in a group.
struct Limited {
    /// The events of `--json`.
    told: Vec<serde_json::Value>,
    /// Bytes that the command read from devices.
    from_devices: u64,
}

impl Limited {
    /// Returns the level reached for the file of this name.
    fn proof(&self, name: &str) -> &str {
        let is_it =
            |event: &&serde_json::Value| event["sink"].as_str().is_some_and(|sink| sink.ends_with(name));
        self.told.iter().find(is_it).and_then(|event| event["proof"].as_str()).unwrap_or_default()
    }
}

/// Runs `haul cp` in the group until it exits.
fn copy(group: &MemoryGroup, verify: &str, source: &Path, sink: &Path) -> Limited {
    haul(group, &["cp".as_ref(), "-rT".as_ref(), "--json".as_ref(), verify.as_ref(), source, sink])
}

/// Runs `haul` in the group until it exits.
fn haul(group: &MemoryGroup, args: &[&Path]) -> Limited {
    let line = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
    let mut command = Command::new("sh");
    let state = tempfile::tempdir().unwrap();
    command.env("XDG_STATE_HOME", state.path());
    command.args(["-c", line]).arg(&group.0).arg(HAUL).args(args);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The output fits into a pipe. The test can therefore wait for the exit first, and read the
    // counters before it reaps the process.
    waitid(WaitId::Pid(Pid::from_child(&child)), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
    let io = fs::read_to_string(format!("/proc/{}/io", child.id())).unwrap();
    let from_devices =
        io.lines().find_map(|line| line.strip_prefix("read_bytes: ")).unwrap().parse().unwrap();
    let output = child.wait_with_output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Limited { told: stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), from_devices }
}

#[test]
fn hybrid_rereads_a_file_larger_than_memory_from_the_device() {
    let memory = Path::new("/dev/shm");
    let needs = [Need::Root, Need::Loop, Need::Program("mkfs.ext4"), Need::Path("/dev/shm")];
    if !met_or_skip(&needs) {
        return;
    }
    let Some(group) = MemoryGroup::new(48 * MIB) else { return };
    let small = SmallFs::new(256).unwrap();
    // The source is in memory, so that all reads from a device are reads of the copy.
    let home = tempfile::tempdir_in(memory).unwrap();
    let (large, little) = (96 * MIB + 5, 3 * MIB);
    fs::write(home.path().join("large"), noise(large)).unwrap();
    fs::write(home.path().join("little"), noise(little)).unwrap();
    let sink = small.path().join("sink");

    let reread = copy(&group, "--verify=reread", home.path(), &sink);
    assert_eq!((reread.proof("large"), reread.proof("little")), ("re-read", "re-read"));
    assert!(reread.from_devices >= large + little, "{} bytes came from devices", reread.from_devices);
    fs::remove_dir_all(&sink).unwrap();

    let cached = copy(&group, "--verify=cached", home.path(), &sink);
    assert_eq!((cached.proof("large"), cached.proof("little")), ("verified", "verified"));
    assert!(cached.from_devices < large / 2, "{} bytes came from devices", cached.from_devices);
    fs::remove_dir_all(&sink).unwrap();

    let hybrid = copy(&group, "--verify=hybrid", home.path(), &sink);
    assert_eq!((hybrid.proof("large"), hybrid.proof("little")), ("re-read", "received"));
    assert!(hybrid.from_devices >= large, "{} bytes came from devices", hybrid.from_devices);
    for name in ["large", "little"] {
        assert!(fs::read(home.path().join(name)).unwrap() == fs::read(sink.join(name)).unwrap(), "{name}");
    }
    drop(group);
    small.close().unwrap();
}

/// The sink is a fetch whose memory can hold one of the files and not the other. The memory of the
/// source is unlimited.
#[test]
fn fetch_rereads_reported_bytes_and_hybrid_only_large_files() {
    let memory = Path::new("/dev/shm");
    let needs = [Need::Root, Need::Loop, Need::Program("mkfs.ext4"), Need::Path("/dev/shm")];
    if !met_or_skip(&needs) {
        return;
    }
    let Some(group) = MemoryGroup::new(64 * MIB) else { return };
    let small = SmallFs::new(256).unwrap();
    let home = tempfile::tempdir_in(memory).unwrap();
    let (large, little, tiny) = (112 * MIB + 5, 3 * MIB, 3000);
    for (name, len) in [("large", large), ("little", little), ("tiny", tiny)] {
        fs::write(home.path().join(name), noise(len)).unwrap();
    }
    let mut server = Command::new(HAUL)
        .args(["serve", "--plain", "-q", "--read-only", "--keep-owner", "--listen=127.0.0.1:0", "--root"])
        .arg(home.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ticket = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut ticket).unwrap();
    let ticket_file = small.path().join("ticket");
    fs::write(&ticket_file, ticket).unwrap();
    fs::set_permissions(&ticket_file, fs::Permissions::from_mode(0o600)).unwrap();

    for (verify, proofs, least, most) in [
        ("reread", ["re-read", "re-read", "re-read"], large + little + tiny, u64::MAX),
        ("hybrid", ["re-read", "verified", "verified"], large, u64::MAX),
        ("stream", ["verified", "verified", "verified"], 0, large / 2),
    ] {
        let sink = small.path().join(verify);
        fs::create_dir(&sink).unwrap();
        let verify = format!("--verify={verify}");
        let options =
            ["fetch", "--plain", "-q", "--json", "--buffers=8M", "--streams=2", &verify, "--ticket-file"];
        let args: Vec<&Path> = options.iter().map(Path::new).collect();
        let paths =
            [ticket_file.as_path(), Path::new(":large"), Path::new(":little"), Path::new(":tiny"), &sink];
        let fetched = haul(&group, &[&args[..], &paths].concat());
        let told = |name: &str| {
            let is_it = |event: &&serde_json::Value| event["path"] == name;
            fetched.told.iter().find(is_it).and_then(|event| event["proof"].as_str()).unwrap_or_default()
        };
        assert_eq!([told("large"), told("little"), told("tiny")], proofs, "{verify}");
        let read = fetched.from_devices;
        assert!(least <= read && read <= most, "{read} bytes came from devices with {verify}");
        for name in ["large", "little", "tiny"] {
            assert!(
                fs::read(home.path().join(name)).unwrap() == fs::read(sink.join(name)).unwrap(),
                "{name}"
            );
        }
        fs::remove_dir_all(&sink).unwrap();
    }
    server.kill().unwrap();
    server.wait().unwrap();
    drop(group);
    small.close().unwrap();
}

/// Runs twice: the second run reads again what the page cache could keep from the first one.
#[test]
fn verifying_reads_every_byte_from_the_device_each_time() {
    if !met_or_skip(&[Need::Root, Need::Loop, Need::Program("mkfs.ext4")]) {
        return;
    }
    let Some(group) = MemoryGroup::new(48 * MIB) else { return };
    let small = SmallFs::new(256).unwrap();
    let (large, little) = (96 * MIB + 5, 3 * MIB);
    let data = small.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("large"), noise(large)).unwrap();
    fs::write(data.join("little"), noise(little)).unwrap();
    let waybill = small.path().join("w");
    super::fixture::haul(["sum".as_ref(), "-r".as_ref(), "--waybill".as_ref(), &*waybill, &*data]).is_fine();
    for _ in 0..2 {
        let verified = haul(&group, &["verify".as_ref(), "--json".as_ref(), &waybill, &data]);
        assert_eq!(verified.told.last().unwrap()["intact"], 2);
        let came = verified.from_devices;
        assert!(came >= large + little, "{came} bytes came from devices");
    }
    drop(group);
    small.close().unwrap();
}
