# `make` alone lists the verbs.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PREFIX ?= /usr/local
MALLOC_LIBRARIES := libslipmalloc.so libslipmalloc-secure.so libslipmalloc-debug.so
SLIP_CACHE ?= $(HOME)/.cache/slipstream
export SLIP_CACHE

# `sudo` leaves out where rustup puts a user's Rust.
ifneq ($(SUDO_USER),)
user_home := $(shell getent passwd '$(SUDO_USER)' | cut -d: -f6)
ifneq ($(wildcard $(user_home)/.cargo/bin/cargo),)
export PATH := $(PATH):$(user_home)/.cargo/bin
export RUSTUP_HOME ?= $(user_home)/.rustup
endif
endif

.PHONY: help
help: ## list the verbs
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## set up and run the main job on a real stack
	labs/demo

.PHONY: build
build: ## debug build
	cargo build --workspace

.PHONY: release
release: ## release build of the command: target/release/slip
	cargo build --release -p slip-cli

.PHONY: setup
setup: ## install what the tests need (Debian packages, interpreters of other suites)
	labs/setup

.PHONY: test
test: setup ## everything that must pass; CI runs exactly this
	cargo run -q -p xtask -- test

.PHONY: test-fast
test-fast: ## what needs no privilege and no server
	cargo test --workspace --lib --bins

.PHONY: lint
lint: ## format, clippy and docs; warnings are errors
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked -q

.PHONY: fmt
fmt: ## rewrite the layout
	cargo fmt --all

.PHONY: audit
audit: ## licences and sources of all dependencies, by cargo-deny
	command -v cargo-deny >/dev/null || cargo install --locked cargo-deny
	cargo deny check licenses bans sources

.PHONY: bless
bless: ## accept golden output; read the diff before
	INSTA_UPDATE=always cargo test --workspace

.PHONY: generate
generate: ## regenerate committed files: offset tables, names of instructions, the report's page, NOTICE
	cargo run -q -p xtask -- zend-offsets
	cargo run -q -p xtask -- opcodes
	cargo run -q -p xtask -- page
	cargo run -q -p xtask -- notice

.PHONY: screenshots
screenshots: build ## the README's pictures of the report's page, in docs/images
	web/screenshots

.PHONY: evidence
evidence: release ## re-measure docs/evidence.md, or one row: NAME=...
	cargo run -q -p xtask -- evidence $(NAME)

.PHONY: bench
bench: release ## one benchmark: NAME=... (a folder under bench/)
	bench/$(NAME)/run

.PHONY: fuzz
fuzz: ## fuzz one target for SECONDS (30 by default): T=name
	fuzz/run $(T) $(or $(SECONDS),30)

.PHONY: docs
docs: ## API documentation and man pages, under target/
	cargo doc --workspace --no-deps
	mkdir -p target/man && cargo run -q -p slip-cli -- man target/man

.PHONY: dist
dist: release ## tarball of the command with man pages and completions, and the Python wheel
	cargo run -q -p xtask -- dist

.PHONY: install
install: release ## install into PREFIX (/usr/local)
	alloc/compile
	install -Dm755 target/release/slip $(DESTDIR)$(PREFIX)/bin/slip
	install -Dm644 -t $(DESTDIR)$(PREFIX)/lib/slipstream $(addprefix target/alloc/,$(MALLOC_LIBRARIES))
	mkdir -p $(DESTDIR)$(PREFIX)/share/man/man1
	target/release/slip man $(DESTDIR)$(PREFIX)/share/man/man1
	mkdir -p $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	target/release/slip completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/slip

.PHONY: uninstall
uninstall: ## remove what `install` put there
	rm -f $(DESTDIR)$(PREFIX)/bin/slip $(DESTDIR)$(PREFIX)/share/man/man1/slip.1 $(DESTDIR)$(PREFIX)/share/man/man1/slip-*.1
	rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/slip
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/lib/slipstream/,$(MALLOC_LIBRARIES))
	[ ! -d $(DESTDIR)$(PREFIX)/lib/slipstream ] || rmdir --ignore-fail-on-non-empty $(DESTDIR)$(PREFIX)/lib/slipstream

.PHONY: clean
clean: ## remove what was built
	cargo clean
