/* bulk.h - rows into a table of an SQLite file in the order of their keys, faster than SQLite takes them: as finished pages.
 *
 * Flow:     feed.c (allocations), tree_rows.c (stacks, frames), site_rows.c (call sites, snapshots), leak_rows.c, function_rows.c and others
 *           -> here -> pages of run.db
 * Idea:     rows that come in the order of their keys need no search, no statement and no cache: each is encoded once into the page that is
 *           being filled, full pages go out one after the other, and the pages above them are made on the way.
 * Why:      by its fastest way (INSERT ... SELECT, no journal) SQLite takes 2.1 million rows of allocations a second of processor time, by prepared
 *           statements 1.5 million: 2.4 or 3.3 s for the 5 million of 10 million events, on one thread. The whole import with this, all other
 *           tables, decoding and replay included, takes 2.1 s of two processors.
 * Format:   SQLite's own promise (https://www.sqlite.org/fileformat2.html); the tests let SQLite check, compact, dump and change what is written
 *           here.
 * Together: SQLite makes the tables and may use the file before, between and after, but not at the same time: tm_bulk_begin() and
 *           tm_bulk_end() enclose our turns. Until tm_bulk_finish() SQLite sees the tables as they were, behind it as they are meant.
 * Texts:    a row that is longer than a page goes on in pages of its own, as SQLite has it.
 * Owns:     one page a level and table, two buffers of pages on their way to the file, and between tm_bulk_begin() and tm_bulk_end() a thread that
 *           writes one of them while the other is filled.
 * Threads:  one at a time a table. Tables that are written side by side take turns in the file by the page: in which page a row lies may differ from one
 *           import of a trace to the next, the rows do not.
 * Fails:    out of memory and failed writes are remembered in `failed` and `error` (an errno); what follows does nothing.
 */
#ifndef TIDEMARK_ANALYZER_BULK_H
#define TIDEMARK_ANALYZER_BULK_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TM_BULK_PAGE_BYTES 8192u /* of the databases that import makes */
#define TM_BULK_COLUMNS_MAX 40u
#define TM_BULK_TEXTS_MAX 8u /* of a row's values */
#define TM_BULK_LEVELS_MAX 12u

struct tm_bulk {
	int fd;
	pthread_mutex_t turn; /* of whoever appends a page: what follows, up to `sent` */
	uint32_t page_count; /* pages given a number, SQLite's included */
	uint32_t first;      /* number of the first page in `out` */
	unsigned waiting;    /* pages in `out` */
	uint8_t *out, *sent; /* sent: the pages that the thread is writing */
	_Atomic bool failed;
	_Atomic int error; /* the first errno */
	bool has_thread;
	pthread_t thread;
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t changed;
	size_t sent_bytes; /* 0: the thread has nothing to do */
	uint64_t sent_offset;
	bool stopping;
	int sent_error; /* an errno */
};

/* A page that is being filled. Cells grow down from its end, their places up from its head. */
struct tm_bulk_page {
	uint8_t *data;
	unsigned cells, content; /* content: where the cells begin */
};

struct tm_bulk_table {
	struct tm_bulk *bulk;
	uint32_t root;
	bool is_index;   /* WITHOUT ROWID */
	uint64_t row_id; /* the last one */
	unsigned levels, type_bytes;
	struct tm_bulk_page pages[TM_BULK_LEVELS_MAX]; /* [0] is of the leaves */
	uint8_t *at, *body;                            /* at: where in the body the next value comes; before the body there is room, too */
	size_t body_room;                              /* for all texts, and behind them all other values */
	uint8_t before_types[16], types[TM_BULK_COLUMNS_MAX + 4 * TM_BULK_TEXTS_MAX];
};

