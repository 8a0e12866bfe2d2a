/* sampler.c - takes each stack twice and compares; see sampler.h.
 *
 * Oracle:   on x86-64 libunwind's cursor (unw_init_local, unw_step), which shares no code with the unwinder; elsewhere libgcc's _Unwind_Backtrace.
 * What must be equal: every frame, from the caller of the sampling function out to the end. What the unwinder says is applied as the collector would (keep
 *           so many outer frames, then these; or the stack that was learned by a number), so a wrong `keep` or number is seen too.
 * Code without a description: the oracle guesses from there on, and so may the unwinder. Up to that frame the stacks must be equal, and the unwinder must have
 *           marked its own as cut. Beyond it, what it says must be the truth, as far as it says anything: the stack as it was before that code was entered. The
 *           oracle's guesses are not asked for where the truth is known: libunwind reads at whatever address a wrong one leads to.
 * Frame pointers: TM_TEST_STACKS=framed takes stacks by them, of a program that is built with them. Out to its first frame in other code, that one
 *           included, the stacks must be equal; where there is none, whole and not marked. =unframed: so much can be said of the innermost frame only. Where
 *           the outermost is missing the stack must be marked as cut, but for coroutines: made by makecontext, they seem to be called by who made them.
 */
#include "sampler.h"
#include "alone.h"
#include "../../recorder/guest/emit.h"
#include "../../recorder/guest/raw.h"
#include "../../recorder/guest/shared_rules.h"
#include "../../recorder/guest/unwind_known.h"
#include "../../recorder/guest/unwind_usual.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEPTH_MAX 4096u
#define COMPLAINTS_MAX 10u

static struct tm_shm shm = { .stacks = TM_STACKS_UNWIND, .max_depth = 1024 };

/* Rules are shared with other programs through the file that TM_TEST_RULES names. A module's name stands for its build-id. */
uint64_t tm_modules_key(uintptr_t pc) {
#if defined(__x86_64__)
	struct dl_find_object found;
	uint64_t name[2] = { 0xcbf29ce484222325ull, 0x9e3779b97f4a7c15ull };
	if (!shm.rules_offset || _dl_find_object((void *)pc, &found) != 0) return 0;
	const char *at = found.dlfo_link_map->l_name[0] ? found.dlfo_link_map->l_name : program_invocation_name;
	for (; *at; at++) {
		name[0] = (name[0] ^ (uint8_t)*at) * 0x100000001b3ull;
		name[1] = (name[1] + (uint8_t)*at) * 0xff51afd7ed558ccdull;
	}
	uint64_t key = tm_shared_key(name, sizeof name, 0, (uint64_t)((char *)found.dlfo_map_end - (char *)found.dlfo_map_start), 0);
	return key ? key + (pc - (uintptr_t)found.dlfo_map_start) : 0;
#else
	(void)pc;
	return 0;
#endif
}

/* --- code with frame pointers: the program itself, if it says so --- */

static uintptr_t framed_low, framed_high;

static int note_program(struct dl_phdr_info *info, size_t size, void *unused) {
	(void)size;
	(void)unused;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
		if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X)) continue;
		framed_low = info->dlpi_addr + segment->p_vaddr;
		framed_high = framed_low + segment->p_memsz;
	}
	return 1; /* the first is the program */
}

static void choose_stacks(void) {
	const char *how = getenv("TM_TEST_STACKS");
	test_by_frame_pointers = how != NULL;
	if (how) shm.stacks = TM_STACKS_FP;
	if (how && strcmp(how, "framed") == 0) dl_iterate_phdr(note_program, NULL);
}

