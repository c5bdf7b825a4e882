//! Mutations as bytes for the intent log. Little endian, no padding; the layout is private to one
//! mount and the next of the same format version. The decoder takes any bytes without harm.

use super::{Data, Lost, Mutation, NewInode, Replacement, SetRow};
use std::borrow::Cow;
use weft_block::Rope;
use weft_store::{Cookie, Ino, Kind, Name, Timestamp};

/// Appends `mutation` to `out`. Returns the bytes that belong behind that and are not copied, if
/// there are any.
#[expect(clippy::too_many_lines, reason = "an arm for each kind of mutation")]
#[must_use = "what is shared is not in `out`"]
pub fn encode<'a>(mutation: &Mutation<'a>, out: &mut Vec<u8>) -> Option<&'a Rope> {
    let mut out = Writer(out);
    match mutation {
        Mutation::Make { parent, name, inode } => {
            out.u8(1);
            out.u64(parent.0);
            out.option(name.as_ref(), |out, (name, cookie)| {
                out.bytes(name.as_bytes());
                out.u64(cookie.0);
            });
            out.new_inode(inode);
        }
        Mutation::Link { ino, parent, name, cookie, time } => {
            out.u8(2);
            out.numbers(&[ino.0, parent.0, cookie.0]);
            out.name_and_time(name, *time);
        }
        Mutation::Remove { parent, name, time } => {
            out.u8(3);
            out.u64(parent.0);
            out.name_and_time(name, *time);
        }
        Mutation::Rename { from, to, exchange, cookie, time } => {
            out.u8(4);
            out.numbers(&[from.0.0, to.0.0, u64::from(*exchange), cookie.0]);
            out.names_and_time((&from.1, &to.1), *time);
        }
        Mutation::Attributes { ino, set, time } => {
            out.u8(5);
            out.u64(ino.0);
            out.set_row(set);
            out.time(*time);
        }
        Mutation::Write { ino, offset, data, lost, time } => {
            out.u8(6);
            out.numbers(&[ino.0, *offset]);
            out.lost(*lost);
            out.time(*time);
            match data {
                Data::Bytes(bytes) => out.bytes(bytes),
                Data::Shared(rope) => {
                    out.length(rope.len());
                    return Some(rope);
                }
            }
        }
        Mutation::Zero { ino, offset, len, size, lost, time } => {
            out.u8(7);
            out.numbers(&[ino.0, *offset, *len, *size]);
            out.lost(*lost);
            out.time(*time);
        }
        Mutation::Share { from, to, count, size, lost, time } => {
            out.u8(8);
            out.numbers(&[from.0.0, from.1, to.0.0, to.1, *count, *size]);
            out.lost(*lost);
            out.time(*time);
        }
        Mutation::Xattr { ino, name, value, permissions, time } => {
            out.u8(9);
            out.u64(ino.0);
            out.option(value.as_ref(), |out, value| out.bytes(value));
            out.option(permissions.as_ref(), |out, bits| out.u32(*bits));
            out.name_and_time(name, *time);
        }
        Mutation::Replace { ino, with, lost, time } => {
            out.u8(10);
            out.u64(ino.0);
            out.replacement(with);
            out.lost(*lost);
            out.time(*time);
        }
        Mutation::Whiteout { from, to, cookie, inode, time } => {
            out.u8(11);
            out.numbers(&[from.0.0, to.0.0, cookie.0]);
            out.names_and_time((&from.1, &to.1), *time);
            out.new_inode(inode);
        }
    }
    None
}

struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }
    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    fn numbers(&mut self, values: &[u64]) {
        for value in values {
            self.u64(*value);
        }
    }
    fn time(&mut self, time: Timestamp) {
        self.0.extend_from_slice(&time.0.to_le_bytes());
    }
    fn bytes(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.0.extend_from_slice(bytes);
    }
    fn length(&mut self, bytes: usize) {
        self.u32(u32::try_from(bytes).expect("a request is far below 4 GiB"));
    }
    fn name_and_time(&mut self, name: &Name, time: Timestamp) {
        self.bytes(name.as_bytes());
        self.time(time);
    }
    fn names_and_time(&mut self, names: (&Name, &Name), time: Timestamp) {
        self.bytes(names.0.as_bytes());
        self.name_and_time(names.1, time);
    }
    fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.u8(u8::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
    }
    fn lost(&mut self, lost: Lost) {
        self.option(lost.permissions, Self::u32);
        self.u8(u8::from(lost.capability));
    }
    fn replacement(&mut self, with: &Replacement<'_>) {
        match with {
            Replacement::Bytes(bytes) => self.option(Some(bytes), |out, bytes| out.bytes(bytes)),
            Replacement::ContentOf(from) => {
                self.option(None::<()>, |_, ()| {});
                self.u64(from.0);
            }
        }
    }
    fn new_inode(&mut self, inode: &NewInode<'_>) {
        self.u64(inode.ino.0);
        for value in [inode.kind.mode_bits() | inode.permissions, inode.uid, inode.gid, inode.rdev] {
            self.u32(value);
        }
        for bytes in [&inode.target, &inode.access_acl, &inode.default_acl] {
            self.option(bytes.as_ref(), |out, bytes| out.bytes(bytes));
        }
        self.time(inode.time);
    }
    fn set_row(&mut self, set: &SetRow<'_>) {
        for value in [set.permissions, set.uid, set.gid] {
            self.option(value, Self::u32);
        }
        self.option(set.size, Self::u64);
        for time in [set.atime, set.mtime] {
            self.option(time, Self::time);
        }
        self.option(set.access_acl.as_ref(), |out, acl| out.bytes(acl));
        self.u8(u8::from(set.drop_capability));
    }
}

