//! Links that are written as a whole, by way of a mount: readers see the draft at once, and the
//! target has it when the last writer closes it or syncs it.

use crate::place::on_each_engine;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;

fn open(path: &std::path::Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

#[test]
fn a_link_that_is_written_is_stored_in_its_target_when_it_is_closed() {
    on_each_engine(&["--opens"], |place, volume| {
        place.sh("seq 300000 >numbers; echo one | gzip >packed.gz").well();
        place.weft(&["link", "m/packed.gz", "m/packed", "-n", "gzip -d"]).well();
        place.sh("echo two >>packed").well();
        place.same("zcat packed.gz; cat packed", "printf 'one\\ntwo\\none\\ntwo\\n'");
        place.sh("echo new >packed").well();
        place.same("zcat packed.gz; stat -c %s packed", "echo new; echo 4");
        place.sh("cat numbers >packed").well();
        place.same("zcat packed.gz", "cat numbers");
        place.sh("truncate -s 7 packed").well();
        place.same("zcat packed.gz", "head -c 7 numbers");
        place.weft(&["link", "m/packed", "m/deeper", "-n", "rot13"]).well();
        place.sh("echo deep >deeper").well();
        place.same("zcat packed.gz; cat packed", "echo qrrc; echo qrrc");
        place.weft(&["link", "m/numbers", "m/counted", "-n", "wc -l"]).well();
        place.sh(": >>counted").fails_with("Permission denied");

        let (link, target) = (place.path("m/packed"), place.path("m/packed.gz"));
        let stored = || place.sh("zcat packed.gz | od -An -c -w99").well();
        fs::write(&link, "0123456789").unwrap();
        let before = fs::read(&target).unwrap();
        let (writer, reader) = (open(&link), File::open(&link).unwrap());
        let read = |file: &File| {
            let mut bytes = [0; 99];
            let len = file.read_at(&mut bytes, 0).unwrap();
            bytes[..len].to_vec()
        };
        assert_eq!(read(&reader), b"0123456789");
        writer.write_all_at(b"AB", 3).unwrap();
        assert_eq!((read(&reader), read(&writer)), (b"012AB56789".to_vec(), b"012AB56789".to_vec()));
        assert!(fs::read(&target).unwrap() == before, "the target has it too early");
        writer.sync_all().unwrap();
        assert_eq!(stored(), "   0   1   2   A   B   5   6   7   8   9\n");
        writer.set_len(4).unwrap();
        writer.write_all_at(b"!", 6).unwrap();
        // SAFETY: a new mapping of a file that nobody cuts; it is unmapped below.
        unsafe {
            let memory =
                mmap(std::ptr::null_mut(), 7, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &writer, 0);
            let memory = memory.unwrap();
            let bytes = std::slice::from_raw_parts_mut(memory.cast::<u8>(), 7);
            assert_eq!(bytes, b"012A\0\0!");
            bytes[0] = b'x';
            msync(memory, 7, MsyncFlags::SYNC).unwrap();
            munmap(memory, 7).unwrap();
        }
        drop(writer);
        assert_eq!(read(&reader), b"x12A\0\0!");
        assert_eq!(stored(), "   x   1   2   A  \\0  \\0   !\n");
        drop(reader);

        // What was not closed when the daemon died never reached the target.
        let mut writer = File::options().append(true).open(&link).unwrap();
        place.weft(&["sync", "m"]).well();
        writer.write_all(b"lost").unwrap();
        place.mount_killed(volume, &[]);
        drop(writer);
        assert_eq!(stored(), "   x   1   2   A  \\0  \\0   !\n");
    });
}
