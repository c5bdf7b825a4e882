//! Networks that programs push onto files, by ioctl(2) on a file that they have open. The interface
//! for programs is `include/weft_net.h`.

use super::opens::Opened;
use super::{Failure, Outcome, Server, links};
use crate::protocol::arguments::Ioctl;
use crate::protocol::{Body, Reply};
use weft_links::{Pushed, Scope, WithLinks};
use weft_vfs::{Caller, Ino};

/// Bytes of `struct weft_net`: the scope, the length of the text, and the text.
const ARGUMENT_BYTES: u32 = 8192;
const TEXT_BYTES_MAX: usize = ARGUMENT_BYTES as usize - 8;

/// `struct weft_net` is given to the kernel, and taken from it.
const GIVEN: u32 = 1 << 30;
const TAKEN: u32 = 2 << 30;

const fn command(direction: u32, number: u32) -> u32 {
    direction | ARGUMENT_BYTES << 16 | (b'W' as u32) << 8 | number
}

const PUSH: u32 = command(GIVEN, 1);
const POP: u32 = command(GIVEN, 2);
const SHOW: u32 = command(GIVEN | TAKEN, 3);

/// Scope: one open file, or everybody.
const OPENED: u32 = 0;
const EVERYBODY: u32 = 1;

impl Server {
    pub(super) fn ioctl(&self, caller: Caller, ino: Ino, body: Body<'_>, reply: &mut Reply) -> Outcome {
        let asked = Ioctl::parse(body)?;
        let (number, command) = (asked.handle, asked.command);
        if let Some(outcome) = self.refusing(caller, command, reply) {
            return outcome;
        }
        if !matches!(command, PUSH | POP | SHOW) {
            return Err(Failure::Errno(libc::ENOTTY));
        }
        if self.options.writeback {
            return Err(links::WRITEBACK);
        }
        let mut argument = asked.argument()?;
        let (scope, len) = (argument.u32()?, argument.u32()? as usize);
        let text = argument.bytes(len.min(TEXT_BYTES_MAX))?;
        self.pushing(caller, ino, (command, Opened(number), scope), text, reply)
    }

    fn pushing(
        &self,
        caller: Caller,
        ino: Ino,
        (command, opened, scope): (u32, Opened, u32),
        text: &[u8],
        reply: &mut Reply,
    ) -> Outcome {
        let scope = match scope {
            EVERYBODY => Scope::Everybody,
            // All open files have the same number if opens are not reported.
            OPENED if opened.is_told() => Scope::Opened(opened.0),
            OPENED => return Err(Failure::Errno(libc::EOPNOTSUPP)),
            _ => return Err(Failure::Errno(libc::EINVAL)),
        };
        let mut told = Vec::new();
        match command {
            PUSH => {
                let mut words = text.strip_suffix(b"\0").unwrap_or(text).split(|byte| *byte == 0);
                let network = words.next().and_then(|text| String::from_utf8(text.to_vec()).ok());
                let network = network.ok_or(Failure::Errno(libc::EINVAL))?;
                let code = words.map(<[u8]>::to_vec).collect();
                // A program asks for no byte beyond the known length, if the kernel goes by that.
                let may_resize = scope == Scope::Everybody || opened.is_direct();
                self.vfs.links()?.push(caller, ino, scope, &Pushed { network, code, may_resize })?;
            }
            POP => self.vfs.links()?.pop(caller, ino, scope)?,
            _ => {
                for network in self.vfs.links()?.pushed(ino, scope)? {
                    told.extend_from_slice(network.as_bytes());
                    told.push(0);
                }
                if told.len() > TEXT_BYTES_MAX {
                    return Err(Failure::Errno(libc::EOVERFLOW));
                }
            }
        }
        for value in [0, 0, 0, 0] {
            reply.u32(value);
        }
        if command == SHOW {
            reply.u32(u32::from(scope == Scope::Everybody));
            reply.u32(u32::try_from(told.len()).expect("it was seen to fit"));
            told.resize(TEXT_BYTES_MAX, 0);
            reply.raw(&told);
        }
        Ok(())
    }
}
