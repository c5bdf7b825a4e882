//! Errors of users: one clear line, an exit code that is not zero, nothing touched.

use crate::place::{Place, Said, copy_program, is_root};
use std::collections::BTreeMap;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// All there is below `path`: sizes, times of change, content.
fn all_below(path: &Path) -> BTreeMap<PathBuf, (u64, i64, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![path.to_path_buf()];
    while let Some(path) = waiting.pop() {
        let metadata = path.symlink_metadata().unwrap();
        let content = if metadata.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        if metadata.is_dir() {
            waiting.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.insert(path, (metadata.len(), metadata.mtime(), metadata.mtime_nsec(), content));
    }
    found
}

/// `weft` fails so, and everything in the place stays as it was.
#[track_caller]
fn fails(place: &Place, arguments: &[&str], words: &[&str]) {
    let before = all_below(&place.path(""));
    place.weft(arguments).failed(words);
    assert!(all_below(&place.path("")) == before, "{arguments:?} touched something");
}

/// Does the same for commands whose code 1 says that something is missing, and 2 that nothing was
/// done.
#[track_caller]
fn cannot(place: &Place, arguments: &[&str], words: &[&str]) {
    let before = all_below(&place.path(""));
    place.weft(arguments).could_not(words);
    assert!(all_below(&place.path("")) == before, "{arguments:?} touched something");
}

#[test]
fn a_volume_that_is_not_there_is_refused() {
    let place = Place::new();
    place.directory("m");
    fails(&place, &["mount", "v", "m"], &["there is no volume at", "weft init"]);
    fails(&place, &["info", "v"], &["there is no volume at v"]);
    let convert = &["convert", "v", "w", "--blocks", "database"][..];
    let (check, salvage) = (&["check", "v"][..], &["check", "v", "--salvage", "w"][..]);
    for command in [&["import", "m", "v"][..], &["export", "v", "e"], convert, check, salvage, &["scrub", "v"]] {
        cannot(&place, command, &["there is no volume at v"]);
    }
}

#[test]
fn what_is_not_a_volume_is_refused() {
    let place = Place::new();
    for directory in ["m", "empty", "full"] {
        place.directory(directory);
    }
    std::fs::write(place.path("full/meta.sqlite"), [7; 5000]).unwrap();
    std::fs::write(place.path("text"), "text\n").unwrap();
    std::fs::write(place.path("nothing"), "").unwrap();
    for name in ["empty", "full", "text", "nothing"] {
        fails(&place, &["mount", name, "m"], &[name, "is not a Weft volume"]);
        fails(&place, &["info", name], &[name, "is not a Weft volume"]);
        cannot(&place, &["check", "--repair", name], &[name, "is not a Weft volume"]);
        cannot(&place, &["scrub", name], &[name, "is not a Weft volume"]);
        cannot(&place, &["import", "m", name], &[name, "is not a Weft volume"]);
    }
}

#[test]
fn places_in_the_wrong_order_are_told() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "v"]).well();
    place.directory("m");
    place.weft(&["mount", "m", "v"]).misused(&["m is no volume, and v is one", "weft mount v m"]);
    let said = place.weft(&["mount", "--nfs", "v", "m"]);
    assert!(said.code == 2 && said.err.contains("'v' is not an address and a port"), "{said:?}");
    place.weft(&["mount", "v", "m"]).well();
    for command in
        [&["check", "m"][..], &["check", "m", "--salvage", "w"], &["convert", "m", "w", "--blocks", "database"]]
    {
        cannot(&place, command, &["/v is mounted at m", "weft umount m"]);
    }
    place.umount();
}

#[test]
fn a_volume_whose_name_is_no_text_is_found_by_its_mount_point() {
    use std::os::unix::ffi::OsStrExt;
    let Some(place) = Place::to_mount() else { return };
    let volume = std::ffi::OsStr::from_bytes(b"v\xff,\\");
    place.directory("m");
    let run = |arguments: &[&std::ffi::OsStr]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_weft"));
        let said: Said = command.args(arguments).current_dir(place.path("")).output().unwrap().into();
        said.well()
    };
    run(&["init".as_ref(), volume]);
    run(&["mount".as_ref(), volume, "m".as_ref()]);
    for command in ["info", "scrub", "log"] {
        run(&[command.as_ref(), "m".as_ref()]);
    }
    place.umount();
}

