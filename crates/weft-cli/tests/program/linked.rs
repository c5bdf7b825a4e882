//! Content of links and views as programs find it: that of a pipeline, whoever reads it and by
//! whatever way.

use crate::place::{Place, is_root, on_each_engine, write_synced};
use crate::served::{ended, serving};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Makes link `name` of `target`, both of the mount at `m`.
#[track_caller]
fn link(place: &Place, target: &str, name: &str, arguments: &[&str]) {
    let (target, name) = (format!("m/{target}"), format!("m/{name}"));
    place.weft(&[&["link", &target, &name], arguments].concat()).well();
}

fn results(place: &Place) -> [u64; 2] {
    let stats = place.weft(&["stats", "m", "--json"]).json();
    ["results_computed", "results_found"].map(|name| stats["volume"][name].as_u64().unwrap())
}

/// The numbers as the link `sorted` gives them.
const SORTED: &str = "sort -r numbers | tr '\\000-\\377' '\\001-\\377\\000'";

#[test]
fn links_give_what_pipelines_do_also_after_a_kill_and_are_told_of() {
    on_each_engine(&["--opens"], |place, volume| {
        place.sh("seq 1 200000 >numbers && gzip -k numbers").well();
        link(place, "numbers.gz", "some", &["-n", "gzip -d | grep 99 | tail -3"]);
        place.same("cat some", "zcat numbers.gz | grep 99 | tail -3");
        place.same("stat -c %s some", "cat some | wc -c");
        link(place, "numbers.gz", "whole", &["-n", "gzip -d"]);
        link(place, "whole", "sorted", &["-n", "sort -r | increment"]);
        place.same("cat sorted", SORTED);
        let part = "dd bs=777 skip=999 count=20 iflag=fullblock 2>/dev/null";
        place.same(&format!("{part} <sorted"), &format!("{SORTED} | {part}"));
        place.same("\"$0\" digest .", "\"$0\" digest --read .");
        place.same("\"$0\" digest whole | cut -d ' ' -f 1", "\"$0\" digest numbers | cut -d ' ' -f 1");
        place.weft(&["sync", "m"]).well();
        place.mount_killed(volume, &[]);
        place.same("cat sorted", SORTED);
        place.umount();

        let show = |arguments: &[&str]| place.weft(&[&["link", "--show"], arguments].concat()).well();
        assert!(show(&[&format!("{volume}:whole")]).starts_with("target   /numbers.gz\nnetwork  gzip -d\n"));
        place.mount_with(volume, &[]);
        place.same("cat sorted", SORTED);
        assert_eq!(results(place), [0, 1], "it was computed in an earlier mount");
        assert!(show(&["m/sorted"]).contains("\nmemo     on, all 1288895 bytes are kept\n"), "{}", show(&["m/sorted"]));
        let told: serde_json::Value = serde_json::from_str(&show(&["--json", "m/sorted"])).unwrap();
        assert_eq!(told["kept"], serde_json::json!({"bytes": 1_288_895, "complete": true}));
        // The target of another name.
        place.sh("ln -s numbers.gz symbolic").well();
        link(place, "symbolic", "through", &["-n", "gzip -d | wc -l"]);
        assert_eq!(fs::read(place.path("m/through")).unwrap(), b"200000\n");
        place.umount();

        place.weft(&["link", &format!("{volume}:numbers"), &format!("{volume}:made"), "-n", "head -2"]).well();
        place.weft(&["export", volume, "out"]).well();
        assert_eq!(fs::read(place.path("out/made")).unwrap(), b"1\n2\n");
    });
}

/// Reads `path` of the server at `address` by `nfs-cat`.
fn by_nfs(address: &str, path: &str) -> Option<Vec<u8>> {
    let (host, port) = address.split_once(':').unwrap();
    let url = format!("nfs://{host}//{path}?nfsport={port}&mountport={port}");
    let output = Command::new("timeout").args(["60", "nfs-cat", &url]).output().unwrap();
    output.status.success().then_some(output.stdout)
}

