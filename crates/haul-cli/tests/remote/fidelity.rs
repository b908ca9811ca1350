//! Arriving files are identical to the sent ones: each kind of file, over each kind of connection.

use super::{Fixture, assert_ended, assert_no_strays, inside};
use crate::filesystems::everything::{self, Holds};
use haul_lab::emulated_link::{self, EmulatedLink, End};
use haul_lab::faults::{FaultFs, Rules};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::random_tree::RandomTree;
use haul_lab::snapshot::{Facets, Snapshot};
use rustix::fs::{XattrFlags, lgetxattr, lsetxattr};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Asserts that two trees agree in everything that haul keeps.
#[track_caller]
fn assert_same(one: &Path, other: &Path) {
    let (one, other) = (Snapshot::take(one).unwrap(), Snapshot::take(other).unwrap());
    one.assert_same(&other, Facets::ALL);
}

/// Options that let the receiver accept everything.
pub(super) const ACCEPT_ALL: [&str; 4] = ["--setuid", "--specials", "--outside-links", "--system-xattrs"];

/// The same for a server.
const SERVE_ALL: [&str; 5] =
    ["--keep-owner", "--keep-setuid", "--specials", "--outside-links", "--system-xattrs"];

#[test]
fn every_file_type_arrives_by_every_transport() {
    if !met_or_skip(&[Need::Root]) {
        return;
    }
    let fixture = Fixture::new();
    everything::build(&fixture.path("data"), Holds { lists: true, attributes: true });
    let over_ssh = |args: &[&str]| fixture.over_ssh("send", &[&ACCEPT_ALL, args].concat());
    assert_ended(&over_ssh(&["data", "localhost:ssh"]), 0);
    assert_same(&fixture.path("data"), &fixture.path("there/ssh/data"));
    assert_ended(&over_ssh(&["--inside-ssh", "data", "localhost:inside"]), 0);
    assert_same(&fixture.path("data"), &fixture.path("there/inside/data"));
    assert_ended(&fixture.over_ssh("fetch", &[&ACCEPT_ALL[..], &["localhost:ssh/data", "back"]].concat()), 0);
    assert_same(&fixture.path("data"), &fixture.path("back/data"));
    let there = fixture.path("there");
    let root = ["--root", there.to_str().unwrap()];
    let _server = fixture.serve(&[&root[..], &SERVE_ALL].concat());
    assert_ended(&fixture.run(&["send", "--ticket-file", "ticket", "data", ":ticket"]), 0);
    assert_same(&fixture.path("data"), &fixture.path("there/ticket/data"));
    let fetched = ["--ticket-file", "ticket", ":ticket/data", "home"];
    assert_ended(&fixture.run(&[&["fetch"], &ACCEPT_ALL[..], &fetched].concat()), 0);
    assert_same(&fixture.path("data"), &fixture.path("home/data"));
    let _plain = fixture.serve(&[&root[..], &SERVE_ALL, &["--plain"]].concat());
    assert_ended(&fixture.run(&["send", "--plain", "--ticket-file", "ticket", "data", ":plain"]), 0);
    assert_same(&fixture.path("data"), &fixture.path("there/plain/data"));
    assert_ended(&over_ssh(&["--plain", "data", "localhost:beside"]), 0);
    assert_same(&fixture.path("data"), &fixture.path("there/beside/data"));
    assert_no_strays(&fixture.path("there"));
}

/// Regression: a directory that was created for the destination of a send had mode 0700.
#[test]
fn names_whose_mode_is_not_sent_get_the_umask_of_the_receiver() {
    use std::os::unix::fs::PermissionsExt as _;
    let fixture = Fixture::new();
    fixture.tree("data");
    fs::create_dir(fixture.path("made")).unwrap();
    let mode = |name: &str| fs::metadata(fixture.path(name)).unwrap().permissions().mode() & 0o777;
    assert_ended(&fixture.over_ssh("send", &["data/small", "localhost:new"]), 0);
    let _server = fixture.serve(&["--root", "there"]);
    assert_ended(&fixture.run(&["send", "--ticket-file=ticket", "data/small", ":a/b"]), 0);
    assert_ended(&fixture.run(&["send", "--ticket-file=ticket", "--no-mode", "data", ":c"]), 0);
    assert_ended(&fixture.run(&["fetch", "--ticket-file=ticket", ":a/b/small", "fetched"]), 0);
    for name in
        ["there/new", "there/a", "there/a/b", "there/c", "there/c/data", "there/c/data/sub", "fetched"]
    {
        assert_eq!(mode(name), mode("made"), "{name}");
    }
}