#[test]
fn a_newer_format_is_refused() {
    use std::os::unix::fs::FileExt;
    for blocks in ["segments", "database"] {
        let place = Place::new();
        place.directory("m");
        place.weft(&["init", "v", "--blocks", blocks]).well();
        let database = if blocks == "segments" { "v/meta.sqlite" } else { "v" };
        let file = std::fs::OpenOptions::new().write(true).open(place.path(database)).unwrap();
        // SQLite's user_version.
        file.write_all_at(&99u32.to_be_bytes(), 60).unwrap();
        for command in [&["mount", "v", "m"][..], &["info", "v"]] {
            fails(&place, command, &["v has format 99", "use a newer weft"]);
        }
        for command in [&["import", "m", "v"][..], &["check", "--repair", "v"], &["scrub", "v"]] {
            cannot(&place, command, &["v has format 99", "use a newer weft"]);
        }
    }
}

#[test]
fn a_mount_point_must_be_a_directory() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    std::fs::write(place.path("file"), "").unwrap();
    fails(&place, &["mount", "v", "nowhere"], &["nowhere", "No such file", "make the directory first"]);
    fails(&place, &["mount", "v", "file"], &["file", "not a directory"]);
}

#[test]
fn a_second_mount_of_a_volume_is_refused() {
    let Some(place) = Place::to_mount() else { return };
    for blocks in ["segments", "database"] {
        place.weft(&["init", blocks, "--blocks", blocks]).well();
        let (first, second) = (format!("{blocks}-1"), format!("{blocks}-2"));
        place.directory(&first);
        place.directory(&second);
        place.weft(&["mount", blocks, &first]).well();
        place.weft(&["mount", blocks, &second]).failed(&[blocks, "in use by another process"]);
        for command in [&["export", blocks, "e"][..], &["check", blocks], &["check", "--repair", blocks]] {
            place.weft(command).could_not(&[blocks, "in use by another process"]);
        }
        let told = |what: &str| place.weft(&["info", what]).well();
        assert_eq!(told(blocks), told(&first), "of the volume, and of where it is mounted");
        assert!(!place.is_mounted(&second));
        place.weft(&["umount", &first]).well();
    }
}

#[test]
fn a_mount_point_in_use_is_refused_and_the_other_volume_untouched() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.mounted();
    std::fs::write(directory.join("file"), "first").unwrap();
    place.weft(&["init", "w"]).well();
    let before = all_below(&place.path("w"));
    place.weft(&["mount", "w", "m"]).failed(&["already a mount point", "weft umount"]);
    assert!(all_below(&place.path("w")) == before);
    assert_eq!(std::fs::read(directory.join("file")).unwrap(), b"first");
    place.umount();
}

#[test]
fn unmounting_what_is_no_mount_is_refused() {
    let place = Place::new();
    place.directory("plain");
    for command in ["umount", "stats"] {
        fails(&place, &[command, "plain"], &["plain is not the mount point of a Weft volume"]);
        fails(&place, &[command, "nowhere"], &["there is no directory", "nowhere"]);
    }
    // Nor is one that says so itself, with words for the terminal and the number of any process.
    let said = serde_json::json!({"pid": 1, "transport": "\u{1b}[2J", "volume": {"disk_cache": {}}}).to_string();
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(place.path("plain"), "user.weft.stats", said.as_bytes(), flags).is_err() {
        return eprintln!("SKIPPED: the file system has no extended attributes of users");
    }
    for command in ["umount", "stats"] {
        fails(&place, &[command, "plain"], &["plain is not the mount point of a Weft volume"]);
    }
}

#[test]
fn who_unmounts_by_the_name_of_the_volume_hears_where_it_is_mounted() {
    let Some(place) = Place::to_mount() else { return };
    let m = place.mounted().display().to_string();
    fails(&place, &["umount", "v"], &["v is not the mount point of a Weft volume", "mounted at", &m]);
    place.umount();
}

#[test]
fn what_an_interrupted_init_left_is_told_as_that() {
    let place = Place::new();
    place.directory("m");
    for length in [0, 4096] {
        place.directory(&format!("left{length}"));
        let left = place.directory(&format!("left{length}/segments"));
        let mut start = vec![0; length];
        start.iter_mut().zip(*b"SQLite format 3\0").for_each(|(byte, magic)| *byte = magic);
        std::fs::write(left.with_file_name("meta.sqlite"), start).unwrap();
        let volume = format!("left{length}");
        for arguments in [&["init", &volume][..], &["info", &volume], &["mount", &volume, "m"]] {
            fails(&place, arguments, &["interrupted 'weft init' left", "remove it"]);
        }
        std::fs::write(left.join("1"), "a segment").unwrap();
        place.weft(&["check", &volume]).could_not(&["'weft check --salvage"]);
    }
}

