/* catalog.c - everything a trace says besides its events; see catalog.h. */
#include "catalog.h"

#include "stacks_ahead.h"

#include <stdio.h>

#define ID_GAP_MAX 4096       /* ids count up by one; a few that were skipped do no harm, many would cost memory */
#define ID_GAPS_MAX (1u << 18)      /* in all */
#define AHEAD_FILE_BYTES (1u << 20) /* a smaller trace is not worth a thread */
#define UUID_BYTES 16
#define CHUNKS_PEEKED 64      /* the first process stands near the beginning */
#define TIME_MAX (1ull << 60) /* 36 years: later is damage that a checksum cannot see */

struct walk {
	struct tm_catalog *c;
	tm_sample_sink *sink;
	tm_pool_sink *pools;
	tm_activity_taker *activities;
	void *context;
	struct tm_stacks stacks; /* of the chunk that is read; its memory serves all of them */
	struct tm_stacks_ahead *ahead; /* NULL: there is none */
	uint64_t skipped;              /* ids */
	int failed;              /* enum tm_catalog_result, 0 so far */
};

static bool no_memory(struct walk *w) {
	w->failed = TM_CATALOG_NO_MEMORY;
	return false;
}

static struct tm_text keep_text(struct walk *w, struct tm_text t) {
	const char *copy = t.size ? tm_text_store_put(&w->c->texts, t.data, t.size) : "";
	if (!copy) return no_memory(w), (struct tm_text){ "", 0 };
	return (struct tm_text){ copy, t.size };
}

/* Every time of a record passes through here. */
static uint64_t keep_time(struct walk *w, struct tm_cursor *body, uint64_t ns) {
	if (ns > TIME_MAX) body->bad = true;
	else if (ns > w->c->end_ns) w->c->end_ns = ns;
	return ns;
}

/* Is it an id of those that come next, or was it there before? */
static bool is_in_order(struct walk *w, uint64_t id, size_t count) {
	if (!id || id > count + ID_GAP_MAX) return false;
	if (id > count) w->skipped += id - count - 1;
	return w->skipped <= ID_GAPS_MAX;
}

#define KNOWN(array, id) ((id) && (id) <= (array)->count && (array)->items[(id)-1].defined)
/* The item of this id, made if it is new; NULL: the id is out of order (body->bad), or out of memory (w->failed). */
#define SLOT(w, body, array, id) \
	(!is_in_order(w, id, (array)->count) ? ((body)->bad = true, NULL) \
	 : tm_array_extend(array, (id))      ? &(array)->items[(id)-1] \
					     : (no_memory(w), NULL))
#define KEEP(w, array, ...) \
	do { \
		__typeof__((array)->items) kept_ = tm_array_push(array); \
		if (kept_) *kept_ = (__typeof__(*kept_))__VA_ARGS__; \
		else no_memory(w); \
	} while (0)

static void process_or_none(struct walk *w, struct tm_cursor *body, uint64_t process) {
	if (process && !KNOWN(&w->c->processes, process)) body->bad = true;
}

/* The number of a thread; 0 for the id 0, and for one that is not known, which is damage. */
static uint32_t thread_or_none(struct walk *w, struct tm_cursor *body, uint64_t id) {
	uint32_t thread = tm_catalog_thread_of(w->c, id);
	if (id && !thread) body->bad = true;
	return thread;
}

static void take_info(struct walk *w, struct tm_cursor *body) {
	struct tm_info r = tm_get_info(body);
	KEEP(w, &w->c->infos, { keep_text(w, r.key), keep_text(w, r.value) });
}

static void take_string(struct walk *w, struct tm_cursor *body) {
	struct tm_string r = tm_get_string_record(body);
	if (!is_in_order(w, r.id, w->c->strings.count)) body->bad = true;
	if (body->bad) return;
	if (!tm_array_extend(&w->c->strings, r.id)) no_memory(w);
	else w->c->strings.items[r.id - 1] = keep_text(w, r.bytes);
}

