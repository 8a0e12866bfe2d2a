/* python_stacks.c - see python_stacks.h. */
#include "python_stacks.h"

#include "../python_program.h"

#include "collector.h"
#include "controls.h"
#include "drain.h"
#include "memory.h"
#include "python_lines.h"
#include "ring_stack.h"

#include <stdlib.h>
#include <string.h>

#define CODES_MAX (1u << 24) /* numbers a ring may use */
#define DEPTH_MAX 8192u
#define NATIVE_CALLED ((uint64_t)1 << 63)

/* --- code objects --- */

/* The number of a set with one range more. */
static uint32_t run_set(struct tm_python_stacks *s, uint32_t before, struct tm_python_range added) {
	for (size_t i = 0; i < s->run_set_count; i++) {
		const struct tm_python_run_set *known = &s->run_sets[i];
		if (known->before == before && known->added.low == added.low && known->added.high == added.high) return (uint32_t)i + 1;
	}
	s->run_sets = tm_memory_grow(s->run_sets, &s->run_set_capacity, s->run_set_count + 1, sizeof s->run_sets[0]);
	s->run_sets[s->run_set_count++] = (struct tm_python_run_set){ before, added };
	return (uint32_t)s->run_set_count;
}

static void add_run(struct tm_collector *c, struct tm_python_ring *p, uint64_t low, uint64_t high) {
	if (p->run_count == TM_PYTHON_RUNS || low >= high) return;
	p->runs[p->run_count++] = (struct tm_python_range){ low, high };
	p->run_set = run_set(&c->python, p->run_set, p->runs[p->run_count - 1]);
}

void tm_python_take_run(struct tm_collector *c, struct tm_ring_view *r, bool first, uint64_t low, uint64_t high) {
	struct tm_python_ring *p = &r->python;
	if (first) p->run_count = p->run_set = 0;
	add_run(c, p, low, high);
	p->interpreter_epoch = 0;
	p->path++;
	tm_python_native_changed(p, 0);
}

static uint64_t hash_bytes(uint64_t h, const void *data, size_t n) {
	const uint8_t *bytes = data;
	for (size_t i = 0; i < n; i++) h = (h ^ bytes[i]) * 0x100000001b3u;
	return h;
}

static uint32_t intern(struct tm_collector *c, const char *text, size_t n) {
	return n ? tm_intern(c, text, n) : 0;
}

/* The id of a code object, by what it is: every ring sends its own. */
static uint32_t code_id(struct tm_collector *c, const struct tm_python_code_row *wanted) {
	struct tm_python_stacks *s = &c->python;
	uint64_t names = (uint64_t)wanted->function << 32 | wanted->file;
	uint32_t id = tm_pair_map_get(&s->code_ids, wanted->hash, names);
	if (id) return id;
	s->codes = tm_memory_grow(s->codes, &s->code_capacity, s->code_count + 1, sizeof s->codes[0]);
	struct tm_python_code_row *row = &s->codes[s->code_count++];
	*row = *wanted;
	row->table = (uint8_t *)tm_memory_copy_text((const char *)wanted->table, wanted->table_bytes);
	tm_pair_map_set(&s->code_ids, wanted->hash, names, (uint32_t)s->code_count);
	return (uint32_t)s->code_count;
}

void tm_python_take_code(struct tm_collector *c, struct tm_ring_view *r, uint64_t number, uint64_t lines, size_t file_bytes, const char *text, size_t n) {
	struct tm_python_ring *p = &r->python;
	if (file_bytes > n || number >= CODES_MAX) return;
	const char *name = text + file_bytes, *zero = memchr(name, 0, n - file_bytes);
	size_t name_bytes = zero ? (size_t)(zero - name) : n - file_bytes;
	const char *table = zero ? zero + 1 : name + name_bytes;
	struct tm_python_code_row row = { .function = intern(c, name, name_bytes),
					  .file = intern(c, text, file_bytes),
					  .first_line = (uint32_t)lines,
					  .kind = (uint32_t)(lines >> 32),
					  .table = (uint8_t *)(uintptr_t)table,
					  .table_bytes = (size_t)(text + n - table) };
	row.hash = hash_bytes(lines * 0x9E3779B97F4A7C15u, row.table, row.table_bytes);
	size_t old = p->code_capacity;
	p->codes = tm_memory_grow(p->codes, &p->code_capacity, (size_t)number + 1, sizeof p->codes[0]);
	if (p->code_capacity > old) memset(p->codes + old, 0, (p->code_capacity - old) * sizeof p->codes[0]);
	p->codes[number] = code_id(c, &row);
}

/* --- the Python path --- */

