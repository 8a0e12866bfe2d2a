/* thread_table.c - rows of threads: see thread_table.h. */
#include "thread_table.h"

#include "collector.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

struct tm_thread_row {
	uint32_t id; /* in the trace */
	uint32_t tid;
	uint64_t end_ticks; /* as written; 0: none */
	bool named;         /* it told its name itself */
	char name[TM_KERNEL_NAME_BYTES]; /* as written, where it did not */
	const struct tm_process *process;
};

static uint64_t by_tid(uint32_t process, uint32_t tid) {
	return (uint64_t)process << 32 | tid;
}

uint32_t tm_thread_id(struct tm_collector *c, struct tm_process *p, uint32_t number, uint32_t tid, uint64_t start_ticks) {
	struct tm_process_table *t = &c->processes;
	tm_process_need_row(c, p);
	uint64_t key = (uint64_t)p->id << 32 | number;
	struct tm_thread_row *row = tm_id_map_get(&t->threads, key);
	if (row) return row->id;
	row = tm_memory_new(1, sizeof *row);
	row->id = ++t->last_thread;
	row->tid = tid;
	row->process = p;
	tm_id_map_set(&t->threads, key, row);
	tm_id_map_set(&t->threads_by_tid, by_tid(p->id, tid), row);
	struct tm_meta *meta = tm_group_add(c->group, TM_RECORD_THREAD_START);
	meta->thread_start = (struct tm_thread_start){ row->id, p->id, tid, start_ticks > p->start_ticks ? start_ticks : p->start_ticks };
	return row->id;
}

static struct tm_thread_row *thread_row(struct tm_collector *c, const struct tm_process *p, uint32_t number) {
	return tm_id_map_get(&c->processes.threads, (uint64_t)p->id << 32 | number);
}

static void write_name(struct tm_collector *c, const struct tm_thread_row *row, const char *name, size_t n) {
	struct tm_meta *meta = tm_group_add(c->group, TM_RECORD_THREAD_NAME);
	meta->thread_name.thread = row->id;
	meta->thread_name.name = tm_group_text(c->group, name, n);
}

void tm_thread_named(struct tm_collector *c, const struct tm_process *p, uint32_t number, const char *name, size_t n) {
	struct tm_thread_row *row = thread_row(c, p, number);
	if (!row) return;
	row->named = true;
	write_name(c, row, name, n);
}

/* What the first thread is called after an exec is the next program's. */
static void take_name(struct tm_collector *c, const struct tm_thread_name_read *read) {
	struct tm_thread_row *row = tm_id_map_get(&c->processes.threads_by_tid, by_tid(read->process, read->tid));
	if (!row || row->named || row->end_ticks || row->process->foreign || !strcmp(row->name, read->name)) return;
	if (read->tid == row->process->pid && (row->process->replaced || row->process->exec.announced)) return;
	memcpy(row->name, read->name, sizeof row->name);
	write_name(c, row, row->name, strlen(row->name));
}

void tm_threads_take_names(struct tm_collector *c, bool all) {
	struct tm_thread_names *held = &c->processes.held_names;
	do {
		for (size_t i = 0; i < held->count; i++) take_name(c, &held->all[i]);
		held->count = 0;
		tm_sampler_take_names(&c->sampler, held);
	} while (all && held->count);
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