static void take_process_start(struct walk *w, struct tm_cursor *body) {
	struct tm_process_start r = tm_get_process_start(body);
	process_or_none(w, body, r.parent_id);
	keep_time(w, body, r.start_ns);
	struct tm_catalog_process *p = body->bad ? NULL : SLOT(w, body, &w->c->processes, r.id);
	if (!p || p->defined) return;
	*p = (struct tm_catalog_process){ .defined = true,
					  .pid = r.pid,
					  .parent_id = r.parent_id,
					  .start_ns = r.start_ns,
					  .flags = r.flags,
					  .exit_ns = TM_NEVER,
					  .end_ns = TM_NEVER,
					  .rank = r.rank,
					  .local_rank = r.local_rank,
					  .world_size = r.world_size,
					  .exe = keep_text(w, r.exe),
					  .command = keep_text(w, r.command),
					  .host = keep_text(w, r.host) };
}

static void take_process_exit(struct walk *w, struct tm_cursor *body) {
	struct tm_process_exit r = tm_get_process_exit(body);
	keep_time(w, body, r.ns);
	if (!KNOWN(&w->c->processes, r.process)) body->bad = true;
	if (body->bad) return;
	struct tm_catalog_process *p = &w->c->processes.items[r.process - 1];
	if (p->exit_ns == TM_NEVER) p->exit_ns = r.ns;
}

static void take_process_end(struct walk *w, struct tm_cursor *body) {
	struct tm_process_end r = tm_get_process_end(body);
	keep_time(w, body, r.ns);
	if (!KNOWN(&w->c->processes, r.process)) body->bad = true;
	if (body->bad) return;
	struct tm_catalog_process *p = &w->c->processes.items[r.process - 1];
	p->ended = true;
	p->end_ns = r.ns;
	p->end_kind = r.kind;
	p->end_code = r.code;
}

static void take_thread_start(struct walk *w, struct tm_cursor *body) {
	struct tm_thread_start r = tm_get_thread_start(body);
	keep_time(w, body, r.start_ns);
	if (!KNOWN(&w->c->processes, r.process)) body->bad = true;
	if (!r.id || w->c->threads.count == UINT32_MAX) body->bad = true;
	if (body->bad) return;
	uint64_t *number = tm_id_map_put(&w->c->thread_numbers, r.id, 0);
	if (!number) no_memory(w);
	if (!number || *number) return;
	*number = w->c->threads.count + 1;
	KEEP(w, &w->c->threads, { .process = (uint32_t)r.process, .tid = r.tid, .start_ns = r.start_ns, .end_ns = TM_NEVER });
}

static void take_thread_end(struct walk *w, struct tm_cursor *body) {
	struct tm_thread_end r = tm_get_thread_end(body);
	keep_time(w, body, r.ns);
	uint32_t thread = tm_catalog_thread_of(w->c, r.thread);
	if (!thread) body->bad = true;
	if (!body->bad) w->c->threads.items[thread - 1].end_ns = r.ns;
}

static void take_thread_name(struct walk *w, struct tm_cursor *body) {
	struct tm_thread_name r = tm_get_thread_name(body);
	uint32_t thread = tm_catalog_thread_of(w->c, r.thread);
	if (!thread) body->bad = true;
	if (!body->bad) w->c->threads.items[thread - 1].name = keep_text(w, r.name);
}

static void take_module_load(struct walk *w, struct tm_cursor *body) {
	struct tm_module_load r = tm_get_module_load(body);
	keep_time(w, body, r.ns);
	if (!KNOWN(&w->c->processes, r.process)) body->bad = true;
	struct tm_catalog_module *m = body->bad ? NULL : SLOT(w, body, &w->c->modules, r.id);
	if (!m || m->defined) return;
	*m = (struct tm_catalog_module){ .defined = true,
					 .process = (uint32_t)r.process,
					 .bias = r.bias,
					 .low = r.low,
					 .size_bytes = r.size_bytes,
					 .load_ns = r.ns,
					 .unload_ns = TM_NEVER,
					 .path = keep_text(w, r.path),
					 .build_id = keep_text(w, r.build_id) };
}

static void take_module_unload(struct walk *w, struct tm_cursor *body) {
	struct tm_module_unload r = tm_get_module_unload(body);
	keep_time(w, body, r.ns);
	if (!KNOWN(&w->c->modules, r.module)) body->bad = true;
	if (!body->bad) w->c->modules.items[r.module - 1].unload_ns = r.ns;
}

