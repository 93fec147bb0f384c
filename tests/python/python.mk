# libstackprobe.so: the stack capture alone, for ctypes; what tests/python runs in every CPython.
PROBE_SRC := tests/python/stackprobe.c $(wildcard interpose/stack*.c)
PROBE_OBJ := $(PROBE_SRC:%.c=$(O)/obj/%.o)
STACKPROBE := $(O)/tests/python/libstackprobe.so

$(O)/obj/tests/python/stackprobe.o: ALL_CFLAGS += -fPIC -fvisibility=hidden -Wno-missing-prototypes

$(STACKPROBE): $(PROBE_OBJ)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(SANFLAGS) -shared -o $@ -Wl,-z,nodelete $(if $(SAN),,-Wl,-z,defs) $^ -lpthread -ldl $(LDFLAGS)

python-tests: $(STACKPROBE)

-include $(O)/obj/tests/python/stackprobe.d
