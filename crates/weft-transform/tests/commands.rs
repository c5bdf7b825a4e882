//! Effects of `exec` commands that a daemon runs for owners of links: processes and files that they
//! leave behind, and resources that they take.

use rustix::fs::{XattrFlags, listxattr, setxattr};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use weft_block::Slice;
use weft_transform::{Bounds, Network, Run, Source, Sources};

/// Nothing to read, for a network of this owner.
struct Nothing(u32);

impl Source for Nothing {
    fn next(&mut self) -> io::Result<Option<Slice>> {
        Ok(None)
    }
}

impl Sources for Nothing {
    fn input(&mut self) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(Nothing(self.0)))
    }

    fn file(&mut self, _: usize) -> io::Result<Box<dyn Source>> {
        self.input()
    }

    fn owner(&self) -> Option<u32> {
        Some(self.0)
    }

    /// Bounds of 512 MiB, of which a network has 128.
    fn bounds(&self) -> Option<Bounds> {
        Some(Bounds { memory_bytes: 512 << 20, ..Bounds::default() })
    }
}

/// Returns the output of `command` in a link of `owner`, or its error.
fn run(command: &str, owner: u32) -> Result<String, String> {
    let network = Network::parse(&format!("exec '{}'", command.replace('\'', "'\\''"))).expect("a network");
    let mut given = Vec::new();
    for rope in Run::start(&network, &mut Nothing(owner)).map_err(|error| error.to_string())? {
        given.extend(rope.map_err(|error| error.to_string())?.to_vec());
    }
    Ok(String::from_utf8_lossy(&given).into_owned())
}

/// True if a control group bounds commands; else a few small processes are all they can be.
fn has_group() -> bool {
    let limits = run("grep \"Max processes\" /proc/self/limits", 4_000_203).expect("it runs");
    limits.split_whitespace().nth(2).and_then(|most| most.parse::<u64>().ok()).is_some_and(|most| most > 8)
}

/// True if commands run as other users here.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("skipped: only root can run commands of others");
    }
    is_root
}

#[test]
fn a_command_writes_nowhere_but_to_a_directory_of_its_own_that_goes_with_it() {
    use std::os::unix::fs::PermissionsExt;
    if !is_root() {
        return;
    }
    let open = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o777)).expect("set");
    let name = format!("weft-command-{}", std::process::id());
    let places = format!("/dev/shm /tmp /var/tmp /dev/mqueue /run/lock {}", open.path().display());
    let command = format!("for at in {places}; do echo x >$at/{name} && echo $at; done 2>/dev/null; true");
    assert_eq!(run(&command, 4_000_200).unwrap(), "/dev/shm\n/tmp\n/var/tmp\n");
    let left: Vec<&str> = places.split(' ').filter(|at| Path::new(at).join(&name).exists()).collect();
    assert_eq!(left, Vec::<&str>::new());
    // Of what everybody can write to on the machine, all else is read-only.
    let command = "find / -xdev -type d -writable 2>/dev/null | sort";
    assert_eq!(run(command, 4_000_200).unwrap(), "/tmp\n/var/tmp\n");
    // There is room for so much, in all of its places together.
    let (part, bytes) = if has_group() { ("40M", 40 << 20) } else { ("2500K", 2500 << 10) };
    let filled = format!("head -c {part} /dev/zero >/tmp/a && head -c {part} /dev/zero >/dev/shm/b");
    let error = run(&filled, 4_000_200).expect_err("no room");
    assert!(error.contains("No space left on device"), "{error}");
    let seen = run(&format!("head -c {part} /dev/zero >/tmp/a; wc -c </var/tmp/a; ls /tmp"), 4_000_200);
    assert_eq!(seen.unwrap(), format!("{bytes}\na\n"));
    let devices = "cd /dev; echo *; echo x >null; head -c 2 zero | od -An -tx1; test -r urandom && test -e stdin";
    let devices = run(devices, 4_000_200).unwrap();
    assert_eq!(devices, "fd full null random shm stderr stdin stdout urandom zero\n 00 00\n");
}

