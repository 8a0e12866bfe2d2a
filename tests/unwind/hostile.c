/* hostile.c - stacks that are no stacks: the unwinder may say anything about them but what can be no code, and must come back, and touch nothing
 * that is not there.
 *
 * Usage:   hostile STACKS [SEED]; status 0, or a signal. The unwinder's sources are linked in.
 * Method:  words at random (garbage, places in and around this stack, in a guard page, in unmapped memory, code of every library) are unwound as if hooks had
 *          been called there, on the thread's own stack and on mapped memory between guard pages. Then stacks of coroutines that are unmapped after the switch.
 *          Then libc's longjmp and swapcontext are interrupted at each instruction, where no description says what is true (libgcc faults in most of
 *          aarch64's longjmp: the description leads to an address that is mangled). At last, on an ordinary stack, system calls are counted: none may be
 *          made once the thread is known.
 */
#include "../../recorder/guest/emit.h"
#include "../../recorder/guest/raw.h"
#include "../../recorder/guest/unwind_known.h"
#include "../../recorder/guest/unwind_usual.h"
#include "alone.h"
#include "trap.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define WORDS 512u
#define CAPACITY 256u
#define PAGE 4096u

uint64_t tm_modules_key(uintptr_t pc) {
	(void)pc;
	return 0;
}

static unsigned long syscalls;

long tm_syscall(long number, long a, long b, long c, long d, long e, long f) {
	syscalls++;
	long result = syscall(number, a, b, c, d, e, f);
	return result < 0 ? -errno : result;
}

static struct tm_shm shm = { .stacks = TM_STACKS_UNWIND, .max_depth = CAPACITY };
static struct { uintptr_t low, bytes; } code[32];
static unsigned code_count;
static uintptr_t guard, unmapped;
static uint64_t state;
static unsigned stacks; /* of random words, for each way and thread */

static uint32_t pick(uint32_t n) {
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((state >> 33) % n);
}

static int note_code(struct dl_phdr_info *info, size_t size, void *unused) {
	(void)size;
	(void)unused;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
		if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X) || code_count == 32) continue;
		code[code_count].low = info->dlpi_addr + segment->p_vaddr;
		code[code_count++].bytes = segment->p_memsz;
	}
	return 0;
}

static uintptr_t any_word(const uintptr_t *words) {
	uintptr_t near = (uintptr_t)words + 8 * pick(WORDS);
	unsigned library = pick(code_count);
	switch (pick(13)) {
	case 0: return (uintptr_t)pick(UINT32_MAX) << 32 | pick(UINT32_MAX);
	case 1: return pick(100000);
	case 2: return near + pick(8);
	case 3: return guard + pick(PAGE);
	case 4: return unmapped + pick(PAGE);
	case 5: return (uintptr_t)words + WORDS * 8 - pick(32);
	case 6:
	case 7: return near;
	case 8: return (uintptr_t)pick(4096) << 36 | pick(3); /* such have the tag of an empty place in the table of rules */
	default: return code[library].low + pick((uint32_t)code[library].bytes);
	}
}

static struct tm_stack take(struct tm_thread *t, const void *frame) {
	bool all;
	const struct tm_known *known = tm_known_take(t, (uintptr_t)frame + 8, &all);
	if (known) {
		tm_known_go_on(t, known);
		return (struct tm_stack){ 0 };
	}
	if (t->known) tm_known_restore(t, (uintptr_t)frame);
	uint32_t valid, fresh = tm_unwind_simply(t, frame, &valid);
	if (fresh >= TM_UNWIND_UNEXPECTED) fresh = tm_unwind_next(t, frame, fresh, &valid);
	struct tm_stack s = { t->depth - fresh, fresh, false, false };
	if (fresh == TM_UNWIND_NOT_QUICK) s = tm_stack_take(t, frame, valid);
	tm_known_note(t, 0);
	uint32_t odd = 0;
	while (odd + 1 < t->depth && !tm_unwind_is_no_code(t->pcs[odd])) odd++; /* the innermost is whatever was said to have called */
	if (s.keep + s.fresh == t->depth && odd + 1 == t->depth && t->depth <= CAPACITY) return s;
	fprintf(stderr, "%u frames kept, %u new, %u in all, no code: %u\n", s.keep, s.fresh, t->depth, odd);
	_exit(1);
}

static void unwind_words(struct tm_thread *t, uintptr_t *words) {
	for (unsigned i = 0; i < WORDS; i++) words[i] = any_word(words);
	for (unsigned i = 0; i < 20; i++) {
		unsigned at = pick(WORDS - 2);
		if (pick(2)) words[at] = (uintptr_t)&words[at + pick(WORDS - at)]; /* a frame pointer that makes sense */
		take(t, &words[at]);
	}
}

static __attribute__((noinline)) void unwind_own_stack(struct tm_thread *t) {
	uintptr_t words[WORDS];
	unwind_words(t, words);
	__asm__ volatile("" : : "r"(words) : "memory");
}

/* --- an ordinary call --- */

static __attribute__((noinline)) void hook(struct tm_thread *t) {
	take(t, TM_FRAME);
	__asm__ volatile("" ::: "memory");
}

