/* cmd_gpu.c - `tidemark gpu`: memory of devices, who holds it, what pools keep, what was refused and why, what was held in vain.
 *
 * Each list is a view of its own; without an option a table shows one page of them, and JSON and CSV have one row for each device
 * (view gpu_summary).
 */
#include "listing.h"
#include "scans.h"
#include "talk.h"
#include "verbs.h"

#include <stdio.h>

static const struct tm_usage usage = {
	.verb = "gpu",
	.operands = "DB|TRACE",
	.description =
		"Shows what the program did with devices: for each its peak and, of PyTorch's allocator, the peaks of what was allocated,\n"
		"reserved, active, inactive and cached; who held the memory at the peak, by line and by library; the work; requests that\n"
		"were refused, with what was live and what was cached then; and memory that was held in vain. JSON and CSV have one row for\n"
		"each device (view gpu_summary); the options below choose one list, in any format. What is not known is null.\n"
		"Of devices, their work and their gap, --heap=NAME chooses the devices that the heap lies on.\n",
	.examples = "tidemark gpu run.db\n"
		    "tidemark gpu run.db --lines --heap=torch.cuda:0\n"
		    "tidemark gpu run.db --oom --format=json\n"
		    "tidemark gpu run.db --inefficiencies --sort=byte_seconds --stack\n"
		    "tidemark gpu run.db --activity --from=mark:warm --limit=10\n",
	.options = TM_OPTIONS_LISTING | TM_OPTION_STACK | TM_OPTION_GPU,
	.operands_min = 1,
	.operands_max = 1,
};

#define ROWS_SHOWN 5

static const struct tm_listing devices = {
	.source = "gpu_summary",
	.order = "process_id, device",
	.has_device = true,
	.title = "devices",
	.nothing = "no device was used",
	.hidden = { "uuid", "peak_ns", "allocated_peak_ns", "reserved_peak_ns", "fragmentation", "kernel_duration_ns", "copy_bytes",
		    "copy_duration_ns", "sets", "total_bytes" },
};

static const struct tm_listing lines = {
	.source = "gpu_peak_line",
	.order = "live_bytes DESC, process_id, heap, function, file, line, module, module_offset",
	.has_heap = true,
	.title = "live at the peak of each heap, by line",
	.nothing = "nothing was live",
	.hidden = { "device", "stacks" },
};

static const struct tm_listing libraries = {
	.source = "gpu_peak_library",
	.order = "live_bytes DESC, process_id, heap, library",
	.has_heap = true,
	.title = "the same by library",
	.nothing = "nothing was live",
	.hidden = { "device", "stacks" },
};

static const struct tm_listing pool_peaks = {
	.source = "pool_peak",
	.order = "process_id, heap, n IS NOT NULL, n",
	.has_heap = true,
	.title = "peaks of pools (times and periods: --pools --format=json)",
	.nothing = "no pool told of itself",
	.hidden = { "kind", "device", "start_ns", "end_ns", "allocated_ns", "reserved_ns", "active_ns", "inactive_ns", "idle_ns" },
};

static const struct tm_listing pool_states = {
	.source = "pool",
	.order = "ts_ns, process_id, heap",
	.has_heap = true,
	.nothing = "no pool told of itself then",
	.hidden = { "kind", "device" },
};

static const struct tm_listing work = {
	.source = "gpu_work",
	.order = "total_duration_ns DESC, process_id, device, kind, direction, name",
	.has_device = true,
	.title = "work, and what driver and profiling interface took",
	.nothing = "no work was recorded",
	.hidden = { "first_ns", "last_ns" },
};

/* Those of devices first: asked for too much, the driver is itself refused room on the host. */
static const struct tm_listing refusals = {
	.source = "gpu_oom",
	.order = "device IS NULL, ts_ns, oom_id",
	.has_heap = true,
	.title = "refused",
	.nothing = "no request for memory was refused",
	.hidden = { "device", "result", "device_free_bytes", "device_total_bytes", "reserved_bytes", "active_bytes", "inactive_bytes",
		    "pool_idle_bytes", "other_bytes", "gap_bytes", "scope", "stack_id", "oom_id" },
};

static const struct tm_listing refusal_sites = {
	.source = "gpu_oom_site",
	.order = "device IS NULL, ts_ns, oom_id, live_bytes DESC, heap, stack_id",
	.has_heap = true,
	.title = "live when it was refused",
	.nothing = "nothing",
	.hidden = { "ts_ns", "stack_id", "device" },
};

static const struct tm_listing findings = {
	.source = "gpu_inefficiency",
	.order = "bytes DESC, process_id, heap, kind, stack_id",
	.has_heap = true,
	.title = "held in vain",
	.nothing = "nothing was held in vain, as far as is known",
	.hidden = { "device", "launches", "allocation_id", "first_ns", "last_ns", "longest_duration_ns", "byte_seconds" },
};

static const struct tm_listing gaps = {
	.source = "gpu_gap",
	.order = "ts_ns, process_id, device",
	.has_device = true,
	.title = "what the process occupies, and what of it was recorded",
	.nothing = "nobody asked the devices (the recorder does where NVIDIA's management library is installed)",
};

