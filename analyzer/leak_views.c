/* leak_views.c - what a call stack is to who looks for leaks; see leak_views.h. */
#include "leak_views.h"

#define HASH_BEGIN 0xCBF29CE484222325u
#define KEYS_AT_ONCE 128u
#define KEYS_AHEAD 64u    /* so many times that, at most */
#define MANY_SITES 16384u /* fewer are not worth a thread */

static uint64_t mix(uint64_t key, const void *data, size_t n) {
	const unsigned char *p = data;
	for (size_t i = 0; i < n; i++) key = (key ^ p[i]) * 0x100000001B3u;
	return (key ^ 0xFF) * 0x100000001B3u;
}

static uint16_t flags_of(const struct tm_leak_viewer *x, const struct tm_stack_row *at) {
	return tm_leak_flags(x->frames, at);
}

/* Of a string's bytes: a trace may define one text as several strings. */
static uint64_t hash_of_string(const struct tm_leak_viewer *x, uint32_t id) {
	struct tm_text text = tm_leak_string(x->frames->stacks->catalog, id);
	if (!id) return 0;
	uint64_t *known = &x->hashes[id], hash = __atomic_load_n(known, __ATOMIC_RELAXED); /* two threads may find the same one out */
	if (!hash) __atomic_store_n(known, hash = mix(HASH_BEGIN, text.data, text.size) | 1, __ATOMIC_RELAXED);
	return hash;
}

static uint64_t mix_number(uint64_t key, uint64_t number) {
	return (key ^ number ^ key >> 32) * 0x9E3779B97F4A7C15u;
}

static uint64_t mix_row(uint64_t key, const struct tm_leak_viewer *x, const struct tm_stack_row *at) {
	const struct tm_leak_place place = tm_leak_place_at(x->frames->stacks, at), *p = &place;
	if (!p->text.function.size) return mix_number(mix_number(key, p->frame->module), p->frame->address);
	return mix_number(mix_number(mix_number(key, hash_of_string(x, p->named->name)), hash_of_string(x, p->named->file)),
			  p->named->line);
}

/* A frame of another function further out that is the program's own, and like the site Python or not. Most are told by their flags. */
static bool calls(const struct tm_leak_viewer *x, const struct tm_stack_row *at, const struct tm_stack_row *site) {
	if (!site->node || (flags_of(x, at) & FRAME_PYTHON) != (flags_of(x, site) & FRAME_PYTHON)) return false;
	if (flags_of(x, at) & (FRAME_LIBRARY | FRAME_WRAPPER)) return false;
	return !tm_leak_text_is(tm_leak_place_at(x->frames->stacks, at).text.function, tm_leak_place_at(x->frames->stacks, site).text.function);
}

/* What is looked for outward; node 0: not found so far. */
struct sought {
	struct tm_stack_row native, own, python, caller;
};

/* Further out there is something that matters: all that these frames have of flags is known. */
static bool seeks(const struct tm_leak_viewer *x, const struct sought *s, uint16_t outward) {
	if (s->python.node) return outward & FRAME_PYTHON && !(s->caller.node && flags_of(x, &s->caller) & FRAME_PYTHON);
	return outward & FRAME_PYTHON || !s->native.node || !s->own.node || !s->caller.node;
}

static uint16_t all_flags(const struct tm_leak_viewer *x, const struct tm_stack_row *innermost) {
	const struct tm_catalog_node *n = &x->frames->stacks->catalog->nodes.items[innermost->node - 1];
	uint32_t count = tm_frame_functions(&x->frames->stacks->catalog->frames.items[n->frame - 1]);
	uint16_t all = x->frames->outward[n->parent];
	for (struct tm_stack_row at = *innermost; at.function < count; at.function++) all |= flags_of(x, &at);
	return all;
}

/* The next row; of a function that called itself again and again, the outermost time is all that is left to look at. */
static bool go_outward(const struct tm_leak_viewer *x, struct tm_stack_row *at) {
	uint32_t run = x->frames->run[at->node], node = at->node;
	if (!tm_stack_outward(x->frames->stacks, at)) return false;
	if (at->node != node && x->frames->run[at->node] == run) at->node = run;
	return true;
}

