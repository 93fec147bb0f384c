# Everything that `make test` and `make bench` need, and the run itself.
#
#   tests/unit/test_X.c    cmocka, linked with every object of schema/, interpose/ and analyzer/
#                          that it may want
#   tests/sim/test_X.c     cmocka, the simulated CUDA's own (fixtures/simcuda/sim.mk)
#   tests/python, tests/e2e  pytest, over the built binaries

-include fixtures/programs/programs.mk
-include fixtures/oom/oom.mk
-include fixtures/doors/doors.mk
-include fixtures/limit/limit.mk
-include tests/python/python.mk
-include tests/fuzz/fuzz.mk
-include tests/torture/torture.mk

UNIT_SRC := $(wildcard tests/unit/test_*.c)
UNIT_BIN := $(UNIT_SRC:tests/unit/%.c=$(O)/tests/unit/%)

$(O)/obj/tests/%.o: ALL_CFLAGS += -I.

# --start-group: a unit picks the objects of the rooms that it tests, in any order.
$(O)/tests/unit/%: $(O)/obj/tests/unit/%.o $(ANALYZER_LIB) $(O)/obj/libinterpose.a $(SCHEMA_LIB)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(SANFLAGS) -o $@ $< -Wl,--start-group $(ANALYZER_LIB) $(O)/obj/libinterpose.a \
	    $(SCHEMA_LIB) -Wl,--end-group $(ANALYZER_LIBS) -lcmocka $(LDFLAGS)

.PRECIOUS: $(O)/obj/tests/unit/%.o
.PHONY: test test-programs sim-tests programs python-tests bench-programs units
sim-tests programs python-tests:
units: $(UNIT_BIN)
test-programs: all units fuzz-tests sim-tests programs python-tests

# make test T=name runs only the tests whose names contain it.
# The validators are fetched while the compiler works.
test: setup
	$(Q)O=$(O) PYTHON=$(PYTHON) scripts/setup-validators.sh & \
	    $(MAKE) --no-print-directory test-programs; built=$$?; wait $$! && exit $$built
	$(Q)O=$(O) SAN=$(SAN) CC="$(CC)" $(PYTHON) tests/run.py $(T)

# Only clang's diagnostics and its link matter, so without optimisation.
.PHONY: compilers
compilers:
	$(Q)O=$(O) tests/compilers.sh

# PyTorch's CUDA builds on the simulated GPU: gigabytes to fetch, so apart from `test`.
.PHONY: test-torch
test-torch: all programs
	$(Q)O=$(O) PYTHON=$(PYTHON) tests/torch.sh $(T)

# What `test` and `test-torch` try a few times: kill -9 during a removal, and attach and detach at random moments. Hours.
.PHONY: test-often
test-often: all programs
	$(Q)cd tests/e2e && KILLS=$(or $(KILLS),300) $(PYTHON) -m pytest -q test_keep.py -k kill
	$(Q)ATTACHES=$(or $(ATTACHES),1000) O=$(O) PYTHON=$(PYTHON) tests/torch.sh restless

# The wheel in an environment of its own.
.PHONY: test-wheel
test-wheel: all
	$(Q)O=$(O) PYTHON=$(PYTHON) tests/wheel.sh

# The packages, here; and in clean Debian roots.
.PHONY: test-packages test-roots
test-roots: export ROOTS ?= default
test-packages test-roots: all
	$(Q)O=$(O) PYTHON=$(PYTHON) tests/packages.sh

# Recorders and analyzers of older commits, which it builds.
.PHONY: test-versions
test-versions: all
	$(Q)O=$(O) PYTHON=$(PYTHON) tests/versions.sh

# aarch64 under qemu-user.
.PHONY: test-arm64
test-arm64: all
	$(Q)O=$(O) tests/arm64.sh

.PHONY: bench-call
bench-call: $(O)/bench/bench_call
bench-programs: all programs

-include $(UNIT_SRC:tests/unit/%.c=$(O)/obj/tests/unit/%.d)

# ---------------------------------------------------------------- bench
BENCH := $(O)/bench
bench-programs: $(BENCH)/bench_call $(BENCH)/bench_run $(BENCH)/bench_tail $(BENCH)/libcudart.so.13 $(BENCH)/torch_reports.so $(BENCH)/count_instructions.so
$(BENCH)/libcudart.so.13: tests/bench/nullcuda.c
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -Wno-missing-prototypes -shared -fPIC -fvisibility=hidden -Wl,-soname,libcudart.so.13 -o $@ $<
$(BENCH)/bench_call $(BENCH)/bench_run $(BENCH)/bench_tail: $(BENCH)/%: tests/bench/%.c $(BENCH)/libcudart.so.13
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $^ -Wl,-rpath,'$$ORIGIN'
$(BENCH)/torch_reports.so $(BENCH)/count_instructions.so: $(BENCH)/%.so: tests/bench/%.c
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -Wno-missing-prototypes -shared -fPIC -fvisibility=hidden -o $@ $<
