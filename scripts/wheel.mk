# make wheel: dist/gpuspy-VERSION-py3-none-manylinux_2_28_ARCH.whl. zig's C compiler links against the symbol versions of
# glibc 2.28; libdw, libelf, jansson, libyaml, zlib and SQLite are Debian's static libraries of ARCH (scripts/wheel-libs.sh).
ARCH ?= $(shell uname -m)
WHEEL := $(O)/wheel-$(ARCH)
WHEEL_LIBS := $(WHEEL)/libs
ZIG_VERSION := 0.17.1

.PHONY: dist wheel deb rpm wheel-build wheel-tools
dist: wheel deb $(if $(shell command -v rpmbuild),rpm)
wheel: all wheel-build
	$(Q)$(PYTHON) scripts/wheel.py $(WHEEL) dist $(VERSION) $(ARCH) $(WHEEL)/objcopy $(O)/gpuspy

# The same binaries as packages.
deb rpm: all wheel-build
	$(Q)$(PYTHON) scripts/package.py $@ $(WHEEL) dist $(VERSION) $(ARCH) $(WHEEL)/objcopy $(O)/gpuspy

$(O)/zig/bin/python:
	$(call say,VENV,$(O)/zig)
	$(Q)$(PYTHON) -m venv $(O)/zig && $(O)/zig/bin/pip -q --disable-pip-version-check install ziglang==$(ZIG_VERSION)

# The compiler and objcopy for ARCH under short names; libraries in WHEEL_LIBS. zig compiles parts of the C library and of the
# compiler's when it links, without our options: /proc/self/cwd is a name of the working directory that is the same everywhere,
# so the debugging information of two folders is, too. zig's cache of the user would have those parts from other folders.
$(WHEEL)/cc: $(O)/zig/bin/python scripts/wheel-libs.sh scripts/wheel.mk
	$(Q)mkdir -p $(WHEEL)
	$(Q)scripts/wheel-libs.sh $(ARCH) $(WHEEL_LIBS)
	$(Q)zig=$$(realpath -s --relative-to=. "$$($(abspath $(O))/zig/bin/python -c 'import os, ziglang; print(os.path.dirname(ziglang.__file__))')"); \
	    printf '#!/bin/sh\nPWD=/proc/self/cwd ZIG_LIB_DIR=/proc/self/cwd/%s/lib ZIG_GLOBAL_CACHE_DIR=/proc/self/cwd/%s exec %s cc -target $(ARCH)-linux-gnu.2.28 "$$@"\n' \
	    "$$zig" "$$(realpath -s --relative-to=. $(O))/zig/cache" "$(CURDIR)/$$zig/zig" > $@
	$(Q)chmod +x $@
	$(Q)ln -sf "$$(command -v $(if $(filter $(ARCH),$(shell uname -m)),,$(ARCH)-linux-gnu-)objcopy)" $(WHEEL)/objcopy

# What has to be fetched.
wheel-tools: $(WHEEL)/cc

STATIC = $(WHEEL_LIBS)/lib$(1).a
# WHEEL_PARTS=libgpuspy.so: only this, and the simulated driver.
wheel-build: $(WHEEL)/cc
	$(Q)$(MAKE) --no-print-directory $(if $(WHEEL_PARTS),sim $(addprefix $(WHEEL)/,$(WHEEL_PARTS)),all) O=$(WHEEL) CC=$(abspath $(WHEEL)/cc) AR=$(AR) HIDE_LIBS= EXE_PIE=-pie \
	    CFLAGS='-O2 -g -fPIC -isystem $(abspath $(WHEEL_LIBS))/include -ffile-prefix-map=$(CURDIR)=.' \
	    SQLITE_STATIC=$(call STATIC,sqlite3) \
	    ANALYZER_LIBS='$(foreach lib,dw elf iberty jansson yaml z lzma bz2 sqlite3,$(call STATIC,$(lib))) -lm -lpthread -ldl'