static const struct tm_listing unknown_uses = {
	.columns = "process_id, launches, kernels, told_kernels, graphs, some_untold, uses",
	.source = "gpu_process",
	.where = "uses_known = 0 AND launches > 0",
	.order = "process_id",
	.title = "not judged by uses, since they are not known of these processes",
	.nothing = "none",
};

static const struct tm_listing losses = {
	.columns = "process_id, kind, count, reason",
	.source = "loss",
	.where = "kind LIKE 'gpu%'",
	.order = "count DESC, process_id, kind, reason",
	.title = "lost",
	.nothing = "nothing",
};

static const struct tm_listing notes = {
	.columns = "process_id, ts_ns, kind, text",
	.source = "note",
	.where = "kind = 'gpu'",
	.order = "ts_ns, text",
	.title = "notes",
	.nothing = "none",
};

static int no_memory(const struct tm_database *d) {
	return tm_fail("cannot read '%s': out of memory", d->path);
}

/* --- windows --- */

static int list_in_window(const struct tm_database *d, const struct tm_options *o, const struct tm_listing *l, const char *first,
			  const char *last, tm_lister *list) {
	struct tm_listing listing = *l;
	if (!tm_has_window(o)) return list(d, o, l);
	char *where = tm_window_condition(d, o, "w.process_id", first, last), *source = sqlite3_mprintf("%s AS w", l->source);
	char *unnamed = l->unnamed ? sqlite3_mprintf("%s AS w", l->unnamed) : NULL;
	listing.where = where;
	listing.source = source;
	listing.unnamed = unnamed;
	int status = where && source && (unnamed || !l->unnamed) ? list(d, o, &listing) : no_memory(d);
	sqlite3_free(unnamed);
	sqlite3_free(source);
	sqlite3_free(where);
	return status;
}

/* What was live at the peak within the window: these columns of sites, of which each of `groups` is one row. */
static int list_window_peak(const struct tm_database *d, const struct tm_options *o, const struct tm_listing *l, const char *keys, const char *groups) {
	struct tm_listing listing = *l;
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	tm_sql_live_at_peak(sql, d, o);
	sqlite3_str_appendf(
		sql,
		",\nasked AS (\n  SELECT v.process_id, v.heap, h.device, g.library, v.function, v.file, v.line, v.module,\n"
		"         v.module_offset, v.live_bytes, v.live_count, v.estimated\n"
		"  FROM live AS v JOIN heap AS h ON h.process_id = v.process_id AND h.name = v.heap\n"
		"  JOIN gpu_site AS g ON g.process_id = v.process_id AND g.heap_id = h.id AND g.stack_id = v.stack_id\n"
		"  WHERE h.kind <> 'address-space'),\n"
		"grouped AS (\n  SELECT process_id, heap, device, sum(live_bytes) AS live_bytes, sum(live_count) AS live_count, %s,\n"
		"         count(*) AS stacks,\n"
		"         estimated FROM asked GROUP BY process_id, heap, %s)",
		keys, groups);
	char *with = sqlite3_str_finish(sql);
	listing.with = with;
	listing.source = "grouped";
	int status = with ? tm_listing_run(d, o, &listing) : no_memory(d);
	sqlite3_free(with);
	return status;
}

/* As gpu_peak_line. */
static int list_window_lines(const struct tm_database *d, const struct tm_options *o) {
	return list_window_peak(d, o, &lines, "function, file, line, module, module_offset",
				"function, file, line, iif(function IS NULL, module, 0), iif(function IS NULL, module_offset, 0)");
}

/* The activities themselves, added up as gpu_work does. */
static int list_window_work(const struct tm_database *d, const struct tm_options *o) {
	struct tm_listing listing = work;
	char *where = tm_window_condition(d, o, "w.process_id", "start_ns", "end_ns");
	char *with =
		where ? sqlite3_mprintf(
				"ran AS (\n  SELECT process_id, device, kind, direction, name, start_ns, end_ns, size_bytes FROM gpu_activity\n"
				"  UNION ALL SELECT process_id, NULL, kind, NULL, name, start_ns, end_ns, NULL FROM gpu_overhead),\n"
				"done AS (\n  SELECT process_id, device, kind, direction, name, count(*) AS count,\n"
				"         sum(end_ns - start_ns) AS total_duration_ns,\n"
				"         sum(end_ns - start_ns) / count(*) AS mean_duration_ns, max(end_ns - start_ns) AS longest_duration_ns,\n"
				"         sum(size_bytes) AS size_bytes, min(start_ns) AS first_ns, max(end_ns) AS last_ns\n"
				"  FROM ran AS w WHERE %s GROUP BY process_id, device, kind, direction, name)",
				where)
		      : NULL;
	listing.with = with;
	listing.source = "done";
	int status = with ? tm_listing_run(d, o, &listing) : no_memory(d);
	sqlite3_free(with);
	sqlite3_free(where);
	return status;
}

/* --- the lists --- */

