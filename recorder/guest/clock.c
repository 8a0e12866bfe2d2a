/* clock.c - the stamps.
 *
 * Flow:  hooks -> hot.h, emit.c -> here
 * Ticks are the processor's time stamp counter where the collector found it invariant (shm->clock), else CLOCK_MONOTONIC nanoseconds;
 * the collector turns them into nanoseconds.
 *
 * The stamp is a plain rdtsc, inlined into the hooks (hot.h). Before a free that is in order: the free's stores become visible only after the rdtsc
 * has retired. But a processor may read the counter while loads in front of it are still under way, some hundred instructions early, which is microseconds
 * where one of these loads waits for a word that other threads write, too (17 of them were seen). So a block may seem to begin before another
 * thread's free made room for it, and to be freed before the thread that handed it over had it. A fence would make every stamp wait for the
 * program's loads, at up to ten times the cost (tests/bench/stamp_bench.c); instead the reader lets allocations and frees of one address alternate
 * (pairing.h of schema/).
 */
#include "elf_symbols.h"
#include "hot.h"
#include "raw.h"

#include <sys/auxv.h>

/* --- the kernel's clocks --- */

/* Not by libc's name, which is the program's to define: it may give another time, or one that stands still, and a limit would never be over. */

#if defined(__aarch64__)
#define KERNEL_CLOCK "__kernel_clock_gettime"
#else
#define KERNEL_CLOCK "__vdso_clock_gettime"
#endif

typedef int clock_reader(clockid_t clock, struct timespec *now);

static clock_reader *_Atomic reader; /* NULL: not looked for yet */

/* Where the kernel gave the program no such function, and who filters system calls takes what libc has. */
static int by_system_call(clockid_t clock, struct timespec *now) {
	return tm_is_sandboxed() ? clock_gettime(clock, now) : (int)tm_syscall(SYS_clock_gettime, clock, (long)now, 0, 0, 0, 0);
}

static clock_reader *find_reader(void) {
	const ElfW(Ehdr) *vdso = (const ElfW(Ehdr) *)getauxval(AT_SYSINFO_EHDR); /* NOLINT: an address */
	struct tm_symbols symbols;
	clock_reader *found = NULL;
	if (vdso) {
		struct dl_phdr_info info = { .dlpi_phdr = (const ElfW(Phdr) *)((uintptr_t)vdso + vdso->e_phoff), .dlpi_phnum = vdso->e_phnum };
		for (unsigned i = vdso->e_phnum; i-- > 0;)
			if (info.dlpi_phdr[i].p_type == PT_LOAD) info.dlpi_addr = (uintptr_t)vdso - info.dlpi_phdr[i].p_vaddr + info.dlpi_phdr[i].p_offset;
		if (tm_symbols_open(&symbols, &info)) found = (clock_reader *)(uintptr_t)tm_symbols_function(&symbols, KERNEL_CLOCK);
	}
	return found ? found : by_system_call;
}

TM_REALIGN uint64_t tm_clock_ns(clockid_t clock) {
	struct timespec now = { 0 };
	clock_reader *read = atomic_load_explicit(&reader, memory_order_relaxed);
	if (!read) atomic_store_explicit(&reader, read = find_reader(), memory_order_relaxed);
	read(clock, &now); /* in the vdso: no system call, and errno stays as it is */
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* --- stamps --- */

uint64_t tm_ticks_of_kernel(void) {
	return tm_clock_ns(CLOCK_MONOTONIC);
}

uint64_t tm_ticks(void) {
	return tm_now();
}
