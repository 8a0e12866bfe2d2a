/* cmd_report.c - `tidemark report`: one HTML file that explains a run.
 *
 * The work is report.h's; here the input is opened, and the page gets its name once it is whole.
 */
#include "export_output.h"
#include "listing.h"
#include "overwrite.h"
#include "report.h"
#include "report_page.h"
#include "stack_values.h"
#include "talk.h"
#include "verbs.h"

static const struct tm_usage usage = {
	.verb = "report",
	.operands = "DB|TRACE -o FILE",
	.description = "Writes one HTML file that explains a run: a verdict in words; live bytes over time by heap, scope, library or "
		       "call site;\n"
		       "a flame graph of what was live at any instant, allocated, freed or leaked in any stretch of time; scopes, leaks, "
		       "steps,\n"
		       "ranks, devices, resident memory, sizes and lifetimes. It needs no network and opens from disk in any current "
		       "browser; scopes and\n"
		       "leaks are text in it. At most 3 MB: where a run has too many call stacks, the smallest are shown as one. Of a\n"
		       "recording without host memory, as a snapshot of PyTorch, it shows the tensors of the device that held most.\n",
	.examples = "tidemark report run.tmk -o run.html\n"
		    "tidemark report run.db -o rank3.html --process=rank:3\n"
		    "tidemark report run.db -o gpu.html --heap=cuda:0 --force\n",
	.options = TM_OPTION_OUTPUT | TM_OPTION_HEAP | TM_OPTION_PROCESS | TM_OPTION_FORCE,
	.operands_min = 1,
	.operands_max = 1,
};

static int make_page(const struct tm_database *d, const struct tm_options *given, struct tm_bytes *page) {
	struct tm_options o = *given;
	char *instead = tm_heap_instead(d, given);
	struct tm_report r = { .d = d, .o = &o, .heap_is_ours = instead };
	if (instead) tm_say("no host memory was recorded: the page is about %s; --heap=NAME chooses another heap", instead);
	if (instead) o.heap = instead;
	/* Pages that SQLite maps would count as our memory; the allocations are read once, from end to end. */
	sqlite3_exec(d->handle, "PRAGMA mmap_size=0", NULL, NULL, NULL);
	int status = tm_report_load(&r);
	if (!status) status = tm_report_choose(&r);
	if (!status) status = tm_report_scan(&r);
	if (!status) status = tm_report_page(&r, page);
	tm_report_release(&r);
	sqlite3_free(instead);
	return status;
}

int tm_cmd_report(int argc, char **argv) {
	struct tm_options o;
	struct tm_database d;
	struct tm_output out;
	struct tm_bytes page = TM_BYTES_INIT;
	int status = tm_options_parse(&o, &usage, argc, argv);
	if (status != TM_OPTIONS_GO) return status;
	if (!o.output) return tm_misuse("report", "-o FILE says where to write; - is standard output");
	status = tm_database_open(&d, o.operands[0]);
	if (!status) status = tm_listing_check(&d, &o);
	if (!status) status = tm_check_output(o.output, o.operands[0], d.path, o.force);
	if (!status) status = tm_output_open(&out, o.output, false, o.force);
	if (!status) {
		status = make_page(&d, &o, &page);
		if (!status) tm_output_flush(&out, &page);
		status = tm_output_close(&out, status);
	}
	tm_bytes_release(&page);
	tm_database_close(&d);
	return status;
}
