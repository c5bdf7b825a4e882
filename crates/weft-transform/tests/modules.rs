//! WebAssembly modules as stages: what they may do, and that nothing they do harms anybody else.

mod given;

use given::run_bytes;
use proptest::prelude::*;
use std::time::Duration;
use weft_transform::{Network, RunError, StageError};

fn run(network: &str, module: &str, input: &[u8], piece: usize) -> Result<Vec<u8>, RunError> {
    run_bytes(network, &wat::parse_str(module).expect("a module"), input, piece)
}

/// Returns the error of `module`.
fn failure(network: &str, module: &str) -> StageError {
    match run(network, module, b"some bytes", 4) {
        Err(RunError::Stage { source, .. }) => source,
        other => panic!("{other:?}"),
    }
}

/// A module with memory and a buffer at 1024, and `rest`.
fn module(rest: &str) -> String {
    format!(
        r#"(module (memory (export "memory") 2)
            (func (export "weft_input") (param i32) (result i32) (i32.const 1024))
            {rest})"#
    )
}

/// `weft_advance` that does `body`, in which $len and $last are what it is given.
fn advancing(body: &str) -> String {
    module(&format!(
        r#"(func (export "weft_advance") (param $input i32) (param $len i32) (param $last i32) (result i64) {body})"#
    ))
}

/// Its bytes back, as `flags` say.
fn giving_back(flags: u64) -> String {
    advancing(&format!("(i64.or (i64.extend_i32_u (local.get $len)) (i64.const {}))", 1024 << 32 | flags))
}

/// Adds to each byte the first argument's first byte.
const ADDING: &str = r#"(global $by (mut i32) (i32.const 1))
    (func (export "weft_begin") (param $input i32) (param $len i32) (result i32)
        (if (local.get $len) (then (global.set $by (i32.load8_u (i32.const 1024)))))
        (i32.const 0))
    (func (export "weft_advance") (param $input i32) (param $len i32) (param $last i32) (result i64) (local $at i32)
        (block $done (loop $next
            (br_if $done (i32.ge_u (local.get $at) (local.get $len)))
            (i32.store8 offset=1024 (local.get $at)
                (i32.add (global.get $by) (i32.load8_u offset=1024 (local.get $at))))
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (br $next)))
        (i64.or (i64.extend_i32_u (local.get $len)) (i64.const 4398046511104)))"#;

#[test]
fn a_module_transforms_what_it_is_given() {
    let input: Vec<u8> = (0..200_000u32).map(|number| (number % 253) as u8).collect();
    let added = |by: u8| input.iter().map(|byte| byte.wrapping_add(by)).collect::<Vec<u8>>();
    for piece in [1000, 65_536, 70_000, 200_000] {
        assert!(run("wasm -p $1", &module(ADDING), &input, piece).unwrap() == added(1));
        assert!(run("wasm $1 A | wasm -l $1", &module(ADDING), &input, piece).unwrap() == added(66));
    }
    assert_eq!(run("wasm -p $1", &module(ADDING), b"", 1).unwrap(), b"");
}

