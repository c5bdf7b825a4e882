//! POSIX.1e access control lists as Linux keeps them in `system.posix_acl_*` (acl(5),
//! linux/posix_acl_xattr.h).
//!
//! An ACL is a version and entries of tag, permission bits and id. Here lives how ACLs and
//! permission bits follow from each other; who may do what is checked by whoever asks.

use crate::error::ErrorKind;

const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NO_ID: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    bits: u16,
    id: u32,
}

/// A valid ACL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    entries: Vec<Entry>,
}

impl Acl {
    /// Reads an ACL from its attribute's value. `Invalid` if it is none.
    pub fn parse(value: &[u8]) -> Result<Acl, ErrorKind> {
        let (version, rest) = value.split_first_chunk::<4>().ok_or(ErrorKind::Invalid)?;
        let (entries, []) = rest.as_chunks::<8>() else { return Err(ErrorKind::Invalid) };
        if u32::from_le_bytes(*version) != VERSION {
            return Err(ErrorKind::NotSupported);
        }
        let entries = entries.iter().map(|[a, b, c, d, id @ ..]| Entry {
            tag: u16::from_le_bytes([*a, *b]),
            bits: u16::from_le_bytes([*c, *d]),
            id: u32::from_le_bytes(*id),
        });
        let acl = Acl { entries: entries.collect() };
        if acl.is_valid() { Ok(acl) } else { Err(ErrorKind::Invalid) }
    }

    /// One entry each for owner, group and others; a mask where users or groups are named; order
    /// and bits right.
    fn is_valid(&self) -> bool {
        let count = |tag| self.entries.iter().filter(|entry| entry.tag == tag).count();
        let known = [USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER];
        let named = count(USER) + count(GROUP);
        self.entries.iter().all(|entry| known.contains(&entry.tag) && entry.bits <= 7)
            && self.entries.windows(2).all(|pair| pair[0].tag <= pair[1].tag)
            && [USER_OBJ, GROUP_OBJ, OTHER].into_iter().all(|tag| count(tag) == 1)
            && count(MASK) <= 1
            && (named == 0 || count(MASK) == 1)
    }

