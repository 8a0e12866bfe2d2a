/* map_hooks.c - the hooks of the mmap family and of the break.
 *
 * Flow:     the program's mmap, munmap, mremap, brk, sbrk, and the first three by libc's syscall() (sandbox_hooks.c) -> here -> emit.c -> ring. What
 *           libc itself maps (malloc's arenas, thread stacks, the loader) does not pass here, and what an allocator maps inside of a hooked malloc
 *           is nested and not recorded.
 *
 * What a record says. The kernel maps and unmaps whole pages, people ask for bytes:
 *
 *     mmap, new side of mremap     size as requested: that is what counts as live. Its extent is [addr, addr + size rounded up to a page):
 *                                  whatever was mapped in the extent is replaced, and nothing is left of an old mapping's last page.
 *     munmap, old side of mremap   old_size is rounded up to a page already, so that it covers the extent of what it gives back.
 *     brk, sbrk                    exact bytes, both ways: the break is no matter of pages, two sbrk(100) lie in the same page
 *                                  and both live.
 *
 * An mremap that leaves its old range mapped (MREMAP_DONTUNMAP, or an old size of 0, which doubles a shared mapping) gives back nothing:
 * its old_size is 0.
 *
 * What the kernel refuses for want of memory or address space (ENOMEM) is a record, too, as malloc's refusals are. Not so an mremap that may not
 * move its range: that it cannot grow where it is says nothing of memory.
 */
#include "elf_symbols.h"
#include "emit.h"
#include "process.h"
#include "raw.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

typedef void *mmap_function(void *, size_t, int, int, int, off_t);

static struct {
	mmap_function *mmap;
	mmap_function *mmap_behind; /* NULL: there is no other one */
	int (*munmap)(void *, size_t);
	void *(*mremap)(void *, size_t, size_t, int, ...);
	int (*brk)(void *);
	void *(*sbrk)(intptr_t);
	_Atomic bool found;
} real;

/* One of mmap's two names, or both, are another library's that stands behind ours, where they are one function in libc, and here. It gets all calls, as nobody
 * can tell by which name they came, but for its own, which are of the other name. */
static struct dl_phdr_info interposer, own_module;

static TM_COLD void find_mmap_of_interposer(mmap_function *mmap64) {
	mmap_function *first = real.mmap, *behind = mmap64;

	if (tm_real_is_libcs((void *)(uintptr_t)first)) {
		first = mmap64;
		behind = real.mmap;
	}
	tm_ours_begin();
	bool is_known = tm_symbols_module((void *)(uintptr_t)first, &interposer) &&
			tm_symbols_module((void *)(uintptr_t)find_mmap_of_interposer, &own_module);
	tm_ours_end();
	if (!is_known) return;
	real.mmap = first;
	real.mmap_behind = behind;
}

/* Who ends by a jump to us has our own caller. */
static TM_COLD mmap_function *mmap_for(const void *caller) {
	bool is_interposers = tm_symbols_is_in(&interposer, (uintptr_t)caller) || tm_symbols_is_in(&own_module, (uintptr_t)caller);

	return is_interposers ? real.mmap_behind : real.mmap;
}

/* Normally done before main, so that no later hook call waits for the loader's lock. Two threads that come first write the same values. */
__attribute__((constructor)) static void find_real(void) {
	if (atomic_load_explicit(&real.found, memory_order_acquire)) return;
	real.mmap = (mmap_function *)tm_next_symbol("mmap");
	mmap_function *mmap64 = (mmap_function *)tm_next_symbol("mmap64");
	if (mmap64 && mmap64 != real.mmap) find_mmap_of_interposer(mmap64);
	real.munmap = (int (*)(void *, size_t))tm_next_symbol("munmap");
	real.mremap = (void *(*)(void *, size_t, size_t, int, ...))tm_next_symbol("mremap");
	real.brk = (int (*)(void *))tm_next_symbol("brk");
	real.sbrk = (void *(*)(intptr_t))tm_next_symbol("sbrk");
	atomic_store_explicit(&real.found, true, memory_order_release);
}

/* The last thing that a function does which a hook of ours has called, by a jump: no frame of its own stands between the two. */
static bool is_jump_from_hook(const void *caller) {
	return tm_tls.inside && (uintptr_t)caller - tm_guest.text_low < tm_guest.text_high - tm_guest.text_low;
}

