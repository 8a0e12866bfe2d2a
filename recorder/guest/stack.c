/* stack.c - the calling thread's stack.
 *
 * Flow:     emit.c -> here -> t->pcs
 * Method:   --stacks=unwind: libunwind's unw_backtrace (its cached fast trace, and its cursor where that cannot go); --stacks=fp: the chain of frame
 *           pointers, for programs built with them. Frames of ours are dropped; what lies outside the wrapper around main is, too.
 * libunwind is found at run time and loaded for us alone: were it in the global scope, its _Unwind_* would take the place of libgcc's.
 * Its trace cache is not told when a module goes and another takes its addresses. Such ranges are remembered, and a stack that touches
 * one is taken again with the cursor, whose cache we do flush.
 * Its trace cache is thread-local, too. The loader allocates while it renews a thread's table of such variables: there a touch of one would
 * renew the table once more, inside of itself. So a stack that the loader asks for is taken with the cursor, which has none.
 */
#include "emit.h"
#include "fork_gate.h"
#include "guest.h"
#include "process.h"

#define UNW_LOCAL_ONLY
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libunwind.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>

#define UNW_SYMBOL_TEXT(x) #x
#define UNW_SYMBOL(x) UNW_SYMBOL_TEXT(x) /* the header maps unw_step to its name in this architecture's library */

static struct {
	int (*backtrace)(void **, int);
	int (*getcontext)(unw_context_t *);
	int (*init_local)(unw_cursor_t *, unw_context_t *);
	int (*step)(unw_cursor_t *);
	int (*get_reg)(unw_cursor_t *, int, unw_word_t *);
	void (*flush_cache)(unw_addr_space_t, unw_word_t, unw_word_t);
	unw_addr_space_t *address_space;
} unwinder;

static uintptr_t loader_low, loader_high; /* code of the dynamic loader */

/* Address ranges whose module went: a later module may lie there. Few programs have any. */
#define REUSED_MAX 256u
static struct {
	uintptr_t low, high;
} reused[REUSED_MAX];
static _Atomic unsigned reused_count;

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

static bool find_unwinder(void) {
	static const char *const names[] = { "libunwind.so.8", "libunwind.so" };
	void *library = NULL;
	for (unsigned i = 0; !library && i < sizeof names / sizeof *names; i++) library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	if (!library) return false;
	*(void **)&unwinder.backtrace = dlsym(library, "unw_backtrace");
	if (!unwinder.backtrace) return false;
	Dl_info info;
	if (dladdr(*(void **)&unwinder.backtrace, &info)) tm_libunwind_without_pipe(info.dli_fbase);
#if defined(__x86_64__)
	*(void **)&unwinder.getcontext = dlsym(library, "_Ux86_64_getcontext");
#endif
	*(void **)&unwinder.init_local = dlsym(library, UNW_SYMBOL(unw_init_local));
	*(void **)&unwinder.step = dlsym(library, UNW_SYMBOL(unw_step));
	*(void **)&unwinder.get_reg = dlsym(library, UNW_SYMBOL(unw_get_reg));
	*(void **)&unwinder.flush_cache = dlsym(library, UNW_SYMBOL(unw_flush_cache));
	*(void **)&unwinder.address_space = dlsym(library, UNW_SYMBOL(unw_local_addr_space));
	return true;
}

void tm_stack_start_thread(void) {
	void *frames[16];
	if (!unwinder.backtrace || !tm_gate_enter_rarely()) return;
	unwinder.backtrace(frames, 16);
	tm_gate_leave_rarely();
}

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden"))); /* the linker's: where this library begins */

void tm_stack_start(void) {
	find_code(&__ehdr_start, &tm_guest.text_low, &tm_guest.text_high);
	unsigned long loader = getauxval(AT_BASE); /* 0: the loader was the command itself */
	if (loader) find_code((const void *)loader, &loader_low, &loader_high);
	/* libunwind allocates thread-local storage. From an allocator inside the program, that cannot be hidden, and may be a call into itself. */
	if (tm_guest.shm->stacks != TM_STACKS_UNWIND || tm_other_allocator()) return;
	if (find_unwinder()) tm_stack_start_thread(); /* warm: tables and caches are made now */
}

