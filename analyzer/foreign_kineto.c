/* foreign_kineto.c - torch.profiler's export_chrome_trace(), with profile_memory=True: `[memory]` instants, operators, kernels.
 *
 *     JSON, a piece at a time (yajl) -> rows of a scratch table, sorted by time -> the trace
 *
 * Why yajl: a file of gigabytes is read in constant memory, and its grammar, escapes and errors are somebody's well-kept work.
 * Idea:     the file's events come in no order, so SQLite sorts them on disk. Operators and record_function()s (`X`) become scopes of their thread, nested
 *           by time; a block belongs to the innermost one of its own thread, where torch.profiler counts it for every one that is open then.
 * Times:    decimal microseconds, read to the nanosecond. An event at the very end of an operator lies inside of it.
 */
#include "foreign_input.h"
#include "foreign_readers.h"

#include <sqlite3.h>
#include <stdio.h>
#include <yajl/yajl_parse.h>

#define PIECE_BYTES ((size_t)64 << 10)
#define VALUE_BYTES_MAX ((uint64_t)4 << 20) /* a single name or number */
#define TEXT_MAX 16384u                     /* kernels of templates have names of thousands of bytes that differ near their end */
#define THREADS_MAX 65536u
#define EPOCH_NS 1000000000000000000ll /* times above this are since 1970 */
#define NOT_TOLD INT64_MIN             /* bytes of a memory event */
#define FAR_NS (1ull << 58) /* 9 years: twice that is all that a trace can hold, and one event of 1970 would push the others to its end */

enum row_kind { ROW_SCOPE, ROW_MEMORY, ROW_LAUNCH, ROW_ACTIVITY };

/* X(field, key): numbers of an event's args. */
#define NUMBERS(X) \
	X(address, "Addr") \
	X(bytes, "Bytes") X(device_type, "Device Type") X(device_id, "Device Id") X(allocated, "Total Allocated") \
		X(reserved, "Total Reserved") X(correlation, "correlation") X(device, "device") X(stream, "stream") X(copied, "bytes")

struct text {
	char data[TEXT_MAX];
	size_t size;
};

struct event {
	int64_t ts_ns, duration_ns, pid, tid;
	bool has_ts, has_tid;
	char phase;
	bool is_cut; /* its name is longer */
#define X(field, key) int64_t field;
	NUMBERS(X)
#undef X
};

struct open_scope {
	int64_t end_ns;
	uint32_t category; /* string id */
};

struct lane {
	uint32_t process, thread;
	TM_ARRAY(struct open_scope) open;
};

struct reader {
	struct tm_foreign *f;
	struct tm_foreign_trace *t;
	struct tm_input input;
	sqlite3 *db;
	sqlite3_stmt *insert;
	struct event event;
	struct text name, category; /* the event's, not in it: it is cleared for each */
	struct text key;
	unsigned depth, event_depth; /* event_depth: of an event's own keys; 0: the list of events has not begun */
	bool in_events, found_events;
	uint64_t given, last_given; /* bytes parsed before this piece; where the last value was */
	int64_t base_ns, first_ns, rank, world_size, end_ns;
	struct text host;
	TM_ARRAY(struct lane) lanes;
	struct tm_id_map lane_ids, process_ids, heap_ids;
	uint64_t clipped, cut_names;
	uint64_t timeless, sizeless; /* events that say in no way that makes sense when they were, or how much memory */
	uint64_t far;                /* events that were years before or after most of the others */
	int64_t next_end_ns;         /* no open scope ends before it */
};

static int no_memory(struct reader *r) {
	return tm_foreign_fail(r->f, "out of memory");
}

static int store_failed(struct reader *r) {
	return tm_foreign_fail(r->f, "cannot sort its events: %s", sqlite3_errmsg(r->db));
}

/* --- what the parser finds --- */

static bool key_is(const struct reader *r, const char *word) {
	return r->key.size == strlen(word) && memcmp(r->key.data, word, r->key.size) == 0;
}