static void share_rules(void) {
	const char *path = getenv("TM_TEST_RULES");
	int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	if (path && (fd < 0 || ftruncate(fd, sizeof(struct tm_shared_rules)) != 0)) abort();
	void *rules = mmap(NULL, sizeof(struct tm_shared_rules), PROT_READ | PROT_WRITE, path ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
	if (rules == MAP_FAILED) abort();
	if (path) close(fd);
	shm.rules_offset = (uint64_t)((uintptr_t)rules - (uintptr_t)&shm);
}

TM_EXPORT __thread unsigned test_active[TEST_FEATURE_COUNT];
TM_EXPORT __thread struct test_truth *test_truth;
TM_EXPORT __thread void (*test_in_dlclose)(void);
TM_EXPORT bool test_has_truth;
TM_EXPORT bool test_by_frame_pointers;

struct learned { /* stacks, innermost first */
	uint32_t depth;
	uintptr_t *pcs;
};
#define LEARNED_BYTES ((size_t)TM_RING_KNOWN_MOST * sizeof(struct learned))
#define LEARNED_FRAMES_BYTES ((size_t)tm_ring_known_frames(1) * sizeof(uintptr_t))

static __thread struct sample_thread {
	struct tm_thread *t;
	uintptr_t *sent, *oracle; /* innermost first */
	bool *described;
	struct learned *learned; /* by number */
	uint32_t learned_count;
	uint32_t depth, framed; /* framed: so many frames, the innermost, do frame pointers lead to; UINT32_MAX: to all */
	bool inside;
} thread __attribute__((tls_model("initial-exec")));

static struct test_counts counts;
static uint32_t threads_begun;
static pthread_key_t end_key;
static _Atomic unsigned complaints;

#define COUNT(field, n) __atomic_fetch_add(&counts.field, (unsigned long long)(n), __ATOMIC_RELAXED)

/* --- the oracle --- */

static bool is_ours(uintptr_t pc) {
	return pc - tm_guest.text_low < tm_guest.text_high - tm_guest.text_low;
}

/* The way in to the program, as the guest's wrapper around main is: what lies outside of it is not looked at. */
extern const char __start_tm_main[] TM_HIDDEN, __stop_tm_main[] TM_HIDDEN;

static bool is_way_in(uintptr_t pc) {
	return pc - (uintptr_t)__start_tm_main < (uintptr_t)(__stop_tm_main - __start_tm_main);
}

TM_EXPORT __attribute__((noinline, section("tm_main"))) void tm_test_as_main(void *(*start)(void *), void *argument) {
	start(argument);
	__asm__ volatile("" ::: "memory");
}

/* The oracle's frame n, or else one of ours after n. What calls from code without frame pointers is found by them, but not its caller. */
static void note_framed(uintptr_t pc, unsigned n) {
	if (thread.framed != UINT32_MAX || pc - framed_low < framed_high - framed_low) return;
	if (!is_ours(pc)) thread.framed = n + 1;
	else if (n > 0) thread.framed = n;
}

#if defined(__x86_64__)
#define UNW_LOCAL_ONLY
#include <libunwind.h>

static unsigned take_by_oracle(uintptr_t *pcs, bool *described, unsigned most) {
	unw_context_t context;
	unw_cursor_t cursor;
	unsigned n = 0;
	unw_getcontext(&context);
	unw_init_local(&cursor, &context);
	while (n < most && unw_step(&cursor) > 0) {
		unw_word_t pc;
		unw_proc_info_t info;
		if (unw_get_reg(&cursor, UNW_REG_IP, &pc) < 0 || !pc || is_way_in(pc)) break;
		note_framed(pc, n);
		if (is_ours(pc)) continue;
		/* Where it knows nothing it makes up a function of one byte. A function's first address is returned to on a stack that was made so. */
		described[n] = unw_get_proc_info(&cursor, &info) == 0 && info.end_ip > info.start_ip + 1;
		if (!described[n]) described[n] = unw_get_proc_info_by_ip(unw_local_addr_space, pc, &info, NULL) == 0 && info.start_ip == pc;
		pcs[n++] = pc;
		if (test_has_truth && !described[n - 1]) break;
	}
	return n;
}

static void flush_oracle(void) {
	unw_flush_cache(unw_local_addr_space, 0, 0);
}

/* libunwind blocks all signals at each step, which takes most of the time. A handler that interrupts the oracle does not ask it (`inside`): no need. */
TM_EXPORT int sigprocmask(int how, const sigset_t *set, sigset_t *old) {
	return thread.inside ? 0 : pthread_sigmask(how, set, old);
}
#else
#include <unwind.h>

struct trace {
	uintptr_t *pcs;
	bool *described;
	unsigned n, most;
	uintptr_t pc, cfa; /* of the frame before */
};

struct bases { /* what libgcc tells of a function; no header says it */
	void *text, *data, *function;
};
extern const void *_Unwind_Find_FDE(void *pc, struct bases *bases);

static _Unwind_Reason_Code trace_one(struct _Unwind_Context *context, void *data) {
	struct trace *trace = data;
	int was_interrupted;
	struct bases bases;
	uintptr_t pc = (uintptr_t)_Unwind_GetIPInfo(context, &was_interrupted), cfa = (uintptr_t)_Unwind_GetCFA(context);
	if (trace->n && pc == trace->pc && cfa == trace->cfa) { /* a description that leads to itself (libc's swapcontext, interrupted at its end) */
		while (trace->n > 1 && trace->pcs[trace->n - 2] == pc) trace->n--;
		trace->described[trace->n - 1] = false;
		return _URC_END_OF_STACK;
	}
	trace->pc = pc;
	trace->cfa = cfa;
	if (trace->n) trace->described[trace->n - 1] = true; /* it was left: by a description, or because it is the return from a signal */
	if (trace->n == trace->most || !pc || is_way_in(pc)) return _URC_END_OF_STACK;
	note_framed(pc, trace->n);
	if (is_ours(pc)) return _URC_NO_REASON;
	trace->described[trace->n] = _Unwind_Find_FDE((void *)(pc - !was_interrupted), &bases) != NULL;
	if (!trace->described[trace->n]) trace->described[trace->n] = _Unwind_Find_FDE((void *)pc, &bases) && (uintptr_t)bases.function == pc;
	trace->pcs[trace->n++] = pc;
	return _URC_NO_REASON;
}

static unsigned take_by_oracle(uintptr_t *pcs, bool *described, unsigned most) {
	struct trace trace = { pcs, described, 0, most, 0, 0 };
	_Unwind_Backtrace(trace_one, &trace);
	return trace.n;
}

static void flush_oracle(void) {
}
#endif

/* --- threads --- */

static size_t thread_bytes(void) {
	return sizeof(struct tm_thread) + tm_stack_bytes(DEPTH_MAX) + DEPTH_MAX * (2 * sizeof(uintptr_t) + sizeof(bool));
}

static void end_thread(void *t) {
	thread.t = NULL;
	thread.inside = true;
	tm_stack_release(t);
	tm_raw_unmap(thread.learned, LEARNED_BYTES + LEARNED_FRAMES_BYTES);
	tm_raw_unmap(t, thread_bytes());
}

static bool start_thread(void) {
	struct tm_thread *t = tm_raw_map(thread_bytes());
	thread.learned = tm_raw_map(LEARNED_BYTES + LEARNED_FRAMES_BYTES);
	thread.learned_count = 0;
	if (!t || !thread.learned) return false;
	t->capacity = shm.max_depth;
	t->number = 1 + __atomic_fetch_add(&threads_begun, 1, __ATOMIC_RELAXED) % 2; /* every other one has room for few that are known */
	tm_stack_prepare(t, t + 1);
	tm_stack_start_thread(t);
	thread.sent = (uintptr_t *)((char *)(t + 1) + tm_stack_bytes(DEPTH_MAX));
	thread.oracle = thread.sent + DEPTH_MAX;
	thread.described = (bool *)(thread.oracle + DEPTH_MAX);
	thread.depth = 0;
	thread.t = t;
	pthread_setspecific(end_key, t);
	return true;
}

static void start_child(void) { /* what was counted is the parent's to report */
	counts = (struct test_counts){ 0 };
}

__attribute__((constructor)) static void start(void) {
	pthread_atfork(NULL, NULL, start_child);
	share_rules();
	choose_stacks();
	tm_guest.shm = &shm;
	tm_stack_start();
	tm_guest.main_low = (uintptr_t)__start_tm_main;
	tm_guest.main_high = (uintptr_t)__stop_tm_main;
	pthread_key_create(&end_key, end_thread);
	flush_oracle();
}

TM_EXPORT void tm_test_limit(unsigned frames) {
	if (!thread.t && !start_thread()) return;
	thread.t->capacity = frames;
	tm_stack_prepare(thread.t, thread.t + 1);
	tm_stack_start_thread(thread.t);
	thread.depth = 0;
}

/* --- comparison --- */

static void print_stack(const char *title, const uintptr_t *pcs, unsigned n) {
	fprintf(stderr, "  %s, %u frames:\n", title, n);
	for (unsigned i = 0; i < n && i < 60; i++) {
		Dl_info info = { 0 };
		bool named = dladdr((void *)pcs[i], &info);
		fprintf(stderr, "    %2u %#lx %s+%#lx %s\n", i, (unsigned long)pcs[i], named && info.dli_fname ? info.dli_fname : "?",
			named ? (unsigned long)(pcs[i] - (uintptr_t)info.dli_fbase) : 0ul, named && info.dli_sname ? info.dli_sname : "");
	}
}

static void complain(const char *what, unsigned at, unsigned oracle_depth) {
	if (atomic_fetch_add(&complaints, 1) >= COMPLAINTS_MAX) return;
	fprintf(stderr, "%s at frame %u; in:", what, at);
#define X(name) \
	if (test_active[TEST_##name]) fprintf(stderr, " " #name);
	TEST_FEATURES(X)
#undef X
	fprintf(stderr, "\n");
	print_stack("unwinder", thread.sent, thread.depth);
	print_stack("oracle", thread.oracle, oracle_depth);
}

/* What a record says. */
struct said {
	struct tm_stack stack;
	uint64_t known; /* of a stack that is known, or learned: TM_RING_KNOWN, TM_RING_LEARN, TM_RING_LEARN_FIRST, and the number; 0: of none */
};

static bool says(const struct said *s, unsigned flag) {
	return s->known >> 8 & flag;
}

static void learn(const struct said *s) {
	uintptr_t *room = (uintptr_t *)((char *)thread.learned + LEARNED_BYTES);
	if (says(s, TM_RING_LEARN_FIRST)) thread.learned_count = 0;
	if (thread.learned_count) {
		const struct learned *last = &thread.learned[thread.learned_count - 1];
		room = last->pcs + last->depth;
	}
	thread.learned[thread.learned_count++] = (struct learned){ thread.depth, room };
	memcpy(room, thread.sent, thread.depth * sizeof *room);
	COUNT(learned, 1);
}

/* What the collector would make of it. `sent` is innermost first. */
static void apply(const struct said *said) {
	const struct tm_stack *s = &said->stack;
	struct tm_thread *t = thread.t;
	if (says(said, TM_RING_KNOWN)) {
		size_t number = said->known >> 32 & 0xffff;
		if (number >= thread.learned_count) abort();
		thread.depth = thread.learned[number].depth;
		memcpy(thread.sent, thread.learned[number].pcs, thread.depth * sizeof *thread.sent);
		COUNT(known, 1);
		return;
	}
	memmove(thread.sent + s->fresh, thread.sent + (thread.depth - s->keep), s->keep * sizeof *thread.sent);
	for (uint32_t i = 0; i < s->fresh; i++) thread.sent[i] = t->pcs[t->depth - 1 - i];
	thread.depth = s->keep + s->fresh;
	if (says(said, TM_RING_LEARN)) learn(said);
}

/* The frames outside of the undescribed code. Where that keeps no frame pointers, frames may be missing, but what is there must be right. */
static bool is_truth(unsigned from, unsigned *at) {
	const struct test_truth *truth = test_truth;
	bool may_miss = test_active[TEST_jit_without_fp] != 0;
	unsigned k = 0;
	for (*at = from; *at < thread.depth; ++*at, k++) {
		while (may_miss && k < truth->depth && truth->pcs[k] && truth->pcs[k] != thread.sent[*at]) k++;
		if (k >= truth->depth || (truth->pcs[k] && truth->pcs[k] != thread.sent[*at])) return false;
	}
	return may_miss || k == truth->depth || thread.depth == thread.t->capacity;
}

static void compare(const struct tm_stack *s, unsigned oracle_depth) {
	unsigned limit = thread.t->capacity, i = 0;
	bool limited = oracle_depth > limit;
	if (limited) {
		oracle_depth = limit;
		if (test_active[TEST_depth_limit]) COUNT(features[TEST_depth_limit], 1);
	}
	while (i < thread.depth && i < oracle_depth && thread.sent[i] == thread.oracle[i]) i++;
	unsigned undescribed = 0;
	while (undescribed < oracle_depth && thread.described[undescribed]) undescribed++;
	if (i == thread.depth && i == oracle_depth) {
		if ((undescribed < oracle_depth || limited) != s->cut) {
			COUNT(wrong_cut, 1);
			complain(s->cut ? "marked as cut" : "not marked as cut", undescribed, oracle_depth);
		}
		return;
	}
	if (i > undescribed && s->cut) {
		unsigned at;
		COUNT(beyond, 1);
		if (!test_truth || is_truth(undescribed + 1, &at)) return;
		complain("not the truth", at, oracle_depth);
	} else {
		complain("different", i, oracle_depth);
	}
	COUNT(wrong, 1);
}

static void compare_by_frame_pointers(const struct tm_stack *s, unsigned oracle_depth) {
	unsigned limit = thread.t->capacity, n = oracle_depth < limit ? oracle_depth : limit, i = 0;
	bool whole = thread.framed == UINT32_MAX && oracle_depth <= limit, knows_end = thread.described[oracle_depth - 1] && !test_active[TEST_coroutine];
	if (thread.framed < n) n = thread.framed;
	while (i < n && i < thread.depth && thread.sent[i] == thread.oracle[i]) i++;
	if (i < n || (whole && thread.depth != n)) {
		COUNT(wrong, 1);
		complain("different", i, oracle_depth);
	} else if (s->cut ? whole : knows_end && thread.sent[thread.depth - 1] != thread.oracle[oracle_depth - 1]) {
		COUNT(wrong_cut, 1);
		complain(s->cut ? "marked as cut" : "not marked as cut", i, oracle_depth);
	}
	COUNT(whole, whole);
	if (oracle_depth > limit && test_active[TEST_depth_limit]) COUNT(features[TEST_depth_limit], 1);
}

static struct tm_stack take_unknown(struct tm_thread *t, const void *frame) {
	if (t->known) tm_known_restore(t, (uintptr_t)frame);
	uint32_t valid, fresh = tm_unwind_simply(t, frame, &valid);
	if (fresh >= TM_UNWIND_UNEXPECTED) fresh = tm_unwind_next(t, frame, fresh, &valid);
	if (fresh == TM_UNWIND_NOT_QUICK) return tm_stack_take(t, frame, valid);
	COUNT(quick, 1);
	return (struct tm_stack){ t->depth - fresh, fresh, t->cut_frame != UINT32_MAX, false };
}

static struct said take_by_unwinder(struct tm_thread *t, const void *frame) {
	struct said s = { 0 };
	bool all;
	const struct tm_known *known = tm_known_take(t, (uintptr_t)frame + 8, &all);
	if (known) {
		s.known = known->word;
		s.stack.cut = known->word & TM_RING_CUT << 8;
		tm_known_go_on(t, known);
		return s;
	}
	s.stack = take_unknown(t, frame);
	s.known = tm_known_note(t, 0);
	return s;
}

static __attribute__((noinline)) void sample(const void *frame) {
	if (thread.inside) {
		COUNT(own_skipped, 1);
		return;
	}
	thread.inside = true;
	if (thread.t || start_thread()) {
		struct said said = take_by_unwinder(thread.t, frame);
		struct tm_stack s = said.stack;
		apply(&said);
		thread.framed = is_ours(((const uintptr_t *)frame)[1]) ? 0 : UINT32_MAX;
		unsigned n = take_by_oracle(thread.oracle, thread.described, DEPTH_MAX);
		if (shm.stacks == TM_STACKS_FP) compare_by_frame_pointers(&s, n);
		else compare(&s, n);
		COUNT(stacks, 1);
		COUNT(frames, thread.depth);
		COUNT(fresh, s.fresh);
		COUNT(cut, s.cut);
		for (unsigned i = 0; i < TEST_FEATURE_COUNT; i++)
			if (test_active[i] && i != TEST_depth_limit) COUNT(features[i], 1);
	}
	thread.inside = false;
}

TM_EXPORT void tm_test_sample(void) {
	sample(TM_FRAME);
	__asm__ volatile("" ::: "memory");
}

TM_EXPORT void tm_test_stack_here(struct test_truth *truth) {
	static __thread bool described[1024];
	unsigned n = 0, known;
	thread.inside = true;
	known = take_by_oracle((uintptr_t *)truth->pcs, described, 1024);
	while (n < known && described[n]) n++;
	if (n < known) {
		n++;
		for (unsigned i = 0; test_truth && i < test_truth->depth && n < 1024; i++) truth->pcs[n++] = test_truth->pcs[i];
	}
	truth->pcs[0] = 0;
	truth->depth = n;
	thread.inside = false;
}

TM_EXPORT void tm_test_pause(bool on) {
	thread.inside = on;
}

TEST_PASS_ON(tm_test_pass)
#if defined(__x86_64__)
__asm__(".text\n\t.globl tm_test_pass_framed\n\t.type tm_test_pass_framed, @function\ntm_test_pass_framed:\n\t.cfi_startproc\n\t"
	"push %rbp\n\t.cfi_def_cfa_offset 16\n\t.cfi_offset %rbp, -16\n\tmov %rsp, %rbp\n\t.cfi_def_cfa_register %rbp\n\t"
	"mov %rdi, %rax\n\tmov %esi, %edi\n\tcall *%rax\n\tpop %rbp\n\t.cfi_def_cfa %rsp, 8\n\tret\n\t.cfi_endproc\n\t"
	".size tm_test_pass_framed, .-tm_test_pass_framed\n"
	".globl tm_test_pivoted\n\t.type tm_test_pivoted, @function\ntm_test_pivoted:\n\t.cfi_startproc\n\t"
	"push %rbp\n\t.cfi_def_cfa_offset 16\n\t.cfi_offset %rbp, -16\n\tmov %rsp, %rbp\n\t.cfi_def_cfa_register %rbp\n\t"
	"push %r12\n\tpush %rbx\n\tpush %r13\n\tpush %r14\n\tmov %rdi, %r12\n\tmov %rbp, %rbx\n\tmov %rsi, %r13\n\tmov $10, %r14d\n"
	"1:\tmov %rbx, %rbp\n\ttest $1, %r13b\n\tje 2f\n\tmov (%rbx), %rbp\n2:\tcall *%r12\n\tshr %r13\n\tdec %r14d\n\tjne 1b\n\t"
	"mov %rbx, %rbp\n\tpop %r14\n\tpop %r13\n\tpop %rbx\n\tpop %r12\n\tpop %rbp\n\t.cfi_def_cfa %rsp, 8\n\tret\n\t.cfi_endproc\n\t"
	".size tm_test_pivoted, .-tm_test_pivoted\n");
#endif

TM_EXPORT void tm_test_counts(struct test_counts *to) {
	*to = counts;
}

/* --- hooks --- */

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
TM_EXPORT void *malloc(size_t size);
TM_EXPORT void *calloc(size_t count, size_t size);
TM_EXPORT void *realloc(void *old, size_t size);

TM_EXPORT void *malloc(size_t size) {
	if (tm_guest.shm) sample(TM_FRAME);
	return __libc_malloc(size);
}

TM_EXPORT void *calloc(size_t count, size_t size) {
	if (tm_guest.shm) sample(TM_FRAME);
	return __libc_calloc(count, size);
}

TM_EXPORT void *realloc(void *old, size_t size) {
	if (tm_guest.shm) sample(TM_FRAME);
	return __libc_realloc(old, size);
}

TM_EXPORT int dlclose(void *handle) {
	int (*real)(void *);
	*(void **)&real = dlsym(RTLD_NEXT, "dlclose");
	tm_rules_close_begin();
	int result = real(handle);
	flush_oracle();
	if (test_in_dlclose) test_in_dlclose();
	tm_rules_close_end();
	flush_oracle();
	return result;
}

/* For programs that know nothing of us. */
__attribute__((destructor)) static void report(void) {
	const char *path = getenv("TM_TEST_REPORT");
	FILE *file = path ? fopen(path, "a") : NULL;
	if (!file) return;
	fprintf(file, "stacks %llu known %llu frames %llu fresh %llu cut %llu wrong %llu wrong_cut %llu beyond %llu\n", counts.stacks, counts.known,
		counts.frames, counts.fresh,
		counts.cut, counts.wrong, counts.wrong_cut, counts.beyond);
	fclose(file);
}