static void take_heap(struct walk *w, struct tm_cursor *body) {
	struct tm_heap r = tm_get_heap(body);
	if (!KNOWN(&w->c->processes, r.process) || (r.parent && (r.parent >= r.id || !KNOWN(&w->c->heaps, r.parent)))) body->bad = true;
	struct tm_catalog_heap *h = body->bad ? NULL : SLOT(w, body, &w->c->heaps, r.id);
	if (!h || h->defined) return;
	*h = (struct tm_catalog_heap){ .defined = true,
				       .process = (uint32_t)r.process,
				       .parent = (uint32_t)r.parent,
				       .device = r.device,
				       .name = keep_text(w, r.name),
				       .kind = keep_text(w, r.kind) };
}

static void take_frame_module(struct walk *w, struct tm_cursor *body) {
	struct tm_frame_module r = tm_get_frame_module(body);
	if (!r.frame || r.frame > w->c->frames.count || !KNOWN(&w->c->modules, r.module)) body->bad = true;
	if (!body->bad) w->c->frames.items[r.frame - 1].module = (uint32_t)r.module;
}

static void take_samples(struct walk *w, struct tm_cursor *body) {
	struct tm_samples r = tm_get_samples(body);
	process_or_none(w, body, r.process);
	keep_time(w, body, r.ns);
	struct tm_sample sample;
	while (!body->bad && tm_sample_next(&r.values, &sample))
		if (w->sink && !w->sink(w->context, r.process, r.ns, &sample)) {
			w->failed = TM_CATALOG_SINK;
			return;
		}
	if (r.values.bad) body->bad = true;
}

static void take_pool_state(struct walk *w, struct tm_cursor *body) {
	struct tm_pool_state r = tm_get_pool_state(body);
	keep_time(w, body, r.ns);
	if (!KNOWN(&w->c->heaps, r.heap)) body->bad = true;
	if (!body->bad && w->pools && !w->pools(w->context, &r)) w->failed = TM_CATALOG_SINK;
}

static void take_oom(struct walk *w, struct tm_cursor *body) {
	struct tm_oom r = tm_get_oom(body);
	if (!w->c->ooms.count && r.id && r.id <= UINT32_MAX) w->c->ooms_before = r.id - 1;
	if (!KNOWN(&w->c->processes, r.process) || (r.heap && !KNOWN(&w->c->heaps, r.heap)) ||
	    r.id != w->c->ooms_before + w->c->ooms.count + 1)
		body->bad = true;
	if (!body->bad)
		KEEP(w, &w->c->ooms,
		     { (uint32_t)r.process, (uint32_t)r.heap, r.size_bytes, r.free_bytes, r.total_bytes, keep_text(w, r.result) });
}

static void take_device(struct walk *w, struct tm_cursor *body) {
	struct tm_device r = tm_get_device(body);
	if (!KNOWN(&w->c->processes, r.process) || (r.uuid.size && r.uuid.size != UUID_BYTES)) body->bad = true;
	if (!body->bad)
		KEEP(w, &w->c->devices, { (uint32_t)r.process, r.device, r.total_bytes, keep_text(w, r.uuid), keep_text(w, r.name) });
}

static void take_mark(struct walk *w, struct tm_cursor *body) {
	struct tm_mark r = tm_get_mark(body);
	uint32_t thread = thread_or_none(w, body, r.thread);
	keep_time(w, body, r.ns);
	if (!KNOWN(&w->c->processes, r.process)) body->bad = true;
	if (!body->bad) KEEP(w, &w->c->marks, { r.ns, (uint32_t)r.process, thread, keep_text(w, r.name) });
}

static void take_note(struct walk *w, struct tm_cursor *body) {
	struct tm_note r = tm_get_note(body);
	process_or_none(w, body, r.process);
	keep_time(w, body, r.ns);
	if (!body->bad) KEEP(w, &w->c->notes, { r.ns, (uint32_t)r.process, keep_text(w, r.kind), keep_text(w, r.text) });
}

static void take_loss(struct walk *w, struct tm_cursor *body) {
	struct tm_loss r = tm_get_loss(body);
	process_or_none(w, body, r.process);
	uint32_t thread = thread_or_none(w, body, r.thread);
	keep_time(w, body, r.ns);
	if (!body->bad)
		KEEP(w, &w->c->losses, { (uint32_t)r.process, thread, r.count, r.bytes, keep_text(w, r.kind), keep_text(w, r.reason) });
}

