//! System calls that commands and daemons are refused: those by which they could reach other
//! processes, change what they run in, or try parts of the kernel that they have no use for
//! (seccomp(2)). Others they have: a command may be any program.

use crate::stage::StageError;
use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter, sock_filter,
};
use std::collections::BTreeMap;
use std::io;
use std::sync::LazyLock;

/// Calls that libc has no names for; their numbers are the same on all machines.
const STATMOUNT: c_long = 457;
const LISTMOUNT: c_long = 458;
const OPEN_TREE_ATTR: c_long = 467;
const FCHMODAT2: c_long = 452;
const SETXATTRAT: c_long = 463;
const REMOVEXATTRAT: c_long = 466;

/// Refused to commands and daemons alike.
const REFUSED: [c_long; 49] = [
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Mounts and namespaces.
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    STATMOUNT,
    LISTMOUNT,
    OPEN_TREE_ATTR,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    // Keys.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // The kernel itself.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_reboot,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_vhangup,
    libc::SYS_personality,
    libc::SYS_lookup_dcookie,
    libc::SYS_mbind,
    libc::SYS_move_pages,
];

/// Refused to commands. A daemon mounts and unmounts, also for them in namespaces of theirs
/// (`mounts`), and may serve the kernel through rings. Extended attributes are the one thing that
/// could be written in file systems mounted later: nothing else keeps a command from them
/// (`writing`).
const TO_COMMANDS: [c_long; 16] = [
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    SETXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    REMOVEXATTRAT,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// Flags of mount(2) of which each brings what is mounted already to another place.
const MOVING_MOUNTS: [libc::c_ulong; 2] = [libc::MS_BIND, libc::MS_MOVE];

/// Requests of ioctl(2) that type input for somebody else.
const TYPING: [u32; 2] = [libc::TIOCSTI as u32, libc::TIOCLINUX as u32];

/// Those of a network. A pair of connected sockets is none: it leads nowhere.
const NETWORK: [c_long; 2] = [libc::SYS_socket, libc::SYS_connect];

/// Memory beside address spaces, which no limit on a process bounds.
const OTHER_MEMORY: [c_long; 4] = [libc::SYS_memfd_create, libc::SYS_memfd_secret, libc::SYS_shmget, libc::SYS_msgget];

/// Flags of clone(2) of which each makes a namespace.
const NAMESPACES: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;

/// Calls by which a file gets permission bits, and which argument these are. A command makes no
/// program that gives its rights to others: who ran it would be out of what confines commands.
/// (A new directory gets no set-group-id bit by mkdir(2).)
const SETTING_BITS: &[(c_long, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
    (libc::SYS_openat, 3),
    (libc::SYS_mknodat, 2),
];

/// Calls whose arguments no filter sees. As if they were not there programs use older ones.
const UNSEEN: [c_long; 2] = [libc::SYS_clone3, libc::SYS_openat2];

/// Things that a command may have or not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed {
    pub(super) network: bool,
    /// Memory that is in no address space.
    pub(super) other_memory: bool,
}

/// The filters, ready for a process that can allocate nothing.
pub(super) struct Filters {
    always: [BpfProgram; 2],
    network: BpfProgram,
    other_memory: BpfProgram,
}

impl Filters {
    /// From now on these calls are refused to this process and all that it starts. Makes system
    /// calls and nothing else.
    pub(super) fn apply(&self, allowed: Allowed) -> io::Result<()> {
        let network = (!allowed.network).then_some(&self.network);
        let other_memory = (!allowed.other_memory).then_some(&self.other_memory);
        for program in self.always.iter().chain(network).chain(other_memory) {
            apply_filter(program).map_err(|error| match error {
                seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => error,
                _ => io::ErrorKind::Unsupported.into(),
            })?;
        }
        Ok(())
    }
}

/// The filters.
pub(super) fn filters() -> Result<&'static Filters, StageError> {
    static FILTERS: LazyLock<Result<Filters, String>> = LazyLock::new(make);
    FILTERS.as_ref().map_err(|error| StageError::data(format!("commands cannot be confined here: {error}")))
}

/// Refuses calls to this process from now on, all its threads and all that it starts: those that no
/// daemon makes. Must be called before other threads are started. The calls that are left cost what
/// they did: speculation is not slowed down (`SECCOMP_FILTER_FLAG_SPEC_ALLOW`).
///
/// # Errors
/// A kernel without seccomp filters, or a kind of machine that they are not known for.
pub fn refuse_to_daemon() -> io::Result<()> {
    install(&to_daemon().map_err(io::Error::other)?)
}

