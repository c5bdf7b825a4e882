//! The database's own means guard the files: dumps, standbys, recovery to a point in time.

use super::{Writer, as_server, assert_numbered, schema, server_program, until};
use crate::place::{Place, write_synced};
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;
use weft_testkit::Cluster;

fn psql(directory: &std::path::Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(server_program("psql"));
    command.args(["-U", "postgres", "-qAtX", "-v", "ON_ERROR_STOP=1", "-h"]).arg(directory).args(arguments);
    command
}

#[test]
fn a_dump_of_a_mounted_volume_brings_it_back() {
    let cluster = Cluster::shared();
    let Some(place) = Place::to_mount() else { return };
    let url = cluster.url();
    place.weft(&["init", &url]).well();
    let directory = place.directory("m").join("files");
    place.mount_with(&url, &[]);
    Writer::start(directory.clone(), 100).end().unwrap();
    let digest = place.weft(&["digest", "m"]).well();
    place.weft(&["sync", "m"]).well();
    let mut dump = Command::new(server_program("pg_dump"));
    dump.args(["-U", "postgres", "-n", &schema(&url), "-h"]).arg(cluster.socket()).arg("postgres");
    assert!(dump.stdout(File::create(place.path("dump")).unwrap()).status().unwrap().success());
    place.umount();
    cluster.run(&format!("SET client_min_messages TO warning; DROP SCHEMA {} CASCADE", schema(&url)));
    let mut restore = psql(cluster.socket(), &["-o", "/dev/null", "-f"]);
    assert!(restore.arg(place.path("dump")).status().unwrap().success());
    place.mount_with(&url, &["--wait", "60"]);
    assert_numbered(&directory, 100);
    assert_eq!(place.weft(&["digest", "m"]).well(), digest);
    place.umount();
}

/// A copy of a server, which runs until this is dropped.
struct Copy {
    directory: PathBuf,
}

impl Copy {
    /// Takes the copy; it does not run yet.
    fn new(cluster: &Cluster, directory: PathBuf, options: &[&str]) -> Copy {
        chown(&directory, Some(cluster.socket().metadata().unwrap().uid()), None).unwrap();
        let mut command = as_server(&server_program("pg_basebackup"));
        command.args(["-U", "postgres", "-c", "fast", "-h"]).arg(cluster.socket());
        command.arg("-D").arg(directory.join("data")).args(options);
        assert!(command.status().unwrap().success());
        Copy { directory }
    }

    fn control(&self, arguments: &[&str]) -> bool {
        let mut command = as_server(&server_program("pg_ctl"));
        command.arg("-D").arg(self.directory.join("data")).args(["-w", "-t", "60", "-s"]).args(arguments);
        command.status().unwrap().success()
    }

    fn start(&self) {
        let log = self.directory.join("log");
        let directory = self.directory.display();
        let options = format!("-c listen_addresses= -c unix_socket_directories={directory} -c max_connections=200");
        let is_started = self.control(&["-l", log.to_str().unwrap(), "-o", &options, "start"]);
        assert!(is_started, "{}", fs::read_to_string(log).unwrap_or_default());
    }

    fn run(&self, statement: &str) -> String {
        let output = psql(&self.directory, &["-c", statement]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// The URL of the volume that is at `url` of the server itself.
    fn url(&self, url: &str) -> String {
        let host = self.directory.display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{host}/postgres?{}", url.split_once('?').unwrap().1)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        self.control(&["-m", "immediate", "stop"]);
    }
}

#[test]
fn a_promoted_standby_has_all_that_was_synced_and_a_recovery_ends_at_its_moment() {
    let cluster = Cluster::start("-c fsync=off -c archive_mode=on");
    let Some(place) = Place::to_mount() else { return };
    fs::set_permissions(place.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    let archive = place.directory("archive");
    fs::set_permissions(&archive, PermissionsExt::from_mode(0o777)).unwrap();
    let url = cluster.url();
    place.weft(&["init", &url]).well();
    let mounted = place.directory("m");
    place.mount_with(&url, &[]);
    cluster.run("CREATE TABLE application (note text)");
    cluster.run(&format!("ALTER SYSTEM SET archive_command = 'cp %p {}/%f'", archive.display()));
    cluster.run("SELECT pg_reload_conf()");
    let base = Copy::new(&cluster, place.directory("base"), &["-X", "fetch"]);
    write_synced(&mounted.join("kept"), b"worth keeping");
    place.weft(&["sync", "m"]).well();
    cluster.run("INSERT INTO application VALUES ('as well')");
    cluster.run("SELECT pg_create_restore_point('moment')");
    fs::remove_file(mounted.join("kept")).unwrap();
    write_synced(&mounted.join("later"), b"too late");
    place.weft(&["sync", "m"]).well();
    cluster.run("DELETE FROM application");
    cluster.run("SELECT pg_switch_wal()");

    let standby = Copy::new(&cluster, place.directory("standby"), &["-R", "-X", "stream"]);
    standby.start();
    cluster.run("ALTER SYSTEM SET synchronous_standby_names = '*'");
    cluster.run("SELECT pg_reload_conf()");
    let writer = Writer::start(mounted.join("replicated"), 100_000);
    let synced = writer.await_synced(12);
    cluster.tell("crash");
    let synced = writer.synced(synced);
    place.kill_daemon();
    writer.end().unwrap_err();
    place.weft(&["umount", "--lazy", "m"]);
    assert!(standby.control(&["promote"]));
    let of_standby = standby.url(&url);
    place.mount_with(&of_standby, &["--wait", "60"]);
    assert_numbered(&mounted.join("replicated"), synced);
    place.umount();
    place.weft(&["check", "--read-data", &of_standby]).well();

    let settings = format!(
        "restore_command = 'cp {}/%f %p'\nrecovery_target_name = 'moment'\nrecovery_target_action = 'promote'\n",
        archive.display()
    );
    let file = base.directory.join("data/postgresql.auto.conf");
    fs::write(&file, fs::read_to_string(&file).unwrap() + &settings).unwrap();
    fs::write(base.directory.join("data/recovery.signal"), "").unwrap();
    chown(base.directory.join("data/recovery.signal"), Some(file.metadata().unwrap().uid()), None).unwrap();
    base.start();
    until("it has not recovered", || base.run("SELECT pg_is_in_recovery()") == "f");
    let of_base = base.url(&url);
    place.mount_with(&of_base, &["--wait", "60"]);
    assert_eq!(fs::read(mounted.join("kept")).unwrap(), b"worth keeping");
    assert!(!mounted.join("later").exists());
    assert_eq!(base.run("SELECT note FROM application"), "as well");
    place.umount();
    place.weft(&["check", "--read-data", &of_base]).well();
}
