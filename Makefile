# tblfs: `make help` lists the targets.

CC       ?= gcc
ifeq ($(origin CC),default)
CC       := gcc
endif
SAN      ?=
DEBUG    ?= 0
JOBS     ?= $(shell nproc)
PREFIX   ?= /usr/local
SBINDIR  ?= /sbin
SYSTEMDDIR ?= $(PREFIX)/lib/systemd/system
ZSHDIR   ?= $(PREFIX)/share/zsh/site-functions
TEST     ?=
SEED     ?=
CRASH    ?=
FAULT    ?=
PLANT    ?= 0

# Arrows point down: a module may use those after it (docs/ARCHITECTURE.md; tests/lint/layers holds it).
MODULES  := fusefs txn table fsm bufcache base

comma    := ,
CONFIG   := $(CC)$(if $(filter 1,$(DEBUG)),-debug)$(if $(SAN),-$(subst $(comma),+,$(SAN)))$(if $(filter 1,$(PLANT)),-plant)
B        := build/$(CONFIG)

WARN     := -Wall -Wextra -Wshadow -Wconversion -Werror
OPTIMISE := -O2
ifneq ($(SAN),)
# The sanitizers' own code in between makes gcc see uninitialised uses and narrowing that are none.
OPTIMISE := -O1
WARN     += -Wno-maybe-uninitialized -Wno-conversion
endif
ifneq ($(findstring clang,$(CC)),)
WARN     += -Wno-unknown-warning-option
endif
CFLAGS   := -std=gnu17 $(OPTIMISE) -g $(WARN) -D_GNU_SOURCE -I. -pthread -fno-strict-aliasing
LDLIBS   := -lxxhash -pthread
ifeq ($(DEBUG),1)
CFLAGS   += -DTBLFS_DEBUG
endif
ifeq ($(PLANT),1)
CFLAGS   += -DTBLFS_PLANT
endif
# For bench/transactions: one whole sweep for each dropped relation.
ifeq ($(SWEEP_EACH),1)
CFLAGS   += -DTBLFS_SWEEP_EACH
endif
ifneq ($(SAN),)
CFLAGS   += -fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all
LDFLAGS  += -fsanitize=$(SAN)
endif
FUSE_CFLAGS = $(shell pkg-config --cflags fuse3) -DFUSE_USE_VERSION=312
FUSE_LIBS   = $(shell pkg-config --libs fuse3)

MAKEFLAGS += --no-builtin-rules --no-print-directory
V        ?=
Q        := $(if $(V),,@)
say       = $(if $(V),,@printf '  %-4s %s\n' $(1) $@)

