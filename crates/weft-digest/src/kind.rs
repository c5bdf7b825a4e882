//! Kinds of files.

/// Kind of what an entry of a directory names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Unix socket.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
    /// Transformation link: its users see a regular file, whose content is computed.
    Transformation,
}

/// The `S_IFMT` bits of a transformation link in a database. No system has a kind of file with
/// these.
const TRANSFORMATION_BITS: u32 = 0o130_000;

/// All kinds, with the letters that hashes and proofs have for them.
const LETTERS: [(Kind, u8); 8] = [
    (Kind::File, b'f'),
    (Kind::Directory, b'd'),
    (Kind::Symlink, b'l'),
    (Kind::Fifo, b'p'),
    (Kind::Socket, b's'),
    (Kind::CharDevice, b'c'),
    (Kind::BlockDevice, b'b'),
    (Kind::Transformation, b't'),
];

impl Kind {
    /// Returns its name, as users are shown it.
    pub fn in_words(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Directory => "directory",
            Kind::Symlink => "symbolic link",
            Kind::Fifo => "named pipe",
            Kind::Socket => "socket",
            Kind::CharDevice => "character device",
            Kind::BlockDevice => "block device",
            Kind::Transformation => "transformation link",
        }
    }

    /// The `S_IFMT` bits of `st_mode` (POSIX `<sys/stat.h>`), where there are such; also what
    /// databases store.
    pub fn mode_bits(self) -> u32 {
        match self {
            Kind::File => libc::S_IFREG,
            Kind::Directory => libc::S_IFDIR,
            Kind::Symlink => libc::S_IFLNK,
            Kind::Fifo => libc::S_IFIFO,
            Kind::Socket => libc::S_IFSOCK,
            Kind::CharDevice => libc::S_IFCHR,
            Kind::BlockDevice => libc::S_IFBLK,
            Kind::Transformation => TRANSFORMATION_BITS,
        }
    }

    /// The kind that the `S_IFMT` bits of `mode` name, if any.
    pub fn from_mode(mode: u32) -> Option<Kind> {
        LETTERS.into_iter().map(|(kind, _)| kind).find(|kind| kind.mode_bits() == mode & libc::S_IFMT)
    }

    /// Its letter, as hashes and proofs have it.
    pub fn letter(self) -> u8 {
        let of_kind = LETTERS.into_iter().find(|(kind, _)| *kind == self);
        of_kind.expect("each kind is in the table").1
    }

    /// The kind with this letter.
    pub fn from_letter(letter: u8) -> Option<Kind> {
        LETTERS.into_iter().find(|(_, other)| *other == letter).map(|(kind, _)| kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_letters_and_modes_name_each_other() {
        for (kind, letter) in LETTERS {
            assert_eq!((kind.letter(), Kind::from_letter(letter)), (letter, Some(kind)));
            assert_eq!(Kind::from_mode(kind.mode_bits() | 0o7777), Some(kind));
        }
        assert_eq!((Kind::from_letter(b'x'), Kind::from_mode(0o644)), (None, None));
    }
}
