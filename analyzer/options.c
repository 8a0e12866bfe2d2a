/* options.c - parses the command lines of the verbs and prints their help.
 *
 * One table lists every option with its help and the function that takes its value; a verb names the ones it understands by bits. So an
 * option means the same everywhere, and help cannot differ from what is accepted.
 */
#include "options.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schema/units.h"
#include "help_text.h"
#include "talk.h"

struct option_row {
	const char *name;  /* without the dashes */
	const char *value; /* shown in help; NULL: the option takes none */
	uint64_t bit;
	/* false: the value makes no sense. */
	bool (*take)(struct tm_options *o, const char *value);
	const char *help;
};

static bool take_count(const char *text, int64_t *out) {
	char *end;
	errno = 0;
	long long n = strtoll(text, &end, 10);
	if (end == text || *end || errno || n < 0) return false;
	*out = n;
	return true;
}

static bool take_word(const char *text, const char *const *words, int *out) {
	for (int i = 0; words[i]; i++) {
		if (strcmp(text, words[i]) != 0) continue;
		*out = i;
		return true;
	}
	return false;
}

static bool take_format(struct tm_options *o, const char *value) {
	int word;
	if (!take_word(value, (const char *const[]){ "table", "json", "csv", NULL }, &word)) return false;
	o->format = (enum tm_format)word;
	return true;
}

static bool take_value(struct tm_options *o, const char *value) {
	int word;
	if (!take_word(value, (const char *const[]){ "peak", "live", "allocated", "leaked", "temporary", NULL }, &word)) return false;
	o->value = (enum tm_export_value)word;
	return o->value_given = true;
}

static bool take_process(struct tm_options *o, const char *value) {
	o->process_given = true;
	o->process_is_rank = strncmp(value, "rank:", 5) == 0;
	o->world = NULL;
	if (!o->process_is_rank) return take_count(value, &o->process);
	const char *digits = value + 5, *end = digits + strspn(digits, "0123456789");
	char number[24];
	if (*end == '@') o->world = end + 1; /* which may have more of these */
	else if (*end) return false;
	return snprintf(number, sizeof(number), "%.*s", (int)(end - digits), digits) < (int)sizeof(number) &&
	       take_count(number, &o->process) && (!o->world || *o->world);
}

static bool take_from(struct tm_options *o, const char *value) {
	o->from_text = value;
	return tm_time_point_parse(value, &o->from);
}

static bool take_to(struct tm_options *o, const char *value) {
	o->to_text = value;
	return tm_time_point_parse(value, &o->to);
}

static bool take_at(struct tm_options *o, const char *value) {
	o->at_text = value;
	return tm_time_point_parse(value, &o->at);
}

static bool take_against(struct tm_options *o, const char *value) {
	o->against_text = value;
	return tm_time_point_parse(value, &o->against);
}

/* In the order of enum tm_by. */
static bool take_by(struct tm_options *o, const char *value) {
	static const char *const words[] = {
		"stack", "site", "function", "file", "library", "scope", "thread", "heap", "size", "age", NULL
	};
	int word;
	if (!take_word(value, words, &word)) return false;
	o->by = (enum tm_by)word;
	return o->by_given = true;
}

static bool take_histogram(struct tm_options *o, const char *value) {
	int word;
	o->histogram = value;
	return take_word(value, (const char *const[]){ "size", "lifetime", NULL }, &word);
}

static bool take_sort(struct tm_options *o, const char *value) {
	o->sort = value;
	return *value != '\0';
}

static bool take_heap(struct tm_options *o, const char *value) {
	o->heap = value;
	return *value != '\0';
}

static bool take_output(struct tm_options *o, const char *value) {
	o->output = value;
	return *value != '\0';
}

static bool take_lifetimes(struct tm_options *o, const char *value) {
	uint64_t bytes;
	o->lifetimes_given = tm_parse_size(value, &bytes) && bytes <= INT64_MAX;
	if (o->lifetimes_given) o->lifetimes_bytes = (int64_t)bytes;
	return o->lifetimes_given;
}