static void take_alert(struct walk *w, struct tm_cursor *body) {
	struct tm_alert r = tm_get_alert(body);
	process_or_none(w, body, r.process);
	keep_time(w, body, r.ns);
	if (!body->bad) KEEP(w, &w->c->alerts, { r.ns, r.value, (uint32_t)r.process, keep_text(w, r.rule) });
}

/* A frame named again (by a later `names` run) forgets its first names. */
static void take_name(struct walk *w, struct tm_cursor *body) {
	struct tm_name r = tm_get_name(body);
	struct tm_catalog *c = w->c;
	if (!r.frame || r.frame > c->frames.count) body->bad = true;
	if (body->bad) return;
	struct tm_function f;
	size_t first = c->functions.count;
	while (tm_function_next(&r.functions, &f)) {
		if (f.function > c->strings.count || f.file > c->strings.count) body->bad = true;
		uint32_t line = f.line > INT32_MAX ? 0 : (uint32_t)f.line;
		KEEP(w, &c->functions, { (uint32_t)f.function, (uint32_t)f.file, line });
	}
	if (r.functions.bad) body->bad = true;
	c->frames.items[r.frame - 1].functions = (uint32_t)first;
	c->frames.items[r.frame - 1].function_count = (uint32_t)(c->functions.count - first);
}

static void take_watermark(struct walk *w, struct tm_cursor *body) {
	uint64_t ns = tm_get_watermark(body);
	if (!body->bad) KEEP(w, &w->c->stops, { .watermark_ns = ns });
}

static void take_totals(struct walk *w, struct tm_cursor *body) {
	struct tm_totals r = tm_get_totals(body);
	keep_time(w, body, r.end_ns);
	w->c->total_events = r.events;
}

static void (*const takers[])(struct walk *, struct tm_cursor *) = {
	[TM_RECORD_INFO] = take_info,
	[TM_RECORD_STRING] = take_string,
	[TM_RECORD_PROCESS_START] = take_process_start,
	[TM_RECORD_PROCESS_EXIT] = take_process_exit,
	[TM_RECORD_PROCESS_END] = take_process_end,
	[TM_RECORD_THREAD_START] = take_thread_start,
	[TM_RECORD_THREAD_END] = take_thread_end,
	[TM_RECORD_THREAD_NAME] = take_thread_name,
	[TM_RECORD_MODULE_LOAD] = take_module_load,
	[TM_RECORD_MODULE_UNLOAD] = take_module_unload,
	[TM_RECORD_HEAP] = take_heap,
	[TM_RECORD_FRAME_MODULE] = take_frame_module,
	[TM_RECORD_SAMPLES] = take_samples,
	[TM_RECORD_MARK] = take_mark,
	[TM_RECORD_NOTE] = take_note,
	[TM_RECORD_LOSS] = take_loss,
	[TM_RECORD_ALERT] = take_alert,
	[TM_RECORD_NAME] = take_name,
	[TM_RECORD_WATERMARK] = take_watermark,
	[TM_RECORD_TOTALS] = take_totals,
	[TM_RECORD_POOL_STATE] = take_pool_state,
	[TM_RECORD_OOM] = take_oom,
	[TM_RECORD_DEVICE] = take_device,
};

static bool take_records(struct walk *w, struct tm_cursor *payload) {
	uint64_t tag;
	struct tm_cursor body;
	while (tm_record_next(payload, &tag, &body)) {
		if (tag < sizeof takers / sizeof *takers && takers[tag]) takers[tag](w, &body);
		if (body.bad) return false;
		if (w->failed) return true;
	}
	return !payload->bad;
}

/* Frames and nodes go on where the earlier ones ended. */
static bool keep_stacks(struct walk *w, const struct tm_stacks *s) {
	struct tm_catalog *c = w->c;
	size_t frames = c->frames.count + s->frame_count, nodes = c->nodes.count + s->node_count;
	bool sound = (!s->frame_count || s->first_frame == c->frames.count + 1) && (!s->node_count || s->first_node == c->nodes.count + 1) &&
		     frames < UINT32_MAX && nodes < UINT32_MAX;
	for (size_t i = 0; sound && i < s->frame_count; i++) sound = s->frames[i].module <= c->modules.count;
	for (size_t i = 0; sound && i < s->node_count; i++) sound = s->nodes[i].frame && s->nodes[i].frame <= frames;
	if (!sound) return false;
	if (!tm_array_reserve(&c->frames, frames) || !tm_array_reserve(&c->nodes, nodes)) return no_memory(w);
	for (size_t i = 0; i < s->frame_count; i++)
		c->frames.items[c->frames.count++] = (struct tm_catalog_frame){
			.kind = (uint8_t)(s->frames[i].kind > TM_FRAME_KERNEL ? TM_FRAME_UNKNOWN : s->frames[i].kind),
			.module = (uint32_t)s->frames[i].module,
			.address = s->frames[i].address
		};
	for (size_t i = 0; i < s->node_count; i++)
		c->nodes.items[c->nodes.count++] = (struct tm_catalog_node){ (uint32_t)s->nodes[i].parent, (uint32_t)s->nodes[i].frame };
	return true;
}

