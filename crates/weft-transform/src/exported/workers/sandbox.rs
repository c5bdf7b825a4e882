//! Sandbox of a confined process: it may compute, and answer the process that started it.
//!
//! A process that decoders come from ([`super::nursery`]) reaches no file, and can copy itself; its
//! copies can only compute. A process that runs a library has more rules. Before the library is
//! loaded, the process loses its privileges and gets its bounds. It can open files in the
//! directories of libraries for reading and no others (Landlock), and make only the system calls
//! that loading takes (seccomp). Once the library is loaded, only those that computing takes are
//! left. Others fail with `EPERM`. A kernel that cannot do all of that runs no library. The
//! measures taken before loading hold against any library. A malicious one can, while it is loaded,
//! undo the later measures, and so keep the calls that loading takes.

use crate::exported::confined::{NOBODY, restrict_but};
use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, path_beneath_rules,
};
use libc::c_long;
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Gid, Pid, Resource, Rlimit, Uid};
use rustix::process::{getrlimit, prlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};
use std::fmt::Display;
use std::fs;
use std::io;

/// Directories of libraries that other libraries need, and the file that lists these.
const LIBRARIES: [&str; 7] =
    ["/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache"];

/// System calls that computing takes besides those of [`DECODING`], and answering.
const COMPUTING: [c_long; 8] = [
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_read,
    libc::SYS_sigaltstack,
    libc::SYS_write,
];

/// System calls that loading takes besides: `openat` for reading alone, and `prctl` for what comes
/// with a further filter.
const LOADING: [c_long; 6] =
    [libc::SYS_close, libc::SYS_faccessat, libc::SYS_fstat, libc::SYS_lseek, libc::SYS_newfstatat, libc::SYS_pread64];

/// System calls that copying itself takes besides, and handing descriptors over; `prlimit64` comes
/// with a rule.
const COPYING: [c_long; 6] = [
    libc::SYS_close,
    libc::SYS_getppid,
    libc::SYS_pidfd_open,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_set_robust_list,
];

/// System calls by which musl copies a process, besides `clone`. `fork` has no flags.
#[cfg(all(target_env = "musl", target_arch = "x86_64"))]
const FORKING: [c_long; 2] = [libc::SYS_fork, libc::SYS_set_tid_address];
#[cfg(all(target_env = "musl", not(target_arch = "x86_64")))]
const FORKING: [c_long; 1] = [libc::SYS_set_tid_address];
#[cfg(not(target_env = "musl"))]
const FORKING: [c_long; 0] = [];

/// System calls that decompressing in shared memory takes: nothing is read or written by them.
const DECODING: [c_long; 13] = [
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_munmap,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
];

/// Flags of `openat` of which none may be there.
const WRITING: i32 = libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC;

/// Leaves this process what it needs to load a library, and this much memory beyond what it has.
pub(in crate::exported) fn before_loading(memory_bytes: usize) -> Result<(), String> {
    bounded(memory_bytes)?;
    confined()
}

/// Takes this process' privileges, and has it take no more than this much memory beyond what it
/// has, and no file.
pub(in crate::exported) fn bounded(memory_bytes: usize) -> Result<(), String> {
    bounded_but(memory_bytes, None)
}

/// The same, but for one resource of those that have bounds anyway.
fn bounded_but(memory_bytes: usize, free: Option<Resource>) -> Result<(), String> {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: what Rust does to tell of a stack that is full takes more than there will be; the
        // process just ends.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // Where memory runs out, this goes first. That it does not matter is no reason not to run.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    if rustix::process::geteuid().is_root() {
        let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        let lost = set_thread_groups(&[]).and_then(|()| set_thread_res_gid(group, group, group));
        let lost = lost.and_then(|()| set_thread_res_uid(user, user, user));
        // Root of a container may have no right to become anybody. What it has is given up; it can
        // open and signal nothing by what follows anyway.
        let lost = lost.or_else(|error| if error == Errno::PERM { lose_capabilities() } else { Err(error) });
        lost.map_err(wrong("losing privileges"))?;
    }
    // After that, as a change of the user takes it back.
    restrict_but(free).map_err(wrong("bounds"))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(wrong("hiding memory"))?;
    let bytes = address_space().ok_or("how much memory it has is not to be had")? + memory_bytes as u64;
    for (resource, bytes) in [(Resource::As, bytes), (Resource::Fsize, 0)] {
        setrlimit(resource, Rlimit { current: Some(bytes), maximum: Some(bytes) }).map_err(wrong("bounds"))?;
    }
    Ok(())
}

