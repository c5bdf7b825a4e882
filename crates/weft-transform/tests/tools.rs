//! Each stage against the standard tool, on nasty and random input; networks against the same
//! pipeline in a shell.

use proptest::prelude::*;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::process::{Command, Stdio};
use weft_block::Slice;
use weft_transform::{Network, Run, RunError, Source, Sources};

/// Gives bytes in pieces of these lengths, again and again.
struct Pieces {
    rest: VecDeque<Slice>,
}

impl Pieces {
    fn new(bytes: &[u8], lengths: &[usize]) -> Pieces {
        let (mut rest, mut at, mut which) = (VecDeque::new(), 0, 0);
        while at < bytes.len() {
            let end = (at + lengths[which % lengths.len()]).min(bytes.len());
            rest.push_back(Slice::from(bytes[at..end].to_vec()));
            (at, which) = (end, which + 1);
        }
        Pieces { rest }
    }
}

impl Source for Pieces {
    fn next(&mut self) -> io::Result<Option<Slice>> {
        Ok(self.rest.pop_front())
    }
}

/// The same bytes, however often they are asked for.
struct Given<F>(F);

impl<S: Source + 'static, F: FnMut() -> S> Sources for Given<F> {
    fn input(&mut self) -> io::Result<Box<dyn Source>> {
        Ok(Box::new((self.0)()))
    }

    fn file(&mut self, _: usize) -> io::Result<Box<dyn Source>> {
        self.input()
    }
}

fn run_on<S: Source + 'static>(network: &Network, source: impl FnMut() -> S) -> Result<Vec<u8>, RunError> {
    let mut made = Vec::new();
    for rope in Run::start(network, &mut Given(source))? {
        made.extend(rope?.to_vec());
    }
    Ok(made)
}

fn run(network: &str, input: &[u8], lengths: &[usize]) -> Result<Vec<u8>, RunError> {
    run_on(&Network::parse(network).expect("a network"), || Pieces::new(input, lengths))
}

/// Returns a shell's output for the same input; `None` if the tool is missing.
fn shell(command: &str, input: &[u8]) -> Option<Vec<u8>> {
    let tool = command.split(' ').next().expect("a command");
    let is_there = Command::new("sh").args(["-c", &format!("command -v {tool}")]).stdout(Stdio::null()).status();
    if !is_there.expect("a shell").success() {
        eprintln!("SKIPPED: {tool} is not installed; '{command}' was NOT tested");
        return None;
    }
    let mut process = Command::new("sh");
    process.args(["-c", command]).env("LC_ALL", "C").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = process.spawn().expect("a shell");
    let mut stdin = process.stdin.take().expect("piped");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = process.wait_with_output().expect("it ends");
    writer.join().expect("no panic");
    Some(output.stdout)
}

/// Input on which tools and stages are easily wrong.
fn nasty() -> Vec<Vec<u8>> {
    let mut random = 7u32;
    let mut bytes = |len: usize, of: &[u8]| -> Vec<u8> {
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            random as usize
        };
        (0..len).map(|_| of[next() % of.len()]).collect()
    };
    let all: Vec<u8> = (0..=255).collect();
    vec![
        b"".to_vec(),
        b"\n".to_vec(),
        b"a".to_vec(),
        b"\n\n\na\n\n".to_vec(),
        b"no final newline\nlast".to_vec(),
        vec![0xff; 70_000],
        b"caf\xe9 \xff\xfe invalid\n\xc3\n".repeat(9),
        b"b\ta\tc\nno tab\n\t\tx\na\tb\n".to_vec(),
        b"12345678901234567890\n12345678901234567891\n-12345678901234567891\n0.1000000000000000000001\n.1\n0.10\n-.5\n-0.50\n00012345678901234567890.0\n".to_vec(),
        b"10\n9\n-3\n2.5\n1e3\n x\n007\n7\n-0\n0\n".to_vec(),
        bytes(200_000, &all),
        bytes(100_000, b"ab \n\tABz019"),
        bytes(3_000, b"aab\n"),
        bytes(150_000, b"a1-\n"),
        [bytes(65_535, b"x"), b"\n".to_vec(), bytes(65_536, b"y"), b"\nz".to_vec()].concat(),
    ]
}

