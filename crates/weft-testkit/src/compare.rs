//! Compares a whole tree with the model's.

use crate::model::{Model, Node, NodeId, ROOT};
use std::collections::{BTreeMap, HashMap};
use weft_vfs::{Caller, Cookie, ErrorKind, Ino, Kind, Vfs, Whence};

/// Demands on a tree beside the model's.
#[derive(Clone, Copy)]
pub enum Told<'a> {
    /// All is told.
    Present,
    /// Times of access are not kept.
    AsOfThen,
    /// Nor are rights told that do not hold in this model any more.
    WithRightsOf(&'a Model),
}

/// The first difference between the two trees, if any; of nodes without a name, those of `held` are
/// compared.
pub fn compare(vfs: &Vfs, model: &Model, held: &HashMap<NodeId, Ino>) -> Result<(), String> {
    compare_below(vfs, Ino::ROOT, model, Told::Present)?;
    for id in model.live(|node| node.nlink == 0) {
        if let Some(ino) = held.get(&id) {
            node(vfs, (model, Told::Present), *ino, id, &format!("unlinked node {id}"))?;
        }
    }
    Ok(())
}

/// The same of what lies below directory `root`, which is to be the model's root.
pub fn compare_below(vfs: &Vfs, root: Ino, model: &Model, told: Told<'_>) -> Result<(), String> {
    directory(vfs, (model, told), root, ROOT, "", &mut HashMap::new())
}

fn directory(
    vfs: &Vfs,
    (model, told): (&Model, Told<'_>),
    ino: Ino,
    id: NodeId,
    path: &str,
    seen: &mut HashMap<NodeId, Ino>,
) -> Result<(), String> {
    node(vfs, (model, told), ino, id, path)?;
    let mut listed = BTreeMap::new();
    let mut after = Cookie(0);
    loop {
        let page = vfs.read_directory(ino, after, 3).map_err(|error| format!("{path}: {error}"))?;
        let Some(last) = page.last() else { break };
        after = last.cookie;
        for entry in page {
            if listed.insert(entry.name.as_bytes().to_vec(), entry.ino).is_some() {
                return Err(format!("{path}: {:?} is listed twice", entry.name));
            }
        }
    }
    let expected = &model.nodes[id].entries;
    if !listed.keys().eq(expected.keys()) {
        let show = |names: Vec<&Vec<u8>>| {
            names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect::<Vec<_>>()
        };
        let (found, wanted) = (show(listed.keys().collect()), show(expected.keys().collect()));
        return Err(format!("{path}: lists {found:?}, should list {wanted:?}"));
    }
    for (name, id) in expected {
        let path = format!("{path}/{}", String::from_utf8_lossy(name));
        let found = vfs.lookup(Caller::ROOT, ino, name).map_err(|error| format!("{path}: {error}"))?;
        if found.ino != listed[name] {
            return Err(format!("{path}: lookup and listing differ"));
        }
        if *seen.entry(*id).or_insert(found.ino) != found.ino {
            return Err(format!("{path}: two names of one file lead to two"));
        }
        if model.nodes[*id].kind == Kind::Directory && found.kind == Kind::Directory {
            let parent = vfs.parent(Caller::ROOT, found.ino).map_err(|error| format!("{path}: {error}"))?;
            if parent.ino != ino {
                return Err(format!("{path}: its .. is another directory"));
            }
            directory(vfs, (model, told), found.ino, *id, &path, seen)?;
        } else {
            node(vfs, (model, told), found.ino, *id, &path)?;
        }
    }
    Ok(())
}

fn node(vfs: &Vfs, (model, told): (&Model, Told<'_>), ino: Ino, id: NodeId, path: &str) -> Result<(), String> {
    let expected = &model.nodes[id];
    let failed = |error: weft_vfs::Error| format!("{path}: {error}");
    let found = vfs.attributes(ino).map_err(failed)?;
    let size = if expected.kind == Kind::Directory { expected.entries.len() } else { expected.content.len() };
    let permissions = match told {
        Told::WithRightsOf(now) => rights_left(found.permissions, expected, now.nodes.get(id)),
        Told::Present | Told::AsOfThen => expected.permissions,
    };
    let wanted = (expected.kind, permissions, expected.nlink, size as u64, expected.uid, expected.gid);
    let got = (found.kind, found.permissions, found.nlink, found.size, found.uid, found.gid);
    if got != wanted {
        return Err(format!("{path}: is {got:?}, should be {wanted:?}"));
    }
    let atime = if let Told::Present = told { expected.atime } else { found.atime };
    let wanted = [atime, expected.mtime, expected.ctime, expected.btime];
    let got = [found.atime, found.mtime, found.ctime, found.btime];
    if got != wanted {
        return Err(format!("{path}: atime, mtime, ctime, btime are {got:?}, should be {wanted:?}"));
    }
    let content = match expected.kind {
        Kind::File => vfs.read(ino, 0, expected.content.len() + 100).map_err(failed)?.to_vec(),
        Kind::Symlink => vfs.read_symlink(ino).map_err(failed)?,
        _ => Vec::new(),
    };
    if content != expected.content {
        let at = content.iter().zip(&expected.content).position(|(a, b)| a != b);
        return Err(format!("{path}: content differs at {at:?} (length {})", content.len()));
    }
    if expected.kind == Kind::File {
        holes_are_zeros(vfs, ino, &content).map_err(|error| format!("{path}: {error}"))?;
    }
    let names = vfs.xattr_names(ino).map_err(failed)?;
    let mut xattrs = BTreeMap::new();
    for name in names {
        xattrs.insert(name.as_bytes().to_vec(), vfs.xattr(ino, name.as_bytes()).map_err(failed)?);
    }
    if xattrs != expected.xattrs {
        return Err(format!("{path}: extended attributes are {xattrs:?}, should be {:?}", expected.xattrs));
    }
    Ok(())
}

/// The permissions that are right for a node that was `then` and is `now`, where `told` are told:
/// none that it had not, and all that it had if it has the same now. What is gone may have had
/// others at its last commit.
fn rights_left(told: u32, then: &Node, now: Option<&Node>) -> u32 {
    let had = match then.kind {
        Kind::Directory | Kind::Symlink => then.permissions,
        Kind::BlockDevice | Kind::CharDevice => 0,
        _ => then.permissions & !0o6000,
    };
    let rights = |node: &Node| (node.uid, node.gid, node.permissions & 0o777);
    let is_same = now.is_none_or(|now| now.is_live() && rights(now) == rights(then));
    match told & !had == 0 && !is_same {
        true => told,
        false => had,
    }
}

/// Data and holes as seek tells them follow each other through the file, and holes read as zeros.
fn holes_are_zeros(vfs: &Vfs, ino: Ino, content: &[u8]) -> Result<(), String> {
    let end = content.len() as u64;
    let as_usize = |offset: u64| usize::try_from(offset).expect("within the content");
    let mut at = 0;
    while at < end {
        let data = match vfs.seek(ino, at, Whence::Data) {
            Ok(data) => data,
            Err(error) if error.kind() == ErrorKind::NoData => end,
            Err(error) => return Err(error.to_string()),
        };
        if data < at || data > end || content[as_usize(at)..as_usize(data)].iter().any(|byte| *byte != 0) {
            return Err(format!("seek from {at} skips data to {data}"));
        }
        if data == end {
            break;
        }
        at = vfs.seek(ino, data, Whence::Hole).map_err(|error| error.to_string())?;
        if at <= data || at > end {
            return Err(format!("the hole after data at {data} is at {at}"));
        }
    }
    Ok(())
}