static bool text_is(const struct text *t, const char *word) {
	return t->size == strlen(word) && memcmp(t->data, word, t->size) == 0;
}

/* Cut to what it can hold, at the beginning of a character. */
static void set_text(struct text *t, const char *data, size_t n) {
	if (n > TEXT_MAX) {
		n = TEXT_MAX;
		while (n && ((uint8_t)data[n] & 0xC0) == 0x80) n--;
	}
	memcpy(t->data, data, n);
	t->size = n;
}

/* "1234.567" in thousands; digits beyond are dropped. false: no such number. */
static bool read_thousandths(const char *data, size_t n, int64_t *out) {
	size_t i = n && data[0] == '-';
	int64_t value = 0;
	int digits = -1; /* behind the point */
	for (; i < n; i++) {
		if (data[i] == '.' && digits < 0) {
			digits = 0;
		} else if (data[i] >= '0' && data[i] <= '9') {
			if (digits >= 3) continue;
			if (value > INT64_MAX / 10 - 1) return false;
			value = value * 10 + (data[i] - '0');
			digits += digits >= 0;
		} else {
			char text[64];
			double real;
			snprintf(text, sizeof text, "%.*s", (int)(n < 60 ? n : 60), data);
			real = strtod(text, NULL) * 1000;
			if (!(real > -9e18 && real < 9e18)) return false;
			*out = (int64_t)real;
			return true;
		}
	}
	for (digits = digits < 0 ? 0 : digits; digits < 3; digits++) {
		if (value > INT64_MAX / 10 - 1) return false;
		value *= 10;
	}
	*out = data[0] == '-' ? -value : value;
	return true;
}

/* What writes JSON anew may put whole numbers as 4.096e3. Addresses of 2^63 and more come as they are or as negative numbers: both are the same 64 bits. */
static bool read_whole(const char *data, size_t n, int64_t *out) {
	char text[32], *end;
	if (!n || n >= sizeof text) return false;
	memcpy(text, data, n);
	text[n] = 0;
	*out = text[0] == '-' ? strtoll(text, &end, 10) : (int64_t)strtoull(text, &end, 10);
	if (text[strcspn(text, "eE")]) {
		double real = strtod(text, &end);
		if (!(real > -9e18 && real < 9e18)) return false;
		*out = (int64_t)real;
	}
	return *end == 0 || *end == '.';
}

static void take_event_number(struct reader *r, const char *data, size_t n) {
	struct event *e = &r->event;
	int64_t value;
	if (r->depth == r->event_depth && key_is(r, "ts")) {
		e->has_ts = read_thousandths(data, n, &e->ts_ns);
	} else if (r->depth == r->event_depth && key_is(r, "dur")) {
		if (!read_thousandths(data, n, &e->duration_ns)) e->duration_ns = 0;
	} else if (read_whole(data, n, &value)) {
		bool own = r->depth == r->event_depth;
		if (own && key_is(r, "pid")) e->pid = value;
		if (own && key_is(r, "tid")) e->tid = value, e->has_tid = true;
#define X(field, word) \
	if (key_is(r, word)) e->field = value;
		NUMBERS(X)
#undef X
	}
}

static int on_number(void *context, const char *data, size_t n) {
	struct reader *r = context;
	r->last_given = r->given;
	if (r->in_events) take_event_number(r, data, n);
	else if (key_is(r, "baseTimeNanoseconds")) read_whole(data, n, &r->base_ns);
	else if (key_is(r, "rank")) read_whole(data, n, &r->rank);
	else if (key_is(r, "world_size")) read_whole(data, n, &r->world_size);
	return 1;
}

