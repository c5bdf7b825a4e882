//! Protocol between programs and a daemon: packets over a Unix socket (SOCK_SEQPACKET), descriptors
//! with them where said.
//!
//! Numbers are little-endian. A request is a `u32` that tells its kind, and its fields. Each
//! request has one reply, in order, except those that only let go. A reply is a `u32` errno, 0 if
//! it was done, and its fields. A program finds the daemon, and shows that it may read a file, by
//! the extended attribute [`weft_attributes::Attribute::Lent`] of that file: the kernel lets only
//! users read it who may read the file (xattr(7)).

/// Version of the protocol, which both sides must have in common.
pub const VERSION: u32 = 1;

/// Longest packet.
pub const PACKET_BYTES_MAX: usize = 32 << 10;

/// Most descriptors with one packet.
pub const DESCRIPTORS_MAX: usize = 16;

/// Most parts of a reply to a read.
pub const PARTS_MAX: usize = 1024;

/// Most references let go by one request.
pub const RELEASED_MAX: usize = 1024;

/// Arena number that stands for zeros, which lie in no memory.
pub const ZEROS: u64 = 0;

/// Most bytes of an invitation.
pub const INVITATION_BYTES_MAX: usize = 128;

/// Shows that whoever has it may read a file, once and for a short time.
pub type Token = [u8; 16];

/// Address of the daemon, and the token to show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invitation {
    /// To be shown when the file is opened.
    pub token: Token,
    /// The name of the socket, an abstract one (unix(7)).
    pub socket: Vec<u8>,
}

impl Invitation {
    /// As the attribute tells it.
    pub fn encode(&self) -> Vec<u8> {
        [&VERSION.to_le_bytes()[..], &self.token, &self.socket].concat()
    }

    /// Decodes the attribute's value, if it is of this version.
    pub fn decode(bytes: &[u8]) -> Option<Invitation> {
        let (version, rest) = bytes.split_first_chunk()?;
        let (token, socket) = rest.split_first_chunk()?;
        let is_known = u32::from_le_bytes(*version) == VERSION && !socket.is_empty();
        is_known.then(|| Invitation { token: *token, socket: socket.to_vec() })
    }
}

/// A reference to one place of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// The arena's number.
    pub arena: u64,
    /// Offset of any byte of the place, in the arena.
    pub offset: u64,
}

/// A program's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The first: which version it speaks.
    Hello {
        /// It.
        version: u32,
    },
    /// To read a file.
    Open {
        /// Token of the invitation.
        token: Token,
    },
    /// Part of a file.
    Read {
        /// As opening told.
        file: u32,
        /// Offset of the first byte.
        offset: u64,
        /// Bytes at most.
        len: u32,
    },
    /// Lets go of references, each once. No reply.
    Release(Vec<Reference>),
    /// It has no reference into an arena any more, nor the arena itself. No reply.
    Forget {
        /// Its number.
        arena: u64,
    },
    /// It reads a file no more. No reply.
    Close {
        /// As opening told.
        file: u32,
    },
}

/// Some bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Number of the arena that they lie in, or [`ZEROS`].
    pub arena: u64,
    /// Offset in the arena.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// A daemon's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It was not done.
    Failed {
        /// The reason.
        errno: u32,
    },
    /// It speaks the same version.
    Hello,
    /// The file is open.
    Opened {
        /// Number of the file in later requests.
        file: u32,
    },
    /// The bytes read: none at the end of the file. Descriptors of arenas that the program does not
    /// have yet come with it.
    Read {
        /// In order. Each that is not of zeros is a reference, to be let go once.
        parts: Vec<Part>,
        /// The numbers of the arenas whose descriptors come with it, in their order.
        lent: Vec<u64>,
    },
}

const HELLO: u32 = 1;
const OPEN: u32 = 2;
const READ: u32 = 3;
const RELEASE: u32 = 4;
const FORGET: u32 = 5;
const CLOSE: u32 = 6;

/// The rest of a packet.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*first))
    }

    fn u64(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }

    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn is_end(&self) -> bool {
        self.0.is_empty()
    }
}

/// A packet that grows.
struct Packet(Vec<u8>);

impl Packet {
    fn new(first: u32) -> Packet {
        Packet(first.to_le_bytes().to_vec())
    }

