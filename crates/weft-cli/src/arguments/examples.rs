//! Examples at the end of commands' help and manual pages.

pub const INIT: &str = "\
Examples:
    weft init photos.weft
    weft init --blocks database notes.weft
    weft init --block-size 16K --size-max 100G databases.weft
    weft init --history 'all 7d, daily 1y' documents.weft
    weft init --history off scratch.weft
    weft init 'postgres:///files?schema=photos'";

pub const MOUNT: &str = "\
Examples:
    weft mount photos.weft /mnt/photos
    weft mount --read-only --foreground photos.weft /mnt/photos
    weft mount --at yesterday photos.weft /mnt/photos-of-yesterday
    weft mount --wait 60 'postgres:///files?schema=photos' /mnt/photos
    mount -t fuse.weft /srv/photos.weft /mnt/photos

In /etc/fstab:
    /srv/photos.weft  /mnt/photos  fuse.weft  noatime,nofail  0  0";

pub const SERVE: &str = "\
Examples:
    weft serve photos.weft --nfs 192.0.2.7:2049 --export '/ 192.0.2.0/24(rw) *(ro,all_squash)'
    weft serve photos.weft --nfs 192.0.2.7:2049 --export '/ 192.0.2.0/24' --portmap
    weft serve photos.weft --socket";

pub const CHECK: &str = "\
Examples:
    weft check photos.weft
    weft check --read-data photos.weft
    weft check --repair photos.weft
    weft check --salvage broken.weft new.weft";

pub const IMPORT: &str = "\
Examples:
    weft import ~/Pictures photos.weft
    weft import ~/Pictures photos.weft:2026/summer";

pub const EXPORT: &str = "\
Examples:
    weft export photos.weft /tmp/all
    weft export photos.weft:2026/summer /tmp/summer
    weft export --at 2026-11-28T12:00:00 photos.weft:2026 /tmp/before";

pub const SEND: &str = "\
Examples:
    weft send photos.weft > photos.stream
    weft send photos.weft@monday --from sunday > monday.stream
    weft send --snapshots photos.weft | ssh backup weft receive photos.weft
    weft send --encrypt age:age1kmdrz9esdney8dk64gkkzyrfjgeej252nwj43jljwgpjeddra4vsjrlvmc photos.weft > photos.age";

pub const RECEIVE: &str = "\
Examples:
    weft receive copy.weft < photos.stream
    weft receive copy.weft < monday.stream
    weft receive --identity key.txt copy.weft < photos.age
    weft receive 'postgres:///files?schema=photos' < photos.stream";

pub const DIGEST: &str = "\
Examples:
    weft digest photos.weft:
    weft digest --at -3d photos.weft:2026
    weft digest /mnt/photos/2026 > photos.digests
    weft digest --check photos.digests";

pub const DIFF: &str = "\
Examples:
    weft diff ~/Pictures photos.weft:
    weft diff /mnt/photos /mnt/copy
    weft diff --at -1h --content /mnt/photos/lists
    weft diff --at @1234 --at @1240 photos.weft:2026";

pub const COMPACT: &str = "\
Examples:
    weft compact photos.weft
    weft compact photos.weft --json";

pub const MCP: &str = "\
Examples:
    weft mcp photos.weft
    weft mcp --allow-changes /mnt/photos";

pub const CP: &str = "\
Examples:
    weft cp /mnt/photos/2026 /mnt/photos/2026.before
    weft cp photos.weft:2026 photos.weft:2026.before";

pub const PUT: &str = "\
Examples:
    weft put letter.pdf ~/pictures photos.weft
    weft put --exclude target project photos.weft:work
    pg_dump shop | weft put - photos.weft:dumps/shop.sql";

pub const GET: &str = "\
Examples:
    weft get photos.weft:2026/letter.pdf .
    weft get --at yesterday photos.weft:2026 photos.weft:notes /tmp";

