/* real.c - the functions behind the hooks.
 *
 * Flow:     the first hook of all -> tm_real_find() -> dlsym(RTLD_NEXT)
 * The trap: dlsym may allocate, and so calls the hook that is just looking for malloc. Such blocks come from own_memory.c.
 * Threads:  the program has one thread when the first hook runs.
 */
#include "elf_symbols.h"
#include "hot.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>

_Alignas(TM_LINE_BYTES) struct tm_real tm_real;

static _Atomic unsigned finding; /* 0 not begun, 1 under way, 2 done */

void *tm_next_symbol(const char *name) {
	tm_ours_begin();
	void *found = dlsym(RTLD_NEXT, name);
	tm_ours_end();
	return found;
}

bool tm_real_ready(void) {
	return atomic_load_explicit(&finding, memory_order_acquire) == 2;
}

bool tm_real_is_libc(void) {
	struct dl_phdr_info allocator, libc;
	tm_ours_begin();
	bool is_libc = tm_symbols_module((void *)(uintptr_t)tm_real.malloc, &allocator) &&
		       tm_symbols_module((void *)(uintptr_t)gnu_get_libc_version, &libc) && allocator.dlpi_phdr == libc.dlpi_phdr;
	tm_ours_end();
	return is_libc;
}

/* --- how large is a block? ---
 *
 * Every allocation asks. glibc's malloc_usable_size looks also at what lies behind the block, which nobody else is about to touch: of a program whose memory
 * is not in the nearest cache it is the dearest part of an event. What it says stands in front of the block as well, in the chunk's size, whose three lowest
 * bits are flags: so it has been since 1996. Where the allocator is libc's, its answer is compared with that word for the first blocks; if it was the same
 * each time, the word is read from then on (hot.h). Blocks that have a mapping of their own are always asked for. */

#define BLOCKS_COMPARED 64u

static _Atomic unsigned to_compare; /* 0: no more */

void tm_real_attached(void) {
	if (tm_real_is_libc()) atomic_store(&to_compare, BLOCKS_COMPARED);
}

size_t tm_real_usable(const void *addr) {
	size_t usable = tm_real.malloc_usable_size((void *)addr);
	unsigned left = atomic_load_explicit(&to_compare, memory_order_relaxed);

	if (!left || tm_chunk_is_mapping(addr)) return usable;
	if (tm_chunk_usable(addr) != usable) atomic_store(&to_compare, 0);
	else if (atomic_compare_exchange_strong(&to_compare, &left, left - 1) && left == 1) atomic_store(&tm_guest.reads_chunks, true);
	return usable;
}

bool tm_real_find(void) {
	unsigned expected = 0;
	if (tm_real_ready()) return true;
	if (!atomic_compare_exchange_strong(&finding, &expected, 1)) return expected == 2;
#define X(result, name, arguments) tm_real.name = (result(*) arguments)tm_next_symbol(#name);
	TM_REAL_FUNCTIONS(X)
#undef X
	atomic_store_explicit(&finding, 2, memory_order_release);
	return true;
}