static bool take_view(struct tm_options *o, const char *value) {
	o->view = value;
	return *value != '\0';
}

static bool take_limit(struct tm_options *o, const char *value) {
	return take_count(value, &o->limit);
}
static bool take_buckets(struct tm_options *o, const char *value) {
	return take_count(value, &o->buckets) && o->buckets <= 1000000;
}
static bool take_max_events(struct tm_options *o, const char *value) {
	return o->max_events_given = take_count(value, &o->max_events);
}
static bool take_sql(struct tm_options *o, const char *value) {
	(void)value;
	return o->sql = true;
}
static bool take_stack(struct tm_options *o, const char *value) {
	(void)value;
	return o->stack = true;
}
static bool take_sites(struct tm_options *o, const char *value) {
	(void)value;
	return o->sites = true;
}
static bool take_gzip(struct tm_options *o, const char *value) {
	(void)value;
	return o->gzip = true;
}
static bool take_tree(struct tm_options *o, const char *value) {
	(void)value;
	return o->tree = true;
}
static bool take_means(struct tm_options *o, const char *value) {
	(void)value;
	return o->means = true;
}
static bool take_steps(struct tm_options *o, const char *value) {
	(void)value;
	return o->steps = true;
}
static bool take_torch_compat(struct tm_options *o, const char *value) {
	(void)value;
	return o->torch_compat = true;
}
static bool take_churn(struct tm_options *o, const char *value) {
	(void)value;
	return o->churn = true;
}
static bool take_reallocs(struct tm_options *o, const char *value) {
	(void)value;
	return o->reallocs = true;
}
static bool take_oversized(struct tm_options *o, const char *value) {
	(void)value;
	return o->oversized = true;
}
static bool take_gap(struct tm_options *o, const char *value) {
	(void)value;
	return o->gap = true;
}
static bool take_jumps(struct tm_options *o, const char *value) {
	(void)value;
	return o->jumps = true;
}
static bool take_gpu_list(struct tm_options *o, enum tm_gpu_list list) {
	o->gpu = list;
	o->gpu_lists |= 1u << list;
	return true;
}
static bool take_gpu_lines(struct tm_options *o, const char *value) {
	(void)value;
	return take_gpu_list(o, TM_GPU_BY_LINE);
}
static bool take_gpu_libraries(struct tm_options *o, const char *value) {
	(void)value;
	return take_gpu_list(o, TM_GPU_BY_LIBRARY);
}
static bool take_gpu_pools(struct tm_options *o, const char *value) {
	(void)value;
	return take_gpu_list(o, TM_GPU_POOLS);
}
static bool take_gpu_activity(struct tm_options *o, const char *value) {
	(void)value;
	return take_gpu_list(o, TM_GPU_ACTIVITY);
}
static bool take_gpu_oom(struct tm_options *o, const char *value) {
	(void)value;
	return take_gpu_list(o, TM_GPU_OOM);
}
static bool take_gpu_inefficiencies(struct tm_options *o, const char *value) {
	(void)value;
	return take_gpu_list(o, TM_GPU_INEFFICIENCIES);
}
static bool take_gpu_gap(struct tm_options *o, const char *value) {
	(void)value;
	return take_gpu_list(o, TM_GPU_GAP);
}
static bool take_category(struct tm_options *o, const char *value) {
	o->category = value;
	return *value != '\0';
}
static bool take_scope(struct tm_options *o, const char *value) {
	o->scope = value;
	return true;
}
static bool take_all(struct tm_options *o, const char *value) {
	(void)value;
	return o->all = true;
}
static bool take_suppressions(struct tm_options *o, const char *value) {
	o->suppressions = value;
	return *value != '\0';
}
static bool take_size(const char *text, int64_t *out) {
	uint64_t bytes;
	if (!tm_parse_size(text, &bytes) || bytes > INT64_MAX) return false;
	*out = (int64_t)bytes;
	return true;
}
static bool take_max_peak(struct tm_options *o, const char *value) {
	return take_size(value, &o->budgets.peak_bytes);
}
static bool take_max_leak(struct tm_options *o, const char *value) {
	return take_size(value, &o->budgets.leak_bytes);
}
static bool take_max_growth(struct tm_options *o, const char *value) {
	return take_size(value, &o->budgets.growth_bytes);
}
static bool take_max_allocations(struct tm_options *o, const char *value) {
	return take_count(value, &o->budgets.allocations);
}
static bool take_junit(struct tm_options *o, const char *value) {
	o->junit = value;
	return *value != '\0';
}
static bool take_min_score(struct tm_options *o, const char *value) {
	char *end;
	o->min_score = strtod(value, &end);
	return end != value && !*end && o->min_score >= 0 && o->min_score <= 1;
}
static bool take_pid(struct tm_options *o, const char *value) {
	return take_count(value, &o->pid) && o->pid > 0 && o->pid <= INT32_MAX;
}
static bool take_repeats(struct tm_options *o, const char *value) {
	return take_count(value, &o->count) && o->count > 0;
}
static bool take_interval(struct tm_options *o, const char *value) {
	return tm_parse_time(value, &o->interval_ns) && o->interval_ns >= 10000000u && o->interval_ns <= 86400000000000u;
}
static bool take_force(struct tm_options *o, const char *value) {
	(void)value;
	return o->force = true;
}

