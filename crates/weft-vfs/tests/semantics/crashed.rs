//! What tests of volumes after a crash share, whatever engine they lie in.

use crate::FILE;
use weft_store::log::Loss;
use weft_vfs::{Caller, ErrorKind, Ino, Vfs};

/// A volume as a crash has left it.
pub trait Crashed {
    type Mounted;
    type Content: PartialEq;

    fn try_mount(&self, loss: Loss) -> Result<Self::Mounted, String>;

    /// All that the volume consists of and that a refused mount must leave.
    fn content(&self) -> Self::Content;

    fn mount(&self) -> Self::Mounted {
        self.try_mount(Loss::Refuse).unwrap_or_else(|why| panic!("mounts: {why}"))
    }

    /// It is refused with these words, again and again, and nothing of it is changed by that.
    #[track_caller]
    fn assert_refused(&self, words: &str) {
        let before = self.content();
        for _ in 0..2 {
            let why = self.try_mount(Loss::Refuse).err().expect("refused");
            assert!(why.contains(words) && why.contains("--accept-loss"), "{why}");
            assert!(self.content() == before, "something was changed");
        }
    }
}

/// Files in the root of a mounted volume, by their names.
pub trait Named {
    fn vfs(&self) -> &Vfs;

    fn put(&self, name: &str, content: &[u8]) {
        let found = self.vfs().lookup(Caller::ROOT, Ino::ROOT, name.as_bytes());
        let make = |_| self.vfs().make(Caller::ROOT, Ino::ROOT, name.as_bytes(), FILE).expect("made");
        let ino = found.unwrap_or_else(make).ino;
        self.vfs().write(ino, 0, content, false).expect("written");
    }

    fn put_and_sync(&self, name: &str, content: &[u8]) {
        self.put(name, content);
        self.vfs().sync().expect("synced");
    }

    fn get(&self, name: &str) -> Result<Vec<u8>, ErrorKind> {
        let found = self.vfs().lookup(Caller::ROOT, Ino::ROOT, name.as_bytes()).map_err(|error| error.kind())?;
        let read = self.vfs().read(found.ino, 0, 1 << 20);
        read.map(|rope| rope.to_vec()).map_err(|error| error.kind())
    }
}
