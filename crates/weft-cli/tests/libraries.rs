//! Shared libraries as stages: what they may do, and that nothing they do harms anybody else. They
//! are compiled from C here.

// A static program loads none.
#![cfg(not(target_feature = "crt-static"))]

#[path = "../../weft-transform/tests/given/mod.rs"]
mod given;

use proptest::prelude::*;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use weft_transform::{RunError, StageError};

/// The library that `text` is, in C.
fn compile(text: &str) -> Vec<u8> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join(format!("{}.c", COUNT.fetch_add(1, Ordering::Relaxed)));
    let made = directory.path().join("made.so");
    std::fs::write(&source, format!("#define _GNU_SOURCE\n#include \"weft_stage.h\"\n{text}")).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-w", "-I"]).arg(include).arg("-o").args([&made, &source]);
    assert!(compiler.status().expect("a C compiler").success());
    std::fs::read(made).unwrap()
}

/// `weft_advance` that does `body`.
fn advancing(body: &str) -> String {
    format!("weft_given weft_advance(unsigned char *input, uint32_t len, uint32_t is_last) {{ {body} }}")
}

fn run_bytes(network: &str, library: &[u8], input: &[u8], piece: usize) -> Result<Vec<u8>, RunError> {
    weft_transform::worker::set_program(env!("CARGO_BIN_EXE_weft").into());
    given::run_bytes(network, library, input, piece)
}

fn run(network: &str, library: &str, input: &[u8], piece: usize) -> Result<Vec<u8>, RunError> {
    run_bytes(network, &compile(library), input, piece)
}

/// Returns the error of `library`.
fn failure(network: &str, library: &str) -> StageError {
    match run(network, library, b"some bytes", 4) {
        Err(RunError::Stage { source, .. }) => source,
        other => panic!("{network} {library}: {other:?}"),
    }
}

const ADDING: &str = "static unsigned char by = 1;
    uint32_t weft_begin(unsigned char *words, uint32_t len) { if (len) by = words[0]; return 0; }
    weft_given weft_advance(unsigned char *input, uint32_t len, uint32_t is_last) {
        for (uint32_t at = 0; at < len; at++) input[at] += by;
        return weft_give(input, len, 0);
    }";

#[test]
fn a_library_transforms_what_it_is_given() {
    let input: Vec<u8> = (0..800_000u32).map(|number| (number % 253) as u8).collect();
    let added = |by: u8| input.iter().map(|byte| byte.wrapping_add(by)).collect::<Vec<u8>>();
    let library = compile(ADDING);
    for piece in [1000, 65_536, 300_000, 800_000] {
        assert!(run_bytes("library -p $1", &library, &input, piece).unwrap() == added(1));
        assert!(run_bytes("library $1 A | library -l $1", &library, &input, piece).unwrap() == added(66));
    }
    assert_eq!(run_bytes("library -p $1", &library, b"", 1).unwrap(), b"");
    // State of one stream is unknown to the next: each stream has its own process, except where
    // positions are preserved.
    let counts = compile(&format!(
        "static char seen = '0'; {}",
        advancing("if (is_last) return weft_give(0, 0, 0); seen++; return weft_give(&seen, 1, 0);")
    ));
    for _ in 0..3 {
        assert_eq!(run_bytes("library $1", &counts, b"abc", 1).unwrap(), b"123");
    }
}

#[test]
fn a_library_may_give_more_or_fewer_bytes_and_end_early() {
    let twice = "static char kept[8]; static uint32_t count; static int again;
        weft_given weft_advance(unsigned char *input, uint32_t len, uint32_t is_last) {
            if (len) { count = len; for (uint32_t at = 0; at < len; at++) kept[at] = input[at]; }
            if (is_last) return weft_give(0, 0, 0);
            again = !again;
            return weft_give(kept, count, again ? WEFT_AGAIN : 0);
        }";
    assert_eq!(run("library $1", twice, b"abcdef", 3).unwrap(), b"abcabcdefdef");
    // More at once than is passed on at once, from memory of its own.
    let large = format!(
        "static unsigned char memory[700001]; {}",
        advancing(
            "if (is_last) return weft_give(0, 0, 0);
             for (uint32_t at = 0; at < sizeof memory; at++) memory[at] = at % 251;
             return weft_give(memory, sizeof memory, 0);"
        )
    );
    let expected: Vec<u8> = (0..700_001u32).map(|at| (at % 251) as u8).collect();
    assert!(run("library $1", &large, b"ab", 1).unwrap() == [&expected[..], &expected[..]].concat());
    assert_eq!(run("library $1 | head -c 3", &large, b"ab", 1).unwrap(), [0, 1, 2]);
    // A part of the input, where it lies, and across its end.
    assert_eq!(
        run("library $1", &advancing("return weft_give(input + 1, len ? len - 1 : 0, 0);"), b"abcdef", 3).unwrap(),
        b"bcef"
    );
    assert_eq!(
        run("library $1", &advancing("return weft_give(input, len, WEFT_ENDED);"), b"abcdef", 4).unwrap(),
        b"abcd"
    );
    let trailer = advancing("if (!is_last) return weft_give(0, 0, 0); return weft_give(\"end\", 3, 0);");
    assert_eq!(run("library $1", &trailer, b"abcdef", 4).unwrap(), b"end");
}

