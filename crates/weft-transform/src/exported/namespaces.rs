//! A command of somebody else's in namespaces of its own: when its first process ends, the kernel
//! kills all that it started, wherever that went (pid_namespaces(7)).
//!
//! The first process is a shell that starts another one, for the command, and ends with it: the
//! first process of a namespace takes no signal from within. The daemon's memory is neither copied
//! nor reachable: the new process borrows it until it runs the shell, as after vfork(2), and
//! meanwhile makes system calls and nothing else.
//!
//! The namespaces: processes, mounts ([`mounts`]: without any of Weft's, so that a command can
//! neither wait for its own daemon nor keep a volume mounted), System V IPC and message queues,
//! and, unless the network is asked for, network. Without root a user namespace comes first.

use super::allowance::Allowance;
use super::confined::NOBODY;
use super::mounts;
use super::refused_calls::{self, Allowed};
use crate::account::Bounds;
use crate::stage::StageError;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{
    Resource, Rlimit, Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_send_signal, setrlimit, waitid,
};
use std::cell::Cell;
use std::ffi::{CString, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::{Duration, Instant};

/// The first process: a shell that runs the command in another one. What it says itself, as of a
/// signal, is for nobody.
const FIRST: &str = "exec 3>&2 2>/dev/null; /bin/sh -c \"$1\" 2>&3 3>&-; exit $?";

const ENVIRONMENT: [&str; 2] = ["PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C"];

/// User numbers of commands begin here, one for each owner of links. systemd and others hand out
/// none of these (systemd.io/UIDS-GIDS).
const USERS_FROM: u32 = 0x7000_0000;

/// Bits of an owner's number that tell the user of its commands.
const OWNER_BITS: u32 = 0x0fff_ffff;

/// Bytes of stack until the shell runs.
const STACK_BYTES: usize = 64 << 10;

/// Longest wait for a process that was killed: one that is stuck in the kernel is left to it.
const END_TIME: Duration = Duration::from_secs(5);

/// Processes that were killed and had not ended when nobody waited for them any longer.
static ENDING: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());

/// Terms under which a command runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// True if it has the machine's network.
    pub(super) has_network: bool,
    /// User who owns the link or process that runs it.
    pub(super) owner: u32,
    /// Bounds on what networks keep, if there are some.
    pub(super) bounds: Option<Bounds>,
}

/// A command that runs. All that it started is killed when this goes.
pub(super) struct Spawned {
    process: OwnedFd,
    has_ended: bool,
    allowance: Allowance,
    pub(super) stdin: Option<OwnedFd>,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

/// End of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Exit(i32),
    Signal(i32),
}

impl Spawned {
    /// Starts `command`, which is for a shell. What it reads and writes never blocks at this end.
    pub(super) fn start(command: &str, terms: Terms) -> Result<Spawned, StageError> {
        ENDING.lock().retain(|process| !has_ended(process));
        let failed = |error: io::Error| StageError::data(format!("cannot start a shell: {error}"));
        let (theirs_in, stdin) = ends(true).map_err(failed)?;
        let (theirs_out, stdout) = ends(false).map_err(failed)?;
        let (theirs_err, stderr) = ends(false).map_err(failed)?;
        let allowance = Allowance::new(terms.owner, terms.bounds)?;
        let plan = Plan::new(command, terms, &allowance, [&theirs_in, &theirs_out, &theirs_err])?;
        let process = plan.start()?;
        Ok(Spawned { process, has_ended: false, allowance, stdin: Some(stdin), stdout, stderr })
    }

    /// Readable when the command has ended, with all that it started.
    pub(super) fn process(&self) -> &OwnedFd {
        &self.process
    }

