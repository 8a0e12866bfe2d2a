/* options.h - the options of the verbs that answer, in one table, and the help that is made from it.
 *
 * Each verb has a struct tm_usage: which options it takes, how many operands, and the text that teaches it. Options may stand before,
 * between and behind the operands; "--" ends them.
 * Owns:     nothing; texts look into argv.
 */
#ifndef TIDEMARK_ANALYZER_OPTIONS_H
#define TIDEMARK_ANALYZER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "times.h"

enum tm_format { TM_FORMAT_TABLE, TM_FORMAT_JSON, TM_FORMAT_CSV };

enum tm_export_value { TM_VALUE_PEAK, TM_VALUE_LIVE, TM_VALUE_ALLOCATED, TM_VALUE_LEAKED, TM_VALUE_TEMPORARY };

/* What a live set is grouped by. */
enum tm_by {
	TM_BY_STACK,
	TM_BY_SITE,
	TM_BY_FUNCTION,
	TM_BY_FILE,
	TM_BY_LIBRARY,
	TM_BY_SCOPE,
	TM_BY_THREAD,
	TM_BY_HEAP,
	TM_BY_SIZE,
	TM_BY_AGE
};

/* What `gpu` lists. */
enum tm_gpu_list {
	TM_GPU_DEVICES,
	TM_GPU_BY_LINE,
	TM_GPU_BY_LIBRARY,
	TM_GPU_POOLS,
	TM_GPU_ACTIVITY,
	TM_GPU_OOM,
	TM_GPU_INEFFICIENCIES,
	TM_GPU_GAP
};

enum tm_option_bit {
	TM_OPTION_FORMAT = 1 << 0,
	TM_OPTION_LIMIT = 1 << 1,
	TM_OPTION_SORT = 1 << 2,
	TM_OPTION_HEAP = 1 << 3,
	TM_OPTION_PROCESS = 1 << 4,
	TM_OPTION_FROM = 1 << 5,
	TM_OPTION_TO = 1 << 6,
	TM_OPTION_SQL = 1 << 7,
	TM_OPTION_AT = 1 << 8,
	TM_OPTION_STACK = 1 << 9,
	TM_OPTION_SITES = 1 << 10,
	TM_OPTION_BUCKETS = 1 << 11,
	TM_OPTION_OUTPUT = 1 << 12,
	TM_OPTION_VALUE = 1 << 13,
	TM_OPTION_GZIP = 1 << 14,
	TM_OPTION_MAX_EVENTS = 1 << 15,
	TM_OPTION_FORCE = 1 << 16,
	TM_OPTION_TREE = 1 << 17,
	TM_OPTION_CATEGORY = 1 << 18,
	TM_OPTION_MEANS = 1 << 19,
	TM_OPTION_STEPS = 1 << 20,
	TM_OPTION_TORCH_COMPAT = 1 << 21,
	TM_OPTION_SCOPE = 1 << 22,
	TM_OPTION_VIEW = 1 << 23,
	TM_OPTION_LIFETIMES = 1 << 24,
	TM_OPTION_BY = 1 << 25,
	TM_OPTION_AGAINST = 1 << 26,
	TM_OPTION_CHURN = 1 << 27, /* and --reallocs, --oversized, --histogram */
	TM_OPTION_GAP = 1 << 28,   /* and --jumps */
	TM_OPTION_LEAKS = 1 << 29, /* --min-score, --all; --suppressions */
	TM_OPTION_CHECK = 1 << 30, /* budgets, --junit; --suppressions */
	TM_OPTION_GPU = 1u << 31,  /* --lines, --libraries, --pools, --activity, --oom, --inefficiencies, --gap */
};

#define TM_OPTION_TOP (1ull << 32) /* --pid, --interval, --count, --by */

/* What every command that lists takes. */
#define TM_OPTIONS_LISTING \
	(TM_OPTION_FORMAT | TM_OPTION_LIMIT | TM_OPTION_SORT | TM_OPTION_HEAP | TM_OPTION_PROCESS | TM_OPTION_FROM | TM_OPTION_TO | \
	 TM_OPTION_SQL)

struct tm_usage {
	const char *verb;
	const char *operands;    /* as shown behind the verb: "DB|TRACE" */
	const char *description; /* whole sentences, each line ending in a newline */
	const char *examples;    /* one a line, each beginning with "tidemark" */
	uint64_t options;        /* enum tm_option_bit, TM_OPTION_TOP */
	int operands_min, operands_max;
	bool needs_known_window; /* a window that reaches out of what was recorded is refused, for levels are wanted; others warn */
};

#define TM_OPERANDS_MAX 4
#define TM_LIMIT_UNSET (-1)

/* Of `check`; negative: none. */
struct tm_budgets {
	int64_t peak_bytes, leak_bytes, growth_bytes, allocations;
};

struct tm_options {
	const struct tm_usage *usage;
	const char *operands[TM_OPERANDS_MAX];
	int operand_count;
	enum tm_format format;
	int64_t limit; /* rows, 0 all, TM_LIMIT_UNSET */
	const char *sort;
	const char *heap;
	bool process_given, process_is_rank;
	int64_t process;   /* id, or rank */
	const char *world; /* of the rank; NULL: all that have it */
	struct tm_time_point from, to, at, against;
	bool needs_known_window; /* as of the usage, unless a verb knows better */
	const char *from_text, *to_text, *at_text, *against_text;
	bool sql, stack, sites, gzip, force, tree, means, steps, torch_compat, all;
	const char *category, *scope, *suppressions;
	const char *view; /* NULL: not given */
	bool lifetimes_given;
	int64_t lifetimes_bytes;
	enum tm_by by;
	bool by_given, churn, reallocs, oversized, gap, jumps;
	enum tm_gpu_list gpu;
	unsigned gpu_lists;    /* of those that were asked for, 1 << enum tm_gpu_list each */
	const char *histogram; /* size or lifetime; NULL: not asked for */
	int64_t buckets; /* TM_LIMIT_UNSET: not given */
	const char *output;
	bool value_given, max_events_given;
	enum tm_export_value value;
	int64_t max_events;
	struct tm_budgets budgets;
	const char *junit;
	double min_score; /* negative: not given */
	int64_t pid, count; /* of `top`; 0: not given */
	uint64_t interval_ns;
};

#define TM_OPTIONS_GO (-1)

/* TM_OPTIONS_GO: go on. Else the exit status: help was printed, or one line said what is wrong. */
int tm_options_parse(struct tm_options *o, const struct tm_usage *usage, int argc, char **argv);

/* The word of the list (its end is NULL) that `word` may have meant, or NULL. */
const char *tm_closest_word(const char *word, const char *const *list);

#endif
