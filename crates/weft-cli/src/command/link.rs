//! `weft link`: makes transformation links, and shows them.

use super::networks::{self, Names, said, show};
use super::transfer::{Place, find, names};
use crate::arguments::{Link, OnOff};
use crate::control;
use crate::dentry::Dentry;
use crate::failure::usage;
use crate::mounted;
use crate::named::{in_volume, resolved};
use crate::opened::Settings;
use crate::output;
use crate::proc_path::proc_path;
use crate::shown;
use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::fs::{AtFlags, CWD, FileType, Mode, RenameFlags, StatxFlags, makedev, statx};
use rustix::io::Errno;
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weft_attributes::Attribute;
use weft_links::{Exported, LinkDefinition, LinkError, LinkOptions, LinkOrder, MADE_AS, Memo, ViewKind, WithLinks};
use weft_transform::{Network, picture};
use weft_vfs::{Caller, ErrorKind, Holds, Ino, Kind, Vfs};

const NO_VOLUME: &str = "it is in no mounted volume; name one that is not mounted as VOLUME:PATH";

/// Advice where a mount does not yet report opens to its daemon.
const MOUNT_AGAIN: &str = "unmount the volume and mount it again, once";

/// Returns the permission bits of a link that is made; its targets may take some away.
fn permissions(definition: &LinkDefinition) -> u32 {
    let all = if definition.view == ViewKind::File { 0o666 } else { 0o777 };
    all & !umask()
}

