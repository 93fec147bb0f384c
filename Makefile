# gpuspy: make · demo · test · compilers · torture · fuzz · bench · gpu-kit · install · uninstall · help
#
# V=1 shows the commands, O=dir builds elsewhere, SAN=address|undefined|thread
# (or address,undefined) builds instrumented into a folder of its own.

.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules

VERSION := 0.1.0
PREFIX  ?= /usr/local
DESTDIR ?=
SAN     ?=
comma   := ,
empty   :=
space   := $(empty) $(empty)
O       ?= build$(if $(SAN),-$(subst $(comma),-,$(SAN)))
# A folder has one name: the compiler's lists of headers are for that of the object that it was given.
override O := $(patsubst $(CURDIR)/%,%,$(abspath $(O)))

ifeq ($(origin CC),default)
CC := gcc
endif
AR      ?= ar
# Debian's own Python has Debian's python3-pytest and python3-torch; a python3 earlier on PATH may not.
PYTHON  ?= $(firstword $(wildcard /usr/bin/python3) python3)
OPT     ?= -O2
CFLAGS  ?= $(OPT) -g
WARN    := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
           -Wpointer-arith -Wvla -Wundef -Wno-unused-parameter
# -fno-omit-frame-pointer costs nothing measurable and lets every profiler see through us.
ALL_CFLAGS = -std=gnu11 $(CFLAGS) $(WARN) -fno-omit-frame-pointer $(SANFLAGS) -MMD -MP \
             -D_GNU_SOURCE -DGPUSPY_VERSION='"$(VERSION)"' -I. -I$(O)/gen
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=undefined)
# FUZZ=1: what tests/fuzz/run.sh builds with, for libFuzzer to see which code is reached.
ifdef FUZZ
ALL_CFLAGS += -fsanitize=fuzzer-no-link
endif

V ?= 0
ifeq ($(V),0)
Q   := @
say  = @printf '  %-7s %s\n' '$(1)' '$(2)'
else
Q   :=
say  = @:
endif

.PHONY: all
all: $(O)/libgpuspy.so $(O)/gpuspy sim

# ---------------------------------------------------------------- schema
# One set of objects serves both sides: position independent, hidden symbols.
SCHEMA_SRC  := $(wildcard schema/*.c)
SCHEMA_OBJ  := $(SCHEMA_SRC:%.c=$(O)/obj/%.o)
SCHEMA_LIB  := $(O)/obj/libschema.a

$(O)/gen/%_sql.h: schema/%.sql
	$(call say,GEN,$@)
	@mkdir -p $(@D)
	$(Q)sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/"/' -e 's/$$/\\n"/' $< > $@

# ---------------------------------------------------------------- interpose
INTERPOSE_SRC := $(wildcard interpose/*.c)
INTERPOSE_ASM := $(wildcard interpose/*.S)
INTERPOSE_OBJ := $(INTERPOSE_SRC:%.c=$(O)/obj/%.o) $(INTERPOSE_ASM:%.S=$(O)/obj/%.o)
# A linker without --exclude-libs takes a library whose symbols are hidden (scripts/hide-symbols.py).
HIDE_LIBS ?= -Wl,--exclude-libs,ALL
SQLITE_STATIC ?= $(shell $(CC) -print-file-name=libsqlite3.a)

$(SCHEMA_OBJ) $(INTERPOSE_OBJ): ALL_CFLAGS += -fPIC -fvisibility=hidden
# What it asks of PyTorch may throw, which then goes on through it.
$(O)/obj/interpose/door_torch.o $(O)/obj/interpose/allocator.o: ALL_CFLAGS += -fexceptions
$(SCHEMA_OBJ) $(O)/obj/analyzer/sql/views.o: $(O)/gen/gpuspy_sql.h $(O)/gen/keep_sql.h

# The target's own SQLite must never be touched: SQLite is linked in statically and hidden.
$(O)/libgpuspy.so: $(INTERPOSE_OBJ) $(SCHEMA_LIB) interpose/libgpuspy.map
	$(call say,LINK,$@)
	$(Q)$(CC) $(SANFLAGS) -shared -o $@ -Wl,-soname,libgpuspy.so \
	    -Wl,--version-script=interpose/libgpuspy.map $(HIDE_LIBS) -Wl,-z,defs \
	    -Wl,-z,nodelete -Wl,-z,now $(if $(SAN),,-Wl,-z,defs) \
	    $(INTERPOSE_OBJ) $(SCHEMA_LIB) $(SQLITE_STATIC) -lm -lpthread -ldl $(LDFLAGS)

# ---------------------------------------------------------------- analyzer
ANALYZER_SRC := $(wildcard analyzer/*.c analyzer/*/*.c)
ANALYZER_OBJ := $(ANALYZER_SRC:%.c=$(O)/obj/%.o) $(O)/obj/page.o $(O)/obj/estimate_page.o
ANALYZER_LIB := $(O)/obj/libanalyzer.a
ANALYZER_LIBS ?= -ldw -lelf -liberty -ljansson -lyaml -lz $(SQLITE_STATIC) -lm -lpthread -ldl