pub const LS: &str = "\
Examples:
    weft ls photos.weft
    weft ls -l photos.weft:2026
    weft ls --at yesterday --json photos.weft:2026";

pub const SET: &str = "\
Examples:
    weft set photos.weft size-max=10G
    weft set /mnt/photos size-max=none inodes-max=1000000
    weft set photos inodes-max=none --json";

pub const HISTORY: &str = "\
Examples:
    weft history photos.weft
    weft history set photos.weft 'all 1d, hourly 7d, daily 30d'
    weft history set photos.weft 'all 1h' --dry-run
    weft history forget /mnt/photos/secret.pdf
    weft history exclude /mnt/photos 'target'
    weft history exclude /mnt/photos --list
    weft history set photos.weft off --drop";

pub const SNAPSHOT: &str = "\
Examples:
    weft snapshot create photos.weft before-the-upgrade
    weft mount --at before-the-upgrade photos.weft /mnt/before
    weft snapshot list photos.weft
    weft snapshot diff photos.weft before-the-upgrade
    weft snapshot diff /mnt/photos -1h --json
    weft snapshot restore photos.weft before-the-upgrade
    weft snapshot delete photos.weft before-the-upgrade";

pub const RESTORE: &str = "\
Examples:
    weft restore /mnt/photos/2026 --at -1h
    weft restore /mnt/photos/2026 --at yesterday --dry-run
    weft restore photos.weft:2026/index --at @1234 --to 2026/index.before";

pub const UNDELETE: &str = "\
Examples:
    weft undelete /mnt/photos/2026/summer.jpg
    weft undelete --parents photos.weft:2026/summer/beach.jpg
    weft undelete --list /mnt/photos";

pub const DU: &str = "\
Examples:
    weft du /mnt/photos
    weft du --history /mnt/photos/2026
    weft du --history --summarize photos.weft";

pub const GC: &str = "\
Examples:
    weft gc photos.weft
    weft gc /mnt/photos";

pub const SIGN: &str = "\
Examples:
    weft keygen me.key me.pub
    weft sign --key me.key --output photos.signed photos.weft
    weft verify --key me.pub photos.signed --volume photos.weft
    weft verify --key me.pub photos.signed --volume photos.weft --at @1234";

pub const STATS: &str = "\
Examples:
    weft stats /mnt/photos
    weft stats --watch /mnt/photos
    weft stats --operations --watch photos.weft
    weft stats --json photos.weft
    weft stats 192.0.2.7:2049";

pub const STATUS: &str = "\
Examples:
    weft status
    weft status photos.weft
    weft status --json";

pub const CONFIG: &str = "\
Examples:
    weft config --show
    WEFT_MOUNT_DIRTY_MAX=1G weft config --show --json";

pub const STOP: &str = "\
Examples:
    weft stop 192.0.2.7:2049
    weft stop photos.weft";

pub const DEFRAGMENT: &str = "\
Examples:
    weft defragment /mnt/photos/index.db
    weft defragment photos.weft:
    weft defragment --dry-run /mnt/photos";

pub const SYNC: &str = "\
Examples:
    weft sync /mnt/photos
    weft sync photos.weft";

pub const LINK: &str = "\
Examples:
    weft link log.zst errors --network 'zstd -d | grep ERROR | head -100'
    weft link --dir logs plain --network 'gzip -d' --rename 's/\\.gz$//'
    weft link --members release.tar release
    weft link part1 part2 whole --network 'concat($1, $2)'
    weft link --show errors";

pub const RUN: &str = "\
Examples:
    weft run --network 'zstd -d | sort | uniq' words.zst
    weft run --network 'gzip' < notes > notes.gz";

pub const NET: &str = "\
Examples:
    weft net define errors 'zstd -d | grep ERROR' logs.weft
    weft net list logs.weft
    weft net push --network 'upper' /mnt/logs/today
    weft net pop /mnt/logs/today";

