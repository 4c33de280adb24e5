# SPDX-License-Identifier: Apache-2.0
#
# The front door. CMake does the work below it; every target here runs from a fresh clone on Debian 12.
# NO_INSTALL=1 forbids installing packages, whatever the target.

BUILD   ?= build
JOBS    ?= $(shell nproc)
PREFIX  ?= /usr/local
DESTDIR ?=
export NO_INSTALL TRACE DEMO_CORRUPT

CMAKE_ARGS ?=
# Configuring says much and matters only when it fails.
configure = mkdir -p $(BUILD) && { cmake -S . -B $(BUILD) -G Ninja -DCMAKE_INSTALL_PREFIX=$(PREFIX) $(CMAKE_ARGS) \
            >$(BUILD)/configure.log 2>&1 || { cat $(BUILD)/configure.log; exit 1; }; }

.PHONY: build demo test test-long bench check lint deps install clean help kmod test-qemu test-rack install-driver
.DEFAULT_GOAL := build

build: ## build the library and the programs into build/lib and build/bin
	@scripts/deps.sh build
	@$(configure)
	@cmake --build $(BUILD) -j $(JOBS)

demo: ## fill a shared pool from 4 processes, read everything back, verify it (TRACE=file, DEMO_CORRUPT=1)
	@scripts/deps.sh build
	@$(configure)
	@cmake --build $(BUILD) -j $(JOBS) --target kvpool_tool
	@tools/demo.sh

test: ## everything that proves a commit: lint, all suites, then the sanitizer build (10 to 25 minutes)
	@scripts/deps.sh build test
	@scripts/test.py full

test-long: ## what takes too long for every commit: clang, debug, ThreadSanitizer, many seeds
	@scripts/deps.sh build test long
	@scripts/test.py long

check: ## quick: lint and unit tests
	@scripts/deps.sh build test
	@scripts/test.py quick

lint: ## read the tree for layering, licences, sizes, spelling
	@scripts/deps.sh test
	@tests/lint/lint.py

kmod: ## build the driver for each kernel, its headers unpacked into ~/.cache/kvpool
	@scripts/deps.sh kmod
	@scripts/kmod.sh $(BUILD)

install-driver: ## install the driver's source for DKMS, and what goes with it (DESTDIR is honoured)
	@scripts/install_driver.sh

test-qemu: build kmod ## boot guests of each kernel and test the driver in them
	@scripts/deps.sh qemu
	@scripts/kernels.sh guests
	@KVPOOL_BUILD_DIR=$(abspath $(BUILD)) tests/qemu/run.py

test-rack: build kmod ## three guests on one pool: stopped, killed and started again
	@scripts/deps.sh qemu
	@scripts/kernels.sh guests
	@KVPOOL_BUILD_DIR=$(abspath $(BUILD)) tests/qemu/run.py --only none --rack $(or $(KERNEL),6.12)

bench: ## measure the figures, each beside its baseline (BENCH=names)
	@$(MAKE) --no-print-directory build
	@$(BUILD)/bin/kvpool bench $(BENCH)

install: ## install below PREFIX (default /usr/local); DESTDIR is honoured
	@$(MAKE) --no-print-directory build
	@DESTDIR="$(DESTDIR)" cmake --install $(BUILD) --prefix "$(PREFIX)"
	@# So that the loader finds the library at once; an ordinary user sets LD_LIBRARY_PATH instead.
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then PATH="$$PATH:/sbin:/usr/sbin" ldconfig || true; fi

deps: ## install the packages needed to build and test
	@scripts/deps.sh build test

clean: ## remove what was built
	@rm -rf $(BUILD) build-*

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20