/// Their mounts were read-only; those that were made later came into its namespace as they are.
#[test]
fn a_command_does_not_write_to_what_is_mounted_while_it_runs() {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
    if !is_root() {
        return;
    }
    // SAFETY: this thread alone gets mounts of its own; nothing else of it changes.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.expect("mounts of its own");
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE).expect("private");
    let open = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let place = open.path();
    mount_bind(place, place).expect("mounted");
    mount_change(place, MountPropagationFlags::SHARED).expect("shared");
    let later = place.join("later");
    fs::create_dir(&later).expect("made");
    let at = later.display();
    let waits = format!("n=0; until test -e {at}/old || test $n = 50; do sleep 0.1; n=$((n+1)); done");
    let writes = format!(
        "echo x >{at}/new; true >{at}/old; mkdir {at}/d; rm {at}/old; \
         setfattr -n user.of_it -v x {at}/old; setfattr -x user.kept {at}/old; cp /bin/true /tmp/a && mv /tmp/a /tmp/b"
    );
    let command = format!("echo begun; {waits}; {{ {writes}; }} 2>/dev/null && echo ended");
    let network = Network::parse(&format!("exec '{command}'")).expect("a network");
    let mut run = Run::start(&network, &mut Nothing(4_000_204)).expect("it runs");
    let mut given = run.next().expect("it says something").expect("it runs").to_vec();
    mount("tmpfs", &later, "tmpfs", MountFlags::empty(), Some(c"mode=777")).expect("mounted");
    let (new, old) = (later.join("new-name"), later.join("old"));
    fs::write(&new, "old").expect("written");
    fs::set_permissions(&new, PermissionsExt::from_mode(0o666)).expect("open to all");
    let has_attributes = setxattr(&new, "user.kept", b"x", XattrFlags::empty()).is_ok();
    if !has_attributes {
        eprintln!("skipped: a file system in memory has no attributes of users here");
    }
    fs::rename(&new, &old).expect("named");
    for rope in run {
        given.extend(rope.expect("it runs").to_vec());
    }
    assert_eq!(String::from_utf8_lossy(&given), "begun\nended\n");
    let left: Vec<_> = fs::read_dir(&later).expect("listed").map(|entry| entry.expect("one").file_name()).collect();
    assert_eq!(left, ["old"]);
    assert_eq!(fs::read(&old).expect("read"), b"old");
    let mut names = vec![0; 256];
    let length = listxattr(&old, &mut names).unwrap_or(0);
    let kept: &[u8] = if has_attributes { b"user.kept\0" } else { b"" };
    assert_eq!(names[..length].escape_ascii().to_string(), kept.escape_ascii().to_string());
}

#[test]
fn all_processes_of_a_command_have_so_much_memory_together() {
    if !is_root() {
        return;
    }
    // Each keeps so much until the other one has it, too, and says so if it was not killed then.
    let process = |mib: u32, seconds: u32| {
        let bytes = mib << 20;
        format!(
            "awk 'BEGIN {{ s = \"x\"; while (length(s) < {bytes}) s = s s; system(\"sleep {seconds}\"); print 1 }}'"
        )
    };
    let two = |mib, seconds| run(&format!("for i in 1 2; do {} & done | wc -l", process(mib, seconds)), 4_000_201);
    assert_eq!(two(1, 2).unwrap().trim(), "2");
    let many = two(60, 15);
    if !has_group() {
        assert!(many.as_ref().map_or(true, |said| said.trim() != "2"), "{many:?}");
        eprintln!("skipped: no group bounds commands here");
        return;
    }
    // That the shell ends well does not make right what lacks a part.
    let error = many.expect_err("one was killed");
    assert!(error.contains("had 128 MiB"), "{error}");
    assert_eq!(run(&process(60, 2), 4_000_201).unwrap(), "1\n");
    // A file in memory counts, too.
    let both = run(&format!("head -c 50M /dev/zero >/tmp/a; {}", process(60, 2)), 4_000_201);
    assert!(both.is_err(), "{both:?}");
}

/// Groups of commands of this process.
fn groups(below: &Path, found: &mut Vec<PathBuf>) {
    let end = format!("-{}", std::process::id());
    for entry in fs::read_dir(below).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("weft-") && name.ends_with(&end) {
                found.push(path);
            } else {
                groups(&path, found);
            }
        }
    }
}

#[test]
fn groups_of_commands_go_with_them() {
    let all = || {
        let mut found = Vec::new();
        groups(Path::new("/sys/fs/cgroup"), &mut found);
        let mine = |group: &PathBuf| group.join("4000202").exists();
        found.into_iter().filter(mine).collect::<Vec<_>>()
    };
    assert_eq!(run("echo a; sleep 0.1 & exit 0", 4_000_202).ok(), is_root().then(|| "a\n".to_owned()));
    run("kill -9 $$", 4_000_202).expect_err("it was killed");
    // The kernel may take its time.
    let _ = run("true", 4_000_202);
    assert_eq!(all(), Vec::<PathBuf>::new());
}

/// A source with one line, and then nothing.
struct Line(Option<Slice>);

impl Source for Line {
    fn next(&mut self) -> io::Result<Option<Slice>> {
        Ok(self.0.take())
    }
}

impl Sources for Line {
    fn input(&mut self) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(Line(Some(Slice::from(b"a line\n".to_vec())))))
    }

    fn file(&mut self, _: usize) -> io::Result<Box<dyn Source>> {
        self.input()
    }
}

/// The first input counted as taken when the time was over, so that twice the time passed.
#[test]
fn a_command_is_idle_from_the_moment_on_at_which_it_took_its_last_input() {
    let (sender, receiver) = std::sync::mpsc::channel();
    for seconds in [2, 3] {
        let sender = sender.clone();
        std::thread::spawn(move || {
            let network = Network::parse(&format!("exec -t {seconds} 'sleep 30'")).expect("a network");
            // Only the first has input.
            let mut sources: Box<dyn Sources> = if seconds == 2 { Box::new(Line(None)) } else { Box::new(Nothing(0)) };
            let error = Run::start(&network, &mut *sources).expect("it begins").find_map(Result::err);
            sender.send((seconds, error.map(|error| error.to_string()))).expect("waited for");
        });
    }
    for seconds in [2, 3] {
        let (first, error) = receiver.recv().expect("told");
        assert_eq!(first, seconds, "{error:?}");
        assert!(error.is_some_and(|error| error.contains(&format!("for {seconds} seconds"))));
    }
}
