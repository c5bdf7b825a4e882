//! Hints for users who name a program where a stage is asked for.

/// Programs that people know, and the stage that does as much.
const PROGRAMS: &[(&str, &str)] = &[
    ("b3sum", "blake3"),
    ("bunzip2", "bzip2 -d"),
    ("bzcat", "bzip2 -d"),
    ("cat", "identity"),
    ("dos2unix", "newline unix"),
    ("egrep", "grep"),
    ("gunzip", "gzip -d"),
    ("gzcat", "gzip -d"),
    ("iconv", "charset"),
    ("lz4cat", "lz4 -d"),
    ("sed", "replace"),
    ("sha256sum", "sha256"),
    ("tolower", "lower"),
    ("toupper", "upper"),
    ("unix2dos", "newline dos"),
    ("unlz4", "lz4 -d"),
    ("unxz", "xz -d"),
    ("unzstd", "zstd -d"),
    ("xxd", "hex"),
    ("xzcat", "xz -d"),
    ("zcat", "gzip -d"),
    ("zstdcat", "zstd -d"),
];

/// Returns the hint for `name`, which is no stage.
pub(crate) fn instead_of(name: &str) -> String {
    let known = PROGRAMS.iter().find(|(program, _)| *program == name);
    known.map_or_else(
        || "'weft stages' lists them, and exec runs any command".into(),
        |(_, stage)| format!("'{stage}' does that"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Network;

    #[test]
    fn what_is_suggested_are_stages_and_what_it_is_for_is_not() {
        assert!(PROGRAMS.is_sorted());
        for (program, stage) in PROGRAMS {
            assert!(crate::catalog::find(program).is_none(), "{program}");
            let name = stage.split(' ').next().unwrap_or_default();
            assert!(crate::catalog::find(name).is_some(), "{stage}");
            // Some need arguments that only the user knows.
            if stage.contains(' ') {
                Network::parse(stage).expect("a network");
            }
        }
    }
}
