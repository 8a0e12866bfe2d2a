/* python_stacks.c - see python_stacks.h. */
#include "python_stacks.h"

#include "collector.h"
#include "controls.h"
#include "drain.h"
#include "memory.h"
#include "python_lines.h"

#include <stdlib.h>
#include <string.h>

#define CODES_MAX (1u << 24) /* numbers a ring may use */
#define DEPTH_MAX 8192u
#define NATIVE_CALLED ((uint64_t)1 << 63)

/* --- code objects --- */

void tm_python_take_run(struct tm_ring_view *r, uint64_t low, uint64_t high) {
	struct tm_python_ring *p = &r->python;
	if (p->run_count == TM_PYTHON_RUNS) return;
	p->runs[p->run_count].low = low;
	p->runs[p->run_count++].high = high;
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

/* --- paths --- */

static uint32_t child(struct tm_pair_map *nodes, uint32_t *last, uint64_t a, uint64_t b) {
	uint32_t id = tm_pair_map_get(nodes, a, b);
	if (id) return id;
	tm_pair_map_set(nodes, a, b, ++*last);
	return *last;
}

bool tm_python_take_stack(struct tm_collector *c, struct tm_ring_view *r, size_t keep, const uint64_t *words, size_t n) {
	struct tm_python_ring *p = &r->python;
	if (keep == 0) p->known = true;
	if (!p->known) return true;
	if (keep > p->depth || keep + n > DEPTH_MAX) return false;
	size_t depth = keep + n;
	p->frames = tm_memory_grow(p->frames, &p->frame_capacity, depth, sizeof p->frames[0]);
	p->nodes = tm_memory_grow(p->nodes, &p->node_capacity, depth, sizeof p->nodes[0]);
	for (size_t at = keep; at < depth; at++) {
		uint64_t word = words[depth - 1 - at];
		uint32_t number = (uint32_t)word, code = number < p->code_capacity ? p->codes[number] : 0;
		uint32_t parent = at ? p->nodes[at - 1] : 0;
		p->frames[at] = (word & ~(uint64_t)UINT32_MAX) | code;
		p->nodes[at] = child(&c->python.python_nodes, &c->python.last_python_node, (uint64_t)parent << 32 | code, word >> 32);
	}
	p->depth = depth;
	return true;
}

/* The node of the ring's native path. */
static uint32_t native_node(struct tm_collector *c, struct tm_ring_view *r) {
	struct tm_python_ring *p = &r->python;
	p->natives = tm_memory_grow(p->natives, &p->native_capacity, r->depth, sizeof p->natives[0]);
	for (size_t at = p->native_valid; at < r->depth; at++)
		p->natives[at] = child(&c->python.native_nodes, &c->python.last_native_node, at ? p->natives[at - 1] : 0, r->pcs[at]);
	p->native_valid = r->depth;
	return r->depth ? p->natives[r->depth - 1] : 0;
}

/* --- merging --- */

static uint32_t new_python_frame(struct tm_collector *c, const struct tm_ring_view *r, uint64_t word) {
	struct tm_python_stacks *s = &c->python;
	uint32_t code = (uint32_t)word, offset = (uint32_t)(word >> 32) & 0x7fffffffu, line = 0;
	struct tm_python_code_row none = { 0 }, *row = code ? &s->codes[code - 1] : &none;
	if (code) line = tm_python_line((enum tm_python_lines)row->kind, row->first_line, row->table, row->table_bytes, offset);
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
	uint64_t a = (uint64_t)r->process->id << 32 | (uint32_t)word, b = word >> 32 & 0x7fffffffu;
	uint32_t id = tm_pair_map_get(known, a, b);
	if (id) return id;
	id = new_python_frame(c, r, word);
	tm_pair_map_set(known, a, b, id);
	return id;
}

static bool runs_python(const struct tm_python_ring *p, uint64_t pc) {
	for (unsigned i = 0; i < p->run_count; i++)
		if (pc - 1 >= p->runs[i].low && pc - 1 < p->runs[i].high) return true;
	return false;
}

/* The interpreter as a program of its own consists of its library and a main() that calls it. */
static bool is_python_program(const struct tm_module *m) {
	const char *slash = m->path ? strrchr(m->path, '/') : NULL;
	return m->entry && m->path && !strncmp(slash ? slash + 1 : m->path, "python", 6);
}

static bool is_interpreter(const struct tm_collector *c, const struct tm_ring_view *r, uint32_t interpreter, uint64_t pc) {
	uint32_t module = tm_module_at(c, r->process, pc);
	return module && (module == interpreter || is_python_program(&c->modules.all[module - 1]));
}

/* A frame of the merged stack: a word of the Python path, or a native address. */
struct merged {
	uint64_t value;
	bool python;
};

static size_t put_python(struct merged *to, const struct tm_python_ring *p, size_t *left) {
	size_t n = 0;
	while (*left) {
		uint64_t word = p->frames[--*left];
		to[n++] = (struct merged){ word, true };
		if (word & NATIVE_CALLED) break;
	}
	return n;
}

/* Innermost first, into `to`, which has room for both paths. */
static size_t merge(struct tm_collector *c, struct tm_ring_view *r, struct merged *to) {
	struct tm_python_ring *p = &r->python;
	uint32_t interpreter = p->run_count ? tm_module_at(c, r->process, p->runs[0].low + 1) : 0;
	size_t left = p->depth, n = 0, startup = tm_drain_startup_frames(c, r);
	bool inside = false; /* a Python frame lies further in */
	for (size_t at = r->depth; at-- > startup;) {
		uint64_t pc = r->pcs[at];
		if (left && runs_python(p, pc)) {
			n += put_python(to + n, p, &left);
			inside = true;
		} else if (!inside || !is_interpreter(c, r, interpreter, pc)) {
			to[n++] = (struct merged){ pc, false };
		}
	}
	while (left) n += put_python(to + n, p, &left);
	return n;
}

uint32_t tm_python_merged_stack(struct tm_collector *c, struct tm_ring_view *r) {
	struct tm_python_ring *p = &r->python;
	if (!p->known || !p->depth) return 0;
	uint64_t pair = (uint64_t)native_node(c, r) << 32 | p->nodes[p->depth - 1];
	uint32_t stack = tm_pair_map_get(&c->python.stacks, pair, r->process->modules.unload_epoch);
	if (stack) return stack;
	struct merged *frames = tm_memory_new(r->depth + p->depth, sizeof frames[0]);
	for (size_t at = merge(c, r, frames); at-- > 0;) {
		if (frames[at].python) stack = tm_stack_child_frame(c, stack, python_frame(c, r, frames[at].value));
		else stack = tm_stack_child(c, r->process, stack, frames[at].value);
	}
	free(frames);
	tm_pair_map_set(&c->python.stacks, pair, r->process->modules.unload_epoch, stack);
	return stack;
}

/* --- ends --- */

void tm_python_ring_forget(struct tm_python_ring *p) {
	if (p->codes) memset(p->codes, 0, p->code_capacity * sizeof p->codes[0]);
	p->depth = p->native_valid = 0;
	p->run_count = 0;
	p->known = true;
}

void tm_python_ring_release(struct tm_python_ring *p) {
	free(p->codes);
	free(p->frames);
	free(p->nodes);
	free(p->natives);
	*p = (struct tm_python_ring){ 0 };
}

void tm_python_stacks_release(struct tm_python_stacks *s) {
	for (size_t i = 0; i < s->code_count; i++) free(s->codes[i].table);
	free(s->codes);
	tm_pair_map_release(&s->code_ids);
	tm_pair_map_release(&s->frames);
	tm_pair_map_release(&s->frame_of_word);
	tm_pair_map_release(&s->python_nodes);
	tm_pair_map_release(&s->native_nodes);
	tm_pair_map_release(&s->stacks);
	*s = (struct tm_python_stacks){ 0 };
}
