//! Links that are written as a whole, and those that leave their length open.

use crate::{Volume, kind, mount_options, options, volume_options};
use parking_lot::Mutex;
use proptest::prelude::*;
use std::sync::Arc;
use weft_links::{Keys, LinkDefinition, LinkOptions, Opening, Pushed, Scope};
use weft_store::VolumeOptions;
use weft_transform::{Network, NoFiles};
use weft_vfs::{Asker, Caller, Change, Credentials, ErrorKind, FileId, Ino, Observer, SetAttributes};

const DRAFT: Opening = Opening::Draft { is_direct: false, is_open: false };

fn definition(target: &str, network: &str) -> LinkDefinition {
    LinkDefinition::new(vec![target.as_bytes().to_vec()], network)
}

impl Volume {
    /// A volume whose way in tells of opens.
    fn told(volume: VolumeOptions, options: LinkOptions) -> Volume {
        let volume = Volume::with(volume, options);
        volume.vfs.tells_of_opens();
        volume
    }

    fn draft_link(&self, name: &str, definition: &LinkDefinition) -> Ino {
        self.links().make_link(Caller::ROOT, Ino::ROOT, name.as_bytes(), 0o666, definition).expect("made").ino
    }

    /// A file that holds `bytes` compressed, and a link that shows them.
    fn compressed(&self, bytes: &[u8]) -> (Ino, Ino) {
        let file = self.file("file.gz");
        self.write(file, 0, &applied("gzip", bytes));
        (file, self.draft_link("file", &definition("/file.gz", "gzip -d")))
    }

    fn all_of(&self, ino: Ino) -> Vec<u8> {
        self.read(ino, 0, 16 << 20)
    }
}

fn applied(network: &str, bytes: &[u8]) -> Vec<u8> {
    Network::parse(network).expect("right").apply(bytes.to_vec().into(), &mut NoFiles).expect("applied").to_vec()
}

