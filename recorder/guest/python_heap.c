/* python_heap.c - the blocks of Python's own allocator, as heap `python` (--python-heap=on).
 *
 * Flow:     the interpreter's PyMem_* and PyObject_* calls -> here -> the allocator that was set before, and emit_heap.c
 * Idea:     the interpreter has two domains of memory, mem and obj, whose allocator can be replaced (PyMem_SetAllocator). Ours passes every call on. What
 *           pymalloc in turn asks of malloc or mmap is recorded as ever, in those heaps: this one shows the same memory by its use, and is no root.
 * When:     at the best before the interpreter begins, when the process has one thread: then every block is seen. Else at the first stack that is taken by
 *           a thread that holds the GIL, under which these allocators are called; blocks from before are then unknown, and their frees count as unmatched.
 * Again:    PYTHONMALLOC and the development mode set the allocators anew while the interpreter begins, without telling anybody: before
 *           it has blocks, as those would come back to an allocator that does not know them. Between the two it reads its configuration
 *           into blocks of malloc. So until it has begun each hook looks, as it leaves, whether ours is still called, and sets it again.
 *           The same where it was finalized and is initialized again, or its library loaded again: it may have its own allocators back.
 * Layers:   what was set over ours may call it in turn (tracemalloc, debug hooks), and may be taken off again. So a layer that was set
 *           stays, with what it calls, and of those that a call goes through the outermost records: its blocks are the program's.
 * Debug:    PyMem_SetupDebugHooks() puts the interpreter's only debug hooks over what is called, unless they are that. Where ours lies over them
 *           it does not see them, and they come to call what calls them. The first call that comes round so puts things back.
 * Threads:  as the interpreter's allocators; each call uses its thread's own state.
 * Failure:  no Python heap. The interpreter's allocator gets every call, whatever happens to us.
 */
#include "heaps.h"
#include "process.h"
#include "python.h"

#include <string.h>

enum { DOMAIN_MEM = 1, DOMAIN_OBJ = 2, DOMAINS = 2 };
#define LAYERS_MAX 8u

struct allocator { /* PyMemAllocatorEx */
	void *context;
	void *(*malloc)(void *context, size_t size);
	void *(*calloc)(void *context, size_t count, size_t size);
	void *(*realloc)(void *context, void *p, size_t size);
	void (*free)(void *context, void *p);
};

static struct layer {
	struct allocator below;  /* what it calls; all zero: not in use */
	struct allocator *hooks; /* if that is the debug hooks: what they call */
	struct allocator past;   /* and what they called when ours was set */
} layers[LAYERS_MAX][DOMAINS] TM_ROOMY;
static uint32_t heap;
static bool samples_go_straight; /* when it has begun: as malloc_hooks.c wanted it */
static bool is_from_the_start;   /* ours was set before the interpreter began */

/* Layers that the thread is inside of. */
static __thread unsigned inside __attribute__((tls_model("initial-exec")));

static void record_alloc(void *p, size_t size, const void *frame) {
	struct tm_thread *t = p && !inside ? tm_hook_enter() : NULL;

	if (!t) return;
	tm_emit_heap_alloc(t, TM_OP_PYTHON_ALLOC, heap, p, size, frame);
	tm_hook_leave(t);
}

static void call_from(struct layer *l, unsigned i);

/* The debug hooks call this layer, which calls them: they get back what they called, and this layer is called first again. Under the GIL, as each call. */
TM_COLD static const struct allocator *put_back(struct layer *l) {
	*l->hooks = l->past;
	call_from(l, (unsigned)(l - &layers[0][0]) % DOMAINS);
	return &l->past;
}

static inline const struct allocator *next_of(struct layer *l) {
	return TM_UNLIKELY(l->hooks && l->hooks->context == l) ? put_back(l) : &l->below;
}

static void *python_malloc(void *context, size_t size) {
	const struct allocator *a = next_of(context);
	void *p;

	inside++;
	p = a->malloc(a->context, size);
	inside--;
	record_alloc(p, size, TM_FRAME);
	return p;
}

static void *python_calloc(void *context, size_t count, size_t size) {
	const struct allocator *a = next_of(context);
	void *p;

	inside++;
	p = a->calloc(a->context, count, size);
	inside--;
	record_alloc(p, count * size, TM_FRAME); /* it did not overflow, else p is NULL */
	return p;
}

static void *realloc_below(const struct allocator *a, void *old, size_t size) {
	void *p;

	inside++;
	p = a->realloc(a->context, old, size);
	inside--;
	return p;
}

/* The hook is left while the interpreter's realloc runs: what that asks of malloc is to be recorded. */
static void *python_realloc(void *context, void *old, size_t size) {
	struct tm_thread *t = old && !inside ? tm_hook_enter() : NULL;
	uint64_t begin = t ? tm_begin(t) : 0;
	void *p;

	if (t) tm_hook_leave(t);
	p = realloc_below(next_of(context), old, size);
	if (!old) {
		record_alloc(p, size, TM_FRAME);
		return p;
	}
	t = inside ? NULL : tm_hook_enter();
	if (!t) return p;
	if (p && begin) tm_emit_heap_realloc(t, TM_OP_PYTHON_REALLOC, heap, p, size, old, begin, TM_FRAME);
	else tm_cancel(t);
	tm_hook_leave(t);
	return p;
}

