//! Help, completions and manual pages, made from one definition.

use crate::place::Place;

const COMMANDS: &[&str] = &[
    "init",
    "mount",
    "umount",
    "info",
    "check",
    "convert",
    "import",
    "export",
    "stats",
    "bench",
    "completions",
    "man",
];

#[test]
fn every_command_is_in_the_help_and_has_help_and_a_manual_page() {
    let place = Place::new();
    place.directory("pages");
    place.weft(&["man", "--dir", "pages"]).well();
    let help = place.weft(&["--help"]).well();
    for command in COMMANDS {
        assert!(help.lines().any(|line| line.trim_start().starts_with(command)), "{command}");
        assert!(place.weft(&[command, "--help"]).well().contains("Usage: weft"));
        assert!(place.path(format!("pages/weft-{command}.1")).is_file(), "{command}");
    }
    assert!(place.weft(&["man"]).well().starts_with(".ie"));
}

#[test]
fn completions_know_the_commands() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.weft(&["completions", shell]).well();
        assert!(COMMANDS.iter().all(|command| script.contains(command)), "{shell}");
    }
}