static bool take_stacks(struct walk *w, struct tm_cursor *payload) {
	int rc = tm_get_stacks(payload, &w->stacks);
	return rc == -2 ? no_memory(w) : rc == 0 && keep_stacks(w, &w->stacks);
}

/* Were they decoded ahead? Then *sound says as take_stacks(). */
static bool took_stacks_ahead(struct walk *w, uint64_t offset, bool *sound) {
	const struct tm_stacks *s;
	int rc = w->ahead ? tm_stacks_ahead_take(w->ahead, offset, &s) : 0;
	if (rc) *sound = rc == -2 ? no_memory(w) : rc == 1 && keep_stacks(w, s);
	return rc != 0;
}

/* Activities are handed out as they are read. */
static bool take_activities(struct walk *w, struct tm_cursor *payload) {
	struct tm_activities all;
	int rc = tm_get_activities(payload, &all);
	bool sound = rc == 0 && KNOWN(&w->c->processes, all.process);
	for (size_t i = 0; sound && !w->failed && i < all.count; i++) {
		const struct tm_activity *a = &all.all[i];
		keep_time(w, payload, a->start_ns);
		keep_time(w, payload, a->end_ns);
		sound = !payload->bad && a->name <= w->c->strings.count;
		if (sound && w->activities && !w->activities(w->context, w->c, all.process, a)) w->failed = TM_CATALOG_SINK;
	}
	tm_activities_release(&all);
	if (rc == -2) no_memory(w);
	return sound || rc == -2;
}

static bool take_chunk(struct walk *w, struct tm_reader *r, const struct tm_chunk_header *h) {
	struct tm_cursor payload;
	if (h->kind == TM_CHUNK_EVENTS) {
		KEEP(w, &w->c->stops, { .offset = r->chunk_offset, .stored_bytes = h->stored_bytes });
		w->c->events_bytes += h->stored_bytes;
		return true;
	}
	if (h->kind > TM_CHUNK_ACTIVITY || h->kind < TM_CHUNK_META) return true;
	bool sound;
	if (h->kind == TM_CHUNK_STACKS && took_stacks_ahead(w, r->chunk_offset, &sound)) return sound;
	int rc = tm_reader_payload(r, h, &payload);
	if (rc == TM_CHUNK_NO_MEMORY) return no_memory(w);
	if (rc) return false;
	if (h->kind == TM_CHUNK_ACTIVITY) return take_activities(w, &payload);
	return h->kind == TM_CHUNK_STACKS ? take_stacks(w, &payload) : take_records(w, &payload);
}

static uint64_t info_number(const struct tm_catalog *c, const char *key) {
	struct tm_text t = tm_catalog_info(c, key);
	uint64_t n = 0;
	for (size_t i = 0; i < t.size; i++) {
		if (t.data[i] < '0' || t.data[i] > '9' || n > INT64_MAX / 10 - 1) return 0;
		n = n * 10 + (uint64_t)(t.data[i] - '0');
	}
	return n;
}

static void take_info_numbers(struct tm_catalog *c) {
	c->sample_bytes = info_number(c, "sample_bytes");
	c->start_unix_ns = info_number(c, "start_unix_ns");
	c->window_start_ns = info_number(c, "window_start_ns");
	c->page_bytes = info_number(c, "page_bytes");
	if (!c->page_bytes || c->page_bytes & (c->page_bytes - 1) || c->page_bytes > 1u << 21) c->page_bytes = 4096;
}