static const struct option_row option_rows[] = {
	{ "pid", "PID", TM_OPTION_TOP, take_pid, "the recording that this process belongs to" },
	{ "interval", "T", TM_OPTION_TOP, take_interval, "between two looks: 1s (default), 200ms, 1m" },
	{ "count", "N", TM_OPTION_TOP, take_repeats, "end after N looks" },
	{ "at", "T", TM_OPTION_AT, take_at,
	  "the instant: 12.5s, 300ms, start, baseline, peak, exit, end, mark:NAME, step[-end]:N, scope[-end]:NAME, "
	  "snapshot:LABEL" },
	{ "against", "T", TM_OPTION_AGAINST, take_against, "the difference to what was live at this instant, largest change first" },
	{ "by", "stack|site|function|file|library|scope|thread|heap|size|age", TM_OPTION_BY, take_by, "group by this (default stack)" },
	{ "by", "heap|site|scope", TM_OPTION_TOP, take_by, "list only these (json and csv: default heap); without it a table has all" },
	{ "format", "table|json|csv", TM_OPTION_FORMAT, take_format, "default table" },
	{ "limit", "N", TM_OPTION_LIMIT, take_limit,
	  "at most N rows; 0 is all of them (default: tables 20, lists of a page 5, time lines, histograms, json and csv all)" },
	{ "sort", "COLUMN", TM_OPTION_SORT, take_sort,
	  "bytes, counts, scores, shares and durations go downward, all else upward; +COLUMN upward, -COLUMN downward" },
	{ "heap", "NAME", TM_OPTION_HEAP, take_heap, "only this heap, such as malloc or mmap" },
	{ "process", "ID", TM_OPTION_PROCESS, take_process, "only this process: its id in the database, rank:N, or rank:N@WORLD" },
	{ "from", "T", TM_OPTION_FROM, take_from, "only from this instant on: 12.5s, 300ms, start, baseline, peak, exit, end, mark:NAME" },
	{ "to", "T", TM_OPTION_TO, take_to, "only up to this instant, itself included" },
	{ "sites", NULL, TM_OPTION_SITES, take_sites,
	  "list what made it up: call sites; of an alert, stacks (every stack: views peak_site, alert_site)" },
	{ "stack", NULL, TM_OPTION_STACK, take_stack, "add the whole stack of each row" },
	{ "buckets", "N", TM_OPTION_BUCKETS, take_buckets,
	  "at most N rows for each heap, each with the highest level of some of the stretches that are stored; 0 (default): as stored" },
	{ "scope", "NAME", TM_OPTION_SCOPE, take_scope,
	  "instead of --at: four looks around each scope of this name (view scope_snapshot)" },
	{ "tree", NULL, TM_OPTION_TREE, take_tree, "as a tree: which scope lies in which" },
	{ "means", NULL, TM_OPTION_MEANS, take_means, "what a call costs on average: time and memory" },
	{ "steps", NULL, TM_OPTION_STEPS, take_steps, "the steps, side by side" },
	{ "category", "NAME", TM_OPTION_CATEGORY, take_category, "only scopes of this category, such as user, nvtx or torch.op" },
	{ "torch-compat", NULL, TM_OPTION_TORCH_COMPAT, take_torch_compat, "count as torch.profiler does" },
	{ "churn", NULL, TM_OPTION_CHURN, take_churn, "blocks that live under 1 ms, and allocations of the same size again and again" },
	{ "reallocs", NULL, TM_OPTION_CHURN, take_reallocs, "blocks that were made by reallocating another one, and how often in a row" },
	{ "oversized", NULL, TM_OPTION_CHURN, take_oversized, "what the allocator gave beyond what was asked for" },
	{ "histogram", "size|lifetime", TM_OPTION_CHURN, take_histogram, "how many blocks of which size or lifetime" },
	{ "gap", NULL, TM_OPTION_GAP, take_gap, "resident memory against live bytes, and what lies between them (view memory_gap_part)" },
	{ "jumps", NULL, TM_OPTION_GAP, take_jumps,
	  "where that gap grew or shrank most, and what the program did then (view memory_gap_jump)" },
	{ "min-score", "X", TM_OPTION_LEAKS, take_min_score, "only from this score on, 0 to 1 (tables default to 0.5, json and csv to 0)" },
	{ "all", NULL, TM_OPTION_LEAKS, take_all, "everything that was live at exit, also what is unlikely or suppressed" },
	{ "suppressions", "FILE", TM_OPTION_LEAKS | TM_OPTION_CHECK, take_suppressions,
	  "leave out stacks that a line leak:PATTERN of FILE matches" },
	{ "max-peak", "SIZE", TM_OPTION_CHECK, take_max_peak, "at most so many bytes live at once in a process" },
	{ "max-leak", "SIZE", TM_OPTION_CHECK, take_max_leak, "at most so many bytes live when a process begins to leave" },
	{ "max-growth", "SIZE", TM_OPTION_CHECK, take_max_growth, "at most so many live bytes more with each step" },
	{ "max-allocations", "N", TM_OPTION_CHECK, take_max_allocations,
	  "at most so many allocations in a step; without steps, in the whole run" },
	{ "junit", "FILE", TM_OPTION_CHECK, take_junit, "write the verdicts to FILE as JUnit XML, too" },
	{ "lines", NULL, TM_OPTION_GPU, take_gpu_lines,
	  "what was live at the peak of each heap, by the place in the program (view gpu_peak_line)" },
	{ "libraries", NULL, TM_OPTION_GPU, take_gpu_libraries,
	  "the same by the library that asked: NCCL, cuBLAS, cuDNN, ... (view gpu_peak_library)" },
	{ "pools", NULL, TM_OPTION_GPU, take_gpu_pools,
	  "allocated, reserved, active, inactive and idle peaks (view pool_peak); in a window what was told then (view pool)" },
	{ "activity", NULL, TM_OPTION_GPU, take_gpu_activity, "kernels, copies, sets, calls and overhead, by name (view gpu_work)" },
	{ "oom", NULL, TM_OPTION_GPU, take_gpu_oom,
	  "requests that were refused, explained (view gpu_oom); a table adds what was live then (view gpu_oom_site)" },
	{ "inefficiencies", NULL, TM_OPTION_GPU, take_gpu_inefficiencies,
	  "what the lives of blocks prove, with evidence (view gpu_inefficiency)" },
	{ "gap", NULL, TM_OPTION_GPU, take_gpu_gap, "what the process occupies on devices against what was recorded (view gpu_gap)" },
	{ "sql", NULL, TM_OPTION_SQL, take_sql, "print the query that would run instead of running it" },
	{ "output", "FILE", TM_OPTION_OUTPUT, take_output, "where to write; - is standard output. Also -o FILE" },
	{ "value", "peak|live|leaked|allocated|temporary", TM_OPTION_VALUE, take_value,
	  "folded: peak (default), live or leaked (at exit), allocated, temporary (whole run); pprof, speedscope: which is shown first" },
	{ "lifetimes", "SIZE", TM_OPTION_LIFETIMES, take_lifetimes,
	  "chrome: show the blocks of at least this size (default 1MiB, 0: all)" },
	{ "view", "NAME", TM_OPTION_VIEW, take_view, "csv: which view or table (default site)" },
	{ "gzip", NULL, TM_OPTION_GZIP, take_gzip, "compress; implied by a name that ends in .gz" },
	{ "max-events", "N", TM_OPTION_MAX_EVENTS, take_max_events, "chrome: about this many events at most, 0 all (default 1000000)" },
	{ "force", NULL, TM_OPTION_FORCE, take_force, "overwrite FILE if it exists, unless it holds a recording" },
};
#define OPTION_COUNT (sizeof(option_rows) / sizeof(option_rows[0]))