static int on_string(void *context, const unsigned char *data, size_t n) {
	struct reader *r = context;
	struct event *e = &r->event;
	const char *text = (const char *)data;
	r->last_given = r->given;
	if (!r->in_events) {
		if (key_is(r, "host_name")) set_text(&r->host, text, n);
		return 1;
	}
	if (r->depth == r->event_depth) {
		if (key_is(r, "ph") && n) e->phase = text[0];
		else if (key_is(r, "name")) set_text(&r->name, text, n), e->is_cut = n > TEXT_MAX;
		else if (key_is(r, "cat")) set_text(&r->category, text, n);
	}
	if (n && n < 20 && (key_is(r, "pid") || key_is(r, "tid")) && ((text[0] >= '0' && text[0] <= '9'))) take_event_number(r, text, n);
	return 1;
}

static int on_key(void *context, const unsigned char *data, size_t n) {
	struct reader *r = context;
	r->last_given = r->given;
	set_text(&r->key, (const char *)data, n);
	return 1;
}

/* Before PyTorch 1.12 they had other names. */
static const struct category {
	const char *name, *means;
	enum row_kind kind;
} categories[] = {
	{ "", "", ROW_SCOPE },
	{ "cpu_op", "cpu_op", ROW_SCOPE },
	{ "Operator", "cpu_op", ROW_SCOPE },
	{ "user_annotation", "user_annotation", ROW_SCOPE },
	{ "cuda_runtime", "cuda_runtime", ROW_LAUNCH },
	{ "cuda_driver", "cuda_driver", ROW_LAUNCH },
	{ "Runtime", "cuda_runtime", ROW_LAUNCH },
	{ "kernel", "kernel", ROW_ACTIVITY },
	{ "Kernel", "kernel", ROW_ACTIVITY },
	{ "gpu_memcpy", "gpu_memcpy", ROW_ACTIVITY },
	{ "Memcpy", "gpu_memcpy", ROW_ACTIVITY },
	{ "gpu_memset", "gpu_memset", ROW_ACTIVITY },
	{ "Memset", "gpu_memset", ROW_ACTIVITY },
};

/* NULL: none of those. */
static const struct category *find_category(const struct text *name) {
	for (size_t i = 0; i < sizeof categories / sizeof *categories; i++)
		if (text_is(name, categories[i].name)) return &categories[i];
	return NULL;
}

/* -1: nothing that is kept. */
static int kind_of(const struct reader *r, const struct category *category) {
	const struct event *e = &r->event;
	if (!e->has_ts) return -1;
	if (text_is(&r->name, "[memory]")) return e->address && e->bytes && e->bytes != NOT_TOLD ? ROW_MEMORY : -1;
	if (e->phase != 'X' || !category || (category->kind != ROW_ACTIVITY && !e->has_tid)) return -1;
	return category->kind == ROW_LAUNCH && e->correlation <= 0 ? -1 : (int)category->kind;
}

static int keep_event(struct reader *r) {
	struct event *e = &r->event;
	const struct category *category = find_category(&r->category);
	int kind = kind_of(r, category);
	r->timeless += !e->has_ts && (e->phase == 'X' || text_is(&r->name, "[memory]"));
	r->sizeless += e->has_ts && text_is(&r->name, "[memory]") && e->bytes == NOT_TOLD;
	if (kind < 0) return 1;
	r->cut_names += e->is_cut;
	if (e->duration_ns < 0 || e->ts_ns > INT64_MAX - e->duration_ns) e->duration_ns = 0;
	if (kind == ROW_LAUNCH) e->ts_ns += e->duration_ns;
	const int64_t values[] = { e->ts_ns,
				   kind,
				   e->duration_ns,
				   e->pid,
				   e->tid,
				   e->address,
				   kind == ROW_ACTIVITY ? e->copied : e->bytes,
				   e->device_type,
				   kind == ROW_ACTIVITY ? e->device : e->device_id,
				   e->allocated,
				   e->reserved,
				   e->correlation,
				   e->stream };
	int count = (int)(sizeof values / sizeof *values);
	for (int i = 0; i < count; i++) sqlite3_bind_int64(r->insert, i + 1, values[i]);
	sqlite3_bind_text(r->insert, count + 1, r->name.data, (int)r->name.size, SQLITE_STATIC);
	sqlite3_bind_text(r->insert, count + 2, category ? category->means : "", -1, SQLITE_STATIC);
	bool done = sqlite3_step(r->insert) == SQLITE_DONE;
	sqlite3_reset(r->insert);
	if (!done) store_failed(r);
	return done;
}