bool tm_stack_unwinder_is_missing(void) {
	return tm_guest.shm->stacks == TM_STACKS_UNWIND && !unwinder.backtrace;
}

/* --- after dlclose --- */

void tm_stack_module_gone(uintptr_t low, uintptr_t high) {
	unsigned slot = atomic_fetch_add(&reused_count, 1);
	if (slot < REUSED_MAX) {
		reused[slot].low = low;
		reused[slot].high = high;
	}
}

void tm_stack_modules_changed(void) {
	if (unwinder.flush_cache && unwinder.address_space) unwinder.flush_cache(*unwinder.address_space, 0, 0);
}

TM_COLD static bool touches_reused(void *const *frames, unsigned n) {
	unsigned count = atomic_load(&reused_count);
	if (count > REUSED_MAX) return true; /* too many to tell apart */
	for (unsigned i = 0; i < n; i++) {
		for (unsigned k = 0; k < count; k++) {
			if ((uintptr_t)frames[i] >= reused[k].low && (uintptr_t)frames[i] < reused[k].high) return true;
		}
	}
	return false;
}

TM_COLD static unsigned take_by_cursor(void **frames, unsigned most) {
	unw_context_t context;
	unw_cursor_t cursor;
	unw_word_t pc;
	unsigned n = 0;
	int error_before = errno;
	if (!unwinder.getcontext || !unwinder.init_local || !unwinder.step || !unwinder.get_reg) return 0;
	unwinder.getcontext(&context);
	if (unwinder.init_local(&cursor, &context) == 0) {
		while (n < most && unwinder.step(&cursor) > 0) {
			if (unwinder.get_reg(&cursor, UNW_REG_IP, &pc) < 0 || !pc) break;
			frames[n++] = (void *)(uintptr_t)pc;
		}
	}
	errno = error_before;
	return n;
}

static unsigned take_by_unwinding(void **frames, unsigned most) {
	int n, error_before = errno;
	if (TM_UNLIKELY(!unwinder.backtrace)) return 0;
	n = unwinder.backtrace(frames, (int)most);
	errno = error_before;
	if (n < 0) return 0;
	if (TM_UNLIKELY(atomic_load_explicit(&reused_count, memory_order_relaxed)) && touches_reused(frames, (unsigned)n)) {
		return take_by_cursor(frames, most);
	}
	return (unsigned)n;
}

/* --- frame pointers --- */

