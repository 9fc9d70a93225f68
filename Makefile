# tblfs: `make help` lists the targets.

CC       ?= gcc
ifeq ($(origin CC),default)
CC       := gcc
endif
SAN      ?=
DEBUG    ?= 0
JOBS     ?= $(shell nproc)
PREFIX   ?= /usr/local

# Arrows point down: a module may use those after it (docs/ARCHITECTURE.md; tests/lint/layers holds it).
MODULES  := fusefs txn table fsm bufcache base

CONFIG   := $(CC)$(if $(filter 1,$(DEBUG)),-debug)$(if $(SAN),-$(SAN))
B        := build/$(CONFIG)

WARN     := -Wall -Wextra -Wshadow -Wconversion -Werror
CFLAGS   := -std=gnu17 -O2 -g $(WARN) -D_GNU_SOURCE -I. -pthread -fno-strict-aliasing
LDLIBS   := -lxxhash -pthread
ifeq ($(DEBUG),1)
CFLAGS   += -DTBLFS_DEBUG
endif
ifneq ($(SAN),)
CFLAGS   += -fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all
LDFLAGS  += -fsanitize=$(SAN)
endif
FUSE_CFLAGS = $(shell pkg-config --cflags fuse3) -DFUSE_USE_VERSION=312
FUSE_LIBS   = $(shell pkg-config --libs fuse3)

obj_of    = $(patsubst %.c,$(B)/%.o,$(wildcard $(1)/*.c))
lib_of    = $(B)/lib$(1).a
below     = $(if $(filter base,$(1)),base,$(if $(filter bufcache,$(1)),bufcache base,$(if $(filter fsm,$(1)),fsm bufcache base,$(if $(filter table,$(1)),table fsm bufcache base,$(if $(filter txn,$(1)),txn table fsm bufcache base,$(MODULES))))))

# An archive, so that a test links only what it uses of it (and thus no module above its own).
TEST_LIB := $(B)/libtests.a

.PHONY: all build
all: build
build: $(B)/tblfs

$(B)/tblfs: $(call obj_of,tools) $(foreach m,$(MODULES),$(call lib_of,$(m)))
	$(CC) $(LDFLAGS) -o $@ $^ $(FUSE_LIBS) $(LDLIBS)

define module_rule
$(call lib_of,$(1)): $(call obj_of,$(1))
	@rm -f $$@
	ar rcs $$@ $$^
endef
$(foreach m,$(MODULES),$(eval $(call module_rule,$(m))))

$(TEST_LIB): $(call obj_of,tests/lib)
	@rm -f $@
	ar rcs $@ $^

$(B)/fusefs/%.o $(B)/tools/%.o: CFLAGS += $(FUSE_CFLAGS)

$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

# A unit test tests/unit/MOD/test_x.c links MOD and what is below it.
define unit_rule
$(B)/tests/unit/$(1)/%: $(B)/tests/unit/$(1)/%.o $(TEST_LIB) $(foreach m,$(call below,$(1)),$(call lib_of,$(m)))
	$(CC) $(LDFLAGS) -o $$@ $$^ -lcmocka $(if $(filter fusefs,$(1)),$(FUSE_LIBS)) $(LDLIBS)
endef
$(foreach m,$(MODULES),$(eval $(call unit_rule,$(m))))
.PRECIOUS: $(B)/%.o

-include $(shell find $(B) -name '*.d' 2>/dev/null)