static int on_map(void *context) {
	struct reader *r = context;
	r->last_given = r->given;
	r->depth++;
	if (!r->in_events || r->depth != r->event_depth) return 1;
	r->name.size = r->category.size = 0;
	r->event = (struct event){
		.bytes = NOT_TOLD, .device_id = -1, .allocated = -1, .reserved = -1, .device = -1, .stream = -1, .copied = -1
	};
	return 1;
}

static int on_map_end(void *context) {
	struct reader *r = context;
	r->last_given = r->given;
	if (r->in_events && r->depth-- == r->event_depth) return keep_event(r);
	if (!r->in_events) r->depth--;
	return 1;
}

/* The list of events is the document, or "traceEvents" in it. */
static int on_list(void *context) {
	struct reader *r = context;
	r->last_given = r->given;
	if (!r->found_events && (r->depth == 0 || (r->depth == 1 && key_is(r, "traceEvents")))) {
		r->in_events = r->found_events = true;
		r->event_depth = r->depth + 2;
	}
	r->depth++;
	return 1;
}

static int on_list_end(void *context) {
	struct reader *r = context;
	r->last_given = r->given;
	if (--r->depth + 2 == r->event_depth) r->in_events = false;
	return 1;
}

static const yajl_callbacks callbacks = { .yajl_number = on_number,
					  .yajl_string = on_string,
					  .yajl_start_map = on_map,
					  .yajl_map_key = on_key,
					  .yajl_end_map = on_map_end,
					  .yajl_start_array = on_list,
					  .yajl_end_array = on_list_end };

static int parse_failed(struct reader *r, yajl_handle parser, const uint8_t *piece, size_t n) {
	unsigned char *why = yajl_get_error(parser, 0, piece, n);
	size_t length = why ? strcspn((char *)why, "\n") : 0;
	if (!r->f->error[0])
		tm_foreign_fail(r->f, "%.*s at byte %llu", (int)length, why ? (char *)why : "",
				(unsigned long long)(r->given + yajl_get_bytes_consumed(parser)));
	yajl_free_error(parser, why);
	return -1;
}

/* A byte order mark. */
static void blank_mark(uint8_t *data, size_t n, uint64_t at) {
	for (size_t i = 0; i < n && at + i < 3 && data[i] == (uint8_t) "\xEF\xBB\xBF"[at + i]; i++) data[i] = ' ';
}

/* Some versions of PyTorch write names of several lines as they are. Between values, such bytes are blanks anyway. */
static void blank_control_bytes(uint8_t *data, size_t n) {
	for (size_t i = 0; i < n; i++)
		if (data[i] < ' ') data[i] = ' ';
}

static int parse(struct reader *r) {
	static uint8_t piece[PIECE_BYTES];
	yajl_handle parser = yajl_alloc(&callbacks, NULL, r);
	size_t n;
	int rc = parser ? 0 : no_memory(r);
	if (parser) yajl_config(parser, yajl_dont_validate_strings, 1);
	while (!rc && (n = tm_input_read(&r->input, piece, sizeof piece))) {
		blank_mark(piece, n, r->given);
		blank_control_bytes(piece, n);
		if (yajl_parse(parser, piece, n) != yajl_status_ok) rc = parse_failed(r, parser, piece, n);
		r->given += n;
		if (!rc && r->given - r->last_given > VALUE_BYTES_MAX)
			rc = tm_foreign_fail(r->f, "a value of more than 4 MiB at byte %llu", (unsigned long long)r->last_given);
	}
	r->f->sound_bytes = r->input.read_bytes;
	r->f->cut_reason = r->input.cut;
	if (!rc && !r->f->cut_reason && yajl_complete_parse(parser) != yajl_status_ok) r->f->cut_reason = "the JSON is cut off";
	if (parser) yajl_free(parser);
	if (!rc && !r->found_events) rc = tm_foreign_fail(r->f, "it is JSON, but has no list of traceEvents");
	return rc;
}

