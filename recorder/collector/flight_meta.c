/* flight_meta.c - keeps the definitions of dropped chunks: see flight_meta.h. */
#include "flight_meta.h"

#include "memory.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES (8u << 20)
#define CHUNK_ROWS (1u << 20)     /* frames or nodes of a STACKS chunk */
#define SETTLED_NS 10000000000ull /* nothing is told any more of what ended so long ago */

/* --- records --- */

static void put_raw(struct tm_bytes *b, uint64_t tag, const struct tm_cursor *body) {
	tm_put_varint(b, tag);
	tm_put_string(b, body->p, (size_t)(body->end - body->p));
}

static struct tm_flight_thread *thread_at(struct tm_flight_meta *m, uint64_t id) {
	if (id >= UINT32_MAX) return NULL;
	if (id >= m->thread_count) {
		m->threads = tm_memory_grow(m->threads, &m->thread_capacity, id + 1, sizeof m->threads[0]);
		memset(m->threads + m->thread_count, 0, (id + 1 - m->thread_count) * sizeof m->threads[0]);
		m->thread_count = id + 1;
	}
	return &m->threads[id];
}

static void take_thread_start(struct tm_flight_meta *m, struct tm_cursor *body) {
	struct tm_thread_start r = tm_get_thread_start(body);
	struct tm_flight_thread *t = thread_at(m, r.id);
	if (!t) return;
	t->gone = t->told_again = false;
	if (t->process) return;
	t->process = (uint32_t)r.process;
	t->tid = r.tid;
	t->start_ns = r.start_ns;
}

static void take_thread_end(struct tm_flight_meta *m, struct tm_cursor *body) {
	struct tm_thread_end r = tm_get_thread_end(body);
	struct tm_flight_thread *t = thread_at(m, r.thread);
	if (t) t->end_ns = r.ns;
}

static void take_thread_name(struct tm_flight_meta *m, struct tm_cursor *body) {
	struct tm_thread_name r = tm_get_thread_name(body);
	struct tm_flight_thread *t = thread_at(m, r.thread);
	if (!t) return;
	free(t->name);
	t->name = tm_memory_copy_text(r.name.data, r.name.size);
	t->name_bytes = r.name.size;
}

static void take_process_end(struct tm_flight_meta *m, struct tm_cursor body) {
	struct tm_process_end r = tm_get_process_end(&body);
	m->ended = tm_memory_grow(m->ended, &m->ended_capacity, m->ended_count + 1, sizeof m->ended[0]);
	m->ended[m->ended_count++] = (struct tm_flight_ended){ (uint32_t)r.process, r.ns };
}

static void take_process_start(struct tm_flight_set *set, struct tm_cursor body) {
	struct tm_process_start r = tm_get_process_start(&body);
	if (!body.bad && r.id < UINT32_MAX && r.flags & TM_PROCESS_FORKED) tm_flight_set_inherits(set, (uint32_t)r.id);
}

static struct tm_flight_loss *find_loss(const struct tm_flight_meta *m, uint64_t process, struct tm_text kind) {
	for (size_t i = 0; i < m->loss_count; i++) {
		struct tm_flight_loss *l = &m->losses[i];
		if (l->process == process && strlen(l->kind) == kind.size && memcmp(l->kind, kind.data, kind.size) == 0) return l;
	}
	return NULL;
}

/* Where there are very many, those that come later are the recording's, not their process'. */
static void take_loss(struct tm_flight_meta *m, struct tm_flight_set *set, struct tm_cursor *body) {
	struct tm_loss r = tm_get_loss(body);
	if (!body->bad && r.process && r.process < UINT32_MAX) tm_flight_set_has_gaps(set, (uint32_t)r.process);
	struct tm_flight_loss *l = find_loss(m, r.process, r.kind);
	uint64_t process = !l && m->loss_count >= TM_FLIGHT_LOSSES ? 0 : r.process;
	if (!l && !process) l = find_loss(m, 0, r.kind);
	if (!l) {
		m->losses = tm_memory_grow(m->losses, &m->loss_capacity, m->loss_count + 1, sizeof m->losses[0]);
		l = &m->losses[m->loss_count++];
		*l = (struct tm_flight_loss){ .kind = tm_memory_copy_text(r.kind.data, r.kind.size),
					      .reason = tm_memory_copy_text(r.reason.data, r.reason.size),
					      .process = process };
	}
	l->count += r.count;
	l->bytes += r.bytes;
	l->ns = r.ns;
}

