//! Packets between programs and the daemon that lends them memory.
//!
//! The first byte says whose packet it is.
use weft_client::protocol::{Reply, Request};

/// Takes any bytes as what this is about.
pub fn run(bytes: &[u8]) {
    let Some((whose, packet)) = bytes.split_first() else { return };
    if whose % 2 == 0 {
        if let Some(request) = Request::decode(packet) {
            assert_eq!(request.encode(), packet, "there is one way to say it");
        }
        return;
    }
    for request in
        [Request::Open { token: [0; 16] }, Request::Read { file: 0, offset: 0, len: 0 }, Request::Hello { version: 0 }]
    {
        if let Some(Reply::Read { parts, lent }) = Reply::decode(&request, packet) {
            assert_eq!(Reply::Read { parts, lent }.encode(), packet);
        }
    }
}
