/* The files that commands read. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* False after a line on stderr, which begins with `who`, if one of the paths is neither a file nor a folder: opening a
 * FIFO would wait for its writer forever. A missing file is reported where it is opened. */
bool input_check_paths(const char *who, char **paths, size_t n);

/* The first bytes of a file, at most size - 1, and a NUL. Returns their number; -1: it cannot be read. Never waits for
 * a pipe's writer. */
ssize_t input_read_start(const char *path, void *out, size_t size);

/* Is it a database that gpuspy recorded? Checks the first bytes. */
bool input_is_recording(const char *path);

enum { INPUT_NAME = 256 }; /* bytes of a file's name (NAME_MAX + 1) */
/* The newest recording in the working directory, such as "run.3.db". False: there is none. */
bool input_find_newest(char out[INPUT_NAME]);
/* The same for a command without a file, which prints the name; `who` begins the line. */
bool input_newest(const char *who, char out[INPUT_NAME]);

struct input_files { /* paths, to free by input_files_free */
    char **list;
    size_t n, cap;
};
/* Adds the files of a folder ("": the working directory) whose names are accepted, and sorts all. False: the folder
 * cannot be read, see errno. */
bool input_list(const char *folder, bool (*is_wanted)(const char *name, const char *stem), const char *stem,
                struct input_files *files);
void input_files_free(struct input_files *files);
/* For input_list: "run.db", not ".run.db". */
bool input_is_database_name(const char *name, const char *unused);
/* Databases beside a file whose names are those of the other processes of its run: run.<pid>.db beside run.db, and
 * run.<pid>-2.db of the next program that the process became. */
struct input_files input_siblings(const char *path);
