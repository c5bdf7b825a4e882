//! `weft cat`, `wc`, `sum`, `permute` and `pipe`, against the machine's own programs.

use crate::place::Place;
use std::fs::{self, File};
use std::process::{Command, Output, Stdio};

/// Runs `command` in `place`, with the content of `input` before it.
fn run(place: &Place, command: &[&str], input: Option<&str>) -> Output {
    let program = if command[0] == "weft" { env!("CARGO_BIN_EXE_weft") } else { command[0] };
    let input = input.map_or(Stdio::null(), |input| File::open(place.path(input)).unwrap().into());
    let mut process = Command::new(program);
    process.args(&command[1..]).env("LC_ALL", "C").current_dir(place.path(".")).stdin(input);
    process.output().expect("it runs")
}

fn said(output: &Output) -> (String, String, Option<i32>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

#[test]
fn programs_print_what_those_of_the_machine_do() {
    let place = Place::new();
    let lines: String = (0..50_000).map(|number| format!("{number} some\twords  in a line\u{b}\n")).collect();
    for (name, content) in [("text", lines.as_bytes()), ("empty", b""), ("no end", b"a b\nc d"), ("tiny", b"\n")] {
        fs::write(place.path(name), content).unwrap();
    }
    fs::create_dir(place.path("directory")).unwrap();
    let cases: [(&str, &[&str], Option<&str>); 20] = [
        ("wc", &["text"], None),
        ("wc", &["text", "empty", "no end"], None),
        ("wc", &["-l", "text"], None),
        ("wc", &["-l", "text", "tiny"], None),
        ("wc", &["-wc", "tiny"], None),
        ("wc", &["-c", "-l", "-w", "no end", "nothing", "text"], None),
        ("wc", &["directory", "text"], None),
        ("wc", &[], Some("text")),
        ("wc", &["-"], Some("no end")),
        ("wc", &["-w"], Some("text")),
        ("wc", &["/dev/null"], None),
        ("sum", &["text"], None),
        ("sum", &["text", "empty", "nothing", "no end"], None),
        ("sum", &["-s", "text", "tiny"], None),
        ("sum", &[], Some("text")),
        ("sum", &["-s", "-"], Some("no end")),
        ("cat", &["text", "-", "tiny"], Some("no end")),
        ("cat", &[], Some("text")),
        ("cat", &["nothing", "tiny"], None),
        ("cat", &["directory"], None),
    ];
    for (program, arguments, input) in cases {
        let theirs = said(&run(&place, &[&[program], arguments].concat(), input));
        let ours = said(&run(&place, &[&["weft", program], arguments].concat(), input));
        let errors = theirs.1.replace(&format!("{program}: "), &format!("weft {program}: "));
        assert_eq!(ours, (theirs.0, errors, theirs.2), "{program} {arguments:?}");
    }
}

#[test]
fn grep_prints_what_the_machines_does() {
    let place = Place::new();
    let lines: String = (0..40_000).map(|number| format!("line {number} of {}\n", number * 7919 % 1000)).collect();
    let long = format!("{}x\nshort\n{}", "y".repeat(700_000), "z".repeat(300_000));
    for (name, content) in [
        ("lines", lines.as_bytes()),
        ("empty", b""),
        ("ends", b"a\n\nb a\nA b\na"),
        ("long", long.as_bytes()),
        ("binary", b"text\n\0a\nb\n"),
    ] {
        fs::write(place.path(name), content).unwrap();
    }
    fs::create_dir(place.path("directory")).unwrap();
    let cases: &[&[&str]] = &[
        &["99", "lines"],
        &["-c", "99", "lines", "empty"],
        &["-n", "^line 39..9 ", "lines"],
        &["-v", "-n", "[0-8]$", "lines"],
        &["-vc", "of 1", "lines"],
        &["-o", "[0-9]+", "lines"],
        &["-on", "1.1", "lines", "ends"],
        &["-ho", "1.1", "lines", "ends"],
        &["a", "ends"],
        &["-i", "a", "ends"],
        &["-in", "A$", "ends"],
        &["-v", "a", "ends"],
        &["-c", "", "ends"],
        &["-n", "^$", "ends"],
        &["-vn", "^$", "ends"],
        &["a\\s*b", "ends"],
        &["-v", "a\\s+b", "ends"],
        &["-H", "short", "long"],
        &["-c", "x$", "long"],
        &["-cv", "x", "long"],
        &["a", "binary"],
        &["-c", "a", "binary"],
        &["nothing like that", "lines"],
        &["a", "ends", "nothing", "empty"],
        &["a", "directory", "ends"],
        &["a", "-", "ends"],
        &["-n", "a"],
    ];
    for arguments in cases {
        let theirs = said(&run(&place, &[&["grep", "-E"], *arguments].concat(), Some("ends")));
        let ours = said(&run(&place, &[&["weft", "grep"], *arguments].concat(), Some("ends")));
        let named = |text: &str| text.replace("grep: ", "weft grep: ");
        assert_eq!(ours, (named(&theirs.0), named(&theirs.1), theirs.2), "{arguments:?}");
    }
    let only_regex = said(&run(&place, &["weft", "grep", "-n", r"\Ab|A b\z", "ends"], None));
    assert_eq!(only_regex, ("3:b a\n4:A b\n".into(), String::new(), Some(0)));
    place.weft(&["grep", "(", "ends"]).misused(&["no regular expression"]);
}

#[test]
fn every_order_of_words_is_printed_once() {
    let place = Place::new();
    let all = place.weft(&["permute", "-w", "2", "aabbcc"]).well();
    assert_eq!(all, "aabbccaaccbbbbaaccbbccaaccaabbccbbaa");
    assert_eq!(place.weft(&["permute", "one word"]).well(), "one word");
    place.weft(&["permute", "not a number of words"]).misused(&["1 to 16 parts of 8 bytes"]);
    let counted =
        place.weft(&["pipe", "permute '11111111222222223333333344444444555555556666666677777777' | wc -c"]).well();
    assert_eq!(counted, format!("{}\n", 5040 * 56));
}

#[test]
fn stages_and_commands_are_joined() {
    let place = Place::new();
    fs::write(place.path("a file"), "b\na\n").unwrap();
    fs::write(place.path("other"), "c|d\n").unwrap();
    let pipe = |text: &str| {
        let output = run(&place, &["weft", "pipe", text], Some("other"));
        let (out, error, code) = said(&output);
        assert_eq!((error.as_str(), code), ("", Some(0)), "{text}");
        out
    };
    assert_eq!(pipe("cat 'a file' other | upper | sort"), "A\nB\nC|D\n");
    assert_eq!(pipe("upper"), "C|D\n");
    assert_eq!(pipe("cat | grep 'c|d' | wc -l"), "1\n");
    assert_eq!(pipe("printf 'x\\ny\\n' | sed s/x/z/ | upper | tac | awk '{print $1 \"|\"}' | cat -"), "Y|\nZ|\n");
    assert_eq!(pipe("ls | cat other | wc -l | sed p"), "1\n1\n");
    assert_eq!(pipe("yes | head -3 | wc -l"), "3\n");
    assert_eq!(pipe("cat 'a file' | concat(upper, lower) | tail -1 | od -c | head -1"), "0000000   a  \\n\n");
    // A reader that has seen enough ends all before it.
    assert_eq!(
        pipe(
            "permute 111111112222222233333333444444445555555566666666777777778888888899999999 | dd bs=4 count=1 2>/dev/null"
        ),
        "1111"
    );
    for (text, says) in [
        ("ls", "a shell joins ordinary commands"),
        ("cat other | | wc", "nothing stands at place 2"),
        ("cat nothing | wc", "cannot read nothing"),
        ("cat other | uppper", "the command 'uppper' ended with exit status: 127"),
        ("false | wc", "the command 'false' ended with exit status: 1"),
        ("cat other | upper -x", "has no option -x"),
        ("cat other | concat($1)", "weft run"),
    ] {
        let (out, error, code) = said(&run(&place, &["weft", "pipe", text], None));
        assert!(error.contains(says) && code != Some(0), "{text}: {out} {error}");
    }
}