#[test]
fn what_a_library_may_not_do_is_an_error_that_says_so() {
    let back = advancing("return weft_give(input, len, 0);");
    for (network, library, expected) in [
        ("library $1", "int nothing;", "exports no 'weft_advance'"),
        ("library $1 word", &back, "takes no arguments"),
        ("library $1", &advancing("return weft_fail();"), "does not say why"),
        ("library $1", &advancing("__builtin_trap();"), "SIG"),
        ("library $1", &advancing("return weft_give((void *)8, len, 0);"), "SIGSEGV"),
        ("library $1", &advancing("*(volatile char *)0 = 1; return weft_give(0, 0, 0);"), "SIGSEGV"),
        ("library $1", &advancing("return weft_give(0, 0, WEFT_AGAIN);"), "gave nothing"),
        ("library -l $1", &advancing("return weft_give(input, len + 1, 0);"), "said to keep length"),
        ("library -p $1", &advancing("return weft_give(input, len - 1, 0);"), "said to keep length"),
        ("library -l $1", &advancing("return weft_give(input, len, WEFT_ENDED);"), "said to keep length"),
        (
            "library $1",
            "void exit(int); __attribute__((constructor)) static void now(void) { exit(3); }",
            "exit status: 3",
        ),
        (
            "library $1",
            &format!("extern int missing(void); {}", advancing("return weft_give(0, missing(), 0);")),
            "missing",
        ),
        (
            "library $1",
            &format!(
                "weft_given weft_message(void) {{ return weft_give(\"too\\nodd\", 7, 0); }} {}",
                advancing("return weft_fail();")
            ),
            "too odd",
        ),
        (
            "library $1 x",
            &format!(
                "weft_given weft_message(void) {{ return weft_give(\"no x\", 4, 0); }} uint32_t weft_begin(unsigned char *words, uint32_t len) {{ return 1; }} {back}"
            ),
            "no x",
        ),
    ] {
        let said = failure(network, library).to_string();
        assert!(said.contains(expected), "{network} {library}: {said}");
    }
    let said = run_bytes("library $1", b"no library", b"a", 1).unwrap_err().to_string();
    assert!(said.contains("no library that can be loaded"), "{said}");
}

/// Returns the `result` of `body` when a library runs it, and when it runs while the library is
/// loaded.
fn results(body: &str) -> [i64; 2] {
    let headers = [
        "errno",
        "fcntl",
        "signal",
        "stdlib",
        "unistd",
        "sys/mman",
        "sys/prctl",
        "sys/socket",
        "sys/stat",
        "sys/syscall",
    ];
    let headers: String = headers.iter().map(|name| format!("#include <{name}.h>\n")).collect();
    let act = format!("{headers} static long result; static void act(void) {{ {body} }}");
    let tells = "return weft_give(&result, is_last ? 0 : sizeof result, 0);";
    let called = format!("{act} {}", advancing(&format!("if (!is_last) act(); {tells}")));
    let loaded = format!("{act} __attribute__((constructor)) static void now(void) {{ act(); }} {}", advancing(tells));
    [called, loaded]
        .map(|library| i64::from_ne_bytes(run("library $1", &library, b"a", 1).unwrap().try_into().unwrap()))
}

