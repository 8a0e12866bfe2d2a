/* stack.c - the calling thread's stack: how it is taken, and what of it is the program's.
 *
 * Flow:     emit.c -> here -> unwind.c (almost always), unwind_full.c (a stack with an odd frame) -> t->pcs
 * Method:   --stacks=unwind: by .eh_frame; --stacks=fp: the chain of frame pointers, for programs built with them.
 *           Frames of ours are dropped; what lies outside the wrapper around main is, too.
 * Stacks:   a thread's own stack is known by its bounds, which are looked up once a thread: between a live stack pointer and the upper bound all
 *           can be read at any time. On any other stack (an alternate signal stack, a coroutine's), whose memory may come and go, nothing is
 *           remembered from one event to the next, and each page is asked for.
 */
#include "elf_symbols.h"
#include "emit.h"
#include "guest.h"
#include "raw.h"
#include "unwind.h"
#include "unwind_known.h"

#include <link.h>
#include <sys/auxv.h>

/* The executable segment of a library that begins at `base`. */
static void find_code(const void *base, uintptr_t *low, uintptr_t *high) {
	const ElfW(Ehdr) *header = base;
	const ElfW(Phdr) *segment = (const ElfW(Phdr) *)((uintptr_t)base + header->e_phoff);
	for (unsigned i = 0; i < header->e_phnum; i++) {
		if (segment[i].p_type != PT_LOAD || !(segment[i].p_flags & PF_X)) continue;
		*low = (uintptr_t)base + segment[i].p_vaddr;
		*high = *low + segment[i].p_memsz;
	}
}

static bool is_first_by_number(void) {
	return tm_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0) == tm_raw_getpid();
}

/* Of the thread that began the program, and of its like in forks; 0 unknown. A fork's child has its forker's stack, which need not be that one's. */
static uintptr_t first_thread_pointer;

static bool is_first_thread(void) {
	return first_thread_pointer ? (uintptr_t)__builtin_thread_pointer() == first_thread_pointer : is_first_by_number();
}

void tm_stack_start(void) {
	find_code(&__ehdr_start, &tm_guest.text_low, &tm_guest.text_high);
	if (!first_thread_pointer && !tm_guest.parent_process && is_first_by_number()) first_thread_pointer = (uintptr_t)__builtin_thread_pointer();
}

size_t tm_stack_bytes(uint32_t capacity) {
	return tm_unwind_bytes(capacity);
}

void tm_stack_prepare(struct tm_thread *t, void *memory) {
	tm_unwind_prepare(t, memory);
}

void tm_stack_release(struct tm_thread *t) {
	tm_known_release(t);
}

void tm_stack_forget(struct tm_thread *t) {
	t->depth = t->remembered = 0;
	tm_unwind_set_check_count(t, 0);
	t->cut_frame = t->framed_low = UINT32_MAX;
	t->truncated = 0;
	t->is_part = false;
	tm_known_forget(t);
}

void tm_stack_start_thread(struct tm_thread *t) {
	tm_stack_forget(t);
	t->by_frame_pointers = tm_guest.shm->stacks == TM_STACKS_FP;
	if (t->by_frame_pointers) tm_unwind_mark_all_framed(t);
	t->stack_low = t->stack_high = t->stack_least = 0;
	t->stack_is_whole = false;
}

/* --- which memory is the stack --- */

