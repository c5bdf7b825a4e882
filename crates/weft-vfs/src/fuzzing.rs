//! Doors for the fuzzer to decoders that are private: each takes any bytes, and panics only if a
//! promise is broken.

use weft_store::Ino;
use weft_tree::{Acl, Journal, Mutation, Replacement, decode, encode};

/// Takes `bytes` as operations of the intent log. What decodes must encode to what decodes to the
/// same.
pub fn mutation(bytes: &[u8]) {
    let mut rest = bytes;
    loop {
        let before = rest.len();
        let Some(mutation) = decode(&mut rest) else { break };
        assert!(rest.len() < before, "a decoded operation takes bytes");
        let mut encoded = Vec::new();
        assert!(encode(&mutation, &mut encoded).is_none(), "what is decoded is not shared");
        let mut again = encoded.as_slice();
        assert_eq!(decode(&mut again).as_ref(), Some(&mutation));
        assert!(again.is_empty(), "an encoded operation is no longer than it says");
    }
}

/// The operations that `bytes` hold, as a record of the intent log holds them. Inode numbers are
/// taken modulo `inodes`, so that most operations are about something that is there.
pub fn record(mut bytes: &[u8], inodes: u64) -> Vec<u8> {
    let mut journal = Journal::default();
    while let Some(mut mutation) = decode(&mut bytes) {
        fold(&mut mutation, inodes);
        journal.push(&mutation);
    }
    journal.unlogged().map_or_else(Vec::new, |unlogged| unlogged.bytes.to_vec())
}

fn fold(mutation: &mut Mutation<'_>, inodes: u64) {
    let numbers: [Option<&mut Ino>; 2] = match mutation {
        Mutation::Make { parent, inode, .. } => [Some(parent), Some(&mut inode.ino)],
        Mutation::Link { ino, parent, .. } => [Some(ino), Some(parent)],
        Mutation::Remove { parent, .. } => [Some(parent), None],
        Mutation::Whiteout { from, to, .. } | Mutation::Rename { from, to, .. } => [Some(&mut from.0), Some(&mut to.0)],
        Mutation::Share { from, to, .. } => [Some(&mut from.0), Some(&mut to.0)],
        Mutation::Replace { ino, with: Replacement::ContentOf(from), .. } => [Some(ino), Some(from)],
        Mutation::Attributes { ino, .. }
        | Mutation::Replace { ino, .. }
        | Mutation::Write { ino, .. }
        | Mutation::Zero { ino, .. }
        | Mutation::Xattr { ino, .. } => [Some(ino), None],
    };
    numbers.into_iter().flatten().for_each(|ino| ino.0 %= inodes);
}

/// Takes `bytes` as the value of an ACL's attribute. What is one stays the same through its bytes,
/// and tells permission bits that chmod can set again.
pub fn acl(bytes: &[u8]) {
    let Ok(acl) = Acl::parse(bytes) else { return };
    let again = Acl::parse(&acl.to_bytes()).expect("a valid ACL stays one");
    assert_eq!(again.to_bytes(), acl.to_bytes());
    let permissions = acl.permissions();
    assert_eq!(permissions & !0o777, 0);
    assert_eq!(acl.clone().with_permissions(permissions).to_bytes(), acl.to_bytes());
    for asked in [0, 0o640, 0o777, permissions] {
        let inherited = acl.clone().inherited(asked);
        assert_eq!(inherited.permissions() & !asked, 0, "no more than was asked for");
        assert_eq!(inherited.is_minimal(), acl.is_minimal());
        assert_eq!(acl.clone().with_permissions(asked).permissions(), asked);
    }
}
