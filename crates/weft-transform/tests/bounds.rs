//! Bounds on the memory of stages that keep what they are given: whoever reads a link has its
//! network run in the daemon.

use std::io;
use weft_block::Slice;
use weft_transform::{Bounds, Network, Run, Source, Sources};

/// Bytes given at once.
const PIECE_BYTES: usize = 64 << 10;

/// The longest line.
const LINE_BYTES_MAX: usize = 16 << 20;

/// A piece of text again and again, until `left` bytes were given, for a network that has bounds if
/// `bounds` has some.
#[derive(Clone)]
struct Given {
    piece: Slice,
    left: usize,
    bounds: Option<Bounds>,
}

impl Source for Given {
    fn next(&mut self) -> io::Result<Option<Slice>> {
        let len = self.left.min(self.piece.len());
        self.left -= len;
        Ok((len > 0).then(|| self.piece.slice(0..len)))
    }
}

impl Sources for Given {
    fn input(&mut self) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(self.clone()))
    }

    fn file(&mut self, _: usize) -> io::Result<Box<dyn Source>> {
        self.input()
    }

    fn owner(&self) -> Option<u32> {
        Some(4_000_100)
    }

    fn bounds(&self) -> Option<Bounds> {
        self.bounds
    }
}

/// Runs `network` on `text`, repeated until there are `bytes` of it. Returns the number of bytes it
/// makes, or its error.
fn run(network: &str, text: &str, bytes: usize, bounds: Option<Bounds>) -> Result<usize, String> {
    let network = Network::parse(network).expect("a network");
    let piece = Slice::from(text.repeat((PIECE_BYTES / text.len()).max(1)).into_bytes());
    let mut given = Given { piece, left: bytes, bounds };
    let mut made = 0;
    for rope in Run::start(&network, &mut given).map_err(|error| error.to_string())? {
        made += rope.map_err(|error| error.to_string())?.len();
    }
    Ok(made)
}

#[test]
fn a_line_that_has_to_lie_in_memory_has_a_longest_length() {
    let more = LINE_BYTES_MAX + 1;
    let too_long = "a line has more than 16777216 bytes";
    for network in ["grep -v b", "uniq", "nl", "cut -b 2", "rev", "sort", "newline dos", "merge($1, $2)", "json-format"]
    {
        let said = run(network, "a", more, None).expect_err(network);
        assert!(said.contains(too_long), "{network}: {said}");
    }
    assert!(
        run("csv-json", "a", more, None).expect_err("a long record").contains("a record has more than 16777216 bytes")
    );
    assert!(run("csv-json", ",", 2 << 20, None).expect_err("many fields").contains("or 1048576 fields"));
    // Those that pass lines on wherever they lie need not hold them.
    for network in ["head -n 1", "tail -n 1", "wc -l", "tr a b", "tail -n +1"] {
        assert!(run(network, "a", more, None).is_ok(), "{network}");
    }
}

#[test]
fn what_takes_the_place_of_a_line_is_no_longer_than_a_line() {
    let with = "0123456789abcdef".repeat(1 << 10);
    for network in [&format!("replace . {with}"), &format!("replace '(.*)' '{}'", "$1".repeat(200)), "grep -on ."] {
        let said = run(network, "a", 5 << 20, None).expect_err("too long");
        assert!(said.contains("a line has more than 16777216 bytes"), "{said}");
    }
    assert_eq!(run("replace '(a)(b)' '$2$1.'", "ab", 2 << 20, None), Ok(3 << 20));
    assert_eq!(run("replace b cc", "ab", 2 << 20, None), Ok(3 << 20));
    assert_eq!(run("grep -o b", "ab", 2 << 20, None), Ok(2 << 20));
}

#[test]
fn a_network_has_so_much_memory_for_all_of_its_stages() {
    // A quarter of it is for one network.
    let bounds = Some(Bounds { memory_bytes: 16 << 20, ..Bounds::default() });
    let objects = format!("[{}1]\n", "{\"\":0},".repeat(10_000));
    let commas = format!("{}\n", ",".repeat(70_000));
    let refused = [
        // Lines that lie in memory side by side.
        ("zip($1, $2, $3)", "a", 1 << 20),
        ("uniq | uniq", "a", 1 << 20),
        // Values that take much more memory than text.
        ("json-format -c", &objects, objects.len()),
        ("json-select .", &objects, objects.len()),
        ("csv-json", &commas, 2 * commas.len()),
    ];
    for (network, text, bytes) in refused {
        let said = run(network, text, bytes, bounds).expect_err(network);
        assert!(said.contains("takes more of it than networks may have now"), "{network}: {said}");
    }
    // Shorter lines, and what goes to files instead.
    for network in
        ["zip($1, $2, $3)", "uniq | uniq", "sort", "tac", "tail -c 4500000", "sort | tac | sort -r | tail -n 9"]
    {
        let made = run(network, "line\n", 5 << 20, bounds);
        assert!(made.is_ok(), "{network}: {made:?}");
    }
    // What was counted is free again.
    assert!(run("uniq", "a", 1 << 20, bounds).is_ok());
}

