/* main.c - `tidemark`: finds the verb and runs it.
 *
 * One table lists the verbs; dispatch, help and suggestions are made from it. What all verbs have in common is here: the locale, names of
 * files are names to SQLite, too, a closed pipe ends the program quietly, and standard output that could not be written makes it fail.
 */
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "display_text.h"
#include "help_text.h"
#include "options.h"
#include "render.h"
#include "talk.h"
#include "verbs.h"

struct verb {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help; /* one line */
};

static const struct verb verbs[] = {
	{ "record", tm_cmd_record, "run a command and record what it does with memory" },
	{ "import", tm_cmd_import, "make a database of one or many traces" },
	{ "names", tm_cmd_names, "resolve a trace's addresses to functions, later or elsewhere" },
	{ "dump", tm_cmd_names, "a copy of the trace of a running recording" },
	{ "info", tm_cmd_info, "what a trace or database is, what it holds, whether it is whole" },
	{ "summary", tm_cmd_summary, "one page: heaps, peaks, live at exit, losses" },
	{ "peak", tm_cmd_peak, "when memory was highest, and what made it up" },
	{ "scopes", tm_cmd_scopes, "whose memory it is: by scope, operator or step" },
	{ "leaks", tm_cmd_leaks, "what looks like a leak, and why: what was live at exit, by call site" },
	{ "snapshot", tm_cmd_snapshot, "what was live at any instant, by call stack" },
	{ "diff", tm_cmd_diff, "what changed from one run to another" },
	{ "check", tm_cmd_check, "budgets for peak, leak, growth and allocations, for CI" },
	{ "temporary", tm_cmd_temporary, "call stacks whose blocks are freed at once" },
	{ "timeline", tm_cmd_timeline, "live bytes over time" },
	{ "alerts", tm_cmd_alerts, "thresholds that were crossed, and what was live then" },
	{ "processes", tm_cmd_processes, "the tree of processes, with ranks, ends and peaks" },
	{ "gpu", tm_cmd_gpu, "devices: memory, pools, work, refused requests, what was held in vain" },
	{ "top", tm_cmd_top, "a recording while it runs: heaps, call sites and scopes, with rates" },
	{ "query", tm_cmd_query, "ask the database in SQL, read-only" },
	{ "export", tm_cmd_export, "for other tools: Chrome trace, flame graph, pprof, speedscope, heaptrack, CSV" },
	{ "report", tm_cmd_report, "write one HTML file that explains a run" },
	{ "doctor", tm_cmd_doctor, "what this machine offers to a recording, and whether one works" },
};
#define VERB_COUNT (sizeof(verbs) / sizeof(verbs[0]))

static const char examples[] =
	"examples:\n"
	"  tidemark record -o run.tmk ./program --its --arguments    record a program\n"
	"  tidemark summary run.tmk                                  import it and see the main figures\n"
	"  tidemark leaks run.db --stack --limit=5                   the five largest leaks with their stacks\n"
	"  tidemark snapshot run.db --at peak --heap=malloc          what filled the heap at its peak\n"
	"  tidemark leaks run.db --sql                               the query behind an answer, to be changed and run\n"
	"  tidemark query run.db 'SELECT * FROM peak'                ask in SQL\n"
	"  tidemark export folded run.db -o run.folded               for a flame graph\n";

static void print_help(void) {
	char *text = NULL;
	size_t bytes = 0;
	FILE *to = open_memstream(&text, &bytes);
	if (!to) return;
	fprintf(to, "usage: tidemark VERB [ARGUMENT...]\n\n"
		    "Records what a program does with memory, and answers questions about it.\n\n"
		    "verbs ('tidemark VERB --help' explains each):\n");
	for (size_t i = 0; i < VERB_COUNT; i++) fprintf(to, "  %-10s %s\n", verbs[i].name, verbs[i].help);
	fprintf(to,
		"\n%s\n"
		"Where a verb reads a database (run.db) it takes a trace (run.tmk) as well, and imports it beside the trace first.\n"
		"Verbs that list take --format=table|json|csv, --limit, --sort, --heap, --process, --sql (but for top) and, but for\n"
		"summary, diff, check and top, --from and --to.\n"
		"exit status: 0 done, 1 failed, 2 wrong usage, 3 a check found something\n",
		examples);
	if (fclose(to) == 0) tm_print_help(text);
	free(text);
}

static int unknown_verb(const char *word) {
	const char *names[VERB_COUNT + 1];
	for (size_t i = 0; i < VERB_COUNT; i++) names[i] = verbs[i].name;
	names[VERB_COUNT] = NULL;
	const char *meant = tm_closest_word(word, names);
	if (meant) return tm_misuse(NULL, "unknown %s '%s', did you mean '%s'?", *word == '-' ? "option" : "verb", word, meant);
	return tm_misuse(NULL, "unknown %s '%s'", *word == '-' ? "option" : "verb", word);
}

static int dispatch(int argc, char **argv) {
	if (argc < 2) return tm_misuse(NULL, "a verb is missing");
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
		printf("tidemark %s\n", TM_TOOL_VERSION);
		return TM_EXIT_DONE;
	}
	bool is_help = strcmp(argv[1], "help") == 0;
	if (is_help && argc > 2) {
		/* `tidemark help VERB` is `tidemark VERB --help`. */
		char option[] = "--help";
		char *swapped[] = { argv[0], argv[2], option, NULL };
		return dispatch(3, swapped);
	}
	if (is_help || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		print_help();
		return TM_EXIT_DONE;
	}
	for (size_t i = 0; i < VERB_COUNT; i++) {
		if (strcmp(argv[1], verbs[i].name) == 0) return verbs[i].run(argc - 1, argv + 1);
	}
	return unknown_verb(argv[1]);
}

static void set_signals(void) {
	/* Whoever started us may ignore it; `tidemark ... | head` has to end when head does. */
	signal(SIGPIPE, SIG_DFL);
	/* A write beyond the limit of a file's size fails then, and says so. */
	signal(SIGXFSZ, SIG_IGN);
}

int main(int argc, char **argv) {
	tm_display_init();
	/* A file that is called file:x.db is no URI. */
	sqlite3_config(SQLITE_CONFIG_URI, 0);
	/* A recorded program gets its signals as we got them. */
	if (argc < 2 || strcmp(argv[1], "record") != 0) set_signals();
	return tm_finish_output(dispatch(argc, argv));
}