#[test]
fn a_module_may_give_more_or_fewer_bytes_and_end_early() {
    // Each piece twice: once again of what it took.
    let twice = advancing(
        "(global.set $again (i32.xor (global.get $again) (i32.const 1)))
         (if (local.get $len) (then (global.set $kept (local.get $len))))
         (if (local.get $last) (then (return (i64.const 0))))
         (i64.or (i64.or (i64.const 4398046511104) (i64.extend_i32_u (global.get $kept)))
                 (i64.shl (i64.extend_i32_u (global.get $again)) (i64.const 30)))",
    );
    let twice = twice.replacen(
        "(func",
        "(global $again (mut i32) (i32.const 0)) (global $kept (mut i32) (i32.const 0)) (func",
        1,
    );
    assert_eq!(run("wasm $1", &twice, b"abcdef", 3).unwrap(), b"abcabcdefdef");
    // The same, told once more of the end: 'last' stays, and what comes after is no second end.
    let trailer = advancing(
        "(if (i32.eqz (local.get $last)) (then (return (i64.const 0))))
         (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
         (i32.store8 (i32.const 0) (i32.add (global.get $calls) (i32.const 48)))
         (if (i32.lt_u (global.get $calls) (i32.const 3)) (then (return (i64.const 0x40000001))))
         (i64.const 1)",
    );
    let trailer = trailer.replacen("(func", "(global $calls (mut i32) (i32.const 0)) (func", 1);
    assert_eq!(run("wasm $1", &trailer, b"abcdef", 3).unwrap(), b"123");
    // More at once than anybody takes at once.
    let large = advancing("(if (local.get $last) (then (return (i64.const 0)))) (i64.const 0x20000)");
    assert_eq!(run("wasm $1 | wc -c", &large, &[0; 10], 2).unwrap(), b"655360\n");
    assert_eq!(run("wasm $1 | head -c 3", &large, &[0; 10], 2).unwrap(), [0; 3]);
    assert_eq!(run("wasm $1", &giving_back(1 << 31), b"abcdef", 4).unwrap(), b"abcd");
    assert_eq!(run("wasm $1", &advancing("(i64.const 0)"), b"abcdef", 4).unwrap(), b"");
}

#[test]
fn what_a_module_may_not_do_is_an_error_that_says_so() {
    for (network, module, expected) in [
        ("wasm $1", "(module)", "exports no 'memory'"),
        ("wasm $1", r#"(module (memory (export "memory") 1))"#, "exports no 'weft_input'"),
        ("wasm $1", &module(""), "exports no 'weft_advance'"),
        ("wasm $1", &module(r#"(func (export "weft_advance"))"#), "'weft_advance' of the module"),
        ("wasm $1 word", &giving_back(0), "takes no arguments"),
        ("wasm $1", &advancing("(unreachable)"), "was stopped"),
        ("wasm $1", &advancing("(i64.const -1)"), "does not say why"),
        ("wasm $1", &advancing("(i64.const 0x40000000)"), "gave nothing"),
        ("wasm $1", &advancing("(i64.const 0xFFFFFFFF_00000001)"), "1 bytes from 4294967295 on"),
        ("wasm $1", &advancing("(i64.const 0x00000000_3FFFFFFF)"), "1073741823 bytes from 0 on"),
        ("wasm -l $1", &advancing("(i64.const 0x0000000A)"), "said to keep length"),
        ("wasm -l $1", &advancing("(i64.const 0)"), "said to keep length"),
        ("wasm -l $1", &giving_back(1 << 31), "said to keep length"),
        ("wasm -m 1 $1", r#"(module (memory (export "memory") 17))"#, "memory"),
        ("wasm $1", &module(r#"(start $start) (func $start (unreachable))"#), "was stopped"),
        (
            "wasm $1",
            &module(
                r#"(func (export "weft_advance") (param i32 i32 i32) (result i64) (call 1 (local.get 0) (local.get 1) (local.get 2)))"#,
            ),
            "stack",
        ),
    ] {
        let said = failure(network, module).to_string();
        assert!(said.contains(expected), "{network} {module}: {said}");
    }
    let outside = r#"(module (memory (export "memory") 1) (func (export "weft_input") (param i32) (result i32) (i32.const 65533))
        (func (export "weft_advance") (param i32 i32 i32) (result i64) (i64.const 0)))"#;
    assert!(failure("wasm $1", outside).to_string().contains("4 bytes from 65533 on"));
    let bytes = run_bytes("wasm $1", b"no module", b"a", 1).unwrap_err().to_string();
    assert!(bytes.contains("no WebAssembly module"), "{bytes}");
}

#[test]
fn a_module_says_why_it_fails() {
    let says = r#"(data (i32.const 8) "too\nodd")
        (func (export "weft_message") (result i64) (i64.const 0x00000008_00000007))
        (func (export "weft_advance") (param i32 i32 i32) (result i64) (i64.const -1))"#;
    assert_eq!(failure("wasm $1", &module(says)).to_string(), "too odd");
    let refuses = r#"(func (export "weft_begin") (param i32 i32) (result i32) (i32.const 1))
        (func (export "weft_advance") (param i32 i32 i32) (result i64) (i64.const 0))"#;
    assert!(failure("wasm $1", &module(refuses)).to_string().contains("does not say why"));
}

#[test]
fn what_a_module_imports_is_not_there_and_need_not_be() {
    let imports = r#"(module (import "env" "abort" (func $abort)) (memory (export "memory") 1)
        (func (export "weft_input") (param i32) (result i32) (i32.const 0))
        (func (export "weft_advance") (param i32 i32 i32) (result i64) (if (local.get 2) (then (call $abort))) (i64.const 1)))"#;
    let said = match run("wasm $1", imports, b"abc", 1) {
        Err(RunError::Stage { source, .. }) => source.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(said.contains("env::abort"), "{said}");
    assert_eq!(run("wasm $1 | head -c 2", imports, b"abc", 1).unwrap(), b"ab");
}

#[test]
fn a_module_that_hangs_is_stopped_while_others_go_on() {
    let hangs = advancing("(loop $again (br $again)) (i64.const 0)");
    let begun = module(r#"(start $start) (func $start (loop $again (br $again)))"#);
    let hanging = std::thread::spawn(move || {
        [failure("wasm -t 1 $1", &hangs), failure("wasm -t 1 $1", &begun)].map(|error| match error {
            StageError::Idle(time) => time,
            other => panic!("{other}"),
        })
    });
    while !hanging.is_finished() {
        assert_eq!(run("wasm -p -t 1 $1", &module(ADDING), b"abc", 1).unwrap(), b"bcd");
    }
    assert_eq!(hanging.join().unwrap(), [Duration::from_secs(1); 2]);
}

#[test]
fn memory_has_bounds() {
    // As much as there is, then how many pages that were, little end first.
    let grows = advancing(
        "(block $full (loop $more
            (br_if $full (i32.eq (memory.grow (i32.const 1)) (i32.const -1))) (br $more)))
         (i32.store (i32.const 0) (memory.size)) (i64.const 0x80000004)",
    );
    let pages = |network| u32::from_le_bytes(run(network, &grows, b"a", 1).unwrap().try_into().unwrap());
    assert_eq!(pages("wasm $1"), 1024);
    assert_eq!(pages("wasm -m 1 $1"), 16);
    assert_eq!(pages("wasm -m 3 $1"), 48);
}

#[test]
fn arguments_are_checked_when_the_network_is_read() {
    let error = |text: &str| Network::parse(text).unwrap_err().to_string();
    assert_eq!(error("wasm"), "wasm needs a file that holds a module, at byte 4");
    assert_eq!(error("wasm x"), "'x' is not a file that holds a module: files are $1, $2, …, at byte 5");
    assert_eq!(error("wasm -m 0 $1"), "a module can have 1 to 1024 MiB, at byte 8");
    assert_eq!(error("grep $1"), "grep takes no file here; quote $1 if it is none, at byte 5");
    assert_eq!(error("wasm $1x"), "something follows the number of a file, at byte 7");
    assert!(error("wasm -u '$9' $1").contains("takes no files but modules"));
    assert!(error("wasm -u 'nothing' $1").contains("what undoes it makes no sense"));
    let network = Network::parse("wasm -p -u 'wasm -p $3' $2 | concat(identity, wasm $4)").unwrap();
    assert_eq!(network.files(), 4);
    assert_eq!(network.modules().iter().copied().collect::<Vec<_>>(), [1, 2, 3]);
    assert!(network.is_exported() && network.is_repeatable());
    for of_the_machine in ["exec cat", "upper | library $1", "concat(exec cat, upper)"] {
        assert!(!Network::parse(of_the_machine).expect("it makes sense").is_repeatable(), "{of_the_machine}");
    }
    let undone = Network::parse("rot13 | wasm -p -u 'wasm -p $3' $2").unwrap().inverse().expect("can be undone");
    assert_eq!(undone.stages().iter().map(|stage| &stage.text[..]).collect::<Vec<_>>(), ["wasm -p $3", "rot13"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any claim of a module about its bytes gives a result or an error.
    #[test]
    fn nothing_that_a_module_says_is_believed(input: u32, given: Vec<u64>, pages in 0..3u32, bytes: Vec<u8>, length: bool) {
        let answers: String = given.iter().enumerate().map(|(number, answer)| {
            format!("(if (i32.eq (global.get $calls) (i32.const {})) (then (return (i64.const {answer}))))", number + 1)
        }).collect();
        let text = format!(
            r#"(module (memory (export "memory") {pages}) (global $calls (mut i32) (i32.const 0))
            (func (export "weft_input") (param i32) (result i32) (i32.const {input}))
            (func (export "weft_advance") (param i32 i32 i32) (result i64)
                (global.set $calls (i32.add (global.get $calls) (i32.const 1))) {answers} (i64.const 0)))"#
        );
        let network = if length { "wasm -l $1" } else { "wasm $1" };
        if let (Ok(made), true) = (run(network, &text, &bytes, 7), length) {
            prop_assert_eq!(made.len(), bytes.len());
        }
    }
}