/// Regression: stored digests were sent like other files, and `verify` at the receiver trusts them.
#[test]
fn stored_digests_arrive_only_where_the_receiver_accepts_them() {
    let fixture = Fixture::new();
    fixture.tree("data");
    assert_ended(&fixture.run(&["sum", "-r", "--store=tree", "data"]), 0);
    assert_ended(&fixture.run(&["sum", "--store=xattr", "data/small"]), 0);
    let has_sums = |tree: &str| {
        let has_attribute =
            lgetxattr(fixture.path(tree).join("small"), "user.surehaul.sums", &mut [0; 0]).is_ok();
        let has_tree = fixture.path(tree).join(".haul/sums/small").exists();
        assert_eq!(fixture.path(tree).join(".haul").exists(), has_tree, "{tree}");
        assert_eq!(has_attribute, has_tree, "{tree}");
        has_tree
    };
    assert!(has_sums("data"));
    let left_out = |ran: &super::RunResult| {
        assert_ended(ran, 0);
        ran.err.matches("digests stored with files are left out").count()
    };
    let sent = fixture.over_ssh("send", &["data", "localhost:a"]);
    assert_eq!((left_out(&sent), has_sums("there/a/data")), (1, false), "{}", sent.err);
    let sent = fixture.over_ssh("send", &["--stored-sums", "data", "localhost:b"]);
    assert_eq!((left_out(&sent), has_sums("there/b/data")), (0, true), "{}", sent.err);
    let fetched = fixture.over_ssh("fetch", &["localhost:b/data", "c"]);
    assert_eq!((left_out(&fetched), has_sums("c/data")), (1, false), "{}", fetched.err);
    assert_eq!(left_out(&fixture.over_ssh("fetch", &["--stored-sums", "localhost:b/data", "d"])), 0);
    assert!(has_sums("d/data"));
    assert_ended(&fixture.run(&["verify", "d/data"]), 0);
    for (options, is_accepted, to) in [(&[][..], false, "e"), (&["--stored-sums"], true, "f")] {
        let _server = fixture.serve(&[&["--root", "there"], options].concat());
        let sent = fixture.run(&["send", "--ticket-file=ticket", "data", &format!(":{to}")]);
        assert_eq!(left_out(&sent), usize::from(!is_accepted), "{}", sent.err);
        assert_eq!(has_sums(&format!("there/{to}/data")), is_accepted);
        // The receiver of a fetch decides, not the server.
        let into = format!("g{to}");
        let fetched = ["fetch", "--stored-sums", "--ticket-file=ticket", ":b/data", &into];
        assert_ended(&fixture.run(&fetched), 0);
        assert!(has_sums(&format!("{into}/data")));
    }
    // Local copies have everything, as those of GNU.
    assert_ended(&fixture.run(&["cp", "-a", "data", "copy"]), 0);
    assert!(has_sums("copy"));
}

/// Two networks with a round trip time of 20 ms between them. Each side sees only its own network.
#[test]
fn every_file_type_arrives_between_two_hosts() {
    const PORT: u16 = 7433;
    if !met_or_skip(&[Need::Root, Need::Links]) {
        return;
    }
    let profile =
        emulated_link::LinkProfile { delay: Duration::from_millis(10), rate: None, queue: 16 << 20 };
    let link = EmulatedLink::make(&format!("haul-kept-{}", std::process::id()), profile).unwrap();
    let fixture = Fixture::new();
    everything::build(&fixture.path("data"), Holds { lists: true, attributes: true });
    let listen = format!("{}:{PORT}", End::Far.address());
    for (at, encryption) in [&[][..], &["--plain"]].into_iter().enumerate() {
        let root = ["serve", "--root", "there", "--listen", &listen];
        let serve = fixture.haul(&[&root[..], &SERVE_ALL, encryption].concat());
        let server = fixture.serve_by(inside(&link.namespace(End::Far), &serve));
        let (there, back) = (format!(":{at}"), format!("back{at}"));
        let sent = [&["send", "--ticket-file=ticket"], encryption, &["data", &there]].concat();
        let fetched = format!("{there}/data");
        let fetched =
            [&["fetch", "--ticket-file=ticket"], &ACCEPT_ALL[..], encryption, &[&fetched, &back]].concat();
        for job in [sent, fetched] {
            let ended = inside(&link.namespace(End::Near), &fixture.haul(&job)).output().unwrap();
            assert!(ended.status.success(), "{job:?}: {}", String::from_utf8_lossy(&ended.stderr));
        }
        assert_same(&fixture.path("data"), &fixture.path("there").join(&there[1..]).join("data"));
        assert_same(&fixture.path("data"), &fixture.path(&back).join("data"));
        drop(server);
    }
    assert_no_strays(&fixture.path("there"));
    link.close().unwrap();
}

