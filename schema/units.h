/* units.h - sizes and times as people write them, and as we print them.
 *
 * Used by both sides: options of the recorder, filters and tables of the analyzer.
 */
#ifndef TIDEMARK_SCHEMA_UNITS_H
#define TIDEMARK_SCHEMA_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "4096", "64K", "64KiB", "64kB" (1000), "1.5GiB", "2G" (K M G T are powers of 1024; kB MB GB TB of 1000; KiB to EiB of 1024; case of
 * K/M/G/T is free). false: not a size, negative, or too large for 64 bits. */
bool tm_parse_size(const char *text, uint64_t *bytes);

/* "12.5s", "300ms", "20us", "7ns", "2m", "1h"; a bare number is seconds. Exact to the nanosecond. */
bool tm_parse_time(const char *text, uint64_t *ns);

#define TM_UNIT_TEXT_MAX 32
/* "0 B", "1023 B", "1.0 KiB", "12.3 MiB"; returns out. */
const char *tm_format_size(uint64_t bytes, char out[TM_UNIT_TEXT_MAX]);
/* "950 ns", "12.3 us", "4.56 ms", "12.345 s", "3 min 05 s", "2 h 03 min". */
const char *tm_format_time(uint64_t ns, char out[TM_UNIT_TEXT_MAX]);
/* 1234567 -> "1,234,567" */
const char *tm_format_count(uint64_t n, char out[TM_UNIT_TEXT_MAX]);

#endif
