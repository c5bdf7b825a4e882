use super::*;

fn narrow(kind: Kind, then: u32, now: Option<&Subject>, readers: HistoryFor) -> u32 {
    let then = Subject { uid: 7, gid: 8, permissions: then, acl: None };
    narrowed(kind, &then, now, readers)
}

fn now(permissions: u32, uid: u32, gid: u32) -> Subject {
    Subject { uid, gid, permissions, acl: None }
}

fn of_file(then: u32, now: &Subject) -> u32 {
    narrow(Kind::File, then, Some(now), HistoryFor::All)
}

#[test]
fn a_right_holds_if_it_was_there_then_and_is_there_now() {
    assert_eq!(of_file(0o644, &now(0o644, 7, 8)), 0o644);
    assert_eq!(of_file(0o644, &now(0o600, 7, 8)), 0o600);
    assert_eq!(of_file(0o600, &now(0o644, 7, 8)), 0o600, "nobody gets what was closed then");
    assert_eq!(of_file(0o755, &now(0o644, 7, 8)), 0o755, "that it could be run is how it was");
    assert_eq!(of_file(0o755, &now(0o700, 7, 8)), 0o700, "running it is reading it");
    let directory = |then, permissions| narrow(Kind::Directory, then, Some(&now(permissions, 7, 8)), HistoryFor::All);
    assert_eq!(directory(0o755, 0o755), 0o755);
    assert_eq!(directory(0o755, 0o711), 0o711);
    assert_eq!(directory(0o1777, 0o700), 0o1722);
}

#[test]
fn those_who_were_others_then_have_what_they_have_now_in_any_class() {
    assert_eq!(of_file(0o644, &now(0o644, 9, 8)), 0o644, "all classes may read it still");
    assert_eq!(of_file(0o444, &now(0o600, 9, 8)), 0, "the owner of then is none now");
    assert_eq!(of_file(0o640, &now(0o640, 7, 9)), 0o600, "another group has it");
    let list = Acl::parse(&[
        2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 4, 0, 4, 0, 255, 255, 255, 255, 32, 0, 4, 0, 255, 255, 255, 255,
    ]);
    let listed = Subject { acl: Some(list.expect("a list")), ..now(0o644, 7, 8) };
    assert_eq!(of_file(0o644, &listed), 0o600, "it may name anybody");
}

#[test]
fn what_is_gone_has_the_rights_that_it_had_and_no_privileges() {
    assert_eq!(narrow(Kind::File, 0o6755, None, HistoryFor::All), 0o755);
    assert_eq!(narrow(Kind::CharDevice, 0o666, None, HistoryFor::All), 0);
    assert_eq!(narrow(Kind::Directory, 0o2775, None, HistoryFor::All), 0o2775);
}

#[test]
fn the_past_can_be_closed_to_all_but_owners_and_to_all_but_root() {
    assert_eq!(narrow(Kind::File, 0o755, None, HistoryFor::Owner), 0o700);
    assert_eq!(narrow(Kind::Directory, 0o755, None, HistoryFor::Owner), 0o711);
    assert_eq!(narrow(Kind::Directory, 0o755, None, HistoryFor::Root), 0o700);
}

#[test]
fn a_list_of_then_holds_if_nothing_of_the_rights_is_another_now() {
    let list = |named: u8| {
        let none = [255; 4];
        let entry = |tag: u8, bits: u8, id: [u8; 4]| [&[tag, 0, bits, 0][..], &id].concat();
        let entries = [
            entry(1, 6, none),
            entry(2, named, [9, 0, 0, 0]),
            entry(4, 4, none),
            entry(16, 4, none),
            entry(32, 4, none),
        ];
        Acl::parse(&[&[2, 0, 0, 0][..], &entries.concat()].concat()).expect("a list")
    };
    let listed = |named, permissions| Subject { uid: 7, gid: 8, permissions, acl: Some(list(named)) };
    let of = |then: &Subject, now: &Subject| narrowed(Kind::File, then, Some(now), HistoryFor::All);
    let closed_to_one = listed(0, 0o644);
    assert_eq!(of(&closed_to_one, &listed(0, 0o644)), 0o644);
    assert_eq!(of(&closed_to_one, &now(0o644, 7, 8)), 0o600, "it kept somebody out");
    assert_eq!(of(&closed_to_one, &listed(4, 0o644)), 0o600);
    assert_eq!(of(&closed_to_one, &listed(0, 0o640)), 0o600);
    assert_eq!(of(&closed_to_one, &now(0o600, 9, 8)), 0o200, "the owner of then is none now");
}