/* --- the trace --- */

static uint32_t process_of(struct reader *r, int64_t pid) {
	uint64_t *id = tm_id_map_put(&r->process_ids, (uint64_t)pid, 0);
	if (!id) return 1;
	struct tm_process_start start = { .pid = pid > 0 ? (uint64_t)pid : 0,
					  .rank = r->rank,
					  .local_rank = -1,
					  .world_size = r->world_size,
					  .host = { r->host.data, r->host.size } };
	if (!*id) *id = tm_foreign_process(r->t, &start);
	return (uint32_t)*id;
}

static struct lane *lane_of(struct reader *r, int64_t pid, int64_t tid) {
	uint64_t *id = tm_id_map_put(&r->lane_ids, (uint64_t)pid, (uint64_t)tid);
	if (!id || (!*id && r->lanes.count >= THREADS_MAX)) return NULL;
	if (*id) return &r->lanes.items[*id - 1];
	struct lane *lane = tm_array_push(&r->lanes);
	if (!lane) return NULL;
	*id = r->lanes.count;
	lane->process = process_of(r, pid);
	lane->thread = tm_foreign_thread(r->t, lane->process, tid > 0 ? (uint64_t)tid : 0, tm_text_of(""));
	return lane;
}

/* c10's numbers of devices. */
static uint32_t heap_of(struct reader *r, const struct lane *lane, int64_t type, int64_t device) {
	char name[64];
	uint64_t *id = tm_id_map_put(&r->heap_ids, (uint64_t)type << 32 ^ (uint64_t)(device + 1), lane->process);
	if (!id) return 0;
	if (type == 0) snprintf(name, sizeof name, "torch.cpu");
	else if (type == 1) snprintf(name, sizeof name, "torch.cuda:%lld", (long long)(device < 0 ? 0 : device));
	else snprintf(name, sizeof name, "torch.device-%lld:%lld", (long long)type, (long long)(device < 0 ? 0 : device));
	if (!*id)
		*id = tm_foreign_heap(r->t, lane->process, tm_text_of(name), "tensor",
				      type == 0                     ? -1
				      : device < 0 || device > 4096 ? 0
								    : device,
				      0);
	return (uint32_t)*id;
}

static void close_top(struct reader *r, struct lane *lane) {
	struct open_scope top = lane->open.items[--lane->open.count];
	struct tm_event e = { .time_ns = (uint64_t)(top.end_ns - r->first_ns), .heap = top.category, .op = TM_OP_SCOPE_END };
	tm_foreign_event(r->t, lane->thread, &e);
	if (top.end_ns > r->end_ns) r->end_ns = top.end_ns;
}

/* Whatever has ended before `ns`, on all threads, in the order of time. */
static void close_before(struct reader *r, int64_t ns) {
	while (r->next_end_ns < ns) {
		struct lane *first = NULL;
		int64_t second = INT64_MAX;
		for (size_t i = 0; i < r->lanes.count; i++) {
			struct lane *lane = &r->lanes.items[i];
			if (!lane->open.count) continue;
			int64_t end = lane->open.items[lane->open.count - 1].end_ns;
			if (!first || end < first->open.items[first->open.count - 1].end_ns) {
				if (first) second = first->open.items[first->open.count - 1].end_ns;
				first = lane;
			} else if (end < second) {
				second = end;
			}
		}
		r->next_end_ns = first ? first->open.items[first->open.count - 1].end_ns : INT64_MAX;
		if (r->next_end_ns >= ns) return;
		while (first->open.count && first->open.items[first->open.count - 1].end_ns < ns &&
		       first->open.items[first->open.count - 1].end_ns <= second)
			close_top(r, first);
	}
}