    /// The attribute's value.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            let id = if matches!(entry.tag, USER | GROUP) { entry.id } else { NO_ID };
            bytes.extend_from_slice(&entry.tag.to_le_bytes());
            bytes.extend_from_slice(&entry.bits.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    fn bits(&self, tag: u16) -> Option<u32> {
        self.entries.iter().find(|entry| entry.tag == tag).map(|entry| u32::from(entry.bits))
    }

    /// True if permission bits alone express the whole ACL.
    pub fn is_minimal(&self) -> bool {
        self.entries.len() == 3
    }

    /// The nine permission bits that stand for it: the mask, where there is one, in the group's
    /// place.
    pub fn permissions(&self) -> u32 {
        let of = |tag| self.bits(tag).unwrap_or(0);
        of(USER_OBJ) << 6 | self.bits(MASK).unwrap_or_else(|| of(GROUP_OBJ)) << 3 | of(OTHER)
    }

    /// True if the ACL grants `wanted` to a user who is not the owner (POSIX.1e 23.1.3). `is_user`
    /// and `is_member` tell the user's identity and groups. `wanted` holds the three requested
    /// bits: one group must grant all of them.
    pub fn grants(
        &self,
        owning_group: u32,
        wanted: u32,
        is_user: impl Fn(u32) -> bool,
        is_member: impl Fn(u32) -> bool,
    ) -> bool {
        let mask = self.bits(MASK).unwrap_or(7);
        let grants = |bits: u32| bits & wanted == wanted;
        if let Some(named) = self.entries.iter().find(|entry| entry.tag == USER && is_user(entry.id)) {
            return grants(u32::from(named.bits) & mask);
        }
        let group = |entry: &&Entry| match entry.tag {
            GROUP_OBJ => is_member(owning_group),
            GROUP => is_member(entry.id),
            _ => false,
        };
        let mut groups = self.entries.iter().filter(group).peekable();
        match groups.peek() {
            Some(_) => groups.any(|entry| grants(u32::from(entry.bits) & mask)),
            None => grants(self.bits(OTHER).unwrap_or(0)),
        }
    }

    /// Tells if it gives `wanted` to the user in any case, where membership of some groups is
    /// unknown.
    pub fn surely_grants(
        &self,
        owning_group: u32,
        wanted: u32,
        is_user: impl Fn(u32) -> bool,
        is_member: impl Fn(u32) -> Option<bool>,
    ) -> bool {
        let known = self.grants(owning_group, wanted, &is_user, |gid| is_member(gid) == Some(true));
        let is_named = self.entries.iter().any(|entry| entry.tag == USER && is_user(entry.id));
        let group = |entry: &&Entry| matches!(entry.tag, GROUP_OBJ | GROUP);
        let membership = |entry: &Entry| is_member(if entry.tag == GROUP_OBJ { owning_group } else { entry.id });
        let mut groups = self.entries.iter().filter(group).map(membership);
        // One group that grants is enough. The entry for others counts for members of no group.
        let is_certain = is_named || groups.clone().any(|is| is == Some(true)) || groups.all(|is| is == Some(false));
        known && is_certain
    }

    /// Sets owner, others, and mask (or group, without a mask) through `change` of (old bits, class
    /// shift).
    fn map(&mut self, change: impl Fn(u16, u32) -> u16) {
        let group_tag = if self.bits(MASK).is_some() { MASK } else { GROUP_OBJ };
        for entry in &mut self.entries {
            let shift = match entry.tag {
                USER_OBJ => 6,
                OTHER => 0,
                tag if tag == group_tag => 3,
                _ => continue,
            };
            entry.bits = change(entry.bits, shift);
        }
    }

    /// As chmod to `permissions` makes it.
    #[must_use]
    pub fn with_permissions(mut self, permissions: u32) -> Acl {
        self.map(|_, shift| u16::try_from(permissions >> shift & 7).expect("three bits"));
        self
    }

    /// The same for those who only read: nobody may write.
    #[must_use]
    pub fn without_write(mut self) -> Acl {
        self.entries.iter_mut().for_each(|entry| entry.bits &= !2);
        self
    }

    /// As a new file asked for with `permissions` gets it from its directory's default ACL
    /// (POSIX.1e 23.1.5).
    #[must_use]
    pub fn inherited(mut self, permissions: u32) -> Acl {
        self.map(|bits, shift| bits & u16::try_from(permissions >> shift & 7).expect("three bits"));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn acl(entries: &[(u16, u16, u32)]) -> Acl {
        Acl { entries: entries.iter().map(|&(tag, bits, id)| Entry { tag, bits, id }).collect() }
    }

    fn with_mask() -> Acl {
        acl(&[(USER_OBJ, 7, NO_ID), (USER, 6, 1000), (GROUP_OBJ, 5, NO_ID), (MASK, 7, NO_ID), (OTHER, 0, NO_ID)])
    }

    #[test]
    fn an_acl_reads_back_as_it_was_written() {
        assert_eq!(Acl::parse(&with_mask().to_bytes()), Ok(with_mask()));
    }

    #[test]
    fn named_users_need_a_mask_and_owner_group_and_others_must_be_there() {
        let without_mask = acl(&[(USER_OBJ, 7, NO_ID), (USER, 6, 1000), (GROUP_OBJ, 5, NO_ID), (OTHER, 0, NO_ID)]);
        assert_eq!(Acl::parse(&without_mask.to_bytes()), Err(ErrorKind::Invalid));
        let without_others = acl(&[(USER_OBJ, 7, NO_ID), (GROUP_OBJ, 5, NO_ID)]);
        assert_eq!(Acl::parse(&without_others.to_bytes()), Err(ErrorKind::Invalid));
    }

    #[test]
    fn chmod_sets_the_mask_and_leaves_the_group_entry() {
        let changed = with_mask().with_permissions(0o640);
        assert_eq!(changed.permissions(), 0o640);
        assert_eq!(changed.bits(GROUP_OBJ), Some(5));
    }

    #[test]
    fn a_named_user_gets_what_the_mask_leaves_and_a_member_what_one_group_gives() {
        let limited = acl(&[
            (USER_OBJ, 7, NO_ID),
            (USER, 6, 1000),
            (GROUP_OBJ, 4, NO_ID),
            (GROUP, 2, 50),
            (MASK, 4, NO_ID),
            (OTHER, 1, NO_ID),
        ]);
        let asks = |uid: u32, groups: &'static [u32], wanted| {
            limited.grants(10, wanted, |id| id == uid, |id| groups.contains(&id))
        };
        assert!(asks(1000, &[], 4) && !asks(1000, &[], 2));
        assert!(asks(7, &[10, 50], 4) && !asks(7, &[50], 4) && !asks(7, &[10, 50], 2) && !asks(7, &[10], 1));
        assert!(asks(7, &[], 1) && !asks(7, &[], 4));
    }

    #[test]
    fn a_new_file_gets_no_more_than_it_asked_for() {
        assert_eq!(with_mask().inherited(0o644).permissions(), 0o640);
    }

    proptest! {
        #[test]
        fn any_value_is_an_acl_or_refused(value in proptest::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(acl) = Acl::parse(&value) {
                prop_assert!(acl.permissions() <= 0o777);
            }
        }
    }
}
