#include "analyzer/import/trace_event.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const double most_us = 4.5e15; /* in the year 2112; differences of two such times in ns fit in 63 bits */

static int64_t import_microseconds(const char *text)
{
    char *end;
    double about = strtod(text, &end);
    if (end == text || !isfinite(about) || fabs(about) > most_us) return IMPORT_UNKNOWN;
    const char *digits = text + (*text == '-');
    int64_t ns = 0;
    int places = 0;
    if (strspn(digits, "0123456789.") != strlen(digits)) return llround(about * 1e3);
    /* exact digits, which a double would round */
    for (; isdigit((unsigned char)*digits); digits++) ns = ns * 10 + (*digits - '0');
    for (digits += *digits == '.'; places < 3; places++)
        ns = ns * 10 + (isdigit((unsigned char)*digits) ? *digits++ - '0' : 0);
    return *text == '-' ? -ns : ns;
}

int64_t import_json_integer(const char *text)
{
    char *end;
    if (*text != '-') {
        unsigned long long whole = strtoull(text, &end, 10);
        if (end > text && !*end) return (int64_t)whole;
    }
    double about = strtod(text, &end);
    return end > text && fabs(about) < 9e18 ? (int64_t)about : IMPORT_UNKNOWN;
}

static enum import_category trace_category_of(const char *text)
{
    static const struct {
        const char *text;
        enum import_category category;
    } known[] = {
        {"cpu_op", IMPORT_CATEGORY_OP},
        {"Operator", IMPORT_CATEGORY_OP},
        {"python_function", IMPORT_CATEGORY_PYTHON},
        {"user_annotation", IMPORT_CATEGORY_RANGE},
        {"cuda_runtime", IMPORT_CATEGORY_CALL},
        {"cuda_driver", IMPORT_CATEGORY_CALL},
        {"hip_runtime", IMPORT_CATEGORY_CALL},
        {"hip_driver", IMPORT_CATEGORY_CALL},
        {"Runtime", IMPORT_CATEGORY_CALL},
        {"xpu_sync", IMPORT_CATEGORY_WAIT},
        {"gpu_memcpy", IMPORT_CATEGORY_GPU_COPY},
        {"Memcpy", IMPORT_CATEGORY_GPU_COPY},
        {"gpu_memset", IMPORT_CATEGORY_GPU_FILL},
        {"Memset", IMPORT_CATEGORY_GPU_FILL},
        {"kernel", IMPORT_CATEGORY_KERNEL},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcasecmp(text, known[i].text) == 0) return known[i].category;
    return IMPORT_CATEGORY_OTHER;
}

static void copy_event_text(char *to, size_t size, const char *text)
{
    size_t n = strnlen(text, size - 1);
    memcpy(to, text, n);
    to[n] = 0;
}

static int64_t *integer_of(struct import_event_args *args, const char *key)
{
    const struct {
        const char *key;
        int64_t *value;
    } known[] = {
        {"Device Type", &args->device_type},
        {"Device Id", &args->device},
        {"device", &args->device},
        {"inDevice", &args->device}, /* of a copy between two GPUs, which has no "device": CuptiActivity.h of kineto */
        {"Addr", &args->address},
        {"Bytes", &args->bytes},
        {"bytes", &args->bytes},
        {"correlation", &args->correlation},
        {"stream", &args->stream},
        {"Python id", &args->python_id},
        {"Python parent id", &args->python_parent},
        {"size", &args->size},
        {"kind", &args->kind},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (*key == *known[i].key && strcmp(key, known[i].key) == 0) return known[i].value;
    return strncmp(key, "Total Allocated", 15) == 0  ? &args->allocated
           : strncmp(key, "Total Reserved", 14) == 0 ? &args->reserved
                                                     : NULL;
}

static bool read_args(struct import_json *j, struct import_trace_event *e)
{
    char key[64];
    enum import_json_token token;
    while ((token = import_json_next(j)) == IMPORT_JSON_KEY) {
        copy_event_text(key, sizeof key, import_json_text(j));
        int64_t *value = integer_of(&e->args, key);
        token = import_json_next(j);
        const char *text = import_json_text(j);
        if (token == IMPORT_JSON_STRING && strcmp(key, "Call stack") == 0) {
            copy_event_text(e->stack, sizeof e->stack, text);
        } else if (token == IMPORT_JSON_STRING && (strcmp(key, "name") == 0 || strcmp(key, "Type") == 0)) {
            copy_event_text(e->label, sizeof e->label, text);
        } else if (token == IMPORT_JSON_STRING || token == IMPORT_JSON_NUMBER) {
            if (value) *value = import_json_integer(text);
        } else if (!import_json_skip(j, token)) {
            return false;
        }
    }
    return token == IMPORT_JSON_OBJECT_END;
}

static void set_member(struct import_trace_event *e, const char *key, const char *text)
{
    if (strcmp(key, "name") == 0)
        copy_event_text(e->name, sizeof e->name, text);
    else if (strcmp(key, "ph") == 0)
        e->phase = text[0] == 'I' ? 'i' : text[0];
    else if (strcmp(key, "cat") == 0)
        e->category = trace_category_of(text);
    else if (strcmp(key, "ts") == 0)
        e->at_ns = import_microseconds(text);
    else if (strcmp(key, "dur") == 0)
        e->duration_ns = import_microseconds(text);
    else if (strcmp(key, "pid") == 0)
        copy_event_text(e->pid, sizeof e->pid, text);
    else if (strcmp(key, "tid") == 0)
        copy_event_text(e->tid, sizeof e->tid, text);
}

bool import_trace_event_read(struct import_json *j, struct import_trace_event *e)
{
    char key[16];
    enum import_json_token token;
    e->phase = e->name[0] = e->pid[0] = e->tid[0] = e->label[0] = e->stack[0] = 0;
    e->category = IMPORT_CATEGORY_NONE;
    e->at_ns = IMPORT_UNKNOWN;
    e->duration_ns = 0;
    e->args = (struct import_event_args){
        IMPORT_UNKNOWN, IMPORT_UNKNOWN, IMPORT_UNKNOWN, IMPORT_UNKNOWN, IMPORT_UNKNOWN, IMPORT_UNKNOWN,
        IMPORT_UNKNOWN, IMPORT_UNKNOWN, IMPORT_UNKNOWN, IMPORT_UNKNOWN, IMPORT_UNKNOWN, IMPORT_UNKNOWN,
    };
    while ((token = import_json_next(j)) == IMPORT_JSON_KEY) {
        copy_event_text(key, sizeof key, import_json_text(j));
        token = import_json_next(j);
        if (token == IMPORT_JSON_STRING || token == IMPORT_JSON_NUMBER) {
            set_member(e, key, import_json_text(j));
        } else if (token == IMPORT_JSON_OBJECT && strcmp(key, "args") == 0) {
            if (!read_args(j, e)) return false;
        } else if (!import_json_skip(j, token)) {
            return false;
        }
    }
    if (e->duration_ns < 0) e->duration_ns = 0;
    return token == IMPORT_JSON_OBJECT_END;
}