    fn bytes(mut self, bytes: &[u8]) -> Packet {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u32(mut self, value: u32) -> Packet {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Packet {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }
}

impl Request {
    /// As a packet.
    pub fn encode(&self) -> Vec<u8> {
        let packet = match self {
            Request::Hello { version } => Packet::new(HELLO).u32(*version),
            Request::Open { token } => Packet::new(OPEN).bytes(token),
            Request::Read { file, offset, len } => Packet::new(READ).u32(*file).u64(*offset).u32(*len),
            Request::Release(released) => {
                let add = |packet: Packet, released: &Reference| packet.u64(released.arena).u64(released.offset);
                released.iter().fold(Packet::new(RELEASE), add)
            }
            Request::Forget { arena } => Packet::new(FORGET).u64(*arena),
            Request::Close { file } => Packet::new(CLOSE).u32(*file),
        };
        packet.0
    }

    /// Decodes a packet; `None` if it is no request.
    pub fn decode(packet: &[u8]) -> Option<Request> {
        let mut fields = Fields(packet);
        let request = match fields.u32()? {
            HELLO => Request::Hello { version: fields.u32()? },
            OPEN => Request::Open { token: fields.bytes()? },
            READ => Request::Read { file: fields.u32()?, offset: fields.u64()?, len: fields.u32()? },
            RELEASE => {
                let mut released = Vec::new();
                while !fields.is_end() && released.len() < RELEASED_MAX {
                    released.push(Reference { arena: fields.u64()?, offset: fields.u64()? });
                }
                Request::Release(released)
            }
            FORGET => Request::Forget { arena: fields.u64()? },
            CLOSE => Request::Close { file: fields.u32()? },
            _ => return None,
        };
        fields.is_end().then_some(request)
    }

    /// True if the daemon answers.
    pub fn has_reply(&self) -> bool {
        !matches!(self, Request::Release(_) | Request::Forget { .. } | Request::Close { .. })
    }
}

impl Reply {
    /// As a packet. What it is the reply to is not in it.
    pub fn encode(&self) -> Vec<u8> {
        let packet = match self {
            Reply::Failed { errno } => Packet::new(*errno),
            Reply::Hello => Packet::new(0),
            Reply::Opened { file } => Packet::new(0).u32(*file),
            Reply::Read { parts, lent } => {
                let count = |len: usize| u32::try_from(len).expect("they are bounded");
                let mut packet = Packet::new(0).u32(count(parts.len())).u32(count(lent.len()));
                for part in parts {
                    packet = packet.u64(part.arena).u64(part.offset).u64(part.len);
                }
                lent.iter().fold(packet, |packet, arena| packet.u64(*arena))
            }
        };
        packet.0
    }

    /// Decodes a packet in reply to `request`; `None` if it is no reply to that.
    pub fn decode(request: &Request, packet: &[u8]) -> Option<Reply> {
        let mut fields = Fields(packet);
        let errno = fields.u32()?;
        if errno != 0 {
            return fields.is_end().then_some(Reply::Failed { errno });
        }
        let reply = match request {
            Request::Hello { .. } => Reply::Hello,
            Request::Open { .. } => Reply::Opened { file: fields.u32()? },
            Request::Read { .. } => {
                let (parts, lent) = (fields.u32()? as usize, fields.u32()? as usize);
                if parts > PARTS_MAX || lent > DESCRIPTORS_MAX {
                    return None;
                }
                let mut part = || Some(Part { arena: fields.u64()?, offset: fields.u64()?, len: fields.u64()? });
                let parts = (0..parts).map(|_| part()).collect::<Option<_>>()?;
                let lent = (0..lent).map(|_| fields.u64()).collect::<Option<_>>()?;
                Reply::Read { parts, lent }
            }
            Request::Release(_) | Request::Forget { .. } | Request::Close { .. } => return None,
        };
        fields.is_end().then_some(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn requests() -> impl Strategy<Value = Request> {
        let reference = (any::<u64>(), any::<u64>()).prop_map(|(arena, offset)| Reference { arena, offset });
        prop_oneof![
            any::<u32>().prop_map(|version| Request::Hello { version }),
            any::<Token>().prop_map(|token| Request::Open { token }),
            any::<(u32, u64, u32)>().prop_map(|(file, offset, len)| Request::Read { file, offset, len }),
            prop::collection::vec(reference, 0..9).prop_map(Request::Release),
            any::<u64>().prop_map(|arena| Request::Forget { arena }),
            any::<u32>().prop_map(|file| Request::Close { file }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_said_is_understood(
            request in requests(),
            errno in 1u32..200,
            parts in prop::collection::vec(any::<(u64, u64, u64)>(), 0..9),
            lent in prop::collection::vec(any::<u64>(), 0..9),
        ) {
            prop_assert_eq!(Request::decode(&request.encode()), Some(request.clone()));
            let parts = parts.into_iter().map(|(arena, offset, len)| Part { arena, offset, len }).collect();
            let reply = match request {
                Request::Hello { .. } => Reply::Hello,
                Request::Open { .. } => Reply::Opened { file: errno },
                Request::Read { .. } => Reply::Read { parts, lent },
                _ => return Ok(()),
            };
            for reply in [reply, Reply::Failed { errno }] {
                prop_assert_eq!(Reply::decode(&request, &reply.encode()), Some(reply));
            }
        }

        #[test]
        fn garbage_is_no_more_than_refused(request in requests(), packet in prop::collection::vec(any::<u8>(), 0..100), first in 0u32..9) {
            let packet = [first.to_le_bytes().to_vec(), packet].concat();
            for packet in [&packet[..], &packet[4..]] {
                if let Some(understood) = Request::decode(packet) {
                    prop_assert_eq!(understood.encode(), packet);
                }
                Reply::decode(&request, packet);
            }
        }
    }

    #[test]
    fn an_invitation_is_what_was_encoded() {
        let invitation = Invitation { token: [7; 16], socket: b"weft/1234".to_vec() };
        let bytes = invitation.encode();
        assert!(bytes.len() <= INVITATION_BYTES_MAX);
        assert_eq!(Invitation::decode(&bytes), Some(invitation));
        let mut other = bytes.clone();
        other[0] ^= 1;
        assert_eq!(Invitation::decode(&other), None);
        assert!((0..21).all(|len| Invitation::decode(&bytes[..len]).is_none()));
    }
}
