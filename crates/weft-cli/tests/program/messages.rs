//! Messages name what is wrong in the words of the user, and what to do.

use crate::place::{Place, Said};
use std::fs;
use std::process::{Command, Stdio};

#[test]
fn a_part_of_a_mounted_volume_is_told_from_its_mount_point() {
    let Some(place) = Place::to_mount() else { return };
    let mounted = place.mounted();
    fs::create_dir(mounted.join("d")).unwrap();
    let words = format!("a part of the volume that is mounted at {}; name that", mounted.display());
    for command in ["info", "stats", "umount"] {
        place.weft(&[command, "m/d"]).failed(&["m/d is ", &words]);
    }
    for command in [&["scrub", "m/d"][..], &["check", "m/d"], &["export", "m/d", "out"]] {
        place.weft(command).could_not(&["m/d is ", &words]);
    }
    place.weft(&["init", "m/d/inner"]).well();
    place.weft(&["info", "m/d/inner"]).well();
    place.weft(&["check", "m"]).could_not(&["'weft scrub m'", "'weft umount m'"]);
    place.umount();
}

/// Has the volume at `m` scrubbed after a change that no commit has.
#[test]
fn a_scrub_of_a_mount_reads_what_was_just_written() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "v"]).well();
    place.directory("m");
    place.weft(&["mount", "v", "m", "--commit-interval", "1000"]).well();
    for named in ["m", "v"] {
        fs::write(place.path("m/file"), named).unwrap();
        let before = place.weft(&["info", "v", "--json"]).json()["commit"].as_u64();
        place.weft(&["scrub", named]).well();
        assert!(place.weft(&["info", "v", "--json"]).json()["commit"].as_u64() > before, "{named}");
    }
    place.umount();
}

#[test]
fn single_files_are_copied_through_a_mount() {
    let place = Place::new();
    let from = place.directory("from");
    fs::write(from.join("file"), "content").unwrap();
    place.weft(&["init", "v"]).well();
    place.weft(&["import", "from", "v"]).well();
    place.weft(&["import", "from/file", "v"]).could_not(&["from/file is not a directory", "'weft mount v DIRECTORY'"]);
    let export = ["export", "v:file", "out"];
    place.weft(&export).could_not(&["v:file is not a directory", "'weft mount --read-only v DIRECTORY'"]);
    place.weft(&["import", "nothing", "v"]).could_not(&["cannot import nothing: No such file"]);
}

#[test]
fn a_directory_that_is_missing_is_named() {
    let place = Place::new();
    place.weft(&["init", "none/v"]).failed(&["there is no directory none; make it first"]);
    place.weft(&["man", "--dir", "pages"]).failed(&["there is no directory pages; make it first"]);
    place.weft(&["init", "v"]).well();
    place.weft(&["mount", "v", "/etc/passwd"]).failed(&["/etc/passwd", "not a directory; name a directory"]);
    place.directory("m");
    place.weft(&["mount", "--wait", "20", "nothing", "m"]).failed(&["there is no volume at "]);
    place.weft(&["mount", "v", "m", "--commit-interval", "-1"]).misused(&["-1 is not a number of seconds above 0"]);
    place.weft(&["convert", "v"]).misused(&["which volume to make", "'weft convert v NEW --blocks segments'"]);
    let url = "postgres://localhost/d?schema=s";
    place.weft(&["umount", url]).failed(&[&format!("weft: {url} is not the mount point of a Weft volume")]);
    let said = place.weft(&["umount", "--timeout", "x", "m"]);
    assert!(said.code == 2 && said.err.contains("'x' is not a number of seconds"), "{said:?}");
}

#[test]
fn a_colon_after_a_volume_is_no_part_of_a_message() {
    let place = Place::new();
    place.weft(&["digest", "v:"]).could_not(&["cannot tell the digest of v: ", "there is no volume at v"]);
    place.weft(&["init", "v"]).well();
    place.weft(&["prove", "v:", "x"]).could_not(&["cannot prove x in v: there is no x"]);
}

