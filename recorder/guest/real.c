/* real.c - the functions behind the hooks.
 *
 * Flow:     the first hook of all -> tm_real_find() -> dlsym(RTLD_NEXT)
 * The trap: dlsym may allocate, and so calls the hook that is just looking for malloc. Such blocks come from own_memory.c.
 * Threads:  the program has one thread when the first hook runs.
 */
#include "guest.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>

struct tm_real tm_real;

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
	Dl_info allocator, libc;
	tm_ours_begin();
	bool is_libc = dladdr((void *)(uintptr_t)tm_real.malloc, &allocator) && dladdr((void *)(uintptr_t)gnu_get_libc_version, &libc) &&
		       allocator.dli_fbase == libc.dli_fbase;
	tm_ours_end();
	return is_libc;
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
