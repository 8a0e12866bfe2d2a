/* itt.c - Intel's instrumentation API: tasks, frames and heap calls as scopes and blocks.
 *
 * Flow:     the ITT loader in a library of the program (INTEL_LIBITTNOTIFY64) -> __itt_api_init() -> our functions, by their names -> scope.h,
 *           emit_heap.c -> ring
 * Tasks:    a task is a pushed scope of its thread; an overlapped one, a region and a frame are ranges known by their id; category "itt".
 * Heaps:    heap functions of one domain ("itt:DOMAIN") hand out and take back the blocks of one heap, which lies in malloc.
 * Handles:  the loader makes domains and strings itself until the program's first call of something else has it look for a tool; those are in its lists
 *           then. All later ones are ours.
 * Left out: counters, metadata, synchronisation, pause and resume, frames that are told afterwards; of heaps what is said of their insides (internal
 *           access) and of what a checker of leaks is to do (reset, record).
 */
#include "api.h"
#include "emit.h"
#include "heaps.h"
#include "injection.h"
#include "kept_texts.h"
#include "scope.h"

#include <string.h>

struct id {
	unsigned long long d1, d2, d3;
};

/* As ittnotify_config.h has them, up to what we read. */
struct api_entry {
	const char *name;
	void **place;
	void *init_function, *null_function;
	int group;
};

struct api_global {
	unsigned char magic[8];
	unsigned long version_major, version_minor, version_build;
	volatile long api_initialized, mutex_initialized, atomic_counter;
	uint64_t mutex[5]; /* a pthread_mutex_t */
	void *lib, *error_handler;
	const char **path;
	struct api_entry *entries; /* to the one without a name */
	void *next, *threads;
	const struct loader_domain *domains;
	const struct loader_string *strings;
};

struct loader_domain {
	int flags;
	const char *name;
	void *wide_name;
	int extra_number;
	void *extra;
	const struct loader_domain *next;
};

struct loader_string {
	const char *text;
	void *wide_text;
	int extra_number;
	void *extra;
	const struct loader_string *next;
};

TM_EXPORT void __itt_api_init(struct api_global *global, int groups);

/* --- handles --- */

static const struct tm_kept_text *keep(enum tm_kept_kind kind, const char *text) {
	return text ? tm_kept_text(kind, text, tm_text_cut(text, strnlen(text, TM_RING_TEXT_MAX + 1), TM_RING_TEXT_MAX)) : NULL;
}

static const void *domain_create(const char *name) {
	return keep(TM_KEPT_DOMAIN, name);
}

static const void *string_create(const char *text) {
	return keep(TM_KEPT_STRING, text);
}

/* Handles that the loaders made, and what they stand for: a handle is compared, never followed, once its loader has called us. */
#define LOADERS_HANDLES 4096u

static struct loaders_handle {
	const void *_Atomic handle;
	const struct tm_kept_text *_Atomic kept;
} loaders_handles[LOADERS_HANDLES] TM_ROOMY;

static _Atomic uint32_t handles_left_out;

/* Its place, or the empty one where it belongs; NULL: there is neither. */
static struct loaders_handle *place_of(const void *handle) {
	size_t hash = (uintptr_t)handle * 0x9E3779B97F4A7C15u >> 32;
	for (size_t i = 0; i < LOADERS_HANDLES; i++) {
		struct loaders_handle *place = &loaders_handles[(hash + i) % LOADERS_HANDLES];
		const void *there = atomic_load(&place->handle);
		if (!there || there == handle) return place;
	}
	return NULL;
}

static void learn(enum tm_kept_kind kind, const void *handle, const char *text) {
	const struct tm_kept_text *kept = keep(kind, text);
	const void *expected = NULL;
	struct loaders_handle *place;
	do {
		place = place_of(handle);
		expected = NULL;
	} while (place && !atomic_compare_exchange_strong(&place->handle, &expected, handle) && expected != handle);
	if (place) atomic_store(&place->kept, kept);
	else atomic_store(&handles_left_out, 1);
}

static const struct tm_kept_text *kept_of(enum tm_kept_kind kind, const void *handle) {
	const struct tm_kept_text *kept = tm_kept_of(kind, handle);
	if (kept || !handle) return kept;
	const struct loaders_handle *place = place_of(handle);
	kept = place ? atomic_load(&place->kept) : NULL;
	return kept && kept->magic == (uint32_t)kind ? kept : NULL;
}

static const char *text_of(enum tm_kept_kind kind, const void *handle, size_t *n) {
	const struct tm_kept_text *kept = kept_of(kind, handle);
	*n = kept ? kept->bytes : 0;
	return kept ? kept->text : "";
}

