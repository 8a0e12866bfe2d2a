/* record_options.c - from the command line to struct tm_options. The table in record_options.h is the only list of options. */
#include "record_options.h"

#include "../../schema/units.h"
#include "../shm.h"
#include "flight_ring.h"
#include "tell.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RING_BYTES_MIN (64u << 10)
#define RING_BYTES_MAX (1u << 30)
#define DEPTH_MAX 4096u

static bool number(const char *value, uint64_t max, uint64_t *out) {
	char *end;
	if (*value < '0' || *value > '9') return false;
	unsigned long long n = strtoull(value, &end, 10);
	*out = n;
	return !*end && n <= max;
}

/* Position of value in a list of words that ends with NULL, or -1. */
static int word(const char *value, const char *const *words) {
	for (int i = 0; words[i]; i++)
		if (!strcmp(value, words[i])) return i;
	return -1;
}

#define ONE_OF(value, ...) word(value, (const char *const[]){ __VA_ARGS__, NULL })

/* One function an option: takes the value, false if it makes no sense. */
static bool take_output(struct tm_options *o, const char *v) {
	o->output = v;
	return *v != 0;
}

static bool take_stacks(struct tm_options *o, const char *v) {
	static const uint32_t modes[] = { TM_STACKS_UNWIND, TM_STACKS_FP, TM_STACKS_OFF };
	int i = ONE_OF(v, "unwind", "fp", "off");
	if (i >= 0) o->stacks = modes[i];
	return i >= 0;
}

static bool take_max_depth(struct tm_options *o, const char *v) {
	uint64_t n;
	if (!number(v, DEPTH_MAX, &n) || n == 0) return false;
	o->max_depth = (uint32_t)n;
	return true;
}

static bool take_sample(struct tm_options *o, const char *v) {
	return tm_parse_size(v, &o->sample_bytes);
}

static bool on_off(const char *v, bool *out) {
	int i = ONE_OF(v, "off", "on");
	*out = i == 1;
	return i >= 0;
}

static bool take_mappings(struct tm_options *o, const char *v) {
	return on_off(v, &o->mappings);
}

static bool take_python(struct tm_options *o, const char *v) {
	int i = ONE_OF(v, "off", "auto");
	o->python = i == 1;
	return i >= 0;
}

static bool take_python_heap(struct tm_options *o, const char *v) {
	return on_off(v, &o->python_heap);
}

static bool take_torch(struct tm_options *o, const char *v) {
	int i = ONE_OF(v, "off", "auto");
	o->torch = i == 1;
	return i >= 0;
}

static bool take_gpu(struct tm_options *o, const char *v) {
	static const uint32_t modes[] = { TM_GPU_AUTO, TM_GPU_CUPTI, TM_GPU_OFF };
	int i = ONE_OF(v, "auto", "cupti", "off");
	if (i >= 0) o->gpu = modes[i];
	return i >= 0;
}

static bool take_nvtx(struct tm_options *o, const char *v) {
	int i = ONE_OF(v, "off", "auto");
	o->nvtx = i == 1;
	return i >= 0;
}

static bool take_itt(struct tm_options *o, const char *v) {
	int i = ONE_OF(v, "off", "auto");
	o->itt = i == 1;
	return i >= 0;
}

static bool take_follow(struct tm_options *o, const char *v) {
	return on_off(v, &o->follow);
}

static bool take_interval(struct tm_options *o, const char *v) {
	return number(v, 86400000u, &o->interval_ms);
}

static bool take_on_full(struct tm_options *o, const char *v) {
	int i = ONE_OF(v, "wait", "drop");
	o->on_full = i == 1 ? TM_ON_FULL_DROP : TM_ON_FULL_WAIT;
	return i >= 0;
}

static bool take_ring(struct tm_options *o, const char *v) {
	uint64_t size, rounded = RING_BYTES_MIN;
	if (!tm_parse_size(v, &size) || size == 0 || size > RING_BYTES_MAX) return false;
	while (rounded < size) rounded *= 2;
	o->ring_bytes = rounded;
	return true;
}

static bool take_max_size(struct tm_options *o, const char *v) {
	char size[64];
	const char *comma = strchr(v, ',');
	size_t n = comma ? (size_t)(comma - v) : strlen(v);
	int mode = comma ? ONE_OF(comma, ",stop", ",ring") : 0;
	if (n >= sizeof size || mode < 0) return false;
	memcpy(size, v, n);
	size[n] = 0;
	o->ring_file = mode == 1;
	if (!tm_parse_size(size, &o->max_size_bytes)) return false;
	return o->max_size_bytes && (!o->ring_file || o->max_size_bytes >= TM_FLIGHT_BYTES_MIN);
}

static bool take_dumps(struct tm_options *o, const char *v) {
	uint64_t n;
	if (!number(v, 10000, &n)) return false;
	o->dumps = (uint32_t)n;
	return o->dumps_given = true;
}

static bool take_alert(struct tm_options *o, const char *v) {
	return tm_alert_parse(&o->alerts, v);
}

