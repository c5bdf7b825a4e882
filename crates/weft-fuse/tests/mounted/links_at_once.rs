//! Links that several programs read while several change their targets and names.

use crate::fixture::{Mounted, on_each_transport};
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::thread;
use weft_links::{LinkDefinition, WithLinks};
use weft_vfs::{Caller, Ino};

const WORKERS: usize = 6;
const ROUNDS: usize = 400;

fn inverted(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| byte ^ 255).collect()
}

/// Writes of one length, so that not even that tells of a change: each is read through the link at
/// once, by others at some time.
fn work(mounted: &Mounted, worker: usize) {
    let path = |name: &str, of: usize| mounted.path(&format!("{name}-{of}"));
    for round in 0..ROUNDS {
        let data = format!("{:08}", round * WORKERS + worker);
        let file = File::options().write(true).open(path("file", worker)).expect("opened");
        file.write_all_at(data.as_bytes(), 0).expect("written");
        let found = fs::read(path("link", worker)).expect("read");
        assert_eq!(inverted(&found), data.as_bytes(), "{worker} {round}");
        match File::open(path("link", (worker + 1) % WORKERS)) {
            Ok(mut other) => {
                let mut bytes = Vec::new();
                other.read_to_end(&mut bytes).expect("read");
                assert!([0, 8].contains(&bytes.len()), "{bytes:?}");
                other.metadata().expect("attributes");
            }
            // It has another name for a moment.
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
        }
        let noise = mounted.path(&format!("noise-{worker}-{}", round % 3));
        File::create(&noise).expect("made");
        fs::remove_file(noise).expect("removed");
        if round % 50 == 49 {
            fs::rename(path("link", worker), path("renamed", worker)).expect("renamed");
            fs::rename(path("renamed", worker), path("link", worker)).expect("renamed");
        }
    }
}

#[test]
fn nobody_reads_what_a_link_gave_before_however_many_change_and_read() {
    on_each_transport(|mounted| {
        for worker in 0..WORKERS {
            fs::write(mounted.path(&format!("file-{worker}")), "").expect("written");
            let definition = LinkDefinition::new(vec![format!("/file-{worker}").into_bytes()], "xor 255");
            let name = format!("link-{worker}");
            mounted
                .vfs
                .links()
                .expect("links")
                .make_link(Caller::ROOT, Ino::ROOT, name.as_bytes(), 0o666, &definition)
                .expect("made");
        }
        thread::scope(|scope| {
            for worker in 0..WORKERS {
                scope.spawn(move || work(mounted, worker));
            }
        });
    });
}