/* A key for an id, apart from those that tm_scope_key() gives. A domain may have two handles, one from its loader and one from us. */
static uint64_t key_of(const void *domain, struct id id) {
	const struct tm_kept_text *kept = kept_of(TM_KEPT_DOMAIN, domain);
	uint64_t key = (uintptr_t)(kept ? kept : domain) ^ id.d1 * 0x9E3779B97F4A7C15u;
	key = (key ^ key >> 29 ^ id.d2) * 0xBF58476D1CE4E5B9u;
	key = (key ^ key >> 32 ^ id.d3) * 0x94D049BB133111EBu;
	return key | 1ull << 63;
}

/* --- tasks and frames --- */

static void emit(enum tm_op op, uint64_t key, const char *name, size_t n) {
	struct tm_thread *t = tm_enter_to_tell();
	if (!t) return;
	if (op == TM_OP_MARK) tm_emit_text(t, op, name, n);
	else tm_emit_scope(t, op, TM_SCOPE_ITT, key, 0, name, n);
	tm_leave(t);
}

static void task_begin(const void *domain, struct id task, struct id parent, const void *name) {
	size_t n;
	const char *text = text_of(TM_KEPT_STRING, name, &n);
	(void)domain, (void)task, (void)parent;
	emit(TM_OP_SCOPE_PUSH, 0, text, n);
}

static void task_begin_fn(const void *domain, struct id task, struct id parent, const void *function) {
	char name[] = "task 0x0000000000000000";
	(void)domain, (void)task, (void)parent;
	for (unsigned i = 0; i < 16; i++) name[7 + i] = "0123456789abcdef"[(uintptr_t)function >> (60 - 4 * i) & 15];
	emit(TM_OP_SCOPE_PUSH, 0, name, sizeof name - 1);
}

static void task_end(const void *domain) {
	(void)domain;
	emit(TM_OP_SCOPE_END, 0, NULL, 0);
}

/* The same at a time of a clock of the program's own: they count for now. */
static void task_begin_ex(const void *domain, const void *clock, unsigned long long time, struct id task, struct id parent,
			  const void *name) {
	(void)clock, (void)time;
	task_begin(domain, task, parent, name);
}

static void task_begin_fn_ex(const void *domain, const void *clock, unsigned long long time, struct id task, struct id parent,
			     const void *function) {
	(void)clock, (void)time;
	task_begin_fn(domain, task, parent, function);
}

static void task_end_ex(const void *domain, const void *clock, unsigned long long time) {
	(void)clock, (void)time;
	task_end(domain);
}

static void task_begin_overlapped(const void *domain, struct id task, struct id parent, const void *name) {
	size_t n;
	const char *text = text_of(TM_KEPT_STRING, name, &n);
	(void)parent;
	emit(TM_OP_SCOPE_RANGE, key_of(domain, task), text, n);
}

static void task_end_overlapped(const void *domain, struct id task) {
	emit(TM_OP_SCOPE_END, key_of(domain, task), NULL, 0);
}

static void task_begin_overlapped_ex(const void *domain, const void *clock, unsigned long long time, struct id task, struct id parent,
				     const void *name) {
	(void)clock, (void)time;
	task_begin_overlapped(domain, task, parent, name);
}

static void task_end_overlapped_ex(const void *domain, const void *clock, unsigned long long time, struct id task) {
	(void)clock, (void)time;
	task_end_overlapped(domain, task);
}

static void region_begin(const void *domain, struct id region, struct id parent, const void *name) {
	task_begin_overlapped(domain, region, parent, name);
}

static void region_end(const void *domain, struct id region) {
	task_end_overlapped(domain, region);
}

static void frame_begin(const void *domain, const struct id *id) {
	size_t n;
	const char *text = text_of(TM_KEPT_DOMAIN, domain, &n);
	emit(TM_OP_SCOPE_RANGE, key_of(domain, id ? *id : (struct id){ 0, 0, ~0ull }), text, n);
}

static void frame_end(const void *domain, const struct id *id) {
	emit(TM_OP_SCOPE_END, key_of(domain, id ? *id : (struct id){ 0, 0, ~0ull }), NULL, 0);
}

static void marker(const void *domain, struct id id, const void *name, int scope) {
	size_t n;
	const char *text = text_of(TM_KEPT_STRING, name, &n);
	(void)domain, (void)id, (void)scope;
	emit(TM_OP_MARK, 0, text, n);
}

static void thread_set_name(const char *name) {
	struct tm_thread *t = name ? tm_enter_to_tell() : NULL;
	if (!t) return;
	tm_thread_is_named(t, name, strnlen(name, TM_RING_TEXT_MAX));
	tm_leave(t);
}

/* --- heaps --- */

