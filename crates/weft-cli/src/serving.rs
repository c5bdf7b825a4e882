//! Settings of daemons that serve a volume, from the arguments.

use crate::arguments::{self, Open, Served, Whose};
use crate::confinement::{self, Files, Serves};
use crate::daemon::is_reexec;
use crate::failure::usage;
use crate::opened::Settings;
use anyhow::{Context, Result};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use weft_links::{Exported, Keys, LinkOptions, LinkOwners};
use weft_nfs::{Exports, LockOptions, Server, TlsFiles};
use weft_store::log::Loss;
use weft_store::sqlite::Layout;
use weft_store::{DiskCacheOptions, Location, OpenOptions};
use weft_transform::Bounds;
use weft_vfs::{AtimePolicy, Options, Vfs};

/// Default size of the disk cache in bytes.
const DISK_CACHE_BYTES: u64 = 10 << 30;

/// Returns the keys in a directory, which belong to the user of this process.
fn keys(directory: &Path) -> Result<Keys> {
    // The daemon works elsewhere.
    let canonical = directory.canonicalize().with_context(|| format!("no keys in {}", directory.display()))?;
    Ok(Keys { directory: canonical, uid: rustix::process::geteuid().as_raw() })
}

/// Logs once, where decoders have no processes of their own, that they have none.
pub fn say_if_unconfined() {
    if let Some(why) = weft_transform::worker::why_unconfined() {
        tracing::warn!("xz and zstd are decompressed in this process, with its privileges: {why}");
    }
}

impl Open {
    /// Returns the settings for opening the volume, with `block_cache_bytes` of cached blocks by
    /// default, and the defaults for one that other users can use if `is_shared`.
    pub fn settings(&self, block_cache_bytes: u64, is_shared: bool) -> Result<Settings> {
        let interval = Duration::try_from_secs_f64(self.commit_interval).ok().filter(|interval| !interval.is_zero());
        let Some(commit_interval) = interval else {
            return usage(format!("commit interval {} is not a number of seconds above 0", self.commit_interval));
        };
        if self.at.is_some() && self.accept_loss {
            return usage("--at shows what is committed, and gives nothing up: leave --accept-loss out".into());
        }
        let vfs = Options {
            commit_interval,
            defer_max: Options::default().defer_max,
            dirty_bytes_max: self.dirty_max.max(8 << 20),
            metadata_cache_bytes: self.metadata_cache,
            block_cache_bytes: self.block_cache.unwrap_or(block_cache_bytes),
            shared_bytes_max: 0,
            keep_written: false,
            read_ahead_bytes: self.read_ahead,
            atime: match (self.noatime, self.strictatime) {
                (true, _) => AtimePolicy::Never,
                (_, true) => AtimePolicy::Always,
                _ => AtimePolicy::Relative,
            },
            merge: !self.no_merge,
            history_name: self.history_name.0.clone(),
            read_only: self.read_only || self.at.is_some(),
            background: true,
        };
        let links = LinkOptions {
            memo_bytes_max: self.memo,
            networks: Bounds { temporary_bytes: self.temporary, ..Bounds::default() },
            owners: self.link_owners(is_shared),
            exported: exported(self.exported_stages),
            keys: self.keys.as_deref().map(keys).transpose()?,
        };
        Ok(Settings { vfs, links, at: self.at.clone() })
    }

    /// Returns the users whose links work on a volume that others can use, if `is_shared`, too.
    fn link_owners(&self, is_shared: bool) -> LinkOwners {
        match self.links {
            Some(arguments::LinkOwners::Nobody) => LinkOwners::Nobody,
            Some(arguments::LinkOwners::Own) => LinkOwners::Own,
            Some(arguments::LinkOwners::Everybody) => LinkOwners::Everybody,
            None if is_shared => LinkOwners::Own,
            None => LinkOwners::Everybody,
        }
    }

    /// Refuses options that set how a volume in PostgreSQL is held, for one that lies in files.
    pub fn refuse_of_postgres(&self, location: &Location) -> Result<()> {
        let given = [
            ("--wait", self.wait.is_some()),
            ("--lease", self.lease.is_some()),
            ("--patience", self.patience.is_some()),
            ("--disk-cache-size", self.disk_cache_size.is_some()),
        ];
        match (location.path(), given.iter().find(|(_, is_given)| *is_given)) {
            // A volume that is not there is refused as such.
            (Some(path), Some((option, _))) if path.exists() => {
                usage(format!("{option} is for volumes in PostgreSQL; {location} lies in files: leave it out"))
            }
            _ => Ok(()),
        }
    }

    /// Gives up privileges that serving the `volume`, if it lies in files, and these other `files`
    /// does not take. Must be called before other threads are started.
    pub fn confine(&self, serves: Serves, volume: Option<&Path>, files: &[Option<&Path>]) -> Result<()> {
        if self.no_confinement {
            return Ok(());
        }
        // Another user's volume is used with that user's rights.
        let is_anothers = |path: &Path| Layout::find(path).is_ok_and(|layout| layout.owner().is_some());
        let own = [volume.filter(|path| !is_anothers(path)), self.disk_cache.as_deref(), self.keys.as_deref()];
        let all: Vec<&Path> = own.iter().chain(files).copied().flatten().collect();
        let files = if volume.is_some() { Files::Named(&all) } else { Files::Any };
        confinement::confine(serves, files)
    }