$(O)/obj/libschema.a: $(SCHEMA_OBJ)
$(O)/obj/libanalyzer.a: $(filter-out $(O)/obj/analyzer/main.o,$(ANALYZER_OBJ))
# What a unit test asks of the loader and of libc is theirs: without the doors of dlsym, dlopen, dlclose, fork and prctl.
$(O)/obj/libinterpose.a: $(filter-out %_entry.o %/door_dlclose.o %/door_fork.o %/door_prctl.o %/musl.o,$(INTERPOSE_OBJ))
$(O)/obj/lib%.a:
	$(call say,AR,$@)
	@mkdir -p $(@D)
	@rm -f $@
	$(Q)$(AR) qcs $@ $^

# The pages of `report --html` and `estimate --html`: scripts and styles in one file, which becomes a part of the
# program. Scripts in the order in which they run; the report's parts register themselves before page.js starts them.
D3 ?= /usr/share/nodejs/d3/dist/d3.min.js
WEB := analyzer/web
PAGE_PARTS := $(filter-out %/model.js %/page.js,$(sort $(wildcard $(WEB)/*.js)))
PAGE := $(WEB)/page.html $(sort $(wildcard $(WEB)/*.css)) $(D3) $(WEB)/model.js $(PAGE_PARTS) $(WEB)/page.js
ESTIMATE_PAGE := $(WEB)/estimate/estimate.html $(WEB)/page.css $(WEB)/estimate/estimate.css \
                 $(WEB)/estimate/start.js $(WEB)/core_text.js $(WEB)/estimate/estimate.js
# d3 may not be there: assemble.sh says then where to get it.
$(O)/gen/page.html: $(WEB)/assemble.sh $(filter-out $(D3),$(PAGE)) $(wildcard $(D3))
	$(call say,GEN,$@)
	@mkdir -p $(@D)
	$(Q)$(WEB)/assemble.sh $(PAGE) > $@
$(O)/gen/estimate_page.html: $(WEB)/assemble.sh $(ESTIMATE_PAGE)
	$(call say,GEN,$@)
	@mkdir -p $(@D)
	$(Q)$(WEB)/assemble.sh $(ESTIMATE_PAGE) > $@
$(O)/gen/%.S: $(O)/gen/%.html Makefile
	$(Q)printf '%s\n' '.section .rodata' '.global page_html_$*, page_html_$*_end' 'page_html_$*:' \
	    '.incbin "$<"' 'page_html_$*_end: .byte 0' '.section .note.GNU-stack,"",@progbits' > $@
$(O)/obj/page.o $(O)/obj/estimate_page.o: $(O)/obj/%.o: $(O)/gen/%.S
	$(call say,AS,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -c -o $@ $<

$(O)/gpuspy: $(O)/obj/analyzer/main.o $(ANALYZER_LIB) $(SCHEMA_LIB)
	$(call say,LINK,$@)
	$(Q)$(CC) $(SANFLAGS) $(EXE_PIE) -o $@ $^ $(ANALYZER_LIBS) $(LDFLAGS)

# ---------------------------------------------------------------- compile
$(O)/obj/%.o: %.c
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -c -o $@ $<

$(O)/obj/%.o: %.S
	$(call say,AS,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -c -o $@ $<

# ---------------------------------------------------------------- parts with rules of their own
# fixtures/simcuda/sim.mk: the simulated CUDA (target `sim`); tests/tests.mk: programs, units, e2e.
.PHONY: sim
-include fixtures/simcuda/sim.mk
-include tests/tests.mk
-include scripts/wheel.mk

# ---------------------------------------------------------------- everything else
.PHONY: setup demo bench gpu-kit format words install uninstall clean help
setup:
	$(Q)scripts/setup.sh

demo: setup
	$(Q)$(MAKE) --no-print-directory all
	$(Q)O=$(O) scripts/demo.sh

bench: setup
	$(Q)$(MAKE) --no-print-directory all bench-programs
	$(Q)BENCH=1 O=$(O) tests/arm64.sh >/dev/null || true
	$(Q)O=$(O) $(PYTHON) scripts/bench.py

# Test programs whose line numbers are expected stay as they are.
FORMATTED = $(shell git ls-files 'analyzer/*.[ch]' 'interpose/*.[ch]' 'schema/*.[ch]' 'fixtures/simcuda/*.[ch]' 'tests/*.[ch]')
format:
	$(Q)clang-format -i $(FORMATTED)

words:
	$(Q)scripts/words.py $(T)

gpu-kit: $(O)/libgpuspy.so $(O)/gpuspy
	$(Q)O=$(O) scripts/gpu-kit.sh

COMMANDS = $(shell sed -n 's/^COMMAND.\([a-z]*\),.*/\1/p' analyzer/command/commands.def)
COMPLETIONS := bash-completion/completions/gpuspy zsh/site-functions/_gpuspy fish/vendor_completions.d/gpuspy.fish

install: $(O)/libgpuspy.so $(O)/gpuspy sim
	$(call say,INSTALL,$(DESTDIR)$(PREFIX))
	$(Q)install -D -m 755 $(O)/gpuspy $(DESTDIR)$(PREFIX)/bin/gpuspy
	$(Q)install -D -m 755 $(O)/libgpuspy.so $(DESTDIR)$(PREFIX)/lib/libgpuspy.so
	$(Q)install -d $(DESTDIR)$(PREFIX)/lib/gpuspy/sim/math $(DESTDIR)$(PREFIX)/lib/gpuspy/sim/python
	$(Q)install -m 644 $(SIM_PYTHON) $(DESTDIR)$(PREFIX)/lib/gpuspy/sim/python
	$(Q)for p in python/gpuspy pytest-gpuspy/pytest_gpuspy; do \
	    install -d $(DESTDIR)$(PREFIX)/lib/gpuspy/python/$${p##*/} && \
	    install -m 644 $$p/*.py $(DESTDIR)$(PREFIX)/lib/gpuspy/python/$${p##*/} || exit 1; done
	$(Q)install -m 755 $(filter-out %/old-driver/libcuda.so.1 %.a,$(SIM_LIBS)) $(DESTDIR)$(PREFIX)/lib/gpuspy/sim
	$(Q)install -m 755 $(SIM)/math/*.so.* $(DESTDIR)$(PREFIX)/lib/gpuspy/sim/math
	$(Q)install -d $(addprefix $(DESTDIR)$(PREFIX)/share/,man/man1 $(dir $(COMPLETIONS)))
	$(Q)$(O)/gpuspy help --man > $(DESTDIR)$(PREFIX)/share/man/man1/gpuspy.1
	$(Q)for c in $(COMMANDS); do \
	    $(O)/gpuspy help --man $$c > $(DESTDIR)$(PREFIX)/share/man/man1/gpuspy-$$c.1 || exit 1; done
	$(Q)$(O)/gpuspy help --completion=bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/gpuspy
	$(Q)$(O)/gpuspy help --completion=zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_gpuspy
	$(Q)$(O)/gpuspy help --completion=fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/gpuspy.fish

uninstall:
	$(call say,REMOVE,$(DESTDIR)$(PREFIX))
	$(Q)rm -f $(DESTDIR)$(PREFIX)/bin/gpuspy $(DESTDIR)$(PREFIX)/lib/libgpuspy.so \
	    $(DESTDIR)$(PREFIX)/share/man/man1/gpuspy.1 \
	    $(COMMANDS:%=$(DESTDIR)$(PREFIX)/share/man/man1/gpuspy-%.1) \
	    $(COMPLETIONS:%=$(DESTDIR)$(PREFIX)/share/%)
	$(Q)rm -rf $(DESTDIR)$(PREFIX)/lib/gpuspy/sim $(DESTDIR)$(PREFIX)/lib/gpuspy/python

clean:
	$(Q)rm -rf $(O)

help:
	@printf '%s\n' \
	  'make            build $(O)/libgpuspy.so, $(O)/gpuspy and the simulated CUDA in $(O)/sim' \
	  'make demo       set up, build, record two runs and print their reports' \
	  'make test       set up, build and run every test; ends with "N passed, N failed"' \
	  'make test-torch run CUDA builds of PyTorch on the simulated GPU (fetches some GB)' \
	  'make test-often kill -9 and attach at random moments, KILLS=300 and ATTACHES=1000 times' \
	  'make test-wheel the wheel in an environment of its own' \
	  'make test-packages the deb and the rpm; wheel, tarball and deb by an ordinary user' \
	  'make test-roots     … in clean Debian roots (root, debootstrap)' \
  'make test-versions  older recorders with this analyzer, and the reverse (builds older commits)' \
  'make test-arm64 the same binaries for aarch64 under qemu-user, unit tests and a recording' \
	  'make compilers  build with clang, whose warnings are errors, too' \
  'make format     format the C sources (clang-format 14)' \
	  'make words      print every text that a person reads, with its line (T=part: of files whose name has it)' \
	  'make fuzz       let each fuzz target run SECONDS=60 (clang; T=name: only those with it)' \
	  'make torture    run random programs bare and recorded and compare them (MINUTES=10 SEED=n)' \
	  'make bench      measure cost and size beside peers, printed as ratios' \
	  'make wheel      a wheel for pip in dist/ that needs glibc 2.28 (ARCH=aarch64: for that processor)' \
	  'make deb, make rpm  the same binaries as packages in dist/; make dist: all of them, with a tarball' \
  'make gpu-kit    pack what scripts/gpu-acceptance.sh needs on a machine with a GPU' \
	  'make install    into PREFIX ($(PREFIX)), below DESTDIR if set; make uninstall removes it' \
	  'make clean      remove $(O)' \
	  '' \
	  'V=1 shows commands · O=dir builds elsewhere · CC=clang · SAN=address|undefined|thread'

-include $(SCHEMA_OBJ:.o=.d) $(INTERPOSE_OBJ:.o=.d) $(ANALYZER_OBJ:.o=.d)
