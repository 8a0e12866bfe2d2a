/* encode.c - from a group to chunks: see encode.h. */
#include "encode.h"

#include "memory.h"
#include "own_thread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define QUEUE_MAX 2u
#define META_PAYLOAD_MAX (8u << 20) /* then another META chunk begins */

/* --- META --- */

static const char *const reading_names[] = {
#define X(id, name) name,
	TM_READINGS(X)
#undef X
};

/* device_used:N, what the process itself holds, and so on. */
static void put_device_reading(struct tm_bytes *b, const struct tm_reading *r, uint64_t ns) {
	static const char *const names[] = { "device_used", "device_all", "device_total" };
	const uint64_t values[] = { r->device.own_bytes, r->device.all_bytes, r->device.total_bytes };
	struct tm_sample samples[3];
	char texts[3][32];
	size_t n = 0;
	for (size_t i = 0; i < 3; i++) {
		if (values[i] == UINT64_MAX) continue;
		snprintf(texts[n], sizeof texts[n], "%s:%u", names[i], r->device.number_plus_1 - 1);
		samples[n] = (struct tm_sample){ tm_text_of(texts[n]), values[i] };
		n++;
	}
	if (n) tm_put_samples(b, r->process, ns, samples, n);
}

static void put_reading(struct tm_bytes *b, const struct tm_reading *r, uint64_t ns) {
	struct tm_sample samples[TM_READING_COUNT];
	size_t n = 0;
	if (r->device.number_plus_1) {
		put_device_reading(b, r, ns);
		return;
	}
	for (size_t i = 0; i < TM_READING_COUNT; i++)
		if (r->known & 1u << i) samples[n++] = (struct tm_sample){ tm_text_of(reading_names[i]), r->values[i] };
	tm_put_samples(b, r->process, ns, samples, n);
}

static void put_meta(struct tm_bytes *b, struct tm_meta *m, const struct tm_time_map *map) {
	switch (m->tag) {
	case TM_RECORD_INFO: tm_put_info(b, m->info.key, m->info.value); break;
	case TM_RECORD_STRING: tm_put_string_record(b, m->string.id, m->string.bytes); break;
	case TM_RECORD_PROCESS_START:
		m->process_start.start_ns = tm_time_map_ns(map, m->process_start.start_ns);
		tm_put_process_start(b, &m->process_start);
		break;
	case TM_RECORD_PROCESS_EXIT:
		m->process_exit.ns = tm_time_map_ns(map, m->process_exit.ns);
		tm_put_process_exit(b, &m->process_exit);
		break;
	case TM_RECORD_PROCESS_END:
		m->process_end.ns = tm_time_map_ns(map, m->process_end.ns);
		tm_put_process_end(b, &m->process_end);
		break;
	case TM_RECORD_THREAD_START:
		m->thread_start.start_ns = tm_time_map_ns(map, m->thread_start.start_ns);
		tm_put_thread_start(b, &m->thread_start);
		break;
	case TM_RECORD_THREAD_END:
		m->thread_end.ns = tm_time_map_ns(map, m->thread_end.ns);
		tm_put_thread_end(b, &m->thread_end);
		break;
	case TM_RECORD_THREAD_NAME: tm_put_thread_name(b, &m->thread_name); break;
	case TM_RECORD_MODULE_LOAD:
		m->module_load.ns = tm_time_map_ns(map, m->module_load.ns);
		tm_put_module_load(b, &m->module_load);
		break;
	case TM_RECORD_MODULE_UNLOAD:
		m->module_unload.ns = tm_time_map_ns(map, m->module_unload.ns);
		tm_put_module_unload(b, &m->module_unload);
		break;
	case TM_RECORD_HEAP: tm_put_heap(b, &m->heap); break;
	case TM_RECORD_FRAME_MODULE: tm_put_frame_module(b, &m->frame_module); break;
	case TM_RECORD_SAMPLES: put_reading(b, &m->samples, tm_time_map_ns(map, m->samples.ns)); break;
	case TM_RECORD_NOTE:
		m->note.ns = tm_time_map_ns(map, m->note.ns);
		tm_put_note(b, &m->note);
		break;
	case TM_RECORD_LOSS:
		m->loss.ns = tm_time_map_ns(map, m->loss.ns);
		tm_put_loss(b, &m->loss);
		break;
	case TM_RECORD_POOL_STATE:
		m->pool_state.ns = tm_time_map_ns(map, m->pool_state.ns);
		tm_put_pool_state(b, &m->pool_state);
		break;
	case TM_RECORD_OOM: tm_put_oom(b, &m->oom); break;
	case TM_RECORD_DEVICE: tm_put_device(b, &m->device); break;
	case TM_RECORD_NAME: tm_put_name(b, m->name.frame, &m->name.function, 1); break;
	case TM_RECORD_MARK: /* of an alert; the program's are events */
		if (!m->mark.is_ns) m->mark.record.ns = tm_time_map_ns(map, m->mark.record.ns);
		tm_put_mark(b, &m->mark.record);
		break;
	case TM_RECORD_ALERT:
		if (!m->alert.is_ns) m->alert.record.ns = tm_time_map_ns(map, m->alert.record.ns);
		tm_put_alert(b, &m->alert.record);
		break;
	/* Watermarks and totals are not put into groups. */
	case TM_RECORD_WATERMARK:
	case TM_RECORD_TOTALS: break;
	}
}

