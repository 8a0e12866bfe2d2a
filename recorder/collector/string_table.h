/* string_table.h - gives each different text one id.
 *
 * Flow:     names.c: function and file names -> here -> string records, each written once.
 * Owns:     copies of the texts.
 * Threads:  one object, one thread at a time.
 * Fails:    `failed` remembers exhausted memory; the text then gets its new id all the same, it is only not remembered.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_STRING_TABLE_H
#define TIDEMARK_RECORDER_COLLECTOR_STRING_TABLE_H

#include "schema/array.h"
#include "schema/wire.h"

struct tm_string_entry {
	uint64_t id; /* 0: a free place */
	uint64_t offset;
	uint32_t hash, size;
};

struct tm_string_table { /* all zero is an empty one */
	struct tm_string_entry *entries;
	size_t count, capacity;
	TM_ARRAY(char) texts;
	bool failed;
};

/* The id of the text, or new_id, which is then its id from now on. Ids are not 0. */
uint64_t tm_string_table_id(struct tm_string_table *t, struct tm_text text, uint64_t new_id);
void tm_string_table_release(struct tm_string_table *t);

#endif
