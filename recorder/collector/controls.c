/* controls.c - what a ring tells besides events: see controls.h. */
#include "controls.h"

#include "collector.h"
#include "drain.h"
#include "gpu_records.h"
#include "memory.h"
#include "thread_table.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_MAX (4u << 20) /* of one record that is sent in pieces; more is cut */

/* --- one record, taken apart --- */

struct control {
	struct tm_collector *c;
	struct tm_ring_view *r;
	struct tm_process *p;
	uint64_t ticks;
	uint32_t x;
	const uint64_t *numbers; /* behind the ticks */
	const char *text;        /* the whole text, pieces joined */
	size_t text_bytes;
};

/* A ring that says twice whose it is, as a damaged one may, has a thread of the second process from then on. */
static void take_process(const struct control *t) {
	const struct tm_process *before = t->r->process;
	t->r->process = tm_process_attached(t->c, t->r->number, t->r->pid, (uint32_t)t->numbers[1], (uint32_t)t->numbers[2], t->ticks);
	t->r->announces = true;
	if (before && before != t->r->process) t->r->thread = t->r->group_serial = 0;
	tm_process_is_seen_as(t->c, t->r->process, (uint32_t)t->numbers[0], (uint32_t)(t->numbers[3] >> 32));
}

static void replace_text(char **where, const struct control *t) {
	free(*where);
	*where = tm_memory_copy_text(t->text, t->text_bytes);
}

static void take_info(const struct control *t) {
	if (!t->p->announcing) return;
	if (t->x == TM_INFO_EXE) replace_text(&t->p->exe, t);
	if (t->x == TM_INFO_COMMAND) {
		replace_text(&t->p->command, t);
		t->p->command_bytes = t->text_bytes;
	}
	if (t->x == TM_INFO_ENV) tm_launcher_take(tm_process_launcher(t->p), t->text, t->text_bytes);
}

/* A look at the loader's list, while which other threads go on without, takes far less; but who looks may have to wait for a processor. */
#define LOOK_NS 1000000000u

static void take_module(const struct control *t) {
	size_t id_bytes = t->x < t->text_bytes ? t->x : t->text_bytes;
	const char *path = t->text + id_bytes;
	size_t path_bytes = t->text_bytes - id_bytes;
	tm_module_loaded(t->c, t->p, t->ticks, LOOK_NS, t->numbers[0], t->numbers[1], t->numbers[2], path, path_bytes, t->text, id_bytes);
}

static void take_unload(const struct control *t) {
	tm_module_unloaded(t->c, t->p, t->ticks, t->numbers[0], t->numbers[1]);
}

static void take_life(const struct control *t, enum tm_life_kind kind) {
	struct tm_life_event event = { .kind = kind, .ticks = t->ticks, .process = t->p, .pid = (uint32_t)t->numbers[0], .status = -1 };
	if (kind == TM_LIFE_EXEC || kind == TM_LIFE_FORK) event.class = (enum tm_exec_class)t->x;
	if (kind == TM_LIFE_WAIT) {
		event.status = (int)t->numbers[1];
		event.traces = t->x != 0;
	}
	tm_process_life(t->c, event, kind == TM_LIFE_EXEC ? t->text : NULL, t->text_bytes);
}

static void take_fork(const struct control *t) {
	take_life(t, TM_LIFE_FORK);
}

static void take_spawn(const struct control *t) {
	take_life(t, TM_LIFE_SPAWN);
}

static void take_exec(const struct control *t) {
	take_life(t, TM_LIFE_EXEC);
}

static void take_exec_failed(const struct control *t) {
	take_life(t, TM_LIFE_EXEC_FAILED);
}

static void take_wait(const struct control *t) {
	take_life(t, TM_LIFE_WAIT);
}

static void take_exit_begin(const struct control *t) {
	tm_pools_settle(t->c, t->p);
	tm_process_exit_begins(t->c, t->p, t->ticks);
	if (t->c->options.interval_ms) tm_sampler_ask(&t->c->sampler, t->p->id);
}

