/* live_scopes.c - which scopes are open on each thread of a trace that is still written; see live.h.
 *
 * The rules are those of scopes.c (format.md says what the ops mean), for what a live view shows: calls, and what was allocated in a scope itself.
 */
#include "live.h"

#define SCOPE_STACK_BYTES (1ull << 26) /* blocks further apart are of different stacks */

static uint64_t hash_of(struct tm_text t) {
	uint64_t h = 0xcbf29ce484222325u;
	for (size_t i = 0; i < t.size; i++) h = (h ^ (uint8_t)t.data[i]) * 0x100000001b3u;
	return h;
}

/* The first string with the same text: a name has many ids where processes are many. */
static uint32_t canonical(struct tm_live *l, uint32_t string) {
	if (!string || string > l->catalog.strings.count) return 0;
	struct tm_text text = l->catalog.strings.items[string - 1];
	uint64_t hash = hash_of(text);
	for (uint64_t probe = 1;; probe++) {
		uint64_t *id = tm_id_map_put(&l->texts, hash, probe);
		if (!id) return 0;
		if (!*id) *id = string;
		struct tm_text known = l->catalog.strings.items[*id - 1];
		if (known.size == text.size && !memcmp(known.data, text.data, text.size)) return (uint32_t)*id;
	}
}

#define OF_HEAP (1ull << 63)

/* Index + 1; account NULL: what counts the calls. 0: out of memory. */
static uint32_t scope_named(struct tm_live *l, uint32_t process, const struct tm_account *a, uint32_t name, uint32_t category) {
	uint64_t owner = a ? OF_HEAP | a->id << 32 : (uint64_t)process << 32;
	uint64_t *id = tm_id_map_put(&l->scope_ids, owner | category, name);
	if (id && *id) return (uint32_t)*id;
	struct tm_live_scope *s = id ? tm_array_push(&l->scopes) : NULL;
	if (!s) {
		l->failed = true;
		return 0;
	}
	*s = (struct tm_live_scope){ .process = process, .name = name, .category = category, .account = a };
	*id = l->scopes.count;
	uint32_t result = (uint32_t)*id, calls = a && (name || category) ? scope_named(l, process, NULL, name, category) : 0;
	if (calls) l->scopes.items[calls - 1].has_heaps = true;
	return result;
}

uint32_t tm_live_scope_now(struct tm_live *l, const struct tm_account *a, const struct tm_live_thread *t) {
	const struct tm_live_open *top = t->open.count ? &t->open.items[t->open.count - 1] : NULL;
	return scope_named(l, a->ledger->process, a, top ? top->name : 0, top ? top->category : 0);
}

uint64_t tm_live_scope_calls(const struct tm_live *l, const struct tm_live_scope *s) {
	const uint64_t *id = tm_id_map_find(&l->scope_ids, (uint64_t)s->process << 32 | s->category, s->name);
	return id ? l->scopes.items[*id - 1].calls : 0;
}

static bool is_apart(const struct tm_live_open *o) {
	return o->op == TM_OP_SCOPE_PUSH && o->link == TM_PUSH_APART;
}

/* Takes it off the stack; what was pushed inside a push or block is abandoned with it, ranges stay, and of pushes apart the others apart. */
static void close_at(struct tm_live_thread *t, size_t at) {
	size_t kept = at;
	bool alone = t->open.items[at].op == TM_OP_SCOPE_RANGE, apart = is_apart(&t->open.items[at]);
	for (size_t i = at; i < t->open.count; i++) {
		struct tm_live_open o = t->open.items[i];
		if (i > at && (alone || o.op == TM_OP_SCOPE_RANGE || (apart && is_apart(&o)))) t->open.items[kept++] = o;
	}
	t->open.count = kept;
}

/* Place + 1 on this thread; 0: none. */
static size_t find_key(const struct tm_live_thread *t, uint64_t key) {
	size_t i = t->open.count;
	while (i && t->open.items[i - 1].key != key) i--;
	return i;
}

static size_t find_push(const struct tm_live_thread *t, uint32_t category) {
	size_t i = t->open.count;
	while (i && !(t->open.items[i - 1].op == TM_OP_SCOPE_PUSH && t->open.items[i - 1].category == category)) i--;
	return i;
}

/* A range may be closed by any thread of its process. */
static void close_key(struct tm_live *l, struct tm_live_thread *t, uint64_t key) {
	size_t at = find_key(t, key);
	if (at) close_at(t, at - 1);
	for (size_t i = 0; i < l->threads.count && !at; i++) {
		struct tm_live_thread *other = &l->threads.items[i];
		if (other->ledger == t->ledger && (at = find_key(other, key))) close_at(other, at - 1);
	}
}

/* Blocks that longjmp has left: see scopes.c. */
static void close_left_blocks(struct tm_live_thread *t, uint64_t link) {
	uint64_t frame = link & TM_BLOCK_FRAME_MASK;
	size_t left = 0;
	for (size_t i = t->open.count; i-- > 0;) {
		const struct tm_live_open *o = &t->open.items[i];
		uint64_t its = o->link & TM_BLOCK_FRAME_MASK;
		if (o->op != TM_OP_SCOPE_BLOCK) continue;
		bool other_call = its == frame && o->link >> TM_BLOCK_FRAME_BITS != link >> TM_BLOCK_FRAME_BITS;
		if (other_call || (its < frame && frame - its < SCOPE_STACK_BYTES)) left = i + 1;
	}
	if (left) close_at(t, left - 1);
}

void tm_live_scope_play(struct tm_live *l, uint32_t process, struct tm_live_thread *t, const struct tm_step *s) {
	size_t at;
	switch (s->op) {
	case TM_OP_SCOPE_PUSH:
	case TM_OP_SCOPE_BLOCK:
	case TM_OP_SCOPE_RANGE: {
		if (s->op == TM_OP_SCOPE_BLOCK) close_left_blocks(t, s->size_bytes);
		if (s->op != TM_OP_SCOPE_PUSH && s->address) close_key(l, t, s->address);
		uint32_t category = canonical(l, s->heap), name = canonical(l, s->stack),
			 scope = scope_named(l, process, NULL, name, category);
		struct tm_live_open *o = scope ? tm_array_push(&t->open) : NULL;
		if (!o) {
			l->failed = true;
			return;
		}
		*o = (struct tm_live_open){ name, category, s->op == TM_OP_SCOPE_PUSH ? 0 : s->address, s->size_bytes, s->op };
		l->scopes.items[scope - 1].calls++;
		return;
	}
	case TM_OP_SCOPE_END:
	case TM_OP_SCOPE_EXCEPTION:
		if (s->address) close_key(l, t, s->address);
		else if ((at = find_push(t, canonical(l, s->heap)))) close_at(t, at - 1);
		return;
	default: return; /* steps are no scopes */
	}
}
