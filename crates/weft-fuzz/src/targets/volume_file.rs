//! A damaged volume: never a panic, and never wrong bytes without a word of it from a check.
use crate::damage::Damage;
use crate::volume::{self, Contents};
use crate::{mount, scratch};
use arbitrary::{Arbitrary, Unstructured};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use weft_store::sqlite::{self};
use weft_store::{BlockHome, ErrorKind};
use weft_store::{CheckOptions, Finding, Outcome, Repair};

#[derive(Arbitrary, Debug)]
struct Input {
    in_database: bool,
    damages: Vec<Damage>,
}

/// A volume made once, as the bytes of its files.
struct Template {
    files: Vec<(PathBuf, Vec<u8>)>,
    contents: Contents,
}

impl Template {
    fn new(home: BlockHome) -> Template {
        let directory = scratch();
        let path = directory.path().join("volume");
        let contents = volume::in_files(&path, home);
        let files = volume::files(&path).into_iter().map(|file| {
            let bytes = std::fs::read(&file).expect("there");
            (file.strip_prefix(directory.path()).expect("in it").to_path_buf(), bytes)
        });
        Template { files: files.collect(), contents }
    }

    fn write(&self, directory: &Path) -> PathBuf {
        for (file, bytes) in &self.files {
            let file = directory.join(file);
            std::fs::create_dir_all(file.parent().expect("it has one")).expect("made");
            std::fs::write(file, bytes).expect("written");
        }
        directory.join("volume")
    }
}

fn check(path: &Path, repair: Repair) -> Option<Vec<Finding>> {
    let result = sqlite::check(path, CheckOptions { repair, read_data: true }, &mut |_| {});
    if let Err(error) = &result {
        let kind = error.kind();
        assert!(!matches!(kind, ErrorKind::Bug | ErrorKind::Conflict | ErrorKind::Locked), "{kind:?}: {error}");
    }
    result.ok()
}

fn is_damage(finding: &Finding) -> bool {
    finding.outcome != Outcome::Note
}

/// Finds a file that reads otherwise than it was written. Its end may have moved: no check knows
/// where it was.
fn reads_wrong(template: &Contents, found: &Contents) -> Option<Vec<u8>> {
    let differs = |path: &&Vec<u8>| {
        let (written, read) = (&template[*path], found.get(*path));
        read.is_some_and(|read| written.iter().zip(read).any(|(written, read)| written != read))
    };
    template.keys().find(differs).cloned()
}

/// Takes any bytes as what this is about.
pub fn run(bytes: &[u8]) {
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(bytes)) else { return };
    run_on(&input);
}

fn run_on(input: &Input) {
    static TEMPLATES: OnceLock<[Template; 2]> = OnceLock::new();
    let templates = TEMPLATES.get_or_init(|| [BlockHome::Segments, BlockHome::Database].map(Template::new));
    let template = &templates[usize::from(input.in_database)];
    let directory = scratch();
    let path = template.write(directory.path());
    input.damages.iter().take(8).for_each(|damage| damage.happen(&path));
    let findings = check(&path, Repair::No);
    if let Ok(volume) = sqlite::open(&path)
        && let Ok(vfs) = mount(volume.store, None)
    {
        let found = volume::look_at_all(&vfs);
        let told = findings.is_none_or(|findings| findings.iter().any(is_damage));
        let edits = input.damages.iter().filter(|damage| damage.is_edit()).count();
        if let Some(wrong) = reads_wrong(&template.contents, &found).filter(|_| !told && edits < 2) {
            panic!("{} reads wrong, and no check tells", String::from_utf8_lossy(&wrong));
        }
    }
    if check(&path, Repair::Yes).is_some() {
        check(&path, Repair::Yes);
    }
    if let Ok(volume) = sqlite::open(&path)
        && let Ok(vfs) = mount(volume.store, None)
    {
        volume::look_at_all(&vfs);
        volume::change_all(&vfs);
    }
    check(&path, Repair::No);
}
