//! Attributes that control a volume: only who means it sets them, whatever an archive brings.

use crate::fixture::{Mounted, can_mount};
use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use weft_fuse::{SessionOptions, Transport};
use weft_links::{LinkDefinition, LinkOrder, WithLinks};

const MALLORY: u32 = 1000;

fn nonce(directory: &Path) -> Vec<u8> {
    let mut nonce = [0; 64];
    let len = getxattr(directory, "system.weft.nonce", &mut nonce[..]).expect("a nonce");
    nonce[..len].to_vec()
}

/// The nonce of `directory` for another user.
fn nonce_of(uid: u32, directory: &Path) -> Vec<u8> {
    let (uid, gid) = (format!("--reuid={uid}"), format!("--regid={uid}"));
    let mut get = Command::new("setpriv");
    get.args([&uid, &gid, "--clear-groups", "--", "getfattr", "--only-values", "-n", "system.weft.nonce"]);
    get.arg("--absolute-names").arg(directory).output().expect("getfattr is there").stdout
}

fn order(name: &str) -> Vec<u8> {
    let definition = LinkDefinition::new(vec![b"/file".to_vec()], "exec 'id -u'");
    LinkOrder { name: name.into(), permissions: 0o644, definition }.encode()
}

fn set(directory: &Path, name: &str, value: &[&[u8]]) -> rustix::io::Result<()> {
    setxattr(directory, name, &value.concat(), XattrFlags::empty())
}

#[test]
fn attributes_that_are_restored_make_no_link_and_name_no_network() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::with(SessionOptions { transport: Transport::Device, ..SessionOptions::default() });
    fs::write(mounted.path("file"), "content").expect("written");
    fs::create_dir(mounted.path("hers")).expect("made");
    // A user who may write there need not be able to read it.
    fs::set_permissions(mounted.path("hers"), fs::Permissions::from_mode(0o333)).expect("set");
    let (root, hers) = (mounted.root(), mounted.path("hers"));
    let another = nonce_of(MALLORY, &hers);
    assert_eq!(another.len(), nonce(&hers).len(), "everybody has one");
    for (directory, name, text) in [
        (hers.as_path(), "user.weft.link", order("made")),
        (root, "user.weft.link", order("made")),
        (root, "user.weft.network.mine", b"upper".to_vec()),
        (root, "user.weft.opens", b"1".to_vec()),
        (root, "user.weft.digest", b"0".to_vec()),
        (root, "user.weft.later", b"0".to_vec()),
    ] {
        // As it comes from an archive; with a nonce of who made the archive; with that of another
        // directory.
        let elsewhere = nonce(&mounted.path("file"));
        for before in [&b""[..], &another, &elsewhere] {
            assert_eq!(set(directory, name, &[before, &text]), Err(Errno::OPNOTSUPP), "{name}");
        }
        assert_eq!(removexattr(directory, name), Err(Errno::OPNOTSUPP), "{name}");
    }
    assert_eq!(fs::read_dir(&hers).expect("listed").count(), 0);
    assert!(mounted.vfs.links().expect("links").networks().expect("told").is_empty());
    assert!(!mounted.vfs.wants_opens().expect("told"));
}

#[test]
fn who_asked_the_mount_orders_links_and_networks() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::with(SessionOptions::default());
    fs::write(mounted.path("file"), "content").expect("written");
    fs::create_dir(mounted.path("hers")).expect("made");
    chown(mounted.path("hers"), Some(MALLORY), Some(MALLORY)).expect("given");
    let (root, hers) = (mounted.root(), mounted.path("hers"));
    let plain = LinkDefinition::new(vec![b"/file".to_vec()], "upper");
    let plain = LinkOrder { name: b"made".to_vec(), permissions: 0o644, definition: plain }.encode();
    set(&hers, "user.weft.link", &[&nonce(&hers), &plain]).expect("made");
    assert_eq!(fs::read(hers.join("made")).expect("read"), b"CONTENT");
    let network = "user.weft.network.loud";
    set(root, network, &[&nonce(root), b"upper"]).expect("defined");
    assert_eq!(mounted.vfs.links().expect("links").networks().expect("told")["loud"], "upper");
    assert_eq!(set(root, network, &[&nonce(root), b"no such stage ("]), Err(Errno::INVAL));
    assert_eq!(set(&hers, network, &[&nonce(&hers), b"upper"]), Err(Errno::OPNOTSUPP));
    assert_eq!(removexattr(root, network), Err(Errno::OPNOTSUPP), "what mirrors a tree removes what it lacks");
    set(root, network, &[&nonce(root), b""]).expect("removed");
    assert!(mounted.vfs.links().expect("links").networks().expect("told").is_empty());
    let mut names = [0; 256];
    assert_eq!(listxattr(root, &mut names[..]), Ok(0), "nobody copies them along");
}

#[test]
fn a_link_is_made_by_those_who_may_add_names_alone() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::with(SessionOptions::default());
    fs::write(mounted.path("file"), "content").expect("written");
    let directory = mounted.path("hers");
    fs::create_dir(&directory).expect("made");
    let definition = LinkDefinition::new(vec![b"/file".to_vec()], "upper");
    let order = LinkOrder { name: b"made".to_vec(), permissions: 0o644, definition }.encode();
    for (mode, made) in [(0o776, false), (0o775, false), (0o777, true)] {
        fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).expect("set");
        let value = [nonce_of(MALLORY, &directory), order.clone()].concat();
        let value: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut command = Command::new("setpriv");
        let user = [format!("--reuid={MALLORY}"), format!("--regid={MALLORY}"), "--clear-groups".into()];
        command.args(user).args(["--", "setfattr", "-n", "user.weft.link", "-v", &format!("0x{value}")]);
        command.arg(&directory);
        let output = command.output().expect("setpriv is there");
        assert_eq!(output.status.success(), made, "{mode:o}: {output:?}");
        // The kernel may keep the listing until attributes are asked for, which musl's opendir()
        // does not do.
        fs::metadata(&directory).expect("there");
        assert_eq!(fs::read_dir(&directory).expect("listed").count(), usize::from(made), "{mode:o}");
    }
}
