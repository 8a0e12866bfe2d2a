/* closing.c - the end of a recording: see closing.h. */
#include "closing.h"

#include "../../schema/units.h"
#include "collector.h"
#include "drain.h"
#include "flight_ring.h"
#include "names.h"
#include "tell.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *plural(uint64_t n, const char *one, const char *many) {
	return n == 1 ? one : many;
}

/* --- names --- */

static int write_names_chunk(void *context, const void *payload, size_t n) {
	struct tm_collector *c = context;
	tm_encoder_wait_until_written(&c->encoder);
	if (tm_writer_add_chunk(&c->writer, TM_CHUNK_NAMES, payload, n) != 0) return -1;
	return tm_writer_flush(&c->writer);
}

/* NULL: no memory, which is no reason to end before the last events are written. */
static struct tm_names_module *list_modules(const struct tm_collector *c) {
	struct tm_names_module *list = calloc(c->modules.count + 1, sizeof list[0]);
	for (size_t i = 0; list && i < c->modules.count; i++) {
		const struct tm_module *m = &c->modules.all[i];
		list[i] = (struct tm_names_module){
			.id = i + 1,
			.process = m->process,
			.bias = m->bias,
			.path = m->path,
			.build_id = m->build_id_size ? m->build_id : NULL,
			.build_id_size = m->build_id_size,
			.load_ns = tm_time_map_ns(&c->timebase.map, m->load_ticks),
		};
	}
	return list;
}

/* One that was named while the program ran is of no module here. */
static struct tm_names_frame frame_of(const void *collector, size_t number) {
	const struct tm_collector *c = collector;
	const struct tm_frame_row *row = &c->stacks.frames[number];
	return (struct tm_names_frame){ number + 1, tm_names_early_has(&c->ahead.early, number) ? 0 : row->module, row->address };
}

void tm_closing_write_names(struct tm_collector *c, uint64_t first_string_id) {
	if (!c->options.embed_names || !c->stacks.frame_count) return;
	struct tm_names_module *modules = list_modules(c);
	struct tm_names_input in = {
		.modules = modules,
		.module_count = c->modules.count,
		.frame = frame_of,
		.frames = c,
		.frame_count = c->stacks.frame_count,
		.start_unix_ns = c->timebase.start_unix_ns,
		.note_ns = tm_time_map_ns(&c->timebase.map, c->timebase.map.end_ticks),
		.ahead = &c->ahead,
		.progress = !c->options.quiet && (c->options.verbose || isatty(2)),
	};
	struct tm_names_output out = { .next_string_id = first_string_id, .write_chunk = write_names_chunk, .context = c };
	int result = modules ? tm_names_write(&in, &out) : TM_NAMES_NO_MEMORY;
	if (result == TM_NAMES_NO_MEMORY && !c->options.quiet)
		fprintf(stderr, "tidemark-record: cannot name all addresses: out of memory (tidemark names can do it later)\n");
	out.frames_named += c->ahead.early.frames_named;
	out.modules_read += c->ahead.early.files_told;
	if (c->options.verbose)
		fprintf(stderr, "tidemark-record: named %llu of %zu %s from %llu %s\n", (unsigned long long)out.frames_named,
			c->stacks.frame_count, plural(c->stacks.frame_count, "address", "addresses"), (unsigned long long)out.modules_read,
			plural(out.modules_read, "file", "files"));
	free(modules);
}

/* --- what --max-size, or the disk, had no room for; of a file that cannot be written only the summary tells --- */

void tm_closing_write_left_out(struct tm_collector *c) {
	struct tm_group *g = c->group;
	static const char reason[] = "read when the trace had reached --max-size";
	const struct tm_encoder_thread *e = &c->encoder;
	if (!e->left_out_events && !e->left_out_records) return;
	if (e->left_out_events) tm_drain_add_loss(c, NULL, "max-size", e->left_out_events, 0, reason);
	if (e->left_out_records) tm_drain_add_lost_records(c, NULL, "records", e->left_out_records, reason);
	g->time_map = c->timebase.map;
	tm_encoder_write_now(&c->encoder, g);
}