static void add_payload(struct tm_encoder_thread *e, uint8_t kind, const struct tm_bytes *payload) {
	int result = payload->failed ? TM_CHUNK_NO_MEMORY : tm_writer_add_chunk(e->writer, kind, payload->data, payload->size);
	if (result && !e->writer->error) e->writer->error = result == TM_CHUNK_NO_MEMORY ? ENOMEM : EFBIG;
}

static void add_chunk(struct tm_encoder_thread *e, uint8_t kind) {
	add_payload(e, kind, &e->payload);
	tm_bytes_clear(&e->payload);
}

/* Frames are named, and their modules corrected, only after the STACKS chunk that defines them: `late` says which records are wanted. */
static bool is_late(const struct tm_group *g, const struct tm_meta *m) {
	if (m->tag == TM_RECORD_NAME) return true;
	return m->tag == TM_RECORD_FRAME_MODULE && g->frame_count && m->frame_module.frame >= g->first_frame;
}

static void write_meta(struct tm_encoder_thread *e, struct tm_group *g, bool late) {
	for (size_t i = 0; i < g->meta_count; i++) {
		if (is_late(g, &g->meta[i]) != late) continue;
		put_meta(&e->payload, &g->meta[i], &g->time_map);
		if (e->payload.size >= META_PAYLOAD_MAX) add_chunk(e, TM_CHUNK_META);
	}
	if (e->payload.size) add_chunk(e, TM_CHUNK_META);
}

static void write_threads_again(struct tm_encoder_thread *e, const struct tm_group *g) {
	tm_flight_tell_again(e->flight, g, &e->payload);
	if (e->payload.size) add_chunk(e, TM_CHUNK_META);
}

/* --- STACKS --- */

static void write_stacks(struct tm_encoder_thread *e, const struct tm_group *g) {
	if (!g->frame_count && !g->nodes.count) return;
	/* first ids of an empty array do not matter, but 1 keeps them in range */
	tm_put_stacks_by_column(&e->payload, g->frame_count ? g->first_frame : 1, g->frames, g->frame_count, g->nodes.count ? g->first_node : 1,
				&g->nodes);
	add_chunk(e, TM_CHUNK_STACKS);
}

/* --- EVENTS --- */

static void write_events(struct tm_encoder_thread *e, const struct tm_group *g) {
	if (!g->payload.size && !g->payload.failed) return;
	if (!e->is_full) add_payload(e, TM_CHUNK_EVENTS, &g->payload);
	if (!e->is_full && e->limit_bytes && e->writer->bytes + e->writer->pending.size > e->limit_bytes) {
		tm_writer_drop_last(e->writer);
		e->is_full = true;
	}
}

static void count_events(struct tm_encoder_thread *e, const struct tm_group *g, bool written) {
	uint64_t blocks = g->event_count - g->text_count + g->double_count;
	if (!written) {
		e->left_out_events += blocks;
		e->left_out_records += g->text_count;
		return;
	}
	e->written_events += blocks;
	e->events += g->event_count;
	if (g->end_ns > e->end_ns) e->end_ns = g->end_ns;
}

/* --- ACTIVITY --- */

static int by_process(const void *a, const void *b) {
	const struct tm_group_activity *x = a, *y = b;
	if (x->process != y->process) return x->process < y->process ? -1 : 1;
	return (x->activity.start_ns > y->activity.start_ns) - (x->activity.start_ns < y->activity.start_ns);
}

/* One chunk a process. In order of time the columns are smaller. */
static void write_activities(struct tm_encoder_thread *e, struct tm_group *g) {
	if (!g->activity_count) return;
	struct tm_activity *all = tm_memory_new(g->activity_count, sizeof *all);
	qsort(g->activities, g->activity_count, sizeof g->activities[0], by_process);
	for (size_t first = 0, n; first < g->activity_count; first += n) {
		uint32_t process = g->activities[first].process;
		for (n = 0; first + n < g->activity_count && g->activities[first + n].process == process; n++) {
			all[n] = g->activities[first + n].activity;
			all[n].start_ns = tm_time_map_ns(&g->time_map, all[n].start_ns);
			all[n].end_ns = tm_time_map_ns(&g->time_map, all[n].end_ns);
		}
		tm_put_activities(&e->payload, process, all, n);
		add_chunk(e, TM_CHUNK_ACTIVITY);
	}
	free(all);
}