/// Refuses what `programs` say to this process. Makes system calls and nothing else.
fn install(programs: &[BpfProgram]) -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    for program in programs {
        let length = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let filter = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut().cast() };
        let flags = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
        // SAFETY: the kernel copies the instructions, which are as many as is said, during the
        // call.
        let result =
            unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const filter) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn to_daemon() -> Result<[BpfProgram; 2], String> {
    let mut rules = Rules::all_of(&REFUSED);
    rules.refuse_typing()?;
    for flag in MOVING_MOUNTS {
        rules.refuse(libc::SYS_mount, 3, SeccompCmpOp::MaskedEq(flag), flag)?;
    }
    Ok([unknown(&[]), program(rules.0)?])
}

fn make() -> Result<Filters, String> {
    let mut rules = Rules::all_of(&[&REFUSED[..], &TO_COMMANDS].concat());
    let flags = (0..32).map(|bit| 1u64 << bit).filter(|flag| u64::from(NAMESPACES.cast_unsigned()) & flag != 0);
    for flag in flags {
        rules.refuse(libc::SYS_clone, 0, SeccompCmpOp::MaskedEq(flag), flag)?;
    }
    for (call, at) in SETTING_BITS {
        for bit in [libc::S_ISUID, libc::S_ISGID].map(u64::from) {
            rules.refuse(*call, *at, SeccompCmpOp::MaskedEq(bit), bit)?;
        }
    }
    rules.refuse_typing()?;
    let refusing = |calls: &[c_long]| program(Rules::all_of(calls).0);
    Ok(Filters {
        always: [unknown(&UNSEEN), program(rules.0)?],
        network: refusing(&NETWORK)?,
        other_memory: refusing(&OTHER_MEMORY)?,
    })
}

/// Calls that are refused, those with rules only if one of these holds.
struct Rules(BTreeMap<c_long, Vec<SeccompRule>>);

impl Rules {
    fn all_of(calls: &[c_long]) -> Rules {
        Rules(calls.iter().map(|call| (*call, Vec::new())).collect())
    }

    /// Refuses `call` if the argument `at` compares so to `value`.
    fn refuse(&mut self, call: c_long, at: u8, is: SeccompCmpOp, value: u64) -> Result<(), String> {
        let condition = SeccompCondition::new(at, SeccompCmpArgLen::Dword, is, value).map_err(said)?;
        let rule = SeccompRule::new(vec![condition]).map_err(said)?;
        self.0.entry(call).or_default().push(rule);
        Ok(())
    }

    fn refuse_typing(&mut self) -> Result<(), String> {
        TYPING.into_iter().try_for_each(|request| self.refuse(libc::SYS_ioctl, 1, SeccompCmpOp::Eq, u64::from(request)))
    }
}

fn program(rules: BTreeMap<c_long, Vec<SeccompRule>>) -> Result<BpfProgram, String> {
    let (other, these) = (SeccompAction::Allow, SeccompAction::Errno(libc::EPERM.cast_unsigned()));
    let machine = std::env::consts::ARCH.try_into().map_err(said)?;
    SeccompFilter::new(rules, other, these, machine).and_then(BpfProgram::try_from).map_err(said)
}