/// Stages, and the commands that do the same.
const SAME: &[(&str, &str)] = &[
    ("identity", "cat"),
    ("upper", "tr a-z A-Z"),
    ("lower", "tr A-Z a-z"),
    ("rot13", "tr A-Za-z N-ZA-Mn-za-m"),
    ("increment", "tr '\\000-\\377' '\\001-\\377\\000'"),
    ("tr a-y b-z", "tr a-y b-z"),
    ("tr abc x", "tr abc x"),
    ("tr -d 'a-m\\n'", "tr -d 'a-m\\n'"),
    ("tr '[:lower:]' '[:upper:]'", "tr '[:lower:]' '[:upper:]'"),
    ("tr -d '[:punct:][:cntrl:]'", "tr -d '[:punct:][:cntrl:]'"),
    ("tr '\\012\\[*]' ' x'", "tr '\\012\\[*]' ' x'"),
    ("tr '[:alnum:]\\400' x", "tr '[:alnum:]\\400' x"),
    ("grep -n b", "grep -an b"),
    ("grep -vn b", "grep -avn b"),
    ("grep -o 'a[a-z]*'", "grep -ao 'a[a-z]*'"),
    ("grep -n -o -m 3 b", "grep -anom 3 b"),
    ("tail -n +3", "tail -n +3"),
    ("tail -n +0", "tail -n +0"),
    ("tail -c +70000", "tail -c +70000"),
    ("grep a", "grep -a a"),
    ("grep -v a", "grep -av a"),
    ("grep -i 'A[a-z ]*b'", "grep -ai 'A[a-z ]*b'"),
    ("grep -c b", "grep -ac b"),
    ("grep -m 3 b", "grep -am 3 b"),
    ("grep -c -m 3 b", "grep -acm 3 b"),
    ("grep '^$'", "grep -a '^$'"),
    ("head", "head"),
    ("head -3", "head -n 3"),
    ("head -n 0", "head -n 0"),
    ("head -c 100000", "head -c 100000"),
    ("tail", "tail"),
    ("tail -3", "tail -n 3"),
    ("tail -n 0", "tail -n 0"),
    ("tail -c 100000", "tail -c 100000"),
    ("uniq", "uniq"),
    ("uniq -c", "uniq -c"),
    ("uniq -d", "uniq -d"),
    ("uniq -u", "uniq -u"),
    ("cut -f 2", "cut -f 2"),
    ("cut -f 3,1-2 -s", "cut -f 3,1-2 -s"),
    ("cut -d ' ' -f 2-", "cut -d ' ' -f 2-"),
    ("cut -b 2-4,7-", "cut -b 2-4,7-"),
    ("tac", "tac"),
    ("tac | tac", "tac | tac"),
    ("charset latin1 | charset utf-8 latin1 | wc -c", "wc -c"),
    ("nl", "nl -w 6"),
    ("replace a+ '<$0>'", "sed -E 's/a+/<&/g; s/<(a+)/<\\1>/g'"),
    ("sort", "sort"),
    ("sort -r", "sort -r"),
    ("sort -n", "sort -n"),
    ("sort -u", "sort -u"),
    ("sort -n -u -r", "sort -nur"),
    ("wc", "wc"),
    ("wc -l", "wc -l"),
    ("wc -w", "wc -w"),
    ("wc -c", "wc -c"),
    ("wc -l -c", "wc -lc"),
    ("base64", "base64"),
    ("base64 | base64 -d", "cat"),
    ("hex", "od -An -v -tx1 | tr -d ' \\n'"),
    ("hex | upper | hex -d", "cat"),
    ("sha256", "sha256sum | cut -d ' ' -f 1"),
    ("sum", "sum"),
    ("sum -s", "sum -s"),
    ("blake3", "b3sum --no-names"),
    ("gzip | gzip -d", "cat"),
    ("zstd -19 | zstd -d", "cat"),
    ("xz -1 | xz -d", "cat"),
    ("bzip2 | bzip2 -d", "cat"),
    ("lz4 | lz4 -d", "cat"),
];

#[test]
fn stages_do_what_the_standard_tools_do() {
    for (network, command) in SAME {
        // What is a word among bytes that cannot be printed, not all versions of wc(1) agree on.
        let counts_words = matches!(*network, "wc" | "wc -w");
        let is_plain = |input: &Vec<u8>| input.iter().all(|byte| matches!(byte, b'\n' | b'\t' | b' '..=b'~'));
        for input in nasty().into_iter().filter(|input| !counts_words || is_plain(input)) {
            let Some(expected) = shell(command, &input) else { break };
            for lengths in [&[65_536][..], &[1, 1000, 7, 65_000]] {
                let made = run(network, &input, lengths).expect("it runs");
                let shown = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned();
                assert!(
                    made == expected,
                    "'{network}' of {:?}: {:?}, not {:?}",
                    shown(&input),
                    shown(&made),
                    shown(&expected)
                );
            }
        }
    }
}

