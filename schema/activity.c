/* activity.c - the ACTIVITY payload: see activity.h.
 *
 * Idea:  the columns are listed once, in the order of format.md; each knows how one activity becomes a number and back, given the one before.
 */
#include "activity.h"

#include <stdlib.h>

enum column {
	COLUMN_KIND,
	COLUMN_NAME,
	COLUMN_DEVICE,
	COLUMN_STREAM,
	COLUMN_START,
	COLUMN_DURATION,
	COLUMN_SIZE,
	COLUMN_ADDRESS,
	COLUMN_CORRELATION,
	COLUMN_COUNT
};

static uint64_t code_of(enum column column, const struct tm_activity *a, const struct tm_activity *before) {
	switch (column) {
	case COLUMN_KIND: return (a->kind & 15u) | (uint64_t)(a->direction & 15u) << 4;
	case COLUMN_NAME: return a->name;
	case COLUMN_DEVICE: return a->device < 0 ? 0 : (uint64_t)a->device + 1;
	case COLUMN_STREAM: return a->stream + 1;
	case COLUMN_START: return tm_zigzag((int64_t)(a->start_ns - before->start_ns));
	case COLUMN_DURATION: return a->end_ns > a->start_ns ? a->end_ns - a->start_ns : 0;
	case COLUMN_SIZE: return a->size_bytes + 1;
	case COLUMN_ADDRESS: return tm_zigzag((int64_t)(a->address - before->address));
	case COLUMN_CORRELATION: return tm_zigzag((int64_t)(a->correlation - before->correlation));
	case COLUMN_COUNT: break;
	}
	return 0;
}

/* false: out of bounds. */
static bool take_code(enum column column, uint64_t code, struct tm_activity *a, const struct tm_activity *before) {
	switch (column) {
	case COLUMN_KIND:
		a->kind = code & 15;
		a->direction = (uint8_t)(code >> 4 & 15);
		return code <= 0xff;
	case COLUMN_NAME: a->name = (uint32_t)code; return code <= UINT32_MAX;
	case COLUMN_DEVICE: a->device = (int32_t)code - 1; return code <= INT32_MAX;
	case COLUMN_STREAM: a->stream = code - 1; return true;
	case COLUMN_START: a->start_ns = before->start_ns + (uint64_t)tm_unzigzag(code); return true;
	case COLUMN_DURATION: a->end_ns = a->start_ns + code; return a->end_ns >= a->start_ns;
	case COLUMN_SIZE: a->size_bytes = code - 1; return true;
	case COLUMN_ADDRESS: a->address = before->address + (uint64_t)tm_unzigzag(code); return true;
	case COLUMN_CORRELATION: a->correlation = before->correlation + (uint64_t)tm_unzigzag(code); return true;
	case COLUMN_COUNT: break;
	}
	return true;
}

static const struct tm_activity nothing;

void tm_put_activities(struct tm_bytes *b, uint64_t process, const struct tm_activity *activities, size_t n) {
	struct tm_bytes column = TM_BYTES_INIT;
	tm_put_varint(b, process);
	tm_put_varint(b, n);
	for (unsigned c = 0; c < COLUMN_COUNT; c++) {
		bool all_zero = true;
		tm_bytes_clear(&column);
		for (size_t i = 0; i < n; i++) {
			uint64_t code = code_of((enum column)c, &activities[i], i ? &activities[i - 1] : &nothing);
			if (code) all_zero = false;
			tm_put_varint(&column, code);
		}
		tm_put_string(b, column.data, all_zero ? 0 : column.size);
		if (column.failed) b->failed = true;
	}
	tm_bytes_release(&column);
}

static bool read_column(enum column column, struct tm_cursor *codes, struct tm_activities *out) {
	bool empty = codes->p == codes->end;
	for (size_t i = 0; i < out->count; i++) {
		uint64_t code = empty ? 0 : tm_get_varint(codes);
		if (!take_code(column, code, &out->all[i], i ? &out->all[i - 1] : &nothing)) return false;
	}
	return !codes->bad && codes->p == codes->end;
}

int tm_get_activities(struct tm_cursor *payload, struct tm_activities *out) {
	*out = (struct tm_activities){ .process = tm_get_varint(payload) };
	uint64_t n = tm_get_varint(payload);
	if (payload->bad || n > (uint64_t)(payload->end - payload->p)) goto malformed; /* a start is a byte at least */
	out->count = (size_t)n;
	out->all = calloc(out->count + 1, sizeof *out->all);
	if (!out->all) return -2;
	for (unsigned c = 0; c < COLUMN_COUNT; c++) {
		struct tm_cursor codes = tm_get_block(payload);
		if (payload->bad || !read_column((enum column)c, &codes, out)) goto malformed;
	}
	if (payload->p == payload->end) return 0;
malformed:
	payload->bad = true;
	out->count = 0;
	return -1;
}

void tm_activities_release(struct tm_activities *a) {
	free(a->all);
	*a = (struct tm_activities){ 0 };
}