    /// Returns how it ended. Call it once its process descriptor is readable.
    pub(super) fn ended(&mut self) -> Result<Ended, StageError> {
        let status = waitid(WaitId::PidFd(self.process.as_fd()), WaitIdOptions::EXITED).map_err(io::Error::from)?;
        self.has_ended = true;
        let signal = |status: &WaitIdStatus| status.terminating_signal().map(Ended::Signal);
        let ended = status.and_then(|status| status.exit_status().map(Ended::Exit).or_else(|| signal(&status)));
        ended.ok_or_else(|| StageError::data("nobody knows how it ended"))
    }

    /// Bytes of memory that it may have, if the kernel ended a process because it had that much.
    pub(super) fn exceeded(&self) -> Option<u64> {
        self.allowance.exceeded()
    }

    /// Kills it and all that it started.
    pub(super) fn kill(&self) {
        // It may have ended.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        self.kill();
        let until = Instant::now() + END_TIME;
        while !has_ended(&self.process) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let kept = self.process.try_clone();
                ENDING.lock().extend(kept);
                return;
            }
            let time = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
            // A signal is no reason to leave it.
            let _ = poll(&mut [PollFd::new(&self.process, PollFlags::IN)], Some(&time));
        }
    }
}

/// Takes note of the end of a process; false if it has not ended yet.
fn has_ended(process: &OwnedFd) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    !matches!(waitid(WaitId::PidFd(process.as_fd()), options), Ok(None))
}

/// A pipe: the end of the command, which it `reads` or writes, and that of this process.
fn ends(reads: bool) -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = io::pipe()?;
    let (read, write) = (OwnedFd::from(read), OwnedFd::from(write));
    let (theirs, ours) = if reads { (read, write) } else { (write, read) };
    rustix::fs::fcntl_setfl(&ours, OFlags::NONBLOCK)?;
    // Above those that a program expects to have.
    Ok((fcntl_dupfd_cloexec(&theirs, 3)?, ours))
}

/// All that the new process needs, made before it begins: it can allocate nothing.
struct Plan {
    files: [RawFd; 3],
    program: CString,
    _words: Vec<CString>,
    /// Pointers to the words and to the environment, each list with a null at the end.
    arguments: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
    flags: libc::c_int,
    /// The user it becomes; none if there is no other to become.
    user: Option<u32>,
    /// User and group maps of its namespace, as written to procfs.
    maps: Option<[Vec<u8>; 2]>,
    mounts: mounts::Plan,
    /// Files by which it joins its group.
    groups: Vec<RawFd>,
    limits: Vec<(Resource, u64)>,
    calls: &'static refused_calls::Filters,
    allowed: Allowed,
    /// Step that failed, with its errno.
    failed: Cell<Option<(&'static str, i32)>>,
}

impl Plan {
    fn new(command: &str, terms: Terms, allowance: &Allowance, files: [&OwnedFd; 3]) -> Result<Plan, StageError> {
        let text = |text: &str| CString::new(text).map_err(|_| StageError::data("a command cannot hold a NUL"));
        let words = ["sh", "-c", FIRST, "sh", command].into_iter().chain(ENVIRONMENT).map(text);
        let words: Vec<CString> = words.collect::<Result<_, _>>()?;
        let (arguments, environment) = words.split_at(words.len() - ENVIRONMENT.len());
        let pointers = |words: &[CString]| words.iter().map(|word| word.as_ptr()).chain([ptr::null()]).collect();
        let (arguments, environment) = (pointers(arguments), pointers(environment));
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        let is_root = user.is_root();
        let own = if terms.has_network { 0 } else { libc::CLONE_NEWNET };
        let by_user = if is_root { 0 } else { libc::CLONE_NEWUSER };
        let map = |number: u32| format!("{number} {number} 1\n").into_bytes();
        Ok(Plan {
            files: files.map(AsRawFd::as_raw_fd),
            program: text("/bin/sh")?,
            _words: words,
            arguments,
            environment,
            flags: libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | own | by_user,
            user: is_root.then_some(USERS_FROM + (terms.owner & OWNER_BITS)),
            maps: (!is_root).then(|| [map(user.as_raw()), map(group.as_raw())]),
            mounts: mounts::Plan::new(allowance.private_bytes, is_root),
            groups: allowance.members(),
            limits: allowance.limits.to_vec(),
            calls: refused_calls::filters()?,
            allowed: Allowed { network: terms.has_network, other_memory: allowance.has_other_memory },
            failed: Cell::new(None),
        })
    }

