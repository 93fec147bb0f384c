/* One event of a Chrome trace, decoded. */
#pragma once

#include "analyzer/import/json_reader.h"

enum import_category {
    IMPORT_CATEGORY_NONE, /* the event has none */
    IMPORT_CATEGORY_OTHER,
    IMPORT_CATEGORY_OP,
    IMPORT_CATEGORY_PYTHON,
    IMPORT_CATEGORY_RANGE,
    IMPORT_CATEGORY_CALL,
    IMPORT_CATEGORY_WAIT, /* of an Intel GPU; its label is its type */
    IMPORT_CATEGORY_GPU_COPY,
    IMPORT_CATEGORY_GPU_FILL,
    IMPORT_CATEGORY_KERNEL,
};

#define IMPORT_UNKNOWN INT64_MIN

struct import_event_args {
    int64_t device_type, device, address, bytes, allocated, reserved;
    int64_t correlation, stream, python_id, python_parent;
    int64_t size, kind; /* of a HIP call: how many bytes it copies or fills, and its hipMemcpyKind */
};

struct import_trace_event {
    char phase;
    enum import_category category;
    int64_t at_ns, duration_ns; /* IMPORT_UNKNOWN: then the duration is 0 */
    struct import_event_args args;
    char name[2048], pid[64], tid[64], label[256];
    char stack[IMPORT_JSON_TEXT + 1]; /* "Call stack" */
};

/* After IMPORT_JSON_OBJECT: reads to the object's end. False: the JSON is broken. */
bool import_trace_event_read(struct import_json *j, struct import_trace_event *e);
/* Converts decimal microseconds to nanoseconds; IMPORT_UNKNOWN if the text is not a valid time. */
int64_t import_json_integer(const char *text);