static bool take_names(struct tm_options *o, const char *v) {
	int i = ONE_OF(v, "embed", "none");
	o->embed_names = i == 0;
	return i >= 0;
}

static bool take_args(struct tm_options *o, const char *v) {
	int i = ONE_OF(v, "keep", "drop");
	o->keep_args = i == 0;
	return i >= 0;
}

static bool take_linger(struct tm_options *o, const char *v) {
	return tm_parse_time(v, &o->linger_ns);
}

static bool take_force(struct tm_options *o, const char *v) {
	(void)v;
	return o->force = true;
}

static bool take_quiet(struct tm_options *o, const char *v) {
	(void)v;
	return o->quiet = true;
}

static bool take_verbose(struct tm_options *o, const char *v) {
	(void)v;
	return o->verbose = true;
}

static bool small_number(const char *v, int *out) {
	uint64_t n;
	if (!number(v, 0x7fffffff, &n)) return false;
	*out = (int)n;
	return true;
}

static bool take_attach(struct tm_options *o, const char *v) {
	return small_number(v, &o->attach_pid) && o->attach_pid > 0;
}

static bool take_session_fd(struct tm_options *o, const char *v) {
	return small_number(v, &o->session_fd);
}

/* The streams are the program's own where it has started us; --attach comes first then. */
static bool is_silent(const struct tm_options *o) {
	return o->attach_pid > 0 && !o->verbose && !getenv("TIDEMARK_VERBOSE");
}

static bool take_help(struct tm_options *o, const char *v);
static bool take_version(struct tm_options *o, const char *v);

struct option_row {
	const char *name;
	char letter;
	const char *value, *preset, *help;
	bool (*take)(struct tm_options *o, const char *value);
};

static const struct option_row rows[] = {
#define X(id, name, letter, value, preset, help) { name, letter, value, preset, help, take_##id },
	TM_RECORD_OPTIONS(X)
#undef X
};

#define ROW_COUNT (sizeof rows / sizeof rows[0])
#define HELP_COLUMN 28
#define HELP_WIDTH 80

/* In lines that begin at the help's column, where we are already. */
static void print_wrapped(const char *text) {
	size_t at = HELP_COLUMN;
	for (const char *word = text; *word;) {
		size_t n = strcspn(word, " ");
		if (at > HELP_COLUMN && at + 1 + n > HELP_WIDTH) at = (size_t)printf("\n%*s", HELP_COLUMN, "") - 1;
		else if (at > HELP_COLUMN) at += (size_t)printf(" ");
		at += (size_t)printf("%.*s", (int)n, word);
		word += n + strspn(word + n, " ");
	}
	putchar('\n');
}

static void print_row(const struct option_row *row) {
	char left[64], help[512];
	int n = row->letter ? snprintf(left, sizeof left, "  -%c, ", row->letter) : snprintf(left, sizeof left, "      ");
	snprintf(left + n, sizeof left - (size_t)n, "--%s%s%s", row->name, row->value ? "=" : "", row->value ? row->value : "");
	printf("%-*s%s", HELP_COLUMN, left, strlen(left) >= HELP_COLUMN ? "\n" : "");
	if (strlen(left) >= HELP_COLUMN) printf("%*s", HELP_COLUMN, "");
	if (row->preset) snprintf(help, sizeof help, "%s (default %s)", row->help, row->preset);
	print_wrapped(row->preset ? help : row->help);
}

static bool take_help(struct tm_options *o, const char *v) {
	(void)v;
	if (is_silent(o)) return o->done = true;
	printf("usage: tidemark-record [options] [--] COMMAND [ARG...]\n"
	       "       tidemark-record names TRACE [options]\n"
	       "       tidemark-record dump --pid=PID [-o FILE]\n\n"
	       "Runs COMMAND and records every allocation it makes, with stack, thread and\n"
	       "time, into a trace. Ask the trace with `tidemark summary FILE`, or make a\n"
	       "database of it with `tidemark import FILE`.\n\n"
	       "options:\n");
	for (size_t i = 0; i < ROW_COUNT; i++)
		if (rows[i].help) print_row(&rows[i]);
	printf("\nSizes are written 65536, 64K or 64KiB (1024), 64kB (1000); times 5s, 300ms.\n\n"
	       "Exit status: that of COMMAND; 128+N if signal N ended it; 125 if recording could\n"
	       "not start, 126 if COMMAND cannot be invoked, 127 if it is not found. The summary\n"
	       "goes to standard error.\n\n"
	       "examples:\n"
	       "  tidemark-record ./server --port 8080\n"
	       "  tidemark-record -o run.tmk --sample=512K python3 train.py\n"
	       "  mpirun -n 4 tidemark-record -o 'trace.%%r.tmk' ./solver\n"
	       "  tidemark-record -o run.%%p.tmk -- env VAR=1 ./program -o its.own.option\n");
	return o->done = true;
}

static bool take_version(struct tm_options *o, const char *v) {
	(void)v;
	if (!is_silent(o)) printf("tidemark-record " TM_TOOL_VERSION " (trace format %d.%d)\n", TM_FORMAT_MAJOR, TM_FORMAT_MINOR);
	return o->done = true;
}