static void take_frame_module(struct tm_flight_meta *m, struct tm_cursor *body) {
	struct tm_frame_module r = tm_get_frame_module(body);
	if (r.frame && r.frame <= m->frame_count) m->frames[r.frame - 1].module = r.module;
}

/* Readers go by these: a process without its own would be taken for another. */
static bool has_meaning(struct tm_cursor body) {
	static const char *const kinds[] = { TM_NOTE_WORLD,         TM_NOTE_STOPPED_BY_SIZE, TM_NOTE_BYPASSED, TM_NOTE_OTHER_MALLOC,
					     TM_NOTE_STILL_RUNNING, TM_NOTE_NO_CLOCK,        "suppressions" };
	struct tm_note r = tm_get_note(&body);
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (!body.bad && tm_is_note(r.kind, kinds[i])) return true;
	return false;
}

static void take_talk(struct tm_flight_meta *m, uint64_t tag, const struct tm_cursor *body) {
	size_t bytes = tag == TM_RECORD_NOTE && has_meaning(*body) ? 0 : (size_t)(body->end - body->p);
	if (m->talk_bytes + bytes > TM_FLIGHT_TALK_BYTES) {
		m->talk_left_out++;
		return;
	}
	m->talk_bytes += bytes;
	put_raw(&m->head, tag, body);
}

static void take_refusal(struct tm_flight_meta *m, struct tm_cursor body) {
	struct tm_cursor whole = body;
	struct tm_oom r = tm_get_oom(&body);
	if (!m->refusals.size) m->first_refusal = r.id;
	put_raw(&m->refusals, TM_RECORD_OOM, &whole);
}

static void take_record(struct tm_flight_meta *m, struct tm_flight_set *set, uint64_t tag, struct tm_cursor *body) {
	struct tm_cursor whole = *body;
	switch (tag) {
	case TM_RECORD_THREAD_START: take_thread_start(m, body); break;
	case TM_RECORD_THREAD_END: take_thread_end(m, body); break;
	case TM_RECORD_THREAD_NAME: take_thread_name(m, body); break;
	case TM_RECORD_PROCESS_START:
		put_raw(&m->head, tag, &whole);
		take_process_start(set, whole);
		break;
	case TM_RECORD_PROCESS_END:
		put_raw(&m->head, tag, &whole);
		take_process_end(m, whole);
		break;
	case TM_RECORD_LOSS: take_loss(m, set, body); break;
	case TM_RECORD_FRAME_MODULE: take_frame_module(m, body); break;
	case TM_RECORD_NOTE:
	case TM_RECORD_ALERT: take_talk(m, tag, &whole); break;
	case TM_RECORD_NAME: put_raw(&m->late, tag, &whole); break;
	case TM_RECORD_OOM: take_refusal(m, whole); break;
	case TM_RECORD_SAMPLES:
	case TM_RECORD_MARK:
	case TM_RECORD_POOL_STATE:
	case TM_RECORD_WATERMARK:
	case TM_RECORD_TOTALS: break;
	default: put_raw(&m->head, tag, &whole); break;
	}
}

int tm_flight_meta_records(struct tm_flight_meta *m, struct tm_flight_set *set, struct tm_cursor payload) {
	uint64_t tag;
	struct tm_cursor body;
	while (tm_record_next(&payload, &tag, &body)) {
		take_record(m, set, tag, &body);
		if (body.bad) return -1;
	}
	return payload.bad ? -1 : 0;
}