#[test]
fn views_show_directories_and_archives_transformed_also_over_nfs() {
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    on_each_engine(&["--opens"], |place, volume| {
        place.sh("seq 1 200000 >numbers; mkdir -p logs/old sub; echo plain >logs/readme").well();
        place.sh("for name in a b old/c; do echo \"$name says ERROR\" | gzip >logs/$name.gz; done").well();
        for view in ["view", "sub/view"] {
            link(place, "logs", view, &["--dir", "-n", "gzip -d", "--rename", r"s/\.gz$//", "--only", r"\.gz$"]);
        }
        place.same("find view | sort", r"find logs | sed 's/^logs/view/; s/\.gz$//' | sort");
        place.same("cat view/a view/old/c view/readme", "zcat logs/a.gz logs/old/c.gz; cat logs/readme");
        place.sh("cp -a view ../copy && diff -r view ../copy && tar cf /dev/null view").well();
        place.sh("echo late | gzip >logs/old/late.gz").well();
        assert_eq!(fs::read(place.path("m/view/old/late")).unwrap(), b"late\n");
        let mut archives = vec!["tar cf all.tar logs numbers"];
        if has("zip") {
            archives.push("zip -qr all.zip logs numbers");
        } else {
            eprintln!("SKIPPED members of zip archives: needs zip");
        }
        for command in archives {
            place.sh(command).well();
            let archive = command.split(' ').find(|word| word.starts_with("all.")).unwrap();
            let view = format!("in.{archive}");
            link(place, archive, &view, &["--members"]);
            let part = "dd bs=1000 skip=77 count=9 2>/dev/null";
            place.same(&format!("{part} <{view}/numbers"), &format!("{part} <numbers"));
            place.same(&format!("cd {view} && cat numbers && zcat logs/a.gz"), "cat numbers && zcat logs/a.gz");
        }
        fs::remove_file(place.path("m/logs/a.gz")).unwrap();
        place.sh("cat view/a").fails_with("No such file");
        place.umount();

        place.weft(&["export", volume, "out"]).well();
        assert_eq!(fs::read(place.path("out/view/old/late")).unwrap(), b"late\n");
        if !has("nfs-cat") {
            return eprintln!("SKIPPED views over NFS: needs nfs-cat");
        }
        let numbers = fs::read(place.path("out/numbers")).unwrap();
        let (server, address) = serving(place, volume, &["--export", "/ *(no_root_squash)"]);
        assert_eq!(by_nfs(&address, "view/old/late").as_deref(), Some(&b"late\n"[..]));
        assert!(by_nfs(&address, "in.all.tar/numbers").as_deref() == Some(&numbers[..]));
        assert_eq!(ended(server).code, 0);
        let (server, address) = serving(place, volume, &["--export", "/sub *(no_root_squash)"]);
        assert_eq!(by_nfs(&address, "sub/view/old/late").as_deref(), Some(&b"late\n"[..]));
        assert_eq!(ended(server).code, 0);
    });
}

#[test]
fn sixteen_stages_give_each_byte_to_the_kernel_once_and_copy_none_but_into_a_ring() {
    const SIZE: u64 = 16 << 20;
    on_each_engine(&["--opens"], |place, volume| {
        let mut bytes = vec![0; usize::try_from(SIZE).unwrap()];
        bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 251) as u8);
        write_synced(&place.path("m/bytes"), &bytes);
        let network = ["increment"; 16].join(" | ");
        link(place, "bytes", "sixteen", &["-n", &network, "--memo", "off", "--no-fuse"]);
        // The blocks are in memory from now on.
        bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(16));
        assert!(fs::read(place.path("m/sixteen")).unwrap() == bytes);
        let told = || {
            let stats = place.weft(&["stats", "m", "--json"]).json();
            let number = |value: &serde_json::Value| value.as_u64().unwrap();
            (number(&stats["bytes_given"]), number(&stats["volume"]["bytes_copied"]), stats["transport"] == "io_uring")
        };
        let before = told();
        place.sh("dd if=sixteen of=/dev/null bs=1M iflag=direct status=none").well();
        let after = told();
        let (given, copied) = (after.0 - before.0, after.1 - before.1);
        assert!((SIZE..=SIZE + (1 << 20)).contains(&given), "{given} bytes were given");
        let least = if after.2 { SIZE } else { 0 };
        // Parts of an answer of a server may have to be joined.
        let most = least + if volume == "v" { 0 } else { SIZE } + SIZE / 16;
        assert!((least * 9 / 10..=most).contains(&copied), "{copied} bytes were copied");
    });
}

