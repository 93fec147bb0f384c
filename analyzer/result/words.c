/* The result's small numbers in the words of JSON and of people. */
#include "analyzer/result/result.h"

static const char *const series_words[GS_SERIES_LAYERS] = {
    [GS_SERIES_DEVICE] = "device", [GS_SERIES_TENSOR] = "tensor", [GS_SERIES_PINNED] = "pinned",
    [GS_SERIES_HOST] = "host",     [GS_SERIES_SHARED] = "shared", [GS_SERIES_GRAPH] = "graph",
};

const char *gs_series_word(enum gs_series_layer layer)
{
    return (unsigned)layer < GS_SERIES_LAYERS ? series_words[layer] : "unknown";
}

static const char *const held_words[GS_HELD_N] = {
#define WORD(s, w, t) [GS_HELD_##s] = w,
    GS_HELDS(WORD)
#undef WORD
};

const char *gs_held_word(enum gs_held what)
{
    return (unsigned)what < GS_HELD_N ? held_words[what] : "unaccounted";
}

const char *gs_cause_word(enum gs_cause cause)
{
#define WORD(s, w, t) w,
    static const char *const words[] = {GS_OOM_CAUSES(WORD)};
#undef WORD
    return (unsigned)cause < GS_CAUSES_N ? words[cause] : words[GS_CAUSE_CAPACITY];
}

const char *gs_cause_title(enum gs_cause cause)
{
#define TITLE(s, w, t) t,
    static const char *const titles[] = {GS_OOM_CAUSES(TITLE)};
#undef TITLE
    return (unsigned)cause < GS_CAUSES_N ? titles[cause] : titles[GS_CAUSE_CAPACITY];
}

const char *gs_certainty_word(enum gs_certainty certainty)
{
    return certainty == GS_CERTAINTY_RECORDED   ? "recorded"
           : certainty == GS_CERTAINTY_INFERRED ? "inferred"
                                                : "guessed";
}

const char *gs_outcome_word(enum gs_oom_outcome outcome)
{
    static const char *const words[] = {"retried", "handled", "ended_run", "unknown"};
    return words[outcome];
}

const char *gs_phase_word(enum gs_phase phase)
{
#define WORD(s, w) w,
    static const char *const words[] = {GS_PHASES(WORD)};
#undef WORD
    return (unsigned)phase < GS_PHASES_N ? words[phase] : NULL;
}

const char *gs_category_word(enum gs_category category)
{
#define WORD(s, w) [GS_CATEGORY_##s] = w,
    static const char *const words[] = {GS_CATEGORIES(WORD)};
#undef WORD
    return (unsigned)category < GS_CATEGORIES_N ? words[category] : "unknown";
}

const char *gs_category_text(enum gs_category category)
{
    return category == GS_CATEGORY_OPTIMIZER_STATE ? "optimizer state" : gs_category_word(category);
}

const char *gs_owner_kind_word(enum gs_owner_kind kind)
{
#define WORD(s, w) [GS_OWNER_##s] = w,
    static const char *const words[] = {GS_OWNER_KINDS(WORD)};
#undef WORD
    return (unsigned)kind < GS_OWNER_KINDS_N ? words[kind] : words[0];
}

static const char *const level_keys[] = {
#define LEVEL(id, key, text) key,
    GS_LEVELS(LEVEL)
#undef LEVEL
};
static const char *const level_texts[] = {
#define LEVEL(id, key, text) text,
    GS_LEVELS(LEVEL)
#undef LEVEL
};

const char *gs_level_key(enum gs_level level)
{
    return level_keys[level];
}

const char *gs_level_text(enum gs_level level)
{
    return level_texts[level];
}

static const char *const phase_keys[] = {
#define PHASE(id, key, title) key,
    ESTIMATE_PHASES(PHASE)
#undef PHASE
};
static const char *const phase_titles[] = {
#define PHASE(id, key, title) title,
    ESTIMATE_PHASES(PHASE)
#undef PHASE
};

const char *gs_moment_key(int phase)
{
    return phase >= 0 && phase < ESTIMATE_PHASES_N ? phase_keys[phase] : NULL;
}

const char *gs_moment_text(int phase)
{
    return phase >= 0 && phase < ESTIMATE_PHASES_N ? phase_titles[phase] : NULL;
}