/* A disk without room for the next events often has some for a line that says so. */
static void tell_cut(struct tm_collector *c) {
	struct tm_bytes payload = TM_BYTES_INIT;
	char reason[128];
	int error = tm_writer_retry(&c->writer);
	snprintf(reason, sizeof reason, "the trace could not be written any more: %s", strerror(error));
	struct tm_loss loss = { .ns = c->encoder.end_ns,
				.kind = tm_text_of("not-written"),
				.count = c->encoder.left_out_events,
				.reason = tm_text_of(reason) };
	tm_put_loss(&payload, &loss);
	if (c->encoder.left_out_records) {
		loss.kind = tm_text_of("records");
		loss.count = c->encoder.left_out_records;
		tm_put_loss(&payload, &loss);
	}
	tm_writer_add_chunk(&c->writer, TM_CHUNK_META, payload.data, payload.size);
	tm_writer_flush(&c->writer);
	c->writer.error = error;
	tm_bytes_release(&payload);
}

/* --- the last chunk --- */

void tm_closing_write_end(struct tm_collector *c) {
	struct tm_bytes payload = TM_BYTES_INIT;
	uint64_t end_ns = tm_time_map_ns(&c->timebase.map, c->timebase.map.end_ticks);
	struct tm_totals totals = { .events = c->encoder.events, .chunks = c->writer.packer.sequence, .end_ns = end_ns };
	if (c->writer.error) {
		tell_cut(c);
		return;
	}
	tm_put_totals(&payload, &totals);
	tm_writer_add_chunk(&c->writer, TM_CHUNK_END, payload.data, payload.size);
	tm_writer_flush(&c->writer);
	tm_bytes_release(&payload);
}

/* --- the summary --- */

struct peaks {
	struct tm_tally_process highest; /* of the process that reached most */
	uint32_t process;                /* its id */
	uint64_t live_bytes, live_blocks;
	uint32_t with_events;
	bool given_up;
};

static struct peaks find_peaks(const struct tm_collector *c) {
	struct peaks p = { .process = 0 };
	for (uint32_t id = 1; id < tm_tally_process_count(c->tally); id++) {
		struct tm_tally_process t = tm_tally_of(c->tally, id);
		p.live_bytes += t.live_bytes;
		p.live_blocks += t.live_blocks;
		p.with_events += t.peak_bytes != 0;
		p.given_up |= t.given_up;
		if (t.peak_bytes < p.highest.peak_bytes || t.peak_bytes == 0) continue;
		p.highest = t;
		p.process = id;
	}
	return p;
}

static const struct tm_process *process_by_id(const struct tm_collector *c, uint32_t id) {
	for (size_t i = 0; i < c->processes.count; i++)
		if (c->processes.all[i]->id == id) return c->processes.all[i];
	return NULL;
}

static void print_peak(const struct tm_collector *c, const struct peaks *p) {
	char size[TM_UNIT_TEXT_MAX], time[TM_UNIT_TEXT_MAX];
	const struct tm_process *process = process_by_id(c, p->process);
	if (p->given_up) {
		fprintf(stderr, "tidemark-record: peak         not followed: too many live blocks (tidemark peak tells)\n");
		return;
	}
	fprintf(stderr, "tidemark-record: peak         %s%s live",
		p->highest.approximate || c->options.sample_bytes || c->lost_events ? "about " : "",
		tm_format_size(p->highest.peak_bytes, size));
	if (p->process) fprintf(stderr, ", %s after the start", tm_format_time(p->highest.peak_ns, time));
	if (p->with_events > 1 && process)
		fprintf(stderr, ", in process %u (the largest of %u that allocated)", process->pid, p->with_events);
	fprintf(stderr, "\n");
}

static void print_live(const struct tm_collector *c, const struct peaks *p) {
	char size[TM_UNIT_TEXT_MAX], count[TM_UNIT_TEXT_MAX];
	bool estimated = c->options.sample_bytes || c->lost_events || c->stopped; /* the program went on for a moment behind the stop */
	if (p->given_up) {
		fprintf(stderr, "tidemark-record: live at end  not followed: too many live blocks (tidemark summary tells)\n");
		return;
	}
	fprintf(stderr, "tidemark-record: live at %s %s%s", c->stopped ? "stop" : "end ", estimated ? "about " : "",
		tm_format_size(p->live_bytes, size));
	if (!estimated) fprintf(stderr, " in %s %s", tm_format_count(p->live_blocks, count), plural(p->live_blocks, "block", "blocks"));
	fprintf(stderr, "\n");
}

