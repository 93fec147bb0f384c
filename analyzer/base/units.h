/* Numbers for people: bytes, durations, counts; and strict reading of what people type.
 *
 * Formatting writes into a caller's buffer of at least UNITS_TEXT bytes and returns that buffer, so
 * that it can stand in a printf's argument list. Nothing here depends on the locale. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define UNITS_TEXT 40
#define UNITS_WHY 96

/* "512 B", "1.50 KiB", "14.90 GiB": binary units, two decimals from KiB upward. */
char *units_format_bytes(char out[UNITS_TEXT], uint64_t bytes);
/* The same with a sign in front: "+1.50 KiB", "-512 B", "0 B". */
char *units_format_bytes_signed(char out[UNITS_TEXT], int64_t bytes);
/* Decimal, as link speeds are given: "12.4 GB/s". */
char *units_format_rate(char out[UNITS_TEXT], double bytes_per_s);
/* "830 ns", "12.5 us", "875 ms", "1.53 s", "2 min 03 s", "1 h 02 min", "3 d 1 h"; three
 * significant figures below a minute. Never negative; not a number prints as "?". */
char *units_format_seconds(char out[UNITS_TEXT], double seconds);
/* Of a recording without times, whose entries are 1 us apart: from now on such a time prints as "4,490 entries". If
 * recordings with and without times are read, times print as times. */
void units_note_clock(bool has_times);
/* The whole part; 0 for a negative number or NaN, UINT64_MAX for one that is too large. */
uint64_t units_whole(double n);
/* "1,234,567". */
char *units_format_count(char out[UNITS_TEXT], uint64_t n);
/* A mean number of things: "4.96", "2,677". */
char *units_format_mean(char out[UNITS_TEXT], double n);
/* "1 event", "1,234 events"; `many` NULL: `one` with an s. */
char *units_format_plural(char out[UNITS_TEXT], uint64_t n, const char *one, const char *many);
/* A share of 1 as per cent: "0 %", "<0.1 %", "4.2 %", "37 %". */
char *units_format_share(char out[UNITS_TEXT], double share);

/* The same in a buffer that lives as long as the block around it: to be used within that block. */
#define UNITS_BYTES(n) units_format_bytes((char[UNITS_TEXT]){0}, n)
#define UNITS_BYTES_SIGNED(n) units_format_bytes_signed((char[UNITS_TEXT]){0}, n)
#define UNITS_RATE(n) units_format_rate((char[UNITS_TEXT]){0}, n)
#define UNITS_SECONDS(n) units_format_seconds((char[UNITS_TEXT]){0}, n)
#define UNITS_COUNT(n) units_format_count((char[UNITS_TEXT]){0}, n)
#define UNITS_PLURAL(n, one, many) units_format_plural((char[UNITS_TEXT]){0}, n, one, many)
#define UNITS_SHARE(n) units_format_share((char[UNITS_TEXT]){0}, n)

/* A whole number of things: "1000000", "1_000_000", "1e9", "7B", "1.5B", "350M", "125k" (k, M, G, B, T are powers of
 * 1000, in either case). The arithmetic is exact: "0.1k" is 100, "1.5" is refused. No sign, no blank, nothing after it.
 * On failure false, `*out` unchanged and the reason in `why` ("is negative"), to be printed after the text. */
bool units_parse_count(const char *text, uint64_t *out, char why[UNITS_WHY]);
/* Bytes: "1024B", "24GiB", "1.5mib", "24GB"; KiB … TiB are powers of 1024, kB … TB powers of 1000,
 * "24G" is 24 GiB as nvidia-smi and Slurm mean it. Only 0 needs no unit; units ignore case. A fraction of a
 * byte is rounded down. */
bool units_parse_bytes(const char *text, uint64_t *out, char why[UNITS_WHY]);
/* Bytes per second: "300GB/s", "32e9", "400Gb/s" and "400Gbit/s" (bits), "25GBps"; "300G" is 300 GB/s, as vendors
 * count. */
bool units_parse_rate(const char *text, uint64_t *out, char why[UNITS_WHY]);
/* Nanoseconds: "1.2ms", "830us", "3s"; a unit is required. */
bool units_parse_duration(const char *text, uint64_t *out, char why[UNITS_WHY]);
/* Seconds since the recording began, without a unit: "12.5". */
bool units_parse_seconds(const char *text, int64_t *ns);
/* Reads the number with which the text begins: digits with at most one point, in every locale. Returns the text after
 * it; NULL if the text does not begin with a number. */
const char *units_read_decimal(const char *text, double *out);
