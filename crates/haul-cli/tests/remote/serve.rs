//! A lasting server: its configuration, what it keeps, and many clients.

use super::{Bed, assert_alike, assert_ended};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

/// A configuration of two shares: `in` takes, `out` gives.
fn configured(bed: &Bed, port: u16) {
    fs::create_dir_all(bed.path("in")).unwrap();
    bed.tree("out/data");
    let text = format!(
        "listen = ['127.0.0.1:{port}']\nidentity = 'identity.pem'\nsessions = 8\n\
         [[share]]\nroot = 'in'\nticket = 'in.ticket'\naccess = 'write'\nquota = '1G'\n\
         [[share]]\nroot = 'out'\nticket = 'out.ticket'\naccess = 'read'\n"
    );
    fs::write(bed.path("serve.toml"), text).unwrap();
}

#[test]
fn identity_and_tickets_outlive_the_process() {
    let bed = Bed::new();
    bed.tree("data");
    configured(&bed, bed.free_port());
    for run in ["first", "second"] {
        let server = bed.serve_config("serve.toml");
        server.says("listening at");
        server.says("'out'");
        for secret in ["identity.pem", "in.ticket", "out.ticket"] {
            assert_eq!(fs::metadata(bed.path(secret)).unwrap().mode() & 0o777, 0o600, "{secret}");
        }
        let target = format!(":{run}");
        // The first run's tickets serve in the second.
        assert_ended(&bed.run(&["send", "--ticket-file", "in.ticket", "data", &target]), 0);
        assert_alike(&bed.path("data"), &bed.path("in").join(run).join("data"));
        assert_ended(&bed.run(&["fetch", "--ticket-file", "out.ticket", ":data", run]), 0);
        assert_alike(&bed.path("out/data"), &bed.path(run).join("data"));
        assert_ended(&bed.run(&["fetch", "--ticket-file", "in.ticket", ":", "x"]), 2);
        assert_ended(&bed.run(&["send", "--ticket-file", "out.ticket", "data", ":"]), 2);
        server.signal(Signal::TERM);
        assert_eq!(server.status(), Some(0), "to be ended is how a server ends");
    }
}

#[test]
fn what_no_longer_fits_the_configuration_is_named() {
    let bed = Bed::new();
    configured(&bed, 0);
    let server = bed.serve_config("serve.toml");
    server.says("'out'");
    drop(server);
    let text = fs::read_to_string(bed.path("serve.toml")).unwrap();
    let expect = |text: &str, words: &str| {
        fs::write(bed.path("changed.toml"), text).unwrap();
        let ended = bed.run(&["serve", "--config", "changed.toml"]);
        assert_ended(&ended, 2);
        assert!(ended.err.contains(words), "{words}: {ended:#?}");
    };
    expect(&text.replace("access = 'write'", "access = 'both'"), "allows something else");
    expect(&text.replace("sessions", "sesions"), "sesions");
    expect(&text.replace("root = 'in'", "root = 'nowhere'"), "nowhere");
    fs::set_permissions(bed.path("identity.pem"), fs::Permissions::from_mode(0o644)).unwrap();
    expect(&text, "chmod 600");
    fs::remove_file(bed.path("identity.pem")).unwrap();
    expect(&text, "another identity");
}

#[test]
fn many_clients_are_served_at_once() {
    let bed = Bed::new();
    bed.tree("data");
    let server = bed.serve(&["--root", "there", "--sessions", "6", "--sessions-per-peer", "6"]);
    std::thread::scope(|scope| {
        for client in 0..6 {
            let bed = &bed;
            scope.spawn(move || {
                let target = format!(":{client}");
                assert_ended(
                    &bed.run(&["send", "--streams=2", "--ticket-file", "ticket", "data", &target]),
                    0,
                );
                assert_alike(&bed.path("data"), &bed.path(&format!("there/{client}/data")));
            });
        }
    });
    drop(server);
}

#[test]
fn owners_and_setuid_bits_are_kept_only_where_the_server_says_so() {
    let bed = Bed::new();
    bed.file("data/tool", 100);
    fs::set_permissions(bed.path("data/tool"), fs::Permissions::from_mode(0o4755)).unwrap();
    let mode = |name: &str| fs::metadata(bed.path(name)).unwrap().mode() & 0o7777;
    let careful = bed.serve(&["--root", "there"]);
    assert_ended(&bed.run(&["send", "--ticket-file", "ticket", "data", ":one"]), 0);
    assert_eq!(mode("there/one/data/tool"), 0o755);
    drop(careful);
    // Whoever becomes the owner may not be whom the bit was meant for.
    let half = bed.serve(&["--root", "there", "--keep-setuid"]);
    assert_ended(&bed.run(&["send", "--ticket-file", "ticket", "data", ":two"]), 0);
    assert_eq!(mode("there/two/data/tool"), 0o755);
    drop(half);
    let _trusting = bed.serve(&["--root", "there", "--keep-setuid", "--keep-owner"]);
    assert_ended(&bed.run(&["send", "--ticket-file", "ticket", "data", ":three"]), 0);
    assert_eq!(mode("there/three/data/tool"), 0o4755);
}

#[test]
fn servers_that_can_not_serve_say_why() {
    let bed = Bed::new();
    bed.file("file", 3);
    for (args, words) in [
        (&["serve"][..], "--root"),
        (&["serve", "--root", "nowhere"], "nowhere"),
        (&["serve", "--root", "file"], "is not a directory"),
        (&["serve", "--root", "there", "--expires", "soon"], "--expires"),
        (&["serve", "--root", "there", "--listen", "192.0.2.1:7433"], "192.0.2.1:7433"),
        (&["serve", "--root", "there", "--listen", "127.0.0.1:0", "--cc", "nosuch"], "nosuch"),
        (&["serve", "--root", "there", "--read-only", "--write-only"], "cannot be used with"),
        (&["serve", "--config", "nowhere.toml"], "nowhere.toml"),
    ] {
        let ended = bed.run(args);
        assert_ended(&ended, 2);
        assert!(ended.err.contains(words), "{words}: {ended:#?}");
        assert_eq!(ended.out, "", "no ticket is printed for what does not serve");
    }
}