#[test]
fn a_length_that_is_left_open_is_known_once_a_program_has_read_to_the_end() {
    on_each_engine(&["--opens"], |place, _| {
        place.sh("seq 30000 >numbers").well();
        link(place, "numbers", "lazy", &["-n", "nl | rev", "--lazy"]);
        link(place, "numbers", "endless", &["-n", "rot13 | rev", "--lazy"]);
        let size = |name: &str| fs::metadata(place.path("m").join(name)).unwrap().len();
        assert_eq!(size("lazy"), 0);
        place.same("head -c 7 lazy", "nl -ba numbers | rev | head -c 7");
        assert_eq!(size("lazy"), 0);
        place.same("cat lazy", "nl -ba numbers | rev");
        place.same("stat -c %s lazy", "nl -ba numbers | wc -c");
        place.same("cp endless copied && cat copied", "rev numbers");
        if !is_root() {
            return eprintln!("SKIPPED the first bytes of a command: needs root");
        }
        link(place, "numbers", "slow", &["-n", "exec 'cat >/dev/null; echo first; sleep 1000'", "--lazy"]);
        let mut reader = Command::new("cat");
        let mut reader = reader.arg(place.path("m/slow")).stdout(Stdio::piped()).spawn().unwrap();
        let first = BufReader::new(reader.stdout.take().unwrap()).lines().next();
        assert_eq!(first.unwrap().unwrap(), "first");
        reader.kill().unwrap();
        reader.wait().unwrap();
    });
}

#[test]
fn a_link_that_is_read_past_the_kernels_cache_is_written_and_mapped_privately_and_never_old() {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    on_each_engine(&["--opens"], |place, _| {
        place.sh("seq 300000 >numbers").well();
        link(place, "numbers", "shifted", &["-n", "tr 0-9 1-90", "--direct"]);
        let reads = |file: &str| format!("cat {file}; head -c 5000 {file}; tail -c 70 {file}");
        place.same(&reads("shifted"), &format!("tr 0-9 1-90 <numbers >t; {}", reads("t")));
        let open = |name: &str| {
            let mut options = fs::File::options();
            options.read(true).write(true).open(place.path("m").join(name)).unwrap()
        };
        let (link, file) = (open("shifted"), open("numbers"));
        let byte = |file: &fs::File, at: u64| {
            let mut bytes = vec![0; 1 << 17];
            file.read_exact_at(&mut bytes, at).unwrap();
            bytes[9]
        };
        link.write_all_at(b"7", 70_009).unwrap();
        assert_eq!(byte(&file, 70_000), b'6');
        for round in 0..10 {
            for at in (0..1 << 20).step_by(1 << 17) {
                file.write_all_at(&[b'0' + round], at + 9).unwrap();
                assert_eq!(byte(&link, at), b'0' + (round + 1) % 10, "round {round} at {at}");
            }
        }
        // SAFETY: new mappings, which nobody else knows; the second one is unmapped below.
        unsafe {
            let mapped = |flags| mmap(std::ptr::null_mut(), 4096, ProtFlags::READ, flags, &link, 0);
            assert_eq!(mapped(MapFlags::SHARED).err(), Some(rustix::io::Errno::NODEV));
            let memory = mapped(MapFlags::PRIVATE).unwrap();
            assert_eq!(*memory.cast::<u8>().add(9), b'0');
            munmap(memory, 4096).unwrap();
        }
        let shown = place.weft(&["link", "--show", "m/shifted"]).well();
        assert!(shown.contains("reading  past what the kernel keeps of files\n"), "{shown}");
    });
}