/* The thread's state, or NULL: only call the real function. What an allocator maps when a call went straight to it, with --sample, is known by who calls. */
static struct tm_thread *enter(const void *caller) {
	struct tm_thread *t;

	if (TM_UNLIKELY(!atomic_load_explicit(&real.found, memory_order_acquire))) find_real();
	if (TM_UNLIKELY(tm_guest.maps_for_itself && tm_guest.shm->sample_bytes && tm_is_allocators(caller))) return NULL;
	if (TM_UNLIKELY(is_jump_from_hook(caller))) return NULL;
	t = tm_hook_enter();
	if (t) tm_python_poll(t);
	if (t && !tm_guest.shm->mappings) {
		tm_hook_leave(t);
		return NULL;
	}
	return t;
}

static size_t page_round(size_t size) {
	return (size + TM_SHM_PAGE - 1) & ~(size_t)(TM_SHM_PAGE - 1);
}

#define INLINE static inline __attribute__((always_inline))

static TM_COLD void refused(struct tm_thread *t, enum tm_op op, size_t size, const void *frame) {
	if (errno == ENOMEM) tm_emit_own_refusal(t, op, size, frame);
}

/* /dev/zero, what is mapped from which is anonymous memory. */
static TM_COLD bool is_zero_device(int fd) {
	struct stat file;
	return !tm_is_sandboxed() && tm_syscall(SYS_fstat, fd, (long)&file, 0, 0, 0, 0) == 0 && S_ISCHR(file.st_mode) &&
	       file.st_rdev == makedev(1, 5);
}

/* What a call answered, to whom entered before it. `frame` is TM_FRAME. */
INLINE void mapped(struct tm_thread *t, void *at, size_t size, int flags, int fd, const void *frame) {
	if (!t) return;
	enum tm_op op = flags & MAP_ANONYMOUS || (at != MAP_FAILED && is_zero_device(fd)) ? TM_OP_MMAP : TM_OP_MMAP_FILE;
	if (at != MAP_FAILED) tm_emit_map(t, op, at, size, frame);
	else refused(t, op, size, frame);
	tm_hook_leave(t);
}

INLINE void unmapped(struct tm_thread *t, bool is_done, void *at, size_t size, uint64_t begin) {
	if (!t) return;
	if (is_done) tm_emit_unmap(t, TM_OP_MUNMAP, at, page_round(size), begin);
	else tm_cancel(t);
	tm_hook_leave(t);
}

/* MREMAP_DONTUNMAP is younger than some C libraries' headers. */
#define KEEPS_OLD_RANGE 4

INLINE void remapped(struct tm_thread *t, void *at, size_t size, void *old, size_t old_size, int flags, uint64_t begin, const void *frame) {
	if (!t) return;
	if (at != MAP_FAILED) {
		tm_emit_remap(t, at, size, old, flags & KEEPS_OLD_RANGE ? 0 : page_round(old_size), begin, frame);
	} else {
		tm_cancel(t);
		if (flags & MREMAP_MAYMOVE) refused(t, TM_OP_MREMAP, size, frame);
	}
	tm_hook_leave(t);
}

TM_EXPORT void *mmap(void *wish, size_t size, int protection, int flags, int fd, off_t offset) {
	struct tm_thread *t = enter(__builtin_return_address(0));
	mmap_function *next = TM_UNLIKELY(real.mmap_behind) ? mmap_for(__builtin_return_address(0)) : real.mmap;
	void *at = next(wish, size, protection, flags, fd, offset);

	mapped(t, at, size, flags, fd, TM_FRAME);
	return at;
}

/* off_t and off64_t are the same wherever tidemark runs. One function, as in libc: memray says so on standard error where the two are not. */
TM_EXPORT void *mmap64(void *wish, size_t size, int protection, int flags, int fd, off64_t offset) __attribute__((alias("mmap")));

TM_EXPORT int munmap(void *at, size_t size) {
	struct tm_thread *t = enter(__builtin_return_address(0));
	uint64_t begin = t ? tm_begin(t) : 0;
	int result = real.munmap(at, size);

	unmapped(t, result == 0, at, size, begin);
	return result;
}

