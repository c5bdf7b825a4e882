//! The program as the helper of mount(8).

use crate::place::{Place, Said, is_root};
use std::process::Command;

fn call(place: &Place, name: &str, arguments: &[&str]) -> Said {
    let helper = place.path(name);
    if !helper.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_weft"), &helper).unwrap();
    }
    Command::new(helper).args(arguments).current_dir(place.path("")).output().unwrap().into()
}

#[test]
fn the_helper_takes_what_mount_8_gives() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "v"]).well();
    place.directory("m");
    let generic = "rw,noauto,user=someone,_netdev,nofail,x-systemd.automount,noatime";
    for name in ["mount.weft", "mount.fuse.weft"] {
        call(&place, name, &["v", "m", "-sn", "-v", "-o", generic]).well();
        assert!(place.is_mounted("m"));
        call(&place, &format!("u{name}"), &["m", "-n", "-t", "fuse.weft"]).well();
        // Nobody holds it any more.
        place.weft(&["check", "v"]).well();
    }
    call(&place, "mount.weft", &["v", "m", "-f"]).well();
    assert!(!place.is_mounted("m"));
    call(&place, "mount.weft", &["v", "m", "-o", "nonsense"]).misused(&["unknown mount option 'nonsense'"]);
    call(&place, "mount.weft", &["nothing", "m"]).failed(&["there is no volume at"]);
}

#[test]
fn mount_8_and_a_line_of_fstab_mount_a_volume() {
    let test = "mount_8_and_a_line_of_fstab_mount_a_volume";
    let Some(place) = Place::to_mount() else { return };
    if !is_root() {
        return eprintln!("SKIPPED {test}: needs root");
    }
    // mount(8) looks for helpers in directories that tests should leave alone; a private view of
    // them will do.
    let has_unshare = Command::new("unshare").args(["--mount", "true"]).output();
    if !has_unshare.is_ok_and(|output| output.status.success()) {
        return eprintln!("SKIPPED {test}: unshare --mount is not possible");
    }
    place.weft(&["init", "v"]).well();
    let directory = place.directory("m");
    let program = env!("CARGO_BIN_EXE_weft");
    let script = r#"
        set -e
        where=$(realpath /sbin)
        mkdir upper work
        mount -t tmpfs none upper; mkdir upper/u upper/w
        mount -t overlay overlay -o "lowerdir=$where,upperdir=upper/u,workdir=upper/w" "$where"
        for helper in mount umount; do ln -sf "$PROGRAM" /sbin/$helper.fuse.weft; done
        mount -t fuse.weft "$PLACE/v" "$PLACE/m" -o noatime
        findmnt -no OPTIONS m >options
        echo one >m/file
        mount -o remount,ro "$PLACE/m"
        (echo two >m/file) 2>refused || true
        ! mount -o remount,strictatime "$PLACE/m" 2>>refused
        mount -o remount,rw "$PLACE/m"
        echo one >>m/file
        findmnt -no OPTIONS m >>options
        umount m
        "$PROGRAM" check v >/dev/null
        echo "$PLACE/v $PLACE/m fuse.weft ro,nofail,x-gvfs-hide,nosuid,dev 0 0" >fstab
        mount --fstab "$PLACE/fstab" "$PLACE/m"
        cat m/file
        findmnt -no OPTIONS m >>options
        "$PROGRAM" umount m
    "#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).current_dir(place.path(""));
    command.env("PROGRAM", program).env("PLACE", place.path("."));
    let said: Said = command.output().unwrap().into();
    assert_eq!(said.well(), "one\none\n");
    let refused = std::fs::read_to_string(place.path("refused")).unwrap();
    assert!(refused.contains("Read-only file system") && refused.contains("when access times move"), "{refused}");
    // As for any other file system; the third is what the line of fstab says.
    let options = std::fs::read_to_string(place.path("options")).unwrap();
    let has = |line: &str| ["rw", "ro", "nosuid", "nodev"].map(|word| line.split(',').any(|option| option == word));
    let expected = [[true, false, false, false], [true, false, false, false], [false, true, true, false]];
    assert_eq!(options.lines().map(has).collect::<Vec<_>>(), expected, "{options}");
    assert!(directory.read_dir().unwrap().next().is_none());
}
