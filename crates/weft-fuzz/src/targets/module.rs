//! Any bytes as a WebAssembly module, and modules that say anything of where bytes lie: the latter
//! are written around what is to be said.
use crate::bytes_given;
use arbitrary::{Arbitrary, Unstructured};
use std::io;
use weft_transform::{Network, Reading, Source, Sources};

#[derive(Arbitrary, Debug)]
enum Module {
    /// As it is.
    Bytes(Vec<u8>),
    /// One whose functions answer so, one after the other.
    Answers { pages: u8, input: u32, advance: Vec<u64>, begin: u32, message: u64 },
}

#[derive(Arbitrary, Debug)]
struct Case {
    module: Module,
    keeps_length: bool,
    has_argument: bool,
    input: Vec<u8>,
}

struct Given {
    module: Vec<u8>,
    input: Vec<u8>,
}

impl Sources for Given {
    fn input(&mut self) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(Reading(io::Cursor::new(self.input.clone()))))
    }

    fn file(&mut self, _: usize) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(Reading(io::Cursor::new(self.module.clone()))))
    }
}

impl Module {
    fn bytes(&self) -> Vec<u8> {
        let Module::Answers { pages, input, advance, begin, message } = self else {
            let Module::Bytes(bytes) = self else { unreachable!("the other was taken") };
            return bytes.clone();
        };
        let answers: String = (1..)
            .zip(advance.iter().take(64))
            .map(|(call, answer)| {
                format!("(if (i32.eq (global.get $calls) (i32.const {call})) (then (return (i64.const {answer}))))")
            })
            .collect();
        let text = format!(
            r#"(module (memory (export "memory") {pages}) (global $calls (mut i32) (i32.const 0))
            (func (export "weft_input") (param i32) (result i32) (i32.const {input}))
            (func (export "weft_begin") (param i32 i32) (result i32) (i32.const {begin}))
            (func (export "weft_message") (result i64) (i64.const {message}))
            (func (export "weft_advance") (param i32 i32 i32) (result i64)
                (global.set $calls (i32.add (global.get $calls) (i32.const 1))) {answers} (i64.const 0)))"#,
            pages = pages % 4,
        );
        wat::parse_str(text).expect("a module")
    }
}

/// Takes any bytes as what this is about.
pub fn run(bytes: &[u8]) {
    let Ok(case) = Case::arbitrary_take_rest(Unstructured::new(bytes)) else { return };
    run_on(&case);
}

fn run_on(case: &Case) {
    let text = match (case.keeps_length, case.has_argument) {
        (true, false) => "wasm -l -t 1 $1",
        (true, true) => "wasm -l -t 1 $1 word",
        (false, false) => "wasm -t 1 $1",
        (false, true) => "wasm -t 1 $1 word",
    };
    let network = Network::parse(text).expect("a network");
    let len = case.input.len();
    let mut given = Given { module: case.module.bytes(), input: case.input.clone() };
    if let Some(made) = bytes_given(&network, &mut given) {
        assert!(!case.keeps_length || made == len, "a lie about length");
    }
}
