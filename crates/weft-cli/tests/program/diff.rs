//! `weft diff`.

use crate::place::{Place, Said};
use crate::tree;
use std::os::unix::fs::PermissionsExt;

#[track_caller]
fn differ(said: Said, lines: &[&str]) {
    assert_eq!((said.code, said.err.as_str()), (1, ""));
    assert_eq!(
        said.out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>(),
        lines
    );
}

#[test]
fn a_copy_differs_by_what_was_changed() {
    let place = Place::new();
    tree::make(&place.directory("from"));
    place.directory("from/sub");
    for (name, content) in
        [("sub/same", "same"), ("sub/changed", "before"), ("sub/gone", ""), ("sub/other", ""), ("mode", "")]
    {
        std::fs::write(place.path("from").join(name), content).unwrap();
    }
    place.weft(&["init", "v"]).well();
    place.weft(&["import", "from", "v"]).well();
    assert_eq!(place.weft(&["diff", "from", "v:"]).well(), "");
    std::fs::write(place.path("from/sub/changed"), "behind").unwrap();
    std::fs::remove_file(place.path("from/sub/gone")).unwrap();
    std::fs::remove_file(place.path("from/sub/other")).unwrap();
    place.directory("from/sub/other");
    place.directory("from/new");
    std::fs::write(place.path("from/new/below"), "").unwrap();
    std::fs::write(place.path("from/line\nfeed"), "").unwrap();
    std::fs::set_permissions(place.path("from/mode"), std::fs::Permissions::from_mode(0o4711)).unwrap();
    let lines = [
        "added line\\nfeed",
        "permissions mode",
        "added new/",
        "content sub/changed",
        "deleted sub/gone",
        "kind sub/other/",
    ];
    differ(place.weft(&["diff", "v:", "from"]), &lines);
    differ(place.weft(&["diff", "v:sub", "from/sub"]), &["content changed", "deleted gone", "kind other/"]);
    let said = place.weft(&["diff", "--json", "from", "v:"]);
    let told: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, told[2]["change"].as_str(), told[2]["path"].as_str()), (1, Some("deleted"), Some("new")));
}

#[test]
fn what_cannot_be_read_is_no_difference() {
    let place = Place::new();
    place.directory("there");
    std::fs::write(place.path("file"), "").unwrap();
    for (other, why) in [("not-there", "No such file"), ("file", "Not a directory"), ("v:", "there is no volume at v")]
    {
        let said = place.weft(&["diff", "there", other]);
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{said:?}");
        assert!(said.err.contains(why), "{said:?}");
    }
}