pub const UMOUNT: &str = "\
Examples:
    weft umount /mnt/photos
    weft umount --timeout 600 /mnt/photos
    weft umount --lazy /mnt/photos";

pub const INFO: &str = "\
Examples:
    weft info photos.weft
    weft info --json /mnt/photos";

pub const SCRUB: &str = "\
Examples:
    weft scrub /mnt/photos
    weft scrub --json photos.weft";

pub const CONVERT: &str = "\
Examples:
    weft convert photos.weft one.weft --blocks database
    weft convert --layout hybrid=4M 'postgres:///files?schema=photos'";

pub const UPGRADE: &str = "\
Examples:
    weft upgrade --dry-run photos.weft
    weft upgrade photos.weft";

pub const PROVE: &str = "\
Examples:
    weft prove photos.weft: 2026/sea.jpg > sea.proof
    weft verify-proof sea.proof --file sea.jpg";

pub const LOG: &str = "\
Examples:
    weft log photos.weft
    weft log --since -2h photos.weft
    weft log -n 10 /mnt/photos
    weft log /mnt/photos/2026/list.txt
    weft log --since yesterday photos.weft:2026";

pub const PIPE: &str = "\
Examples:
    weft pipe 'permute \"mountainsunlight\" | wc'
    weft pipe 'cat words.gz | gzip -d | sort | head -5'";

pub const CAT: &str = "\
Examples:
    weft cat /mnt/photos/notes /mnt/photos/more
    weft cat --at -1h /mnt/photos/notes
    weft cat --at @1234 photos.weft:notes";

pub const GREP: &str = "\
Examples:
    weft grep -n 'ERROR|WARN' /mnt/logs/today
    weft grep --count ERROR /mnt/logs/today";

pub const WC: &str = "\
Examples:
    weft wc -l /mnt/logs/today";

pub const SUM: &str = "\
Examples:
    weft sum /mnt/photos/2026/sea.jpg";

pub const PERMUTE: &str = "\
Examples:
    weft permute mountainsunlight
    weft permute --width 3 onetwosix";

pub const STAGES: &str = "\
Examples:
    weft stages
    weft stages grep";

pub const COMPLETIONS: &str = "\
Examples:
    weft completions bash > /etc/bash_completion.d/weft";

pub const MAN: &str = "\
Examples:
    weft man
    weft man --dir /usr/local/share/man";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;
    use clap::Parser;

    /// The words of a command, of which some are in single quotes, up to where the shell puts its
    /// output or input.
    fn words(command: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut quoted = false;
        for character in command.chars() {
            match character {
                '\'' => quoted = !quoted,
                ' ' if !quoted => words.push(String::new()),
                '<' | '>' | '|' if !quoted => break,
                other => words.last_mut().expect("one at least").push(other),
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }

    #[test]
    fn examples_are_commands() {
        let all = [
            INIT,
            MOUNT,
            SERVE,
            CHECK,
            IMPORT,
            EXPORT,
            SEND,
            RECEIVE,
            DIGEST,
            DIFF,
            HISTORY,
            SNAPSHOT,
            RESTORE,
            UNDELETE,
            GC,
            SIGN,
            STATS,
            STATUS,
            SYNC,
            LINK,
            RUN,
            NET,
            UMOUNT,
            INFO,
            SCRUB,
            CONVERT,
            UPGRADE,
            PROVE,
            LOG,
            PIPE,
            CAT,
            GREP,
            WC,
            SUM,
            PERMUTE,
            STAGES,
            COMPLETIONS,
            MAN,
        ];
        let commands =
            all.iter().flat_map(|examples| examples.lines().filter_map(|line| line.strip_prefix("    weft ")));
        let mut count = 0;
        for command in commands {
            let words = words(&format!("weft {command}"));
            Arguments::try_parse_from(&words).map_err(|error| format!("{command}: {error}")).expect("it parses");
            count += 1;
        }
        assert!(count >= all.len());
    }
}
