/* thread_table.c - rows of threads: see thread_table.h. */
#include "thread_table.h"

#include "collector.h"
#include "memory.h"

struct tm_thread_row {
	uint32_t id; /* in the trace */
	uint32_t tid;
	uint64_t end_ticks; /* as written; 0: none */
};

uint32_t tm_thread_id(struct tm_collector *c, struct tm_process *p, uint32_t number, uint32_t tid, uint64_t start_ticks) {
	struct tm_process_table *t = &c->processes;
	tm_process_need_row(c, p);
	uint64_t key = (uint64_t)p->id << 32 | number;
	struct tm_thread_row *row = tm_id_map_get(&t->threads, key);
	if (row) return row->id;
	row = tm_memory_new(1, sizeof *row);
	row->id = ++t->last_thread;
	row->tid = tid;
	tm_id_map_set(&t->threads, key, row);
	struct tm_meta *meta = tm_group_add(c->group, TM_RECORD_THREAD_START);
	meta->thread_start = (struct tm_thread_start){ row->id, p->id, tid, start_ticks > p->start_ticks ? start_ticks : p->start_ticks };
	return row->id;
}

void tm_thread_named(struct tm_collector *c, uint32_t id, const char *name, size_t n) {
	struct tm_meta *meta = tm_group_add(c->group, TM_RECORD_THREAD_NAME);
	meta->thread_name.thread = id;
	meta->thread_name.name = tm_group_text(c->group, name, n);
}

static struct tm_thread_row *thread_row(struct tm_collector *c, const struct tm_process *p, uint32_t number) {
	return tm_id_map_get(&c->processes.threads, (uint64_t)p->id << 32 | number);
}

void tm_thread_ended(struct tm_collector *c, const struct tm_process *p, uint32_t number, uint64_t ticks) {
	struct tm_thread_row *row = thread_row(c, p, number);
	if (!row || ticks <= row->end_ticks) return;
	row->end_ticks = ticks;
	tm_group_add(c->group, TM_RECORD_THREAD_END)->thread_end = (struct tm_thread_end){ row->id, ticks };
}

void tm_thread_left_ring(struct tm_collector *c, const struct tm_process *p, uint32_t number, bool alone, uint64_t last_event_ticks) {
	struct tm_thread_row *row = thread_row(c, p, number);
	if (row && (alone || row->end_ticks)) tm_thread_ended(c, p, number, last_event_ticks);
}
