# What tests/python needs:
#   libstackprobe.so   the stack capture alone, for ctypes. Never instrumented, whatever SAN says:
#                      the interpreters that load it are not.
#   embed              a C program that brings a Python late
PROBE_SRC  := tests/python/stackprobe.c $(wildcard interpose/stack*.c)
PROBE_OBJ  := $(PROBE_SRC:%.c=$(O)/obj/probe/%.o)
STACKPROBE := $(O)/tests/python/libstackprobe.so
EMBED      := $(O)/tests/python/embed

$(PROBE_OBJ) $(STACKPROBE) $(EMBED): SANFLAGS :=
$(PROBE_OBJ): ALL_CFLAGS += -fPIC -fvisibility=hidden -Wno-missing-prototypes -DGS_STATIC_TLS=

$(O)/obj/probe/%.o: %.c
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -c -o $@ $<

$(STACKPROBE): $(PROBE_OBJ)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -shared -o $@ -Wl,-z,nodelete -Wl,-z,defs $^ -lpthread -ldl $(LDFLAGS)

$(EMBED): tests/python/embed.c
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $< -ldl $(LDFLAGS)

.PHONY: python-tests
python-tests: $(STACKPROBE) $(EMBED)

# make bench-stack: ns a capture by depth, of C and in each CPython of the machine
BENCH_STACK := $(O)/bench/bench_stack
$(BENCH_STACK): tests/bench/bench_stack.c $(O)/obj/libinterpose.a $(SCHEMA_LIB)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $< $(O)/obj/libinterpose.a $(SCHEMA_LIB) -lpthread -ldl $(LDFLAGS)

.PHONY: bench-stack
bench-stack: $(BENCH_STACK) $(STACKPROBE)
	$(Q)$(BENCH_STACK)
	$(Q)$(PYTHON) tests/bench/bench_stack.py $(STACKPROBE)

-include $(PROBE_OBJ:.o=.d) $(BENCH_STACK).d