/* Whether what is above the ranks only stands for a launcher further up: Hydra (MPICH's, Intel's) has a proxy for each host. */
static bool is_proxy(const struct tm_catalog_process *p) {
	static const char begins[] = "/hydra_", ends[] = "_proxy";
	const char *name = p->exe.size ? memrchr(p->exe.data, '/', p->exe.size) : NULL;
	size_t n = name ? p->exe.size - (size_t)(name - p->exe.data) : 0;
	return n >= sizeof begins + sizeof ends && memcmp(name, begins, sizeof begins - 1) == 0 &&
	       memcmp(name + n - (sizeof ends - 1), ends, sizeof ends - 1) == 0 && p->parent_id;
}

/* Where the launcher has no name for it: what its ranks have in common is the process above them that is no rank. A wrapper
 * between them that could not be recorded tells no rank, and may have one. */
static void find_world(struct walk *w, struct tm_catalog_process *p) {
	struct tm_catalog_process *all = w->c->processes.items, *above = p->parent_id ? &all[p->parent_id - 1] : NULL;
	char text[288];
	if (!p->defined || p->rank < 0 || p->world.size) return;
	for (size_t i = 0;
	     above && above->rank < 0 && (above->flags & TM_PROCESS_UNRECORDED || is_proxy(above)) && i < w->c->processes.count; i++)
		above = above->parent_id ? &all[above->parent_id - 1] : NULL;
	if (!above || !above->defined) return;
	/* The host, for in one database there may be traces of many. */
	snprintf(text, sizeof text, "%.*s:%llu", (int)(above->host.size < 256 ? above->host.size : 256), above->host.data,
		 (unsigned long long)above->pid);
	p->world = above->rank >= 0 ? above->world : keep_text(w, tm_text_of(text));
}

/* Parents have been defined before their children, but for damage. */
static void find_worlds(struct walk *w) {
	struct tm_catalog *c = w->c;
	for (size_t i = 0; i < c->notes.count; i++) {
		const struct tm_catalog_note *n = &c->notes.items[i];
		if (n->process && tm_is_world_note(n->kind)) c->processes.items[n->process - 1].world = n->text;
	}
	for (size_t i = 0; i < c->processes.count; i++) find_world(w, &c->processes.items[i]);
}

int tm_catalog_read(struct tm_catalog *c, struct tm_reader *r, uint64_t limit, uint64_t *damaged_offset, tm_sample_sink *sink,
		    tm_pool_sink *pools, tm_activity_taker *activities, void *context) {
	*c = (struct tm_catalog){ .major = r->major, .minor = r->minor, .file_bytes = r->file_bytes };
	struct walk w = { .c = c, .sink = sink, .pools = pools, .activities = activities, .context = context };
	struct tm_chunk_header h = { 0 };
	bool sound = true;
	if (r->file_bytes >= AHEAD_FILE_BYTES) w.ahead = tm_stacks_ahead_start(r);
	while (sound && !w.failed && r->offset < limit && tm_reader_next(r, &h)) {
		sound = take_chunk(&w, r, &h);
		c->closed = h.kind == TM_CHUNK_END;
	}
	tm_stacks_ahead_stop(w.ahead);
	tm_stacks_release(&w.stacks);
	if (sound && !w.failed) find_worlds(&w);
	if (w.failed) return w.failed;
	if (!sound) {
		*damaged_offset = r->chunk_offset;
		return TM_CATALOG_DAMAGED;
	}
	if (r->stopped || r->offset >= limit) c->closed = false;
	c->stopped = r->stopped;
	c->sound_bytes = r->offset;
	take_info_numbers(c);
	return TM_CATALOG_OK;
}

int tm_catalog_take(struct tm_catalog *c, struct tm_reader *r, const struct tm_chunk_header *h, tm_sample_sink *sink, void *context) {
	struct walk w = { .c = c, .sink = sink, .context = context };
	bool sound = take_chunk(&w, r, h);
	tm_stacks_release(&w.stacks);
	if (w.failed) return w.failed;
	if (h->kind == TM_CHUNK_META) take_info_numbers(c), find_worlds(&w);
	c->closed = h->kind == TM_CHUNK_END;
	return sound ? TM_CATALOG_OK : TM_CATALOG_DAMAGED;
}