/* Reads "low-high perms offset ..." lines of /proc/self/maps without libc; the buffer keeps a started line for the next round. */
bool tm_memory_around(uintptr_t addr, uintptr_t *low, uintptr_t *high) {
	char buffer[512]; /* the stack may be a small alternate one */
	uintptr_t value = 0, start = 0;
	enum { AT_LOW, AT_HIGH, AT_REST } at = AT_LOW;
	bool found = false;
	int fd = tm_is_sandboxed() ? -1 : tm_raw_open("/proc/self/maps", O_RDONLY);
	if (fd < 0) return false;
	for (long n; !found && (n = tm_raw_read(fd, buffer, sizeof buffer)) > 0;) {
		for (long i = 0; i < n && !found; i++) {
			char c = buffer[i];
			if (c == '\n') {
				at = AT_LOW;
				value = 0;
			} else if (at == AT_REST) {
				continue;
			} else if (c == '-') {
				start = value;
				value = 0;
				at = AT_HIGH;
			} else if (c == ' ') {
				at = AT_REST;
				found = addr >= start && addr < value;
			} else {
				value = value * 16 + (uintptr_t)(c <= '9' ? c - '0' : c - 'a' + 10);
			}
		}
	}
	tm_raw_close(fd);
	if (found) {
		*low = start;
		*high = value;
	}
	return found;
}

extern void *__libc_stack_end; /* of the loader: in the main thread's stack, near its end */

#define STACK_GAP_BYTES (512u << 10) /* the kernel keeps more than this free below a stack that grows */
#define STACK_FAR_BYTES (128u << 20) /* so far below the end of one that grows it maps other things; what grows so deep is read as another stack is */
#define NEAR_PAGES 16u

/* Another thread's stack ends at its descriptor (pthread_self()), and it is all there from the beginning. */
static uintptr_t end_of_own_stack(const struct tm_thread *t) {
	return t->stack_grows ? (uintptr_t)__libc_stack_end : (uintptr_t)__builtin_thread_pointer();
}

#define DESCRIPTOR_BYTES 2304u        /* of glibc: struct pthread */
#define STACK_MOST_BYTES ((uintptr_t)1 << 40) /* no size that is more is one: it is an address */
#define BEHIND_DESCRIPTOR (64u << 10) /* so much may lie between it and the end of the memory for the stack */

/* A thread that was given memory for its stack may have other stacks right below it, and no guard in between. Where that memory begins glibc keeps in the
 * descriptor, in front of how much it is and how much of it is the guard: three words, which differ from version to version. Nothing else looks like them but
 * values that the program gave keys (pthread_setspecific), which lie in front: so the last ones count. On other machines than x86-64 the descriptor lies below
 * the thread pointer. 1: nothing is known. */
TM_COLD static uintptr_t least_of_own_stack(void) {
	uintptr_t end = (uintptr_t)__builtin_thread_pointer(), page = end / TM_MEMORY_PAGE, least = 1;
#if defined(__x86_64__)
	const uintptr_t *word = (const uintptr_t *)end;
#else
	const uintptr_t *word = (const uintptr_t *)(end - DESCRIPTOR_BYTES);
#endif
	for (const uintptr_t *last = word + DESCRIPTOR_BYTES / sizeof *word - 3; word < last; word++) {
		if ((uintptr_t)(word + 2) > end && (uintptr_t)(word + 2) / TM_MEMORY_PAGE != page) {
			page = (uintptr_t)(word + 2) / TM_MEMORY_PAGE;
			if (!tm_raw_is_readable(word + 2)) break;
		}
		uintptr_t block = word[0], bytes = word[1], guard = word[2];
		if (block < end && block + bytes - end < BEHIND_DESCRIPTOR && block + bytes > end && guard < bytes &&
		    bytes < STACK_MOST_BYTES)
			least = block + guard;
	}
	return least;
}

/* A few pages that can all be read are one stack's: there is a guard below each, and nothing else is put in the kernel's gap below the main
 * thread's. The question is one that a filter of system calls which was there before us lets pass if it lets anything. Reading all mappings
 * instead takes as long as there are many, and threads make them many. */
static bool is_near(uintptr_t low, uintptr_t high) {
	if (high - low > NEAR_PAGES * TM_MEMORY_PAGE) return false;
	for (uintptr_t at = low; at < high; at += TM_MEMORY_PAGE)
		if (!tm_raw_is_readable((const void *)at)) return false;
	return true;
}

