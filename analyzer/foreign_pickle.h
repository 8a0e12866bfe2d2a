/* foreign_pickle.h - reads pickles of data, and of nothing else.
 *
 * Flow:     bytes of a file -> here -> a tree of values -> foreign_snapshot.c
 * Safe:     an opcode that would import, call or build anything is refused by its name and place. Lists, tuples, sets, dictionaries, numbers,
 *           bytes and strings of protocols 2 to 5 are all there is. Nothing is read recursively, so nesting costs no stack.
 * Bounded:  memory by TM_PICKLE_MEMORY times the size of the bytes (and 64 MiB), time by their number. Values may be shared and may hold themselves: who
 *           walks over them pays with tm_pickle_pay(), which ends walks that go round in circles.
 * Owns:     the lists; texts lie in the bytes, which must stay.
 */
#ifndef TIDEMARK_ANALYZER_FOREIGN_PICKLE_H
#define TIDEMARK_ANALYZER_FOREIGN_PICKLE_H

#include "../schema/array.h"

#include "../schema/wire.h"

#define TM_PICKLE_MEMORY 32u
#define TM_PICKLE_VISITS 64u /* for each byte */

enum tm_pickle_type {
	TM_PICKLE_NONE,
	TM_PICKLE_BOOL,
	TM_PICKLE_INT,
	TM_PICKLE_FLOAT,
	TM_PICKLE_TEXT,
	TM_PICKLE_LIST,
	TM_PICKLE_DICT,
	TM_PICKLE_BIG /* a whole number that int64_t does not hold: `number` has its lowest 64 bits */
};

struct tm_pickle_value {
	uint32_t type, size; /* size: bytes of a text */
	union {
		int64_t number;
		double real;
		const char *text;
		struct tm_pickle_list *list;
	};
};

/* A dictionary has its keys and values in turn. Tuples and sets are lists. */
struct tm_pickle_list {
	struct tm_pickle_value *items;
	struct tm_pickle_list *older;
	uint32_t count, capacity;
	uint64_t mark; /* for who walks over it; 0 at first */
};

struct tm_pickle {
	struct tm_pickle_value root;
	const uint8_t *data;
	size_t size, at;
	TM_ARRAY(struct tm_pickle_value) stack;
	TM_ARRAY(size_t) marks;
	TM_ARRAY(struct tm_pickle_value) memo;
	struct tm_pickle_list *lists;
	uint64_t memory_left, visits_left, opcodes;
	bool failed;
	char error[160];
};

/* 0, or -1 with a sentence in p->error. Release after either. */
int tm_pickle_load(struct tm_pickle *p, const void *data, size_t n);
void tm_pickle_release(struct tm_pickle *p);

/* false: so many visits were not left, p->failed is set. */
bool tm_pickle_pay(struct tm_pickle *p, uint64_t visits);
/* The value of a dictionary's key, NONE if there is none. */
struct tm_pickle_value tm_pickle_get(struct tm_pickle *p, struct tm_pickle_value dict, const char *key);
/* Its elements; an empty list for other values. */
const struct tm_pickle_list *tm_pickle_elements(struct tm_pickle_value v);
/* A number that is not negative, else `otherwise`. */
uint64_t tm_pickle_number(struct tm_pickle_value v, uint64_t otherwise);
/* A number of bytes: `otherwise` where there is none, TM_PICKLE_NO_SIZE for a negative one, one of 2^63 and more, and what is no number. */
#define TM_PICKLE_NO_SIZE UINT64_MAX
uint64_t tm_pickle_size(struct tm_pickle_value v, uint64_t otherwise);
/* A whole number of any sign and size, below TM_ADDRESS_LIMIT as addresses in traces are, of its lowest bits; 0 for other values. */
uint64_t tm_pickle_address(struct tm_pickle_value v);
struct tm_text tm_pickle_text(struct tm_pickle_value v); /* empty for other values */

#endif