void tm_catalog_release(struct tm_catalog *c) {
	tm_array_release(&c->processes);
	tm_array_release(&c->threads);
	tm_id_map_release(&c->thread_numbers);
	tm_array_release(&c->modules);
	tm_array_release(&c->heaps);
	tm_array_release(&c->frames);
	tm_array_release(&c->nodes);
	tm_array_release(&c->functions);
	tm_array_release(&c->strings);
	tm_array_release(&c->infos);
	tm_array_release(&c->marks);
	tm_array_release(&c->notes);
	tm_array_release(&c->losses);
	tm_array_release(&c->alerts);
	tm_array_release(&c->ooms);
	tm_array_release(&c->devices);
	tm_array_release(&c->stops);
	tm_text_store_release(&c->texts);
}

uint64_t tm_catalog_stopped_ns(const struct tm_catalog *c) {
	uint64_t stopped_ns = TM_NEVER;
	for (size_t i = 0; i < c->notes.count; i++) {
		const struct tm_catalog_note *n = &c->notes.items[i];
		if (!n->process && tm_is_note(n->kind, TM_NOTE_STOPPED_BY_SIZE) && n->ns < stopped_ns) stopped_ns = n->ns;
	}
	return stopped_ns;
}

uint32_t tm_catalog_thread_of(const struct tm_catalog *c, uint64_t id) {
	const uint64_t *number = tm_id_map_find(&c->thread_numbers, id, 0);
	return number ? (uint32_t)*number : 0;
}

const struct tm_catalog_oom *tm_catalog_oom_of(const struct tm_catalog *c, uint64_t id) {
	return id > c->ooms_before && id - c->ooms_before <= c->ooms.count ? &c->ooms.items[id - c->ooms_before - 1] : NULL;
}

bool tm_catalog_has_losses(const struct tm_catalog *c, uint32_t process) {
	for (size_t i = 0; i < c->losses.count; i++)
		if (c->losses.items[i].process == process) return true;
	return false;
}

bool tm_catalog_is_bypassed(const struct tm_catalog *c, uint32_t process) {
	for (size_t i = 0; i < c->notes.count; i++)
		if (c->notes.items[i].process == process && tm_is_note(c->notes.items[i].kind, TM_NOTE_BYPASSED)) return true;
	return false;
}

struct tm_text tm_catalog_info(const struct tm_catalog *c, const char *key) {
	for (size_t i = c->infos.count; i-- > 0;) {
		struct tm_text k = c->infos.items[i].key;
		if (k.size == strlen(key) && memcmp(k.data, key, k.size) == 0) return c->infos.items[i].value;
	}
	return (struct tm_text){ "", 0 };
}

static struct tm_trace_identity identity_told(struct tm_catalog *c) {
	take_info_numbers(c);
	struct tm_trace_identity identity = { .start_unix_ns = c->start_unix_ns };
	struct tm_text host = tm_catalog_info(c, "host");
	if (!host.size && c->processes.count) host = c->processes.items[0].host;
	if (c->processes.count) identity.first_pid = c->processes.items[0].pid;
	snprintf(identity.host, sizeof identity.host, "%.*s", (int)host.size, host.data);
	return identity;
}

struct tm_trace_identity tm_catalog_peek(const char *path) {
	struct tm_reader r;
	struct tm_catalog c = { 0 };
	struct tm_chunk_header h;
	struct walk w = { .c = &c };
	struct tm_trace_identity identity = { 0 };
	char error[256];
	if (tm_reader_open(&r, path, error, sizeof error) == 0)
		for (int n = 0; n < CHUNKS_PEEKED && !c.processes.count && tm_reader_next(&r, &h); n++) {
			if (h.kind != TM_CHUNK_META) continue;
			if (!take_chunk(&w, &r, &h)) break; /* an import takes nothing of a damaged one */
			identity = identity_told(&c);
		}
	tm_reader_release(&r);
	tm_catalog_release(&c);
	return identity;
}

struct tm_trace_reach tm_catalog_reach(const char *path) {
	struct tm_reader r;
	struct tm_catalog c = { 0 };
	char error[256];
	uint64_t damaged = UINT64_MAX;
	if (tm_reader_open(&r, path, error, sizeof error) == 0) tm_catalog_read(&c, &r, UINT64_MAX, &damaged, NULL, NULL, NULL, NULL);
	struct tm_trace_reach reach = { c.end_ns, c.closed, c.sound_bytes };
	tm_reader_release(&r);
	tm_catalog_release(&c);
	return reach;
}
