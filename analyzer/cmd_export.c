/* cmd_export.c - `tidemark export FORMAT`: opens the output, lets one of the export_*.c write it, and gives it its name. */
#include <stdio.h>
#include <string.h>

#include "export.h"
#include "listing.h"
#include "overwrite.h"
#include "stack_values.h"
#include "talk.h"
#include "verbs.h"

static const struct tm_usage usage = {
	.verb = "export",
	.operands = "FORMAT DB|TRACE -o FILE",
	.description =
		"chrome      a trace for ui.perfetto.dev or chrome://tracing: counters of live bytes for each heap, RSS and other samples,\n"
		"            marks, steps, scopes, large blocks with their lifetimes, device work by stream with arrows from the\n"
		"            scopes that launched it; process ids are rank + 1 for one process of each rank\n"
		"folded      collapsed stacks, one `main;load;parse 4096` a line, for flamegraph.pl and inferno\n"
		"pprof       profile.proto, for `go tool pprof`, Pyroscope, Parca: alloc_objects, alloc_space, inuse_objects and\n"
		"            inuse_space (live at exit), peak_space (live at the peak); labels heap and process. Always compressed\n"
		"speedscope  for speedscope.app: live at the peak, live at exit, allocated, temporary\n"
		"heaptrack   for heaptrack_print and heaptrack_gui: every allocation and free; of a sampled trace every sample is one call,\n"
		"            of the bytes that it stands for\n"
		"csv         a view or table with all its columns, and the stack as text: --view=site, --view=allocation, ...\n"
		"folded, pprof, speedscope and heaptrack take the root heaps unless --heap names one; where there are none, those of\n"
		"devices, and say so. A value `peak` is what was live at the peak of each process, with --heap and of devices at the\n"
		"peak of that heap. With --from and --to a chrome trace has what lies in that window; the others count the blocks\n"
		"allocated in it, and for peak what was live at the highest level within it.\n",
	.examples = "tidemark export folded run.db -o run.txt && flamegraph.pl run.txt > run.svg\n"
		    "tidemark export folded run.db --value=leaked --heap=malloc -o -\n"
		    "tidemark export chrome run.db -o run.json.gz\n"
		    "tidemark export pprof run.db -o run.pb.gz && go tool pprof -http=: run.pb.gz\n"
		    "tidemark export heaptrack run.db -o run.gz && heaptrack_print run.gz\n"
		    "tidemark export csv run.db --view=peak_site -o -\n",
	.options = TM_OPTION_OUTPUT | TM_OPTION_VALUE | TM_OPTION_HEAP | TM_OPTION_PROCESS | TM_OPTION_FROM | TM_OPTION_TO |
		   TM_OPTION_MAX_EVENTS | TM_OPTION_GZIP | TM_OPTION_FORCE | TM_OPTION_VIEW | TM_OPTION_LIFETIMES,
	.operands_min = 2,
	.operands_max = 2,
};

static const struct {
	const char *name;
	int (*write)(const struct tm_database *d, const struct tm_options *o, struct tm_output *out);
	bool gzip;        /* always compressed: its readers expect that */
	bool levels;      /* they follow from what was live before a window */
	bool by_heap;     /* adds up heaps, so that it takes only some unless one is chosen */
	uint64_t options; /* of those that mean nothing to some formats, the ones that it takes */
} forms[] = {
	{ "chrome", tm_export_chrome, false, true, false, TM_OPTION_MAX_EVENTS | TM_OPTION_LIFETIMES },
	{ "folded", tm_export_folded, false, true, true, TM_OPTION_VALUE },
	{ "pprof", tm_export_pprof, true, true, true, TM_OPTION_VALUE },
	{ "speedscope", tm_export_speedscope, false, true, true, TM_OPTION_VALUE },
	{ "csv", tm_export_csv, false, false, false, TM_OPTION_VIEW },
	{ "heaptrack", tm_export_heaptrack, false, true, true, 0 },
};
#define FORM_COUNT (sizeof(forms) / sizeof(forms[0]))

