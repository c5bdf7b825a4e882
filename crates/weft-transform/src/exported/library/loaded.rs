//! A library in the process that runs it.
//!
//! The process has three files: a socket, as standard input; the memory that it shares with the
//! process that started it, as standard output; and the library, as standard error. It reads an
//! order, does it, and answers, until the other end is closed.

use crate::exported::close_all_but_standard;
use crate::exported::code::{AGAIN, ENDED, FAILED};
use crate::exported::workers::area::{Area, INPUT_BYTES};
use crate::exported::workers::channel::next_order;
use crate::exported::workers::message::{Order, Reply};
use crate::exported::workers::sandbox;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};
use std::error::Error;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

/// The first argument of such a process.
pub(in crate::exported) const WORD: &str = "run-library";

/// A library tells in this what it gives: where it lies, and flags and how many bytes it is.
#[repr(C)]
struct Told {
    at: *const u8,
    told: u64,
}

type Begin = unsafe extern "C" fn(*mut u8, u32) -> u32;
type Advance = unsafe extern "C" fn(*mut u8, u32, u32) -> Told;
type Message = unsafe extern "C" fn() -> Told;

/// A library that was loaded.
struct Loaded<'a> {
    area: &'a Area,
    advance: Symbol<Advance>,
    message: Option<Symbol<Message>>,
    /// Output that was not passed on yet: its address, its length, and the flags that came with it.
    rest: Option<(*const u8, usize, u64)>,
    _library: Library,
}

/// Runs the library that is standard error.
pub(in crate::exported) fn run(memory_bytes: usize) -> io::Result<()> {
    // SAFETY: whoever started this process has given it these files, for this. Nothing else in it
    // uses them: it has only begun.
    let (socket, area, library) =
        unsafe { (BorrowedFd::borrow_raw(0), OwnedFd::from_raw_fd(1), OwnedFd::from_raw_fd(2)) };
    let area = {
        let mapped = Area::of(&area)?;
        drop(area);
        mapped
    };
    // Whatever else this process may have is not for the library.
    // SAFETY: nothing in this process uses other files yet.
    unsafe { close_all_but_standard() }?;
    let answer = |reply: &Reply| rustix::io::write(socket, &reply.encode());
    let Some(order) = next_order(socket)? else { return Ok(()) };
    let begun = sandbox::before_loading(memory_bytes).and_then(|()| Loaded::load(&area)).and_then(|loaded| {
        drop(library);
        sandbox::after_loading().map(|()| loaded)
    });
    let mut loaded = match begun.and_then(|(mut loaded, begin)| loaded.begin(begin.as_ref(), order).map(|()| loaded)) {
        Ok(loaded) => loaded,
        Err(said) => {
            answer(&area.failed(said.as_bytes()))?;
            return Ok(());
        }
    };
    answer(&Reply::Given { range: 0..0, has_more: false, has_ended: false })?;
    while let Some(order) = next_order(socket)? {
        let reply = loaded.step(order);
        answer(&reply)?;
    }
    Ok(())
}

impl<'a> Loaded<'a> {
    /// Loads the library, and finds what it exports.
    fn load(area: &'a Area) -> Result<(Loaded<'a>, Option<Symbol<Begin>>), String> {
        // SAFETY: what a library does when it is loaded it does to this process, which has nothing
        // to lose.
        let library = unsafe { Library::open(Some("/proc/self/fd/2"), RTLD_NOW | RTLD_LOCAL) };
        let said =
            |error: &libloading::Error| error.source().map_or_else(|| error.to_string(), |source| source.to_string());
        let library = library.map_err(|error| format!("this is no library that can be loaded: {}", said(&error)))?;
        // SAFETY: whether the functions are what the header says is for the library to know: if
        // they are not, this process fails, and nothing else.
        let (begin, advance, message) = unsafe {
            (library.get(b"weft_begin\0").ok(), library.get(b"weft_advance\0"), library.get(b"weft_message\0").ok())
        };
        let advance = advance.map_err(|_| "the library exports no 'weft_advance'")?;
        Ok((Loaded { area, advance, message, rest: None, _library: library }, begin))
    }

    /// Has it take arguments.
    fn begin(&mut self, begin: Option<&Symbol<Begin>>, order: Order) -> Result<(), String> {
        match begin {
            None if order.len == 0 => Ok(()),
            None => Err("the library takes no arguments: it exports no 'weft_begin'".into()),
            // SAFETY: as the header says; the area has so many bytes.
            Some(begin) => match unsafe { begin(self.area.start(), order.len) } {
                0 => Ok(()),
                _ => Err(String::from_utf8_lossy(self.said()).into_owned()),
            },
        }
    }

    fn step(&mut self, order: Order) -> Reply {
        let (at, len, flags) = match self.rest.take() {
            Some(rest) => rest,
            None => {
                // SAFETY: as the header says; the area has so many bytes.
                let given = unsafe { (self.advance)(self.area.start(), order.len, order.is_last.into()) };
                if given.told == FAILED {
                    return self.area.failed(self.said());
                }
                (given.at, len_of(&given), given.told)
            }
        };
        let (area, bytes) = (self.area.start().addr(), at.addr());
        let in_place = bytes.checked_sub(area).filter(|at| *at <= INPUT_BYTES && len <= INPUT_BYTES - at);
        let part = len.min(INPUT_BYTES);
        let range = in_place.map_or(INPUT_BYTES..INPUT_BYTES + part, |at| at..at + len);
        if in_place.is_none() {
            // SAFETY: the library says that so many bytes lie there. If they do not, this process
            // fails, and nothing else. They do not lie in the area, of which no other part is
            // written to than one behind what libraries know of.
            self.area.put(INPUT_BYTES, unsafe { slice(at, part) });
        }
        if in_place.is_none() && part < len {
            // SAFETY: the bytes lie together.
            self.rest = Some((unsafe { at.add(part) }, len - part, flags));
            return Reply::Given { range, has_more: true, has_ended: false };
        }
        Reply::Given { range, has_more: flags & AGAIN != 0, has_ended: flags & ENDED != 0 }
    }

    /// Returns its failure message; empty if it gives none.
    fn said(&self) -> &[u8] {
        let Some(message) = &self.message else { return &[] };
        // SAFETY: as the header says, and as above.
        unsafe {
            let told = message();
            if told.told == FAILED { &[] } else { slice(told.at, len_of(&told)) }
        }
    }
}

fn len_of(told: &Told) -> usize {
    usize::try_from(told.told & (AGAIN - 1)).expect("30 bits")
}

/// # Safety
///
/// `len` bytes lie at `at`, or none are wanted.
unsafe fn slice<'a>(at: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's; and it is not null then.
    unsafe { std::slice::from_raw_parts(at, len) }
}