#[test]
fn what_one_side_compresses_the_other_reads() {
    for (stage, tool) in [("gzip", "gzip"), ("zstd", "zstd"), ("xz", "xz"), ("bzip2", "bzip2"), ("lz4", "lz4 -q")] {
        for input in nasty() {
            let compressed = run(stage, &input, &[65_536]).expect("it runs");
            let Some(back) = shell(&format!("{tool} -dc"), &compressed) else { break };
            assert!(back == input, "{tool} reads what {stage} makes");
            let theirs = shell(&format!("{tool} -c"), &input).expect("it is there");
            // Several streams one after the other are one.
            let twice = run(&format!("{stage} -d"), &theirs.repeat(2), &[1, 999, 70_000]).expect("it runs");
            assert!(twice == input.repeat(2), "{stage} reads what {tool} makes");
        }
    }
}

#[test]
fn text_is_encoded_anew() {
    let run = |network: &str, input: &[u8]| run(network, input, &[1]).map_err(|error| error.to_string());
    let text = "größer, 東京, \u{1f600}\n".as_bytes();
    for name in ["utf-16le", "utf-16be"] {
        let theirs = shell(&format!("iconv -f utf-8 -t {name}"), text).expect("iconv");
        assert_eq!(run(&format!("charset {name}"), &theirs), Ok(text.to_vec()));
    }
    for name in ["shift_jis", "euc-jp", "gb18030"] {
        let text = "東京 abc\n".as_bytes();
        let theirs = shell(&format!("iconv -f utf-8 -t {name}"), text).expect("iconv");
        assert_eq!(run(&format!("charset utf-8 {name}"), text), Ok(theirs.clone()));
        assert_eq!(run(&format!("charset {name}"), &theirs), Ok(text.to_vec()));
    }
    assert_eq!(run("charset utf-8", b"ok \xff"), Err("charset utf-8: what ends at byte 4 is not UTF-8".into()));
    assert_eq!(run("charset utf-8", b"cut \xe2\x82"), Err("charset utf-8: what ends at byte 6 is not UTF-8".into()));
    assert_eq!(run("charset -r utf-8", b"a\xffb"), Ok("a\u{fffd}b".into()));
    assert_eq!(
        run("charset utf-8 latin1", "東".as_bytes()),
        Err("charset utf-8 latin1: windows-1252 has no '東'".into())
    );
    assert_eq!(run("charset -r utf-8 latin1", "é東".as_bytes()), Ok(b"\xe9&#26481;".to_vec()));
    assert_eq!(run("charset utf-8", b""), Ok(vec![]));
    assert_eq!(
        Network::parse("charset utf-8 utf-16").unwrap_err().to_string(),
        "nothing is written in UTF-16LE, at byte 14"
    );
    assert_eq!(run("newline unix", b"a\r\nb\n\r\nc\r\r\nd\r"), Ok(b"a\nb\n\nc\r\nd\r".to_vec()));
    assert_eq!(run("newline dos", b"a\r\nb\n\nc"), Ok(b"a\r\nb\r\n\r\nc".to_vec()));
    assert_eq!(run("rev", "öä1\nab".as_bytes()), Ok("1äö\nba".into()));
}

#[test]
fn damaged_data_is_an_error_and_never_wrong_bytes() {
    let input = b"something to compress ".repeat(50);
    for stage in ["gzip", "zstd", "xz", "bzip2", "lz4"] {
        let back = format!("{stage} -d");
        let compressed = run(stage, &input, &[1000]).expect("it runs");
        let error = |bytes: &[u8]| run(&back, bytes, &[1000]).expect_err("it is damaged").to_string();
        for cut in [1, 5, compressed.len() / 2, compressed.len() - 1] {
            assert!(error(&compressed[..cut]).starts_with(&back), "cut at {cut}");
        }
        assert!(error(&[&compressed[..], b"garbage"].concat()).starts_with(&back));
        assert!(error(b"this is not compressed").starts_with(&back));
        for bit in 0..compressed.len() * 8 {
            let mut damaged = compressed.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            if let Ok(made) = run(&back, &damaged, &[1000]) {
                // Bits that mean nothing, such as the time in gzip's head; zstd has no checksum
                // here.
                assert!(made == input || stage == "zstd", "{stage}, bit {bit}");
            }
        }
    }
    assert!(run("hex -d", b"0g", &[9]).is_err() && run("hex -d", b"0", &[9]).is_err());
    assert!(run("base64 -d", b"YQ==Y", &[9]).is_err() && run("base64 -d", b"Y", &[9]).is_err());
}