    /// Logs that the disk cache's directory is missing, in case of a typing error: it is made then.
    pub fn say_if_cache_is_new(&self, volume: &Path) {
        let cache = self.disk_cache.as_ref().filter(|cache| !cache.exists());
        let is_remote = || Location::parse(volume).is_ok_and(|volume| volume.address().is_some());
        if let Some(cache) = cache.filter(|_| is_remote()) {
            tracing::info!("{} was not there; it is made, for the disk cache", cache.display());
        }
    }

    /// Returns the options for holding it, for `purpose`, where several daemons may want it.
    pub fn hold(&self, purpose: String) -> OpenOptions {
        let disk_cache = self.disk_cache.clone();
        let unsaid = OpenOptions::default();
        OpenOptions {
            lease: self.lease.map_or(unsaid.lease, Duration::from_secs),
            // After a re-exec programs wait for it, too.
            wait: if is_reexec() { Duration::MAX } else { self.wait.map_or(unsaid.wait, Duration::from_secs) },
            patience: self.patience.map_or(unsaid.patience, Duration::from_secs),
            is_given_up: weft_vfs::is_requester_killed,
            purpose,
            tell: |what| tracing::info!("{what}"),
            loss: if self.accept_loss { Loss::Accept } else { Loss::Refuse },
            disk_cache: disk_cache.map(|directory| DiskCacheOptions {
                directory,
                bytes: self.disk_cache_size.unwrap_or(DISK_CACHE_BYTES),
            }),
        }
    }
}

fn exported(whose: Whose) -> Exported {
    match whose {
        Whose::Nobody => Exported::Nobody,
        Whose::Root => Exported::Root,
        Whose::Everybody => Exported::Everybody,
    }
}

impl Served {
    /// Returns the files that are read when serving begins.
    pub fn files(&self) -> [Option<&Path>; 3] {
        [&self.tls_certificate, &self.tls_key, &self.tls_clients].map(Option::as_deref)
    }

    /// Returns the options of a volume that is served over NFS at `address`.
    pub fn options(&self, address: SocketAddr) -> Result<weft_nfs::Options> {
        let mut lines = self.export.join("\n");
        if let Some(file) = &self.exports {
            let read = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
            lines = format!("{lines}\n{read}");
        }
        let exports = match lines.parse::<Exports>() {
            Ok(exports) if exports.0.is_empty() && self.exports.is_some() => {
                return usage("the file of exports has no line that exports anything".into());
            }
            Ok(exports) if exports.0.is_empty() && !self.export.is_empty() => {
                return usage(
                    "--export '' exports nothing; leave it out to export all of the volume to this machine".into(),
                );
            }
            Ok(exports) if exports.0.is_empty() && !address.ip().to_canonical().is_loopback() => {
                return usage(format!(
                    "{address} can be reached from elsewhere: say what is exported to whom, \
                     such as --export '/ 192.168.0.0/16' ('/ *' is all to everybody)"
                ));
            }
            Ok(exports) if exports.0.is_empty() => Exports::default(),
            Ok(exports) => exports,
            Err(error) => return usage(format!("cannot export: {error}")),
        };
        let demands = exports.0.iter().flat_map(|export| &export.rules).any(|rule| rule.tls);
        let tls = self.tls_certificate.as_ref().zip(self.tls_key.as_ref()).map(|(certificate, key)| TlsFiles {
            certificate: certificate.clone(),
            key: key.clone(),
            client_authorities: self.tls_clients.clone(),
        });
        if demands && tls.is_none() {
            return usage("an export demands TLS; give a certificate with --tls-certificate and --tls-key".into());
        }
        let mut rules = exports.0.iter().flat_map(|export| &export.rules);
        if self.tls_clients.is_some() && rules.clone().any(|rule| !rule.tls) {
            return usage(
                "--tls-clients lets in only certified clients, but an export takes others without TLS: \
                 write xprtsec=mtls into its options"
                    .into(),
            );
        }
        if self.tls_clients.is_none() && rules.any(|rule| rule.mutual) {
            return usage(
                "an export demands certificates of clients; say with --tls-clients who certifies them".into(),
            );
        }
        let grace = Duration::from_secs(self.grace);
        let locking = self.portmap.then(|| LockOptions { grace, ..LockOptions::default() });
        Ok(weft_nfs::Options { address, exports, tls, locking })
    }
}

/// Returns the bytes of memory that this process may use: the machine's, or less if its control
/// group limits that.
pub fn memory_bytes() -> u64 {
    let machine = rustix::system::sysinfo();
    let machine = machine.totalram.saturating_mul(u64::from(machine.mem_unit));
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group = group.and_then(|limit| limit.trim().parse().ok());
    group.map_or(machine, |group: u64| group.min(machine))
}

/// Starts to share memory of `vfs` with programs that connect to `listener`.
pub fn start_lender(listener: weft_share::Listener, vfs: Arc<Vfs>) -> Result<weft_share::Server> {
    Ok(weft_share::Server::start(listener, vfs, weft_share::Limits::default())?)
}

/// Starts to serve `vfs` over NFS.
pub fn start_nfs(vfs: Arc<Vfs>, options: weft_nfs::Options) -> Result<Server> {
    allow_connections();
    Ok(Server::start(vfs, options)?)
}

/// Lets this process have as many descriptors as it may: each connection takes one, and so does
/// shared memory.
pub fn allow_connections() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // With fewer, fewer clients are served at once.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
