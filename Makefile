# The front door of the build. Every target installs what it needs (scripts/packages.txt), builds what is out of date,
# and says what it does. CMake and its presets do the work; everything made lands in build/.

.DEFAULT_GOAL := help
.PHONY: help build run test lint format bench soak sanitize debug clang clean

JOBS ?= $(shell nproc)
CMAKE_QUIET := --log-level=WARNING

# $(call build_preset,PRESET,BUILD FOLDER,TARGETS): configures when the folder is new (later Ninja does it), then builds.
define build_preset
	@test -f $(2)/build.ninja || cmake --preset $(1) $(CMAKE_QUIET)
	@cmake --build $(2) --parallel $(JOBS) $(if $(3),--target $(3))
endef

help:  ## this list
	@echo "make TARGET, on Debian 12 with GNU make; packages are installed as needed:"
	@sed -n 's/^\([a-z]*\):.*  ## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

build:  ## the products: build/bin/farheap, build/lib
	@scripts/install-packages build
	$(call build_preset,release,build)

run:  ## the main job: a pandas analysis in a quarter of the memory that it wants
	@scripts/install-packages build run
	$(call build_preset,release,build)
	@apps/flights/run

test:  ## every check and every test, also under sanitizers; under 15 minutes
	@scripts/install-packages build run test clang
	@scripts/run-tests

lint:  ## the checks of the code base alone
	@scripts/install-packages build test
	@test -f build/build.ninja || cmake --preset release $(CMAKE_QUIET)
	@scripts/lint

format:  ## puts every source file into the project's format
	@scripts/install-packages test
	@scripts/lint --fix format

bench:  ## the pager's benchmark, beside Linux swap where this machine allows it
	@scripts/install-packages build run test bench
	$(call build_preset,release,build)
	@build/bin/farheap-bench pager

soak:  ## the tests that take long
	@scripts/install-packages build run test clang
	@scripts/run-tests --soak

sanitize:  ## the unit, contract and simulation tests under address, undefined-behaviour and thread sanitizers
	@scripts/install-packages build test
	@scripts/run-tests --only asan-ubsan --only tsan

debug:  ## a build with every validator on, in build/debug
	@scripts/install-packages build
	$(call build_preset,debug,build/debug)

clang:  ## a build with clang, in build/clang
	@scripts/install-packages build clang
	$(call build_preset,clang,build/clang)

clean:  ## removes everything made, the Python environment included
	@rm -rf build
