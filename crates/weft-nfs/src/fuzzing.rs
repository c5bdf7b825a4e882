//! Fuzz targets: any bytes as calls, some of which get far.

use crate::export::{Client, Exports, Transport};
use crate::handle::HandleBytes;
use crate::locking::Locking;
use crate::programs::{MOUNT, NFS, NLM, NSM, PORTMAP};
use crate::rpc;
use crate::server::record::{Message, Received};
use crate::service::Service;
use crate::xdr::Writer;
use std::sync::Arc;
use tokio::sync::mpsc::unbounded_channel;
use weft_vfs::{Caller, FileId, Ino, Kind, MakeNode, Vfs};

/// Marks, with the byte after it, a place in a call for a valid handle: nobody can guess one.
const HANDLE: u8 = 0xfe;

/// A service to call.
pub struct Target {
    service: Service,
    handles: Vec<HandleBytes>,
}

impl Target {
    /// Serves all of `vfs`, and makes a few things in it that handles are good for.
    ///
    /// # Panics
    /// If that fails.
    pub fn new(vfs: &Arc<Vfs>) -> Target {
        let mut service = Service::new(vfs.clone(), Exports::default(), [7; 32], [0; 8]).expect("the root is there");
        // Messages to clients are dropped.
        let (outbox, _) = unbounded_channel();
        service.locking = Some(Locking::start(vfs.clone(), outbox).expect("a volume in memory").0);
        service.portmap = crate::programs::mappings(1, 2);
        let make = |name: &[u8], kind| {
            let node = MakeNode { kind, permissions: 0o777, umask: 0, rdev: 0 };
            FileId::from(&vfs.make(Caller::ROOT, Ino::ROOT, name, node).expect("made"))
        };
        let root = FileId::from(&vfs.attributes(Ino::ROOT).expect("the root is there"));
        let files = [root, make(b"directory", Kind::Directory), make(b"file", Kind::File)];
        let handles = files.iter().map(|file| service.handle(&service.exports[0], *file)).collect();
        Target { service, handles }
    }

    /// Takes any bytes as the input of a connection. Nothing may panic, and no length be believed.
    pub fn receive(&self, bytes: &[u8]) {
        let mut received = Received::default();
        received.room().0.extend_from_slice(bytes);
        while let Ok(Some(message)) = received.next() {
            match message {
                Message::At(at) => self.call(received.bytes(&at)),
                Message::Whole(message) => self.call(&message),
            }
        }
    }

    /// Takes any bytes as a call of a procedure, by a user, with arguments.
    pub fn procedure(&self, bytes: &[u8]) {
        let Some((&[program, procedure, uid], arguments)) = bytes.split_first_chunk::<3>() else { return };
        let mut message = Writer::default();
        let (program, version) = match program % 8 {
            0 => (MOUNT, 3),
            1 | 2 => (NLM, 4),
            3 => (NSM, 1),
            4 => (PORTMAP, u32::from(uid % 4) + 1),
            _ => (NFS, 3),
        };
        for word in [1, 0, 2, program, version, u32::from(procedure % 24), 1, 20, 0, 0, u32::from(uid), 0, 0, 0, 0] {
            message.u32(word);
        }
        let mut rest = arguments;
        let mut message = message.into_bytes();
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            match (byte, rest.split_first()) {
                (HANDLE, Some((&which, after))) => {
                    let mut handle = Writer::default();
                    handle.opaque(&self.handles[usize::from(which) % self.handles.len()]);
                    message.extend(handle.into_bytes());
                    rest = after;
                }
                _ => message.push(byte),
            }
        }
        self.call(&message);
    }

    fn call(&self, message: &[u8]) {
        let address = [127, 0, 0, 1].into();
        let client = Client { address, port: 700, local: address, transport: Transport::Tcp, tls: false };
        if let Ok(call) = rpc::parse(message) {
            let _ = crate::dispatch::serve(&self.service, &client, &call);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weft_store::VolumeOptions;
    use weft_store::memory::MemoryStore;
    use weft_vfs::{ManualClock, Options};

    fn target() -> Target {
        let store = Arc::new(MemoryStore::new(VolumeOptions::default()));
        let options = Options { background: false, ..Options::default() };
        Target::new(&Vfs::open(store, None, options, Arc::new(ManualClock::default())).expect("opens"))
    }

    /// Bytes among which handles, names and small numbers are frequent.
    fn arguments() -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            (0u8..4).prop_map(|which| vec![HANDLE, which]),
            (0u8..8).prop_map(|number| vec![0, 0, 0, number]),
            Just(b"\0\0\0\x04file".to_vec()),
            Just(b"\0\0\0\x09directory\0\0\0".to_vec()),
            proptest::collection::vec(any::<u8>(), 0..9),
        ];
        proptest::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn any_arguments_are_answered(calls in proptest::collection::vec((any::<[u8; 3]>(), arguments()), 1..20)) {
            let target = target();
            for (head, arguments) in calls {
                target.procedure(&[&head[..], &arguments].concat());
            }
        }

        #[test]
        fn any_bytes_are_received(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            target().receive(&bytes);
        }
    }
}