bool tm_python_take_stack(struct tm_ring_view *r, size_t keep, const uint64_t *words, size_t n) {
	struct tm_python_ring *p = &r->python;
	if (keep == 0) p->known = true;
	if (!p->known) return true;
	if (keep > p->depth || keep + n > DEPTH_MAX) return false;
	size_t depth = keep + n;
	p->merged = 0;
	p->path++;
	p->frames = tm_memory_grow(p->frames, &p->frame_capacity, depth, sizeof p->frames[0]);
	p->nodes = tm_memory_grow(p->nodes, &p->node_capacity, depth, sizeof p->nodes[0]);
	p->groups = tm_memory_grow(p->groups, &p->group_capacity, depth, sizeof p->groups[0]);
	if (p->valid > keep) p->valid = keep;
	while (p->group_count && p->groups[p->group_count - 1] >= keep) p->group_count--;
	for (size_t at = keep; at < depth; at++) {
		uint64_t word = words[depth - 1 - at];
		uint32_t number = (uint32_t)word, code = number < p->code_capacity ? p->codes[number] : 0;
		if (at == 0 || word & NATIVE_CALLED) p->groups[p->group_count++] = (uint32_t)at;
		p->frames[at] = (word >> 32 & 0x7fffffffu) << 32 | code;
	}
	p->depth = depth;
	return true;
}

/* --- merging --- */

/* 0: it is no frame of the program's. From 3.13 on the interpreter has one of its own around an __init__ that it calls, whose code has a name for its file,
 * too, and no lines. */
static uint32_t new_python_frame(struct tm_collector *c, const struct tm_ring_view *r, uint64_t word) {
	struct tm_python_stacks *s = &c->python;
	uint32_t code = (uint32_t)word, offset = (uint32_t)(word >> 32), line = 0;
	struct tm_python_code_row none = { 0 }, *row = code ? &s->codes[code - 1] : &none;
	if (code) line = tm_python_line((enum tm_python_lines)row->kind, row->first_line, row->table, row->table_bytes, offset, &row->place);
	if (code && !line && row->function == row->file) return 0;
	uint64_t a = (uint64_t)r->process->id << 32 | line, b = (uint64_t)row->function << 32 | row->file;
	uint32_t id = tm_pair_map_get(&s->frames, a, b);
	if (id) return id;
	id = tm_stack_add_python_frame(c, r->process, ++s->last_address);
	tm_pair_map_set(&s->frames, a, b, id);
	if (!code) return id;
	struct tm_meta *meta = tm_group_add(c->group, TM_RECORD_NAME);
	meta->name.frame = id;
	meta->name.function = (struct tm_function){ row->function, row->file, line };
	return id;
}

static uint32_t python_frame(struct tm_collector *c, const struct tm_ring_view *r, uint64_t word) {
	struct tm_pair_map *known = &c->python.frame_of_word;
	uint32_t id_and_1 = tm_pair_map_get(known, word, r->process->id);
	if (!id_and_1) {
		id_and_1 = new_python_frame(c, r, word) + 1;
		tm_pair_map_set(known, word, r->process->id, id_and_1);
	}
	return id_and_1 - 1;
}

/* The interpreter as a program of its own consists of its library and a main() that calls it. */
static bool is_python_program(const struct tm_module *m) {
	return m->entry && m->path && tm_is_python_program(m->path);
}

static void find_interpreter(const struct tm_collector *c, struct tm_ring_view *r) {
	struct tm_python_ring *p = &r->python;
	const struct tm_loaded_modules *loaded = &r->process->modules;
	uint32_t interpreter = p->run_count ? tm_module_at(c, r->process, p->runs[0].low + 1) : 0;
	if (p->interpreter_epoch == loaded->epoch) return;
	memset(p->interpreter, 0, sizeof p->interpreter);
	for (size_t i = 0; i < loaded->count; i++) {
		const struct tm_module *m = &c->modules.all[loaded->ids[i] - 1];
		if (loaded->ids[i] == interpreter) p->interpreter[0] = (struct tm_python_range){ m->low, m->high };
		else if (is_python_program(m)) p->interpreter[1] = (struct tm_python_range){ m->low, m->high };
	}
	p->interpreter_epoch = loaded->epoch;
}

static bool is_interpreter(const struct tm_python_ring *p, uint64_t pc) {
	for (unsigned i = 0; i < 2; i++)
		if (pc - 1 >= p->interpreter[i].low && pc - 1 < p->interpreter[i].high) return true;
	return false;
}

void tm_python_native_changed(struct tm_python_ring *p, size_t keep) {
	p->merged = 0;
	if (p->scanned > keep) p->scanned = keep;
	if (p->tail_valid > keep) p->tail_valid = keep;
	while (p->eval_count && p->evals[p->eval_count - 1] >= keep) {
		int64_t group = (int64_t)--p->eval_count + p->shift;
		if (group >= 0 && (size_t)group < p->group_count && p->groups[group] < p->valid) p->valid = p->groups[group];
	}
}