/* Reads "low-high perms offset ..." lines of /proc/self/maps without libc; the buffer keeps a started line for the next round. */
bool tm_memory_around(uintptr_t addr, uintptr_t *low, uintptr_t *high) {
	char buffer[512]; /* the stack may be a small alternate one */
	uintptr_t value = 0, start = 0;
	enum { AT_LOW, AT_HIGH, AT_REST } at = AT_LOW;
	bool found = false;
	long fd = tm_syscall(SYS_openat, AT_FDCWD, (long)"/proc/self/maps", O_RDONLY | O_CLOEXEC, 0, 0, 0);
	if (fd < 0) return false;
	for (long n; !found && (n = tm_syscall(SYS_read, fd, (long)buffer, sizeof buffer, 0, 0, 0)) > 0;) {
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
	tm_syscall(SYS_close, fd, 0, 0, 0, 0, 0);
	if (found) {
		*low = start;
		*high = value;
	}
	return found;
}

static unsigned take_by_frame_pointers(struct tm_thread *t, void **frames, unsigned most) {
	uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
	unsigned n = 0;
	if (frame < t->stack_low || frame >= t->stack_high) { /* first event, or the thread is on another stack now */
		if (!tm_memory_around(frame, &t->stack_low, &t->stack_high)) t->stack_low = t->stack_high = 0;
	}
	while (n < most && frame >= t->stack_low && frame + 2 * sizeof(uintptr_t) <= t->stack_high && frame % sizeof(uintptr_t) == 0) {
		uintptr_t next = ((const uintptr_t *)frame)[0], pc = ((const uintptr_t *)frame)[1];
		if (pc < TM_SHM_PAGE) break;
		frames[n++] = (void *)pc;
		if (next <= frame) break;
		frame = next;
	}
	return n;
}

/* --- what is the program's --- */

static bool is_ours(uintptr_t pc) {
	return pc - tm_guest.text_low < tm_guest.text_high - tm_guest.text_low;
}

static bool is_loader(uintptr_t pc) {
	return pc - loader_low < loader_high - loader_low;
}

static bool is_main_wrapper(uintptr_t pc) {
	return pc - tm_guest.main_low < tm_guest.main_high - tm_guest.main_low;
}

#define LOOK_FOR_HOOK_DEPTH 256u

bool tm_stack_can_look(void) {
	return unwinder.backtrace != NULL;
}

TM_COLD bool tm_stack_holds_hook(void) {
	void *frames[LOOK_FOR_HOOK_DEPTH];
	unsigned n = 0, i = 0;
	if (!tm_gate_enter_rarely()) return true; /* cannot tell */
	n = take_by_cursor(frames, LOOK_FOR_HOOK_DEPTH); /* whoever calls, the loader included */
	tm_gate_leave_rarely();
	while (i < n && is_ours((uintptr_t)frames[i])) i++;
	for (; i < n && !is_main_wrapper((uintptr_t)frames[i]); i++) {
		if (is_ours((uintptr_t)frames[i])) return true;
	}
	return n == LOOK_FOR_HOOK_DEPTH;
}

/* Drops our frames, wherever they are, and everything outside main. */
static unsigned keep_the_programs(uintptr_t *frames, unsigned n) {
	unsigned kept = 0;
	for (unsigned i = 0; i < n; i++) {
		if (TM_LIKELY(!is_ours(frames[i]))) {
			frames[kept++] = frames[i];
		} else if (is_main_wrapper(frames[i])) {
			break;
		}
	}
	return kept;
}

/* The taken frames, innermost first in t->sps, become t->pcs. */
static uint32_t keep_common(struct tm_thread *t, unsigned depth) {
	uint32_t keep = 0, most = depth < t->depth ? depth : t->depth;
	while (keep < most && t->pcs[keep] == t->sps[depth - 1 - keep]) keep++;
	for (uint32_t i = keep; i < depth; i++) t->pcs[i] = t->sps[depth - 1 - i];
	t->depth = depth;
	return keep;
}

struct tm_stack tm_stack_take(struct tm_thread *t, const void *frame) {
	void **frames = (void **)t->sps;
	uintptr_t caller = ((const uintptr_t *)frame)[1];
	unsigned most = t->capacity, limit = most - TM_STACK_SLACK;
	unsigned n = 0;
	if (tm_is_sandboxed()) n = 0;
	else if (tm_guest.shm->stacks == TM_STACKS_FP) n = take_by_frame_pointers(t, frames, most);
	else if (tm_gate_enter(t)) {
		if (is_loader(caller)) n = take_by_cursor(frames, most);
		else if (!t->ended) n = take_by_unwinding(frames, most); /* libunwind's own memory of an ended thread is gone */
		tm_gate_leave(t);
	}
	unsigned depth = keep_the_programs(t->sps, n);
	bool cut = n == most;
	if (depth == 0 && caller) { /* no unwinder, a sandbox, or it could not leave our own frames: at least who called */
		t->sps[depth++] = caller;
		cut = true;
	}
	if (depth > limit) {
		depth = limit;
		cut = true;
	}
	uint32_t keep = keep_common(t, depth);
	return (struct tm_stack){ keep, depth - keep, cut };
}
