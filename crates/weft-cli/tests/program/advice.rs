//! Advice that commands give, and what they say where there is nothing to do.

use crate::place::Place;
use std::os::unix::fs::PermissionsExt;

#[test]
fn an_empty_list_of_digests_is_refused() {
    let place = Place::new();
    for nothing in ["", "\n"] {
        std::fs::write(place.path("list"), nothing).unwrap();
        place.weft(&["digest", "--check", "list"]).could_not(&["list lists no digest"]);
    }
}

#[test]
fn a_current_volume_needs_no_upgrade() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    for arguments in [&["upgrade", "v"][..], &["upgrade", "--dry-run", "v"]] {
        let said = place.weft(arguments).well();
        assert!(said.contains("current format") && said.contains("nothing was changed"), "{said}");
    }
    place.weft(&["upgrade", "w"]).failed(&["there is no volume at w"]);
}

#[test]
fn the_command_that_init_advises_is_quoted_for_a_shell() {
    let place = Place::new();
    let said = place.weft(&["init", "my volume"]).well();
    assert!(said.contains("weft mount 'my volume' DIRECTORY\n"), "{said}");
}

#[test]
fn a_log_is_not_written_through_a_link_that_others_could_have_made() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    place.directory("m");
    let open = place.directory("open");
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o1777)).unwrap();
    std::fs::write(place.path("mine"), "mine").unwrap();
    std::os::unix::fs::symlink(place.path("mine"), open.join("log")).unwrap();
    std::os::unix::fs::symlink("open/log", place.path("own")).unwrap();
    for log in ["open/log", "own"] {
        place.weft(&["mount", "v", "m", "--log", log]).failed(&[log, "symbolic link", "name its target"]);
    }
    assert_eq!(std::fs::read(place.path("mine")).unwrap(), b"mine");
}

#[test]
fn a_log_is_written_through_a_link_in_a_directory_of_its_own_user() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "v"]).well();
    place.directory("m");
    place.directory("logs");
    std::os::unix::fs::symlink("logs/v.log", place.path("log")).unwrap();
    place.weft(&["mount", "v", "m", "--log", "log"]).well();
    place.umount();
    assert!(place.path("logs/v.log").is_file(), "made through the link");
}

#[test]
fn errors_show_no_control_characters_of_names() {
    let place = Place::new();
    place.weft(&["info", "a\x1b[2Jb"]).failed(&["there is no volume at a\\x1b[2Jb"]);
    place.weft(&["diff", "a\x1b[2Jb", "b"]).could_not(&["cannot read a\\x1b[2Jb"]);
}

/// A volume `v` with files enough for some pages, and what its database is.
fn with_files(place: &Place) -> std::path::PathBuf {
    let from = place.directory("from");
    (0..300).for_each(|number| std::fs::write(from.join(format!("file {number}")), "content").unwrap());
    place.weft(&["init", "v"]).well();
    place.weft(&["import", "from", "v"]).well();
    place.path("v/meta.sqlite")
}