/* The Levenshtein distance of two short words; large when either is too long to be a slip of the keyboard. */
static int edit_distance(const char *a, const char *b) {
	int row[33];
	int n = (int)strlen(a), m = (int)strlen(b);
	if (n > 32 || m > 32) return INT_MAX;
	for (int j = 0; j <= m; j++) row[j] = j;
	for (int i = 1; i <= n; i++) {
		int diagonal = row[0];
		row[0] = i;
		for (int j = 1; j <= m; j++) {
			int best = diagonal + (a[i - 1] != b[j - 1]);
			diagonal = row[j];
			if (row[j] + 1 < best) best = row[j] + 1;
			if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
			row[j] = best;
		}
	}
	return row[m];
}

/* The only one that begins so. */
static const char *longer_word(const char *word, const char *const *list) {
	const char *found = NULL;
	for (; *list; list++) {
		if (strncmp(*list, word, strlen(word)) != 0) continue;
		if (found) return NULL;
		found = *list;
	}
	return found;
}

const char *tm_closest_word(const char *word, const char *const *list) {
	const char *closest = longer_word(word, list);
	if (closest) return closest;
	int best = (int)strlen(word) <= 3 ? 2 : 3; /* two slips make a word; in a short one only one does */
	for (; *list; list++) {
		int distance = edit_distance(word, *list);
		if (distance >= best) continue;
		best = distance;
		closest = *list;
	}
	return closest;
}

