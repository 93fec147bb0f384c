# Fuzzing. `make test` links each target with tests/fuzz/main.c, which feeds it its seeds and the inputs that once found
# an error; `make fuzz` compiles everything with clang, libFuzzer and sanitizers in a folder of its own, and runs each.

FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
FUZZ_COMMON := $(patsubst %,$(O)/obj/tests/fuzz/%.o,records files spools databases foreign)
FUZZ_LIBS := $(ANALYZER_LIB) $(SCHEMA_LIB) $(O)/obj/libinterpose.a
FUZZ_LINK = $(FUZZ_COMMON) -Wl,--start-group $(FUZZ_LIBS) -Wl,--end-group \
            $(ANALYZER_LIBS) -lcmocka $(LDFLAGS)
FUZZ_TEST := $(FUZZ_SRC:tests/fuzz/%.c=$(O)/tests/fuzz/test_%)
FUZZ_BIN := $(FUZZ_SRC:tests/fuzz/%.c=$(O)/fuzz/%)

$(O)/tests/fuzz/test_%: $(O)/obj/tests/fuzz/%.o $(O)/obj/tests/fuzz/main.o $(FUZZ_COMMON) $(FUZZ_LIBS)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(SANFLAGS) -o $@ $< $(O)/obj/tests/fuzz/main.o $(FUZZ_LINK)

# libFuzzer contains main. Only FUZZ=1 instruments the objects for it.
$(O)/fuzz/%: $(O)/obj/tests/fuzz/%.o $(FUZZ_COMMON) $(FUZZ_LIBS)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(SANFLAGS) -fsanitize=fuzzer -o $@ $< $(FUZZ_LINK)

.PRECIOUS: $(O)/obj/tests/fuzz/%.o
.PHONY: fuzz fuzz-tests fuzz-programs fuzz-objects
fuzz-tests: $(FUZZ_TEST)
fuzz-objects: $(FUZZ_SRC:tests/fuzz/%.c=$(O)/obj/tests/fuzz/%.o) $(FUZZ_COMMON)
fuzz-programs: $(FUZZ_BIN) $(FUZZ_TEST)

# make fuzz T=name runs only the targets whose names contain it, for SECONDS=n each.
SECONDS ?= 60
fuzz: setup
	$(Q)MAKE="$(MAKE)" CC=clang tests/fuzz/run.sh $(SECONDS) $(T)

-include $(FUZZ_SRC:tests/fuzz/%.c=$(O)/obj/tests/fuzz/%.d) $(FUZZ_COMMON:.o=.d) $(O)/obj/tests/fuzz/main.d