#[test]
fn a_database_that_sqlite_cannot_read_is_salvaged_says_each_command() {
    let place = Place::new();
    let database = with_files(&place);
    let whole = std::fs::read(&database).unwrap();
    place.directory("m");
    let advice = "'weft check --salvage v NEW'";
    let says = |arguments: &[&str], code: i32| {
        let said = place.weft(arguments);
        assert_eq!(said.code, code, "{arguments:?}: {said:?}");
        let all = said.out.clone() + &said.err;
        assert!(all.contains(advice) && !all.contains("try again"), "{arguments:?}: {said:?}");
        assert!(all.lines().count() < 16 && all.lines().all(|line| line.len() < 400), "{arguments:?}: {said:?}");
    };
    // A page of a tree.
    let mut broken = whole.clone();
    let ask = "SELECT rootpage FROM sqlite_schema WHERE name = 'fileatt'";
    let root = std::process::Command::new("sqlite3").arg("-readonly").arg(&database).arg(ask).output().unwrap().stdout;
    let first = (String::from_utf8_lossy(&root).trim().parse::<usize>().unwrap() - 1) * 4096;
    (0..4096).for_each(|at| broken[first + at] = (at * 7 % 251) as u8);
    std::fs::write(&database, broken).unwrap();
    for (arguments, code) in [
        (&["check", "v"][..], 1),
        (&["check", "--repair", "v"], 1),
        (&["mount", "v", "m"], 1),
        (&["import", "from", "v"], 2),
        (&["export", "v", "out"], 2),
    ] {
        says(arguments, code);
    }
    assert_eq!(place.weft(&["check", "--salvage", "v", "saved"]).code, 1);
    assert_eq!(place.weft(&["diff", "from", "saved:"]).well(), "");
    // The file ends too early.
    std::fs::write(&database, &whole[..whole.len() / 8192 * 4096]).unwrap();
    for (arguments, code) in [
        (&["check", "v"][..], 2),
        (&["check", "--repair", "v"], 2),
        (&["mount", "v", "m"], 1),
        (&["export", "v", "out"], 2),
        (&["scrub", "v"], 2),
    ] {
        says(arguments, code);
    }
    // Its first bytes are gone.
    std::fs::write(&database, [&[7; 100], &whole[100..]].concat()).unwrap();
    for (arguments, code) in [(&["check", "v"][..], 2), (&["mount", "v", "m"], 1), (&["export", "v", "out"], 2)] {
        says(arguments, code);
    }
    place.weft(&["init", "one", "--blocks", "database"]).well();
    let whole = std::fs::read(place.path("one")).unwrap();
    std::fs::write(place.path("one"), [&[7; 100], &whole[100..]].concat()).unwrap();
    place.weft(&["check", "one"]).could_not(&["not a Weft volume any more", "'weft check --salvage one NEW'"]);
}

/// A repair repairs nothing while a row is damaged: what helps is advised, and what that costs.
#[test]
fn advice_on_damaged_rows_is_what_helps_and_counts_as_no_damage() {
    let place = Place::new();
    let database = with_files(&place);
    let wrong = "UPDATE fileatt SET mtime = 7 WHERE ino = (SELECT ino FROM naming WHERE name = CAST('file 7' AS BLOB))";
    assert!(std::process::Command::new("sqlite3").arg(database).arg(wrong).status().unwrap().success());
    for (arguments, verdict) in [
        (&["check", "v"][..], "v: 1 damaged place found; nothing was changed, follow the advice above"),
        (&["check", "--repair", "v"], "v: 0 damaged places repaired, 1 left; follow the advice above"),
    ] {
        let said = place.weft(arguments);
        assert_eq!((said.code, said.out.trim_end().lines().last()), (1, Some(verdict)), "{said:?}");
        for words in ["'weft check --salvage v NEW'", "'weft check --repair --discard v'", "lose owner"] {
            assert!(said.out.contains(words), "no '{words}' in {}", said.out);
        }
        assert!(!said.out.contains("zeros") && !said.out.contains("repairs what can be"), "{}", said.out);
    }
    let said = place.weft(&["check", "--repair", "--discard", "v"]);
    assert!(said.out.contains("/file 7: its row is damaged, with owner"), "{said:?}");
    place.weft(&["export", "v", "out"]).well();
    assert_eq!(std::fs::read(place.path("out/file 7")).unwrap(), b"content");
}

#[test]
fn the_log_of_a_mount_names_the_way_out_of_a_broken_database() {
    let Some(place) = Place::to_mount() else { return };
    let from = place.directory("from");
    for number in 0..1000 {
        let directory = from.join(format!("directory {}", number % 4));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join(format!("file {number}")), "content").unwrap();
    }
    place.weft(&["init", "v"]).well();
    place.weft(&["import", "from", "v"]).well();
    let database = place.path("v/meta.sqlite");
    let mut broken = std::fs::read(&database).unwrap();
    // A page in the middle: what opens the volume reads none of those.
    let page = broken.len() / 8192 * 4096;
    (0..4096).for_each(|at| broken[page + at] = (at * 7 % 251) as u8);
    std::fs::write(&database, broken).unwrap();
    let mounted = place.directory("m");
    place.weft(&["mount", "v", "m", "--log", "log"]).well();
    for directory in std::fs::read_dir(&mounted).unwrap().flatten() {
        let entries = std::fs::read_dir(directory.path()).into_iter().flatten().flatten();
        entries.for_each(|entry| drop(std::fs::read(entry.path())));
    }
    place.umount();
    let log = std::fs::read_to_string(place.path("log")).unwrap();
    assert!(log.contains("malformed") && log.contains("'weft check --salvage v NEW'"), "{log}");
}

