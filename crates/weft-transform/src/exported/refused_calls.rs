//! System calls that a command is refused: those by which it could reach other processes, change
//! what it runs in, or try parts of the kernel that it has no use for (seccomp(2)). Others it has:
//! it may be any program.

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

const REFUSED: [c_long; 57] = [
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
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
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
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

/// Those of a network. A pair of connected sockets is none: it leads nowhere.
const NETWORK: [c_long; 2] = [libc::SYS_socket, libc::SYS_connect];

/// Flags of clone(2) of which each makes a namespace.
const NAMESPACES: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;

/// The filters, ready for a process that can allocate nothing.
pub(super) struct Filters {
    always: [BpfProgram; 2],
    network: BpfProgram,
}

impl Filters {
    /// From now on these calls are refused to this process and all that it starts. Makes system
    /// calls and nothing else.
    pub(super) fn apply(&self, has_network: bool) -> io::Result<()> {
        let network = (!has_network).then_some(&self.network);
        for program in self.always.iter().chain(network) {
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

fn make() -> Result<Filters, String> {
    let always = REFUSED.into_iter().map(|call| (call, Vec::new()));
    let mut by_arguments = BTreeMap::new();
    let mut refuse = |call: c_long, at: u8, is: SeccompCmpOp, value: u64| -> Result<(), String> {
        let condition = SeccompCondition::new(at, SeccompCmpArgLen::Dword, is, value).map_err(said)?;
        let rules: &mut Vec<SeccompRule> = by_arguments.entry(call).or_default();
        rules.push(SeccompRule::new(vec![condition]).map_err(said)?);
        Ok(())
    };
    let flags = (0..32).map(|bit| 1u64 << bit).filter(|flag| u64::from(NAMESPACES.cast_unsigned()) & flag != 0);
    for flag in flags {
        refuse(libc::SYS_clone, 0, SeccompCmpOp::MaskedEq(flag), flag)?;
    }
    // What is typed for somebody else.
    for request in [libc::TIOCSTI, libc::TIOCLINUX] {
        refuse(libc::SYS_ioctl, 1, SeccompCmpOp::Eq, request & 0xffff_ffff)?;
    }
    Ok(Filters {
        always: [unknown(), program(always.chain(by_arguments).collect())?],
        network: program(NETWORK.into_iter().map(|call| (call, Vec::new())).collect())?,
    })
}

fn program(rules: BTreeMap<c_long, Vec<SeccompRule>>) -> Result<BpfProgram, String> {
    let (other, these) = (SeccompAction::Allow, SeccompAction::Errno(libc::EPERM.cast_unsigned()));
    let machine = std::env::consts::ARCH.try_into().map_err(said)?;
    SeccompFilter::new(rules, other, these, machine).and_then(BpfProgram::try_from).map_err(said)
}

/// Has two kinds of calls not be there: clone3(2), whose arguments no filter sees, so that programs
/// use clone(2); and those by other numbers (x32), which lists of numbers do not know.
fn unknown() -> BpfProgram {
    /// What the instructions do (linux/bpf_common.h): load a number of the call, jump if it is as
    /// large, or equal, and answer.
    const LOAD: u16 = 0x20;
    const IF_AT_LEAST: u16 = 0x35;
    const IF_EQUAL: u16 = 0x15;
    const ANSWER: u16 = 0x06;
    const X32: u32 = 0x4000_0000;
    let refuse = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
    let clone3 = u32::try_from(libc::SYS_clone3).expect("a small number");
    let instruction = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    vec![
        instruction(LOAD, 0, 0, 0),
        instruction(IF_AT_LEAST, 1, 0, X32),
        instruction(IF_EQUAL, 0, 1, clone3),
        instruction(ANSWER, 0, 0, refuse),
        instruction(ANSWER, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}
