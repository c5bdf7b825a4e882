# Every routine of the project. `make help` lists them.

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
# mount(8) and umount(8) look for their helpers in /sbin alone. A PREFIX of a user's own gets a
# directory of its own instead, so that nothing outside of it is touched.
SBINDIR ?= $(if $(filter /usr /usr/local,$(PREFIX)),/sbin,$(PREFIX)/sbin)
WEFT := target/release/weft
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
TOOLS := target/tools
# A program without libraries, for processors as this one.
STATIC_TARGET := $(shell uname -m)-unknown-linux-musl
STATIC := target/$(STATIC_TARGET)/release/weft
# Tools run for seconds: they are built without optimisation, which takes minutes less, and share
# what they have in common.
INSTALL_TOOL := CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) install --quiet --locked --debug --root $(TOOLS) --target-dir $(TOOLS)/build
# As mount(8) and umount(8) look for them.
HELPERS := mount.weft mount.fuse.weft umount.weft umount.fuse.weft

.PHONY: help build static run quick test repeat bench-builds check lint doc deny soak fuzz manual miri loom tsan typos bench bench-mount bench-users bench-jobs bench-history count-builds peers bench-peers bench-digests bench-nfs bench-networks bench-postgres bench-stdio bench-zerocopy bench-python bench-fsspec connectathon xfstests deb install uninstall clean packages tools

help:
	@sed -n 's/^## //p' Makefile

## build      the program and the library for C, in target/release
build: cargo
	$(CARGO) build --release --locked -p weft-cli -p weft-bench -p weft-c

## static     the program as one file for any Linux of this processor, and its test (needs rustup, musl-tools)
static: cargo
	@command -v musl-gcc >/dev/null || { echo "musl-gcc is missing: install musl-tools, then try again" >&2; exit 1; }
	@test -d "$$(rustc --print target-libdir --target $(STATIC_TARGET))" || rustup target add $(STATIC_TARGET)
# Kernels for 64-bit ARM have pages of up to 64 KiB, and jemalloc works with smaller ones than it was built for.
	CC_$(subst -,_,$(STATIC_TARGET))=musl-gcc $(if $(filter aarch64%,$(STATIC_TARGET)),JEMALLOC_SYS_WITH_LG_PAGE=16) \
	    $(CARGO) build --release --locked --target $(STATIC_TARGET) -p weft-cli
	tests/static $(STATIC)

cargo:
	@command -v $(CARGO) >/dev/null || { echo "cargo is missing: install Rust 1.95 or newer with rustup, then try again" >&2; exit 1; }
.PHONY: cargo

## run        build a program soon, make a volume, mount it, show it working, unmount it
run: cargo
	$(CARGO) build --profile demo --locked -p weft-cli --no-default-features
	tests/demo target/demo/weft
	@echo "That program was built to be there soon: it is slower, and has no stages in WebAssembly. 'make build' makes $(WEFT)."

## packages   install what the tests need from Debian (as root, or with sudo)
packages:
	tests/install-packages

## tools      install public test suites, compilers of examples, and packages for Python, into target/tools
tools: cargo
# Packages for Python are downloaded while the others are compiled.
	@tests/install-python $(TOOLS) & python=$$!; \
	    { test -x $(TOOLS)/bin/pjdfstest || $(INSTALL_TOOL) pjdfstest@0.2.2; } && \
	    { test -x $(TOOLS)/bin/fsx || $(INSTALL_TOOL) fsx@0.3.2; } && \
	    { test -x $(TOOLS)/bin/cargo-deb || $(INSTALL_TOOL) cargo-deb@3.8.0; } && \
	    tests/install-languages $(TOOLS); code=$$?; wait $$python; exit $$code

## test       install what the tests need, run them all, end with a summary
test: packages tools
	tests/run

## quick      what to run while working: formats, lints, tests that need no mount and nothing installed
quick: lint
	$(CARGO) test --workspace --locked --lib --test basics --test semantics

## soak       the same for hours: more cases, more rounds (WEFT_SOAK=factor); then static, loom and tsan
soak: packages tools build
	WEFT_SOAK=$${WEFT_SOAK:-20} WEFT_PROGRAM=$(WEFT) tests/run
	$(MAKE) static loom tsan

## repeat     each test 20 times: alone, beside load, on one processor; goes on where it stopped
repeat: cargo
	tests/repeat

## bench-builds compare two programs in turns (OLD=the program before, DIR=where to work)
bench-builds: build
	tests/bench-builds $(OLD) $(WEFT) $(or $(DIR),/var/tmp)

## count-builds count instructions, allocations and calls of operations (OLD=an older source tree)
count-builds: cargo
	tests/count-builds $(OLD) .

## bench-mount time mounts of a volume of a million files (DIR=where to work)
bench-mount: build
	tests/bench-mount $(WEFT) $(or $(DIR),/var/tmp)