#[test]
fn an_ambiguous_name_is_quoted_in_advice() {
    let place = Place::new();
    let said = place.weft(&["init", "--history", "off", "--", "-x"]).well();
    assert!(said.ends_with("weft mount ./-x DIRECTORY\n"), "{said}");
    let said = place.weft(&["init", "--history", "off", "nl\nx"]).well();
    assert_eq!(said, "made nl\\nx; mount it with: weft mount $'nl\\nx' DIRECTORY\n");
}

#[test]
fn a_volume_is_no_directory_or_file_to_digest() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    place.weft(&["init", "one", "--blocks", "database"]).well();
    place.weft(&["init", "of two"]).well();
    place.directory("from");
    for (volume, content) in [("v", "v:"), ("one", "one:"), ("of two", "'of two:'")] {
        let words = format!("{volume} is a volume: its content is {content} (with the colon)");
        place.weft(&["digest", volume]).misused(&[&words]);
        place.weft(&["digest", "--tree", "from", volume]).misused(&[&words]);
        place.weft(&["diff", volume, "from"]).misused(&[&words]);
        place.weft(&["diff", "from", volume]).misused(&[&words]);
        let content = format!("{volume}:");
        place.weft(&["digest", &content]).well();
        assert_eq!(place.weft(&["diff", &content, "from"]).err, "");
    }
}

#[test]
fn a_volume_goes_to_postgresql_by_send_and_receive_says_convert() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    place.weft(&["convert", "v", "postgres://localhost/v"]).misused(&["'weft send' and 'weft receive'"]);
    place.weft(&["convert", "v", "w"]).misused(&["--blocks segments"]);
    place.weft(&["convert", "v"]).misused(&["which volume to make"]);
}

#[test]
fn keys_with_a_password_want_a_terminal() {
    let place = Place::new();
    let mut command = std::process::Command::new("setsid");
    command.args(["--wait", env!("CARGO_BIN_EXE_weft"), "keygen", "secret", "public"]).current_dir(place.path(""));
    let Ok(output) = command.output() else { return eprintln!("SKIPPED: needs setsid(1)") };
    crate::place::Said::from(output).failed(&["there is no terminal", "--no-password"]);
}

#[test]
fn a_view_in_the_directory_that_it_shows_is_refused() {
    let place = Place::new();
    place.directory("from");
    place.directory("from/d");
    place.weft(&["init", "v"]).well();
    place.weft(&["import", "from", "v"]).well();
    let view = |source: &str, link: &str| place.weft(&["link", "--dir", source, link, "-n", "rot13"]);
    for (source, link) in [("v:", "v:plain"), ("v:d", "v:d/plain"), ("v:/", "v:d/plain")] {
        view(source, link).misused(&["the directory that it is a view of", "make it elsewhere"]);
    }
    view("v:d", "v:dd").well();
    place.weft(&["export", "v", "out"]).well();
    let Some(place) = Place::to_mount() else { return };
    let mounted = place.mounted();
    std::fs::create_dir(mounted.join("d")).unwrap();
    let view = |source: &str, link: &str| place.weft(&["link", "--dir", source, link, "-n", "rot13"]);
    view("m", "m/plain").misused(&["a view of", "make it elsewhere"]);
    view("m/d", "m/d/plain").misused(&["a view of", "make it elsewhere"]);
    view("m/d", "m/view").well();
    std::fs::rename(mounted.join("view"), mounted.join("d/view")).unwrap();
    place.umount();
    let said = place.weft(&["export", "v", "out"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.err.contains("out/d/view/view: not exported: it lies in the directory that it is a view of"),
        "{said:?}"
    );
}