#[test]
fn a_volume_is_made_only_where_nothing_is() {
    let place = Place::new();
    place.directory("full");
    std::fs::write(place.path("full/file"), "").unwrap();
    fails(&place, &["init", "full"], &["full already exists"]);
    fails(&place, &["init", "full/file", "--blocks", "database"], &["full/file already exists"]);
    fails(&place, &["init", "no/such/place"], &["there is no directory no/such; make it first"]);
    place.weft(&["init", "v"]).well();
    fails(&place, &["init", "v"], &["v already exists"]);
    let before = all_below(&place.path("full"));
    place.weft(&["convert", "v", "full", "--blocks", "segments"]).could_not(&["full already exists"]);
    assert!(all_below(&place.path("full")) == before);
}

#[test]
fn wrong_usage_has_exit_code_2_and_touches_nothing() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    place.directory("m");
    let before = all_below(&place.path(""));
    for (arguments, word) in [
        (&["mount", "v", "m", "-o", "nonsense"][..], "unknown mount option 'nonsense'"),
        (&["mount", "v", "m", "-o", "dirty-max=much"], "option dirty-max"),
        (&["mount", "v", "m", "--commit-interval", "0"], "commit interval 0"),
        (&["mount", "v", "m", "--placement", "there"], "placement 'there'"),
        (&["mount", "v", "m", "-o", "transport=pigeon"], "transport 'pigeon'"),
        (&["mount", "v", "m", "-o", "ro=no"], "option ro takes no value"),
        (&["mount", "v", "m", "-o", "exported-stages=foo"], "'foo' is none of nobody, root, everybody"),
        (&["init", "w", "--inline", "5G"], "is too large"),
        (&["init", "w", "--inline", "1M"], "inline threshold"),
        (&["init", "w", "--block-size", "5000"], "5000 is not a power of two"),
    ] {
        place.weft(arguments).misused(&[word]);
    }
    for arguments in [&["mount", "v"][..], &["nonsense"], &["init", "w", "--block-size", "64X"], &["convert", "v", "w"]]
    {
        assert_eq!(place.weft(arguments).code, 2, "{arguments:?}");
    }
    assert!(all_below(&place.path("")) == before);
}

#[test]
fn a_disk_cache_that_is_not_there_is_told_of() {
    let place = Place::new();
    place.directory("there");
    let serve = |cache: &str| {
        let arguments = ["serve", "postgres://127.0.0.1:1/none", "--nfs", "127.0.0.1:0", "--disk-cache", cache];
        place.weft(&arguments).err
    };
    assert!(serve("typo").contains("typo was not there; it is made"));
    assert!(!serve("there").contains("was not there"));
}

#[test]
fn a_volume_or_directory_without_permission_is_refused() {
    let Some(place) = Place::to_mount() else { return };
    if !is_root() {
        eprintln!("SKIPPED a_volume_or_directory_without_permission_is_refused: needs root to become another user");
        return;
    }
    std::fs::set_permissions(place.path(""), std::fs::Permissions::from_mode(0o755)).unwrap();
    // Where the program was built may be closed to others.
    copy_program(&place.path("weft"));
    place.weft(&["init", "v"]).well();
    let nobody = |arguments: &[&str]| {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(place.path("weft"));
        command.args(arguments).current_dir(place.path("")).uid(65534).gid(65534).output().unwrap().into()
    };
    let own = place.directory("own");
    std::os::unix::fs::chown(&own, Some(65534), Some(65534)).unwrap();
    let run = |arguments: &[&str]| -> crate::place::Said { nobody(arguments) };
    let before = all_below(&place.path("v"));
    run(&["mount", "v", "own"]).failed(&["Permission denied"]);
    run(&["info", "v"]).failed(&["Permission denied"]);
    assert!(all_below(&place.path("v")) == before);
    place.directory("m");
    run(&["init", "own/v"]).well();
    let before = all_below(&place.path("own"));
    run(&["mount", "own/v", "m"]).failed(&["no permission to mount at", "directory of your own"]);
    assert!(all_below(&place.path("own")) == before);
}

#[test]
fn a_database_that_is_damaged_is_told_of_with_what_to_do() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    let database = std::fs::OpenOptions::new().write(true).open(place.path("v/meta.sqlite")).unwrap();
    database.write_all_at(&[0; 4096], 4096).unwrap();
    place.weft(&["info", "v"]).failed(&["malformed", "'weft check --salvage v NEW'"]);
    let said = place.weft(&["check", "v"]);
    assert_eq!(said.code, 1);
    assert!(said.out.contains("restore the volume from a copy"), "{}", said.out);
}

#[test]
fn a_file_volume_wants_a_name_of_its_own() {
    let place = Place::new();
    place.directory("empty");
    fails(&place, &["init", "--blocks", "database", "empty"], &["empty already exists", "a file of that name"]);
}

