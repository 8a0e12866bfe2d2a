/* columns.c - the naming rules of views, read backwards. */
#include "columns.h"

#include <stddef.h>
#include <string.h>

struct naming_rule {
	const char *ending;
	enum tm_column_kind kind;
};

/* The first rule whose word is the name, or its ending after an underscore, decides; a name without a rule is text. */
static const struct naming_rule rules[] = {
	{ "bytes", TM_COLUMN_SIZE },
	{ "bytes_per_step", TM_COLUMN_SIZE },
	{ "bytes_per_second", TM_COLUMN_SIZE },
	{ "allocations_per_second", TM_COLUMN_COUNT },
	{ "count", TM_COLUMN_COUNT },
	{ "allocations", TM_COLUMN_COUNT },
	{ "frees", TM_COLUMN_COUNT },
	{ "calls", TM_COLUMN_COUNT },
	{ "temporary", TM_COLUMN_COUNT },
	{ "created", TM_COLUMN_COUNT },
	{ "deleted", TM_COLUMN_COUNT },
	{ "events", TM_COLUMN_COUNT },
	{ "launches", TM_COLUMN_COUNT },
	{ "kernels", TM_COLUMN_COUNT },
	{ "copies", TM_COLUMN_COUNT },
	{ "sets", TM_COLUMN_COUNT },
	{ "refusals", TM_COLUMN_COUNT },
	{ "processes", TM_COLUMN_COUNT },
	{ "score", TM_COLUMN_SCORE },
	{ "weight", TM_COLUMN_SCORE },
	{ "error", TM_COLUMN_SHARE },
	{ "share", TM_COLUMN_SHARE },
	{ "fragmentation", TM_COLUMN_SHARE },
	{ "unix_ns", TM_COLUMN_ID },
	{ "duration_ns", TM_COLUMN_DURATION },
	{ "offset_ns", TM_COLUMN_ID },
	{ "ns", TM_COLUMN_INSTANT },
	{ "id", TM_COLUMN_ID },
	{ "pid", TM_COLUMN_ID },
	{ "tid", TM_COLUMN_ID },
	{ "rank", TM_COLUMN_ID },
	{ "world_size", TM_COLUMN_ID },
	{ "line", TM_COLUMN_ID },
	{ "code", TM_COLUMN_ID },
	{ "depth", TM_COLUMN_ID },
	{ "device", TM_COLUMN_ID },
	{ "address", TM_COLUMN_ID },
	{ "estimated", TM_COLUMN_ID },
	{ "value", TM_COLUMN_ID },
	{ "function", TM_COLUMN_NAME },
	{ "command", TM_COLUMN_NAME },
	{ "name", TM_COLUMN_NAME },
	{ "file", TM_COLUMN_PATH },
	{ "exe", TM_COLUMN_PATH },
	{ "path", TM_COLUMN_PATH },
};

enum tm_column_kind tm_column_kind(const char *name) {
	size_t length = strlen(name);
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		size_t n = strlen(rules[i].ending);
		if (length < n || strcmp(name + length - n, rules[i].ending) != 0) continue;
		if (length == n || name[length - n - 1] == '_') return rules[i].kind;
	}
	return TM_COLUMN_TEXT;
}

bool tm_column_is_quantity(const char *name) {
	switch (tm_column_kind(name)) {
	case TM_COLUMN_SIZE:
	case TM_COLUMN_COUNT:
	case TM_COLUMN_SCORE:
	case TM_COLUMN_SHARE:
	case TM_COLUMN_DURATION: return true;
	default: return false;
	}
}