static int list_refusals(const struct tm_database *d, const struct tm_options *o) {
	int status = list_in_window(d, o, &refusals, "ts_ns", "ts_ns", tm_listing_run);
	return status ? status : list_in_window(d, o, &refusal_sites, "ts_ns", "ts_ns", tm_listing_also);
}

static int list_findings(const struct tm_database *d, const struct tm_options *o) {
	int status = list_in_window(d, o, &findings, "first_ns", "last_ns", tm_listing_run);
	if (status || !tm_database_integer(d, "SELECT 1 FROM gpu_process WHERE uses_known = 0 AND launches > 0 LIMIT 1", 0)) return status;
	struct tm_options processes = *o; /* which have no stacks */
	processes.stack = false;
	return tm_listing_also(d, &processes, &unknown_uses);
}

static int list_one(const struct tm_database *d, const struct tm_options *o) {
	bool window = tm_has_window(o);
	switch (o->gpu) {
	case TM_GPU_BY_LINE: return window ? list_window_lines(d, o) : tm_listing_run(d, o, &lines);
	case TM_GPU_BY_LIBRARY: return window ? list_window_peak(d, o, &libraries, "library", "library") : tm_listing_run(d, o, &libraries);
	case TM_GPU_POOLS: return list_in_window(d, o, window ? &pool_states : &pool_peaks, "ts_ns", "ts_ns", tm_listing_run);
	case TM_GPU_ACTIVITY: return window ? list_window_work(d, o) : tm_listing_run(d, o, &work);
	case TM_GPU_OOM: return list_refusals(d, o);
	case TM_GPU_INEFFICIENCIES: return list_findings(d, o);
	case TM_GPU_GAP: return list_in_window(d, o, &gaps, "ts_ns", "ts_ns", tm_listing_run);
	default: return tm_listing_run(d, o, &devices);
	}
}

/* Parts of the page, each only where there is something. */
static const struct part {
	const char *exists;
	const struct tm_listing *listing;
	const char *more; /* behind its title: where all of it is */
} parts[] = {
	{ "SELECT 1 FROM pool_peak LIMIT 1", &pool_peaks, "" },
	{ "SELECT 1 FROM gpu_peak_line LIMIT 1", &lines, " (all: --lines)" },
	{ "SELECT 1 FROM gpu_peak_library WHERE library IS NOT NULL LIMIT 1", &libraries, " (all: --libraries)" },
	{ "SELECT 1 FROM gpu_work_total LIMIT 1", &work, " (all: --activity)" },
	{ "SELECT 1 FROM oom LIMIT 1", &refusals, " (more: --oom)" },
	{ "SELECT 1 FROM oom_site LIMIT 1", &refusal_sites, "" },
	{ "SELECT 1 FROM gpu_inefficiency_total LIMIT 1", &findings, " (all: --inefficiencies)" },
	{ "SELECT 1 FROM gpu_process WHERE uses_known = 0 AND launches > 0 LIMIT 1", &unknown_uses, "" },
	{ "SELECT 1 FROM loss WHERE kind LIKE 'gpu%' LIMIT 1", &losses, "" },
	{ "SELECT 1 FROM note WHERE kind = 'gpu' LIMIT 1", &notes, "" },
};

static int list_page(const struct tm_database *d, const struct tm_options *o) {
	int status = tm_listing_run(d, o, &devices);
	for (size_t i = 0; !status && i < sizeof parts / sizeof *parts; i++) {
		struct tm_listing part = *parts[i].listing;
		char title[128];
		snprintf(title, sizeof title, "%s%s", part.title, parts[i].more);
		part.title = title;
		part.rows_shown = ROWS_SHOWN;
		if (tm_database_integer(d, parts[i].exists, 0)) status = tm_listing_also(d, o, &part);
	}
	return status;
}

/* Whole stacks go with lists whose rows are stacks. */
static bool has_stacks(enum tm_gpu_list list) {
	return list == TM_GPU_OOM || list == TM_GPU_INEFFICIENCIES;
}

static int answer(const struct tm_database *d, const struct tm_options *o) {
	return o->gpu == TM_GPU_DEVICES ? list_page(d, o) : list_one(d, o);
}

int tm_cmd_gpu(int argc, char **argv) {
	struct tm_options o;
	int status = tm_options_parse(&o, &usage, argc, argv);
	if (status != TM_OPTIONS_GO) return status;
	if (o.gpu_lists & (o.gpu_lists - 1))
		return tm_misuse("gpu", "--lines, --libraries, --pools, --activity, --oom, --inefficiencies and --gap are different lists: "
					"one at a time");
	if (o.stack && !has_stacks(o.gpu)) return tm_misuse("gpu", "--stack is for rows that are stacks: with --oom or --inefficiencies");
	if (tm_has_window(&o) && o.gpu == TM_GPU_DEVICES)
		return tm_misuse(
			"gpu",
			"--from and --to go with one of the lists: --lines, --libraries, --pools, --activity, --oom, --inefficiencies, --gap");
	return tm_answer(&usage, argc, argv, answer);
}