obj_of    = $(patsubst %.c,$(B)/%.o,$(wildcard $(1)/*.c))
lib_of    = $(B)/lib$(1).a
prog_of   = $(patsubst %.c,$(B)/%,$(wildcard $(1)))
# A module and those below it, for linking.
from      = $(if $(filter $(1),$(firstword $(2))),$(2),$(call from,$(1),$(wordlist 2,$(words $(2)),$(2))))
below     = $(call from,$(1),$(MODULES))
libs_of   = $(foreach m,$(call below,$(1)),$(call lib_of,$(m)))

# An archive, so that a test links only what it uses of it (and thus no module above its own).
TEST_LIB  := $(B)/libtests.a
MODEL_LIB := $(B)/libmodel.a
MODEL_OBJ := $(filter-out $(B)/tests/model/test_%.o,$(call obj_of,tests/model))
CRASH_LIB := $(B)/libcrash.a
CRASH_OBJ := $(filter-out $(B)/tests/crash/test_%.o,$(call obj_of,tests/crash))

SOURCES   := $(wildcard $(addsuffix /*.c,$(MODULES) tools bench tests/lib tests/model tests/crash tests/mount tests/unit/*))
HEADERS   := $(wildcard $(addsuffix /*.h,$(MODULES) tools bench tests/lib tests/model tests/crash tests/mount tests/unit/*))

.PHONY: all build libs objects mount-helpers bench-programs help check check-long long-packages check-build lint fmt bench install man deb clean
.DELETE_ON_ERROR:
all: build
build: $(B)/tblfs
libs: $(foreach m,$(MODULES),$(call lib_of,$(m))) $(call obj_of,tools)
objects: $(patsubst %.c,$(B)/%.o,$(SOURCES))
mount-helpers: $(call prog_of,tests/mount/*.c)
bench-programs: $(call prog_of,bench/*.c)

help:
	@printf '%s\n' \
	  'make              the tblfs command: build/gcc/tblfs' \
	  'make check        installs what is missing, builds all variants, runs lint and all tests (13 minutes on 2 CPUs)' \
	  'make check-long   the same with LONG=1: fresh seeds, SECONDS_LONG seconds for tests that can use them' \
	  'make lint         only the checks of the source' \
	  'make fmt          formats the source with clang-format' \
	  'make bench        measures against a plain directory and bindfs (bench/README.md)' \
	  'make man          the man pages: build/gcc/man' \
	  'make deb          a Debian package: build/gcc/deb/tblfs_VERSION_ARCHITECTURE.deb' \
	  'make install      into PREFIX (/usr/local): the command, man pages, completion, systemd units, a shell library; the mount' \
	  '                  helpers into SBINDIR (/sbin). DESTDIR is honoured' \
	  'make clean        removes build/' \
	  '' \
	  'Variables:' \
	  '  TEST=GLOB       only tests whose name, or its last part, matches: TEST=unit/base/*, TEST=test_model, TEST=lint/*' \
	  '  SEED=N          the seed of random tests (each prints the line that replays it)' \
	  '  SAN=address|undefined|thread   builds with sanitizers (a list with commas works)' \
	  '  CC=gcc|clang    the compiler (both are tried by make check)' \
	  '  DEBUG=1         -DTBLFS_DEBUG: lock order and structure checks' \
  '  PLANT=1         -DTBLFS_PLANT: bugs that tests can switch on (base/plant.def)' \
  '  CRASH=... FAULT=...   one run or one state of the crash tests, as they print it' \
	  '  V=1             shows the commands' \
	  'make check with SAN, DEBUG=1 or CC given runs everything in that one build instead of the usual choice.'

# ---- objects, libraries, programs ----

$(B)/tblfs: $(call obj_of,tools) $(foreach m,$(MODULES),$(call lib_of,$(m)))
	$(call say,LD)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(FUSE_LIBS) $(LDLIBS) -lncursesw -ltinfo

define archive
$(call say,AR)
@rm -f $@
$(Q)ar rcs $@ $^
endef

define module_rule
$(call lib_of,$(1)): $(call obj_of,$(1))
	$$(archive)
endef
$(foreach m,$(MODULES),$(eval $(call module_rule,$(m))))

$(TEST_LIB): $(call obj_of,tests/lib)
	$(archive)

$(MODEL_LIB): $(MODEL_OBJ)
	$(archive)

$(CRASH_LIB): $(CRASH_OBJ)
	$(archive)

$(B)/fusefs/%.o $(B)/tools/%.o $(B)/tests/unit/fusefs/%.o: CFLAGS += $(FUSE_CFLAGS)

$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

# A unit test tests/unit/MOD/test_x.c links MOD and what is below it.
define unit_rule
$(B)/tests/unit/$(1)/%: $(B)/tests/unit/$(1)/%.o $(TEST_LIB) $(call libs_of,$(1))
	$$(call say,LD)
	$$(Q)$(CC) $(LDFLAGS) -o $$@ $$^ -lcmocka $(if $(filter fusefs,$(1)),$(FUSE_LIBS)) $(LDLIBS)
endef
$(foreach m,$(MODULES),$(eval $(call unit_rule,$(m))))

# A model test links the store, and the files of its folder that are not tests themselves.
$(B)/tests/model/%: $(B)/tests/model/%.o $(MODEL_LIB) $(TEST_LIB) $(call libs_of,txn)
	$(call say,LD)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lcmocka $(LDLIBS)

# It runs the others.
PROGRAMS_PLANTED := $(sort $(shell sed -n 's/^PLANT_MODEL_BUG.[A-Z_]*, "\([^"]*\)".*/\1/p' base/plant.def))
$(B)/tests/model/test_programs_planted: | $(addprefix $(B)/tests/,$(PROGRAMS_PLANTED))

# So does a crash test.
$(B)/tests/crash/%: $(B)/tests/crash/%.o $(CRASH_LIB) $(TEST_LIB) $(call libs_of,txn)
	$(call say,LD)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lcmocka $(LDLIBS)

# Programs that the shell tests on mounts run; they know only system calls.
$(B)/tests/mount/%: $(B)/tests/mount/%.o $(TEST_LIB) $(call libs_of,base)
	$(call say,LD)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(B)/bench/%: $(B)/bench/%.o $(TEST_LIB) $(call libs_of,txn)
	$(call say,LD)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(if $(filter commits,$*),-lsqlite3) $(LDLIBS)

.PRECIOUS: $(B)/%.o

-include $(shell find $(B) -name '*.d' 2>/dev/null)

# ---- checks ----

# Which build a test runs in: the three that `make check` needs, or the one that was asked for.
ONE_BUILD := $(if $(SAN)$(filter 1,$(DEBUG))$(filter command%,$(origin CC)),1)
BUILD_RELEASE := $(if $(ONE_BUILD),$(B),build/gcc)
BUILD_ASAN    := $(if $(ONE_BUILD),$(B),build/gcc-debug-address+undefined)
BUILD_TSAN    := $(if $(ONE_BUILD),$(B),build/gcc-debug-thread)
BUILD_PLANT   := $(if $(ONE_BUILD),$(B),build/gcc-plant)

RUN_TESTS  = TEST='$(TEST)' SEED='$(SEED)' JOBS='$(JOBS)' BUILD_RELEASE=$(BUILD_RELEASE) BUILD_ASAN=$(BUILD_ASAN) \
             BUILD_TSAN=$(BUILD_TSAN) BUILD_PLANT=$(BUILD_PLANT) CRASH='$(CRASH)' FAULT='$(FAULT)' CC='$(CC)' tests/run
PARALLEL   = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(JOBS))
SUB_MAKE   = $(MAKE) $(if $(V),,-s) $(PARALLEL) TEST= V=$(V)

check:
	@mountscripts/deps build test
	+@$(MAKE) check-build
	@$(RUN_TESTS)

check-long: export LONG := 1
check-long: export SECONDS_LONG ?= 600
check-long: long-packages check
long-packages: # what is not there is skipped
	-@mountscripts/deps long

check-build:
ifeq ($(ONE_BUILD),1)
	+@targets=$$($(RUN_TESTS) --targets) && if [ -n "$$targets" ]; then $(SUB_MAKE) $$targets; fi
else
	+@targets=$$($(RUN_TESTS) --targets release) && \
	  if [ -n "$$targets" ]; then $(SUB_MAKE) CC=gcc DEBUG=0 SAN= $$targets; fi
	+@targets=$$($(RUN_TESTS) --targets asan) && \
	  if [ -n "$$targets" ]; then $(SUB_MAKE) CC=gcc DEBUG=1 SAN=address,undefined $$targets; fi
	+@targets=$$($(RUN_TESTS) --targets tsan) && \
	  if [ -n "$$targets" ]; then $(SUB_MAKE) CC=gcc DEBUG=1 SAN=thread $$targets; fi
	+@targets=$$($(RUN_TESTS) --targets plant) && \
	  if [ -n "$$targets" ]; then $(SUB_MAKE) CC=gcc DEBUG=0 SAN= PLANT=1 $$targets; fi
	+@if [ -z '$(TEST)' ]; then $(SUB_MAKE) CC=clang DEBUG=1 SAN= objects; fi
endif

lint:
	+@$(MAKE) check-build TEST='lint/*'
	@$(RUN_TESTS) --only 'lint/*'

fmt:
	clang-format -i $(SOURCES) $(HEADERS)

bench: build mount-helpers bench-programs
	mountscripts/deps bench
	TBLFS=$(abspath $(B)/tblfs) BENCH_PROGRAMS=$(abspath $(B)/bench) bench/run $(BENCH_ARGS)
	TBLFS=$(abspath $(B)/tblfs) bench/durable $(BENCH_ARGS)
	bench/transactions $(BENCH_ARGS)
	TBLFS=$(abspath $(B)/tblfs) bench/small_tables $(BENCH_ARGS)

# ---- installation ----

HELPERS := $(wildcard mountscripts/mount.* mountscripts/umount.*)
UNITS   := $(wildcard mountscripts/systemd/*@.*)

# Built anew each time: they say what the program says.
man: $(B)/tblfs
	rm -rf $(B)/man
	mountscripts/manpages $(B)/tblfs $(B)/man

install: build man
	install -d $(DESTDIR)$(PREFIX)/share/man
	cp -r $(B)/man/. $(DESTDIR)$(PREFIX)/share/man/
	install -D -m 0755 $(B)/tblfs $(DESTDIR)$(PREFIX)/bin/tblfs
	install -d $(DESTDIR)$(SBINDIR)
	install -m 0755 $(HELPERS) $(DESTDIR)$(SBINDIR)/
	ln -sf mount.fuse.tblfs $(DESTDIR)$(SBINDIR)/mount.tblfs
	install -D -m 0644 mountscripts/tblfs.sh $(DESTDIR)$(PREFIX)/share/tblfs/tblfs.sh
	install -D -m 0644 mountscripts/completion/tblfs.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/tblfs
	install -D -m 0755 mountscripts/keep-bases $(DESTDIR)$(PREFIX)/share/tblfs/keep-bases
	install -D -m 0644 mountscripts/completion/_tblfs $(DESTDIR)$(ZSHDIR)/_tblfs
	install -d $(DESTDIR)$(SYSTEMDDIR)
	for unit in $(UNITS); do \
	  sed 's:/usr/local/:$(PREFIX)/:' $$unit > $(DESTDIR)$(SYSTEMDDIR)/$${unit##*/} && \
	  chmod 0644 $(DESTDIR)$(SYSTEMDDIR)/$${unit##*/} || exit 1; done

# Nothing says what was built, so it is made anew each time.
deb: build
	$(Q)rm -rf $(B)/deb
	$(Q)mountscripts/package $(B) $(B)/deb

clean:
	rm -rf build
