//! The operations that requests ask for.

macro_rules! opcodes {
    ($($name:ident = $number:literal),* $(,)?) => {
        /// A request's kind (`enum fuse_opcode`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub(crate) enum Opcode { $($name = $number),* }

        impl Opcode {
            /// Returns the opcode of this number, if it is known.
            pub(crate) fn from_number(number: u32) -> Option<Opcode> {
                match number { $($number => Some(Opcode::$name),)* _ => None }
            }

            /// Returns its name.
            pub(crate) fn name(self) -> &'static str {
                match self { $(Opcode::$name => stringify!($name)),* }
            }

            /// All of them.
            pub(crate) const ALL: &[Opcode] = &[$(Opcode::$name),*];
        }
    };
}

opcodes! {
    Lookup = 1, Forget = 2, Getattr = 3, Setattr = 4, Readlink = 5, Symlink = 6, Mknod = 8, Mkdir = 9,
    Unlink = 10, Rmdir = 11, Rename = 12, Link = 13, Open = 14, Read = 15, Write = 16, Statfs = 17,
    Release = 18, Fsync = 20, Setxattr = 21, Getxattr = 22, Listxattr = 23, Removexattr = 24, Flush = 25,
    Init = 26, Opendir = 27, Readdir = 28, Releasedir = 29, Fsyncdir = 30, Getlk = 31, Setlk = 32, Setlkw = 33,
    Access = 34, Create = 35, Interrupt = 36, Bmap = 37, Destroy = 38, Ioctl = 39, Poll = 40, NotifyReply = 41,
    BatchForget = 42, Fallocate = 43, Readdirplus = 44, Rename2 = 45, Lseek = 46, CopyFileRange = 47,
    SetupMapping = 48, RemoveMapping = 49, Syncfs = 50, Tmpfile = 51, Statx = 52, CopyFileRange64 = 53,
}