/// Makes a link, or shows one.
pub fn run(arguments: &Link) -> Result<ExitCode> {
    if arguments.show {
        let [link] = &arguments.paths[..] else { return usage("--show tells of one link".into()) };
        let (order, kept) = read(link).with_context(|| format!("cannot tell of {}", link.display()))?;
        tell(arguments, &order, kept)?;
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.trust {
        for link in &arguments.paths {
            trust(Path::new(link)).with_context(|| format!("cannot confirm {}", link.display()))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let Some((link, targets)) = arguments.paths.split_last().filter(|(_, targets)| !targets.is_empty()) else {
        return usage("name what is read, then the link to be made".into());
    };
    let (rename, only) = (arguments.rename.clone(), arguments.only.clone());
    let wanted = LinkDefinition {
        targets: Vec::new(),
        network: arguments.network.clone().unwrap_or_else(|| "identity".into()),
        write: arguments.write.clone(),
        memo: arguments.memo == OnOff::On,
        lazy: arguments.lazy,
        direct: arguments.direct,
        fuse: !arguments.no_fuse,
        view: match (arguments.dir, arguments.members) {
            (true, _) => ViewKind::Directory { rename, only },
            (_, true) => ViewKind::Members,
            _ => ViewKind::File,
        },
        trusted: false,
    };
    let volume = |path: &OsStr| in_volume(path).map(|(volume, _)| volume.to_owned());
    let made = match volume(link) {
        Some(within) => make_within(&within, link, targets, &volume, wanted),
        None => make_mounted(Path::new(link), targets, wanted),
    };
    made.with_context(|| format!("cannot make {}", link.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Checks a definition and expands the networks that it names. Reports what is invalid.
fn checked(mut definition: LinkDefinition, names: &Names) -> Result<LinkDefinition> {
    definition.network = networks::expanded(&definition.network, names)?;
    definition.write = definition.write.map(|text| networks::expanded(&text, names)).transpose()?;
    match definition.check() {
        Ok(()) => Ok(definition),
        Err(LinkError::Network(error)) => usage(said(&definition.network, &error)),
        Err(LinkError::Write(error)) => usage(said(definition.write.as_deref().unwrap_or_default(), &error)),
        Err(error) => usage(error.to_string()),
    }
}

/// Makes a link in a volume that is not mounted.
fn make_within(
    within: &OsStr,
    link: &OsStr,
    targets: &[OsString],
    volume: &impl Fn(&OsStr) -> Option<OsString>,
    mut wanted: LinkDefinition,
) -> Result<()> {
    for target in targets {
        if volume(target).as_deref() != Some(within) {
            bail!("{} is not in the same volume", target.display());
        }
        let path = in_volume(target).map_or(&b""[..], |(_, path)| path.as_bytes());
        let begin = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
        wanted.targets.push([b"/", &path[begin..]].concat());
    }
    // The users whose links may run code of their own are set where the links are used.
    let links = LinkOptions { exported: Exported::Everybody, ..LinkOptions::default() };
    let settings = Settings { links, ..Settings::default() };
    let Place { opened, path, .. } = Place::open_with(link, |_| settings)?;
    let link = [b"/", &path.join(&b'/')[..]].concat();
    let made = || -> Result<()> {
        refuse_view_of_itself(&link, &wanted)?;
        let vfs = &opened.vfs;
        let definition = checked(wanted, &networks::of_volume(vfs)?)?;
        for (at, target) in definition.targets.iter().enumerate() {
            let kind = find(vfs, &names(target)?)?.kind;
            refuse_kind(at, file_type(kind), &definition.view, OsStr::from_bytes(target))?;
        }
        let (name, parent) = path.split_last().context("it is the root of the volume")?;
        let parent = find(vfs, parent)?;
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let maker = Caller { uid, gid, holds: Holds::None };
        vfs.links()?.make_link(maker, parent.ino, name, permissions(&definition), &definition)?;
        Ok(())
    };
    let made = made();
    opened.close()?;
    made
}

/// Refuses a view at `link`, a path in the volume, of a directory that it lies in: it would show
/// itself, which ends nowhere, and no export of the volume would be whole.
fn refuse_view_of_itself(link: &[u8], wanted: &LinkDefinition) -> Result<()> {
    let (ViewKind::Directory { .. }, Some(source)) = (&wanted.view, wanted.targets.first()) else { return Ok(()) };
    let parts = |path: &[u8]| Path::new(OsStr::from_bytes(path)).components().collect::<PathBuf>();
    let source = parts(source);
    if parts(link).starts_with(&source) {
        return usage(format!(
            "it would lie in {}, the directory that it is a view of, and show itself; make it elsewhere",
            shown::path(&source)
        ));
    }
    Ok(())
}

/// Refuses target number `at` of a link if its `kind` is none that such a link reads. That of a
/// symbolic link is not known.
fn refuse_kind(at: usize, kind: FileType, view: &ViewKind, target: &OsStr) -> Result<()> {
    let target = Path::new(target).display();
    match (view, kind) {
        (_, FileType::Symlink) => Ok(()),
        // Files after the first are code.
        (ViewKind::Directory { .. }, FileType::Directory) if at == 0 => Ok(()),
        (ViewKind::Directory { .. }, _) if at == 0 => bail!("{target} is no directory, and --dir is for those"),
        (_, FileType::RegularFile) => Ok(()),
        (ViewKind::File, FileType::Directory) => {
            bail!("{target} is a directory, and a link leads to a file; --dir makes a view of a directory")
        }
        (_, FileType::Directory) => bail!("{target} is a directory, and a file is wanted there"),
        _ => bail!("{target} is neither a file nor a directory, and nothing can be read of it"),
    }
}

fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File | Kind::Transformation => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharacterDevice,
        Kind::BlockDevice => FileType::BlockDevice,
    }
}

/// Makes a link in a mounted volume.
fn make_mounted(link: &Path, targets: &[OsString], mut wanted: LinkDefinition) -> Result<()> {
    let dentry = Dentry::at(link)?;
    let link = dentry.path();
    let (within, device) = mounted::in_volume(&link).ok_or_else(|| anyhow!(NO_VOLUME))?;
    for (at, target) in targets.iter().enumerate() {
        let path = resolved(Path::new(target))?;
        std::fs::symlink_metadata(&path).with_context(|| format!("cannot look at {}", target.display()))?;
        match mounted::in_volume(&path) {
            Some((path, at)) if at == device => wanted.targets.push(path.as_os_str().as_bytes().to_vec()),
            _ => bail!("{} is not in the same volume", target.display()),
        }
        // Not its length, which a link may have to compute. A dangling symbolic link may still get
        // a target.
        if let Ok(found) = statx(CWD, Path::new(target), AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE) {
            refuse_kind(at, FileType::from_raw_mode(found.stx_mode.into()), &wanted.view, target)?;
        }
    }
    refuse_view_of_itself(within.as_os_str().as_bytes(), &wanted)?;
    let parent = link.parent().unwrap_or(&link);
    let names_any = [Some(&wanted.network), wanted.write.as_ref()].into_iter().flatten().any(|text| text.contains('@'));
    let names = if names_any { networks::all(parent.as_os_str())? } else { Names::new() };
    let definition = checked(wanted, &names)?;
    // Before the volume learns what the link will need.
    ensure!(dentry.here().symlink_metadata().is_err(), Errno::EXIST);
    let order = order_in_mount(&dentry, device, permissions(&definition), definition)?;
    rename(&order, &dentry, RenameFlags::NOREPLACE)?;
    if order.definition.wants_opens() && !tells_of_opens(device) {
        let (now, then) = match &order.definition {
            LinkDefinition { lazy: true, .. } => ("its length is computed when it is asked for", "it is left open"),
            LinkDefinition { direct: true, .. } => ("the kernel keeps what is read of it", "it is read past that"),
            _ => ("it can only be read", "it can be written"),
        };
        errln!("weft: for now {now}: {MOUNT_AGAIN}, and {then}");
    }
    warn_if_closed(&dentry, order.permissions, device);
    if order.definition.view == ViewKind::Members
        && let Err(error) = std::fs::read_dir(dentry.here()).and_then(|mut entries| entries.next().transpose())
    {
        errln!(
            "weft: {} shows nothing: {error}; is it a tar or zip archive? Of one that is compressed as a whole make a link \
             that decompresses it (--network 'gzip -d'), and a view of that. The daemon's log tells more",
            link.display()
        );
    }
    warn_of_keys(&dentry, &order.definition);
    Ok(())
}

/// Makes the daemon create a link beside `dentry`, in the mount of this device, to be renamed.
fn order_in_mount(dentry: &Dentry, device: u64, permissions: u32, definition: LinkDefinition) -> Result<LinkOrder> {
    let directory = &dentry.directory();
    // A file system mounted within the volume would store the order like any attribute.
    let status = std::fs::metadata(directory)?;
    ensure!(status.dev() == device, anyhow!(NO_VOLUME));
    // The kernel must never have cached that this name is missing.
    let name = format!("{MADE_AS}{}", std::process::id());
    let order = LinkOrder { name: name.into_bytes(), permissions, definition };
    let set = control::order(directory, Attribute::Link, &order.encode());
    if set == Err(Errno::PERM) && is_sticky_for_this_user(&status) {
        bail!(
            "{} has the sticky bit and is not yours, and only its owner can order links there (xattr(7)); make it in a \
             directory of yours in the volume, and move it there",
            weft_store::parent_of(&dentry.path()).display()
        );
    }
    if set == Err(Errno::PERM) && order.definition.is_exported() {
        bail!(
            "your links may not run commands here: the user who mounts the volume says whose may ('weft mount --exported-stages \
             everybody')"
        );
    }
    if set == Err(Errno::PERM) && order.definition.has_keys() {
        bail!(
            "your links may not use keys here: only those of the user who mounts the volume may ('weft mount --keys')"
        );
    }
    if set == Err(Errno::PERM) {
        bail!(
            "your links would not work here: the user who mounts the volume says whose do ('weft mount --links everybody')"
        );
    }
    if set == Err(Errno::OPNOTSUPP) {
        bail!(
            "mounts with --writeback have no links: the kernel would not follow their lengths there; mount it without. \
             (Or its daemon is of an older version of Weft; mount it anew)"
        );
    }
    set?;
    Ok(order)
}

/// True if `status` is that of a directory whose `user.` attributes another user alone sets.
fn is_sticky_for_this_user(status: &std::fs::Metadata) -> bool {
    let user = rustix::process::geteuid();
    status.mode() & libc::S_ISVTX != 0 && status.uid() != user.as_raw() && !user.is_root()
}

/// Makes `link`, which runs code, again as it is, as its owner. All is read of one file, held open:
/// a link that came in its place after the look is not confirmed.
fn trust(link: &Path) -> Result<()> {
    let dentry = Dentry::at(link)?;
    let (_, device) = mounted::in_volume(&dentry.path()).ok_or_else(|| anyhow!(NO_VOLUME))?;
    let itself = dentry.open()?;
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let seen = statx(&itself, "", flags, StatxFlags::UID | StatxFlags::INO)?;
    ensure!(makedev(seen.stx_dev_major, seen.stx_dev_minor) == device, anyhow!(NO_VOLUME));
    let (LinkOrder { permissions, definition, .. }, _) = read_mounted(proc_path(&itself).as_ref())?;
    if !definition.is_exported() || definition.trusted {
        return Ok(());
    }
    let owner = seen.stx_uid;
    if owner != rustix::process::geteuid().as_raw() {
        bail!("it is user {owner}'s to confirm");
    }
    let order = order_in_mount(&dentry, device, permissions, definition)?;
    // A view that shows something cannot be replaced.
    rename(&order, &dentry, RenameFlags::EXCHANGE)?;
    let made = dentry.beside(OsStr::from_bytes(&order.name));
    let is_it = statx(CWD, &made, AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC, StatxFlags::INO)
        .is_ok_and(|found| found.stx_ino == seen.stx_ino);
    if !is_it {
        rename(&order, &dentry, RenameFlags::EXCHANGE)?;
        remove(&made);
        bail!("another file came in its place meanwhile, and stays as it is");
    }
    remove(&made);
    Ok(())
}

/// Renames the link that was ordered beside `dentry` to that name; any present holder gets the
/// other name.
fn rename(order: &LinkOrder, dentry: &Dentry, how: RenameFlags) -> rustix::io::Result<()> {
    let made = dentry.beside(OsStr::from_bytes(&order.name));
    let renamed = rustix::fs::renameat_with(CWD, &made, CWD, dentry.here(), how);
    if renamed.is_err() {
        remove(&made);
    }
    renamed
}

/// Removes a link. A leftover is as good as the other.
fn remove(made: &Path) {
    let _ = std::fs::remove_file(made).or_else(|_| std::fs::remove_dir(made));
}

/// Warns if the link at `dentry` cannot be read, and uses keys: the mount may have none.
fn warn_of_keys(dentry: &Dentry, definition: &LinkDefinition) {
    if definition.view != ViewKind::File || !definition.has_keys() {
        return;
    }
    if let Err(error) = std::fs::File::open(dentry.here()).and_then(|mut file| file.read(&mut [0])) {
        errln!(
            "weft: {} cannot be read: {error}; has the mount the keys that it names ('weft mount --keys DIR')? The \
             daemon's log tells more",
            dentry.path().display()
        );
    }
}

/// Warns if nobody can read the link at `dentry`, which was made with these permission bits.
fn warn_if_closed(dentry: &Dentry, permissions: u32, device: u64) {
    // From the kernel's cache: asking again computes its length.
    let (flags, wanted) = (AtFlags::STATX_DONT_SYNC, StatxFlags::MODE);
    let seen = statx(CWD, dentry.here(), flags, wanted);
    let is_closed = seen.is_ok_and(|seen| seen.stx_mode & 0o777 == 0);
    if !is_closed || permissions == 0 {
        return;
    }
    let why = if tells_of_opens(device) {
        "you may not read all that it leads to, so it is closed to everybody".to_owned()
    } else {
        format!(
            "not everybody may read what it leads to, so for now it is closed to everybody: {MOUNT_AGAIN}, and it is \
             open to those who may"
        )
    };
    errln!("weft: {}: {why}", dentry.path().display());
}

/// True if the daemon of a mount receives reports of opens.
fn tells_of_opens(device: u64) -> bool {
    let Some(root) = mounted::root_of(device) else { return true };
    let mut value = [0; 16];
    let len = rustix::fs::getxattr(root, Attribute::Opens.name(), &mut value[..]);
    len.is_ok_and(|len| &value[..len] == b"told")
}

fn umask() -> u32 {
    let mask = rustix::process::umask(Mode::empty());
    rustix::process::umask(mask);
    mask.bits()
}

/// Returns the definition of a link, and the stored part of its result.
fn read(link: &OsStr) -> Result<(LinkOrder, Option<Memo>)> {
    if in_volume(link).is_none() {
        return read_mounted(link);
    }
    let Place { opened, path, .. } = Place::open(link, true)?;
    let order = || -> Result<_> {
        let ino = find_itself(&opened.vfs, &path)?;
        let order = opened.vfs.links()?.link_order(ino)?.context("it is no transformation link")?;
        Ok((order, opened.vfs.links()?.memo(ino)?))
    };
    let order = order();
    opened.close()?;
    order
}

/// Does the same for a link in a mounted volume.
fn read_mounted(link: &OsStr) -> Result<(LinkOrder, Option<Memo>)> {
    let mut value = vec![0; 64 << 10];
    let len = match rustix::fs::getxattr(link, Attribute::Link.name(), &mut value[..]) {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => bail!("it is no transformation link"),
        len => len?,
    };
    let order = LinkOrder::decode(&value[..len]).context("a later Weft has made it")?;
    let memo = rustix::fs::getxattr(link, Attribute::Memo.name(), &mut value[..]);
    Ok((order, memo.ok().and_then(|len| Memo::decode(&value[..len]))))
}

/// Returns the inode at `names`, without computing anything.
fn find_itself(vfs: &Vfs, names: &[Vec<u8>]) -> Result<Ino> {
    let (name, parent) = names.split_last().context("it is the root of the volume")?;
    let parent = find(vfs, parent)?.ino;
    match vfs.named(parent, name) {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!("there is no such file in the volume"),
        found => Ok(found?),
    }
}

/// Describes whether results are stored, and how much is now.
fn told(definition: &LinkDefinition, network: &Network, kept: Option<Memo>) -> String {
    match kept {
        _ if definition.view != ViewKind::File => if definition.memo { "on" } else { "off" }.into(),
        _ if network.keeps().place => "not needed: any part is computed of the same part of the target".into(),
        _ if !definition.memo => "off".into(),
        Some(Memo { bytes, is_complete: true }) => format!("on, all {bytes} bytes are kept"),
        Some(Memo { bytes, .. }) => format!("on, the first {bytes} bytes are kept"),
        None => "on, nothing is kept now".into(),
    }
}

/// Returns the targets of a link as a terminal can show them.
fn paths(targets: &[Vec<u8>]) -> Vec<String> {
    targets.iter().map(|target| shown::path(Path::new(OsStr::from_bytes(target)))).collect()
}

fn tell(arguments: &Link, order: &LinkOrder, kept: Option<Memo>) -> Result<()> {
    let LinkDefinition { targets, network: text, write, memo, lazy, direct, fuse: _, view, trusted } =
        &order.definition;
    let network = Network::parse(text).map_err(|error| anyhow!(said(text, &error)))?;
    if arguments.json {
        let shown: Vec<String> = targets.iter().map(|target| String::from_utf8_lossy(target).into_owned()).collect();
        let stages: Vec<Value> = network
            .stages()
            .into_iter()
            .map(|stage| {
                json!({ "stage": stage.text, "depth": stage.depth, "keeps_length": stage.keeps.length,
                    "keeps_places": stage.keeps.place, "inverse": stage.inverse })
            })
            .collect();
        let directory = match view {
            ViewKind::File => Value::Null,
            ViewKind::Members => json!("members"),
            ViewKind::Directory { rename, only } => json!({ "rename": rename, "only": only }),
        };
        let value = json!({ "targets": shown, "network": text, "write": write, "memo": memo, "kept": kept.map(|kept| json!({ "bytes": kept.bytes, "complete": kept.is_complete })), "lazy": lazy, "direct": direct, "trusted": order.definition.is_exported().then_some(trusted), "gives": network.gives().name(), "stages": stages, "directory": directory });
        outln!("{value:#}");
    } else if arguments.dot {
        output::write(picture::dot(&network, &paths(targets), shown::message).as_bytes());
    } else if arguments.svg {
        output::write(picture::svg(&network, &paths(targets), shown::message).as_bytes());
    } else {
        // All of it is text of another user.
        paths(targets).iter().for_each(|target| outln!("target   {target}"));
        outln!("network  {}", shown::message(text));
        write.iter().for_each(|text| outln!("write    {}", shown::message(text)));
        outln!("memo     {}", told(&order.definition, &network, kept));
        outln!("length   {}", if *lazy { "left open until it is known" } else { "computed when it is asked for" });
        if order.definition.is_exported() && !trusted {
            outln!(
                "trusted  no: it runs code, and nothing tells that its owner ordered it; 'weft link --trust' confirms it"
            );
        }
        if *direct {
            outln!("reading  past what the kernel keeps of files");
        }
        match view {
            ViewKind::File => {}
            ViewKind::Members => outln!("view     of the members of an archive"),
            ViewKind::Directory { rename, only } => {
                outln!("view     of a directory");
                rename.iter().for_each(|rule| outln!("rename   {}", shown::message(rule)));
                only.iter().for_each(|text| outln!("only     {}", shown::message(text)));
            }
        }
        show(&network);
    }
    Ok(())
}
