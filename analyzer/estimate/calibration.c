#include "analyzer/estimate/calibration.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "analyzer/base/input.h"
#include "analyzer/base/json_out.h"
#include "analyzer/base/arena.h"
#include "analyzer/base/output.h"
#include "analyzer/base/term.h"
#include "analyzer/base/exit_code.h"
#include "analyzer/estimate/gpu.h"

#define KIND "gpuspy calibration"
enum { SCHEMA = 1, FILE_MAX = 4 << 20 };

static const char *set_in(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

bool estimate_calibration_path(char *path, size_t size)
{
    const char *file = set_in("GPUSPY_CALIBRATION"), *config = set_in("XDG_CONFIG_HOME"), *home = set_in("HOME");
    int n = file                       ? snprintf(path, size, "%s", file)
            : config && *config == '/' ? snprintf(path, size, "%s/gpuspy/calibration.json", config)
            : home                     ? snprintf(path, size, "%s/.config/gpuspy/calibration.json", home)
                                       : -1;
    bool fits = n > 0 && (size_t)n < size;

    if (!fits) *path = 0;
    return fits;
}

/* Of each row: TEXT(JSON key, field) and NUMBER(JSON key, field, least and most plausible value). An unknown value is
 * absent, NAN. Fragmentation is a share of the used memory: 0 without holes; more than 100 times it is not plausible.
 */
#define FIELDS(TEXT, NUMBER)                                              \
    TEXT("run", run)                                                      \
    TEXT("gpu", gpu)                                                      \
    NUMBER("context_bytes", context, 0, 1e15)                             \
    NUMBER("fragmentation", fragmentation, 0, 100)                        \
    NUMBER("workspace_bytes", workspace, 0, 1e15)                         \
    TEXT("family", family)                                                \
    TEXT("precision", precision)                                          \
    TEXT("attention", attention)                                          \
    TEXT("checkpointing", checkpointing)                                  \
    TEXT("more", more)                                                    \
    NUMBER("activations_bytes", activations, 1, 1e18)                     \
    NUMBER("activations_predicted_bytes", activations_predicted, 1, 1e18) \
    NUMBER("batch", batch, 1, 1e12)                                       \
    NUMBER("seq", seq, 1, 1e12)                                           \
    NUMBER("formulas", formulas, 1, 1e6)

static bool read_calibration_text(const json_t *o, const char *key, char *out, size_t size, char *why, size_t why_size)
{
    json_t *value = json_object_get(o, key);

    *out = 0;
    if (!value || json_is_null(value)) return true;
    if (!json_is_string(value) || json_string_length(value) >= size || strlen(json_string_value(value)) >= size) {
        snprintf(why, why_size, "'%s' is not text of fewer than %zu bytes", key, size);
        return false;
    }
    snprintf(out, size, "%s", json_string_value(value));
    return true;
}

static bool read_number(const json_t *o, const char *key, double *out, double least, double most, char *why,
                        size_t why_size)
{
    json_t *value = json_object_get(o, key);

    *out = NAN;
    if (!value || json_is_null(value)) return true;
    if (!json_is_number(value) || !(json_number_value(value) >= least && json_number_value(value) <= most)) {
        snprintf(why, why_size, "'%s' is not a number from %g to %g", key, least, most);
        return false;
    }
    *out = json_number_value(value);
    return true;
}

static bool read_row(const json_t *o, struct estimate_calibration_row *row, char *why, size_t n)
{
#define TEXT(key, field) &&read_calibration_text(o, key, row->field, sizeof row->field, why, n)
#define NUMBER(key, field, least, most) &&read_number(o, key, &row->field, least, most, why, n)
    if (!(true FIELDS(TEXT, NUMBER))) return false;
#undef TEXT
#undef NUMBER
    const double factor = row->activations / row->activations_predicted;
    if (factor < CALIBRATION_FACTOR_LEAST || factor > CALIBRATION_FACTOR_MOST) {
        snprintf(why, n, "'activations_bytes' and the predicted bytes are more than a factor of %g apart",
                 CALIBRATION_FACTOR_MOST);
        return false;
    }
    return true;
}

static bool read_calibration_rows(json_t *runs, struct estimate_calibration *c, char *why, size_t why_size)
{
    char what[96];

    if (!json_is_array(runs)) {
        snprintf(why, why_size, "it has no list of runs");
        return false;
    }
    for (size_t i = 0; i < json_array_size(runs); i++) {
        json_t *o = json_array_get(runs, i);
        struct estimate_calibration_row row;
        if (!json_is_object(o)) snprintf(what, sizeof what, "it is not an object");
        if (!json_is_object(o) || !read_row(o, &row, what, sizeof what)) {
            snprintf(why, why_size, "run %zu: %s", i + 1, what);
            return false;
        }
        estimate_calibration_add(c, &row);
    }
    return true;
}

bool estimate_calibration_parse(const char *text, size_t n, struct estimate_calibration *c, char *why, size_t why_size)
{
    json_error_t error;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    const char *kind = json_string_value(json_object_get(root, "kind"));
    json_t *schema = json_object_get(root, "schema");
    bool ok = false;

    if (!root)
        snprintf(why, why_size, "it is damaged, line %d: %.60s", error.line, error.text);
    else if (!kind || strcmp(kind, KIND) != 0 || !json_is_integer(schema))
        snprintf(why, why_size, "it is not a calibration file of gpuspy");
    else if (json_integer_value(schema) != SCHEMA)
        snprintf(why, why_size, "it has version %lld, which another gpuspy wrote; this gpuspy reads version %d",
                 (long long)json_integer_value(schema), SCHEMA);
    else
        ok = read_calibration_rows(json_object_get(root, "runs"), c, why, why_size);
    json_decref(root);
    return ok;
}

/* NULL with errno; EFBIG past FILE_MAX. */
static char *read_calibration_file(const char *path, size_t *n)
{
    struct stat st;
    FILE *in;
    char *text;

    if (stat(path, &st) != 0) return NULL;
    if (!S_ISREG(st.st_mode) || st.st_size > FILE_MAX) { /* checked first, because reading a pipe would block */
        errno = S_ISDIR(st.st_mode) ? EISDIR : S_ISREG(st.st_mode) ? EFBIG : ENOTSUP;
        return NULL;
    }
    in = fopen(path, "re");
    if (!in) return NULL;
    text = arena_realloc(NULL, FILE_MAX + 1, 1);
    *n = fread(text, 1, FILE_MAX + 1, in);
    if (ferror(in) || *n > FILE_MAX) {
        errno = ferror(in) ? EIO : EFBIG;
        free(text);
        text = NULL;
    }
    fclose(in);
    return text;
}

bool estimate_calibration_load(const char *command, const char *path, struct estimate_calibration *c, int *exit_code)
{
    char why[256], *text;
    size_t n = 0;
    bool ok;

    *c = (struct estimate_calibration){0};
    *exit_code = EXIT_INPUT;
    if (strlen(path) >= sizeof c->path) {
        return complain_with(false, "%s: the name of the calibration file is longer than %zu bytes", command,
                             sizeof c->path - 1);
    }
    strcpy(c->path, path);
    text = *path ? read_calibration_file(path, &n) : NULL;
    if (!text) {
        if (!*path || errno == ENOENT) return true;
        return complain_with(false, "%s: cannot read the calibration '%s': %s", command, path,
                             errno == ENOTSUP ? "it is not a regular file"
                             : errno == EFBIG ? "it is larger than any calibration; give another name"
                                              : strerror(errno));
    }
    ok = estimate_calibration_parse(text, n, c, why, sizeof why);
    free(text);
    if (!ok)
        complain("%s: cannot use the calibration '%s': %s; 'gpuspy calibrate --forget' removes one, "
                 "GPUSPY_CALIBRATION names another",
                 command, path, why);
    return ok;
}

void estimate_calibration_free(struct estimate_calibration *c)
{
    free(c->rows);
    c->rows = NULL;
    c->rows_n = c->rows_cap = 0;
}

void estimate_calibration_add(struct estimate_calibration *c, const struct estimate_calibration_row *row)
{
    for (size_t i = 0; i < c->rows_n && *row->run; i++)
        if (strcmp(c->rows[i].run, row->run) == 0) {
            struct estimate_calibration_row old = c->rows[i];
            c->rows[i] = *row;
            if (isnan(row->activations_predicted) && !isnan(old.activations_predicted)) { /* read without a model */
                c->rows[i] = old;
                c->rows[i].context = row->context;
                c->rows[i].fragmentation = row->fragmentation;
                c->rows[i].workspace = row->workspace;
            }
            return;
        }
    if (c->rows_n == CALIBRATION_ROWS_MAX) memmove(c->rows, c->rows + 1, --c->rows_n * sizeof *c->rows);
    *ARENA_ADD(c->rows) = *row;
}

static json_t *calibration_row_json(const struct estimate_calibration_row *row)
{
    json_t *o = json_object();

#define TEXT(key, field) \
    if (*row->field) json_object_set_new(o, key, json_string(row->field));
#define NUMBER(key, field, least, most) \
    if (!isnan(row->field)) json_object_set_new(o, key, json_real(row->field));
    FIELDS(TEXT, NUMBER)
#undef TEXT
#undef NUMBER
    return o;
}

/* Makes the folder of `path`, and those above it, but not a missing home: that of a user without one is not to exist.
 * If that fails, opening the file reports it. */
static void make_calibration_folders(const char *path)
{
    const char *home = set_in("HOME");
    const size_t length = home ? strlen(home) : 0;
    const bool below = length && strncmp(path, home, length) == 0 && path[length] == '/';
    char folder[4096];

    snprintf(folder, sizeof folder, "%s", path);
    for (char *slash = strchr(folder + (below ? length : 0) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(folder, 0777);
        *slash = '/';
    }
}

int estimate_calibration_lock(const struct estimate_calibration *c)
{
    char folder[sizeof c->path];
    char *slash;
    int fd;

    if (!*c->path) return -1;
    make_calibration_folders(c->path);
    snprintf(folder, sizeof folder, "%s", c->path);
    slash = strrchr(folder, '/');
    snprintf(slash ? slash + 1 : folder, 3, slash ? "" : ".");
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd >= 0 && flock(fd, LOCK_EX) != 0)
        if (errno != EINTR) {
            close(fd);
            return -1;
        }
    return fd;
}

bool estimate_calibration_save(const char *command, const struct estimate_calibration *c)
{
    struct output out;
    json_t *runs = json_array(), *root;

    if (!*c->path) {
        complain("%s: no folder for the calibration; set HOME, or set GPUSPY_CALIBRATION to a file name", command);
        json_decref(runs);
        return false;
    }
    for (size_t i = 0; i < c->rows_n; i++) json_array_append_new(runs, calibration_row_json(&c->rows[i]));
    root = json_pack("{s:s, s:i, s:o}", "kind", KIND, "schema", SCHEMA, "runs", runs);
    make_calibration_folders(c->path);
    if (!output_open(&out, command, c->path)) {
        json_decref(root);
        return false;
    }
    json_out_tree(out.file, root, JSON_INDENT(1));
    return output_keep(&out, command);
}

static void see_calibrated_value(struct estimate_calibrated *seen, double value)
{
    if (isnan(value)) return;
    seen->least = seen->runs == 0 || value < seen->least ? value : seen->least;
    seen->most = seen->runs == 0 || value > seen->most ? value : seen->most;
    seen->mean += (value - seen->mean) / (double)++seen->runs;
}

struct estimate_interval estimate_calibrated_interval(const struct estimate_calibrated *seen)
{
    double more = seen->runs ? 0.1 / sqrt((double)seen->runs) : 0;

    return (struct estimate_interval){seen->least * (1 - more), seen->mean, seen->most * (1 + more)};
}

/* A simulated GPU has the name of the real one and a remark in parentheses. */
static bool is_row_on_gpu(const struct estimate_calibration_row *row, const struct estimate_gpu *gpu)
{
    char name[sizeof row->gpu];

    snprintf(name, sizeof name, "%.*s", (int)(strcspn(row->gpu, "(")), row->gpu);
    for (size_t n = strlen(name); n && name[n - 1] == ' '; n--) name[n - 1] = 0;
    return !gpu || (*name && estimate_gpu_find(name) == gpu);
}

struct estimate_calibrated estimate_calibration_context(const struct estimate_calibration *c,
                                                        const struct estimate_gpu *gpu)
{
    struct estimate_calibrated seen = {0};

    for (size_t i = 0; c && i < c->rows_n; i++)
        if (is_row_on_gpu(&c->rows[i], gpu)) see_calibrated_value(&seen, c->rows[i].context);
    return seen;
}

struct estimate_calibrated estimate_calibration_workspace(const struct estimate_calibration *c,
                                                          const struct estimate_gpu *gpu)
{
    struct estimate_calibrated seen = {0};

    for (size_t i = 0; c && i < c->rows_n; i++)
        if (is_row_on_gpu(&c->rows[i], gpu)) see_calibrated_value(&seen, c->rows[i].workspace);
    return seen;
}

struct estimate_calibrated estimate_calibration_fragmentation(const struct estimate_calibration *c)
{
    struct estimate_calibrated seen = {0};

    for (size_t i = 0; c && i < c->rows_n; i++) see_calibrated_value(&seen, c->rows[i].fragmentation);
    return seen;
}

#define ATTENTION(id, word, what) word,
static const char *const attentions[] = {PLAN_ATTENTIONS(ATTENTION)};
#undef ATTENTION
#define CHECKPOINT(id, word, what) word,
static const char *const checkpoints[] = {PLAN_CHECKPOINTS(CHECKPOINT)};
#undef CHECKPOINT
#define ADAPTER(id, word, what) word,
static const char *const adapters[] = {PLAN_ADAPTERS(ADAPTER)};
#undef ADAPTER

void estimate_calibration_key(struct estimate_calibration_row *row, const struct plan *p)
{
    snprintf(row->family, sizeof row->family, "%s", model_family_word(p->model->shape.family));
    snprintf(row->precision, sizeof row->precision, "%s", p->precision->name);
    snprintf(row->attention, sizeof row->attention, "%s", attentions[p->attention]);
    snprintf(row->checkpointing, sizeof row->checkpointing, "%s",
             p->by_module                   ? "modules"
             : p->remade || p->remade_every ? "some layers"
                                            : checkpoints[p->checkpoint]);
    snprintf(row->more, sizeof row->more, "%s%s%s%s%s",
             p->fused_layers  ? "fused "
             : p->fused_norms ? "norms "
                              : "",
             p->fused_loss ? "loss " : "", p->chunked_loss ? "chunked " : "", p->drop_outputs ? "dropped " : "",
             p->adapter == PLAN_ADAPTER_NONE ? "" : adapters[p->adapter]);
}

struct estimate_calibrated estimate_calibration_activations(const struct estimate_calibration *c, const struct plan *p)
{
    struct estimate_calibrated seen = {0};
    struct estimate_calibration_row key;

    estimate_calibration_key(&key, p);
    for (size_t i = 0; c && i < c->rows_n; i++) {
        const struct estimate_calibration_row *row = &c->rows[i];
        if (row->formulas == CALIBRATION_FORMULAS && row->activations_predicted > 0 &&
            strcmp(row->family, key.family) == 0 && strcmp(row->precision, key.precision) == 0 &&
            strcmp(row->attention, key.attention) == 0 && strcmp(row->checkpointing, key.checkpointing) == 0 &&
            strcmp(row->more, key.more) == 0)
            see_calibrated_value(&seen, row->activations / row->activations_predicted);
    }
    return seen;
}

static double calibration_value_of(const struct estimate_calibration_row *row, enum estimate_calibration_what what)
{
    return what == CALIBRATION_CONTEXT         ? row->context
           : what == CALIBRATION_WORKSPACE     ? row->workspace
           : what == CALIBRATION_FRAGMENTATION ? row->fragmentation
                                               : row->activations / row->activations_predicted;
}

static bool are_rows_alike(const struct estimate_calibration_row *a, const struct estimate_calibration_row *b,
                           enum estimate_calibration_what what)
{
    if (what == CALIBRATION_FRAGMENTATION) return true;
    if (what != CALIBRATION_ACTIVATIONS) return strcmp(a->gpu, b->gpu) == 0;
    return strcmp(a->family, b->family) == 0 && strcmp(a->precision, b->precision) == 0 &&
           strcmp(a->attention, b->attention) == 0 && strcmp(a->checkpointing, b->checkpointing) == 0 &&
           strcmp(a->more, b->more) == 0 &&
           (a->formulas == CALIBRATION_FORMULAS) == (b->formulas == CALIBRATION_FORMULAS);
}

struct estimate_calibration_known *estimate_calibration_list(const struct estimate_calibration *c, size_t *n)
{
    struct estimate_calibration_known *list = NULL;
    size_t cap = 0;

    *n = 0;
    for (int what = CALIBRATION_CONTEXT; what <= CALIBRATION_ACTIVATIONS; what++) {
        size_t first = *n;
        EACH_IN (row, c->rows) {
            size_t k = first;
            if (isnan(calibration_value_of(row, what))) continue;
            while (k < *n && !are_rows_alike(list[k].of, row, what)) k++;
            if (k == *n)
                *ARENA_PUSH(list, *n, cap) = (struct estimate_calibration_known){
                    .what = what,
                    .of = row,
                    .stale = what == CALIBRATION_ACTIVATIONS && row->formulas != CALIBRATION_FORMULAS};
            see_calibrated_value(&list[k].seen, calibration_value_of(row, what));
        }
    }
    return list;
}

/* A damaged file counts too, if it is empty or its beginning names the kind. */
static bool is_calibration_file(const char *path)
{
    char head[256];
    const ssize_t n = input_read_start(path, head, sizeof head);

    return n == 0 || (n > 0 && strstr(head, KIND));
}

bool estimate_calibration_delete(const char *command, const char *path)
{
    struct stat st;

    if (stat(path, &st) != 0 && errno == ENOENT) return true;
    if (!S_ISREG(st.st_mode) || !is_calibration_file(path))
        return complain_with(false, "%s: '%s' is not a calibration file of gpuspy and was not removed", command, path);
    if (unlink(path) != 0) return complain_with(false, "%s: cannot remove '%s': %s", command, path, strerror(errno));
    return true;
}

static const char *calibration_runs_text(size_t runs, char out[32])
{
    snprintf(out, 32, runs == 1 ? "%zu run" : "%zu runs", runs);
    return out;
}

static void explain_calibration(const struct plan *p, struct estimate_result *r, const struct estimate_calibrated *kept)
{
    const struct estimate_calibrated context = estimate_calibration_context(p->calibration, p->gpu),
                                     workspace = estimate_calibration_workspace(p->calibration, p->gpu),
                                     holes = estimate_calibration_fragmentation(p->calibration);
    const struct {
        const char *what;
        size_t runs;
    } used[] = {{"CUDA context", context.runs},
                {"workspaces", workspace.runs},
                {"fragmentation", holes.runs},
                {"activations", kept->runs}};
    char text[160] = "", runs[32];

    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        if (used[i].runs) {
            size_t n = strlen(text);
            snprintf(text + n, sizeof text - n, "%s%s (%s)", n ? ", " : "", used[i].what,
                     calibration_runs_text(used[i].runs, runs));
        }
    if (*text) estimate_note(r, "calibrated with your own recordings: %s; --no-calibration ignores them", text);
}

void estimate_calibrate(const struct plan *p, struct estimate_result *r)
{
    struct estimate_calibrated kept = {0};
    struct estimate_interval factor;
    bool any = false;

    if (!p->calibration) return;
    kept = estimate_calibration_activations(p->calibration, p);
    factor = estimate_calibrated_interval(&kept);
    for (size_t i = 0; kept.runs && i < r->lines_n; i++) {
        struct estimate_line *line = &r->lines[i];
        if (line->part != ESTIMATE_ACTIVATIONS && line->part != ESTIMATE_LOGITS &&
            (line->part != ESTIMATE_TEMPORARIES || !(line->phases & IN_PHASE(FORWARD))))
            continue;
        any = true;
        line->bytes = (struct estimate_interval){line->bytes.likely * factor.low, line->bytes.likely * factor.likely,
                                                 line->bytes.likely * factor.high};
        line->why = "scaled by what your own recordings measured (gpuspy calibrate --show)";
    }
    kept.runs = any ? kept.runs : 0;
    explain_calibration(p, r, &kept);
}

bool estimate_calibration_load_own(const char *command, const struct estimate_calibration **c, int *exit_code)
{
    static struct estimate_calibration own;
    char path[sizeof own.path];

    struct stat st;

    *c = NULL;
    estimate_calibration_path(path, sizeof path);
    /* HOME belongs to someone else, as in a sandbox, or is not a folder, as /dev/null: the user did not ask for the
     * calibration in it. */
    if (!set_in("GPUSPY_CALIBRATION") && stat(path, &st) != 0 &&
        (errno == EACCES || errno == ENOTDIR || errno == ENAMETOOLONG))
        return true;
    if (!estimate_calibration_load(command, path, &own, exit_code)) return false;
    if (own.rows_n) *c = &own;
    return true;
}