    /// Starts the process; gives what it is watched by.
    fn start(&self) -> Result<OwnedFd, StageError> {
        let mut stack = vec![0u8; STACK_BYTES];
        let mut watch: RawFd = -1;
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD | self.flags;
        let blocked = Blocked::all();
        // SAFETY: the new process runs `begin` on a stack of its own, which ends where the vector
        // does and is aligned, while this thread waits in the call, so that nothing it uses goes
        // away; no other thread knows the stack or the plan. It makes system calls alone, with no
        // signals that could have it do anything else, and leaves this memory by execve() or
        // _exit().
        let pid = unsafe {
            let top = stack.as_mut_ptr().add(STACK_BYTES);
            let top = top.sub(top.addr() % 16).cast::<c_void>();
            let plan = ptr::from_ref(self).cast_mut().cast::<c_void>();
            libc::clone(begin, top, flags, plan, &raw mut watch)
        };
        let error = io::Error::last_os_error();
        drop(blocked);
        if pid < 0 {
            return Err(refused("namespaces", &error));
        }
        // SAFETY: the kernel gave this descriptor to this process, for this.
        let process = unsafe { OwnedFd::from_raw_fd(watch) };
        let Some((step, errno)) = self.failed.get() else { return Ok(process) };
        // It has ended by itself.
        let _ = waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED);
        Err(refused(step, &io::Error::from_raw_os_error(errno)))
    }
}

/// Says why no command can be run.
fn refused(step: &str, error: &io::Error) -> StageError {
    let mend = if rustix::process::geteuid().is_root() {
        "root needs CAP_SYS_ADMIN for it, which containers may lack"
    } else {
        "run Weft as root, or have the kernel let users make namespaces (user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns)"
    };
    StageError::data(format!("commands cannot be run here, as they cannot be confined: {step}: {error}; {mend}"))
}

/// The new process, until it runs the shell.
extern "C" fn begin(plan: *mut c_void) -> libc::c_int {
    // SAFETY: the thread that waits has made it, and keeps it.
    let plan = unsafe { &*plan.cast::<Plan>() };
    let (step, error) = run(plan);
    plan.failed.set(Some((step, error.raw_os_error().unwrap_or(libc::EIO))));
    // SAFETY: it ends this process, and runs nothing of the one whose memory it has.
    unsafe { libc::_exit(127) }
}

/// Confines this process and runs the shell; gives what failed. Makes system calls and nothing
/// else.
fn run(plan: &Plan) -> (&'static str, io::Error) {
    let done = own_user(plan)
        .and_then(|()| own_group(plan))
        .and_then(|()| plan.mounts.make())
        .and_then(|()| own_files(plan))
        .and_then(|()| bound(plan))
        .and_then(|()| lose_privileges(plan))
        .and_then(|()| plan.calls.apply(plan.allowed).map_err(|error| ("system calls", error)));
    if let Err(failed) = done {
        return failed;
    }
    // SAFETY: all pointers are to text that ends with a NUL, or to pointers to such that end with a
    // null, which the plan keeps.
    unsafe { libc::execve(plan.program.as_ptr(), plan.arguments.as_ptr(), plan.environment.as_ptr()) };
    ("/bin/sh", io::Error::last_os_error())
}

