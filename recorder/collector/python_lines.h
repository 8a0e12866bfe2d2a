/* python_lines.h - from an instruction of a Python function to its line.
 *
 * Flow:     PYTHON_CODE's line table, raw as the interpreter keeps it -> here -> python_stacks.c
 * Hostile:  a table is any bytes; no read passes its end.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_PYTHON_LINES_H
#define TIDEMARK_RECORDER_COLLECTOR_PYTHON_LINES_H

#include "../shm.h"

#include <stdbool.h>
#include <stddef.h>

#define TM_PYTHON_BEFORE 0x7fffffffu /* instead of an offset: the function has not begun */

/* Where the table was left when it was last read: a long function is mostly asked for one instruction after the other. All zero: at its beginning. */
struct tm_python_place {
	size_t at;    /* of the entry that holds */
	uint64_t code; /* bytes of bytecode before it */
	int64_t lines; /* from the first line to the one before it */
};

/* The line of the instruction at `offset` bytes into the bytecode; 0: it has none. One without a line in front of those of other lines than the
 * function's first has that: there a function that is being entered makes its cells. */
uint32_t tm_python_line(enum tm_python_lines kind, uint32_t first_line, const uint8_t *table, size_t n, uint32_t offset, struct tm_python_place *place);

#endif
