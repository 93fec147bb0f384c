#include "analyzer/run/words.h"

#include "schema/event.h"

#define WORD(symbol, value, word) [value] = (word),
#define WORDS(name, rows)                                                           \
    const char *name(unsigned i)                                                    \
    {                                                                               \
        static const char *const words[] = {rows(WORD)};                            \
        return i < sizeof words / sizeof *words && words[i] ? words[i] : "unknown"; \
    }
WORDS(run_layer_word, GS_LAYERS)
WORDS(run_space_word, GS_SPACES)
WORDS(run_direction_word, GS_DIRECTIONS)
WORDS(run_host_memory_word, GS_HOST_MEMORIES)
WORDS(run_sync_word, GS_SYNC_KINDS)
WORDS(run_frame_word, GS_FRAME_KINDS)
WORDS(run_mark_word, GS_MARK_KINDS)