pub(super) type Step = Result<(), (&'static str, io::Error)>;

/// Checks the result of a system call that gives -1 when it fails.
fn check(step: &'static str, result: libc::c_long) -> Step {
    if result < 0 { Err((step, io::Error::last_os_error())) } else { Ok(()) }
}

/// Says which user this is in its own namespace, if it has one.
fn own_user(plan: &Plan) -> Step {
    let Some([users, groups]) = &plan.maps else { return Ok(()) };
    let files: [(&std::ffi::CStr, &[u8]); 3] =
        [(c"/proc/self/setgroups", b"deny"), (c"/proc/self/uid_map", users), (c"/proc/self/gid_map", groups)];
    for (file, text) in files {
        let written = rustix::fs::open(file, rustix::fs::OFlags::WRONLY, rustix::fs::Mode::empty())
            .and_then(|file| rustix::io::write(&file, text));
        written.map_err(|error| ("a user namespace", error.into()))?;
    }
    Ok(())
}

/// Joins its group, if it has one: what it takes from now on counts there.
fn own_group(plan: &Plan) -> Step {
    for file in &plan.groups {
        // SAFETY: the kernel reads one byte, of a text.
        check("a group", unsafe { libc::write(*file, c"0".as_ptr().cast(), 1) } as libc::c_long)?;
    }
    Ok(())
}

/// Has the pipes as standard files, no others, and no terminal.
fn own_files(plan: &Plan) -> Step {
    for (number, file) in (0..).zip(plan.files) {
        // SAFETY: no memory is passed. The table of files is this process's own.
        check("pipes", unsafe { libc::dup2(file, number) }.into())?;
    }
    // SAFETY: as above.
    unsafe {
        check("other files", libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0))?;
        libc::setsid();
        check("/", libc::chdir(c"/".as_ptr()).into())
    }
}

/// Becomes its user, for good.
fn lose_privileges(plan: &Plan) -> Step {
    // SAFETY: none of the calls is passed memory but the last, which reads two structures. The C
    // library's functions would have all threads of the other process change their user, so the
    // system calls are made.
    unsafe {
        // Numbers that the kernel does not know end it.
        let mut capability = 0;
        while libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) == 0 {
            capability += 1;
        }
        if capability == 0 {
            return check("losing capabilities", -1);
        }
        if let Some(user) = plan.user {
            check("losing groups", libc::syscall(libc::SYS_setgroups, 0, ptr::null::<libc::gid_t>()))?;
            if become_user(user).is_err() {
                // In a container there may be no such user.
                become_user(NOBODY)?;
            }
        }
        check("losing capabilities", libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into())?;
        let (header, nothing) = ([VERSION_3, 0], [0u32; 6]);
        check("losing capabilities", libc::syscall(libc::SYS_capset, header.as_ptr(), nothing.as_ptr()))?;
        // After that: a change of the user takes it back.
        check("its end", libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0).into())
    }
}

/// `_LINUX_CAPABILITY_VERSION_3`.
const VERSION_3: u32 = 0x2008_0522;

fn become_user(user: u32) -> Step {
    // SAFETY: no memory is passed.
    unsafe {
        check("losing privileges", libc::syscall(libc::SYS_setresgid, user, user, user))?;
        check("losing privileges", libc::syscall(libc::SYS_setresuid, user, user, user))
    }
}

/// Bounds what it takes, and leaves it signals as programs expect them. Comes before it becomes its
/// user: then the kernel looks how many processes that one has.
fn bound(plan: &Plan) -> Step {
    for (resource, limit) in &plan.limits {
        let limit = Some(*limit);
        // One that is lower already stays.
        if let Err(error) = setrlimit(*resource, Rlimit { current: limit, maximum: limit })
            && error != rustix::io::Errno::PERM
        {
            return Err(("bounds", error.into()));
        }
    }
    for signal in 1..=64 {
        // SAFETY: no function is installed, and what is is this process's own. Two cannot be
        // changed, and need not be.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: the set is a local one.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
    Ok(())
}

/// No signals for this thread as long as this is there.
struct Blocked(libc::sigset_t);

impl Blocked {
    fn all() -> Blocked {
        // SAFETY: the sets are local ones, for which all zeros are valid.
        unsafe {
            let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Blocked(before)
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set is one that the call before gave.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}