#[test]
fn a_library_can_do_nothing_but_compute() {
    let error = |call: &str| format!("errno = 0; long got = (long)({call}); result = got == -1 ? errno : -1;");
    let (denied, access) = (i64::from(libc::EPERM), i64::from(libc::EACCES));
    for call in [
        "fork()",
        "socket(AF_INET, SOCK_STREAM, 0)",
        "kill(getppid(), 0)",
        "syscall(SYS_execve, \"/bin/true\", 0, 0)",
        "open(\"/tmp/weft-was-here\", O_CREAT | O_WRONLY, 0600)",
        "mkdir(\"/tmp/weft-was-here\", 0700)",
        "prctl(PR_SET_DUMPABLE, 1)",
        "syscall(SYS_setuid, 0)",
        "syscall(SYS_ptrace, 0, 0, 0, 0)",
        "syscall(SYS_io_uring_setup, 1, 0)",
        "memfd_create(\"more\", 0)",
        "chdir(\"/\")",
    ] {
        assert_eq!(results(&error(call)), [denied; 2], "{call}");
    }
    // While it is loaded there are libraries to read, and nothing else.
    assert_eq!(results(&error("open(\"/etc/passwd\", O_RDONLY)")), [denied, access]);
    assert_eq!(results(&error("open(\"/proc/self/environ\", O_RDONLY)")), [denied, access]);
    assert_eq!(results(&error("open(\"/etc/ld.so.cache\", O_RDONLY)")), [denied, -1]);
    // Of files that were open, it has only the socket for its answers.
    let open = "result = 0; for (int file = 0; file < 64; file++) if (syscall(SYS_read, file, \"\", 0) != -1) result |= 1l << file;";
    assert_eq!(results(open)[0], 1);
    assert_eq!(results("result = getenv(\"PATH\") != 0;"), [0; 2]);
}

#[test]
fn a_library_that_hangs_is_stopped_while_others_go_on() {
    let hangs = advancing("for (;;) ;");
    let waits = "__attribute__((constructor)) static void now(void) { for (;;) ; }".to_owned();
    let adding = compile(ADDING);
    let hanging = std::thread::spawn(move || {
        [failure("library -t 1 $1", &hangs), failure("library -t 1 $1", &waits)].map(|error| match error {
            StageError::Idle(time) => time,
            other => panic!("{other}"),
        })
    });
    while !hanging.is_finished() {
        assert_eq!(run_bytes("library -p -t 5 $1", &adding, b"abc", 1).unwrap(), b"bcd");
    }
    assert_eq!(hanging.join().unwrap(), [Duration::from_secs(1); 2]);
}

#[test]
fn memory_has_bounds() {
    let grows = format!(
        "#include <stdlib.h>\n#include <string.h>\nstatic uint32_t mib; {}",
        advancing(
            "char *got; if (is_last) return weft_give(0, 0, 0);
             while ((got = malloc(1 << 20))) { memset(got, 1, 1 << 20); mib++; }
             return weft_give(&mib, 4, 0);"
        )
    );
    let library = compile(&grows);
    let mib = |network| u32::from_ne_bytes(run_bytes(network, &library, b"a", 1).unwrap().try_into().unwrap());
    assert!((40..64).contains(&mib("library $1")));
    assert!((1..8).contains(&mib("library -m 8 $1")));
}

/// Answers of a library itself, over the socket and before it was asked, are checked like any
/// others.
#[test]
fn what_makes_no_sense_is_not_believed() {
    let says = |words: &str| {
        let sends = format!("uint32_t words[] = {{ {words} }}; write(0, words, sizeof words);");
        let library = format!("#include <unistd.h>\n{}", advancing(&format!("{sends} for (;;) ;")));
        run("library -t 1 $1", &library, b"a", 1)
    };
    for nonsense in ["1", "7, 0, 0, 0", "1, 5, 4, 0", "1, 0, 786433, 0", "2, 0xFFFFFFFF, 0xFFFFFFFF, 0"] {
        let said = says(nonsense).unwrap_err().to_string();
        assert!(said.contains("makes no sense"), "{nonsense}: {said}");
    }
    // It may say that it has ended, of course.
    assert_eq!(says("1, 0, 3, 1u << 31").unwrap().len(), 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever a library says of where bytes lie, there is a result or an error.
    #[test]
    fn nothing_that_a_library_says_is_believed(given: Vec<(u64, u64)>, near in 0..3u64, bytes: Vec<u8>, length: bool) {
        let answers: String = given.iter().enumerate().map(|(number, (at, told))| {
            let at = if near == 0 { format!("(char *){at}u") } else { format!("input + {}", at % (near << 18)) };
            format!("if (calls == {}) {{ weft_given given = {{ {at}, {told}u }}; return given; }}", number + 1)
        }).collect();
        let library = format!("static int calls; {}", advancing(&format!("calls++; {answers} return weft_give(0, 0, 0);")));
        let network = if length { "library -l $1" } else { "library $1" };
        if let (Ok(made), true) = (run(network, &library, &bytes, 7), length) {
            prop_assert_eq!(made.len(), bytes.len());
        }
    }
}