static __attribute__((noinline)) void descend(struct tm_thread *t, unsigned depth) {
	if (depth) descend(t, depth - 1);
	hook(t);
	__asm__ volatile("" ::: "memory");
}

static ucontext_t outside, inside;
static struct tm_thread *coroutines;

static void coroutine(void) {
	for (;;) {
		descend(coroutines, pick(20));
		swapcontext(&inside, &outside);
	}
}

static void unwind_freed_stack(struct tm_thread *t) {
	const size_t bytes = 64 << 10;
	char *stack = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	getcontext(&inside);
	inside.uc_stack.ss_sp = stack;
	inside.uc_stack.ss_size = bytes;
	inside.uc_link = NULL;
	makecontext(&inside, coroutine, 0);
	for (unsigned i = 0; i < 3; i++) swapcontext(&outside, &inside);
	if (pick(2)) munmap(stack, bytes);
	else mprotect(stack, bytes, PROT_NONE);
	descend(t, pick(20));
}

/* --- libc interrupted at every instruction --- */

static struct tm_thread *interrupted;
static unsigned interruptions;

static void handle(int signal, siginfo_t *info, void *context) {
	(void)signal;
	(void)info;
	trap_hit(context);
	interruptions++;
	take(interrupted, TM_FRAME);
	__asm__ volatile("" ::: "memory");
}

static void jump(void) {
	jmp_buf here;
	if (setjmp(here) == 0) longjmp(here, 1);
}

static void switch_twice(void) {
	swapcontext(&outside, &inside);
}

static void switch_forever(void) {
	for (;;) swapcontext(&inside, &outside);
}

static void interrupt(struct tm_thread *t) {
	static const struct {
		const char *name;
		void (*run)(void);
	} functions[] = { { "longjmp", jump }, { "swapcontext", switch_twice }, { "setcontext", switch_twice } };
	static char stack[64 << 10];
	struct sigaction action = { .sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_NODEFER };
	sigaction(SIGTRAP, &action, NULL);
	interrupted = t;
	getcontext(&inside);
	inside.uc_stack = (stack_t){ .ss_sp = stack, .ss_size = sizeof stack };
	inside.uc_link = NULL;
	makecontext(&inside, switch_forever, 0);
	for (unsigned i = 0; i < 3; i++) {
		const uint32_t *low = dlsym(RTLD_DEFAULT, functions[i].name);
		for (unsigned k = 0; k < 3; k++) {
			unsigned before = interruptions;
			trap_begin(low, low + 80);
			functions[i].run();
			trap_end(low, low + 80);
			if (interruptions - before >= 20) continue;
			fprintf(stderr, "%s was interrupted %u times\n", functions[i].name, interruptions - before);
			exit(1);
		}
	}
}

static struct tm_thread *new_thread(enum tm_stacks_mode how) {
	struct tm_thread *t = calloc(1, sizeof *t + tm_stack_bytes(CAPACITY));
	shm.stacks = how;
	t->capacity = CAPACITY;
	tm_stack_prepare(t, t + 1);
	tm_stack_start_thread(t);
	return t;
}

static unsigned calls_on_an_ordinary_stack(struct tm_thread *t) {
	for (unsigned i = 0; i < 100; i++) descend(t, pick(50)); /* a thread's first ones, for memory of its own */
	unsigned long before = syscalls;
	for (unsigned i = 0; i < 1000; i++) descend(t, pick(50));
	return (unsigned)(syscalls - before);
}

static void *in_a_thread(void *unused) {
	(void)unused;
	for (unsigned round = 0; round < 2; round++) {
		struct tm_thread *t = coroutines = new_thread(round ? TM_STACKS_FP : TM_STACKS_UNWIND);
		uintptr_t *mapped = (uintptr_t *)(guard + PAGE);
		for (unsigned i = 0; i < stacks / 20 / 2; i++) {
			unwind_own_stack(t);
			unwind_words(t, mapped);
		}
		for (unsigned i = 0; i < stacks / 80; i++) unwind_freed_stack(t);
		interrupt(t);
		unsigned made = calls_on_an_ordinary_stack(t);
		if (made == 0) continue;
		fprintf(stderr, "%u system calls on an ordinary stack\n", made);
		exit(1);
	}
	return NULL;
}

int main(int argc, char **argv) {
	stacks = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 0) : 40000;
	state = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL) * 1000003u + (uint64_t)getpid();
	printf("seed %llu\n", (unsigned long long)state);
	fflush(stdout);
	tm_guest.shm = &shm; /* nobody's code is "ours": the unwinder is part of the program */
	dl_iterate_phdr(note_code, NULL);
	char *memory = mmap(NULL, 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	guard = (uintptr_t)memory;
	unmapped = guard + 3 * PAGE;
	mprotect(memory + PAGE, PAGE, PROT_READ | PROT_WRITE);
	munmap(memory + 3 * PAGE, PAGE);
	in_a_thread(NULL);
	pthread_t thread;
	pthread_create(&thread, NULL, in_a_thread, NULL);
	pthread_join(thread, NULL);
	printf("%u stacks of random words, %u interrupted, %lu system calls\n", 4 * stacks, interruptions, syscalls);
	return 0;
}