#[test]
fn random_trees_arrive_complete() {
    let fixture = Fixture::new();
    for seed in 0..7 {
        let name = format!("tree{seed}");
        RandomTree::default().build(&fixture.path(&name), seed).unwrap();
        let verify = ["none", "stream", "reread", "hybrid", "sequential", "file-pipeline", "block-pipeline"]
            [seed as usize];
        let verify = format!("--verify={verify}");
        assert_ended(
            &fixture.over_ssh(
                "send",
                &[&ACCEPT_ALL[..], &[&verify, "--object-size=64K", &name, "localhost:"]].concat(),
            ),
            0,
        );
        assert_same(&fixture.path(&name), &fixture.path("there").join(&name));
    }
    assert_no_strays(&fixture.path("there"));
}

#[test]
fn every_digest_and_granularity_transfers_correctly() {
    let fixture = Fixture::new();
    fixture.tree("data");
    for (at, options) in [
        &["-a", "md5"][..],
        &["-a", "md5", "--granularity=file"],
        &["-a", "sha256", "--granularity=file", "--streams=1"],
        &["-a", "crc32c"],
        &["-a", "blake3", "--granularity=file"],
        &["-a", "xxh3-64", "--inplace"],
        &["-a", "sha1", "--granularity=file"],
        &["-a", "crc32", "--granularity=file"],
        &["-a", "crc64nvme", "--granularity=file", "--verify=file-pipeline"],
        &["-a", "sha1", "--verify=sequential"],
        &["-a", "md5", "--verify=block-pipeline"],
        &["-a", "adler32", "--verify=hybrid"],
    ]
    .into_iter()
    .enumerate()
    {
        let target = format!("localhost:to{at}");
        assert_ended(
            &fixture.over_ssh("send", &[options, &["--object-size=64K", "data", &target]].concat()),
            0,
        );
        assert_same(&fixture.path("data"), &fixture.path(&format!("there/to{at}/data")));
    }
}

/// For a serial digest, a lane hashes several objects in parallel before it sends them. The sink
/// hashes them one by one and gets the same digests.
#[test]
fn digests_hashed_in_parallel_match_those_of_the_sink() {
    let fixture = Fixture::new();
    for (at, len) in [(3 << 20) + 17, 5 << 20, 1 << 20].into_iter().enumerate() {
        fixture.file(&format!("data/{at}"), len);
    }
    for algorithm in ["md5", "sha1", "sha224", "sha256", "sha384", "sha512"] {
        for streams in ["--streams=1", "--streams=3"] {
            let target = format!("localhost:{algorithm}{streams}");
            let options =
                ["--json", "-a", algorithm, "--object-size=64K", streams, "--waybill=w", "data", &target];
            let ended = fixture.over_ssh("send", &options);
            assert_ended(&ended, 0);
            let summary: serde_json::Value = serde_json::from_str(ended.out.lines().last().unwrap()).unwrap();
            assert_eq!(summary["objects_sent_again"], 0, "{ended:?}");
            assert_same(&fixture.path("data"), &fixture.path(&format!("there/{algorithm}{streams}/data")));
            assert_ended(&fixture.run(&["verify", "-q", "w", "."]), 0);
            std::fs::remove_file(fixture.path("w")).unwrap();
        }
    }
}

