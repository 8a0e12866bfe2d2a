/* torch_scopes.c - PyTorch's operators and record_function blocks as scopes.
 *
 * Flow:     torch_hooks.c, first call -> tm_torch_attach() -> at::addGlobalCallback;  then each operator -> start_..(), end_..() -> scope.h -> ring
 * Key:      the address of the at::RecordFunction, which is neither copied nor moved: it names the scope on whatever thread and in whatever order its end
 *           comes. So PyTorch keeps no context for us.
 * Link:     PyTorch numbers the nodes of the backward graph, each thread its own. An operator carries the number that the next node of its thread
 *           will get, or none; the backward function carries the number of its node and the thread that made it. So
 *               link = (number + 1) << 16 | thread
 *           is the same for both, and 0 is none. Several operators may carry the number before a node takes it: the last of them made the node.
 * Layout:   number and thread of an at::RecordFunction are read from the object, since only inlined code of PyTorch's own reads them. Where they lie
 *           is found by having one made (look_at_layout), and if that shows anything unexpected nothing is linked.
 * State:    what a thread has of its own, an at::RecordFunctionTLS, is a vector of callbacks and whether any callback is called at all. A thread that is given
 *           what it has would rebuild its lists of callbacks all the same (torch_hooks.c). That the lists are up to date is looked at by PyTorch at every
 *           operator, by their version, and need not be seen to then.
 * Errors:   an operator that throws ends its scope on the way, as PyTorch's destructors run.
 */
#include "torch.h"
#include "scope.h"

#include <string.h>

#define FUNCTION_BYTES_MAX 4096u /* more than any version's at::RecordFunction has */
#define THREAD_BITS 16u

enum scope_kind { KIND_FUNCTION = 0, KIND_BACKWARD = 1, KIND_SCRIPT = 2, KIND_USER = 7 }; /* at::RecordScope */

static struct {
	tm_torch_function_name *name;
	tm_torch_thread_id *thread_id;
	unsigned number_at, forward_thread_at; /* offsets in an at::RecordFunction; 0: not known */
	tm_torch_get_record_function_tls *_Atomic state; /* the thread's; NULL: not known to be as struct thread_state */
} torch;

/* --- the callbacks --- */

static inline uint64_t word_at(const void *function, unsigned offset) {
	uint64_t word;

	memcpy(&word, (const char *)function + offset, sizeof word);
	return word;
}

static inline uint64_t link_of(const void *function, bool backward) {
	uint64_t number, thread;

	if (!torch.number_at) return 0;
	number = word_at(function, torch.number_at) + 1; /* no number is -1 */
	if (TM_LIKELY(number == 0) || number >> (64 - THREAD_BITS)) return 0;
	thread = backward ? word_at(function, torch.forward_thread_at) : torch.thread_id();
	return thread == 0 || thread >> THREAD_BITS ? 0 : number << THREAD_BITS | thread;
}

TM_COLD static void record_long_name(struct tm_thread *t, enum tm_scope_category category, const void *function, uint64_t link, const char *name, size_t n) {
	tm_record_scope(t, TM_OP_SCOPE_RANGE, category, (uintptr_t)function, link, name, tm_text_cut(name, n, TM_RING_TEXT_MAX));
}

/* The way to the name leads through several objects of PyTorch's, so it is gone behind the stamp (hot.h). */
static inline __attribute__((always_inline)) void record_open(struct tm_thread *t, const void *function, enum tm_scope_category category) {
	uint64_t *r, link = 0;
	const char *name;
	size_t n;

	tm_set_busy(t);
	if (!tm_reserve(t, TM_LATE_NAME_WORDS, TM_NO_EVENT, &r)) return;
	r[1] = tm_in_order(t, tm_now());
	if (category == TM_SCOPE_TORCH_OP || category == TM_SCOPE_TORCH_BACKWARD) link = link_of(function, category == TM_SCOPE_TORCH_BACKWARD);
	name = torch.name(function);
	if (!name) name = "";
	n = tm_put_late_name(r + TM_RING_SCOPE_WORDS, name);
	if (TM_UNLIKELY(n > TM_LATE_NAME_BYTES)) {
		record_long_name(t, category, function, link, name, n);
		return;
	}
	unsigned words = TM_RING_SCOPE_WORDS + (unsigned)((n + 7) / 8);
	r[0] = tm_ring_word(TM_OP_SCOPE_RANGE, TM_RING_NO_STACK, words, category, (unsigned)n);
	r[2] = (uintptr_t)function;
	r[3] = link;
	tm_publish(t, r + words);
}

static inline __attribute__((always_inline)) void *open_scope(void **context, const void *function, enum tm_scope_category category) {
	struct tm_thread *t = tm_enter_to_tell();

	*context = NULL;
	if (!t) return context;
	record_open(t, function, category);
	tm_leave(t);
	return context;
}

static inline __attribute__((always_inline)) void close_scope(const void *function, enum tm_scope_category category) {
	struct tm_thread *t;

	if (tm_record_scope_quickly(TM_OP_SCOPE_END, category, (uintptr_t)function, 0, NULL) || !(t = tm_enter_to_tell())) return;
	tm_record_scope(t, TM_OP_SCOPE_END, category, (uintptr_t)function, 0, NULL, 0);
	tm_leave(t);
}