fn lose_capabilities() -> Result<(), Errno> {
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
}

/// Leaves this process the files and system calls that loading a library takes.
fn confined() -> Result<(), String> {
    reading_only(&LIBRARIES)?;
    let reading = rule(&[(2, SeccompCmpOp::MaskedEq(WRITING.cast_unsigned().into()), 0)])?;
    let [privileges, filters] = filtering()?;
    let rules = [(libc::SYS_openat, reading), (libc::SYS_prctl, privileges), (libc::SYS_seccomp, filters)];
    let rules = rules.into_iter().map(|(call, rule)| (call, vec![rule]));
    allow(computing()?.into_iter().chain(LOADING.map(|call| (call, Vec::new()))).chain(rules))
}

/// Leaves this process no file but those below `paths`, for reading.
fn reading_only(paths: &[&str]) -> Result<(), String> {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))
        .and_then(Ruleset::create)
        .and_then(|rules| rules.add_rules(path_beneath_rules(paths, AccessFs::from_read(ABI::V1))))
        .and_then(|rules| rules.restrict_self())
        .map(drop)
        .map_err(wrong("Landlock"))
}

/// Leaves this process what it needs to compute, to copy itself (fork(2)), and to have descriptors
/// sent; each copy may have this much memory beyond what this process has, and as much time as it
/// is given. Tells what is to be applied for a copy to lose the rest: it can use memory that is not
/// executable, sleep and wake, and choose the processor that it runs on.
pub(super) fn forking(memory_bytes: usize) -> Result<Forking, String> {
    let of_copies = program(decoding()?)?;
    bounded_but(memory_bytes, Some(Resource::Cpu))?;
    let most = getrlimit(Resource::As).maximum;
    let begins_with = most.ok_or("memory has no bound")?.saturating_sub(memory_bytes as u64);
    reading_only(&[])?;
    // A signal at its end, and where its number is told: neither threads nor namespaces.
    let other_flags = !u64::from((libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID | 0xff).cast_unsigned());
    let copying = rule(&[(0, SeccompCmpOp::MaskedEq(other_flags & u64::from(u32::MAX)), 0)])?;
    let ending = rule(&[(0, SeccompCmpOp::Eq, libc::PR_SET_PDEATHSIG.cast_unsigned().into())])?;
    let [privileges, filters] = filtering()?;
    let memory = rule(&[(1, SeccompCmpOp::Eq, libc::RLIMIT_AS as u64)])?;
    let rules = [
        placing()?,
        (libc::SYS_prlimit64, vec![memory]),
        (libc::SYS_clone, vec![copying]),
        (libc::SYS_prctl, vec![privileges, ending]),
        (libc::SYS_seccomp, vec![filters]),
    ];
    let others = COPYING.into_iter().chain(FORKING).map(|call| (call, Vec::new()));
    allow(computing()?.into_iter().chain(others).chain(rules))?;
    Ok(Forking { of_copies, begins_with, most })
}

/// A process that was left what it needs to copy itself.
pub(super) struct Forking {
    /// Filter that each copy applies.
    pub(super) of_copies: BpfProgram,
    /// Bytes of address space that it has, and so that a copy begins with.
    begins_with: u64,
    most: Option<u64>,
}

impl Forking {
    /// Lets `copy`, or none: this process, have `bytes` of memory beyond what it began with.
    pub(super) fn limit(&self, copy: Option<Pid>, bytes: u32) -> io::Result<()> {
        let current = Some(self.begins_with + u64::from(bytes));
        prlimit(copy, Resource::As, Rlimit { current, maximum: self.most })?;
        Ok(())
    }
}

