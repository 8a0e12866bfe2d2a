/* python_heap.c - the blocks of Python's own allocator, as heap `python` (--python-heap=on).
 *
 * Flow:     the interpreter's PyMem_* and PyObject_* calls -> here -> the allocator that was set before, and emit_heap.c
 * Idea:     the interpreter has two domains of memory, mem and obj, whose allocator can be replaced (PyMem_SetAllocator). Ours passes every call on. What
 *           pymalloc in turn asks of malloc or mmap is recorded as ever, in those heaps: this one shows the same memory by its use, and is no root.
 * When:     at the best before the interpreter begins, when the process has one thread: then every block is seen. Else at the first stack that is taken by
 *           a thread that holds the GIL, under which these allocators are called; blocks from before are then unknown, and their frees count as unmatched.
 *           PYTHONMALLOC sets the allocators anew while the interpreter begins; that shows in calls that do not come, and ours is set once more.
 * Threads:  as the interpreter's allocators; each call uses its thread's own state.
 * Failure:  no Python heap. The interpreter's allocator gets every call, whatever happens to us.
 */
#include "heaps.h"
#include "process.h"
#include "python.h"

enum { DOMAIN_MEM = 1, DOMAIN_OBJ = 2, DOMAINS = 2 };
#define CALLS_OF_A_START 1000u /* an interpreter that has begun has made many more */

struct allocator { /* PyMemAllocatorEx */
	void *context;
	void *(*malloc)(void *context, size_t size);
	void *(*calloc)(void *context, size_t count, size_t size);
	void *(*realloc)(void *context, void *p, size_t size);
	void (*free)(void *context, void *p);
};

static struct allocator before[2][DOMAINS]; /* set the first time, and after PYTHONMALLOC */
static _Atomic unsigned settings;           /* how often ours was set */
static _Atomic uint32_t calls;              /* counted up to CALLS_OF_A_START */
static uint32_t heap;

static void record_alloc(void *p, size_t size, const void *frame) {
	struct tm_thread *t = p ? tm_hook_enter() : NULL;

	if (atomic_load_explicit(&calls, memory_order_relaxed) < CALLS_OF_A_START) atomic_fetch_add(&calls, 1);
	if (!t) return;
	tm_emit_heap_alloc(t, TM_OP_PYTHON_ALLOC, heap, p, size, frame);
	tm_hook_leave(t);
}

static void *python_malloc(void *context, size_t size) {
	const struct allocator *a = context;
	void *p = a->malloc(a->context, size);

	record_alloc(p, size, TM_FRAME);
	return p;
}

static void *python_calloc(void *context, size_t count, size_t size) {
	const struct allocator *a = context;
	void *p = a->calloc(a->context, count, size);

	record_alloc(p, count * size, TM_FRAME); /* it did not overflow, else p is NULL */
	return p;
}

/* The hook is left while the interpreter's realloc runs: what that asks of malloc is to be recorded. */
static void *python_realloc(void *context, void *old, size_t size) {
	const struct allocator *a = context;
	struct tm_thread *t = old ? tm_hook_enter() : NULL;
	uint64_t begin = t ? tm_begin(t) : 0;
	void *p;

	if (t) tm_hook_leave(t);
	p = a->realloc(a->context, old, size);
	if (!old) {
		record_alloc(p, size, TM_FRAME);
		return p;
	}
	t = tm_hook_enter();
	if (!t) return p;
	if (p && begin) tm_emit_heap_realloc(t, TM_OP_PYTHON_REALLOC, heap, p, size, old, begin, TM_FRAME);
	else tm_cancel(t);
	tm_hook_leave(t);
	return p;
}

static void python_free(void *context, void *p) {
	const struct allocator *a = context;
	struct tm_thread *t = p ? tm_hook_enter() : NULL;

	if (t) {
		tm_emit_heap_free(t, TM_OP_PYTHON_FREE, heap, p);
		tm_hook_leave(t);
	}
	a->free(a->context, p);
}

static void set(struct tm_thread *t, unsigned setting) {
	const struct tm_python_module *m = &tm_python.module;
	void (*get_allocator)(int, struct allocator *) = (void (*)(int, struct allocator *))m->symbols[TM_PYTHON_GET_ALLOCATOR];
	void (*set_allocator)(int, struct allocator *) = (void (*)(int, struct allocator *))m->symbols[TM_PYTHON_SET_ALLOCATOR];

	heap = tm_heap_number("python", 6, "python", 0, -1);
	if (!heap || !tm_heap_tell(t, heap)) return;
	for (unsigned i = 0; i < DOMAINS; i++) {
		struct allocator ours = { &before[setting][i], python_malloc, python_calloc, python_realloc, python_free };
		int domain = i == 0 ? DOMAIN_MEM : DOMAIN_OBJ;

		get_allocator(domain, &before[setting][i]);
		set_allocator(domain, &ours);
	}
	atomic_store(&settings, setting + 1);
}

static bool is_initialized(void) {
	int (*ask)(void) = (int (*)(void))tm_python.module.symbols[TM_PYTHON_IS_INITIALIZED];

	return ask && ask();
}

void tm_python_heap_found(struct tm_thread *t) {
	const struct tm_python_module *m = &tm_python.module;

	if (!tm_guest.shm->python_heap || atomic_load(&settings)) return;
	if (!m->symbols[TM_PYTHON_GET_ALLOCATOR] || !m->symbols[TM_PYTHON_SET_ALLOCATOR] || !m->symbols[TM_PYTHON_THIS_THREAD]) return;
	if (!is_initialized() && atomic_load(&tm_guest.next_thread) == 1) set(t, 0);
	atomic_store(&tm_python.heap_pending, true);
}

void tm_python_heap_poll(struct tm_thread *t) {
	const struct tm_python_module *m = &tm_python.module;
	void *(*this_thread)(void) = (void *(*)(void))m->symbols[TM_PYTHON_THIS_THREAD];
	const void *state = this_thread();
	bool pending = true;
	unsigned times = atomic_load(&settings);

	if (!state || !tm_python.current_thread || tm_python.current_thread() != state || !is_initialized()) return;
	if (!atomic_compare_exchange_strong(&tm_python.heap_pending, &pending, false)) return;
	if (times == 0) {
		tm_emit_note(t, "python-heap", "the heap python is recorded from here on: blocks that were there before are not in it");
		set(t, 0);
	} else if (atomic_load(&calls) < CALLS_OF_A_START) {
		set(t, 1);
	}
}
