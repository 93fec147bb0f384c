# tests/torture: the program, its plugins, its CUDA without locks.
TORTURE := $(O)/torture
TORTURE_SRC := $(filter-out tests/torture/plugin.c tests/torture/rawcuda.c tests/torture/ownmalloc.c tests/torture/lockorder.c,$(wildcard tests/torture/*.c))
TORTURE_OBJ := $(TORTURE_SRC:%.c=$(O)/obj/%.o)
TORTURE_PLUGINS := $(foreach n,0 1 2 3,$(TORTURE)/plugin$(n).so)

.PHONY: torture torture-programs
torture-programs: $(TORTURE)/torture $(TORTURE)/torture_malloc $(TORTURE_PLUGINS) $(TORTURE)/raw/libcudart.so.13 $(TORTURE)/libc.so.checked
test-programs: torture-programs

# make torture [MINUTES=10] [SEED=n] [ONLY="behaviour=number …"] [T=word: only cases with it]
torture: all torture-programs
	$(Q)O=$(O) $(PYTHON) tests/torture/torture.py $(if $(ONLY),--only "$(ONLY)",--minutes $(or $(MINUTES),10)) \
	    $(if $(SEED),--seed $(SEED)) $(if $(T),--with $(T))

# -rdynamic, because plugins use the program's counters. -O1: keeps the depth of calls of the source.
$(O)/obj/tests/torture/%.o: ALL_CFLAGS += -O1 -fno-optimize-sibling-calls
TORTURE_LINK = $(CC) $(SANFLAGS) -rdynamic -o $@ $(filter %.o,$^) -L$(O)/sim -l:libcudart.so.13 -lpthread -ldl $(LDFLAGS)
$(TORTURE)/torture: $(TORTURE_OBJ) | sim
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(TORTURE_LINK)
$(TORTURE)/torture_malloc: $(TORTURE_OBJ) $(O)/obj/tests/torture/ownmalloc.o | sim
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(TORTURE_LINK)
$(TORTURE)/plugin%.so: tests/torture/plugin.c tests/torture/torture.h tests/torture/behaviours.def | sim
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MF $@.d -shared -fPIC -o $@ $< -L$(O)/sim -l:libcudart.so.13
$(TORTURE)/libc.so.checked: tests/torture/lockorder.c
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(filter-out $(SANFLAGS),$(ALL_CFLAGS)) -MF $@.d -shared -fPIC -o $@ $< -ldl
$(TORTURE)/raw/libcudart.so.13: tests/torture/rawcuda.c tests/torture/rawcuda.map
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MF $@.d -shared -fPIC -Wl,-soname,libcudart.so.13 -Wl,--version-script=tests/torture/rawcuda.map -o $@ $<

-include $(TORTURE_OBJ:.o=.d)