/// JSON that is easily read wrong.
const JSON: &[u8] = b"{\"b\":1,\"a\":{\"c\":[10,{\"d\":\"x\\ty\"}]},\"e\":\"\\u00e9\"}\n\n[1,2]\n\"text\"\nnull\n{\"a\":{}} \n{\"a\":null,\"b\":[]}";

#[test]
fn json_is_picked_and_laid_out_as_by_jq() {
    for (network, command) in [
        ("json-format", "jq ."),
        ("json-format -c", "jq -c ."),
        ("json-select .b", "jq -c '.b?'"),
        ("json-select '.a.c[1].d' .b", "jq -c '[.a.c[1].d, .b]'"),
        ("json-select -r '.a.c[1].d'", "jq -r '.a.c[1].d'"),
        ("json-select '.a.c[0]' '.a.c.[1]'", "jq -c '[.a.c[0], .a.c[1]]'"),
    ] {
        // What jq refuses, such as a field of a list, is null here: it is given objects alone.
        let objects = JSON
            .split_inclusive(|byte| *byte == b'\n')
            .filter(|line| line.starts_with(b"{"))
            .collect::<Vec<_>>()
            .concat();
        let Some(expected) = shell(command, &objects) else { break };
        assert_eq!(String::from_utf8(run(network, &objects, &[3]).unwrap()), String::from_utf8(expected), "{network}");
    }
    let exact = b"{\"n\":12345678901234567890123.50}\n";
    assert_eq!(run("json-format -c", exact, &[5]).unwrap(), exact);
    let error = run("json-format", b"1\n{\n", &[9]).unwrap_err().to_string();
    assert!(error.starts_with("json-format: line 2 is no JSON value"), "{error}");
    assert!(run("json-select .a", "[".repeat(100_000).as_bytes(), &[9999]).is_err());
}

#[test]
fn tables_become_objects_and_objects_tables() {
    let table = b"name,said\nAnn,\"a \"\"b\"\", c\nand more\"\n\"\",\xc3\xa9\n";
    let objects = "{\"name\":\"Ann\",\"said\":\"a \\\"b\\\", c\\nand more\"}\n{\"name\":\"\",\"said\":\"é\"}\n";
    assert_eq!(String::from_utf8(run("csv-json", table, &[4]).unwrap()).unwrap(), objects);
    let again = table[..table.len() - 7].to_vec();
    assert_eq!(run("csv-json | json-csv", table, &[4]).unwrap(), [&again[..], b"\n,\xc3\xa9\n"].concat());
    let python = "python3 -c 'import csv,json,sys; [print(json.dumps(r, ensure_ascii=False, separators=(\",\", \":\"))) for r in csv.DictReader(open(0, newline=\"\", encoding=\"utf-8\"))]'";
    assert_eq!(shell(python, table).map(String::from_utf8), Some(Ok(objects.into())));
    let objects = b"{\"b\":1,\"a\":[2,{}],\"c\":null}\n{\"a\":\"x\\ty\",\"d\":true}\n";
    assert_eq!(
        run("json-csv -d '\\t' c a d", objects, &[7]).unwrap(),
        b"c\ta\td\n\t[2,{}]\t\n\t\"x\ty\"\ttrue\n".as_slice()
    );
    assert_eq!(run("json-csv", objects, &[7]).unwrap(), b"b,a,c\n1,\"[2,{}]\",\n,x\ty,\n");
    assert!(run("csv-json", b"a,b\n1,2,3\n", &[9]).is_err() && run("json-csv", b"[1]\n", &[9]).is_err());
    assert!(run("csv-json", b"a,b\n\xff,2\n", &[9]).is_err());
}

