//! The units of systemd in `docs/guide/start-at-boot.md`.

use crate::place::Place;
use std::process::Command;

/// Names and texts of the units.
fn units() -> Vec<(String, String)> {
    let page = include_str!("../../../../docs/guide/start-at-boot.md");
    let mut units: Vec<(String, String)> = Vec::new();
    let mut is_in_one = false;
    for line in page.lines() {
        if let Some(name) = line.strip_prefix("    # /etc/systemd/system/") {
            units.push((name.into(), String::new()));
            is_in_one = true;
        } else if !line.is_empty() && !line.starts_with("    ") {
            is_in_one = false;
        } else if is_in_one {
            let (_, text) = units.last_mut().unwrap();
            text.extend([line.trim_start(), "\n"]);
        }
    }
    units
}

#[test]
fn units_in_the_documents_are_what_systemd_takes() {
    let units = units();
    assert_eq!(units.iter().map(|(name, _)| &name[..]).collect::<Vec<_>>(), ["mnt-photos.mount", "photos-nfs.service"]);
    let place = Place::new();
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]).current_dir(place.path(""));
    for (name, text) in units {
        let text = text.replace("/usr/local/bin/weft", env!("CARGO_BIN_EXE_weft"));
        std::fs::write(place.path(&name), text).unwrap();
        verify.arg(format!("./{name}"));
    }
    match verify.output() {
        Err(error) => eprintln!("SKIPPED units_in_the_documents_are_what_systemd_takes: systemd-analyze: {error}"),
        Ok(verified) => {
            let told = String::from_utf8_lossy(&verified.stderr);
            assert!(verified.status.success() && !told.contains("photos"), "{told}");
        }
    }
}

#[test]
fn the_server_of_the_unit_is_one_that_weft_takes() {
    let (_, text) = units().pop().unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/weft ")).unwrap();
    let place = Place::new();
    let script = format!("\"$0\" {}", line.replace("/srv/photos.weft", "none"));
    let said =
        Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_weft")]).current_dir(place.path("")).output();
    // It is understood, and goes as far as the volume.
    let told = String::from_utf8(said.unwrap().stderr).unwrap();
    assert!(told.contains("there is no volume at"), "{told}");
}
