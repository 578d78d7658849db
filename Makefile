# SPDX-License-Identifier: Apache-2.0
# A thin front to Meson and tools/; `make help` lists what there is.
PREFIX ?= /usr/local

all: build/build.ninja ## build the program and the library into build/ (the default)
	@ninja -C build

# Tools that are already present are used; packages are installed only if something is missing.
build/build.ninja:
	@{ command -v meson && command -v ninja && command -v pkg-config && \
		pkg-config --exists sqlite3 libpq libcrypto yaml-0.1 libcurl hiredis librabbitmq rdkafka libnats libmicrohttpd; } >/dev/null 2>&1 || tools/install build
	@mkdir -p build; meson setup build >build/setup.log 2>&1 || { cat build/setup.log; exit 1; }

demo: build/build.ninja ## see the product do its job, in under a minute
	@tools/demo

check: build/build.ninja ## build every way there is and run all the tests
	@tools/check

soak: build/build.ninja ## the same with the long forms of the tests (much longer)
	@SOAK=1 tools/check

check-postgres-versions: all ## run PostgreSQL's tests over the servers of versions 13 to 18, which npm brings
	@tools/postgres-versions

bench: all ## compare with a bare loop that does the same writes (DB=postgres://… for PostgreSQL; SINKS=1 for sinks)
	@if [ -n "$(SINKS)" ] && [ -n "$(DB)" ]; then bench/run_sinks "$(DB)"; \
	elif [ -n "$(SINKS)" ]; then tools/with-postgres sh -c 'bench/run_sinks "$$POSTROOM_TEST_PG"'; \
	elif [ -n "$(DB)" ]; then bench/run_pgsql "$(DB)"; else bench/run; fi

install: all ## install into PREFIX (/usr/local), below DESTDIR if set
	@meson configure build -Dprefix="$(abspath $(PREFIX))"
	@DESTDIR="$(DESTDIR)" meson install -C build

dist: ## make the source tarball of the last commit in build/dist/, the same bytes each time
	@tools/dist

deb: ## build the Debian packages of the last commit in build/deb/, and run lintian on them
	@command -v dpkg-buildpackage >/dev/null && command -v dh >/dev/null && command -v lintian >/dev/null && \
		command -v cmark-gfm >/dev/null || tools/install build docs deb
	@tools/deb

deb-check: all deb ## install, upgrade, remove and purge these packages in a bare Debian (as root; part of check)
	@command -v mmdebstrap >/dev/null || tools/install deb
	@POSTROOM_DEBS=build/deb /usr/bin/python3 -B -m pytest -q -p no:cacheprovider tests/package/test_deb.py

image: ## build the container image of the last commit with docker, podman or buildah
	@tools/image

static: ## build build-static/postroom-static, which needs no shared library, and print its size
	@tools/install build static
	@tools/static

release: ## put what is published into build/release/: tarball, packages, static program, SBOM, checksums
	@tools/release

portability: ## build and test in bare Debian 12 and 13, Ubuntu and for arm64 (as root; an hour or two)
	@tools/portability

docs: all ## build the documentation as HTML into build/site/
	@command -v cmark-gfm >/dev/null && command -v mandoc >/dev/null || tools/install docs
	@tools/docs

format: ## bring all C files into shape with clang-format
	@command -v clang-format >/dev/null || tools/install lint
	@clang-format -i $$(git ls-files '*.c' '*.h')

lint: all ## check budgets of files, functions and structs, and the words of the glossary
	@tools/lint

analyze: all ## read all C files with clang-tidy and its static analyzer (minutes)
	@command -v clang-tidy >/dev/null || tools/install lint
	@git ls-files 'src/*.c' | xargs -P "$$(nproc)" -n 4 clang-tidy -p build --quiet

clean: ## remove everything that was built
	@rm -rf build build-asan build-tsan build-fuzz build-static

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 25

.PHONY: all demo check check-postgres-versions soak bench install dist deb deb-check image static release portability docs format lint analyze clean help
