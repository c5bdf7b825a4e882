//! Rights to targets, as a link's permission bits can tell them.

use weft_store::InodeRow;

/// Owner and group whose classes permission bits describe.
#[derive(Clone, Copy)]
pub(super) struct Owner {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// Returns the rights of each class of `owner` on `row`, as permission bits. If a class spans
/// several classes of the row, or there is an ACL, it gets only the rights that all its members
/// surely have.
pub(super) fn rights(row: &InodeRow, has_acl: bool, owner: Owner) -> u32 {
    let bits = row.permissions;
    let (of_owner, of_group, of_others) = (bits >> 6 & 7, bits >> 3 & 7, bits & 7);
    let strangers = if has_acl { 0 } else { of_group & of_others };
    let same_group = !has_acl && owner.gid == row.gid;
    let user = match owner.uid {
        0 => 7,
        uid if uid == row.uid => of_owner,
        _ => strangers,
    };
    let group = if same_group { of_group } else { strangers };
    let others = if same_group { of_others } else { strangers };
    user << 6 | group << 3 | others
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_store::Timestamp;

    #[test]
    fn nobody_gets_a_right_that_the_target_does_not_give() {
        let row = |permissions, uid, gid| InodeRow { permissions, ..InodeRow::new_root(uid, gid, Timestamp(0)) };
        let owner = |uid, gid| Owner { uid, gid };
        // The same people: the same bits.
        assert_eq!(rights(&row(0o640, 7, 8), false, owner(7, 8)), 0o640);
        // Another owner, of whom nobody knows whether it is in the group.
        assert_eq!(rights(&row(0o640, 7, 8), false, owner(9, 8)), 0o040);
        assert_eq!(rights(&row(0o644, 7, 8), false, owner(9, 8)), 0o444);
        // Another group: who is in that may be in the target's, or not.
        assert_eq!(rights(&row(0o604, 7, 8), false, owner(7, 9)), 0o600);
        assert_eq!(rights(&row(0o664, 7, 8), false, owner(7, 9)), 0o644);
        // A list gives and takes rights that no bits show.
        assert_eq!(rights(&row(0o666, 7, 8), true, owner(7, 8)), 0o600);
        assert_eq!(rights(&row(0o600, 7, 8), false, owner(0, 8)), 0o700);
    }
}
