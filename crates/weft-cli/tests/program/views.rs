//! Views, as other users see them.

use crate::place::{Place, is_root};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

#[test]
fn a_copy_of_a_view_can_be_removed_by_whoever_made_it_and_the_view_changed_by_nobody() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.mounted();
    std::fs::create_dir_all(directory.join("d/deep")).unwrap();
    std::fs::write(directory.join("d/deep/file"), "abc").unwrap();
    for (name, mode) in [("d", 0o755), ("d/deep", 0o755)] {
        std::fs::set_permissions(directory.join(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    let archived = Command::new("tar").args(["-cf", "m/tar", "-C", "m/d", "deep"]).current_dir(place.path("")).status();
    assert!(archived.unwrap().success());
    place.weft(&["link", "--dir", "m/d", "m/v", "-n", "upper"]).well();
    place.weft(&["link", "--members", "m/tar", "m/t", "-n", "identity"]).well();
    let mode = |name: &str| directory.join(name).metadata().unwrap().mode() & 0o7777;
    assert_eq!([mode("v"), mode("v/deep"), mode("t"), mode("t/deep")], [0o755; 4]);
    for view in ["v", "t"] {
        let entry = |name: &str| directory.join(view).join(name);
        std::fs::create_dir(entry("new")).unwrap_err();
        std::fs::write(entry("new"), "").unwrap_err();
        std::fs::write(entry("deep/new"), "").unwrap_err();
        std::fs::remove_file(entry("deep/file")).unwrap_err();
        std::fs::remove_dir_all(entry("deep")).unwrap_err();
        std::fs::rename(entry("deep"), entry("other")).unwrap_err();
        std::fs::rename(entry("deep/file"), directory.join("moved")).unwrap_err();
        std::os::unix::fs::symlink("target", entry("new")).unwrap_err();
        std::fs::hard_link(directory.join("d/deep/file"), entry("new")).unwrap_err();
        let names = |name: &str| std::fs::read_dir(entry(name)).unwrap().count();
        assert_eq!(names("deep"), 1);
    }
    place.umount();
    if !is_root() {
        return;
    }
    let copies = place.directory("copies");
    std::os::unix::fs::chown(&copies, Some(65534), Some(65534)).unwrap();
    std::fs::set_permissions(place.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    place.weft(&["mount", "-o", "allow_other", "v", "m"]).well();
    let script = "umask 022; for view in v t; do cp -r ../m/$view copy; test -f copy/deep/file; rm -r copy; done";
    let mut command = Command::new("sh");
    let said = command.args(["-euc", script]).current_dir(&copies).uid(65534).gid(65534).output().unwrap();
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    place.umount();
}