TM_EXPORT void *mremap(void *old, size_t old_size, size_t size, int flags, ...) {
	struct tm_thread *t = enter(__builtin_return_address(0));
	uint64_t begin = t ? tm_begin(t) : 0;
	void *wish = NULL, *at;

	if (flags & (MREMAP_FIXED | KEEPS_OLD_RANGE)) {
		va_list arguments;

		va_start(arguments, flags);
		wish = va_arg(arguments, void *);
		va_end(arguments);
	}
	at = real.mremap(old, old_size, size, flags, wish);
	remapped(t, at, size, old, old_size, flags, begin, TM_FRAME);
	return at;
}

/* By libc's syscall(), which is ours (sandbox_hooks.c). Straight to the kernel, as it was asked: a mmap that stands behind ours may itself make this call. */
long tm_called_mmap(long number, void *wish, size_t size, long protection, long flags, long fd, long offset);
long tm_called_munmap(long number, void *at, size_t size);
long tm_called_mremap(long number, void *old, size_t old_size, size_t size, long flags, void *wish);

TM_HIDDEN __attribute__((used)) long tm_called_mmap(long number, void *wish, size_t size, long protection, long flags, long fd,
						    long offset) {
	struct tm_thread *t = enter(__builtin_return_address(0));
	long result = tm_syscall_answer(tm_syscall(number, (long)wish, (long)size, protection, flags, fd, offset));

	mapped(t, (void *)result, size, (int)flags, (int)fd, TM_FRAME);
	return result;
}

TM_HIDDEN __attribute__((used)) long tm_called_munmap(long number, void *at, size_t size) {
	struct tm_thread *t = enter(__builtin_return_address(0));
	uint64_t begin = t ? tm_begin(t) : 0;
	long result = tm_syscall_answer(tm_syscall(number, (long)at, (long)size, 0, 0, 0, 0));

	unmapped(t, result == 0, at, size, begin);
	return result;
}

TM_HIDDEN __attribute__((used)) long tm_called_mremap(long number, void *old, size_t old_size, size_t size, long flags, void *wish) {
	struct tm_thread *t = enter(__builtin_return_address(0));
	uint64_t begin = t ? tm_begin(t) : 0;
	long result = tm_syscall_answer(tm_syscall(number, (long)old, (long)old_size, (long)size, flags, (long)wish, 0));

	remapped(t, (void *)result, size, old, old_size, (int)flags, begin, TM_FRAME);
	return result;
}

/* What a successful move of the break from `old` to `new` was. `begin` is the stamp taken before the call. */
static void emit_break(struct tm_thread *t, enum tm_op grow, enum tm_op shrink, char *old, char *new, uint64_t begin, const void *frame) {
	if (new < old) {
		tm_emit_unmap(t, shrink, new, (size_t)(old - new), begin);
		return;
	}
	tm_cancel(t);
	if (new > old) tm_emit_map(t, grow, old, (size_t)(new - old), frame);
}

/* Where the break is after a call to move it to `asked` that libc calls done: it says so too where the kernel moves nothing, below the heap's begin. */
static char *break_after(char *old, char *asked) {
	return asked < old ? real.sbrk(0) : asked;
}

TM_EXPORT void *sbrk(intptr_t by) {
	struct tm_thread *t = enter(__builtin_return_address(0));
	uint64_t begin = t ? tm_begin(t) : 0;
	char *old = real.sbrk(by);

	if (!t) return old;
	if (old != (char *)-1) {
		emit_break(t, TM_OP_SBRK, TM_OP_SBRK_SHRINK, old, break_after(old, old + by), begin, TM_FRAME);
	} else {
		tm_cancel(t);
		if (by > 0) refused(t, TM_OP_SBRK, (size_t)by, TM_FRAME);
	}
	tm_hook_leave(t);
	return old;
}

TM_EXPORT int brk(void *to) {
	struct tm_thread *t = enter(__builtin_return_address(0));
	uint64_t begin = t ? tm_begin(t) : 0;
	char *old = t ? real.sbrk(0) : NULL;
	int result = real.brk(to);

	if (!t) return result;
	if (result == 0 && old != (char *)-1) {
		emit_break(t, TM_OP_BRK, TM_OP_BRK_SHRINK, old, break_after(old, to), begin, TM_FRAME);
	} else {
		tm_cancel(t);
		if (result && (char *)to > old) refused(t, TM_OP_BRK, (size_t)((char *)to - old), TM_FRAME);
	}
	tm_hook_leave(t);
	return result;
}