/* Opens an SQLite database file whose pages have TM_BULK_PAGE_BYTES. 0 or -1. Release after either. */
int tm_bulk_open(struct tm_bulk *b, const char *path);
void tm_bulk_release(struct tm_bulk *b);
/* SQLite has let go of the file: new pages come behind its own. */
void tm_bulk_begin(struct tm_bulk *b);
/* The file's head counts our pages, and SQLite may have it again. */
void tm_bulk_end(struct tm_bulk *b);

/* The table's root page must be a leaf; its rows stay, new ones come behind them. 0 or -1. Release after either. */
int tm_bulk_table_open(struct tm_bulk_table *t, struct tm_bulk *b, uint32_t root, bool is_index);
void tm_bulk_table_release(struct tm_bulk_table *t);
/* Makes the rows the table's; before tm_bulk_end(). */
void tm_bulk_finish(struct tm_bulk_table *t);

/* Appends the values that were put since the last one as a row. row_id: above all before it; WITHOUT ROWID: not used, and the values come in
 * the order of the primary key, its columns first. At most TM_BULK_COLUMNS_MAX values, TM_BULK_TEXTS_MAX of them texts; as many as the table has
 * columns. */
void tm_bulk_row(struct tm_bulk_table *t, uint64_t row_id);

/* A value, or for an INTEGER PRIMARY KEY always NULL: it is the row id. */
static inline void tm_bulk_null(struct tm_bulk_table *t) {
	t->types[t->type_bytes++] = 0;
}

static inline void tm_bulk_raw(struct tm_bulk_table *t, uint8_t type, uint64_t value, unsigned bytes) {
	uint64_t big_endian = __builtin_bswap64(value << (64 - 8 * bytes));
	__builtin_memcpy(t->at, &big_endian, sizeof big_endian);
	t->at += bytes;
	t->types[t->type_bytes++] = type;
}

/* By a number's binary digits: how many bytes hold it, none for 0 and 1. */
#define TM_BULK_8(x) x, x, x, x, x, x, x, x
static const uint8_t tm_bulk_bytes[65] = {
	0, 0, 1, 1, 1, 1, 1, 1, TM_BULK_8(2), TM_BULK_8(3), TM_BULK_8(4), TM_BULK_8(6), TM_BULK_8(6), TM_BULK_8(8), TM_BULK_8(8), 8
};
static const uint8_t tm_bulk_types[9] = { 0, 1, 2, 3, 4, 0, 5, 0, 6 }; /* by bytes */

/* Numbers above what SQLite can hold become the largest it can. Without branches: what comes next can seldom be guessed. */
static inline void tm_bulk_number(struct tm_bulk_table *t, uint64_t value) {
	value = value > INT64_MAX ? INT64_MAX : value;
	unsigned bytes = tm_bulk_bytes[value ? 64 - (unsigned)__builtin_clzll(value) : 0];
	uint64_t big_endian = __builtin_bswap64(value << (-8 * bytes & 63));
	__builtin_memcpy(t->at, &big_endian, sizeof big_endian);
	t->at += bytes;
	t->types[t->type_bytes++] = (uint8_t)(bytes ? tm_bulk_types[bytes] : 8 + value);
}

static inline void tm_bulk_minus_one(struct tm_bulk_table *t) {
	tm_bulk_raw(t, 1, UINT8_MAX, 1);
}

/* UINT64_MAX is NULL. */
static inline void tm_bulk_number_or_null(struct tm_bulk_table *t, uint64_t value) {
	if (value == UINT64_MAX) tm_bulk_null(t);
	else tm_bulk_number(t, value);
}

/* Valid UTF-8 without a NUL, shorter than 1 GiB. */
void tm_bulk_text(struct tm_bulk_table *t, const char *data, size_t n);
/* A value could not be made: fails as the table itself does. */
void tm_bulk_no_memory(struct tm_bulk_table *t);

static inline void tm_bulk_real(struct tm_bulk_table *t, double value) {
	uint64_t bits;
	__builtin_memcpy(&bits, &value, sizeof bits);
	tm_bulk_raw(t, 7, bits, 8);
}

#endif
