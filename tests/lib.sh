# For suites: a private place with a volume mounted in it, cleaned up however the suite ends.
# A suite prints one line "ok NAME", "not ok NAME" or "skipped NAME: WHY" for each thing it tests.
set -uo pipefail
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
# needs_built PROGRAM...: fails the suite unless cargo test has built all.
needs_built() {
    local program
    for program; do
        [ -x "$program" ] || { echo "not ok $(basename "$0"): there is no $program; run cargo test --workspace --no-run"; exit 1; }
    done
}
# The program with its assertions that cargo test built, or another one, as make soak has it:
# WEFT_PROGRAM=target/release/weft.
weft=$(realpath -m "${WEFT_PROGRAM:-$root/target/debug/weft}")
needs_built "$weft"
tools="$root/target/tools/bin"
soak=${WEFT_SOAK:-1}
PATH="$PATH:/usr/sbin:/sbin"
place=$(mktemp -d "${TMPDIR:-/tmp}/weft-suite.XXXXXX")
chmod 755 "$place"
volume="$place/volume.weft"
mnt="$place/mnt"
mkdir "$mnt"

clean_up() {
    cd /
    pkill -9 -f "$place/mnt" 2>/dev/null
    # The server ends by itself when nobody gives it orders any more.
    exec 9>&-
    [ -z "${server:-}" ] || wait "$server"
    pkill -9 -f "$place/" 2>/dev/null
    # mountpoint(1) takes the mount of a daemon that was killed for none.
    for directory in "$mnt" "$place"/mnt-* "$place/disk"; do umount -l "$directory" 2>/dev/null; done
    for namespace in "${namespaces[@]}"; do ip netns del "$namespace" 2>/dev/null; done
    [ -f "$place/disk.img" ] && losetup -j "$place/disk.img" | cut -d: -f1 | xargs -r losetup -d
    rm -rf "$place"
}
trap clean_up EXIT

# Network namespaces to be removed in the end.
namespaces=()

ok() { echo "ok $*"; }
not_ok() { echo "not ok $*"; }
skip() { echo "skipped $*"; }

# verdict NAME COMMAND...: ok if the command succeeds, else what it said.
verdict() {
    local name=$1 said
    shift
    if said=$("$@" 2>&1); then ok "$name"; else not_ok "$name"; printf '%s\n' "$said" | tail -30 | sed 's/^/    /'; fi
}

# refused NAME PATTERN COMMAND...: fails with one line that matches.
refused() {
    local name=$1 pattern=$2 said
    shift 2
    if said=$(timeout 60 "$@" 2>&1); then not_ok "$name: succeeded"; return; fi
    if [ "$(printf '%s\n' "$said" | wc -l)" = 1 ] && grep -qE "$pattern" <<<"$said"; then ok "$name"; else
        not_ok "$name"
        printf '    %s\n' "$said"
    fi
}

# needs COMMAND...: skips the suite unless all are there.
needs() {
    local command
    for command in "$@"; do
        command -v "$command" >/dev/null || { skip "$(basename "$0"): $command is missing"; exit 0; }
    done
}

needs_mounts() {
    [ -w /dev/fuse ] || { skip "$(basename "$0"): no access to /dev/fuse"; exit 0; }
    [ "$(id -u)" = 0 ] || command -v fusermount3 >/dev/null || { skip "$(basename "$0"): needs root or fusermount3"; exit 0; }
}

needs_root() {
    [ "$(id -u)" = 0 ] || { skip "$(basename "$0"): needs root"; exit 0; }
}

# What keeps volumes: files, postgres (a private server), or citus (a private cluster of it, see tests/citus-server).
engine=${WEFT_ENGINE:-files}
schemas=0

# start_server [SETTINGS]: a private PostgreSQL server; the socket is in $place/pg.
start_server() {
    mkdir "$place/pg" && mkfifo "$place/pg.orders" "$place/pg.said" || return
    local program=postgres-server
    [ "$engine" != citus ] || program=citus-server
    "$root/tests/$program" "$place/pg" "$@" <"$place/pg.orders" >"$place/pg.said" &
    server=$!
    exec 9>"$place/pg.orders" 8<"$place/pg.said"
    local said
    read -r -t 120 said <&8 && [ "$said" = serving ]
}

[ "$engine" = files ] || needs psql

# needs_citus: skips the suite unless the server has it.
needs_citus() {
    local bin
    bin=${WEFT_POSTGRES:-$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1)}
    [ -e "$("${bin:-/nowhere}/pg_config" --pkglibdir 2>/dev/null)/citus.so" ] || {
        skip "$(basename "$0"): Citus is not installed for the newest PostgreSQL here; docs/internals/testing.md says how to build it"
        exit 0
    }
}
[ "$engine" != citus ] || needs_citus

# distribute_it: runs what an operator runs on Citus after weft init.
distribute_it() {
    sql -v ON_ERROR_STOP=1 -c "SET search_path TO ${volume##*=}" -c "SET client_min_messages TO warning" -f "$root/tests/distribute.sql" >/dev/null
}

# new_volume: $volume is one that is not there yet.
new_volume() {
    schemas=$((schemas + 1))
    if [ "$engine" != files ]; then
        [ -d "$place/pg" ] || start_server -c fsync=off || return
        volume="postgres://postgres@${place//\//%2F}%2Fpg/postgres?durability=server&schema=volume_$schemas"
    fi
}

sql() { psql -h "$place/pg" -U postgres -qAtX "$@"; }

start() { make_it "$@" && mount_it; }
make_it() {
    new_volume && "$weft" init "$volume" "$@" >/dev/null || return
    [ "$engine" != citus ] || distribute_it
}
mount_it() {
    # A volume in files has its log in it.
    [ "$engine" = files ] || set -- --log "$place/weft.log" "$@"
    timeout 60 "$weft" mount "$volume" "$mnt" "$@"
}
unmount_it() { timeout 120 "$weft" umount "$mnt"; }
daemon_pid() { "$weft" stats --json "$mnt" | jq .pid; }
check_it() { timeout 300 "$weft" check --read-data "$volume"; }

# serve_it PORT ARGUMENTS: serves $volume over NFS at a port of the loopback (0: any that is free), by a process of its own; sets $port and
# $serving, its process.
serve_it() {
    local said
    rm -f "$place/serve.said"
    mkfifo "$place/serve.said"
    "$weft" serve "$volume" --nfs "127.0.0.1:$1" "${@:2}" >"$place/serve.said" 2>>"$place/serve.errors" &
    serving=$!
    exec 7<"$place/serve.said"
    read -r -t 120 said <&7 || return
    port=$(sed -n 's/.* at 127.0.0.1:\([0-9]*\);.*/\1/p' <<<"$said")
    [ -n "$port" ]
}

# stop_serving: as a user would; the exit code tells whether all was committed.
stop_serving() { kill "$serving" && wait "$serving"; }
kill_serving() {
    kill -9 "$serving"
    wait "$serving" 2>/dev/null
}
