//! Files and variables of configuration.

use crate::place::{Place, Said};
use serde_json::Value;
use std::fs;

/// A place whose user has a file of configuration, which says `text`.
fn configured(place: &Place, text: &str) {
    fs::create_dir_all(place.path("config/weft")).unwrap();
    fs::write(place.path("config/weft/config.toml"), text).unwrap();
}

/// Runs `weft` with that file, and with `variables`.
fn weft(place: &Place, variables: &[(&str, &str)], words: &[&str]) -> Said {
    let mut command = place.command(words);
    command.env("XDG_CONFIG_HOME", place.path("config")).envs(variables.iter().copied());
    command.output().unwrap().into()
}

fn is_read_only(place: &Place) -> bool {
    let stat = rustix::fs::statvfs(place.path("m")).unwrap();
    stat.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY)
}

#[test]
fn volumes_have_names_and_options_of_their_own_which_the_command_line_overrides() {
    let Some(place) = Place::to_mount() else { return };
    place.directory("m");
    place.directory("from");
    fs::write(place.path("from/file"), "content").unwrap();
    let volume = place.path("v");
    configured(
        &place,
        &format!(
            "[init]\nsize-max = '1G'\n[volume.photos]\npath = '{}'\n[volume.photos.mount]\nread-only = true\n",
            volume.display()
        ),
    );
    weft(&place, &[], &["init", "photos"]).well();
    assert!(weft(&place, &[], &["info", "photos"]).well().contains("1.00 GiB"));
    weft(&place, &[], &["import", "from", "photos:sub"]).well();
    weft(&place, &[], &["mount", "photos", "m"]).well();
    assert!(is_read_only(&place));
    assert_eq!(fs::read(place.path("m/sub/file")).unwrap(), b"content");
    place.umount();
    weft(&place, &[("WEFT_MOUNT_READ_ONLY", "0")], &["mount", "photos", "m"]).well();
    assert!(!is_read_only(&place), "a variable counts before a file");
    place.umount();
    weft(&place, &[], &["mount", "-o", "rw", "photos", "m"]).well();
    assert!(!is_read_only(&place), "the command line counts before both");
    place.umount();
    // By its path it is any volume.
    weft(&place, &[], &["mount", "v", "m"]).well();
    assert!(!is_read_only(&place));
    place.umount();
    // What is there is meant first.
    weft(&place, &[], &["check", "photos"]).well();
    fs::write(place.path("photos"), "a file").unwrap();
    weft(&place, &[], &["info", "photos"]).failed(&["photos"]);
}

/// Nothing but the volume of an argument is replaced.
#[test]
fn a_volume_may_be_called_as_a_command_is() {
    let place = Place::new();
    let path = place.path("v");
    let table = |name: &str| format!("[volume.{name}]\npath = '{}'\n", path.display());
    configured(&place, &["info", "postgres"].map(table).concat());
    place.weft(&["init", "v"]).well();
    assert!(weft(&place, &[], &["info", "info"]).well().contains("commit"));
    let said = weft(&place, &[], &["info", "postgres://localhost:1/none"]);
    assert!(said.code == 1 && said.err.contains("localhost"), "{said:?}");
}