## bench-jobs do jobs of users on a volume and on the file system under it, in turn, as root (DIR=where to work)
bench-jobs: build
	tests/bench-jobs $(WEFT) $(or $(DIR),/var/tmp)

## bench-users measure how much one user's programs delay another's ls, as root (DIR=where to work)
bench-users: build
	tests/bench-users $(WEFT) $(or $(DIR),/var/tmp)

## bench      compare a volume with the file system under it (DIR=where to work)
bench: build
	tests/bench $(WEFT) $(or $(DIR),/var/tmp)

## peers      install the file systems that bench-peers compares with, as far as they can be had
peers:
	tests/peers --install

## bench-digests what kept digests cost and give (DIR=where to work)
bench-digests: build
	tests/digest-rates $(WEFT) $(or $(DIR),/var/tmp)

## bench-history what history costs and gives, both engines (DIR=where to work; as root)
bench-history: build
	tests/bench-history $(WEFT) $(or $(DIR),/var/tmp)

## bench-nfs  compare a volume over NFS with NFS-Ganesha and nfsd (DIR=where to work, CONNECTATHON=its sources)
bench-nfs: build
	tests/bench-nfs $(WEFT) $(or $(DIR),/var/tmp)

## bench-networks compare networks of stages with pipelines of processes (DIR=where to work)
bench-networks: build
	tests/bench-networks $(WEFT) $(or $(DIR),/var/tmp)

## bench-zerocopy programs that read in place against the machine's own and pipes (DIR=where to work)
bench-zerocopy: build
	tests/bench-zerocopy $(WEFT) $(or $(DIR),/var/tmp)

## bench-python numpy over memory of the daemon against the same through the mount (DIR=where to work; as root)
bench-python: build tools
	cd python/weftfs-native && PATH="$(CURDIR)/$(TOOLS)/python/bin:$$PATH" maturin build --quiet --release --locked --out "$(CURDIR)/$(TOOLS)/wheels"
	$(TOOLS)/python/bin/pip install --quiet --disable-pip-version-check --no-deps --force-reinstall $(TOOLS)/wheels/weftfs_native-$(VERSION)-*.whl
	$(TOOLS)/python/bin/python tests/bench-python $(WEFT) $(or $(DIR),/var/tmp)

## bench-fsspec files by fsspec, without a mount, against Python's own (DIR=where to work, PAIRS=turns)
bench-fsspec: build tools
	$(TOOLS)/python/bin/pip install --quiet --disable-pip-version-check --no-deps --no-index --no-build-isolation --force-reinstall ./python/weftfs
	$(TOOLS)/python/bin/python tests/bench-fsspec $(WEFT) $(or $(DIR),/var/tmp) $(if $(PAIRS),--pairs $(PAIRS))

## bench-stdio what a faster pipe could save gcc (FILE=a large source in C)
bench-stdio:
	tests/bench-stdio $(FILE)

## connectathon run Connectathon's tests by Linux's NFS client (CONNECTATHON=its sources; as root)
connectathon: build
	tests/connectathon $(CONNECTATHON)

## xfstests   run xfstests' generic group on a mount (XFSTESTS=its sources, built; TESTS=some of them; as root)
xfstests: build
	tests/xfstests $(XFSTESTS) $(TESTS)

## bench-postgres compare a volume in PostgreSQL with one in files (DIR=where to work)
bench-postgres: build
	cargo build --release --package weft-store --example pipelined_reads
	tests/bench-postgres $(WEFT) $(or $(DIR),/var/tmp)

## bench-peers compare with other file systems of user space (DIR=where to work)
bench-peers: build
	tests/peers $(WEFT) $(or $(DIR),/var/tmp)

## fuzz       feed damaged input to all that reads bytes from outside (FUZZ_SECONDS=for each target; needs a C++ compiler)
fuzz: cargo
	tests/fuzz $${FUZZ_SECONDS:-60}

## miri       run the tests of memory under Miri: those of weft-block, and the ring of channels (needs nightly Rust with its miri component)
miri: cargo
	PROPTEST_CASES=4 MIRIFLAGS=-Zmiri-disable-isolation $(CARGO) +nightly miri test -p weft-block
	PROPTEST_CASES=4 MIRIFLAGS=-Zmiri-disable-isolation $(CARGO) +nightly miri test -p weft-client --lib channel::ring

## loom       every order in which both ends of a channel can sleep, wake and pass entries
loom: cargo
	RUSTFLAGS="--cfg loom" $(CARGO) test --release --locked --target-dir target/loom -p weft-client --lib

## tsan       the tests of channels under ThreadSanitizer (needs nightly Rust with its rust-src component; minutes)
tsan: cargo
	RUSTFLAGS=-Zsanitizer=thread $(CARGO) +nightly test -Zbuild-std --target x86_64-unknown-linux-gnu --target-dir target/tsan \
	    -p weft-client --lib channel::

## typos      misspelt words
typos: $(TOOLS)/bin/typos
	$(TOOLS)/bin/typos