static const char *category_of(const unsigned char *category) {
	return category && strcmp((const char *)category, "user_annotation") == 0 ? "torch.user" : "torch.op";
}

/* An operator that begins where another ends does not lie in it, unless it has no length. */
static int tell_scope(struct reader *r, struct lane *lane, sqlite3_stmt *row, int64_t ns, int64_t duration) {
	int64_t end = ns + duration;
	while (lane->open.count && lane->open.items[lane->open.count - 1].end_ns == ns && duration) close_top(r, lane);
	if (lane->open.count && end > lane->open.items[lane->open.count - 1].end_ns) {
		end = lane->open.items[lane->open.count - 1].end_ns;
		r->clipped++;
	}
	struct tm_text name = { (const char *)sqlite3_column_text(row, 13), (size_t)sqlite3_column_bytes(row, 13) };
	struct tm_event e = { .time_ns = (uint64_t)(ns - r->first_ns), .op = TM_OP_SCOPE_PUSH, .text = tm_foreign_string(r->t, name) };
	e.heap = tm_foreign_string(r->t, tm_text_of(category_of(sqlite3_column_text(row, 14))));
	struct open_scope *open = tm_array_push(&lane->open);
	if (!open) return no_memory(r);
	*open = (struct open_scope){ end, e.heap };
	if (end < r->next_end_ns) r->next_end_ns = end;
	tm_foreign_event(r->t, lane->thread, &e);
	return 0;
}

static void tell_memory(struct reader *r, const struct lane *lane, sqlite3_stmt *row, uint64_t ns) {
	int64_t bytes = sqlite3_column_int64(row, 6), type = sqlite3_column_int64(row, 7), reserved = sqlite3_column_int64(row, 10);
	uint64_t address = (uint64_t)sqlite3_column_int64(row, 5);
	uint32_t heap = heap_of(r, lane, type, sqlite3_column_int64(row, 8));
	if (bytes > 0) tm_foreign_allocation(r->t, lane->thread, TM_OP_TORCH_ALLOC, ns, heap, address, (uint64_t)bytes, 0);
	else tm_foreign_release_of(r->t, lane->thread, TM_OP_TORCH_FREE, ns, heap, address);
	struct tm_pool_state state = { heap, ns, sqlite3_column_int64(row, 9), reserved, -1, -1 };
	if (type && heap && (state.allocated >= 0 || state.reserved >= 0)) tm_foreign_pool_state(r->t, &state); /* before PyTorch 1.10: neither */
}

static void tell_activity(struct reader *r, sqlite3_stmt *row, uint64_t ns) {
	const char *category = (const char *)sqlite3_column_text(row, 14), *name = (const char *)sqlite3_column_text(row, 13);
	bool copies = strcmp(category, "gpu_memcpy") == 0;
	struct tm_activity a = { .start_ns = ns,
				 .end_ns = ns + (uint64_t)sqlite3_column_int64(row, 2),
				 .name = tm_foreign_string(r->t, tm_text_of(name)) };
	int64_t device = sqlite3_column_int64(row, 8), bytes = sqlite3_column_int64(row, 6), stream = sqlite3_column_int64(row, 12),
		correlation = sqlite3_column_int64(row, 11);
	a.kind = copies ? TM_ACTIVITY_MEMCPY : strcmp(category, "kernel") == 0 ? TM_ACTIVITY_KERNEL : TM_ACTIVITY_MEMSET;
	a.size_bytes = bytes < 0 ? TM_ACTIVITY_UNKNOWN : (uint64_t)bytes;
	a.stream = stream < 0 ? TM_ACTIVITY_UNKNOWN : (uint64_t)stream;
	a.device = device < 0 || device > 4096 ? -1 : (int32_t)device;
	a.correlation = correlation > 0 ? (uint64_t)correlation : 0;
	if (copies)
		a.direction = strstr(name, "HtoD")   ? TM_DIRECTION_H2D
			      : strstr(name, "DtoH") ? TM_DIRECTION_D2H
			      : strstr(name, "DtoD") ? TM_DIRECTION_D2D
			      : strstr(name, "PtoP") ? TM_DIRECTION_P2P
						     : 0;
	tm_foreign_activity(r->t, 1, &a);
}