int tm_flight_meta_stacks(struct tm_flight_meta *m, struct tm_cursor payload) {
	struct tm_stacks s = { 0 };
	int result = tm_get_stacks(&payload, &s);
	if (result == 0) {
		m->frames = tm_memory_grow(m->frames, &m->frame_capacity, m->frame_count + s.frame_count, sizeof m->frames[0]);
		m->nodes = tm_memory_grow(m->nodes, &m->node_capacity, m->node_count + s.node_count, sizeof m->nodes[0]);
		if (s.frame_count) memcpy(m->frames + m->frame_count, s.frames, s.frame_count * sizeof s.frames[0]);
		if (s.node_count) memcpy(m->nodes + m->node_count, s.nodes, s.node_count * sizeof s.nodes[0]);
		m->frame_count += s.frame_count;
		m->node_count += s.node_count;
	}
	tm_stacks_release(&s);
	return result;
}

uint32_t tm_flight_meta_process(struct tm_flight_meta *m, uint64_t thread) {
	if (thread >= m->thread_count) return 0;
	m->threads[thread].gone = false; /* it is not over with it */
	return m->threads[thread].process;
}

static void put_thread(struct tm_bytes *b, uint32_t id, const struct tm_flight_thread *t) {
	tm_put_thread_start(b, &(struct tm_thread_start){ id, t->process, t->tid, t->start_ns });
	if (t->name) tm_put_thread_name(b, &(struct tm_thread_name){ id, { t->name, t->name_bytes } });
	if (t->end_ns) tm_put_thread_end(b, &(struct tm_thread_end){ id, t->end_ns });
}

void tm_flight_meta_tell_again(struct tm_flight_meta *m, uint64_t thread, struct tm_bytes *out) {
	struct tm_flight_thread *t = thread < m->thread_count ? &m->threads[thread] : NULL;
	if (!t || !t->left_out) return;
	put_thread(out, (uint32_t)thread, t);
	t->left_out = false;
	t->told_again = true;
}

void tm_flight_meta_names(struct tm_flight_meta *m, uint64_t thread, uint64_t until) {
	struct tm_flight_thread *t = thread_at(m, thread);
	if (t) t->named_until = until;
}

/* --- forgetting --- */

void tm_flight_meta_forget(struct tm_flight_meta *m, struct tm_flight_set *set, uint64_t watermark_ns) {
	size_t kept = 0;
	for (size_t i = 0; i < m->ended_count; i++) {
		struct tm_flight_ended e = m->ended[i];
		if (e.ns + SETTLED_NS > watermark_ns || tm_flight_set_process_waits(set, e.process)) {
			m->ended[kept++] = e;
			continue;
		}
		tm_flight_set_end_process(set, e.process);
		m->forgotten++;
	}
	m->ended_count = kept;
	for (uint32_t i = 0; i < m->thread_count; i++) {
		struct tm_flight_thread *t = &m->threads[i];
		if (t->gone || !t->end_ns || t->end_ns + SETTLED_NS > watermark_ns || tm_flight_set_waits(set, i)) continue;
		tm_flight_set_end_thread(set, i);
		t->gone = true;
	}
}

/* Those whose events are neither in the list nor in chunks that were not read back. Their ids go on from the first that stays. */
static void forget_refusals(struct tm_flight_meta *m, const struct tm_flight_list *list) {
	struct tm_cursor all = tm_cursor_over(m->refusals.data, m->refusals.size), body;
	uint64_t first = m->last_refusal + 1, tag;
	for (size_t i = 0; i < list->count; i++)
		if (list->events[i].event.op == TM_OP_OOM && list->events[i].event.addr < first) first = list->events[i].event.addr;
	while (m->first_refusal < first && tm_record_next(&all, &tag, &body)) m->first_refusal++;
	m->refusals.size = (size_t)(all.end - all.p);
	if (m->refusals.size) memmove(m->refusals.data, all.p, m->refusals.size);
}

/* --- writing --- */

static int add_chunk(struct tm_writer *w, uint8_t kind, const struct tm_bytes *b) {
	if (b->failed) return TM_CHUNK_NO_MEMORY;
	int result = tm_writer_add_chunk(w, kind, b->data, b->size);
	return result ? result : tm_writer_flush(w);
}