static void take_exit(const struct control *t) {
	t->p->exited = true;
	t->p->exit_status = (int)(t->numbers[0] & 0xff) << 8; /* as wait(2) would tell it */
}

static void take_note(const struct control *t) {
	const char *zero = memchr(t->text, 0, t->text_bytes);
	size_t kind_bytes = zero ? (size_t)(zero - t->text) : 0, skip = zero ? kind_bytes + 1 : 0;
	struct tm_meta *meta = tm_group_add(t->c->group, TM_RECORD_NOTE);
	meta->note.process = t->p->id;
	meta->note.ns = t->ticks;
	meta->note.kind = zero ? tm_group_text(t->c->group, t->text, kind_bytes) : tm_text_of("note");
	meta->note.text = tm_group_text(t->c->group, t->text + skip, t->text_bytes - skip);
	t->c->is_bypassed |= t->x != 0 || tm_is_note(meta->note.kind, TM_NOTE_NO_CLOCK);
}

static uint32_t thread_of(const struct control *t) {
	struct tm_ring_view *r = t->r;
	if (!r->thread) r->thread = tm_thread_id(t->c, t->p, r->thread_number, r->tid, r->start_ticks);
	return r->thread;
}

static void take_thread_end(const struct control *t) {
	thread_of(t);
	t->r->thread_ended = true;
	if (t->text_bytes) tm_thread_named(t->c, t->p, t->r->thread_number, t->text, t->text_bytes);
	tm_thread_ended(t->c, t->p, t->r->thread_number, t->ticks > t->r->end_ticks ? t->ticks : t->r->end_ticks);
}

static void take_thread_name(const struct control *t) {
	thread_of(t);
	tm_thread_named(t->c, t->p, t->r->thread_number, t->text, t->text_bytes);
}

static void take_category(const struct control *t) {
	tm_category_told(t->c, t->p, t->x, t->text, t->text_bytes);
}

static void take_heap(const struct control *t) {
	size_t name_bytes = t->x < t->text_bytes ? t->x : t->text_bytes;
	tm_heap_told(t->c, t->p, t->numbers[0], t->numbers[1], t->numbers[2], t->text, name_bytes, t->text + name_bytes, t->text_bytes - name_bytes);
}

static void take_stats(const struct control *t) {
	tm_stats_asked(t->c, t->p, t->numbers[0], t->ticks, t->text, t->text_bytes);
}

static void take_pool(const struct control *t) {
	const struct tm_pool_numbers n = { t->ticks, t->numbers[1], t->numbers[2], t->numbers[3], t->numbers[4] };
	tm_pool_told(t->c, t->p, t->numbers[0], &n);
}

static void take_activity(const struct control *t) {
	tm_gpu_take_activity(t->c, t->r, t->x, t->numbers, t->text, t->text_bytes);
}

static void take_device(const struct control *t) {
	tm_gpu_take_device(t->c, t->p, t->x, t->numbers, t->text, t->text_bytes);
}

static void take_lost(const struct control *t) {
	const char *zero = memchr(t->text, 0, t->text_bytes);
	char kind[64], reason[256];
	size_t kind_bytes = zero ? (size_t)(zero - t->text) : 0, reason_bytes = zero ? t->text_bytes - kind_bytes - 1 : 0;
	if (kind_bytes >= sizeof kind || reason_bytes >= sizeof reason || t->numbers[0] > UINT32_MAX) return;
	memcpy(kind, t->text, kind_bytes);
	memcpy(reason, t->text + kind_bytes + 1, reason_bytes);
	kind[kind_bytes] = reason[reason_bytes] = 0;
	tm_drain_add_lost_records(t->c, t->r, kind, t->numbers[0], reason);
}

static void take_python_run(const struct control *t) {
	tm_python_take_run(t->c, t->r, t->x == 0, t->numbers[0], t->numbers[1]);
}

static void take_python_code(const struct control *t) {
	tm_python_take_code(t->c, t->r, t->numbers[0], t->numbers[1], t->x, t->text, t->text_bytes);
}

