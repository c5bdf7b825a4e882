//! Users and groups of a mount.

use crate::place::{is_root, on_each_engine};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

#[test]
fn bits_groups_and_lists_of_rights_decide_what_users_may() {
    let test = "bits_groups_and_lists_of_rights_decide_what_users_may";
    if !is_root() {
        return eprintln!("SKIPPED {test}: needs root");
    }
    if Command::new("setfacl").arg("--version").output().is_err() {
        return eprintln!("SKIPPED {test}: needs setfacl");
    }
    on_each_engine(&[], |place, _| {
        let mounted = place.path("m");
        fs::set_permissions(place.path(""), PermissionsExt::from_mode(0o755)).unwrap();
        fs::set_permissions(&mounted, PermissionsExt::from_mode(0o755)).unwrap();
        let may = |user: u32, group: u32, script: &str| {
            let user = format!("--reuid={user} --regid={user} --groups={group} -- sh -c");
            let mut command = Command::new("setpriv");
            command.args(user.split(' ')).arg(script).current_dir(&mounted);
            command.output().unwrap().status.success()
        };
        place.sh("echo secret >secret && chmod 640 secret && chown 1000:2000 secret").well();
        assert!(may(1000, 1000, "cat secret"), "the owner");
        assert!(may(1001, 2000, "cat secret"), "a member of the group by a supplementary group");
        assert!(!may(1001, 1001, "cat secret"), "another user");
        assert!(!may(1001, 2000, "echo x >>secret"), "a member of the group");
        place.sh("setfacl -m u:1001:rw secret").well();
        assert!(may(1001, 1001, "echo x >>secret"), "a user that the list names");

        place.sh("mkdir shared && setfacl -d -m u:1001:rwx shared && chmod 777 shared").well();
        assert!(may(1000, 1000, "touch shared/new"));
        let list = place.sh("getfacl -n shared/new").well();
        assert!(list.contains("\nuser:1001:rwx"), "{list}");

        place.sh("mkdir -m 1777 sticky").well();
        assert!(may(1000, 1000, "touch sticky/file"));
        assert!(!may(1001, 1001, "rm -f sticky/file"), "another user removes it");

        place.sh("cp /bin/true program && chown 1000 program && chmod 6777 program").well();
        assert!(may(1001, 1001, "echo x >>program"));
        assert_eq!(fs::metadata(mounted.join("program")).unwrap().mode() & 0o7777, 0o777);
    });
}