/* Records in chunks of a bounded size. */
static int write_records(struct tm_writer *w, const struct tm_bytes *records) {
	struct tm_cursor all = tm_cursor_over(records->data, records->size), body;
	const uint8_t *first = all.p;
	uint64_t tag;
	int result = records->failed ? TM_CHUNK_NO_MEMORY : 0;
	while (!result && first < all.end) {
		bool more = tm_record_next(&all, &tag, &body);
		if (more && (size_t)(all.p - first) < CHUNK_BYTES) continue;
		result = tm_writer_add_chunk(w, TM_CHUNK_META, first, (size_t)((more ? all.p : all.end) - first));
		if (!result) result = tm_writer_flush(w);
		first = more ? all.p : all.end;
	}
	return result;
}

static void put_threads(struct tm_flight_meta *m, const struct tm_flight_list *list, uint64_t read_back, struct tm_bytes *b) {
	bool *needed = tm_memory_new(m->thread_count + 1, sizeof *needed);
	for (size_t i = 0; i < list->count; i++)
		if (list->events[i].thread < m->thread_count) needed[list->events[i].thread] = true;
	for (uint32_t i = 0; i < m->thread_count; i++) {
		struct tm_flight_thread *t = &m->threads[i];
		if (!t->process || (t->told_again && !needed[i])) continue;
		t->left_out = t->gone && !needed[i] && t->named_until <= read_back;
		if (!t->left_out) put_thread(b, i, t);
	}
	free(needed);
}

static void put_losses(const struct tm_flight_meta *m, struct tm_bytes *b) {
	for (size_t i = 0; i < m->loss_count; i++) {
		const struct tm_flight_loss *l = &m->losses[i];
		tm_put_loss(b, &(struct tm_loss){ .process = l->process,
						  .ns = l->ns,
						  .kind = tm_text_of(l->kind),
						  .count = l->count,
						  .bytes = l->bytes,
						  .reason = tm_text_of(l->reason) });
	}
}

/* Frames first: nodes name them. */
static int write_stacks(const struct tm_flight_meta *m, struct tm_writer *w) {
	struct tm_bytes b = TM_BYTES_INIT;
	int result = 0;
	for (size_t at = 0, n; !result && at < m->frame_count; at += n) {
		n = m->frame_count - at < CHUNK_ROWS ? m->frame_count - at : CHUNK_ROWS;
		tm_bytes_clear(&b);
		tm_put_stacks(&b, at + 1, m->frames + at, n, 1, m->nodes, 0);
		result = add_chunk(w, TM_CHUNK_STACKS, &b);
	}
	for (size_t at = 0, n; !result && at < m->node_count; at += n) {
		n = m->node_count - at < CHUNK_ROWS ? m->node_count - at : CHUNK_ROWS;
		tm_bytes_clear(&b);
		tm_put_stacks(&b, 1, m->frames, 0, at + 1, m->nodes + at, n);
		result = add_chunk(w, TM_CHUNK_STACKS, &b);
	}
	tm_bytes_release(&b);
	return result;
}

int tm_flight_meta_write(struct tm_flight_meta *m, const struct tm_flight_list *list, uint64_t read_back, struct tm_writer *w) {
	struct tm_bytes b = TM_BYTES_INIT;
	int result = write_records(w, &m->head);
	forget_refusals(m, list);
	if (m->refusals.size) tm_put_raw(&b, m->refusals.data, m->refusals.size);
	b.failed |= m->refusals.failed;
	put_threads(m, list, read_back, &b);
	put_losses(m, &b);
	if (!result && b.size) result = write_records(w, &b);
	tm_bytes_release(&b);
	if (!result) result = write_stacks(m, w);
	if (!result) result = write_records(w, &m->late);
	return result;
}

void tm_flight_meta_release(struct tm_flight_meta *m) {
	for (size_t i = 0; i < m->thread_count; i++) free(m->threads[i].name);
	for (size_t i = 0; i < m->loss_count; i++) {
		free(m->losses[i].kind);
		free(m->losses[i].reason);
	}
	tm_bytes_release(&m->head);
	tm_bytes_release(&m->late);
	tm_bytes_release(&m->refusals);
	free(m->threads);
	free(m->ended);
	free(m->losses);
	free(m->frames);
	free(m->nodes);
	*m = (struct tm_flight_meta){ 0 };
}