/// Takes one mutation off the front of `bytes`; none if they do not hold one.
pub fn decode<'a>(bytes: &mut &'a [u8]) -> Option<Mutation<'a>> {
    let mut reader = Reader(bytes);
    let mutation = reader.mutation().filter(Mutation::is_sound)?;
    *bytes = reader.0;
    Some(mutation)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }
    fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }
    fn bool(&mut self) -> Option<bool> {
        self.u8().map(|byte| byte != 0)
    }
    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
    fn ino(&mut self) -> Option<Ino> {
        self.u64().map(Ino)
    }
    fn time(&mut self) -> Option<Timestamp> {
        self.array().map(i64::from_le_bytes).map(Timestamp)
    }
    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.take(len as usize)
    }
    fn name(&mut self) -> Option<Name> {
        Name::new(self.bytes()?).ok()
    }
    fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.bool()? { read(self).map(Some) } else { Some(None) }
    }
    fn optional_bytes(&mut self) -> Option<Option<Cow<'a, [u8]>>> {
        self.option(|reader| reader.bytes().map(Cow::Borrowed))
    }

    fn mutation(&mut self) -> Option<Mutation<'a>> {
        Some(match self.u8()? {
            1 => Mutation::Make {
                parent: self.ino()?,
                name: self.option(|reader| Some((reader.name()?, Cookie(reader.u64()?))))?,
                inode: self.new_inode()?,
            },
            2 => {
                let (ino, parent, cookie) = (self.ino()?, self.ino()?, Cookie(self.u64()?));
                Mutation::Link { ino, parent, cookie, name: self.name()?, time: self.time()? }
            }
            3 => Mutation::Remove { parent: self.ino()?, name: self.name()?, time: self.time()? },
            4 => {
                let (from, to, exchange) = (self.ino()?, self.ino()?, self.u64()? != 0);
                let cookie = Cookie(self.u64()?);
                let (from, to) = ((from, self.name()?), (to, self.name()?));
                Mutation::Rename { from, to, exchange, cookie, time: self.time()? }
            }
            5 => Mutation::Attributes { ino: self.ino()?, set: self.set_row()?, time: self.time()? },
            6 => Mutation::Write {
                ino: self.ino()?,
                offset: self.u64()?,
                lost: self.lost()?,
                time: self.time()?,
                data: Data::from(self.bytes()?),
            },
            7 => Mutation::Zero {
                ino: self.ino()?,
                offset: self.u64()?,
                len: self.u64()?,
                size: self.u64()?,
                lost: self.lost()?,
                time: self.time()?,
            },
            8 => Mutation::Share {
                from: (self.ino()?, self.u64()?),
                to: (self.ino()?, self.u64()?),
                count: self.u64()?,
                size: self.u64()?,
                lost: self.lost()?,
                time: self.time()?,
            },
            9 => {
                let (ino, value) = (self.ino()?, self.optional_bytes()?);
                let permissions = self.option(Self::u32)?;
                let name = Name::of_xattr(self.bytes()?).ok()?;
                Mutation::Xattr { ino, name, value, permissions, time: self.time()? }
            }
            10 => {
                let (ino, bytes) = (self.ino()?, self.optional_bytes()?);
                let with = match bytes {
                    Some(bytes) => Replacement::Bytes(bytes),
                    None => Replacement::ContentOf(self.ino()?),
                };
                Mutation::Replace { ino, with, lost: self.lost()?, time: self.time()? }
            }
            11 => {
                let (from, to, cookie) = (self.ino()?, self.ino()?, Cookie(self.u64()?));
                let (from, to) = ((from, self.name()?), (to, self.name()?));
                Mutation::Whiteout { from, to, cookie, time: self.time()?, inode: self.new_inode()? }
            }
            _ => return None,
        })
    }

    fn lost(&mut self) -> Option<Lost> {
        Some(Lost { permissions: self.option(Self::u32)?, capability: self.bool()? })
    }

    fn new_inode(&mut self) -> Option<NewInode<'a>> {
        let ino = self.ino()?;
        let mode = self.u32()?;
        Some(NewInode {
            ino,
            kind: Kind::from_mode(mode)?,
            permissions: mode & 0o7777,
            uid: self.u32()?,
            gid: self.u32()?,
            rdev: self.u32()?,
            target: self.optional_bytes()?,
            access_acl: self.optional_bytes()?,
            default_acl: self.optional_bytes()?,
            time: self.time()?,
        })
    }

    fn set_row(&mut self) -> Option<SetRow<'a>> {
        Some(SetRow {
            permissions: self.option(Self::u32)?,
            uid: self.option(Self::u32)?,
            gid: self.option(Self::u32)?,
            size: self.option(Self::u64)?,
            atime: self.option(Self::time)?,
            mtime: self.option(Self::time)?,
            access_acl: self.optional_bytes()?,
            drop_capability: self.bool()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(bytes: &[u8]) -> Name {
        Name::new(bytes).expect("a name")
    }

    fn samples() -> Vec<Mutation<'static>> {
        let time = Timestamp(-5);
        let lost = Lost { permissions: Some(0o755), capability: true };
        let inode = NewInode {
            ino: Ino(9),
            kind: Kind::Symlink,
            permissions: 0o777,
            uid: 1,
            gid: 2,
            rdev: 3,
            target: Some(Cow::Borrowed(b"there")),
            access_acl: None,
            default_acl: Some(Cow::Borrowed(b"acl")),
            time,
        };
        let set = SetRow { permissions: Some(0o640), size: Some(7), mtime: Some(time), ..SetRow::default() };
        vec![
            Mutation::Make { parent: Ino(1), name: Some((name(b"a"), Cookie(9))), inode: inode.clone() },
            Mutation::Make { parent: Ino(1), name: None, inode: inode.clone() },
            Mutation::Whiteout { from: (Ino(1), name(b"x")), to: (Ino(2), name(b"y")), cookie: Cookie(1), inode, time },
            Mutation::Link { ino: Ino(4), parent: Ino(1), name: name(b"b"), cookie: Cookie(10), time },
            Mutation::Remove { parent: Ino(1), name: name(b"b"), time },
            Mutation::Rename {
                from: (Ino(1), name(b"x")),
                to: (Ino(2), name(b"y")),
                exchange: true,
                cookie: Cookie(1),
                time,
            },
            Mutation::Attributes { ino: Ino(3), set, time },
            Mutation::Write { ino: Ino(3), offset: 5, data: Data::from(&b"data"[..]), lost, time },
            Mutation::Zero { ino: Ino(3), offset: 1, len: 2, size: 3, lost, time },
            Mutation::Share { from: (Ino(3), 1), to: (Ino(4), 2), count: 3, size: 4, lost: Lost::default(), time },
            Mutation::Xattr {
                ino: Ino(3),
                name: Name::of_xattr(b"user.a/b").expect("a name"),
                value: None,
                permissions: None,
                time,
            },
            Mutation::Replace { ino: Ino(3), with: Replacement::Bytes(Cow::Borrowed(b"new")), lost, time },
            Mutation::Replace { ino: Ino(3), with: Replacement::ContentOf(Ino(4)), lost: Lost::default(), time },
        ]
    }

    #[test]
    fn every_mutation_decodes_to_itself() {
        let mut bytes = Vec::new();
        let samples = samples();
        assert!(samples.iter().all(|mutation| encode(mutation, &mut bytes).is_none()), "nothing is shared");
        let mut rest = bytes.as_slice();
        for mutation in &samples {
            assert_eq!(decode(&mut rest).as_ref(), Some(mutation));
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn a_cut_mutation_does_not_decode() {
        for mutation in samples() {
            let mut bytes = Vec::new();
            assert!(encode(&mutation, &mut bytes).is_none());
            for len in 0..bytes.len() {
                assert_eq!(decode(&mut &bytes[..len]), None, "{mutation:?} cut to {len}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut rest = bytes.as_slice();
            while decode(&mut rest).is_some() {}
        }
    }
}
