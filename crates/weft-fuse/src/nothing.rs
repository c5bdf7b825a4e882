//! A file system that stores nothing: the cost of FUSE itself, as a measure for others.
//!
//! It goes through the same transports as a volume and answers at once. Names, attributes and
//! lengths are in memory; the bytes that are written are dropped, and files read as zeros. It asks
//! the kernel for the same caching as a volume, and spares every request that can be spared.

mod nodes;

use crate::dispatch::WANTED;
use crate::mount::{self, MountError, MountOptions, Subtype};
use crate::options::SessionOptions;
use crate::protocol::arguments::{Fallocate, Forget, Link, Mkdir, Mknod, Named, Read, Rename, Setattr, Symlink, Write};
use crate::protocol::flags::{fattr, init};
use crate::protocol::{CutShort, DATA_BYTES_MAX, Offer, Opcode, Reply, Request, Valid};
use crate::session::{Mounted, Unmounter};
use crate::transport::handler::{Handler, Served, Via};
use crate::transport::scheduling::Scheduling;
use nodes::{Node, Nodes};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use weft_block::Rope;
use weft_vfs::{Attributes, Kind};

/// Such a file system, mounted at a directory. Dropping it unmounts.
pub struct Nothing(Mounted);

impl Nothing {
    /// Mounts it at `directory`. Requests wait until [`Nothing::run`].
    pub fn mount(directory: &Path, mount: &MountOptions, options: SessionOptions) -> Result<Nothing, MountError> {
        let directory = mount::check_mount_point(directory)?;
        let file = Arc::new(mount::mount(&directory, Subtype::Nothing, mount)?);
        // Only speed depends on it.
        let scheduling = if options.idle_policy { Scheduling::new().ok() } else { None };
        let zeros = Rope::from(vec![0; DATA_BYTES_MAX]);
        let answers = Answers { options, scheduling, zeros, nodes: Mutex::new(Nodes::new()) };
        Ok(Nothing(Mounted::begin(file, directory, Arc::new(answers))?))
    }

    /// Serves until it is unmounted.
    pub fn run(self) -> std::io::Result<()> {
        self.0.run()
    }

    /// Returns a handle that unmounts it, for any thread.
    pub fn unmounter(&self) -> Unmounter {
        self.0.unmounter()
    }

    /// Returns the transport, in a word.
    pub fn transport(&self) -> &'static str {
        if self.0.has_rings() { "io_uring" } else { "device" }
    }
}

struct Answers {
    options: SessionOptions,
    scheduling: Option<Scheduling>,
    zeros: Rope,
    nodes: Mutex<Nodes>,
}

/// The errno of a request that fails.
struct Errno(i32);

impl From<CutShort> for Errno {
    fn from(_: CutShort) -> Errno {
        Errno(libc::EINVAL)
    }
}

type Outcome<T = ()> = Result<T, Errno>;

impl Handler for Answers {
    fn options(&self) -> &SessionOptions {
        &self.options
    }

    fn scheduling(&self) -> Option<&Scheduling> {
        self.scheduling.as_ref()
    }

    fn waits_for_network(&self) -> bool {
        false
    }

    fn init(&self, offer: &Offer, via: Via, reply: &mut Reply) -> Result<(), i32> {
        offer.minor().ok_or(libc::EPROTO)?;
        let rings = if via == Via::Rings { init::OVER_IO_URING } else { 0 };
        let writeback = if self.options.writeback { init::WRITEBACK_CACHE } else { 0 };
        offer.accept(WANTED | rings | writeback, reply);
        Ok(())
    }

    fn begins(&self, _via: Via) {}

    fn serve(&self, request: &Request<'_>, reply: &mut Reply) -> Served {
        reply.begin();
        let errno = match Opcode::from_number(request.header.opcode) {
            None => libc::ENOSYS,
            Some(opcode) => self.answer(opcode, request, reply).err().map_or(0, |Errno(errno)| errno),
        };
        reply.finish(request.header.unique, errno);
        Served::Done
    }

    fn interrupted(&self, _unique: u64) {}

    fn ended(&self) {}
}

impl Answers {
    fn answer(&self, opcode: Opcode, request: &Request<'_>, reply: &mut Reply) -> Outcome {
        let mut nodes = self.nodes.lock();
        match opcode {
            Opcode::Lookup
            | Opcode::Mknod
            | Opcode::Mkdir
            | Opcode::Symlink
            | Opcode::Link
            | Opcode::Unlink
            | Opcode::Rmdir
            | Opcode::Rename
            | Opcode::Rename2 => self.answer_about_name(&mut nodes, opcode, request, reply),
            _ => self.answer_about_inode(&mut nodes, opcode, request, reply),
        }
    }