/* The last page of the main thread's stack has the name of the executable in it. */
static uintptr_t last_page_end(uintptr_t end) {
	int kept = errno;
	uintptr_t name = getauxval(AT_EXECFN);
	errno = kept;
	return name < end ? 0 : (name & ~(uintptr_t)(TM_MEMORY_PAGE - 1)) + TM_MEMORY_PAGE;
}

/* By all mappings. */
static void find_whole_stack(struct tm_thread *t, uintptr_t end) {
	uintptr_t low, high;
	bool found = tm_memory_around(end - 1, &low, &high);
	if (found) {
		t->stack_low = low > t->stack_least ? low : t->stack_least;
		t->stack_high = t->stack_grows ? high : end & ~(uintptr_t)7;
	}
	t->stack_is_whole = !found || !t->stack_grows;
}

static void find_stack(struct tm_thread *t, uintptr_t address, uintptr_t page) {
	uintptr_t end = end_of_own_stack(t), high = t->stack_grows ? last_page_end(end) : end & ~(uintptr_t)7;
	if (address < end && page < high && is_near(page, high)) {
		t->stack_low = page > t->stack_least ? page : t->stack_least;
		t->stack_high = high;
	} else {
		find_whole_stack(t, end);
	}
}

/* Is `address` on the thread's own stack? It was not in what is known of it: the stack may have grown, or only its upper part is known. What the thread does on
 * other stacks, as coroutines do, is no reason to look at mappings again. */
TM_COLD static bool look_for_own_stack(struct tm_thread *t, uintptr_t address) {
	uintptr_t page = address & ~(uintptr_t)(TM_MEMORY_PAGE - 1);
	if (t->stack_is_whole || tm_is_sandboxed() || (t->stack_high && address >= t->stack_high)) return false;
	if (!t->stack_least) {
		t->stack_grows = is_first_thread();
		t->stack_least = t->stack_grows ? 1 : least_of_own_stack();
	}
	if (address < t->stack_least) return false;
	if (!t->stack_high) {
		find_stack(t, address, page);
	} else if (t->stack_grows ? t->stack_low - page < STACK_GAP_BYTES : is_near(page, t->stack_low)) {
		t->stack_low = page > t->stack_least ? page : t->stack_least;
	} else if (!t->stack_grows || t->stack_high - page < STACK_FAR_BYTES) {
		find_whole_stack(t, end_of_own_stack(t));
	}
	return address - t->stack_low < t->stack_high - t->stack_low;
}

static inline bool on_own_stack(struct tm_thread *t, uintptr_t address) {
	return TM_LIKELY(address - t->stack_low < t->stack_high - t->stack_low) || look_for_own_stack(t, address);
}

bool tm_stack_may_be_own(struct tm_thread *t, uintptr_t address) {
	return on_own_stack(t, address) || !t->stack_high;
}

/* --- a stack with all registers --- */

/* Ours come first, then the program's. Inlined: the walk begins in the function that asks. */
static inline __attribute__((always_inline)) void begin_here(struct tm_cursor *c, const struct tm_memory *memory) {
	TM_CURSOR_HERE(c);
	c->memory = *memory;
	if (memory->low < memory->high) c->memory.low = c->registers[TM_CFI_SP];
	c->in_call = c->guessed = false;
}

TM_COLD static struct tm_stack take_with_all_registers(struct tm_thread *t, const struct tm_memory *memory, uint32_t limit) {
	struct tm_cursor c;
	uint32_t n = 0;
	bool cut = false;
	begin_here(&c, memory);
	for (uint32_t steps = 0;; steps++) {
		enum tm_step step = steps < 4 * TM_DEPTH_LIMIT ? tm_cursor_step(&c) : TM_STEP_LOST;
		cut |= step == TM_STEP_LOST || (step == TM_STEP_DONE && c.guessed);
		if (step != TM_STEP_DONE || tm_unwind_is_main_wrapper(c.pc)) break;
		if (tm_unwind_is_ours(c.pc)) continue;
		if (n == limit || tm_unwind_is_no_code(c.pc)) {
			cut = true;
			break;
		}
		tm_unwind_put(t, n++, c.pc, c.registers[TM_CFI_SP] - 8);
	}
	return tm_unwind_take_over(t, n, cut);
}