$(TOOLS)/bin/typos: | cargo
	$(INSTALL_TOOL) typos-cli@1.52.0

## lint       formatting, clippy, file lengths
lint: cargo
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --locked -- -D warnings # what ships: without what only tests switch on
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	tests/tidy

## doc        the libraries' documentation, in target/doc
doc: cargo
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

## manual     the manual pages as text, in target/doc/commands
manual: build
	mkdir -p target/doc/commands
	$(WEFT) man --dir target/doc/commands
	@command -v nroff >/dev/null && command -v col >/dev/null || { echo "no nroff or col: the pages stay as they are" >&2; exit 0; }; \
	    for page in target/doc/commands/*.1; do nroff -c -man "$$page" | col -bx > "$${page%.1}.txt"; done

## deny       licences, sources, who may use what
deny: $(TOOLS)/bin/cargo-deny
	$(TOOLS)/bin/cargo-deny check licenses bans sources

## advisories known defects of what we use (fetches their list)
advisories: $(TOOLS)/bin/cargo-deny
	$(TOOLS)/bin/cargo-deny check advisories

$(TOOLS)/bin/cargo-deny: | cargo
	$(INSTALL_TOOL) cargo-deny@0.20.2

## check      lint, doc, deny and test
check: lint doc deny test

## install    the program, manual pages, completions, mount helpers and libweft below PREFIX (after make build)
install:
	@for file in $(WEFT) target/release/libweft.so target/release/libweft.a; do \
	    test -f $$file || { echo "$$file is missing: run make build first, as the user who has cargo" >&2; exit 1; }; done
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/lib/debug \
	    $(DESTDIR)$(PREFIX)/share/man $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(SBINDIR) \
	    $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
# The program without its debug information, which debuggers find beside it.
	objcopy --only-keep-debug --compress-debug-sections $(WEFT) $(DESTDIR)$(PREFIX)/lib/debug/weft.debug
	chmod 644 $(DESTDIR)$(PREFIX)/lib/debug/weft.debug
	strip -o $(DESTDIR)$(PREFIX)/bin/weft.new $(WEFT)
	objcopy --add-gnu-debuglink=$(DESTDIR)$(PREFIX)/lib/debug/weft.debug $(DESTDIR)$(PREFIX)/bin/weft.new
	chmod 755 $(DESTDIR)$(PREFIX)/bin/weft.new
	mv -f $(DESTDIR)$(PREFIX)/bin/weft.new $(DESTDIR)$(PREFIX)/bin/weft
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/include include/weft_stage.h include/weft.h
	$(WEFT) man --dir $(DESTDIR)$(PREFIX)/share/man
	$(WEFT) completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/weft
	$(WEFT) completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_weft
	$(WEFT) completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/weft.fish
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	for unit in packaging/systemd/*; do sed 's|@PREFIX@|$(PREFIX)|' $$unit > $(DESTDIR)$(PREFIX)/lib/systemd/system/$${unit##*/}; done
	for helper in $(HELPERS); do ln -sf $(PREFIX)/bin/weft $(DESTDIR)$(SBINDIR)/$$helper; done
	install -m 644 target/release/libweft.so $(DESTDIR)$(PREFIX)/lib/libweft.so.$(VERSION)
	strip --strip-unneeded $(DESTDIR)$(PREFIX)/lib/libweft.so.$(VERSION)
	ln -sf libweft.so.$(VERSION) $(DESTDIR)$(PREFIX)/lib/libweft.so.0
	ln -sf libweft.so.0 $(DESTDIR)$(PREFIX)/lib/libweft.so
	install -m 644 target/release/libweft.a $(DESTDIR)$(PREFIX)/lib/libweft.a
	strip --strip-debug $(DESTDIR)$(PREFIX)/lib/libweft.a
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' crates/weft-c/weft.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/weft.pc

## deb        Debian packages of what was built, in target/debian (needs dpkg-dev)
deb: build
	@test -x $(TOOLS)/bin/cargo-deb || $(INSTALL_TOOL) cargo-deb@3.8.0
	packaging/deb target/release target/debian

## uninstall  what install put there
uninstall:
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/,bin/weft lib/debug/weft.debug lib/libweft.so lib/libweft.so.0 lib/libweft.so.$(VERSION) lib/libweft.a \
	    lib/pkgconfig/weft.pc include/weft.h include/weft_stage.h share/man/man1/weft.1 share/man/man1/weft-*.1 \
	    share/man/man7/weft-networks.7 $(addprefix share/man/man8/,$(addsuffix .8,$(HELPERS))) \
	    share/bash-completion/completions/weft share/zsh/site-functions/_weft share/fish/vendor_completions.d/weft.fish \
	    $(addprefix lib/systemd/system/,$(notdir $(wildcard packaging/systemd/*)))) \
	    $(addprefix $(DESTDIR)$(SBINDIR)/,$(HELPERS))

## clean      what was built
clean:
	$(CARGO) clean