#[test]
fn members_of_archives_are_what_their_programs_made_them_of() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let long = format!("{}/{}", "d".repeat(120), "f".repeat(120));
    let files =
        [("a", b"first\n".repeat(5000)), ("sub/b", nasty().concat()), (&long, b"long".to_vec()), ("empty", vec![])];
    for (path, content) in &files {
        std::fs::create_dir_all(at.join(path).parent().expect("one")).expect("made");
        std::fs::write(at.join(path), content).expect("written");
    }
    let home = at.display();
    for (stage, pack) in [
        ("tar", "tar -cf - --format=gnu ."),
        ("tar", "tar -cf - --format=pax ."),
        ("zip", "zip -q -r - ."),
        ("zip", "zip -q -0 -r - ."),
    ] {
        let archive = shell(&format!("sh -c \"cd '{home}' && {pack}\""), b"");
        let Some(archive) = archive.filter(|archive| !archive.is_empty()) else { continue };
        for (path, content) in &files {
            let made = run(&format!("{stage} member '{path}'"), &archive, &[5000, 70_000]);
            assert!(made.expect("it is there") == *content, "{pack}: {path}");
        }
        let listed =
            run(&format!("{stage} list | grep -v '/$' | replace '^\\./' '' | sort"), &archive, &[999]).unwrap();
        let mut names: Vec<String> = files.iter().map(|(path, _)| format!("{path}\n")).collect();
        names.sort();
        assert_eq!(String::from_utf8(listed).unwrap(), names.concat(), "{pack}");
        assert!(run(&format!("{stage} member nothing"), &archive, &[9999]).is_err());
        for cut in [10, 600, archive.len() / 2] {
            let made = run(&format!("{stage} member sub/b"), &archive[..cut], &[9999]);
            let is_right = |bytes: Vec<u8>| stage == "tar" && bytes == files[1].1;
            assert!(made.ok().is_none_or(is_right), "{pack} cut at {cut}");
        }
    }
}

#[test]
fn streams_are_forked_and_joined() {
    let input = b"b 2\na 1\nc 3\nb 2";
    let run = |network: &str| String::from_utf8(run(network, input, &[5]).expect("it runs")).expect("text");
    assert_eq!(run("tee(grep b, wc -l) | concat"), "b 2\nb 2\n3\n");
    assert_eq!(run("concat(head -1, $1 | tail -1, upper | head -1)"), "b 2\nb 2B 2\n");
    assert_eq!(
        run("merge(sort, $1 | sort | upper) | uniq -c"),
        "      1 A 1\n      2 B 2\n      1 C 3\n      1 a 1\n      2 b 2\n      1 c 3\n"
    );
    assert_eq!(run("interleave(cut -d ' ' -f 1, cut -d ' ' -f 2 | head -2)"), "b\n2\na\n1\nc\nb\n");
    assert_eq!(run("sort | zip(cut -d ' ' -f 2, grep b)"), "1\tb 2\n2\tb 2\n2\t\n3\t\n");
    assert_eq!(run("zip(nl, concat(head -1, merge(identity, grep x))) | head -1"), "     1\tb 2\tb 2\n");
    assert_eq!(run("concat(gzip, zstd) | wc -l | grep x"), "");
}

#[test]
fn a_stream_that_is_read_twice_needs_little_memory() {
    let network = Network::parse("concat(wc -c, wc -l)").expect("a network");
    let many = || Pieces::new(&b"line\n".repeat(8_000_000), &[65_536]);
    assert_eq!(run_on(&network, many).expect("it runs"), b"40000000\n8000000\n");
    let network = Network::parse("concat(identity, tail -1)").expect("a network");
    let made = run_on(&network, many).expect("it runs");
    assert!(made.len() == 40_000_005 && made.ends_with(b"line\nline\n"));
}

/// Never ends.
struct Endless(u64);

impl Source for Endless {
    fn next(&mut self) -> io::Result<Option<Slice>> {
        self.0 += 1;
        assert!(self.0 < 100, "nobody needs so much");
        Ok(Some(Slice::from(b"line\n".repeat(1000))))
    }
}

#[test]
fn who_has_enough_stops_those_before() {
    for network in
        ["head -2", "upper | head -2", "zstd | zstd -d | grep line | head -2", "grep -m 2 line", "nl | head -c 12"]
    {
        run_on(&Network::parse(network).expect("a network"), || Endless(0)).expect("it ends");
    }
}

#[test]
fn the_first_bytes_come_before_the_last_are_read() {
    let network = Network::parse("upper | grep LINE | zstd -d").expect("a network");
    let compressed = run("zstd", &b"never read".repeat(9), &[99]).expect("it runs");
    drop((network, compressed));
    let network = Network::parse("upper | grep LINE | nl").expect("a network");
    let mut run = Run::start(&network, &mut Given(|| Endless(97))).expect("it starts");
    assert!(run.next().expect("bytes").expect("it runs").slices()[0].starts_with(b"     1\tLINE\n"));
}