/* From the innermost frame outward: the site is the innermost Python frame, else the innermost that is no wrapper; the first native one of the
 * program's own joins it. */
struct tm_leak_view tm_leak_view_of(const struct tm_leak_viewer *x, uint32_t stack) {
	struct tm_leak_view view = { .key = HASH_BEGIN };
	struct sought s = { 0 };
	bool inner = true;
	if (!stack) return view;
	const struct tm_stack_row innermost = tm_stack_find(x->frames->stacks, stack);
	struct tm_stack_row at = innermost;
	uint16_t all = all_flags(x, &innermost);
	view.by_program = all & FRAME_PROGRAM;
	view.suppressed = all & (FRAME_KNOWN | FRAME_PROGRAM);
	view.spawns = all & FRAME_SPAWNS;
	view.is_module = all & FRAME_IMPORTS;
	do {
		uint16_t flags = flags_of(x, &at);
		bool is_python = flags & FRAME_PYTHON;
		view.suppressed = view.suppressed || (inner && flags & FRAME_KNOWN_INNER);
		view.is_arena = view.is_arena || (inner && x->has_python_heap && (flags & FRAME_ARENA));
		if (is_python || !(flags & FRAME_WRAPPER)) inner = false;
		if (is_python && s.python.node && s.caller.node && !(flags_of(x, &s.caller) & FRAME_PYTHON)) s.caller.node = 0;
		if (!s.caller.node && calls(x, &at, s.python.node ? &s.python : &s.own)) s.caller = at;
		if (is_python && !s.python.node) s.python = at;
		if (is_python || (flags & FRAME_WRAPPER)) continue;
		if (!s.native.node) s.native = at;
		if (!s.own.node && !(flags & FRAME_LIBRARY)) s.own = at;
	} while (go_outward(x, &at) && seeks(x, &s, x->frames->outward[at.node]));
	const struct tm_stack_row *site = s.python.node ? &s.python : s.native.node ? &s.native : &innermost;
	view.key = mix_row(view.key, x, site);
	if (site == &s.native && s.own.node) view.key = mix_row(view.key, x, &s.own);
	view.caller_key = s.caller.node ? mix_row(view.key, x, &s.caller) : view.key;
	if (site == &s.native && (flags_of(x, &s.native) & FRAME_LIBRARY) && s.own.node)
		view.own = tm_leak_place_at(x->frames->stacks, &s.own).text.function;
	if (s.caller.node) {
		struct tm_leak_place caller = tm_leak_place_at(x->frames->stacks, &s.caller);
		view.caller = caller.text.function;
		if (view.caller.size) view.caller_line = caller.named->line;
	}
	view.key += view.suppressed + 2u * view.is_module + 4u * view.is_arena + 8u * view.by_program;
	return view;
}

/* --- keys of many --- */

/* The innermost Python frame's node of a stack that has one. */
static uint32_t python_of(const struct tm_leak_viewer *x, uint32_t node) {
	const struct tm_catalog *c = x->frames->stacks->catalog;
	while (c->frames.items[c->nodes.items[node - 1].frame - 1].kind != TM_FRAME_PYTHON) node = c->nodes.items[node - 1].parent;
	return node;
}

/* The view's key alone. Where there is Python on the stack it is the site's, and only what is further in matters besides. */
static uint64_t key_of(const struct tm_leak_viewer *x, uint32_t stack) {
	if (!stack) return HASH_BEGIN;
	const struct tm_stack_row innermost = tm_stack_find(x->frames->stacks, stack);
	if (!(x->frames->outward[innermost.node] & FRAME_PYTHON)) return tm_leak_view_of(x, stack).key;
	struct tm_stack_row at = innermost, site = { python_of(x, innermost.node), 0 };
	uint16_t all = all_flags(x, &innermost), flags;
	bool suppressed = all & (FRAME_KNOWN | FRAME_PROGRAM), is_module = all & FRAME_IMPORTS, is_arena = false, by_program = all & FRAME_PROGRAM;
	do {
		flags = flags_of(x, &at);
		suppressed = suppressed || flags & FRAME_KNOWN_INNER;
		is_arena = is_arena || (x->has_python_heap && flags & FRAME_ARENA);
	} while (!(flags & FRAME_PYTHON) && flags & FRAME_WRAPPER && go_outward(x, &at));
	return mix_row(HASH_BEGIN, x, &site) + suppressed + 2u * is_module + 4u * is_arena + 8u * by_program;
}

