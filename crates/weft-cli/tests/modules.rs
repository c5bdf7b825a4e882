//! Modules compiled in processes of their own: one that is made to take much there is refused, and
//! the program goes on.

#[path = "../../weft-transform/tests/given/mod.rs"]
mod given;

use weft_transform::{RunError, StageError};

fn run(network: &str, module: &[u8], input: &[u8]) -> Result<Vec<u8>, RunError> {
    weft_transform::worker::set_program(env!("CARGO_BIN_EXE_weft").into());
    given::run_bytes(network, module, input, 4)
}

fn failure(module: &[u8]) -> String {
    match run("wasm $1", module, b"some bytes") {
        Err(RunError::Stage { source: StageError::Data(why), .. }) => why,
        other => panic!("{other:?}"),
    }
}

/// A number as modules write it (LEB128).
fn number(mut number: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// A section of a module: its kind, how many things there are, and them.
fn section(kind: u8, count: u32, things: &[u8]) -> Vec<u8> {
    let content = [&number(count)[..], things].concat();
    [&[kind][..], &number(u32::try_from(content.len()).unwrap()), &content].concat()
}

/// A module of so many functions that do nothing.
fn of_functions(count: u32) -> Vec<u8> {
    let types = section(1, 1, &[0x60, 0, 0]);
    let functions = section(3, count, &vec![0; count as usize]);
    let code = section(10, count, &[2, 0, 0x0b].repeat(count as usize));
    [&b"\0asm\x01\0\0\0"[..], &types, &functions, &code].concat()
}

#[test]
fn a_module_is_compiled_elsewhere_and_runs_here() {
    let module = wat::parse_str(
        r#"(module (memory (export "memory") 2)
            (func (export "weft_input") (param i32) (result i32) (i32.const 1024))
            (func (export "weft_advance") (param $input i32) (param $len i32) (param $last i32) (result i64)
                (i64.or (i64.extend_i32_u (local.get $len)) (i64.const 4398046511104))))"#,
    );
    let module = module.unwrap();
    for _ in 0..2 {
        assert_eq!(run("wasm -l $1", &module, b"as it is").unwrap(), b"as it is");
    }
    assert!(failure(b"no module").starts_with("this is no WebAssembly module"));
    assert!(failure(&of_functions(1000)).contains("export"), "it is compiled, and has nothing to run");
}

#[test]
fn a_module_that_takes_too_much_to_compile_is_refused_for_good() {
    // Not 4 MiB, and it would take 4 GiB.
    let bomb = of_functions(1_000_000);
    for _ in 0..2 {
        let why = failure(&bomb);
        assert!(why.contains("compil"), "{why}");
    }
    let taken = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak: u64 = taken
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap()
        .trim()
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(peak < 512 << 10, "this process took {peak} KiB");
}