/// Bytes that no compression makes fewer.
fn noise(len: usize) -> Vec<u8> {
    let mut at = 7u64;
    let mut next = || {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (at >> 40) as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn what_is_written_is_seen_at_once_through_the_link_and_in_the_target_when_it_is_closed() {
    let volume = Volume::told(volume_options(), LinkOptions { memo_bytes_max: 0, ..options() });
    let (file, link) = volume.compressed(b"one\n");
    assert_eq!(volume.attributes(link).permissions, 0o644, "what the target allows");
    let before = volume.all_of(file);
    assert_eq!(volume.links().opened(link, true).expect("opened"), DRAFT);
    assert_eq!(volume.links().opened(link, true).expect("opened"), DRAFT);
    volume.clock.advance(5);
    volume.write(link, 4, b"two\n");
    volume.write(link, 1, b"N");
    assert_eq!(volume.all_of(link), b"oNe\ntwo\n");
    let seen = volume.attributes(link);
    assert_eq!((seen.size, seen.mtime), (8, volume.clock_now()));
    assert_eq!(volume.all_of(file), before);
    volume.links().closed(link).expect("closed");
    assert_eq!(volume.all_of(file), before, "another has it open");
    volume.links().flush(link).expect("stored");
    assert_eq!(applied("gzip -d", &volume.all_of(file)), b"oNe\ntwo\n");
    volume.resize(link, 2);
    volume.links().closed(link).expect("closed");
    assert_eq!(applied("gzip -d", &volume.all_of(file)), b"oN");
    assert_eq!(volume.all_of(link), b"oN");
    volume.vfs.sync().expect("synced");
    assert_eq!(volume.vfs.stats().inodes_used, 3, "the root and both");
    assert_eq!(kind(volume.vfs.write(link, 0, b"x", false)), ErrorKind::AccessDenied, "nobody has it open");
    volume.resize(link, 0);
    assert_eq!(applied("gzip -d", &volume.all_of(file)), b"", "but truncate() needs nobody");
    volume.vfs.close().expect("closed");
}

#[test]
fn a_link_that_cannot_be_made_has_nobody_told_of_opens() {
    let volume = Volume::new();
    volume.file("file");
    let link = definition("/file", "gzip -d");
    let make = |name: &[u8]| volume.links().make_link(Caller::ROOT, Ino::ROOT, name, 0o666, &link);
    assert_eq!(kind(make(b"file")), ErrorKind::Exists);
    assert!(!volume.vfs.wants_opens().unwrap());
    make(b"link").expect("made");
    assert!(volume.vfs.wants_opens().unwrap());
}

#[test]
fn only_where_opens_are_told_of_a_link_can_be_written_as_a_whole() {
    let mut volume = Volume::new();
    let file = volume.file("file");
    assert!(!volume.vfs.wants_opens().unwrap());
    volume.draft_link("upper", &definition("/file", "upper"));
    volume.draft_link("swapped", &definition("/file", "xor 7"));
    assert!(!volume.vfs.wants_opens().unwrap(), "these need nobody to be told");
    let link = volume.draft_link("unpacked", &definition("/file", "gzip -d"));
    assert!(volume.vfs.wants_opens().unwrap());
    assert_eq!(volume.attributes(link).permissions, 0o444);
    assert_eq!(kind(volume.vfs.write(link, 0, b"x", false)), ErrorKind::AccessDenied);
    let empty = SetAttributes { size: Some(0), ..SetAttributes::default() };
    assert_eq!(kind(volume.vfs.set_attributes(link, empty)), ErrorKind::AccessDenied);
    assert_eq!(volume.vfs.xattr(Ino::ROOT, b"user.weft.opens").unwrap(), b"1");
    volume.remount();
    assert!(volume.vfs.wants_opens().unwrap());
    volume.vfs.tells_of_opens();
    assert_eq!(volume.vfs.xattr(Ino::ROOT, b"user.weft.opens").unwrap(), b"told");
    assert_eq!(volume.links().opened(link, true).unwrap(), DRAFT);
    volume.write(link, 0, b"x");
    volume.links().closed(link).unwrap();
    assert_eq!(applied("gzip -d", &volume.all_of(file)), b"x", "nothing is nothing yet, not even compressed");
    assert_eq!(volume.links().opened(file, true).unwrap(), Opening::Plain);
    let counted = volume.draft_link("counted", &definition("/file", "wc"));
    assert_eq!(kind(volume.links().opened(counted, true)), ErrorKind::AccessDenied);
    assert_eq!(volume.links().opened(counted, false).unwrap(), Opening::Plain);
}

#[test]
fn a_link_to_a_link_is_written_through_both_and_by_a_network_of_its_own_if_it_has_one() {
    let volume = Volume::told(volume_options(), options());
    let (file, _) = volume.compressed(b"abc");
    let outer = volume.draft_link("outer", &definition("/file", "rot13"));
    let write = Some("lower | tr x y".into());
    let own = volume.draft_link("own", &LinkDefinition { write, ..definition("/outer", "upper | rev") });
    for (link, network, written) in [(outer, "gzip -d | rot13", "new"), (own, "gzip -d | rot13", "MAX\n")] {
        assert_eq!(volume.links().opened(link, true).unwrap(), DRAFT);
        volume.resize(link, 0);
        volume.write(link, 0, written.as_bytes());
        volume.links().closed(link).unwrap();
        let there = if link == own { "may\n" } else { "new" };
        assert_eq!(applied(network, &volume.all_of(file)), there.as_bytes());
    }
    assert_eq!(volume.all_of(own), b"YAM\n");
}

#[test]
fn much_is_stored_in_one_step_too_and_a_failure_leaves_what_was() {
    let options = || LinkOptions { memo_bytes_max: 0, ..options() };
    let volume = Volume::told(VolumeOptions { bytes_max: Some(8 << 20), ..volume_options() }, options());
    let (file, link) = volume.compressed(b"old");
    let (before, much) = (volume.all_of(file), noise(3 << 20));
    assert_eq!(volume.links().opened(link, true).unwrap(), DRAFT);
    volume.resize(link, 0);
    much.chunks(1 << 20).enumerate().for_each(|(n, part)| volume.write(link, (n as u64) << 20, part));
    let filler = volume.file("filler");
    volume.write(filler, 0, &noise(4 << 20));
    assert_eq!(kind(volume.links().flush(link)), ErrorKind::QuotaExceeded);
    assert_eq!(volume.all_of(file), before);
    assert_eq!(volume.all_of(link), much, "nothing is lost yet");
    volume.resize(filler, 0);
    volume.links().flush(link).expect("stored");
    assert_eq!(applied("gzip -d", &volume.all_of(file)), much);
    volume.links().closed(link).unwrap();
    volume.vfs.sync().unwrap();
    assert_eq!(volume.vfs.stats().inodes_used, 4, "no draft is left");
    volume.vfs.close().unwrap();
}

#[test]
fn what_is_encrypted_never_lies_in_the_volume_as_it_was() {
    use std::os::unix::fs::PermissionsExt;
    let keys = tempfile::tempdir().expect("a directory");
    let key = keys.path().join("mine");
    std::fs::write(&key, "AGE-SECRET-KEY-1RHD3LRLTW223Z0JPJ0T02WPZ8GG87QN8XH80RM74AEDYXV3HSSLQFY6XK0\n")
        .expect("written");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("set");
    let keys = Some(Keys { directory: keys.path().to_owned(), uid: 0 });
    let volume = Volume::told(volume_options(), LinkOptions { keys, ..options() });
    let file = volume.file("secret.age");
    let link = volume.draft_link("secret", &definition("/secret.age", "decrypt mine"));
    assert_eq!(volume.links().opened(link, true).unwrap(), DRAFT);
    volume.write(link, 3, b"known");
    assert_eq!((volume.vfs.stats().inodes_used, volume.all_of(link)), (3, b"\0\0\0known".to_vec()));
    volume.resize(link, 6);
    volume.links().closed(link).unwrap();
    assert!(volume.all_of(file).starts_with(b"age-encryption.org/v1\n"));
    assert_eq!(volume.all_of(link), b"\0\0\0kno");
    volume.vfs.sync().unwrap();
    assert_eq!(volume.vfs.stats().inodes_used, 3);
}

#[test]
fn who_leaves_its_length_open_computes_nothing_for_those_who_list_it() {
    let volume = Volume::told(volume_options(), options());
    let file = volume.file("file");
    volume.write(file, 0, &b"line\n".repeat(1000));
    let lazy = |network| LinkDefinition { lazy: true, ..definition("/file", network) };
    let link = volume.draft_link("numbered", &lazy("nl"));
    assert_eq!(volume.attributes(link).size, 0);
    assert_eq!(volume.links().opened(link, false).unwrap(), Opening::Direct { is_open: true });
    let some = volume.links().read_some(link, 0, 1 << 20).unwrap();
    assert!(!some.is_empty());
    let mut len = some.len();
    while let more @ 1.. = volume.links().read_some(link, len as u64, 1 << 20).unwrap().len() {
        len += more;
    }
    assert_eq!(volume.attributes(link).size, len as u64, "somebody has read it to its end");
    assert_eq!(volume.links().opened(link, false).unwrap(), Opening::Plain);
    // What is known anyway is told.
    assert_eq!(volume.attributes(volume.draft_link("upper", &lazy("upper"))).size, 5000);
    // Others than programs of a mount know no end but the length.
    let link = volume.draft_link("counted", &lazy("wc -l"));
    let seen = volume.attributes(link);
    assert_eq!(seen.size, 0);
    let root = Credentials { uid: 0, gid: 0, groups: Vec::new() };
    let file = FileId { ino: link, generation: seen.generation };
    assert_eq!(volume.vfs.user(&root).attributes(file).unwrap().size, 5);
    // Who writes it goes on from where it ends.
    let packed = volume.file("packed.gz");
    volume.write(packed, 0, &applied("gzip", b"one"));
    let lazy = LinkDefinition { lazy: true, ..definition("/packed.gz", "gzip -d") };
    let link = volume.draft_link("packed", &lazy);
    assert_eq!(volume.links().opened(link, true).unwrap(), Opening::Draft { is_direct: true, is_open: true });
    let end = volume.links().end_of_draft(link).unwrap().expect("it is one");
    volume.write(link, end, b", two");
    volume.links().closed(link).unwrap();
    assert_eq!(volume.all_of(link), b"one, two");
}

#[derive(Default)]
struct Told(Mutex<Vec<Change>>);

impl Observer for Told {
    fn changed(&self, change: &Change) {
        self.0.lock().push(change.clone());
    }
}

#[test]
fn those_who_keep_copies_of_a_target_are_told_when_it_is_written_through_a_link() {
    let volume = Volume::told(volume_options(), options());
    let file = volume.file("file");
    volume.write(file, 0, b"0123456789");
    let turned = volume.draft_link("turned", &definition("/file", "rot13"));
    let rest = volume.draft_link("packed", &definition("/file", "base64"));
    let told: Arc<dyn Observer> = Arc::new(Told::default());
    let content = Arc::new(Told::default());
    let observer: Arc<dyn Observer> = content.clone();
    volume.vfs.observe(&told);
    volume.vfs.observe(&observer);
    volume.vfs.hold(file);
    let ranges = || {
        let changes = std::mem::take(&mut *content.0.lock());
        let of_file = |change| match change {
            Change::Target { ino, range } if ino == file => Some((range.start, range.end)),
            _ => None,
        };
        changes.into_iter().filter_map(of_file).collect::<Vec<_>>()
    };
    volume.write(turned, 3, b"xyz");
    assert_eq!(ranges(), [(3, 6)]);
    volume.resize(turned, 4);
    assert_eq!(ranges(), [(4, u64::MAX)]);
    volume.write(turned, 8, b"a");
    assert_eq!(ranges(), [(4, 9)]);
    volume.links().opened(rest, true).unwrap();
    volume.resize(rest, 0);
    volume.write(rest, 0, b"QUJD\n");
    assert_eq!(ranges(), []);
    volume.links().closed(rest).unwrap();
    assert_eq!(ranges(), [(0, u64::MAX)]);
    assert_eq!(volume.all_of(file), b"ABC");
}

/// An action of a program that writes to a link.
#[derive(Clone, Debug)]
enum Step {
    Write(u16, u16),
    Cut(u16),
    Flush,
    Commit,
    Sync,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0u16..9000, 1u16..9000).prop_map(|(at, len)| Step::Write(at, len)),
        1 => (0u16..9000).prop_map(Step::Cut),
        3 => Just(Step::Flush),
        2 => Just(Step::Commit),
        1 => Just(Step::Sync),
    ];
    prop::collection::vec(step, 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn after_any_crash_a_target_is_as_one_who_wrote_through_its_link_left_it(steps in steps(), survives: u8) {
        let mut volume = Volume::told(volume_options(), options());
        let (file, link) = volume.compressed(b"first");
        volume.vfs.sync().expect("synced");
        volume.links().opened(link, true).expect("opened");
        let (mut stored, mut synced, mut now) = (vec![b"first".to_vec()], 0, b"first".to_vec());
        for (number, step) in steps.iter().enumerate() {
            match step {
                Step::Write(at, len) => {
                    let (at, data) = (usize::from(*at), noise(usize::from(*len) + number)[number..].to_vec());
                    now.resize(now.len().max(at + data.len()), 0);
                    now[at..at + data.len()].copy_from_slice(&data);
                    volume.write(link, at as u64, &data);
                }
                Step::Cut(size) => {
                    now.resize(usize::from(*size), 0);
                    volume.resize(link, u64::from(*size));
                }
                Step::Flush => {
                    volume.links().flush(link).expect("stored");
                    stored.push(now.clone());
                }
                Step::Commit => volume.vfs.commit().expect("committed"),
                Step::Sync => {
                    volume.vfs.sync().expect("synced");
                    synced = stored.len() - 1;
                }
            }
            prop_assert_eq!(volume.all_of(link), now.clone());
        }
        volume.store.crash(survives);
        volume.reopen(mount_options());
        let left = applied("gzip -d", &volume.all_of(file));
        prop_assert!(stored[synced..].contains(&left), "neither what was synced nor anything later");
        prop_assert_eq!(volume.vfs.stats().inodes_used, 3, "a draft outlived its writer");
    }
}

#[test]
fn a_draft_goes_where_the_link_led_when_it_was_opened_or_nowhere() {
    let volume = Volume::told(volume_options(), options());
    let (mine, others) = (volume.file("mine"), volume.file("others"));
    volume.write(others, 0, b"precious");
    let way = |name: &str, to: &str| volume.vfs.make_symlink(Caller::ROOT, Ino::ROOT, name.as_bytes(), to.as_bytes());
    way("way", "mine").unwrap();
    let link = volume.draft_link("link", &definition("/way", "gzip -d"));
    volume.links().opened(link, true).unwrap();
    volume.write(link, 0, b"new");
    volume.vfs.unlink(Ino::ROOT, b"way").unwrap();
    way("way", "others").unwrap();
    assert_eq!(kind(volume.links().flush(link)), ErrorKind::AccessDenied);
    volume.links().closed(link).unwrap();
    assert_eq!((volume.all_of(mine), volume.all_of(others)), (Vec::new(), b"precious".to_vec()));
}

#[test]
fn who_opened_a_link_does_not_get_at_what_it_leads_to_later() {
    let volume = Volume::new();
    let alice = Caller { uid: 7, gid: 7, ..Caller::ROOT };
    let secret = volume.file("secret");
    volume.write(secret, 0, b"secret");
    volume.chmod(secret, 0o600);
    let link = volume.links().make_link(alice, Ino::ROOT, b"link", 0o666, &definition("/secret", "rot13")).unwrap().ino;
    assert_eq!(kind(volume.vfs.read(link, 0, 10)), ErrorKind::AccessDenied);
    assert_eq!(kind(volume.vfs.write(link, 0, b"x", false)), ErrorKind::AccessDenied);
    volume.chmod(secret, 0o644);
    assert_eq!(volume.read(link, 0, 10), b"frperg");
    assert_eq!(kind(volume.vfs.write(link, 0, b"x", false)), ErrorKind::AccessDenied);
}

#[test]
fn a_draft_is_for_those_to_whom_its_link_is_open() {
    let volume = Volume::told(volume_options(), options());
    let (file, link) = volume.compressed(b"secret");
    let as_alice = || Asker::thread(1000, 1000, 0).asks();
    volume.links().opened(link, true).unwrap();
    volume.write(link, 6, b" draft");
    // She may read, and has it open from when she could write.
    {
        let _asking = as_alice();
        assert_eq!(volume.read(link, 0, 99), b"secret draft");
        assert_eq!(kind(volume.vfs.write(link, 0, b"X", false)), ErrorKind::AccessDenied);
    }
    volume.chmod(file, 0o600);
    {
        let _asking = as_alice();
        assert_eq!(kind(volume.vfs.read(link, 0, 99)), ErrorKind::AccessDenied);
        assert_eq!(kind(volume.links().read_some(link, 0, 99)), ErrorKind::AccessDenied);
        assert_eq!(kind(volume.vfs.write(link, 0, b"X", false)), ErrorKind::AccessDenied);
        assert!(volume.links().end_of_draft(link).is_err());
        assert_eq!(volume.attributes(link).size, 1);
    }
    volume.links().closed(link).unwrap();
    assert_eq!(volume.all_of(link), b"secret draft");
}

/// A volume with a link `link` to `/way.gz`, which is user 1000's and closed to others, and what
/// that holds.
fn with_closed_target(stored: &[u8]) -> (Volume, Ino, Ino) {
    let volume = Volume::told(volume_options(), options());
    let file = volume.file("way.gz");
    volume.write(file, 0, &applied("gzip", stored));
    volume.chmod(file, 0o600);
    let alices = SetAttributes { uid: Some(1000), gid: Some(1000), ..SetAttributes::default() };
    volume.vfs.set_attributes(file, alices).expect("set");
    let alice = Caller { uid: 1000, gid: 1000, ..Caller::ROOT };
    let by_her = definition("/way.gz", "gzip -d");
    let link = volume.links().make_link(alice, Ino::ROOT, b"link", 0o666, &by_her).expect("made").ino;
    (volume, file, link)
}

impl Volume {
    fn moves(&self, from: &str, to: &str) {
        let (from, to) = ((Ino::ROOT, from.as_bytes()), (Ino::ROOT, to.as_bytes()));
        self.vfs.rename(from, to, weft_vfs::RenameMode::Replace).expect("renamed");
    }
}

#[test]
fn while_its_link_leads_elsewhere_a_draft_is_its_writers_alone() {
    let (volume, file, link) = with_closed_target(b"old");
    let (alice, mallory) = (|| Asker::thread(1000, 1000, 0).asks(), || Asker::thread(1001, 1001, 0).asks());
    let outer = volume.draft_link("outer", &definition("/link", "rot13 | rot13"));
    let mine = volume.file("mine");
    volume.write(mine, 0, &applied("gzip", b"mine"));
    volume.chmod(mine, 0o666);
    {
        let _asking = alice();
        assert!(matches!(volume.links().opened(link, true).unwrap(), Opening::Draft { is_direct: true, .. }));
        volume.write(link, 0, b"NEW");
    }
    volume.moves("way.gz", "away");
    {
        let _asking = mallory();
        assert_eq!(kind(volume.vfs.read(link, 0, 99)), ErrorKind::NotFound);
        assert_eq!(kind(volume.links().read_some(link, 0, 99)), ErrorKind::NotFound);
        assert_eq!(kind(volume.links().read_draft(link, 0, 99)), ErrorKind::NotFound);
        assert_eq!(kind(volume.vfs.write(link, 0, b"EVIL", false)), ErrorKind::NotFound);
        assert_eq!(kind(volume.links().end_of_draft(link)), ErrorKind::NotFound);
        assert_eq!(volume.attributes(link).size, 1);
    }
    volume.moves("mine", "way.gz");
    for asking in [mallory(), alice()] {
        // A network that reads the link, too, finds what it leads to.
        assert_eq!((volume.all_of(link), volume.all_of(outer)), (b"mine".to_vec(), b"mine".to_vec()));
        assert_eq!((volume.attributes(link).size, volume.attributes(outer).size), (4, 4));
        assert_eq!(kind(volume.links().opened(link, true)), ErrorKind::NotSynchronized);
        let empty = SetAttributes { size: Some(0), ..SetAttributes::default() };
        assert_eq!(kind(volume.vfs.set_attributes(link, empty)), ErrorKind::NotSynchronized);
        drop(asking);
    }
    {
        let _asking = mallory();
        assert!(volume.links().read_draft(link, 0, 99).unwrap().is_none());
        assert_eq!(kind(volume.vfs.write(link, 0, b"EVIL", false)), ErrorKind::AccessDenied);
    }
    {
        let _asking = alice();
        let hers = || volume.links().read_draft(link, 0, 99).unwrap().expect("it is hers").to_vec();
        assert_eq!(hers(), b"NEW");
        assert_eq!(volume.links().end_of_draft(link).unwrap(), Some(3));
        volume.write(link, 3, b"ER");
        assert_eq!((hers(), kind(volume.links().flush(link))), (b"NEWER".to_vec(), ErrorKind::AccessDenied));
    }
    volume.moves("way.gz", "mine");
    volume.moves("away", "way.gz");
    {
        let _asking = mallory();
        assert_eq!(kind(volume.vfs.read(link, 0, 99)), ErrorKind::AccessDenied);
        assert_eq!(kind(volume.links().opened(link, true)), ErrorKind::AccessDenied);
    }
    let _asking = alice();
    volume.links().closed(link).unwrap();
    assert_eq!(applied("gzip -d", &volume.all_of(file)), b"NEWER");
    assert_eq!(applied("gzip -d", &volume.all_of(mine)), b"mine");
}

#[test]
fn a_writer_who_loses_the_right_to_the_target_loses_the_draft() {
    let (volume, file, link) = with_closed_target(b"old");
    let asking = Asker::thread(1000, 1000, 0).asks();
    volume.links().opened(link, true).unwrap();
    volume.write(link, 0, b"NEW");
    volume.moves("way.gz", "away");
    assert_eq!(volume.links().read_draft(link, 0, 9).unwrap().expect("it is hers").to_vec(), b"NEW");
    for permissions in [0o200, 0o400] {
        volume.chmod(file, permissions);
        assert_eq!(volume.links().read_draft(link, 0, 9).is_ok(), permissions == 0o400);
        assert_eq!(kind(volume.vfs.write(link, 0, b"X", false)), ErrorKind::AccessDenied);
        assert_eq!(kind(volume.links().end_of_draft(link)), ErrorKind::AccessDenied);
    }
    volume.links().closed(link).unwrap();
    drop(asking);
    assert_eq!(applied("gzip -d", &volume.all_of(file)), b"old");
}

#[test]
fn what_stands_on_a_draft_follows_it_and_nothing_of_it_is_kept() {
    let volume = Volume::told(volume_options(), options());
    let (_, link) = volume.compressed(b"stored");
    let (count, turned) = (
        volume.draft_link("count", &definition("/file", "wc -c")),
        volume.draft_link("turned", &LinkDefinition { lazy: true, ..definition("/file", "rot13") }),
    );
    assert_eq!(volume.all_of(count), b"6\n");
    volume.links().opened(link, true).unwrap();
    volume.write(link, 6, b" more");
    assert_eq!((volume.all_of(count), volume.attributes(turned).size), (b"11\n".to_vec(), 11));
    volume.write(link, 11, b" and more");
    assert_eq!((volume.all_of(count), volume.attributes(turned).size), (b"20\n".to_vec(), 20));
    // The target becomes what it cannot be.
    volume.vfs.rename((Ino::ROOT, b"file.gz"), (Ino::ROOT, b"elsewhere"), weft_vfs::RenameMode::Replace).unwrap();
    volume.links().closed(link).unwrap();
    volume.vfs.rename((Ino::ROOT, b"elsewhere"), (Ino::ROOT, b"file.gz"), weft_vfs::RenameMode::Replace).unwrap();
    assert_eq!(volume.all_of(count), b"6\n");
    // What leaves its length open is no empty file.
    let lazy = LinkDefinition { lazy: true, ..definition("/file.gz", "gzip -d | nl | rev | rev") };
    volume.draft_link("numbered", &lazy);
    let last = volume.draft_link("last", &LinkDefinition { write: Some("gzip".into()), ..definition("/lazy", "rev") });
    volume.draft_link("lazy", &LinkDefinition { lazy: true, ..definition("/file.gz", "gzip -d") });
    volume.links().opened(last, true).unwrap();
    volume.write(last, 6, b"!");
    assert_eq!(volume.all_of(last), b"derots!");
    volume.links().closed(last).unwrap();
}

#[test]
fn others_than_programs_of_a_mount_write_no_drafts() {
    let volume = Volume::told(volume_options(), options());
    let (file, link) = volume.compressed(b"stored");
    let before = volume.all_of(file);
    let root = Credentials { uid: 0, gid: 0, groups: Vec::new() };
    let (user, seen) = (volume.vfs.user(&root), volume.attributes(link));
    let id = FileId { ino: link, generation: seen.generation };
    let empty = SetAttributes { size: Some(0), ..SetAttributes::default() };
    assert_eq!(user.attributes(id).unwrap().permissions, 0o444);
    for _ in 0..2 {
        assert_eq!(kind(user.set_attributes(id, empty, |_| true)), ErrorKind::AccessDenied);
        assert_eq!(kind(user.write(id, 0, b"x")), ErrorKind::AccessDenied);
        // Not even while somebody has it open who may.
        volume.links().opened(link, true).unwrap();
    }
    assert_eq!((volume.all_of(file), volume.all_of(link)), (before, b"stored".to_vec()));
}

fn pushed(network: &str, code: &[&str]) -> Pushed {
    let code = code.iter().map(|path| path.as_bytes().to_vec()).collect();
    Pushed { network: network.into(), code, may_resize: true }
}

#[test]
fn a_network_that_is_pushed_reads_the_file_alone_and_is_for_its_owner_to_push() {
    let volume = Volume::told(volume_options(), options());
    let alice = Caller { uid: 7, gid: 7, ..Caller::ROOT };
    let (own, secret) = (volume.vfs.make(alice, Ino::ROOT, b"own", crate::FILE).unwrap().ino, volume.file("secret"));
    volume.write(secret, 0, b"secret");
    volume.chmod(secret, 0o600);
    volume.write(own, 0, b"own");
    let push =
        |caller, ino, scope, network, code: &[&str]| volume.links().push(caller, ino, scope, &pushed(network, code));
    for scope in [Scope::Everybody, Scope::Opened(4)] {
        assert_eq!(kind(push(alice, own, scope, "identity", &["/secret"])), ErrorKind::Invalid);
        assert_eq!(kind(push(alice, own, scope, "concat($1, $2)", &["/secret"])), ErrorKind::Invalid);
        assert_eq!(kind(push(alice, own, scope, "wasm $2", &["/secret"])), ErrorKind::NotPermitted);
        assert_eq!(kind(push(alice, own, scope, "decrypt mine", &[])), ErrorKind::NotPermitted);
        assert_eq!(kind(push(alice, Ino::ROOT, scope, "upper", &[])), ErrorKind::Invalid);
    }
    assert_eq!(kind(push(alice, secret, Scope::Everybody, "upper", &[])), ErrorKind::NotPermitted);
    assert_eq!(kind(push(alice, secret, Scope::Opened(8), "upper", &[])), ErrorKind::NotPermitted);
    push(Caller::ROOT, secret, Scope::Opened(8), "upper", &[]).expect("whoever has it open");
    let seen = |ino, number| volume.all_of(volume.vfs.seen(ino, number));
    assert_eq!(
        (seen(secret, Some(8)), seen(secret, Some(4)), seen(secret, None)),
        (b"SECRET".to_vec(), b"secret".to_vec(), b"secret".to_vec())
    );
    volume.links().pop_all(secret, 8);
    assert_eq!(seen(secret, Some(8)), b"secret");
    let small = Pushed { may_resize: false, ..pushed("gzip", &[]) };
    assert_eq!(kind(volume.links().push(alice, own, Scope::Opened(8), &small)), ErrorKind::NotSupported);
}

#[test]
fn what_is_pushed_for_everybody_is_what_they_see_and_the_file_stays_what_it_is() {
    let volume = Volume::told(volume_options(), options());
    let file = volume.file("file");
    volume.write(file, 0, b"text\n");
    let link = volume.draft_link("link", &definition("/file", "rev"));
    let push = |network| volume.links().push(Caller::ROOT, file, Scope::Everybody, &pushed(network, &[])).unwrap();
    let pop = || volume.links().pop(Caller::ROOT, file, Scope::Everybody);
    let seen = || volume.all_of(volume.vfs.seen(file, None));
    let attributes = || volume.vfs.seen_attributes(volume.attributes(file)).unwrap();
    push("upper");
    push("wc -c");
    assert_eq!(
        (seen(), volume.all_of(file), volume.all_of(link)),
        (b"5\n".to_vec(), b"text\n".to_vec(), b"txet\n".to_vec())
    );
    assert_eq!((attributes().ino, attributes().size, attributes().permissions), (file, 2, 0o444));
    assert_eq!(volume.links().pushed(file, Scope::Everybody).unwrap(), ["wc -c", "upper"]);
    pop().unwrap();
    pop().unwrap();
    assert_eq!(kind(pop()), ErrorKind::Invalid);
    push("rot13");
    // What is done to the file itself is seen at once.
    volume.chmod(file, 0o640);
    let owned = SetAttributes { uid: Some(7), ..SetAttributes::default() };
    volume.vfs.set_attributes(file, owned).unwrap();
    assert_eq!((attributes().permissions, attributes().uid), (0o640, 7));
    volume.write(volume.vfs.seen(file, None), 5, b"zber");
    assert_eq!((seen(), volume.all_of(file)), (b"grkg\nzber".to_vec(), b"text\nmore".to_vec()));
    push("base64");
    let top = volume.vfs.seen(file, None);
    assert_eq!(volume.links().opened(top, true).unwrap(), DRAFT);
    assert_eq!(kind(pop()), ErrorKind::NotSynchronized);
    volume.resize(top, 0);
    volume.write(top, 0, b"bmV3\n");
    volume.links().closed(top).unwrap();
    assert_eq!(volume.all_of(file), b"arj");
    (2..8).for_each(|_| push("identity"));
    let more = volume.links().push(Caller::ROOT, file, Scope::Everybody, &pushed("upper", &[]));
    assert_eq!(kind(more), ErrorKind::Loop);
    (0..8).for_each(|_| pop().unwrap());
    assert_eq!((volume.vfs.seen(file, None), seen()), (file, b"arj".to_vec()));
    push("upper");
    volume.vfs.hold(file);
    volume.vfs.unlink(Ino::ROOT, b"file").unwrap();
    assert_eq!(seen(), b"ARJ");
    volume.vfs.release(file, 1);
    assert_eq!(volume.links().pushed(file, Scope::Everybody).unwrap(), [""; 0], "nobody can pop it any more");
}

/// As set-user-id bits are cleared: else whoever gave a file away would have code of theirs act on
/// what another user reads and writes.
#[test]
fn who_gives_a_file_away_leaves_nothing_pushed_on_it() {
    let volume = Volume::told(volume_options(), options());
    let alice = Caller { uid: 7, gid: 7, ..Caller::ROOT };
    let own = volume.vfs.make(alice, Ino::ROOT, b"own", crate::FILE).unwrap().ino;
    volume.write(own, 0, b"text");
    let push = |caller, scope, network| volume.links().push(caller, own, scope, &pushed(network, &[]));
    let give = |uid| {
        let owner = SetAttributes { uid: Some(uid), ..SetAttributes::default() };
        volume.vfs.set_attributes(own, owner).unwrap();
    };
    let all = |scope| volume.links().pushed(own, scope).unwrap();
    let none = || (all(Scope::Everybody).len(), all(Scope::Opened(8)).len()) == (0, 0);
    for scope in [Scope::Everybody, Scope::Opened(8)] {
        push(alice, scope, "upper").unwrap();
        push(Caller::ROOT, scope, "rot13").unwrap();
    }
    give(7);
    assert_eq!(all(Scope::Everybody), ["rot13", "upper"], "it is hers as before");
    give(8);
    assert!(none(), "on other code, or below it");
    assert_eq!(volume.all_of(volume.vfs.seen(own, None)), b"text");
    assert_eq!(kind(push(alice, Scope::Everybody, "upper")), ErrorKind::NotPermitted);
    // Root's stays, as root's word counts on every file.
    push(Caller::ROOT, Scope::Everybody, "upper").unwrap();
    give(7);
    assert_eq!(all(Scope::Everybody), ["upper"]);
    volume.links().pop(alice, own, Scope::Everybody).unwrap();
    // By NFS too, but not while somebody writes all of it anew, as nothing is popped then.
    push(alice, Scope::Everybody, "base64").unwrap();
    let root = Credentials { uid: 0, gid: 0, groups: Vec::new() };
    let (user, id) = (volume.vfs.user(&root), FileId { ino: own, generation: volume.attributes(own).generation });
    let given = SetAttributes { uid: Some(8), ..SetAttributes::default() };
    let top = volume.vfs.seen(own, None);
    assert_eq!(volume.links().opened(top, true).unwrap(), DRAFT);
    volume.resize(top, 0);
    volume.write(top, 0, b"bmV3\n");
    assert_eq!(kind(user.set_attributes(id, given, |_| true)), ErrorKind::NotSynchronized);
    assert_eq!(kind(volume.vfs.set_attributes(own, given)), ErrorKind::NotSynchronized);
    volume.links().closed(top).unwrap();
    user.set_attributes(id, given, |_| true).unwrap();
    assert!(none());
    assert_eq!(volume.all_of(volume.vfs.seen(own, None)), b"new");
}

#[test]
fn who_pushes_code_must_be_let_read_it_and_is_told_no_more() {
    let exported = LinkOptions { exported: weft_links::Exported::Everybody, ..options() };
    let volume = Volume::told(volume_options(), exported);
    let alice = Caller { uid: 7, gid: 7, ..Caller::ROOT };
    let own = volume.vfs.make(alice, Ino::ROOT, b"own", crate::FILE).unwrap().ino;
    let code = volume.file("code");
    volume.chmod(code, 0o600);
    let push = |path: &str| volume.links().push(alice, own, Scope::Everybody, &pushed("wasm $2", &[path]));
    assert_eq!(kind(push("/code")), ErrorKind::AccessDenied);
    assert_eq!(kind(push("/nothing")), ErrorKind::AccessDenied);
    volume.chmod(code, 0o644);
    push("/code").expect("everybody may read it");
}
