//! `weft net push`, `pop` and `show`: networks between a file and those who use it.

use crate::place::{Place, is_root};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

/// A volume that is mounted at `m`, with the file `used`.
fn mounted() -> Option<Place> {
    let place = Place::to_mount()?;
    place.weft(&["init", "v"]).well();
    place.directory("m");
    place.weft(&["mount", "v", "m", "--opens", "--links", "everybody", "-o", "allow_other"]).well();
    fs::write(place.path("m/used"), "Hello\n").unwrap();
    Some(place)
}

#[test]
fn a_network_on_an_open_file_is_for_those_who_share_it() {
    let Some(place) = mounted() else { return };
    let script = "exec 3<>used; head -c 2 <&3; \"$0\" net push --fd 3 -n upper; cat <&3; cat used; \
        \"$0\" net show --fd 3; \"$0\" net show used; \
        \"$0\" net push --fd 3 -n gzip; echo $?; \"$0\" net pop --fd 3; \"$0\" net pop --fd 3; echo $?";
    let said = place.sh(script);
    assert_eq!(said.out, "HeLLO\nHello\nupper\n1\n1\n", "{said:?}");
    let errors: Vec<&str> = said.err.lines().collect();
    assert!(errors[0].contains("must leave the length") && errors[1].contains("nothing is pushed"), "{said:?}");
    assert_eq!(errors.len(), 2, "{said:?}");

    // What another process has open.
    let used = File::open(place.path("m/used")).unwrap();
    let mut other = Command::new("cat").stdin(Stdio::piped()).stderr(used).spawn().unwrap();
    let pid = other.id().to_string();
    let at = ["--pid", &pid, "--fd", "2"];
    place.weft(&[&["net", "push", "-n", "rot13"], &at[..]].concat()).well();
    assert_eq!(place.weft(&[&["net", "show"], &at[..]].concat()).well(), "rot13\n");
    drop(other.stdin.take());
    other.wait().unwrap();
    place.umount();
}

#[test]
fn networks_on_a_file_are_for_all_who_use_it_and_written_through() {
    let Some(place) = mounted() else { return };
    let net = |arguments: &[&str]| place.weft(&[&["net"], arguments].concat());
    net(&["push", "m/used", "-n", "rot13"]).well();
    net(&["push", "m/used", "-n", "gzip | base64"]).well();
    assert_eq!(place.sh("base64 -d <used | zcat").well(), "Uryyb\n");
    assert_eq!(net(&["show", "--json", "m/used"]).json(), serde_json::json!(["gzip | base64", "rot13"]));
    net(&["pop", "m/used"]).well();
    place.sh("echo Jbeyq >>used").well();
    assert_eq!(fs::read_to_string(place.path("m/used")).unwrap(), "Uryyb\nJbeyq\n");
    net(&["pop", "m/used"]).well();
    assert_eq!(fs::read_to_string(place.path("m/used")).unwrap(), "Hello\nWorld\n");
    // As a whole, too.
    net(&["push", "m/used", "-n", "gzip -d"]).well();
    place.sh("echo packed >used").well();
    assert_eq!(fs::read_to_string(place.path("m/used")).unwrap(), "packed\n");
    net(&["pop", "m/used"]).well();
    assert_eq!(place.sh("zcat used").well(), "packed\n");

    net(&["define", "turned", "rot13", "m"]).well();
    net(&["push", "m/used", "-n", "@turned"]).well();
    assert_eq!(net(&["show", "m/used"]).well(), "rot13\n");
    net(&["pop", "m/used"]).well();
    net(&["push", "m", "-n", "upper"]).failed(&["onto regular files alone"]);
    net(&["push", "/etc/passwd", "-n", "upper"]).failed(&["no file of a mounted volume"]);
    if is_root() {
        place.sh("chmod 644 used").well();
        place.weft_as_stranger(&["net", "push", "m/used", "-n", "upper"]).fails_with("for the owner");
    } else {
        eprintln!("SKIPPED networks that others push: needs root");
    }
    place.umount();
}

/// Number of the ioctl(2) that takes or gives an argument of 8192 bytes.
const fn request(direction: libc::Ioctl, number: libc::Ioctl) -> libc::Ioctl {
    direction << 30 | 8192 << 16 | (b'W' as libc::Ioctl) << 8 | number
}

const PUSH: libc::Ioctl = request(1, 1);
const POP: libc::Ioctl = request(1, 2);
const SHOW: libc::Ioctl = request(3, 3);

/// Two words and a text, as the calls take them; answers are the same.
fn call(file: &File, request: libc::Ioctl, scope: u32, length: u32, text: &[u8]) -> Result<[u32; 2], i32> {
    let mut argument = [0u8; 8192];
    argument[..4].copy_from_slice(&scope.to_ne_bytes());
    argument[4..8].copy_from_slice(&length.to_ne_bytes());
    argument[8..8 + text.len()].copy_from_slice(text);
    // SAFETY: the number of the request says how long the argument is, and it is.
    if unsafe { libc::ioctl(file.as_raw_fd(), request, argument.as_mut_ptr()) } == -1 {
        return Err(std::io::Error::last_os_error().raw_os_error().unwrap());
    }
    Ok([0, 4].map(|at| u32::from_ne_bytes(argument[at..at + 4].try_into().unwrap())))
}

#[test]
fn orders_that_no_program_means_are_refused() {
    let Some(place) = mounted() else { return };
    let file = File::open(place.path("m/used")).unwrap();
    let push = |text: &[u8]| call(&file, PUSH, 1, u32::try_from(text.len()).unwrap(), text);
    let long = [b'x'; 8184];
    for network in [&b""[..], b"nothing", b"upper | $1", b"\xff\xfe", b"upper\0relative", b"wasm $2\0", &long] {
        assert_eq!(push(network), Err(libc::EINVAL), "{network:?}");
    }
    assert!(matches!(push(b"upper\0/none"), Err(libc::ENOENT | libc::EINVAL)));
    assert_eq!(call(&file, PUSH, 7, 5, b"upper"), Err(libc::EINVAL));
    assert_eq!(call(&file, PUSH, 1, u32::MAX, b"upper"), Err(libc::EINVAL));
    assert_eq!(call(&file, POP, 1, 0, b""), Err(libc::EINVAL));
    for _ in 0..8 {
        push(b"increment").unwrap();
    }
    assert_eq!(push(b"increment"), Err(libc::ELOOP));
    assert_eq!(call(&file, SHOW, 1, 0, b""), Ok([1, 80]));
    for _ in 0..8 {
        call(&file, POP, 1, 0, b"").unwrap();
    }
    drop(file);
    place.umount();
}