#[test]
fn keys_of_the_mount_encrypt_for_age_and_decrypt_what_age_has_encrypted() {
    let Some(place) = Place::to_mount() else { return };
    let keys = place.directory("keys");
    let made = Command::new("age-keygen").arg("-o").arg(keys.join("mine")).stderr(Stdio::null()).status();
    if !made.is_ok_and(|status| status.success()) {
        return eprintln!("SKIPPED keys_of_the_mount_encrypt_for_age: needs age");
    }
    place.mounted();
    place.sh("seq 200000 >numbers").well();
    let said = place.weft(&["link", "m/numbers", "m/nowhere", "-n", "encrypt mine"]);
    let note = "it can only be read: unmount the volume and mount it again, once";
    assert!(said.code == 0 && said.err.contains(note), "{said:?}");
    place.sh("cat nowhere").fails_with("Input/output error");
    place.umount();

    place.weft(&["mount", "v", "m", "--keys", "keys", "-o", "allow_other", "--links", "everybody"]).well();
    link(&place, "numbers", "numbers.age", &["-n", "gzip | encrypt mine"]);
    link(&place, "numbers.age", "opened", &["-n", "decrypt mine | gzip -d | tail -2"]);
    place.same("age -d -i ../keys/mine numbers.age | gzip -d", "cat numbers");
    place.same("cat opened", "tail -2 numbers");
    place.sh("age -r \"$(age-keygen -y ../keys/mine)\" -o diary.age numbers").well();
    link(&place, "diary.age", "diary", &["-n", "decrypt mine"]);
    place.same("cat diary", "cat numbers");
    let diary = fs::File::options().write(true).open(place.path("m/diary.age")).unwrap();
    diary.write_all_at(b"damaged", 5000).unwrap();
    drop(diary);
    place.sh("cat diary").fails_with("Input/output error");
    place.same("\"$0\" run --keys ../keys -n 'encrypt mine | decrypt mine' <numbers", "cat numbers");
    if is_root() {
        place.sh("mkdir -m 777 open").well();
        let theirs = ["link", "m/numbers", "m/open/theirs", "-n", "encrypt mine"];
        place.weft_as_stranger(&theirs).fails_with("may not use keys here");
    } else {
        eprintln!("SKIPPED keys for other users: needs root");
    }
    place.umount();
}

#[test]
fn links_of_others_are_theirs_and_run_no_code() {
    let Some(place) = Place::to_mount() else { return };
    if !is_root() {
        return eprintln!("SKIPPED links_of_others_are_theirs_and_run_no_code: needs root");
    }
    place.weft(&["init", "v"]).well();
    place.directory("m");
    place.weft(&["mount", "v", "m", "-o", "allow_other", "--links", "everybody"]).well();
    place.sh("echo secret >file && chmod 644 file && mkdir -m 777 open").well();
    link(&place, "file", "ours", &["-n", "exec 'cat; id -u'"]);
    assert_eq!(fs::read_to_string(place.path("m/ours")).unwrap(), format!("secret\n{}\n", 0x7000_0000));
    let make = |name: &str, network: &str| place.weft_as_stranger(&["link", "m/file", name, "-n", network]);
    make("m/open/theirs", "upper").well();
    make("m/theirs", "upper").fails_with("Permission denied");
    make("m/open/code", "exec id").fails_with("exported-stages");
    let read = || {
        let mut cat = Command::new("cat");
        cat.arg(place.path("m/open/theirs")).uid(65534).gid(65534).output().unwrap()
    };
    assert_eq!(read().stdout, b"SECRET\n");
    place.sh("[ $(stat -c %u open/theirs) = 65534 ] && chmod 600 file").well();
    assert!(!read().status.success());
    // Not to root either: the link's maker may not read it.
    place.sh("cat open/theirs").fails_with("Permission denied");
    place.umount();
}