static int complain(const struct tm_options *o, const char *what, const char *text) {
	if (!is_silent(o)) tm_tell("%s '%s' (see tidemark-record --help)", what, text);
	return TM_OPTIONS_BAD;
}

static const struct option_row *find_row(const char *arg, size_t name_bytes) {
	for (size_t i = 0; i < ROW_COUNT; i++)
		if (strlen(rows[i].name) == name_bytes && !memcmp(rows[i].name, arg, name_bytes)) return &rows[i];
	return NULL;
}

static const struct option_row *find_letter(char letter) {
	for (size_t i = 0; i < ROW_COUNT; i++)
		if (rows[i].letter && rows[i].letter == letter) return &rows[i];
	return NULL;
}

/* What a value has to keep to besides its form, for who gave another one. */
static const char *limits_of(const char *option) {
	static const char *const limits[][2] = {
		{ "max-depth", ", 1 to 4096" },
		{ "ring", ", at most 1GiB" },
		{ "max-size", ", at least 256KiB with ring, and not 0" },
		{ "alert", ", such as 'rss > 8GiB' or 'live(malloc) > 90%', 16 at most" },
		{ "interval", ", at most 86400000" },
		{ "dumps", ", at most 10000" },
	};
	_Static_assert(DEPTH_MAX == 4096 && RING_BYTES_MAX == 1u << 30 && TM_FLIGHT_BYTES_MIN == 256u << 10 && TM_ALERT_RULES_MAX == 16,
		       "these words");
	for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
		if (strcmp(limits[i][0], option) == 0) return limits[i][1];
	return "";
}

/* Takes argv[i], and argv[i + 1] where the value stands apart. Returns how many were taken, or TM_OPTIONS_BAD. */
static int take_one(struct tm_options *options, int argc, char **argv, int i) {
	const char *arg = argv[i], *value = NULL;
	bool is_long = arg[1] == '-';
	const char *name = is_long ? arg + 2 : arg + 1;
	size_t name_bytes = is_long ? strcspn(name, "=") : 1;
	const struct option_row *row = is_long ? find_row(name, name_bytes) : find_letter(*name);
	if (!row) return complain(options, "unknown option", arg);
	if (name[name_bytes]) value = name + name_bytes + is_long;
	if (value && !row->value) return complain(options, "option takes no value:", arg);
	int taken = 1;
	if (row->value && !value) {
		if (i + 1 >= argc) return complain(options, "option needs a value:", arg);
		value = argv[i + 1];
		taken = 2;
	}
	if (row->take(options, value)) return taken;
	if (!is_silent(options))
		tm_tell("bad value '%s' for --%s: expected %s%s (see tidemark-record --help)", value, row->name, row->value,
			limits_of(row->name));
	return TM_OPTIONS_BAD;
}

static int check_command(struct tm_options *options) {
	if (options->attach_pid < 0 && options->session_fd < 0) {
		if (options->command[0]) return TM_OPTIONS_OK;
		fprintf(stderr, "tidemark-record: no command to record (see tidemark-record --help)\n");
		return TM_OPTIONS_BAD;
	}
	if (options->attach_pid < 0 || options->session_fd < 0) {
		if (!is_silent(options)) fprintf(stderr, "tidemark-record: --attach and --session-fd need each other\n");
		return TM_OPTIONS_BAD;
	}
	if (options->command[0])
		return complain(options, TM_OPTIONS_ENV " holds options only, with blanks between them:", options->command[0]);
	options->command = NULL;
	return TM_OPTIONS_OK;
}

/* What would be taken, and then have no effect. */
static int check_effect(const struct tm_options *options) {
	if (options->dumps_given && !options->ring_file) {
		if (!is_silent(options))
			tm_tell("--dumps needs --max-size=SIZE,ring: without a ring no dump is made but on request (see tidemark-record --help)");
		return TM_OPTIONS_BAD;
	}
	for (unsigned i = 0; i < options->alerts.count; i++) {
		const char *why = tm_alert_never(&options->alerts.all[i]);
		if (!why) continue;
		if (!is_silent(options))
			tm_tell("--alert '%s' is never crossed: %s (see tidemark-record --help)", options->alerts.all[i].text, why);
		return TM_OPTIONS_BAD;
	}
	return TM_OPTIONS_OK;
}

int tm_options_parse(struct tm_options *options, int argc, char **argv) {
	*options = (struct tm_options){ .attach_pid = -1, .session_fd = -1 };
	for (size_t i = 0; i < ROW_COUNT; i++)
		if (rows[i].preset) rows[i].take(options, rows[i].preset);
	options->dumps_given = false;
	int i = 1;
	while (i < argc && argv[i][0] == '-' && argv[i][1]) {
		if (!strcmp(argv[i], "--")) {
			i++;
			break;
		}
		int taken = take_one(options, argc, argv, i);
		if (taken < 0) return taken;
		if (options->done) return TM_OPTIONS_OK;
		i += taken;
	}
	options->command = argv + i;
	int result = check_command(options);
	return result == TM_OPTIONS_OK ? check_effect(options) : result;
}