#[test]
fn options_disable_preservation_of_metadata() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let fixture = Fixture::new();
    fixture.tree("data");
    std::fs::set_permissions(fixture.path("data/small"), PermissionsExt::from_mode(0o4711)).unwrap();
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000);
    std::fs::File::options().write(true).open(fixture.path("data/small")).unwrap().set_modified(old).unwrap();
    std::fs::hard_link(fixture.path("data/small"), fixture.path("data/again")).unwrap();
    let nodes = std::process::Command::new("mkfifo").arg(fixture.path("data/pipe")).status().unwrap();
    assert!(nodes.success());
    let small =
        |target: &str| std::fs::metadata(fixture.path(&format!("there/{target}/data/small"))).unwrap();
    let refused = fixture.over_ssh("send", &["data", "localhost:strict"]);
    assert_ended(&refused, 1);
    assert!(
        refused.err.contains("--specials") && !fixture.path("there/strict/data/pipe").exists(),
        "{refused:#?}"
    );
    assert_eq!(small("strict").mode() & 0o7777, 0o711, "the receiver keeps no setuid bit by itself");
    assert_ended(&fixture.over_ssh("send", &[&ACCEPT_ALL[..], &["data", "localhost:all"]].concat()), 0);
    assert_eq!((small("all").mode() & 0o7777, small("all").mtime(), small("all").nlink()), (0o4711, 1000, 2));
    let switches = [
        "--no-mode",
        "--no-times",
        "--no-hard-links",
        "--no-specials",
        "--no-owner",
        "--no-xattrs",
        "--no-acls",
    ];
    assert_ended(&fixture.over_ssh("send", &[&switches[..], &["data", "localhost:few"]].concat()), 0);
    assert_eq!(small("few").mode() & 0o7000, 0);
    assert!(small("few").mtime() > 1000 && small("few").nlink() == 1);
    assert!(!fixture.path("there/few/data/pipe").exists());
    // A fetch keeps setuid bits only with `--setuid`.
    assert_ended(&fixture.over_ssh("fetch", &["localhost:all/data/small", "plain"]), 0);
    assert_eq!(std::fs::metadata(fixture.path("plain/small")).unwrap().mode() & 0o7777, 0o711);
    assert_ended(&fixture.over_ssh("fetch", &["--setuid", "localhost:all/data/small", "trusting"]), 0);
    assert_eq!(std::fs::metadata(fixture.path("trusting/small")).unwrap().mode() & 0o7777, 0o4711);
}

/// Access control lists of NFSv4 arrive if both file systems have them. Their order of arrival
/// matters: a later change of the mode would change them.
#[test]
fn nfs4_access_control_lists_arrive_where_the_file_system_has_them() {
    const NAME: &str = "system.nfs4_acl";
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let fixture = Fixture::new();
    fixture.file("data/d/f", 100);
    let views = [("data", "source"), ("there", "view")].map(|(store, view)| {
        fs::create_dir(fixture.path(view)).unwrap();
        FaultFs::mount(&fixture.path(store), &fixture.path(view), Rules::default()).unwrap()
    });
    let list = |name: &str| [b"list of ", name.as_bytes()].concat();
    for name in ["d", "d/f"] {
        lsetxattr(fixture.path("source").join(name), NAME, &list(name), XattrFlags::empty()).unwrap();
    }
    let target = |name: &str| format!("localhost:{}", fixture.path(name).display());
    assert_ended(&fixture.over_ssh("send", &["source/d", &target("view")]), 0);
    let found = |name: &str| {
        let mut value = [0; 100];
        let len = lgetxattr(fixture.path("view").join(name), NAME, &mut value[..]);
        len.ok().map(|len| value[..len].to_vec())
    };
    assert_eq!(found("d"), Some(list("d")));
    assert_eq!(found("d/f"), Some(list("d/f")));
    // Other file systems and jobs without lists leave them out.
    assert_ended(&fixture.over_ssh("send", &["--no-acls", "source/d", &target("view/plain")]), 0);
    assert_eq!(found("plain/d"), None);
    fs::create_dir(fixture.path("local")).unwrap();
    assert_ended(&fixture.over_ssh("send", &["source/d", &target("local")]), 0);
    views.into_iter().for_each(FaultFs::close);
}