/* X(scope kind, category): a pair of callbacks each, since what kind an at::RecordFunction is only inlined code of PyTorch's reads. */
#define KINDS(X) \
	X(KIND_FUNCTION, TM_SCOPE_TORCH_OP) \
	X(KIND_BACKWARD, TM_SCOPE_TORCH_BACKWARD) X(KIND_SCRIPT, TM_SCOPE_TORCH_SCRIPT) X(KIND_USER, TM_SCOPE_TORCH_USER)

#define X(kind, category) \
	TM_HOT static void *start_##kind(void **context, const void *function) { \
		return open_scope(context, function, category); \
	} \
	TM_HOT static void end_##kind(const void *function, void *context) { \
		(void)context; \
		close_scope(function, category); \
	}
KINDS(X)
#undef X

/* --- attaching --- */

/* In a fresh one the number is -1 and so is a debug handle further behind, and nothing else. In front of that are a flag, a handle and the
 * forward thread; between number and forward thread lie two words of inputs, a vector of outputs (3), and since 2.1 a hash map (7). */
static void look_at_layout(tm_torch_function_construct *construct, tm_torch_function_destroy *destroy) {
	static TM_ROOMY _Alignas(16) uint64_t function[FUNCTION_BYTES_MAX / 8];
	unsigned minus[3], count = 0, distance;
	bool sound = true;

	construct(function, KIND_USER);
	for (unsigned i = 0; i < FUNCTION_BYTES_MAX / 8 && count < 3; i++)
		if (function[i] == ~0ull) minus[count++] = i;
	distance = count == 2 ? minus[1] - minus[0] : 0;
	if (distance != 9 && distance != 16) sound = false;
	else
		for (unsigned i = minus[1] - 3; i < minus[1]; i++) sound &= function[i] == 0;
	destroy(function);
	if (!sound) return;
	torch.number_at = minus[0] * 8;
	torch.forward_thread_at = (minus[1] - 3) * 8;
}

struct thread_state { /* at::RecordFunctionTLS */
	uintptr_t callbacks, callbacks_end, room_end;
	bool enabled;
};

/* In a thread that has no callbacks of its own, yet, all is zero but the switch, which turns when it is turned. */
static bool is_as_expected(tm_torch_get_record_function_tls *get, tm_torch_enable_record_function *enable) {
	const struct thread_state *now = get();
	bool sound = !now->callbacks && !now->callbacks_end && !now->room_end && *(const uint8_t *)&now->enabled == 1;

	if (!sound) return false;
	enable(false);
	sound = !now->callbacks && !now->callbacks_end && !now->room_end && *(const uint8_t *)&now->enabled == 0;
	enable(true);
	return sound && get() == now && !now->callbacks && *(const uint8_t *)&now->enabled == 1;
}

TM_HOT bool tm_torch_is_set_already(const void *state) {
	tm_torch_get_record_function_tls *get = atomic_load_explicit(&torch.state, memory_order_acquire);
	const struct thread_state *asked = state, *now;

	if (!get || asked->callbacks != asked->callbacks_end) return false;
	now = get();
	return now->callbacks == now->callbacks_end && now->enabled == asked->enabled;
}

static const char *hook_operators(bool complete) {
	tm_torch_get_record_function_tls *get = TM_TORCH(get_record_function_tls);
	tm_torch_enable_record_function *enable = TM_TORCH(enable_record_function);
	tm_torch_add_global_callback *add = TM_TORCH(add_global_callback);
	tm_torch_function_construct *construct = TM_TORCH(function_construct);
	tm_torch_function_destroy *destroy = TM_TORCH(function_destroy);

	torch.name = TM_TORCH(function_name);
	torch.thread_id = TM_TORCH(thread_id);
	if (!add || !torch.name) return complete ? "this PyTorch cannot be asked for its operators: they are no scopes in this trace" : "";
	if (construct && destroy && torch.thread_id) look_at_layout(construct, destroy);
#define X(kind, category) \
	add((struct tm_torch_callback){ .start = start_##kind, .end = end_##kind, .probability = 1, .scopes = { [kind] = 1 } });
	KINDS(X)
#undef X
	if (get && enable && is_as_expected(get, enable)) atomic_store_explicit(&torch.state, get, memory_order_release);
	return torch.number_at ? NULL
			       : "this PyTorch's operators are of an unknown layout: backward operators are not linked to forward ones";
}

static void note(const char *text) {
	struct tm_thread *t = tm_hook_enter();

	if (!t) return;
	tm_emit_note(t, "torch", text);
	tm_hook_leave(t);
}

/* A fork's child has its parent's callbacks. */
TM_HOT void tm_torch_attach(bool complete) {
	static _Atomic uint32_t attached; /* 0 no, 1 under way or done */
	uint32_t expected = 0;
	const char *problem;

	if (TM_LIKELY(atomic_load_explicit(&attached, memory_order_relaxed)) || !tm_torch_is_wanted()) return;
	if (!atomic_compare_exchange_strong(&attached, &expected, 1)) return;
	tm_causes_begin();
	problem = hook_operators(complete);
	tm_causes_end();
	if (problem && !problem[0]) atomic_store(&attached, 0); /* libc10 alone so far */
	else if (problem) note(problem);
}
