/* Command lines and source code as they may be stored and shown: without the secrets that they contain. */
#pragma once

#include <stddef.h>

/* Joins `length` bytes of words, each ended by a NUL as in /proc/self/cmdline, with blanks, and replaces by
 * "***" what is a secret:
 *   - the value of a name that suggests one: --api-key X, --api_key=X, apiKey: X, HF_TOKEN=X, {"token": "X"},
 *   - the password of a URL: postgres://u:X@h,
 *   - text of a known format: hf_..., ghp_..., AKIA..., JSON web tokens, private keys in PEM.
 * The result is cut to size - 1 bytes, after the masking. Returns its length. No allocation, no locale. */
size_t gs_mask_words(char *out, size_t size, const char *words, size_t length);

/* The same for a command line whose words are already joined by blanks. A value that contains blanks is masked only up
 * to the first one, unless it is quoted. A text that is masked already does not change. */
size_t gs_mask_arguments(char *out, size_t size, const char *text);

/* The same for a Python program, whose lines keep their numbers. Of a name that suggests a secret only a value in
 * quotes is one (`api_key = "X"`, `{"password": "X"}`, `os.environ["HF_TOKEN"] = "X"`, `get("API_KEY", "X")`), except
 * in comments and within strings, where it is masked as in a command line. */
size_t gs_mask_source(char *out, size_t size, const char *text, size_t length);