/// Rules for the calls of `prctl` and `seccomp` that applying a further filter takes.
fn filtering() -> Result<[SeccompRule; 2], String> {
    let privileges = rule(&[(0, SeccompCmpOp::Eq, libc::PR_SET_NO_NEW_PRIVS.cast_unsigned().into())])?;
    let filters = rule(&[(0, SeccompCmpOp::Eq, libc::SECCOMP_SET_MODE_FILTER.into()), (1, SeccompCmpOp::Eq, 0)])?;
    Ok([privileges, filters])
}

/// Leaves this process what it needs to compute.
pub(in crate::exported) fn after_loading() -> Result<(), String> {
    allow(computing()?)
}

fn decoding() -> Result<Vec<(c_long, Vec<SeccompRule>)>, String> {
    let advice = rule(&[(2, SeccompCmpOp::Ne, libc::MADV_REMOVE.cast_unsigned().into())])?;
    let executable = libc::PROT_EXEC.cast_unsigned().into();
    let data = || rule(&[(2, SeccompCmpOp::MaskedEq(executable), 0)]);
    let rules = [
        placing()?,
        (libc::SYS_madvise, vec![advice]),
        (libc::SYS_mmap, vec![data()?]),
        (libc::SYS_mprotect, vec![data()?]),
        (libc::SYS_mremap, Vec::new()),
    ];
    Ok(DECODING.iter().map(|call| (*call, Vec::new())).chain(rules).collect())
}

/// Rule for choosing the processor that the caller runs on.
fn placing() -> Result<(c_long, Vec<SeccompRule>), String> {
    Ok((libc::SYS_sched_setaffinity, vec![rule(&[(0, SeccompCmpOp::Eq, 0)])?]))
}

fn computing() -> Result<Vec<(c_long, Vec<SeccompRule>)>, String> {
    // Memory that is shared stays: who finds it gone may not get other memory for it.
    let advice = rule(&[(2, SeccompCmpOp::Ne, libc::MADV_REMOVE.cast_unsigned().into())])?;
    let calls = DECODING.iter().chain(&COMPUTING).map(|call| (*call, Vec::new()));
    Ok(calls.chain([(libc::SYS_madvise, vec![advice])]).collect())
}

/// Bytes of address space that this process has.
fn address_space() -> Option<u64> {
    let sizes = fs::read_to_string("/proc/self/statm").ok()?;
    Some(sizes.split(' ').next()?.parse::<u64>().ok()? * rustix::param::page_size() as u64)
}

/// Makes a rule that all of these arguments match.
fn rule(arguments: &[(u8, SeccompCmpOp, u64)]) -> Result<SeccompRule, String> {
    let condition = |(at, is, value): &(u8, SeccompCmpOp, u64)| {
        SeccompCondition::new(*at, SeccompCmpArgLen::Dword, is.clone(), *value)
    };
    let conditions = arguments.iter().map(condition).collect::<Result<_, _>>();
    conditions.and_then(SeccompRule::new).map_err(wrong("seccomp"))
}

/// From now on nothing but these system calls.
fn allow(rules: impl IntoIterator<Item = (c_long, Vec<SeccompRule>)>) -> Result<(), String> {
    apply_filter(&program(rules)?).map_err(wrong("seccomp"))
}

/// Makes a filter that leaves a process nothing but these system calls.
fn program(rules: impl IntoIterator<Item = (c_long, Vec<SeccompRule>)>) -> Result<BpfProgram, String> {
    let (other, these) = (SeccompAction::Errno(libc::EPERM.cast_unsigned()), SeccompAction::Allow);
    let machine = std::env::consts::ARCH.try_into().map_err(wrong("seccomp"))?;
    let filter = SeccompFilter::new(rules.into_iter().collect(), other, these, machine);
    filter.and_then(BpfProgram::try_from).map_err(wrong("seccomp"))
}

fn wrong<E: Display>(at: &'static str) -> impl Fn(E) -> String {
    move |error| format!("what is confined cannot be run here: {at}: {error}")
}