#[test]
fn several_paths_of_one_value_are_a_list() {
    let network = Network::parse("json-select .b .a[1] .c .").expect("a network");
    let text = "{\"a\":[1,\"x\"],\"b\":null}\n";
    let mut given = Given { piece: Slice::from(text.as_bytes().to_vec()), left: text.len(), bounds: None };
    let made: Vec<u8> =
        Run::start(&network, &mut given).expect("begun").flat_map(|rope| rope.expect("made").to_vec()).collect();
    assert_eq!(String::from_utf8(made).expect("text"), "[null,\"x\",null,{\"a\":[1,\"x\"],\"b\":null}]\n");
}

/// A link's network is read whenever somebody looks at the link, and stays in memory.
#[test]
fn expressions_are_compiled_when_a_network_runs_and_no_sooner() {
    let wrong = "grep a | tee(replace '(' x, identity) | concat";
    assert!(Network::parse(wrong).expect_err("wrong").to_string().contains("'(' is no regular expression"));
    let known = Network::known(wrong).expect("not looked at");
    let mut given = Given { piece: Slice::from(b"a\n".to_vec()), left: 2, bounds: None };
    let said = Run::start(&known, &mut given).err().expect("wrong").to_string();
    assert!(said.contains("'(' is no regular expression"), "{said}");
    // One that takes too much memory is refused.
    let said = Network::parse(r"grep '\w{1000}'").expect_err("large").to_string();
    assert!(said.contains("is no regular expression") && said.contains("size limit"), "{said}");
    assert!(Network::parse(r"grep '^\w{20}[^@]*@\d{50}\.\w+$'").is_ok());
}

/// Returns the output of `network` for `input`, or its error.
fn made_of(network: &str, input: &[u8], memory_bytes: u64) -> Result<Vec<u8>, String> {
    let network = Network::parse(network).expect("a network");
    let bounds = Some(Bounds { memory_bytes, ..Bounds::default() });
    let mut given = Given { piece: Slice::from(input.to_vec()), left: input.len(), bounds };
    let mut made = Vec::new();
    for rope in Run::start(&network, &mut given).map_err(|error| error.to_string())? {
        rope.map_err(|error| error.to_string())?.slices().iter().for_each(|slice| made.extend_from_slice(slice));
    }
    Ok(made)
}

/// One network may have a quarter.
const QUARTER: u64 = 4 << 20;

const TOO_MUCH: &str = "takes more of it than networks may have now";

/// They took up to 674 MiB for each stage, and nobody counted.
#[test]
fn codecs_count_their_memory_before_they_take_it() {
    for (network, mib) in [("xz", 94), ("xz -n 9", 674), ("zstd -n 19", 94), ("bzip2", 8), ("xz -n 0", 3)] {
        let refused = made_of(network, b"text", (mib - 1) * QUARTER).expect_err(network);
        assert!(refused.contains(TOO_MUCH), "{network}: {refused}");
    }
    for network in ["xz -n 0", "zstd", "bzip2", "gzip"] {
        let packed = made_of(network, b"text", 1 << 30).expect(network);
        let network = format!("{} -d", network.split(' ').next().expect("a name"));
        assert_eq!(made_of(&network, &packed, 1 << 30).expect("unpacked"), b"text");
    }
}

#[test]
fn a_dictionary_that_comes_later_counts_too() {
    for (small, large, unpack) in [("xz -n 0", "xz -n 6", "xz -d"), ("zstd -n 1", "zstd -n 19", "zstd -d")] {
        let [small, large] = [small, large].map(|network| made_of(network, b"text", 1 << 30).expect(network));
        let both = [&small[..], &large].concat();
        assert_eq!(made_of(unpack, &small, 4 * QUARTER).expect("it is small"), b"text");
        assert_eq!(made_of(unpack, &both, 1 << 30).expect("there is room"), b"texttext");
        for input in [&large, &both] {
            let refused = made_of(unpack, input, 4 * QUARTER).expect_err(unpack);
            assert!(refused.contains(TOO_MUCH), "{unpack}: {refused}");
        }
    }
}
