//! The targets: each takes any bytes, and panics, hangs or eats memory only if a promise is broken.

pub mod acl;
pub mod archive;
pub mod archive_view;
pub mod fuse_request;
pub mod intent_log;
pub mod lending;
pub mod link_order;
pub mod link_rights;
pub mod module;
pub mod mutation;
pub mod names;
pub mod network;
pub mod nfs_call;
pub mod nfs_record;
pub mod replay;
pub mod stream;
pub mod volume_file;

/// A fuzz target.
pub struct Target {
    /// Its name, by which it is chosen.
    pub name: &'static str,
    /// Takes any bytes.
    pub run: fn(&[u8]),
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "acl", run: acl::run },
    Target { name: "archive", run: archive::run },
    Target { name: "archive_view", run: archive_view::run },
    Target { name: "fuse_request", run: fuse_request::run },
    Target { name: "intent_log", run: intent_log::run },
    Target { name: "lending", run: lending::run },
    Target { name: "link_order", run: link_order::run },
    Target { name: "link_rights", run: link_rights::run },
    Target { name: "module", run: module::run },
    Target { name: "mutation", run: mutation::run },
    Target { name: "names", run: names::run },
    Target { name: "network", run: network::run },
    Target { name: "nfs_call", run: nfs_call::run },
    Target { name: "nfs_record", run: nfs_record::run },
    Target { name: "replay", run: replay::run },
    Target { name: "stream", run: stream::run },
    Target { name: "volume_file", run: volume_file::run },
];

#[cfg(test)]
mod tests {
    use super::TARGETS;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_are_taken(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            TARGETS.iter().for_each(|target| (target.run)(&bytes));
        }
    }
}