static int tell_row(struct reader *r, sqlite3_stmt *row) {
	int64_t ns = sqlite3_column_int64(row, 0), duration = sqlite3_column_int64(row, 2);
	uint64_t at = (uint64_t)(ns - r->first_ns);
	int kind = sqlite3_column_int(row, 1);
	if (ns > r->end_ns) r->end_ns = ns;
	if (kind == ROW_ACTIVITY) return tell_activity(r, row, at), 0;
	close_before(r, ns);
	struct lane *lane = lane_of(r, sqlite3_column_int64(row, 3), sqlite3_column_int64(row, 4));
	if (!lane) return tm_foreign_fail(r->f, "out of memory, or more than %u threads", THREADS_MAX);
	if (kind == ROW_SCOPE) return tell_scope(r, lane, row, ns, duration);
	if (kind == ROW_MEMORY) tell_memory(r, lane, row, at);
	struct tm_event launch = { .time_ns = at, .addr = (uint64_t)sqlite3_column_int64(row, 11) & UINT32_MAX, .op = TM_OP_LAUNCH };
	launch.text = tm_foreign_string(
		r->t, (struct tm_text){ (const char *)sqlite3_column_text(row, 13), (size_t)sqlite3_column_bytes(row, 13) });
	if (kind == ROW_LAUNCH && launch.addr) tm_foreign_event(r->t, lane->thread, &launch);
	return 0;
}

/* ?1 is ROW_ACTIVITY. 0: there are no such rows. */
static int64_t first_of(struct reader *r, const char *sql) {
	sqlite3_stmt *row = NULL;
	int64_t first = 0;
	if (sqlite3_prepare_v2(r->db, sql, -1, &row, NULL) == SQLITE_OK) {
		sqlite3_bind_int(row, 1, ROW_ACTIVITY); /* no harm where the query has none */
		if (sqlite3_step(row) == SQLITE_ROW) first = sqlite3_column_int64(row, 0);
	}
	sqlite3_finalize(row);
	return first;
}

/* A time that is no time (0, one in another unit) must not cost the others theirs: the middle one of all is believed, and what is years from it is left
 * out. The search for it sorts once more, so only where some time is far away. */
static int leave_out_far(struct reader *r) {
	char sql[160];
	int64_t first = first_of(r, "SELECT min(ts) FROM event"), last = first_of(r, "SELECT max(ts) FROM event");
	if ((uint64_t)last - (uint64_t)first <= FAR_NS) return 0;
	int64_t middle = first_of(r, "SELECT ts FROM event ORDER BY ts LIMIT 1 OFFSET (SELECT count(*) FROM event) / 2");
	if ((uint64_t)middle - (uint64_t)first > FAR_NS) first = middle - (int64_t)FAR_NS;
	if ((uint64_t)last - (uint64_t)middle > FAR_NS) last = middle + (int64_t)FAR_NS;
	snprintf(sql, sizeof sql, "DELETE FROM event WHERE ts < %lld OR ts > %lld", (long long)first, (long long)last);
	if (sqlite3_exec(r->db, sql, NULL, NULL, NULL) != SQLITE_OK) return store_failed(r);
	r->far = (uint64_t)sqlite3_changes64(r->db);
	return 0;
}