/* An option that the format would not look at is refused. TM_OPTIONS_GO: there is none. */
static int check_options(const struct tm_options *o, uint64_t taken) {
	const struct {
		bool given;
		uint64_t bit;
		const char *name, *formats;
	} some[] = {
		{ o->value_given, TM_OPTION_VALUE, "--value", "folded, pprof and speedscope" },
		{ o->max_events_given, TM_OPTION_MAX_EVENTS, "--max-events", "chrome" },
		{ o->lifetimes_given, TM_OPTION_LIFETIMES, "--lifetimes", "chrome" },
		{ o->view != NULL, TM_OPTION_VIEW, "--view", "csv" },
	};
	for (size_t i = 0; i < sizeof some / sizeof *some; i++)
		if (some[i].given && !(taken & some[i].bit)) return tm_misuse("export", "%s is for %s", some[i].name, some[i].formats);
	return TM_OPTIONS_GO;
}

/* What the heaps are that went into the file, where that is not the processes' own memory, or not all that was recorded. */
static void say_heaps(const struct tm_database *d, const struct tm_options *o) {
	char *names = o->heap ? NULL : tm_heaps_apart(d, o);
	if (names && tm_has_only_heaps_apart(d, o))
		tm_say("no host memory was recorded: exported is what lies in %s, peaks being each heap's own", names);
	else if (names) tm_say("not in it are heaps %s: --heap=NAME exports one", names);
	sqlite3_free(names);
}

/* Some formats have no room for it. */
static void say_estimates(const struct tm_database *d, const struct tm_options *o, bool counts_samples) {
	char *sql = sqlite3_mprintf("SELECT max(estimated) FROM heap WHERE %s name = %Q", o->heap ? "" : "true OR", o->heap ? o->heap : "");
	if (d->estimated && sql && tm_database_integer(d, sql, 0))
		tm_say("a trace was sampled: the figures are estimates, and a sampled peak is biased upward%s",
		       counts_samples ? "; calls are counts of samples" : "");
	sqlite3_free(sql);
}

static bool ends_in_gz(const char *path) {
	size_t n = strlen(path);
	return n > 3 && strcmp(path + n - 3, ".gz") == 0;
}

int tm_cmd_export(int argc, char **argv) {
	struct tm_options o;
	struct tm_database d;
	struct tm_output out;
	size_t form = 0;
	int status = tm_options_parse(&o, &usage, argc, argv);
	if (status != TM_OPTIONS_GO) return status;
	while (form < FORM_COUNT && strcmp(forms[form].name, o.operands[0]) != 0) form++;
	if (form == FORM_COUNT)
		return tm_misuse("export", "unknown format '%s', there are chrome, folded, pprof, speedscope, heaptrack and csv",
				 o.operands[0]);
	if ((status = check_options(&o, forms[form].options)) != TM_OPTIONS_GO) return status;
	if (!o.output) return tm_misuse("export", "-o FILE says where to write; - is standard output");
	o.needs_known_window = forms[form].levels;
	status = tm_database_open(&d, o.operands[1]);
	if (!status) status = tm_listing_check(&d, &o);
	if (!status) status = tm_check_output(o.output, o.operands[1], d.path, o.force);
	if (!status) status = tm_output_open(&out, o.output, o.gzip || forms[form].gzip || ends_in_gz(o.output), o.force);
	/* One transaction for all that is asked: the file is locked and looked at once, not for each of a million names. */
	if (!status) sqlite3_exec(d.handle, "BEGIN", NULL, NULL, NULL);
	if (!status) status = tm_output_close(&out, forms[form].write(&d, &o, &out));
	if (!status && forms[form].by_heap) say_heaps(&d, &o);
	if (!status && forms[form].by_heap) say_estimates(&d, &o, forms[form].write == tm_export_heaptrack);
	tm_database_close(&d);
	return status;
}
