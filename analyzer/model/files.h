/* What the readers of models' files share: opening without hanging, complaining, and the tensors that
 * they find, gathered by form. */
#ifndef GPUSPY_MODEL_FILES_H
#define GPUSPY_MODEL_FILES_H

#include "analyzer/model/model.h"

/* The one that reads: everything that goes wrong is one line of it. */
struct model_file {
    const char *command, *path;
    int *exit_code;
    int fd; /* -1: not open */
    uint64_t size;
};

/* Opens a regular file for reading. A FIFO, a device, a folder: false after a line. */
bool model_file_open(struct model_file *f, const char *command, const char *path, int *exit_code);
void model_file_close(struct model_file *f);
/* Exactly these bytes; false after a line: the file is shorter, or cannot be read. */
bool model_file_read(struct model_file *f, uint64_t at, void *to, size_t n);
/* All of it, at most `most` bytes, with a 0 behind; to be freed. NULL after a line. */
char *model_file_all(struct model_file *f, size_t most, size_t *n);
/* "estimate: --model: 'path' ..." and exit code 3. False. */
__attribute__((format(printf, 2, 3))) bool model_file_reject(const struct model_file *f, const char *format, ...);

/* "folder/name"; to be freed. */
char *model_beside(const char *path, const char *name);
/* Is it called as one of several, "stem-00002-of-00005" and `ending`? Of how many; 0: no. */
uint64_t model_parts(const char *path, const char *ending);
/* The path of part `no`, from 1, of the same; to be freed. */
char *model_part(const char *path, const char *ending, uint64_t no);
/* The name that people would give it: the folder's where the file has a name that all have, and in Hugging Face's
 * cache, where folders are called by commits, the one that it was published under. */
void model_name_of(const char *path, char *out, size_t size);

/* A file or a folder with a config.json beside it; NULL: none there (nothing is said). To be freed. */
char *model_config_beside(const char *path);

/* --- tensors of files, gathered (stored.c) --- */

struct model_stored_tensor {
    const char *name; /* `length` bytes, UTF-8 */
    size_t length;
    const char *type; /* "BF16"; static */
    unsigned bits;    /* an element, 0: in blocks */
    unsigned rank;
    uint64_t first, second; /* the first dimension (rows) and the second; 1 where there is none */
    uint64_t elements, bytes;
};

/* What the tensors' own names and types do not say. */
struct model_stored_hints {
    const struct model_shape *shape; /* NULL: what can be told from the tensors safely */
    unsigned bits;                   /* of packed weights, as a config.json says; 0: not said */
};

struct model_stored *model_stored_new(void);
void model_stored_free(struct model_stored *s);
/* Another file's header will be read; false after a line: together they are longer than any model's. */
bool model_stored_header(struct model_stored *s, const struct model_file *f, uint64_t bytes);
/* False after a line: the name was there already, or the limits are passed. */
bool model_stored_add(struct model_stored *s, const struct model_file *f, const struct model_stored_tensor *t);
bool model_stored_has(const struct model_stored *s, const char *name, size_t length);
/* The tensors as a model's: which of them are parameters, how many a packed one holds, what they are
 * for. False after a line: more parameters than MODEL_PARAMS_MAX. stored_model.c */
bool model_build_stored(const struct model_stored *s, const struct model_file *f,
                        const struct model_stored_hints *hints, struct model *m);

enum { CONFIG_BYTES_MAX = 16 << 20 };
/* Does a config.json name one of diffusers' denoisers that is known? */
bool model_config_names_denoiser(const char *text);

/* What a config.json says beside the weights' files. */
struct model_config_beside {
    bool found;         /* there is one that was understood */
    struct model model; /* the shape, and the tensors that follow; to be freed */
    bool inside;        /* the shape is that of the language model in it */
    bool assumed;       /* its type is not known, and read as a Llama: model.note says so */
    unsigned bits;      /* of its quantization_config; 0: none */
    char problem[256];  /* why it was not understood, "" where there is none */
};
/* False after a line: it cannot be read, or contradicts itself. */
bool model_config_read_beside(const struct model_file *f, struct model_config_beside *c);

/* The tensors of one .safetensors file are added to `s`. safetensors.c */
bool model_safetensors_read(const char *command, const char *path, int *exit_code, struct model_stored *s);
/* The model of these tensors, with what a config.json beside `f` says. safetensors_model.c */
bool model_build_safetensors(const struct model_stored *s, const struct model_file *f, struct model *m);

/* --- a folder (folder.c) --- */
typedef bool model_read_fn(const char *command, const char *path, struct model *m, int *exit_code);
bool model_from_folder(const struct model_file *f, model_read_fn *read, struct model *m);

#endif
