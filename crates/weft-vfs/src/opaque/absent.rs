//! No layer: opaque inodes are files that nobody may read or write. They can be listed, renamed and
//! removed.

use super::{Detail, Layer, OpaqueFiles, OpaqueLayer, OpaqueState, Results, Substitutes, Turn};
use crate::stats::Stats;
use crate::volume::Vfs;
use weft_attributes::Attribute;
use weft_block::Rope;
use weft_store::{Cookie, Ino, Kind};
use weft_tree::{
    Attributes, Caller, DirEntry, ErrorKind, Miss, Mutation, Privileges, Result, SetAttributes, Stop, Tree, Writer,
};

/// The layer of a volume that was opened without one.
pub(crate) struct Absent;

impl OpaqueState for Absent {
    fn begin(&mut self, _: bool) {}

    fn attributes(&mut self, tree: &mut Tree, ino: Ino, _: Detail) -> Result<Attributes, Stop> {
        let own = tree.inode(ino)?.attributes();
        Ok(Attributes { kind: Kind::File, permissions: 0, size: 0, allocated: 0, computed: Some(0), ..own })
    }

    fn permission_bits(&mut self, _: &mut Tree, _: Ino) -> Result<u32, Stop> {
        Ok(0)
    }

    fn prepare(&mut self, _: &mut Tree, _: Ino) -> Result<(), Stop> {
        Ok(())
    }

    fn is_directory(&mut self, _: &mut Tree, _: Ino) -> Result<bool, Stop> {
        Ok(false)
    }

    fn permit_definition(&mut self, _: &mut Tree, _: Ino) -> Result<(), Stop> {
        Err(ErrorKind::AccessDenied.into())
    }

    fn source_path(&mut self, _: &mut Tree, _: Ino) -> Result<Option<Vec<u8>>, Stop> {
        Ok(None)
    }

    fn released(&mut self, _: &mut Tree, _: Ino) {}

    fn observed(&mut self) {}

    fn told_of_opens(&mut self) {}

    fn follows(&self) -> bool {
        false
    }

    fn before(&mut self, _: &Tree, _: &Mutation<'_>) {}

    fn performed(&mut self, _: &Tree, _: &Mutation<'_>) {}

    fn deleted(&mut self, _: Ino) {}

    fn take_outdated(&mut self) -> Vec<Ino> {
        Vec::new()
    }

    fn weight(&self) -> usize {
        0
    }
}

impl OpaqueFiles for Absent {
    fn lookup(&self, _: &Vfs, _: Caller, _: Ino, _: &[u8]) -> Result<Attributes> {
        Err(ErrorKind::NotDirectory.into())
    }

    fn list(&self, _: &Vfs, _: Ino, _: Cookie, _: usize) -> Result<Vec<DirEntry>> {
        Err(ErrorKind::NotDirectory.into())
    }

    fn read(&self, _: &Vfs, _: Ino, _: u64, _: usize) -> Result<Rope> {
        Err(ErrorKind::AccessDenied.into())
    }

    fn write(&self, _: &Vfs, _: Ino, _: u64, _: &[u8], _: Writer) -> Result<Privileges> {
        Err(ErrorKind::AccessDenied.into())
    }

    fn permit_unopened(&self, _: &Vfs, _: Ino) -> Result<()> {
        Err(ErrorKind::AccessDenied.into())
    }

    fn set_attributes(&self, _: &Vfs, _: Ino, _: SetAttributes) -> Result<Attributes> {
        Err(ErrorKind::AccessDenied.into())
    }

    fn attribute(&self, _: &Vfs, _: Ino, _: Attribute<'_>) -> Result<Option<Vec<u8>>> {
        Err(ErrorKind::NotSupported.into())
    }

    fn fetch(&self, _: &Vfs, _: &Miss) -> Result<()> {
        Err(ErrorKind::NotSupported.into())
    }

    fn take_turn<'a>(&'a self, _: &'a Vfs) -> Result<Box<dyn Turn + 'a>> {
        Err(ErrorKind::NotSupported.into())
    }
}

impl OpaqueLayer for Absent {
    fn another(&self) -> Layer {
        Layer::absent()
    }
}

impl Substitutes for Absent {
    fn seen(&self, ino: Ino, _: Option<u64>) -> Ino {
        ino
    }

    fn seen_in_place_of(&self, _: Ino) -> Option<Ino> {
        None
    }

    fn prepare_owner(&self, _: &Vfs, _: Ino, _: u32) -> Result<()> {
        Ok(())
    }

    fn owner_changed(&self, _: &Vfs, _: Ino, _: u32) {}

    fn released(&self, _: &Vfs, _: Ino) {}
}

impl Results for Absent {
    fn adopt(&self, _: &Vfs, _: Ino) -> bool {
        false
    }

    fn keeps(&self, _: &Vfs, _: Ino) -> Result<bool> {
        Ok(false)
    }

    fn bytes(&self) -> u64 {
        0
    }

    fn clear(&self) -> bool {
        false
    }

    fn committed(&self, _: &Vfs) {}

    fn stop(&self) {}

    fn store(&self, _: &Vfs) {}

    fn end(&self, _: &Vfs) {}

    fn count(&self, _: &mut Stats) {}
}
