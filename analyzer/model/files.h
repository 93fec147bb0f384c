/* What the readers of models' files share: opening without blocking, error messages, and the tensors of the files,
 * grouped by form. */
#pragma once

#include "analyzer/model/model.h"

/* A file that is being read; every error is one line about it. */
struct model_file {
    const char *command, *path;
    int *exit_code;
    int fd; /* -1: not open */
    uint64_t size;
};

/* Opens a regular file for reading. False after a line, for example for a FIFO, a device or a folder. */
bool model_file_open(struct model_file *f, const char *command, const char *path, int *exit_code);
void model_file_close(struct model_file *f);
/* Reads exactly this many bytes; false after a line: the file is shorter, or cannot be read. */
bool model_file_read(struct model_file *f, uint64_t at, void *to, size_t n);
/* Reads the whole file, at most `most` bytes, and adds a 0. The caller frees it. NULL after a line. */
char *model_file_all(struct model_file *f, size_t most, size_t *n);
/* Prints "estimate: --model: 'path' ..." and sets exit code 3. Returns false. */
__attribute__((format(printf, 2, 3))) bool model_file_reject(const struct model_file *f, const char *format, ...);

/* "folder/name"; the caller frees it. */
char *model_beside(const char *path, const char *name);
/* If the file has the name of a part, "stem-00002-of-00005" and `ending`, the number of parts; else 0. */
uint64_t model_parts(const char *path, const char *ending);
/* The path of part `no`, from 1, of the same model; the caller frees it. */
char *model_part(const char *path, const char *ending, uint64_t no);
/* The name that a user would give the model: the folder's if the file has a usual name, and in Hugging Face's cache,
 * where folders are named after commits, the published one. */
void model_name_of(const char *path, char *out, size_t size);

/* The path of a config.json in a file's folder, or in a folder. NULL: there is none; prints nothing. The caller frees
 * it. */
char *model_config_beside(const char *path);

struct model_stored_tensor {
    const char *name; /* `length` bytes of UTF-8 */
    size_t length;
    const char *type; /* "BF16"; static */
    unsigned bits;    /* bits per element; 0: elements are in blocks */
    unsigned rank;
    uint64_t first, second; /* the first dimension (rows) and the second; 1: it has none */
    uint64_t elements, bytes;
};

/* Facts that the tensors' names and types do not show. */
struct model_stored_hints {
    const struct model_shape *shape; /* NULL: only what follows reliably from the tensors */
    unsigned bits;                   /* of packed weights, from a config.json; 0: unknown */
};

struct model_stored *model_stored_new(void);
void model_stored_free(struct model_stored *s);
/* Call it before another file's header is read; false after a line: all headers together are longer than any model's.
 */
bool model_stored_header(struct model_stored *s, const struct model_file *f, uint64_t bytes);
/* False after a line: the name exists already, or a limit is exceeded. */
bool model_stored_add(struct model_stored *s, const struct model_file *f, const struct model_stored_tensor *t);
bool model_stored_has(const struct model_stored *s, const char *name, size_t length);
/* Makes a model of the tensors: determines which ones are parameters, how many a packed one has, and their roles. False
 * after a line: more parameters than MODEL_PARAMS_MAX. stored_model.c */
bool model_build_stored(const struct model_stored *s, const struct model_file *f,
                        const struct model_stored_hints *hints, struct model *m);

enum { CONFIG_BYTES_MAX = 16 << 20 };
/* Whether a config.json names a known denoiser of diffusers. */
bool model_config_names_denoiser(const char *text);

/* The contents of a config.json beside the weights' files. */
struct model_config_beside {
    bool found;         /* it exists and was understood */
    struct model model; /* the shape, and the tensors that follow from it; the caller frees it */
    bool inside;        /* the shape is that of an inner language model */
    bool assumed;       /* its type is unknown, and read as a Llama: model.note states it */
    unsigned bits;      /* from its quantization_config; 0: none */
    char problem[256];  /* why it was not understood; "": it does not exist */
};
/* False after a line: it cannot be read, or contradicts itself. */
bool model_config_read_beside(const struct model_file *f, struct model_config_beside *c);

/* Adds the tensors of one .safetensors file to `s`. safetensors.c */
bool model_safetensors_read(const char *command, const char *path, int *exit_code, struct model_stored *s);
/* Makes a model of these tensors, with the config.json beside `f`, if any. safetensors_model.c */
bool model_build_safetensors(const struct model_stored *s, const struct model_file *f, struct model *m);

typedef bool model_read_fn(const char *command, const char *path, struct model *m, int *exit_code);
bool model_from_folder(const struct model_file *f, model_read_fn *read, struct model *m);