#define LOOK_FOR_HOOK_DEPTH 4096u

/* From here out: our own frames, the program's down to the hook that may have been left behind, its. */
TM_COLD bool tm_stack_holds_hook(struct tm_thread *t) {
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);
	struct tm_memory memory = { 0 };
	struct tm_cursor c;
	bool left_ours = false;
	if (t && on_own_stack(t, here)) memory = (struct tm_memory){ .low = here, .high = t->stack_high };
	else if (tm_is_sandboxed()) return true; /* cannot tell */
	begin_here(&c, &memory);
	for (uint32_t steps = 0; steps < LOOK_FOR_HOOK_DEPTH; steps++) {
		if (tm_cursor_step(&c) != TM_STEP_DONE || tm_unwind_is_main_wrapper(c.pc)) return false;
		if (!tm_unwind_is_ours(c.pc)) left_ours = true;
		else if (left_ours) return true;
	}
	return true;
}

/* --- the way in --- */

/* Where unwinding begins. On aarch64 the frame record does not lie at the end of the frame, so the way through our own frames tells the caller's sp. */
static inline __attribute__((always_inline)) void find_top(struct tm_top *top, const void *frame) {
	top->fp = ((const uintptr_t *)frame)[0];
	top->slot = (uintptr_t)frame + 8;
#if defined(__x86_64__)
	top->pc = ((const uintptr_t *)frame)[1];
	top->sp = (uintptr_t)frame + 16;
#else
	struct tm_cursor c;
	top->pc = ((const uintptr_t *)frame)[1] & (~(uintptr_t)0 >> 16);
	top->sp = (uintptr_t)frame + 16;
	if (tm_guest.shm->stacks == TM_STACKS_FP) return;
	begin_here(&c, &top->memory);
	while (tm_cursor_step(&c) == TM_STEP_DONE && c.registers[TM_CFI_SP] <= top->slot) continue;
	top->sp = c.registers[TM_CFI_SP];
#endif
}

/* Nothing could be told but who called. */
static struct tm_stack take_caller(struct tm_thread *t, uintptr_t pc) {
	tm_unwind_put(t, 0, pc, 0);
	return tm_unwind_take_over(t, 1, true);
}

/* Does the stack that was taken end elsewhere than where the thread began? A handler's on an alternate stack goes on to there, a coroutine's does not. Frame
 * pointers never lead there in threads but the first: all of these stacks count as cut. */
static bool is_part(const struct tm_thread *t) {
	if (t->truncated & TM_TRUNCATED || (t->cut_frame == 0 && !t->by_frame_pointers)) return true;
	return t->stack_high && t->sps[0] - t->stack_low >= t->stack_high - t->stack_low; /* 0: in a sandbox nobody could ask */
}

struct tm_stack tm_stack_take(struct tm_thread *t, const void *frame, uint32_t valid) {
	bool own = on_own_stack(t, (uintptr_t)frame + 8);
	struct tm_top top = { .memory = { .page = (uintptr_t)frame & ~(uintptr_t)(TM_MEMORY_PAGE - 1) } };
	struct tm_stack result;
	if (own) {
		top.memory.low = (uintptr_t)frame;
		top.memory.high = t->stack_high;
	}
	find_top(&top, frame);
	enum tm_unwound done = t->by_frame_pointers ? tm_unwind_by_frame_pointers(t, &top, t->capacity, own, valid, &result)
						    : tm_unwind(t, &top, t->capacity, own, valid, &result);
	if (TM_UNLIKELY(done == TM_UNWOUND_ODD)) result = take_with_all_registers(t, &top.memory, t->capacity);
	if (TM_UNLIKELY(t->depth == 0)) result = take_caller(t, top.pc);
	t->is_part = is_part(t);
	return result;
}