/// Has two kinds of calls not be there: `calls`; and those by other numbers (x32), which lists of
/// numbers do not know.
fn unknown(calls: &[c_long]) -> BpfProgram {
    /// Codes of the instructions (linux/bpf_common.h): load a number of the call, jump if it is as
    /// large, or equal, and answer.
    const LOAD: u16 = 0x20;
    const IF_AT_LEAST: u16 = 0x35;
    const IF_EQUAL: u16 = 0x15;
    const ANSWER: u16 = 0x06;
    const X32: u32 = 0x4000_0000;
    let refuse = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
    let instruction = |code, jt, k| sock_filter { code, jt, jf: 0, k };
    // How many instructions there are from the second on to the last, which refuses.
    let to_refusal = u8::try_from(calls.len() + 1).expect("few calls");
    let is_one = (1..).zip(calls).map(|(number, call)| {
        instruction(IF_EQUAL, to_refusal - number, u32::try_from(*call).expect("a small number"))
    });
    let mut program = vec![instruction(LOAD, 0, 0), instruction(IF_AT_LEAST, to_refusal, X32)];
    program.extend(is_one);
    program.extend([instruction(ANSWER, 0, libc::SECCOMP_RET_ALLOW), instruction(ANSWER, 0, refuse)]);
    program
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    use std::ptr;

    /// Calls that any process may make and that do no harm to it; with what they are, if they are
    /// refused as they should. Makes system calls and nothing else.
    fn is_refused(call: usize) -> Option<bool> {
        const NOTHING: *const u8 = ptr::null();
        // SAFETY: none of the calls is passed memory, or more of it than nothing.
        let result = unsafe {
            match call {
                0 => libc::syscall(libc::SYS_ptrace, libc::PTRACE_TRACEME, 0, NOTHING, NOTHING),
                1 => libc::syscall(libc::SYS_process_vm_readv, libc::getpid(), NOTHING, 0, NOTHING, 0, 0),
                2 => libc::syscall(libc::SYS_unshare, 0),
                3 => libc::syscall(libc::SYS_setns, -1, 0),
                4 => libc::syscall(libc::SYS_keyctl, 0, -3, 0),
                5 => libc::syscall(libc::SYS_personality, 0xffff_ffffu32),
                6 => libc::syscall(libc::SYS_ioctl, -1, libc::TIOCSTI, NOTHING),
                7 => libc::syscall(libc::SYS_mount, NOTHING, NOTHING, NOTHING, libc::MS_BIND, NOTHING),
                _ => return None,
            }
        };
        Some(result == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::EPERM))
    }

    /// The numbers of the errors of calls that would give a file the bits `mode`; then of some that
    /// no filter sees. Makes system calls and nothing else.
    fn refusals(mode: u32) -> [i32; 7] {
        const NOWHERE: *const u8 = ptr::null();
        let errno =
            |result: c_long| if result == -1 { io::Error::last_os_error().raw_os_error().unwrap_or(0) } else { 0 };
        // SAFETY: no memory is passed.
        unsafe {
            [
                errno(libc::syscall(libc::SYS_fchmod, -1, mode)),
                errno(libc::syscall(libc::SYS_fchmodat, -1, NOWHERE, mode)),
                errno(libc::syscall(FCHMODAT2, -1, NOWHERE, mode, 0)),
                errno(libc::syscall(libc::SYS_openat, -1, NOWHERE, libc::O_CREAT | libc::O_WRONLY, mode)),
                errno(libc::syscall(libc::SYS_mknodat, -1, NOWHERE, libc::S_IFREG | mode, 0)),
                errno(libc::syscall(libc::SYS_openat2, -1, NOWHERE, NOWHERE, 0)),
                errno(libc::syscall(libc::SYS_clone3, NOWHERE, 0)),
            ]
        }
    }

    #[test]
    fn a_command_makes_no_program_that_gives_rights_away() {
        let mut command = Command::new("/bin/true");
        let filters = filters().unwrap();
        let confine = move || {
            filters.apply(Allowed { network: true, other_memory: true })?;
            let special = [0o4755, 0o2755, 0o6000].map(refusals);
            let plain = refusals(0o1755);
            let refused = |errors: &[i32; 7]| errors[..5].iter().all(|error| *error == libc::EPERM);
            let unseen = plain[5..].iter().all(|error| *error == libc::ENOSYS);
            match special.iter().all(refused) && !plain[..5].contains(&libc::EPERM) && unseen {
                true => Ok(()),
                // Comes to whoever started it.
                false => Err(io::Error::from_raw_os_error(libc::ENOTRECOVERABLE)),
            }
        };
        // SAFETY: it makes system calls and nothing else.
        unsafe { command.pre_exec(confine) };
        assert!(command.status().expect("all is refused that should be").success());
    }

    #[test]
    fn a_daemon_and_all_that_it_starts_are_refused_what_no_daemon_needs() {
        let mut command = Command::new("/bin/sh");
        // It starts a process and a pipe, as commands of stages do.
        command.args(["-c", "grep '^Seccomp:' /proc/self/status | cat"]);
        let programs = to_daemon().unwrap();
        let confine = move || {
            install(&programs)?;
            let let_through = (0..).map_while(is_refused).filter(|is_refused| !is_refused).count();
            // A call that is left, and answers that it knows no such flags.
            // SAFETY: no memory is passed.
            let left = unsafe { libc::syscall(libc::SYS_umount2, ptr::null::<u8>(), -1) };
            let is_left = left == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
            match (let_through, is_left) {
                (0, true) => Ok(()),
                // Comes to whoever started it.
                _ => Err(io::Error::from_raw_os_error(libc::ENOTRECOVERABLE)),
            }
        };
        // SAFETY: it makes system calls and nothing else.
        unsafe { command.pre_exec(confine) };
        let output = command.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "Seccomp:\t2\n");
    }
}
