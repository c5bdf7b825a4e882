//! The allocator of all the program's memory: jemalloc. The system's allocator keeps the memory
//! that threads have freed in an arena of each.

use std::io::Error;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Options: free memory goes back after a second (jemalloc(3), "TUNING"), if the program frees more
/// then.
///
/// SAFETY: jemalloc reads a symbol of this name as a `const char *`; a reference to an array is a
/// pointer, and the text ends with a NUL.
#[unsafe(export_name = "_rjem_malloc_conf")]
static OPTIONS: &[u8; 37] = b"dirty_decay_ms:1000,muzzy_decay_ms:0\0";

/// Starts threads of the allocator that give free memory back even if the program frees no more.
/// They have the privileges that the caller has then.
pub fn start_giving_back() -> Result<(), Error> {
    let mut on = true;
    // SAFETY: the name ends with a NUL, and the value that it names is a `bool` (jemalloc(3)),
    // which is read during the call; nothing is asked for.
    let error = unsafe {
        tikv_jemalloc_sys::mallctl(
            c"background_thread".as_ptr(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            (&raw mut on).cast(),
            size_of::<bool>(),
        )
    };
    if error == 0 { Ok(()) } else { Err(Error::from_raw_os_error(error)) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_allocator_takes_the_options_and_gives_back() {
        let is = |name: &std::ffi::CStr| {
            let (mut value, mut bytes) = (-1_isize, size_of::<isize>());
            let (to, bytes) = ((&raw mut value).cast(), &raw mut bytes);
            // SAFETY: the value is an `ssize_t` (jemalloc(3)), and there is room for that.
            let error = unsafe { tikv_jemalloc_sys::mallctl(name.as_ptr(), to, bytes, std::ptr::null_mut(), 0) };
            (error, value)
        };
        assert_eq!((is(c"opt.dirty_decay_ms"), is(c"opt.muzzy_decay_ms")), ((0, 1000), (0, 0)));
        super::start_giving_back().unwrap();
    }
}