/* Finds the frames that run Python functions among the native ones that are new. */
static void scan(struct tm_collector *c, struct tm_ring_view *r) {
	struct tm_python_ring *p = &r->python;
	if (p->scanned == r->depth && p->scanned) return;
	if (p->scanned < TM_OUTER_FRAMES) {
		tm_python_native_changed(p, 0);
		p->valid = 0;
		p->startup = tm_ring_stack_startup_frames(c, r);
	}
	p->evals = tm_memory_grow(p->evals, &p->eval_capacity, r->depth, sizeof p->evals[0]);
	for (size_t at = p->scanned < p->startup ? p->startup : p->scanned; at < r->depth; at++)
		if (tm_python_is_eval(p, r->pcs[at])) p->evals[p->eval_count++] = (uint32_t)at;
	p->scanned = r->depth;
}

/* The native frames between the Python function of the group before and the EVAL of this one, without the interpreter's own. */
static uint32_t put_natives_before(struct tm_collector *c, struct tm_ring_view *r, int64_t eval, uint32_t node) {
	const struct tm_python_ring *p = &r->python;
	size_t at = eval > 0 && eval + p->shift > 0 ? p->evals[eval - 1] + 1 : p->startup;
	for (; at < p->evals[eval]; at++)
		if (!is_interpreter(p, r->pcs[at])) node = tm_stack_child(c, r->process, node, r->pcs[at]);
	return node;
}

/* Puts the Python frames that are new, each group of them at its EVAL, or outside of all native frames if it has none. */
static void put_python(struct tm_collector *c, struct tm_ring_view *r) {
	struct tm_python_ring *p = &r->python;
	size_t group = p->group_count, at = p->valid;
	uint32_t node = at ? p->nodes[at - 1] : 0;
	if (at == p->depth) return;
	find_interpreter(c, r);
	while (group && p->groups[group - 1] >= at) group--;
	for (; at < p->depth; at++) {
		if (group < p->group_count && p->groups[group] == at) {
			int64_t eval = (int64_t)group++ - p->shift;
			if (eval >= 0) node = put_natives_before(c, r, eval, node);
		}
		uint32_t frame = python_frame(c, r, p->frames[at]);
		p->nodes[at] = node = frame ? tm_stack_child_frame(c, r->process, node, frame) : node;
	}
	p->valid = p->depth;
}

/* The native frames inside of the innermost Python function. */
static uint32_t put_tail(struct tm_collector *c, struct tm_ring_view *r) {
	struct tm_python_ring *p = &r->python;
	uint32_t parent = p->nodes[p->depth - 1];
	size_t first = p->eval_count ? p->evals[p->eval_count - 1] + 1 : p->startup;
	if (first >= r->depth) return parent; /* there is no tail to go on from */
	if (first != p->tail_first || parent != p->tail_parent || p->tail_valid < first) p->tail_valid = first;
	p->tail_first = first;
	p->tail_parent = parent;
	p->tail = tm_memory_grow(p->tail, &p->tail_capacity, r->depth + 2 * TM_RING_TURN_WORDS, sizeof p->tail[0]);
	if (p->tail_valid > first) parent = p->tail[p->tail_valid - 1];
	if (p->tail_valid < r->depth) tm_stack_descend(c, r->process, parent, r->pcs + p->tail_valid, r->depth - p->tail_valid, p->tail + p->tail_valid);
	p->tail_valid = r->depth;
	return p->merged = p->tail[r->depth - 1];
}

uint32_t tm_python_merged_stack(struct tm_collector *c, struct tm_ring_view *r) {
	struct tm_python_ring *p = &r->python;
	if (!p->known || !p->depth) return 0;
	if (p->merged) return p->merged;
	scan(c, r);
	int64_t shift = (int64_t)p->group_count - (int64_t)p->eval_count;
	if (shift != p->shift) p->valid = 0;
	p->shift = shift;
	put_python(c, r);
	return put_tail(c, r);
}

/* --- ends --- */

void tm_python_ring_forget(struct tm_python_ring *p) {
	if (p->codes) memset(p->codes, 0, p->code_capacity * sizeof p->codes[0]);
	tm_python_native_changed(p, 0);
	p->depth = p->valid = 0;
	p->group_count = 0;
	p->run_count = p->run_set = 0;
	p->path++;
	p->interpreter_epoch = 0;
	p->known = true;
}

void tm_python_ring_release(struct tm_python_ring *p) {
	free(p->codes);
	free(p->frames);
	free(p->nodes);
	free(p->groups);
	free(p->evals);
	free(p->tail);
	*p = (struct tm_python_ring){ 0 };
}

void tm_python_stacks_release(struct tm_python_stacks *s) {
	for (size_t i = 0; i < s->code_count; i++) free(s->codes[i].table);
	free(s->codes);
	free(s->run_sets);
	tm_pair_map_release(&s->code_ids);
	tm_pair_map_release(&s->frames);
	tm_pair_map_release(&s->frame_of_word);
	*s = (struct tm_python_stacks){ 0 };
}