/* The handle of a heap function is the name of its heap. */
static const void *heap_function_create(const char *name, const char *domain) {
	char heap[TM_NAME_KEPT] = "itt:";
	const char *of = domain && *domain ? domain : name ? name : "";
	size_t n = strnlen(of, sizeof heap - 4);
	memcpy(heap + 4, of, n);
	uint32_t number = tm_heap_number(heap, n + 4, "itt", TM_HEAP_NUMBER_MALLOC, -1);
	struct tm_thread *t = number ? NULL : tm_enter_to_tell();
	if (t) {
		tm_heap_tell(t, number); /* notes why there is none */
		tm_leave(t);
	}
	return tm_heap_name(number);
}

static inline __attribute__((always_inline)) void heap_alloc(const void *handle, const void *addr, size_t size, const void *frame) {
	struct tm_thread *t = tm_heap_is_handle(handle) ? tm_enter() : NULL;
	if (t) {
		tm_emit_heap_alloc(t, TM_OP_ITT_ALLOC, tm_heap_of_handle(handle), addr, size, frame);
		tm_leave(t);
	} else if (tm_heap_is_handle(handle)) {
		tm_nested_add_of_pool(TM_OP_ITT_ALLOC, handle, addr, size);
	}
}

static void heap_allocate_end(const void *handle, void **addr, size_t size, int initialized) {
	(void)initialized;
	if (addr) heap_alloc(handle, *addr, size, TM_FRAME);
}

static void heap_free_begin(const void *handle, void *addr) {
	struct tm_thread *t = tm_heap_is_handle(handle) ? tm_enter() : NULL;
	if (t) {
		tm_emit_heap_free(t, TM_OP_ITT_FREE, tm_heap_of_handle(handle), addr);
		tm_leave(t);
	} else if (tm_heap_is_handle(handle)) {
		tm_nested_add_of_pool(TM_OP_ITT_FREE, handle, addr, 0);
	}
}

/* The old block is still there while the call runs, but its address may be another's when we hear of its end: so it goes now. One that fails is seen
 * to go all the same: nobody says how large it was. */
static void heap_reallocate_begin(const void *handle, void *addr, size_t size, int initialized) {
	(void)size, (void)initialized;
	heap_free_begin(handle, addr);
}

static void heap_reallocate_end(const void *handle, void *addr, void **to, size_t size, int initialized) {
	(void)addr, (void)initialized;
	if (to) heap_alloc(handle, *to, size, TM_FRAME);
}

/* --- the table --- */

static void nothing(void) {
}

#define X(name) \
	{ "__itt_" #name, (void *)name }
static const struct {
	const char *name;
	void *function;
} functions[] = {
	{ "__itt_domain_create", (void *)domain_create },
	{ "__itt_string_handle_create", (void *)string_create },
	{ "__itt_frame_begin_v3", (void *)frame_begin },
	{ "__itt_frame_end_v3", (void *)frame_end },
	{ "__itt_heap_allocate_begin", (void *)nothing },
	{ "__itt_heap_free_end", (void *)nothing },
	X(task_begin),
	X(task_begin_fn),
	X(task_end),
	X(task_begin_overlapped),
	X(task_end_overlapped),
	X(task_begin_ex),
	X(task_begin_fn_ex),
	X(task_end_ex),
	X(task_begin_overlapped_ex),
	X(task_end_overlapped_ex),
	X(region_begin),
	X(region_end),
	X(marker),
	X(thread_set_name),
	X(heap_function_create),
	X(heap_allocate_end),
	X(heap_free_begin),
	X(heap_reallocate_begin),
	X(heap_reallocate_end),
};
#undef X

static void *function_of(const char *name) {
	for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
		if (strcmp(functions[i].name, name) == 0) return functions[i].function;
	return NULL;
}

static void learn_handles(const struct api_global *global) {
	static _Atomic uint32_t noted;
	if (global->version_major != 3) return; /* its lists may lie elsewhere */
	for (const struct loader_domain *d = global->domains; d; d = d->next) learn(TM_KEPT_DOMAIN, d, d->name);
	for (const struct loader_string *s = global->strings; s; s = s->next) learn(TM_KEPT_STRING, s, s->text);
	if (!atomic_load(&handles_left_out)) return;
	tm_note_limit(
		&noted, "itt-handles",
		"the program made more ITT domains and strings before its first task than are looked up (4,096): tasks of the others have no name");
}

/* What is not ours becomes what it is without a tool, a null pointer mostly: its caller asks for that, and takes what a function answers at its word, as
 * clang's OpenMP does with the id of a stack. */
void __itt_api_init(struct api_global *global, int groups) {
	bool wanted = tm_guest.epoch && tm_guest.shm->itt;
	(void)groups;
	if (!global || !global->entries) return;
	if (wanted) learn_handles(global);
	for (struct api_entry *e = global->entries; e->name; e++) {
		void *function = wanted ? function_of(e->name) : NULL;
		if (e->place) *e->place = function ? function : e->null_function;
	}
}