struct tm_leak_keys {
	const struct tm_leak_viewer *viewer;
	const struct tm_sites *sites;
	size_t count; /* of the parts of KEYS_AT_ONCE sites; the others number them: */
	size_t begun; /* the next one that somebody begins with */
	size_t used;  /* those before it may be overwritten */
	size_t taken; /* the next one to be asked for */
	bool ready[KEYS_AHEAD];
	uint64_t key[KEYS_AHEAD][KEYS_AT_ONCE];
	bool has_thread;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
};

static size_t end_of_part(const struct tm_leak_keys *k, size_t part) {
	size_t end = (part + 1) * KEYS_AT_ONCE;
	return end < k->sites->heads.count ? end : k->sites->heads.count;
}

static void find_keys(struct tm_leak_keys *k, size_t part) {
	uint64_t *key = k->key[part % KEYS_AHEAD];
	for (size_t i = part * KEYS_AT_ONCE; i < end_of_part(k, part); i++)
		if (tm_leak_is_live(k->sites, i)) key[i % KEYS_AT_ONCE] = key_of(k->viewer, k->sites->heads.items[i].stack);
}

/* The next part that nobody has begun with; with the lock, which is let go meanwhile. false: there is none yet, or none any more. */
static bool find_next(struct tm_leak_keys *k) {
	if (k->begun >= k->count || k->begun == k->used + KEYS_AHEAD) return false;
	size_t part = k->begun++;
	pthread_mutex_unlock(&k->lock);
	find_keys(k, part);
	pthread_mutex_lock(&k->lock);
	k->ready[part % KEYS_AHEAD] = true;
	return true;
}

static void *find_keys_ahead(void *argument) {
	struct tm_leak_keys *k = argument;
	pthread_mutex_lock(&k->lock);
	while (k->begun < k->count) {
		if (find_next(k)) pthread_cond_signal(&k->changed);
		else pthread_cond_wait(&k->changed, &k->lock);
	}
	pthread_mutex_unlock(&k->lock);
	return NULL;
}

/* The one before it has been used. */
static void take_part(struct tm_leak_keys *k, size_t part) {
	pthread_mutex_lock(&k->lock);
	k->used = part;
	pthread_cond_signal(&k->changed);
	while (!k->ready[part % KEYS_AHEAD])
		if (!find_next(k)) pthread_cond_wait(&k->changed, &k->lock);
	k->ready[part % KEYS_AHEAD] = false;
	pthread_mutex_unlock(&k->lock);
}

uint64_t tm_leak_key(struct tm_leak_keys *k, size_t site) {
	while (k->taken <= site / KEYS_AT_ONCE) take_part(k, k->taken++);
	return k->key[site / KEYS_AT_ONCE % KEYS_AHEAD][site % KEYS_AT_ONCE];
}

struct tm_leak_keys *tm_leak_keys_start(const struct tm_leak_viewer *viewer, const struct tm_sites *sites) {
	struct tm_leak_keys *k = calloc(1, sizeof *k);
	if (!k) return NULL;
	k->viewer = viewer;
	k->sites = sites;
	k->count = (sites->heads.count + KEYS_AT_ONCE - 1) / KEYS_AT_ONCE;
	pthread_mutex_init(&k->lock, NULL);
	pthread_cond_init(&k->changed, NULL);
	k->has_thread = sites->heads.count >= MANY_SITES && pthread_create(&k->thread, NULL, find_keys_ahead, k) == 0;
	return k;
}

void tm_leak_keys_end(struct tm_leak_keys *k) {
	pthread_mutex_lock(&k->lock);
	k->begun = k->count;
	pthread_cond_signal(&k->changed);
	pthread_mutex_unlock(&k->lock);
	if (k->has_thread) pthread_join(k->thread, NULL);
	pthread_mutex_destroy(&k->lock);
	pthread_cond_destroy(&k->changed);
	free(k);
}