/// Stages that a shell knows by the same words.
fn piped() -> impl Strategy<Value = (String, String)> {
    let one = prop::sample::select(
        &[
            ("grep a", "grep -a a"),
            ("grep -v b", "grep -av b"),
            ("sort", "sort"),
            ("uniq -c", "uniq -c"),
            ("head -7", "head -n 7"),
            ("tail -5", "tail -n 5"),
            ("cut -f 1,3", "cut -f 1,3"),
            ("tr ab xy", "tr ab xy"),
            ("upper", "tr a-z A-Z"),
            ("gzip | gzip -d", "gzip | gzip -d"),
            ("base64", "base64"),
            ("nl", "nl -w 6"),
            ("wc", "wc"),
            ("identity", "cat"),
        ][..],
    );
    proptest::collection::vec(one, 1..6).prop_map(|stages| {
        let joined = |pick: fn(&(&str, &str)) -> String| stages.iter().map(pick).collect::<Vec<_>>().join(" | ");
        (joined(|(network, _)| (*network).into()), joined(|(_, command)| (*command).into()))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn networks_do_what_pipelines_do((network, command) in piped(), input in "([ab\tx]{0,9}\n){0,40}[ab]{0,3}", cut in 1usize..99) {
        let made = run(&network, input.as_bytes(), &[cut]).expect("it runs");
        prop_assert_eq!(String::from_utf8_lossy(&made).into_owned(), String::from_utf8_lossy(&shell(&command, input.as_bytes()).expect("tools")).into_owned());
    }

    #[test]
    fn what_is_undone_is_as_before(stages in proptest::collection::vec(prop::sample::select(&["increment 7", "xor 99", "rot13", "gzip", "zstd", "hex", "base64", "identity", "xz -0", "bzip2", "lz4"][..]), 1..5), input: Vec<u8>) {
        // What is compressed is text again only as text.
        let network = Network::parse(&stages.join(" | ")).expect("a network");
        let made = run_on(&network, || Pieces::new(&input, &[100])).expect("it runs");
        let back = run_on(&network.inverse().expect("all can be undone"), || Pieces::new(&made, &[77])).expect("it runs");
        prop_assert_eq!(back, input.clone());
        let unfused = run_on(&network.clone().unfused(), || Pieces::new(&input, &[100])).expect("it runs");
        prop_assert_eq!(unfused, made);
    }
}

#[test]
fn networks_that_make_no_sense_are_refused_with_the_place() {
    let error = |text: &str| Network::parse(text).expect_err("refused").to_string();
    assert_eq!(error("cat"), "there is no stage 'cat' ('identity' does that), at byte 0");
    assert_eq!(error("zstd | grep x"), "grep works on text, and what it gets is compressed, at byte 7");
    assert_eq!(
        error("csv-json | xz | json-select .a"),
        "json-select works on lines of JSON, and what it gets is compressed, at byte 16"
    );
    assert_eq!(
        error("csv-json | sha256 | json-format"),
        "json-format works on lines of JSON, and what it gets is a digest or encoded, at byte 20"
    );
    assert_eq!(
        error("merge(base64, hex) | json-csv"),
        "json-csv works on lines of JSON, and what it gets is a digest or encoded, at byte 21"
    );
    assert_eq!(error("upper | increment 300"), "'300' is not a number from 0 to 255, at byte 18");
    assert!(error("grep '('").ends_with("at byte 5") && error("grep '('").contains("is no regular expression"));
    assert_eq!(error("zstd -20"), "zstd has levels from 1 to 19, at byte 5");
    assert_eq!(error("cut"), "give fields (-f LIST) or bytes (-b LIST), at byte 0");
    assert_eq!(error("tr z-a x"), "'z-a': a range goes upwards, at byte 3");
    assert_eq!(
        error("merge(a)"),
        "there is no stage 'a' ('weft stages' lists them, and exec runs any command), at byte 6"
    );
    assert_eq!(error("merge(upper, gzip)"), "merge works on text, and what it gets is compressed, at byte 0");
    assert_eq!(error("upper(sort)"), "'upper' joins nothing: concat, interleave, merge and zip do, at byte 0");
    assert_eq!(error("tee(sort, wc) | sort"), "'sort' joins nothing: concat, interleave, merge and zip do, at byte 16");
    assert!(Network::parse("concat(sort, wc)").expect("a network").inverse().is_none());
    assert!(Network::parse("zstd | xz | base64 | grep a").is_ok());
    let gives = |text: &str| Network::parse(text).expect("a network").gives().name();
    assert_eq!(
        (gives("csv-json | sort | grep a | uniq | head -3"), gives("csv-json | cut -b 1-3")),
        ("records", "lines")
    );
    assert_eq!((gives("merge(csv-json, json-format -c)"), gives("zip(csv-json, csv-json)")), ("records", "lines"));
    assert_eq!(
        (gives("json-select .a"), gives("json-select .a .b"), gives("json-select -r .a")),
        ("records", "records", "lines")
    );
    assert_eq!(
        (gives("gzip"), gives("gzip | gzip -d"), gives("csv-json | rev | tac")),
        ("compressed bytes", "bytes", "lines")
    );
    assert!(Network::parse("grep a").expect("a network").inverse().is_none());
}

#[test]
fn commands_are_stages_and_what_becomes_of_them_is_told() {
    let long: Vec<u8> = (0..400_000u32).flat_map(|number| format!("{number}\n").into_bytes()).collect();
    let text = |network: &str| run(network, &long, &[70_000]).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert_eq!(run("exec cat", &long, &[70_000]).unwrap(), long);
    assert_eq!(text("exec 'grep 99' | exec 'wc -l'").unwrap(), text("grep 99 | wc -l").unwrap());
    // It may end before it has read all, and leave others behind.
    assert_eq!(text("exec 'head -1; sleep 1000 >/dev/null 2>&1 &'").unwrap(), "0\n");
    assert_eq!(text("exec true").unwrap(), "");
    assert_eq!(text("exec 'seq 1 100000000' | head -2").unwrap(), "1\n2\n");
    let error = |network: &str| text(network).expect_err("it fails").to_string();
    assert_eq!(
        error("exec 'echo one >&2; echo two >&2; exit 3'"),
        "exec 'echo one >&2; echo two >&2; exit 3': it ended with exit status: 3: two"
    );
    assert!(error("exec 'cat; kill -SEGV $$'").contains("signal: 11"));
    assert!(error("exec nothing-of-the-kind").contains("exit status: 127"));
    for idle in ["exec -t 1 'sleep 1000'", "exec -t 1 'exec >&-; sleep 1000'"] {
        assert!(error(idle).ends_with("it has done nothing for 1 seconds"), "{idle}: {}", error(idle));
    }
    // It has no more than it needs.
    assert_eq!(text("exec 'echo $HOME$SECRET; pwd; ulimit -c; ulimit -v'").unwrap(), "\n/\n0\n2097152\n");
}

#[test]
fn what_is_interrupted_goes_on_where_it_was() {
    use std::cell::Cell;
    use weft_transform::interrupt;
    let lines: Vec<u8> =
        (0..30_000u32).flat_map(|number| format!("{}\n", number * 7919 % 30_011).into_bytes()).collect();
    let source = || Pieces::new(&lines, &[1000, 1, 7000, 333]);
    for text in [
        "sort | uniq -c | rev",
        "zip(identity, tac | gzip | gzip -d, wc -l)",
        "interleave(head -n 5000, upper, gzip | gzip -d | tail -n 7)",
        "merge(sort, sort | gzip | gzip -d) | sha256",
        "concat(tr 0-9 a-j, base64) | exec 'cat; echo end' | xz | xz -d",
    ] {
        let network = Network::parse(text).expect("a network");
        let expected = run_on(&network, source).expect("it runs");
        let (asked, given) = (std::rc::Rc::new(Cell::new(0u32)), &mut Given(source));
        let counter = asked.clone();
        let is_interrupted = move || {
            counter.set(counter.get() + 1);
            // A chain of a few stages gets through in between.
            counter.get() % 7 == 0
        };
        let (made, times) = interrupt::during(is_interrupted, || {
            let (mut made, mut times) = (Vec::new(), 0);
            for rope in Run::start(&network, given).expect("it begins") {
                match rope {
                    Ok(rope) => made.extend(rope.to_vec()),
                    Err(RunError::Interrupted) => times += 1,
                    Err(error) => panic!("{text}: {error}"),
                }
            }
            (made, times)
        });
        assert!(
            made == expected && times > 0,
            "{text}: {} bytes of {}, interrupted {times} times",
            made.len(),
            expected.len()
        );
    }
}

/// True if a process of this machine has these words.
fn is_running(words: &str) -> bool {
    let processes = std::fs::read_dir("/proc").expect("a directory");
    let says = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
    let mut said = processes.filter_map(Result::ok).map(says);
    said.any(|said| said.split(|byte| *byte == 0).collect::<Vec<_>>().join(&b' ').starts_with(words.as_bytes()))
}

#[test]
fn nothing_that_a_command_starts_outlives_it_or_is_waited_for() {
    let text = |network: &str| run(network, b"abc\n", &[4]).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    // Each keeps the pipes, in a session of its own.
    assert_eq!(text("exec 'setsid sleep 99173 & cat'").unwrap(), "abc\n");
    assert_eq!(text("exec '(setsid sh -c \"sleep 99173; :\" &) ; echo a; exit 0'").unwrap(), "a\n");
    let error =
        text("exec -t 1 'trap \"\" TERM HUP; setsid nohup sleep 99173'").expect_err("it does nothing").to_string();
    assert!(error.ends_with("nothing for 1 seconds"), "{error}");
    // Nobody reads on.
    assert_eq!(text("exec 'setsid sleep 99173 & cat /dev/zero | tr \"\\0\" \"\\n\"' | head -1").unwrap(), "\n");
    while is_running("sleep 99173") {
        std::thread::yield_now();
    }
}

#[test]
fn a_command_reaches_neither_the_network_nor_other_processes() {
    let text = |network: &str| run(network, b"", &[1]).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let own = std::process::id();
    for (command, expected) in [
        // Of a network there is what leads nowhere.
        ("grep -cv Iface /proc/net/route; true".to_owned(), "0\n"),
        // It sees its own processes.
        (format!("test -e /proc/{own} || test -e /proc/$$ && echo own"), "own\n"),
        ("unshare -r true 2>&1 | grep -c 'not permitted'".into(), "1\n"),
        ("unshare -n true 2>&1 | grep -c 'not permitted'".into(), "1\n"),
        // It is told of no mounts by statmount(2) and listmount(2), whose arguments would be bad.
        (
            "for n in 457 458; do perl -e 'syscall(shift()+0, 0, 0, 0, 0); print 0+$!' $n || echo -n 1; done".into(),
            "11",
        ),
        // No capabilities, none to be had, no privileges to be gained, and filters.
        ("grep -cE '^(Cap(Inh|Prm|Eff|Bnd|Amb):.0{16}|NoNewPrivs:.1|Seccomp:.2)$' /proc/self/status".into(), "7\n"),
        ("kill -9 1; kill -9 -1; echo a".into(), ""),
    ] {
        let network = format!("exec {}", quoted(&command));
        let given = text(&network);
        assert!(given.as_ref().is_ok_and(|given| given == expected) || expected.is_empty(), "{command}: {given:?}");
    }
    let limit = text("exec 'grep \"Max processes\" /proc/self/limits | tr -s \" \" | cut -d \" \" -f 3'").unwrap();
    assert!(limit.trim().parse::<u64>().unwrap() <= 512, "{limit}");
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[test]
fn age_reads_what_was_encrypted_and_what_it_encrypts_is_read() {
    /// Bytes, and a key called `key`.
    struct WithKey(Vec<u8>, Vec<u8>);
    impl Sources for WithKey {
        fn input(&mut self) -> io::Result<Box<dyn Source>> {
            Ok(Box::new(Pieces::new(&self.0, &[10_000])))
        }

        fn file(&mut self, _: usize) -> io::Result<Box<dyn Source>> {
            Err(io::ErrorKind::NotFound.into())
        }

        fn key(&mut self, _: &str) -> io::Result<Vec<u8>> {
            Ok(self.1.clone())
        }
    }
    let run = |network: &str, input: &[u8], key: &[u8]| -> Vec<u8> {
        let mut given = WithKey(input.to_vec(), key.to_vec());
        let run = Run::start(&Network::parse(network).expect("a network"), &mut given).expect("begins");
        run.flat_map(|rope| rope.expect("goes on").to_vec()).collect()
    };
    let Some(keys) = shell("age-keygen", b"").filter(|keys| !keys.is_empty()) else { return };
    let Some(others) = shell("age-keygen", b"") else { return };
    let place = tempfile::tempdir().expect("a directory");
    let (mine, theirs) = (place.path().join("mine"), place.path().join("theirs"));
    std::fs::write(&mine, &keys).expect("written");
    std::fs::write(&theirs, &others).expect("written");
    for bytes in nasty() {
        let encrypted = run("encrypt key", &bytes, &keys);
        assert!(shell(&format!("age -d -i {}", mine.display()), &encrypted).expect("there is age") == bytes);
        // One of several who may read it.
        let (theirs, mine) = (theirs.display(), mine.display());
        let command = format!("age -r $(age-keygen -y {theirs}) -r $(age-keygen -y {mine})");
        let encrypted = shell(&command, &bytes).expect("there is age");
        assert!(run("decrypt key", &encrypted, &keys) == bytes);
        assert!(run("decrypt key", &encrypted, &[others.clone(), keys.clone()].concat()) == bytes);
    }
}