#[test]
fn the_configuration_is_told_with_the_places_that_it_is_from() {
    let place = Place::new();
    configured(
        &place,
        "[mount]\nnoatime = true\ndirty-max = '1G'\n[volume.photos]\npath = '/srv/p'\n[volume.photos.serve]\nexport = ['/ *']\n",
    );
    let variables = [("WEFT_MOUNT_DIRTY_MAX", "2G")];
    let told: Value = weft(&place, &variables, &["config", "--show", "--json"]).json();
    let path = place.path("config/weft/config.toml");
    let file = path.to_str().unwrap();
    let option = |list: &Value, option: &str| {
        let found = list.as_array().unwrap().iter().find(|value| value["option"] == option).unwrap().clone();
        [found["value"].as_str().unwrap().to_owned(), found["source"].as_str().unwrap().to_owned()]
    };
    assert_eq!(option(&told["options"], "noatime"), ["true", file]);
    assert_eq!(option(&told["options"], "dirty-max"), ["2G", "WEFT_MOUNT_DIRTY_MAX"]);
    assert_eq!(told["volumes"][0]["path"], "/srv/p");
    assert_eq!(option(&told["volumes"][0]["options"], "export"), ["/ *", file]);
    assert_eq!(told["files"][0], serde_json::json!({ "path": file, "read": true }));
    let text = weft(&place, &variables, &["config", "--show"]).well();
    assert!(text.contains("mount.dirty-max = 2G  (WEFT_MOUNT_DIRTY_MAX)\n"), "{text}");
    assert!(text.contains(&format!("volume.photos.serve.export = / *  ({file})\n")), "{text}");
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_done() {
    let place = Place::new();
    for (text, why) in [
        ("[mount]\nnotime = true", "mount.notime: 'weft mount' has no option --notime"),
        ("[mount]\naccept-loss = true", "--accept-loss gives something up"),
        ("[mount", "cannot use"),
    ] {
        configured(&place, text);
        let said = weft(&place, &[], &["mount", "v", "m"]);
        assert!(said.code == 2 && said.err.contains(why) && said.err.contains("config.toml"), "{said:?}");
        assert_eq!(weft(&place, &[], &["config", "--show"]).code, 2);
    }
    configured(&place, "[mounts]\nnoatime = true");
    let said = weft(&place, &[], &["config", "--show"]);
    assert!(said.code == 2 && said.err.contains("there is no command 'weft mounts'"), "{said:?}");
    let said = weft(&place, &[("WEFT_MOUNT_NOATIME", "often")], &["config", "--show"]);
    assert!(said.code == 2, "{said:?}");
}

#[test]
fn names_stand_wherever_a_command_takes_a_volume_and_a_path() {
    let place = Place::new();
    configured(&place, &format!("[volume.one]\npath = '{}'\n", place.path("v").display()));
    weft(&place, &[], &["init", "one"]).well();
    place.directory("from");
    fs::write(place.path("from/file"), "then").unwrap();
    weft(&place, &[], &["import", "from", "one:"]).well();
    weft(&place, &[], &["snapshot", "create", "one", "s"]).well();
    fs::write(place.path("from/file"), "now").unwrap();
    weft(&place, &[], &["import", "--overwrite", "from", "one:"]).well();
    weft(&place, &[], &["digest", "one:"]).well();
    assert_eq!(weft(&place, &[], &["diff", "one:", "one:"]).well(), "");
    assert!(weft(&place, &[], &["diff", "--at", "s", "one:file"]).out.contains("file"));
    weft(&place, &[], &["prove", "one:", "file"]).well();
    assert_eq!(weft(&place, &[], &["cat", "--at", "s", "one:file"]).well(), "then");
    assert_eq!(weft(&place, &[], &["cat", "one:file"]).well(), "now");
    assert_eq!(weft(&place, &[], &["ls", "one:"]).well(), "file\n");
    weft(&place, &[], &["du", "one:"]).well();
    weft(&place, &[], &["undelete", "--list", "one:"]).well();
    weft(&place, &[], &["link", "one:/file", "one:/turned", "-n", "rot13"]).well();
    weft(&place, &[], &["restore", "one:file", "--at", "s"]).well();
    assert_eq!(weft(&place, &[], &["cat", "one:file"]).well(), "then");
    weft(&place, &[], &["history", "forget", "one:file"]).well();
}

#[test]
fn settings_that_do_not_fit_a_command_line_are_left_out() {
    let Some(place) = Place::to_mount() else { return };
    place.directory("m");
    configured(
        &place,
        "[mount]\npatience = 120\ndisk-cache = '/nowhere'\nwriteback = true\n[init]\nlayout = 'hybrid'\n\
         [history]\njson = true\n[check]\nread-data = true\n",
    );
    weft(&place, &[], &["init", "v"]).well();
    weft(&place, &[], &["history", "set", "v", "all 7d"]).well();
    weft(&place, &[], &["mount", "--nfs", "127.0.0.1:0", "v", "m"]).well();
    place.umount();
    weft(&place, &[], &["check", "v"]).well();
    weft(&place, &[], &["check", "--salvage", "v", "w"]).well();
}

#[test]
fn what_configures_nothing_is_refused_with_the_place_that_it_is_from() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    for (text, variables, why) in [
        ("[mont]\nnoatime = true", &[][..], "there is no command 'weft mont'"),
        ("[volume.x.mont]\nnoatime = true", &[], "there is no command 'weft mont'"),
        ("[volume.x]\npath = 'x'", &[], "volume.x.path is 'x': write one that begins with '/' or '~/'"),
        ("[mount]\ndirty-max = '1Q'", &[], "config.toml: invalid value '1Q' for '--dirty-max"),
        ("", &[("WEFT_MOUNT_COMMITS_INTERVAL", "3")], "WEFT_MOUNT_COMMITS_INTERVAL: 'weft mount' has no option"),
        ("", &[("WEFT_MOUNT_LINKS", "nobdy")], "cannot use WEFT_MOUNT_LINKS: invalid value 'nobdy' for '--links"),
        ("", &[("WEFT_MOUNT_ACCEPT_LOSS", "1")], "--accept-loss gives something up"),
    ] {
        configured(&place, text);
        for words in [&["mount", "v", "m"][..], &["config", "--show"]] {
            let said = weft(&place, variables, words);
            assert!(said.code == 2 && said.err.contains(why), "{words:?}: {said:?}");
        }
    }
    configured(&place, "[volume.x.mount]\nnoatime = true");
    weft(&place, &[], &["config", "--show"]).misused(&["volume.x has no path"]);
}
