//! Advice that commands give, and what they say where there is nothing to do.

use crate::place::Place;
use std::os::unix::fs::PermissionsExt;

#[test]
fn an_empty_list_of_digests_is_refused() {
    let place = Place::new();
    for nothing in ["", "\n"] {
        std::fs::write(place.path("list"), nothing).unwrap();
        place.weft(&["digest", "--check", "list"]).failed(&["list lists no digest"]);
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
    assert!(said.ends_with("weft mount 'my volume' DIRECTORY\n"), "{said}");
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