static int unknown_option(const struct tm_usage *usage, const char *argument, const char *name) {
	const char *words[OPTION_COUNT + 1];
	int n = 0;
	for (size_t i = 0; i < OPTION_COUNT; i++) {
		if (usage->options & option_rows[i].bit) words[n++] = option_rows[i].name;
	}
	words[n] = NULL;
	const char *meant = tm_closest_word(name, words);
	if (meant) return tm_misuse(usage->verb, "unknown option '%s', did you mean --%s?", argument, meant);
	return tm_misuse(usage->verb, "unknown option '%s'", argument);
}

#define HELP_COLUMN 23 /* where options end */

static void print_help(const struct tm_usage *usage) {
	char *text = NULL;
	size_t bytes = 0;
	FILE *to = open_memstream(&text, &bytes);
	if (!to) return;
	fprintf(to, "usage: tidemark %s%s%s%s\n\n%s", usage->verb, *usage->operands ? " " : "", usage->operands,
		usage->options ? " [OPTION...]" : "", usage->description);
	if (usage->options) fprintf(to, "\noptions:\n");
	for (size_t i = 0; i < OPTION_COUNT; i++) {
		const struct option_row *row = &option_rows[i];
		char left[80];
		if (!(usage->options & row->bit)) continue;
		snprintf(left, sizeof(left), "--%s%s%s", row->name, row->value ? "=" : "", row->value ? row->value : "");
		if (strlen(left) > HELP_COLUMN) fprintf(to, "  %s\n  %-*s %s\n", left, HELP_COLUMN, "", row->help);
		else fprintf(to, "  %-*s %s\n", HELP_COLUMN, left, row->help);
	}
	fprintf(to, "\nexamples:\n");
	for (const char *line = usage->examples; *line;) {
		size_t n = strcspn(line, "\n");
		fprintf(to, "  %.*s\n", (int)n, line);
		line += n + (line[n] == '\n');
	}
	if (fclose(to) == 0) tm_print_help(text);
	free(text);
}