    /// Answers a request about a name in directory `nodeid`.
    fn answer_about_name(
        &self,
        nodes: &mut Nodes,
        opcode: Opcode,
        request: &Request<'_>,
        reply: &mut Reply,
    ) -> Outcome {
        let (header, body) = (request.header, request.body);
        let (at, owner) = (header.nodeid, (header.uid, header.gid));
        let found = match opcode {
            Opcode::Lookup => match nodes.find(at, Named::parse(body)?.name)? {
                None => {
                    reply.no_entry(self.options.valid);
                    return Ok(());
                }
                Some(found) => found,
            },
            Opcode::Mknod => {
                let Mknod { mode, umask, name, rdev } = Mknod::parse(body)?;
                let kind = Kind::from_mode(mode).ok_or(Errno(libc::EINVAL))?;
                nodes.make(at, name, Node::new(kind, mode & !umask, rdev, owner))?
            }
            Opcode::Mkdir => {
                let Mkdir { mode, umask, name } = Mkdir::parse(body)?;
                nodes.make(at, name, Node::new(Kind::Directory, mode & !umask, 0, owner))?
            }
            Opcode::Symlink => {
                let Symlink { name, target } = Symlink::parse(body)?;
                nodes.make(at, name, Node::symlink(target, owner))?
            }
            Opcode::Link => {
                let Link { node, name } = Link::parse(body)?;
                nodes.link(node, at, name)?;
                node
            }
            Opcode::Unlink => return nodes.remove(at, Named::parse(body)?.name, Kind::File),
            Opcode::Rmdir => return nodes.remove(at, Named::parse(body)?.name, Kind::Directory),
            Opcode::Rename => {
                let Rename { to, old, new, .. } = Rename::parse(body)?;
                return nodes.rename((at, old), (to, new));
            }
            _ => {
                let Rename { to, flags, old, new } = Rename::parse_with_flags(body)?;
                return match flags {
                    0 => nodes.rename((at, old), (to, new)),
                    libc::RENAME_NOREPLACE if nodes.find(to, new)?.is_some() => Err(Errno(libc::EEXIST)),
                    libc::RENAME_NOREPLACE => nodes.rename((at, old), (to, new)),
                    _ => Err(Errno(libc::EINVAL)),
                };
            }
        };
        reply.entry_out(found, &nodes.node(found)?.attributes, self.valid());
        Ok(())
    }

    /// Answers any other request, most of which are about inode `nodeid`.
    fn answer_about_inode(
        &self,
        nodes: &mut Nodes,
        opcode: Opcode,
        request: &Request<'_>,
        reply: &mut Reply,
    ) -> Outcome {
        let (at, body) = (request.header.nodeid, request.body);
        match opcode {
            Opcode::Forget => {
                reply.cancel();
                nodes.forget(at);
            }
            Opcode::BatchForget => {
                reply.cancel();
                Forget::parse_batch(body)?.for_each(|(number, _)| nodes.forget(number));
            }
            Opcode::Getattr => reply.attr_out(&nodes.node(at)?.attributes, self.options.valid),
            Opcode::Statx => reply.statx_out(&nodes.node(at)?.attributes, self.options.valid),
            Opcode::Setattr => {
                let attributes = &mut nodes.node_mut(at)?.attributes;
                set(attributes, &Setattr::parse(body)?);
                reply.attr_out(attributes, self.options.valid);
            }
            Opcode::Readlink => reply.raw(&nodes.node(at)?.target),
            Opcode::Read => {
                let Read { offset, size, .. } = Read::parse(body)?;
                let left = nodes.node(at)?.attributes.size.saturating_sub(offset);
                let bytes = (size as usize).min(DATA_BYTES_MAX).min(usize::try_from(left).unwrap_or(usize::MAX));
                reply.set_data(self.zeros.cut(0..bytes));
            }
            Opcode::Write => {
                let Write { offset, data, .. } = Write::parse(body)?;
                nodes.node_mut(at)?.reach_to(offset.saturating_add(data.len() as u64));
                reply.u32(u32::try_from(data.len()).expect("its length is one of 32 bits"));
                reply.u32(0);
            }
            Opcode::Fallocate => {
                let Fallocate { offset, length, mode, .. } = Fallocate::parse(body)?;
                let node = nodes.node_mut(at)?;
                if mode == 0 {
                    node.reach_to(offset.saturating_add(length));
                }
            }
            Opcode::Readdir => nodes.list(at, &Read::parse(body)?, None, reply)?,
            Opcode::Readdirplus => nodes.list(at, &Read::parse(body)?, Some(self.valid()), reply)?,
            Opcode::Statfs => statfs(reply),
            Opcode::Fsync | Opcode::Fsyncdir | Opcode::Syncfs | Opcode::Destroy => {}
            Opcode::Interrupt | Opcode::NotifyReply => reply.cancel(),
            // The kernel then does these itself, or does not ask again.
            _ => return Err(Errno(libc::ENOSYS)),
        }
        Ok(())
    }

    fn valid(&self) -> Valid {
        Valid { entry: self.options.valid, attributes: self.options.valid }
    }
}

/// There is always as much room.
fn statfs(reply: &mut Reply) {
    for _ in 0..5 {
        reply.u64(1 << 32);
    }
    for value in [4096, 255, 4096, 0] {
        reply.u32(value);
    }
    reply.raw(&[0; 24]);
}

fn set(attributes: &mut Attributes, asked: &Setattr) {
    let has = |bit: u32| asked.valid & bit != 0;
    if has(fattr::MODE) {
        attributes.permissions = asked.mode & 0o7777;
    }
    if has(fattr::UID) {
        attributes.uid = asked.uid;
    }
    if has(fattr::GID) {
        attributes.gid = asked.gid;
    }
    if has(fattr::SIZE) {
        attributes.size = asked.size;
    }
}