#[test]
fn signing_says_what_is_wrong_with_its_files() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    place.weft(&["keygen", "--no-password", "secret", "public"]).well();
    let secret = std::fs::read_to_string(place.path("secret")).unwrap();
    assert!(secret.starts_with("untrusted comment: weft secret key"), "{secret}");
    fails(&place, &["keygen", "--no-password", "secret", "other"], &["secret already exists"]);
    let sign = |key| place.weft(&["sign", "--key", key, "--output", "signed", "v"]);
    sign("public").could_not(&["public is a public key"]);
    sign("v/meta.sqlite").could_not(&["cannot read v/meta.sqlite"]);
    sign("secret").well();
    sign("secret").could_not(&["signed already exists"]);
    std::fs::remove_file(place.path("signed")).unwrap();
    sign("secret").could_not(&["signed.minisig already exists"]);
}

#[test]
fn a_volume_is_not_mounted_over_its_own_files_and_not_copied_into_itself() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "v"]).well();
    place.weft(&["mount", "v", "v/segments"]).failed(&["v/segments", "lies in the volume", "mount it elsewhere"]);
    place.weft(&["init", "other"]).well();
    place.weft(&["mount", "v", "other/segments"]).failed(&["lies in the volume", "other"]);
    place.weft(&["import", "v", "v"]).could_not(&["v is a volume, not a directory", "weft export v"]);
    place.weft(&["import", "v/segments", "v"]).could_not(&["the volume's own files"]);
    place.weft(&["import", ".", "v"]).could_not(&["the volume itself lies in ."]);
    place.weft(&["export", "v", "v/out"]).could_not(&["v/out", "among the files of the volume"]);
    place.weft(&["export", "v", "other/out"]).could_not(&["other/out", "among the files of the volume"]);
    place.directory("d");
    place.weft(&["export", "d", "v"]).could_not(&["the volume comes first", "weft export v d"]);
    place.weft(&["init", "v/inner"]).failed(&["among the files of the volume"]);
    place.weft(&["check", "v"]).well();
}

#[test]
fn a_volume_is_mounted_where_one_is_by_a_path_from_there() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "v"]).well();
    let directory = place.directory("m");
    let mounted = place.command(&["mount", "../v", "."]).current_dir(&directory).output().unwrap();
    assert!(mounted.status.success(), "{mounted:?}");
    std::fs::write(directory.join("file"), "content").unwrap();
    place.umount();
}

#[test]
fn a_database_that_cannot_be_read_at_its_root_is_not_mounted() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "v"]).well();
    place.directory("from");
    place.directory("from/d");
    place.weft(&["import", "from", "v"]).well();
    let ask = "SELECT rootpage FROM sqlite_master WHERE tbl_name = 'naming' AND rootpage > 0";
    let said = Command::new("sqlite3").arg(place.path("v/meta.sqlite")).arg(ask).output().unwrap();
    let database = std::fs::OpenOptions::new().write(true).open(place.path("v/meta.sqlite")).unwrap();
    for page in String::from_utf8(said.stdout).unwrap().lines() {
        let page: u64 = page.parse().unwrap();
        FileExt::write_all_at(&database, &[0x77; 4096], (page - 1) * 4096).unwrap();
    }
    place.directory("m");
    place.weft(&["mount", "v", "m"]).failed(&["malformed", "weft check --salvage"]);
    assert!(!place.is_mounted("m"));
}

#[test]
fn options_of_volumes_in_postgres_are_refused_for_others() {
    let place = Place::new();
    place.directory("m");
    place.weft(&["init", "v"]).well();
    for option in ["--wait", "--lease", "--patience", "--disk-cache-size"] {
        for command in [&["mount", "v", "m"][..], &["serve", "v", "--nfs", "127.0.0.1:0"]] {
            let said = place.weft(&[command, &[option, "1"]].concat());
            assert!(said.code == 2 && said.err.contains(&format!("{option} is for volumes in PostgreSQL")), "{said:?}");
        }
    }
}

/// A proof about the volume's own files is of no use to anybody.
#[test]
fn a_colon_too_few_or_too_many_is_pointed_out() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    for volume in ["v", "postgres:///nowhere?schema=v"] {
        for command in [&["digest", volume][..], &["diff", volume, "."], &["prove", volume, "file"]] {
            let said = place.weft(command);
            let words = ["its content is ", &format!("{volume}:")];
            assert!(said.code == 2 && words.iter().all(|word| said.err.contains(word)), "{said:?}");
        }
    }
    place.weft(&["check", "v:"]).could_not(&["the volume's own name is v, without a colon"]);
    place.weft(&["check", "w:"]).could_not(&["make one with 'weft init'"]);
}
