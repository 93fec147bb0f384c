/* Groups the tensors of files by form: "layers.*.q_proj.weight, 4096 x 4096, BF16, 32 of them". */
#include <string.h>
#include "analyzer/base/each.h"
#include "analyzer/base/term.h"
#include "analyzer/model/stored.h"

/* A model of 10 000 experts in 100 layers has a million tensors of a few forms. */
enum { TENSORS_MAX = 4000000, FORMS_MAX = 4000, NAME_BYTES_MAX = 1000, HEADERS_MAX = 1000000000 };

struct model_stored *model_stored_new(void)
{
    struct model_stored *s = arena_realloc(NULL, 1, sizeof *s);

    memset(s, 0, sizeof *s);
    return s;
}

void model_stored_free(struct model_stored *s)
{
    arena_free(&s->arena);
    MAP_RELEASE(&s->names, &s->forms_by, &s->patterns);
    ARENA_RELEASE(s->forms, s);
}

bool model_stored_has(const struct model_stored *s, const char *name, size_t length)
{
    return map_get(&s->names, map_hash_bytes(0, name, length)) != MAP_NEW;
}

/* Whether the part of the name that ends at `end` is one that a layer's number follows. */
static bool before_layer(const char *name, size_t end)
{
    static const char *const words[] = {"layers", "layer", "h", "blk", "blocks", "block"};
    size_t begin = end;

    while (begin > 0 && name[begin - 1] != '.') begin--;
    return ANY_OF(w, words, COUNT_OF(words), strlen(*w) == end - begin && memcmp(*w, name + begin, end - begin) == 0);
}

/* Replaces numbers between dots by "*". Returns the number of the layer; UINT64_MAX: it is in none. */
static uint64_t name_pattern_of(const char *name, size_t length, char out[NAME_BYTES_MAX + 1])
{
    uint64_t layer = UINT64_MAX;
    size_t n = 0;

    for (size_t i = 0; i < length;) {
        size_t end = i;
        uint64_t number = 0;
        while (end < length && name[end] >= '0' && name[end] <= '9' && end - i < 9)
            number = number * 10 + (uint64_t)(name[end++] - '0');
        if (end > i && (end == length || name[end] == '.') && (i == 0 || name[i - 1] == '.')) {
            if (i > 1 && layer == UINT64_MAX && number < MODEL_LAYERS_MAX && before_layer(name, i - 1)) layer = number;
            out[n++] = '*';
            i = end;
        } else {
            out[n++] = name[i++];
        }
    }
    out[n] = 0;
    return layer;
}

static struct model_stored_form *form_of(struct model_stored *s, const char *pattern,
                                         const struct model_stored_tensor *t)
{
    const uint64_t key[] = {t->rank, t->first, t->second, t->elements, (uint64_t)(uintptr_t)t->type};
    const uint64_t of_pattern = map_hash_text(0, pattern);
    uint32_t *at = map_at(&s->forms_by, map_hash_bytes(of_pattern, key, sizeof key));

    if (*at == MAP_NEW) {
        if (s->forms_n == FORMS_MAX) return NULL;
        *at = (uint32_t)s->forms_n;
        uint32_t *first = map_at(&s->patterns, of_pattern);
        ARENA_APPEND(s->forms, .pattern = arena_printf(&s->arena, "%s", pattern), .type = t->type, .rank = t->rank,
                     .first = t->first, .second = t->second, .elements = t->elements, .next = *first);
        *first = (uint32_t)(s->forms_n - 1);
        return &s->forms[s->forms_n - 1];
    }
    return &s->forms[*at];
}

const struct model_stored_form *model_stored_find(const struct model_stored *s, const char *pattern)
{
    uint32_t at = map_get(&s->patterns, map_hash_text(0, pattern));

    return at == MAP_NEW ? NULL : &s->forms[at];
}

bool model_stored_header(struct model_stored *s, const struct model_file *f, uint64_t bytes)
{
    s->header_bytes += bytes; /* cannot overflow: at most 10000 files */
    return s->header_bytes <= HEADERS_MAX ||
           model_file_reject(
               f, "and the files before it have headers of more than %d bytes in total, more than any known model",
               HEADERS_MAX);
}

bool model_stored_add(struct model_stored *s, const struct model_file *f, const struct model_stored_tensor *t)
{
    char pattern[NAME_BYTES_MAX + 1], clean[100], name[NAME_BYTES_MAX + 1];
    uint32_t *known;
    uint64_t layer;

    if (t->length > NAME_BYTES_MAX || memchr(t->name, 0, t->length))
        return model_file_reject(f,
                                 t->length > NAME_BYTES_MAX
                                     ? "a tensor's name has %zu bytes, which is too long for a name"
                                     : "a tensor's name of %zu bytes has a NUL in it",
                                 t->length);
    memcpy(name, t->name, t->length);
    name[t->length] = 0;
    if (s->tensors == TENSORS_MAX)
        return model_file_reject(f, "has more than %d tensors, more than any known model", TENSORS_MAX);
    known = map_at(&s->names, map_hash_bytes(0, t->name, t->length));
    if (*known != MAP_NEW)
        return model_file_reject(f, "has the tensor '%s' twice", terminal_clean(clean, sizeof clean, name, true));
    *known = 0;
    s->tensors++;
    layer = name_pattern_of(t->name, t->length, pattern);
    struct model_stored_form *form = form_of(s, pattern, t);
    if (!form)
        return model_file_reject(f, "has more than %d tensors of different forms, more than any known model",
                                 FORMS_MAX);
    if (layer != UINT64_MAX) {
        if (layer >= s->layers) s->layers = layer + 1;
        form->layer_last = !form->count || layer > form->layer_last ? layer : form->layer_last;
        form->layer_first = !form->count || layer < form->layer_first ? layer : form->layer_first;
    }
    form->count++;
    form->bytes += (double)t->bytes;
    return true;
}