static void print_events(const struct tm_collector *c) {
	char all[TM_UNIT_TEXT_MAX], made[TM_UNIT_TEXT_MAX], freed[TM_UNIT_TEXT_MAX];
	uint64_t allocations = tm_tally_allocations(c->tally), frees = tm_tally_frees(c->tally);
	uint32_t processes = c->processes.last_id, threads = c->processes.last_thread;
	fprintf(stderr, "tidemark-record: events       %s (%s %s, %s %s) of %u %s, %u %s%s", tm_format_count(allocations + frees, all),
		tm_format_count(allocations, made), plural(allocations, "allocation", "allocations"), tm_format_count(frees, freed),
		plural(frees, "free", "frees"), processes, plural(processes, "process", "processes"), threads,
		plural(threads, "thread", "threads"), c->options.sample_bytes ? ", sampled" : "");
	if (c->encoder.left_out_events) fprintf(stderr, "; %s of them are in the trace", tm_format_count(c->encoder.written_events, all));
	fputc('\n', stderr);
}

static void print_lost(const struct tm_collector *c) {
	char count[TM_UNIT_TEXT_MAX];
	if (c->lost_events || !c->lost_records)
		fprintf(stderr, "tidemark-record: lost         %s%s\n", c->lost_events ? tm_format_count(c->lost_events, count) : "nothing",
			!c->lost_events ? "" : plural(c->lost_events, " event", " events"));
	if (c->lost_records)
		fprintf(stderr, "tidemark-record: lost         %s %s of scopes, marks, ends and the like\n",
			tm_format_count(c->lost_records, count), plural(c->lost_records, "record", "records"));
	uint64_t dropped = c->flight ? tm_flight_dropped_events(c->flight) : 0;
	if (dropped)
		fprintf(stderr, "tidemark-record: dropped      %s %s, the oldest, for --max-size\n", tm_format_count(dropped, count),
			plural(dropped, "event", "events"));
	if (c->unrecorded)
		fprintf(stderr, "tidemark-record: unrecorded   %s %s: `tidemark info` says why\n", tm_format_count(c->unrecorded, count),
			plural(c->unrecorded, "program", "programs"));
	if (c->is_bypassed) fprintf(stderr, "tidemark-record: unrecorded   some allocations: `tidemark info` says which, and why\n");
}

/* A rule that could not fire is no good news. */
static void print_alerts(const struct tm_collector *c) {
	for (unsigned i = 0; i < c->options.alerts.count; i++) {
		const struct tm_alert_rule *rule = &c->options.alerts.all[i];
		if (tm_alerts_met(c, i)) continue;
		tm_tell("alert        '%s' had nothing to look at: %s", rule->text,
			rule->quantity == TM_ALERT_LIVE_HEAP ? "no heap of that name came up" : "nothing of that was read");
	}
}

static void print_file(const struct tm_collector *c) {
	char size[TM_UNIT_TEXT_MAX];
	uint64_t events = c->encoder.left_out_events ? c->encoder.written_events : tm_tally_allocations(c->tally) + tm_tally_frees(c->tally);
	char *path = tm_escaped(c->writer.path);
	fprintf(stderr, "tidemark-record: file         %s, %s", path ? path : c->writer.path, tm_format_size(c->writer.bytes, size));
	free(path);
	if (events && !c->flight) fprintf(stderr, ", %.1f bytes an event", (double)c->writer.bytes / (double)events);
	fprintf(stderr, "%s%s\n", c->stopped ? "; " : "", c->stopped ? c->stopped : "");
}

void tm_closing_print_summary(struct tm_collector *c) {
	if (c->options.quiet) return;
	tm_tally_finish(c->tally);
	struct peaks peaks = find_peaks(c);
	print_peak(c, &peaks);
	print_live(c, &peaks);
	print_events(c);
	print_lost(c);
	print_alerts(c);
	if (!c->writer.is_gone) print_file(c);
}

void tm_closing_print_failure(struct tm_collector *c) {
	char time[TM_UNIT_TEXT_MAX];
	if (c->options.attach_pid > 0 && !c->options.verbose) return;
	if (c->writer.is_gone) tm_tell("cannot keep '%s': it was removed while it was written", c->writer.path);
	else if (c->writer.error)
		tm_tell("cannot write '%s': %s; the trace ends at %s", c->writer.path, strerror(c->writer.error),
			tm_format_time(c->encoder.end_ns, time));
}