void tm_encoder_write_now(struct tm_encoder_thread *e, struct tm_group *g) {
	if (!e->writer->error) {
		if (e->flight) write_threads_again(e, g);
		write_meta(e, g, false);
		write_stacks(e, g);
		write_meta(e, g, true);
		if (g->names.size || g->names.failed) add_payload(e, TM_CHUNK_NAMES, &g->names);
		write_activities(e, g);
		write_events(e, g);
		if (e->flight) tm_flight_make_room(e->flight, g);
	}
	bool written = tm_writer_flush(e->writer) == 0;
	count_events(e, g, written && !e->is_full);
	if (written && e->flight) tm_flight_turn(e->flight);
	if (!g->dump || !e->dumps) return;
	if (e->writer->error) tm_dumps_fail(e->dumps, e->writer, e->writer->error);
	else tm_dumps_write(e->dumps, e->writer, e->events, e->end_ns);
}

/* --- the thread --- */

static struct tm_group *queue_pop(struct tm_group **queue) {
	struct tm_group *g = *queue;
	if (g) *queue = g->next;
	return g;
}

/* Under the lock, but for the work itself. */
static void write_first(struct tm_encoder_thread *e) {
	struct tm_group *g = queue_pop(&e->waiting);
	pthread_mutex_unlock(&e->lock);
	tm_encoder_write_now(e, g);
	tm_group_clear(g);
	pthread_mutex_lock(&e->lock);
	e->waiting_count--;
	g->next = e->empty;
	e->empty = g;
	pthread_cond_broadcast(&e->changed);
}

#define NICE 10 /* where processors are scarce the program and the drainer come first: what waits here can wait. Against others it keeps a tenth of one. */

static void *run(void *argument) {
	struct tm_encoder_thread *e = argument;
	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
	pthread_mutex_lock(&e->lock);
	while (e->waiting || !e->stopping) {
		if (e->waiting) write_first(e);
		else pthread_cond_wait(&e->changed, &e->lock);
	}
	pthread_mutex_unlock(&e->lock);
	return NULL;
}

void tm_encoder_start(struct tm_encoder_thread *e, struct tm_writer *writer) {
	pthread_condattr_t attributes;
	memset(e, 0, sizeof *e);
	e->writer = writer;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_mutex_init(&e->lock, NULL);
	pthread_cond_init(&e->changed, &attributes);
	pthread_condattr_destroy(&attributes);
}

struct tm_group *tm_encoder_take(struct tm_encoder_thread *e) {
	pthread_mutex_lock(&e->lock);
	struct tm_group *g = queue_pop(&e->empty);
	pthread_mutex_unlock(&e->lock);
	if (!g) g = tm_memory_new(1, sizeof *g);
	g->serial = ++e->last_serial;
	g->next = NULL;
	return g;
}

/* The group in work counts too. */
static bool room(const struct tm_encoder_thread *e) {
	return e->waiting_count < QUEUE_MAX + 1;
}

bool tm_encoder_wait_for_room(struct tm_encoder_thread *e, uint64_t timeout_ns) {
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	uint64_t ns = (uint64_t)until.tv_nsec + timeout_ns;
	until.tv_sec += (time_t)(ns / 1000000000u);
	until.tv_nsec = (long)(ns % 1000000000u);
	pthread_mutex_lock(&e->lock);
	while (!room(e) && pthread_cond_timedwait(&e->changed, &e->lock, &until) == 0) continue;
	bool has = room(e);
	pthread_mutex_unlock(&e->lock);
	return has;
}

static void write_all(struct tm_encoder_thread *e) {
	pthread_mutex_lock(&e->lock);
	while (e->waiting) write_first(e);
	pthread_mutex_unlock(&e->lock);
}

void tm_encoder_submit(struct tm_encoder_thread *e, struct tm_group *g) {
	pthread_mutex_lock(&e->lock);
	struct tm_group **end = &e->waiting;
	while (*end) end = &(*end)->next;
	*end = g;
	g->next = NULL;
	e->waiting_count++;
	pthread_cond_broadcast(&e->changed);
	pthread_mutex_unlock(&e->lock);
	if (e->running || (e->expects_end && e->waiting_count == 1)) return;
	e->running = tm_own_thread_start(&e->thread, run, e);
	if (!e->running) write_all(e);
}

void tm_encoder_expect_end(struct tm_encoder_thread *e) {
	e->expects_end = true;
}

void tm_encoder_stop(struct tm_encoder_thread *e) {
	if (e->running) {
		pthread_mutex_lock(&e->lock);
		e->stopping = true;
		pthread_cond_broadcast(&e->changed);
		pthread_mutex_unlock(&e->lock);
		pthread_join(e->thread, NULL);
		e->running = false;
	}
	if (e->waiting) write_all(e);
}

void tm_encoder_wait_until_written(struct tm_encoder_thread *e) {
	pthread_mutex_lock(&e->lock);
	while (e->waiting_count) pthread_cond_wait(&e->changed, &e->lock);
	pthread_mutex_unlock(&e->lock);
}

void tm_encoder_release(struct tm_encoder_thread *e) {
	struct tm_group *g;
	while ((g = queue_pop(&e->empty))) tm_group_release(g);
	tm_bytes_release(&e->payload);
}