/* Takes the option at argv[*i], and its value from argv[*i + 1] where it stands there. */
static int take_option(struct tm_options *o, int argc, char **argv, int *i) {
	const struct tm_usage *usage = o->usage;
	const char *argument = argv[*i];
	char name[32];
	const char *value = NULL;
	if (strncmp(argument, "-o", 2) == 0) {
		snprintf(name, sizeof(name), "output");
		if (argument[2]) value = argument + 2;
	} else {
		size_t n = strncmp(argument, "--", 2) == 0 ? strcspn(argument + 2, "=") : 0;
		if (!n || n >= sizeof(name)) return tm_misuse(usage->verb, "unknown option '%s'", argument);
		memcpy(name, argument + 2, n);
		name[n] = '\0';
		if (argument[2 + n] == '=') value = argument + 3 + n;
	}
	for (size_t k = 0; k < OPTION_COUNT; k++) {
		const struct option_row *row = &option_rows[k];
		if (!(usage->options & row->bit) || strcmp(row->name, name) != 0) continue;
		if (!row->value && value) return tm_misuse(usage->verb, "option --%s takes no value", name);
		if (row->value && !value) {
			if (*i + 1 >= argc) return tm_misuse(usage->verb, "option --%s needs a value", name);
			value = argv[++*i];
		}
		if (row->take(o, value)) return TM_OPTIONS_GO;
		if (strchr(row->value, '|')) return tm_misuse(usage->verb, "invalid value '%s' for --%s=%s", value, name, row->value);
		return tm_misuse(usage->verb, "invalid value '%s' for --%s", value, name);
	}
	return unknown_option(usage, argument, name);
}

static int check_operands(const struct tm_options *o) {
	const struct tm_usage *usage = o->usage;
	if (o->operand_count < usage->operands_min) return tm_misuse(usage->verb, "usage: tidemark %s %s", usage->verb, usage->operands);
	return TM_OPTIONS_GO;
}

/* "-" is a file, and "-- " with more behind it is SQL that begins with a comment. */
static bool is_option(const char *argument) {
	return argument[0] == '-' && argument[1] && !(argument[1] == '-' && argument[2] && strchr(" \t\n", argument[2]));
}

int tm_options_parse(struct tm_options *o, const struct tm_usage *usage, int argc, char **argv) {
	bool options_over = false;
	*o = (struct tm_options){ .usage = usage,
				  .needs_known_window = usage->needs_known_window,
				  .limit = TM_LIMIT_UNSET,
				  .buckets = TM_LIMIT_UNSET,
				  .max_events = 1000000,
				  .min_score = -1,
				  .interval_ns = 1000000000u,
				  .budgets = { -1, -1, -1, -1 } };
	for (int i = 1; i < argc; i++) {
		const char *argument = argv[i];
		if (options_over || !is_option(argument)) {
			if (o->operand_count >= usage->operands_max) return tm_misuse(usage->verb, "unexpected argument '%s'", argument);
			o->operands[o->operand_count++] = argument;
			continue;
		}
		if (strcmp(argument, "--") == 0) {
			options_over = true;
			continue;
		}
		if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
			print_help(usage);
			return TM_EXIT_DONE;
		}
		int status = take_option(o, argc, argv, &i);
		if (status != TM_OPTIONS_GO) return status;
	}
	return check_operands(o);
}