#[test]
fn a_digest_that_is_another_one_is_told() {
    let place = Place::new();
    fs::write(place.path("file"), "one").unwrap();
    fs::write(place.path("list"), place.weft(&["digest", "file"]).well()).unwrap();
    fs::write(place.path("file"), "two").unwrap();
    let digest = place.weft(&["digest", "file"]).well()[..64].to_owned();
    let said = place.weft(&["digest", "--check", "--json", "list"]);
    let told: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, told[0]["why"].as_str()), (1, Some(&*format!("its digest is {digest}"))));
}

#[test]
fn a_file_that_is_no_key_and_the_other_key_are_told() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    place.weft(&["keygen", "secret", "public", "--no-password"]).well();
    let sign = |key: &str| place.weft(&["sign", "v", "--key", key, "--output", "signed"]);
    sign("/etc/passwd").could_not(&["/etc/passwd is not a secret key"]);
    sign("secret").well();
    let verify = |key: &str| place.weft(&["verify", "signed", "--key", key]);
    verify("secret").could_not(&["secret is a secret key; verify with the public one"]);
    verify("/etc/passwd").could_not(&["/etc/passwd is not a public key"]);
    verify("public").well();
}

#[test]
fn a_view_of_an_archive_that_is_compressed_as_a_whole_says_so_when_it_is_made() {
    let Some(place) = Place::to_mount() else { return };
    let mounted = place.mounted();
    let gzip = Command::new("gzip").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut gzip) = gzip else { return eprintln!("SKIPPED: needs gzip") };
    std::io::Write::write_all(&mut gzip.stdin.take().unwrap(), &[7; 5000]).unwrap();
    fs::write(mounted.join("file.tar.gz"), gzip.wait_with_output().unwrap().stdout).unwrap();
    let said = place.weft(&["link", "--members", "m/file.tar.gz", "m/view"]);
    assert!(said.err.contains("m/view shows nothing") && said.err.contains("gzip -d"), "{said:?}");
    let said = place.weft(&["link", "m/file.tar.gz", "m/secret", "--network", "decrypt mine"]);
    assert!(said.err.contains("m/secret cannot be read") && said.err.contains("--keys"), "{said:?}");
    place.umount();
}

#[test]
fn an_export_of_a_broken_database_gives_its_advice_once() {
    let place = Place::new();
    let from = place.directory("from");
    (0..300).for_each(|number| fs::write(from.join(format!("file {number}")), "content").unwrap());
    place.weft(&["init", "v"]).well();
    place.weft(&["import", "from", "v"]).well();
    let whole = fs::read(place.path("v/meta.sqlite")).unwrap();
    let exported = (1..whole.len() / 4096).rev().find_map(|page| {
        let mut broken = whole.clone();
        (0..4096).for_each(|at| broken[page * 4096 + at] = (at * 7 % 251) as u8);
        fs::write(place.path("v/meta.sqlite"), broken).unwrap();
        let _ = fs::remove_dir_all(place.path("out"));
        let said = place.weft(&["export", "v", "out"]);
        (said.err.matches(": not exported: ").count() > 1 && said.err.contains("malformed")).then_some(said)
    });
    let said = exported.expect("a page of some files");
    let advice: Vec<_> = said.err.lines().filter(|line| line.contains("'weft check --salvage v NEW'")).collect();
    assert!(said.code == 1 && advice.len() == 1 && advice[0].contains("is broken: "), "{said:?}");
    assert!(!said.err.contains("VOLUME") && !said.err.contains("unmount"), "{said:?}");
}

/// The daemon that gives up an intent log does not advise to do so.
#[test]
fn a_loss_that_is_accepted_is_named_without_advice() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "v"]).well();
    place.directory("m");
    place.weft(&["mount", "v", "m", "--commit-interval", "1000"]).well();
    crate::place::write_synced(&place.path("m/file"), b"synced");
    place.kill("v/lock");
    fs::remove_file(place.path("v/intents")).unwrap();
    place.weft(&["mount", "v", "m"]).failed(&["/v/intents is missing", "put the file back"]);
    let Said { code, err, .. } = place.weft(&["mount", "v", "m", "--accept-loss"]);
    assert!(code == 0 && err.contains("/v/intents is missing") && err.contains("synced after commit"), "{err}");
    assert!(!err.contains("--accept-loss") && !err.contains("put the file back"), "{err}");
    place.umount();
}
