# The front door of the build. Every target installs what it needs (scripts/packages.txt), builds what is out of date,
# and says what it does. CMake and its presets do the work; everything made lands in build/.

.DEFAULT_GOAL := help
.PHONY: help run build examples compiler install deb wheel test lint format bench soak sanitize debug clang clean

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
# Ninja shows how far a build is, and since when.
export NINJA_STATUS ?= [%f of %t, %e s] $()

# $(call build_preset,PRESET,BUILD FOLDER,SCOPE,TARGETS,WHAT IT IS): configures when the folder is new or too narrow
# (later Ninja does it), then builds.
define build_preset
	@scripts/configure $(1) $(2) $(3)
	@echo "building $(5)"
	@cmake --build $(2) --parallel $(JOBS) --target $(4)
endef

help:  ## this list
	@echo "make TARGET, on Debian 12 with GNU make; packages are installed as needed:"
	@sed -n 's/^\([a-z]*\):.*  ## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

run:  ## builds the run door alone, then the main job: a pandas analysis in a quarter of the memory that it wants
	@scripts/install-packages base run
	$(call build_preset,release,build,run,run_door,the run door)
	@evaluation/apps/flights/run

build:  ## builds the products: build/bin/farheap, build/bin/farheapd, the libraries in build/lib
	@scripts/install-packages base build
	$(call build_preset,release,build,products,products,the products)

examples:  ## builds the examples and the programs with hints: build/bin/examples, build/bin/apps
	@scripts/install-packages base build
	$(call build_preset,release,build,products,examples products,the products and the examples)

compiler:  ## builds the compile door: build/bin/farheap-clang and farheap-clang++, and the run door
	@scripts/install-packages base build compiler
	@scripts/configure release build products
	@cmake -S . -B build --log-level=WARNING -DFARHEAP_COMPILER=ON
	@echo "building the compile door"
	@cmake --build build --parallel $(JOBS) --target compiler run_door

install:  ## builds the products and their manual; installs them and what programs link into PREFIX (default: /usr/local)
	@scripts/install-packages base build
	$(call build_preset,release,build,products,products manual,the products and their manual)
	@cmake --install build --prefix $(abspath $(PREFIX))

deb:  ## the same as Debian packages in build/packages: farheap, farheap-server, libfarheap-dev
	@scripts/install-packages base build package
	$(call build_preset,release,build,products,products manual,the products and their manual)
	@cd build && cpack

wheel:  ## the Python package with the commands as build/packages/farheap-*.whl; `pip install` takes it
	@scripts/install-packages base build package
	$(call build_preset,release,build,products,products,the products)
	@scripts/make-wheel build

test:  ## every check; whole programs as users have them, and all other tests under sanitizers
	@scripts/install-packages base build run test compiler clang
	@scripts/run-tests --install programs

lint:  ## the checks of the code base alone; compiles every header
	@scripts/install-packages base build test compiler
	@scripts/configure release build all
	@scripts/lint

format:  ## puts every source file into the project's format
	@scripts/install-packages test
	@scripts/lint --fix format

bench:  ## builds build/bin/farheap-bench; the pager's benchmark, beside Linux swap where this machine allows it
	@scripts/install-packages base build run test bench
	$(call build_preset,release,build,all,farheap-bench products,farheap-bench and the products)
	@build/bin/farheap-bench pager

soak:  ## builds everything; the tests that take long
	@scripts/install-packages base build run test programs compiler clang
	@scripts/run-tests --soak

sanitize:  ## the unit, contract and simulation tests under address, undefined-behaviour and thread sanitizers
	@scripts/install-packages base build test programs clang
	@scripts/run-tests --only asan-ubsan --only tsan

debug:  ## builds everything, tests included, with every validator on, in build/debug
	@scripts/install-packages base build test
	$(call build_preset,debug,build/debug,all,all sanitized_tests,everything with every validator on)

clang:  ## builds everything, tests included, with clang, in build/clang
	@scripts/install-packages base build test clang
	$(call build_preset,clang,build/clang,all,all sanitized_tests,everything with clang)

clean:  ## removes everything made, the Python environment included
	@rm -rf build