static void python_free(void *context, void *p) {
	const struct allocator *a = next_of(context);
	struct tm_thread *t = p && !inside ? tm_hook_enter() : NULL;

	if (t) {
		tm_emit_heap_free(t, TM_OP_PYTHON_FREE, heap, p);
		tm_hook_leave(t);
	}
	inside++;
	a->free(a->context, p);
	inside--;
}

static int domain_of(unsigned i) {
	return i == 0 ? DOMAIN_MEM : DOMAIN_OBJ;
}

static void allocator_of(unsigned i, struct allocator *out) {
	((void (*)(int, struct allocator *))tm_python.module.symbols[TM_PYTHON_GET_ALLOCATOR])(domain_of(i), out);
}

static void call_from(struct layer *l, unsigned i) {
	struct allocator ours = { l, python_malloc, python_calloc, python_realloc, python_free };

	((void (*)(int, struct allocator *))tm_python.module.symbols[TM_PYTHON_SET_ALLOCATOR])(domain_of(i), &ours);
}

/* What the debug hooks call, if these are they: a word of the domain's letter stands before it, where other allocators of the interpreter's have an address. */
static struct allocator *hooks_of(const struct allocator *a, unsigned i) {
	uintptr_t code = (uintptr_t)a->malloc;

	if (!a->context || code < tm_python.module.text_low || code >= tm_python.module.text_high) return NULL;
	return tm_python_word((uintptr_t)a->context, 0) == (uintptr_t) "mo"[i] ? (struct allocator *)((uintptr_t *)a->context + 1) : NULL;
}

/* The layer that calls `now`: one that does so already, else a new one; NULL: there are too many. */
static struct layer *layer_for(const struct allocator *now, unsigned i) {
	for (unsigned n = 0; n < LAYERS_MAX; n++) {
		struct layer *l = &layers[n][i];

		if (l->below.malloc && memcmp(&l->below, now, sizeof *now) != 0) continue;
		l->below = *now;
		l->hooks = hooks_of(now, i);
		if (l->hooks && l->hooks->context != l) l->past = *l->hooks;
		return l;
	}
	return NULL;
}

/* Sets ours where another one is called. True if it had to be. */
static bool set(struct tm_thread *t) {
	bool is_set = false;

	for (unsigned i = 0; i < DOMAINS; i++) {
		struct allocator now;
		struct layer *l;

		allocator_of(i, &now);
		if (now.malloc == python_malloc) continue;
		if (!heap) heap = tm_heap_number("python", 6, "python", 0, -1);
		if (!heap || !tm_heap_tell(t, heap) || !(l = layer_for(&now, i))) return is_set;
		call_from(l, i);
		is_set = true;
	}
	return is_set;
}

static bool is_initialized(void) {
	int (*ask)(void) = (int (*)(void))tm_python.module.symbols[TM_PYTHON_IS_INITIALIZED];

	return ask && ask();
}

/* --- an interpreter that has not begun --- */

static void begin(struct tm_thread *t) {
	set(t);
	if (atomic_load(&tm_python.heap_begins)) return;
	samples_go_straight = tm_guest.samples_straight;
	tm_guest.samples_straight = false; /* what goes straight to malloc does not come by here */
	atomic_store(&tm_python.heap_begins, true);
	t->at_leave = true;
}

bool tm_python_heap_at_leave(struct tm_thread *t) {
	bool begins = true;

	if (!atomic_load_explicit(&tm_python.heap_begins, memory_order_relaxed)) return false;
	if (!atomic_load(&tm_guest.python_finalizing)) return true; /* its library is being closed, or gone; it may come again */
	if (!is_initialized()) {
		if (tm_python_is_alone(t)) set(t);
		else is_from_the_start = false; /* it may begin in another thread by now, and then have an allocator of its own */
		return true;
	}
	if (atomic_compare_exchange_strong(&tm_python.heap_begins, &begins, false))
		tm_guest.samples_straight = samples_go_straight;
	return false;
}

/* --- coming in --- */

void tm_python_heap_found(struct tm_thread *t) {
	const struct tm_python_module *m = &tm_python.module;

	if (!tm_guest.shm->python_heap) return;
	if (!m->symbols[TM_PYTHON_GET_ALLOCATOR] || !m->symbols[TM_PYTHON_SET_ALLOCATOR] || !m->symbols[TM_PYTHON_THIS_THREAD]) return;
	is_from_the_start = !is_initialized() && tm_python_is_alone(t);
	if (is_from_the_start) begin(t);
	atomic_fetch_or(&tm_python.state, TM_PYTHON_HEAP_PENDING);
}

void tm_python_heap_poll(struct tm_thread *t) {
	const struct tm_python_module *m = &tm_python.module;
	void *(*this_thread)(void) = (void *(*)(void))m->symbols[TM_PYTHON_THIS_THREAD];
	const void *state = is_initialized() ? this_thread() : NULL;

	if (!state || !tm_python.current_thread || tm_python.current_thread() != state) return;
	if (!(atomic_fetch_and(&tm_python.state, ~TM_PYTHON_HEAP_PENDING) & TM_PYTHON_HEAP_PENDING)) return;
	if (set(t) && !is_from_the_start)
		tm_emit_note(t, "python-heap", "the heap python is recorded from here on: blocks that were there before are not in it");
}