static const struct row { /* numbers: how many words stand between the ticks and the text */
	uint8_t op, numbers;
	bool text, keeps_announcing;
	void (*take)(const struct control *t);
} rows[] = {
	{ TM_CTL_PROCESS, 4, false, true, take_process },
	{ TM_CTL_INFO, 0, true, true, take_info },
	{ TM_CTL_MODULE, 3, true, false, take_module },
	{ TM_CTL_UNLOAD, 2, false, false, take_unload },
	{ TM_CTL_FORK, 1, false, false, take_fork },
	{ TM_CTL_EXEC, 1, true, false, take_exec },
	{ TM_CTL_EXEC_FAILED, 1, false, false, take_exec_failed },
	{ TM_CTL_SPAWN, 1, false, false, take_spawn },
	{ TM_CTL_WAIT, 2, false, false, take_wait },
	{ TM_CTL_EXIT_BEGIN, 0, false, false, take_exit_begin },
	{ TM_CTL_EXIT, 1, false, false, take_exit },
	{ TM_CTL_NOTE, 0, true, false, take_note },
	{ TM_CTL_THREAD_END, 0, true, false, take_thread_end },
	{ TM_CTL_THREAD_NAME, 0, true, false, take_thread_name },
	{ TM_CTL_CATEGORY, 0, true, false, take_category },
	{ TM_CTL_HEAP, 3, true, false, take_heap },
	{ TM_CTL_PYTHON_RUN, 2, false, false, take_python_run },
	{ TM_CTL_PYTHON_CODE, 2, true, false, take_python_code },
	{ TM_CTL_POOL, 5, false, false, take_pool },
	{ TM_CTL_STATS, 1, true, false, take_stats },
	{ TM_CTL_ACTIVITY, 6, true, false, take_activity },
	{ TM_CTL_DEVICE, 2, true, false, take_device },
	{ TM_CTL_LOST, 1, true, false, take_lost },
};

/* Joins the pieces of a text. True: it is whole, and in t->text. */
static bool join_text(struct control *t, uint8_t op, bool more) {
	struct tm_ring_view *r = t->r;
	if (!more && !r->text_bytes) return true;
	if (r->text_bytes && (r->text_op != op || r->text_key != t->x)) r->text_bytes = 0; /* the rest of that one never came */
	if (r->text_bytes + t->text_bytes <= TEXT_MAX) {
		r->text = tm_memory_grow(r->text, &r->text_capacity, r->text_bytes + t->text_bytes, 1);
		if (t->text_bytes) memcpy(r->text + r->text_bytes, t->text, t->text_bytes);
		r->text_bytes += t->text_bytes;
	}
	r->text_op = op;
	r->text_key = t->x;
	if (more) return false;
	t->text = (const char *)r->text;
	t->text_bytes = r->text_bytes;
	r->text_bytes = 0;
	return true;
}

bool tm_control_take(struct tm_collector *c, struct tm_ring_view *r, const uint64_t *words, size_t n) {
	uint8_t op = (uint8_t)words[0], flags = (uint8_t)(words[0] >> 8);
	uint32_t x = (uint32_t)(words[0] >> 32 & 0xffff), y = (uint32_t)(words[0] >> 48);
	const struct row *row = rows;
	if (op == TM_CTL_PYTHON_STACK) return r->process && y == n - 2 && tm_python_take_stack(r, x, words + 2, n - 2);
	while (row < rows + sizeof rows / sizeof rows[0] && row->op != op) row++;
	if (row == rows + sizeof rows / sizeof rows[0]) return false;
	size_t text_words = row->text ? ((size_t)y + 7) / 8 : 0;
	if (n != 2u + row->numbers + text_words || (row->text && y > TM_RING_TEXT_MAX)) return false;
	if (!r->process && op != TM_CTL_PROCESS) return false;
	if (r->process && r->process->announcing && !row->keeps_announcing) tm_process_need_row(c, r->process);
	struct control t = { c, r, r->process, words[1], x, words + 2, (const char *)(words + 2 + row->numbers), row->text ? y : 0 };
	if (row->text && !join_text(&t, op, flags & TM_RING_MORE)) return true;
	row->take(&t);
	return true;
}