static int tell(struct reader *r) {
	sqlite3_stmt *row = NULL;
	int rc = leave_out_far(r), step = SQLITE_DONE;
	r->first_ns = r->end_ns = first_of(r, "SELECT min(ts) FROM event");
	r->next_end_ns = INT64_MAX;
	if (r->base_ns > 0 && r->first_ns >= 0) tm_foreign_start(r->t, (uint64_t)r->base_ns + (uint64_t)r->first_ns);
	else if (r->first_ns > EPOCH_NS) tm_foreign_start(r->t, (uint64_t)r->first_ns);
	if (sqlite3_prepare_v2(r->db, "SELECT * FROM event ORDER BY ts, kind, duration DESC, rowid", -1, &row, NULL) != SQLITE_OK)
		rc = store_failed(r);
	/* The first process is that of the operators and blocks, also where a device was at work before them; what devices did is put down to it. */
	process_of(r, first_of(r, "SELECT pid FROM event WHERE kind <> ?1 ORDER BY ts, kind, duration DESC, rowid LIMIT 1"));
	while (!rc && !r->t->failed && (step = sqlite3_step(row)) == SQLITE_ROW) rc = tell_row(r, row);
	if (!rc && step != SQLITE_DONE && !r->t->failed) rc = store_failed(r);
	sqlite3_finalize(row);
	if (rc || r->t->failed) return -1;
	close_before(r, INT64_MAX);
	if (r->clipped)
		tm_foreign_loss(r->t, 1, "overlapping-scope", r->clipped, 0,
				"operators that outlive the one around them were closed with it");
	if (r->sizeless) tm_foreign_loss(r->t, 1, "sizeless-event", r->sizeless, 0, "memory events whose size is missing or is no number");
	if (r->timeless) tm_foreign_loss(r->t, 1, "timeless-event", r->timeless, 0, "events whose time is missing or is no number");
	if (r->far) tm_foreign_loss(r->t, 1, "timeless-event", r->far, 0, "events whose time is years before or after that of most others");
	tm_foreign_note(r->t, 1, tm_text_of("torch.profiler gives no stacks to blocks; blocks older than the profile are unmatched frees"));
	if (r->cut_names) {
		char text[160];
		snprintf(text, sizeof text,
			 "the names of %llu %s are longer than %u bytes and were cut: what differs only behind that is one",
			 (unsigned long long)r->cut_names, r->cut_names == 1 ? "event" : "events", TEXT_MAX);
		tm_foreign_note(r->t, 1, tm_text_of(text));
	}
	return tm_foreign_trace_finish(r->t, (uint64_t)(r->end_ns - r->first_ns));
}

int tm_foreign_read_kineto(struct tm_foreign *f, struct tm_foreign_trace *t, const char *path) {
	struct reader *r = calloc(1, sizeof *r);
	if (!r) return tm_foreign_fail(f, "out of memory");
	r->f = f;
	r->t = t;
	r->rank = r->world_size = -1;
	snprintf(f->format, sizeof f->format, "torch.profiler JSON");
	int rc = tm_input_open(&r->input, path, f->error, sizeof f->error);
	if (!rc &&
	    (sqlite3_open("", &r->db) != SQLITE_OK ||
	     sqlite3_exec(
		     r->db,
		     "PRAGMA journal_mode=OFF; BEGIN; CREATE TABLE event(ts, kind, duration, pid, tid, address, bytes, device_type, device, allocated,"
		     " reserved, correlation, stream, name, category)",
		     NULL, NULL, NULL) != SQLITE_OK ||
	     sqlite3_prepare_v2(r->db, "INSERT INTO event VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)", -1, &r->insert, NULL) != SQLITE_OK))
		rc = store_failed(r);
	if (!rc) rc = parse(r);
	f->tells_nothing = !rc && !sqlite3_total_changes(r->db) && !r->timeless && !r->sizeless;
	if (!rc) rc = tell(r);
	sqlite3_finalize(r->insert);
	sqlite3_close(r->db);
	tm_input_release(&r->input);
	for (size_t i = 0; i < r->lanes.count; i++) tm_array_release(&r->lanes.items[i].open);
	tm_array_release(&r->lanes);
	tm_id_map_release(&r->lane_ids);
	tm_id_map_release(&r->process_ids);
	tm_id_map_release(&r->heap_ids);
	free(r);
	return rc;
}
