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
#include <string.h>

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

static bool is_allocators(uintptr_t function) {
	struct dl_phdr_info allocator, other;
	tm_ours_begin();
	bool is = tm_symbols_module((void *)(uintptr_t)tm_real.malloc, &allocator) && tm_symbols_module((void *)function, &other) &&
		  allocator.dlpi_phdr == other.dlpi_phdr;
	tm_ours_end();
	return is;
}

bool tm_real_is_libc(void) {
	return is_allocators((uintptr_t)gnu_get_libc_version);
}

/* libc's module is there for good. */
bool tm_real_is_libcs(const void *function) {
	static struct dl_phdr_info libc;

	if (!libc.dlpi_phnum) {
		tm_ours_begin();
		tm_symbols_module((void *)(uintptr_t)gnu_get_libc_version, &libc);
		tm_ours_end();
	}
	return tm_symbols_is_in(&libc, (uintptr_t)function);
}

/* --- how large is a block? ---
 *
 * Every allocation asks. glibc's malloc_usable_size looks also at what lies behind the block, which nobody else is about to touch: of a program whose memory
 * is not in the nearest cache it is the dearest part of an event. What it says stands in front of the block as well, in the chunk's size, whose three lowest
 * bits are flags: so it has been since 1996. Where the allocator is libc's, its answer is compared with that word for the first blocks; if it was the same
 * each time, the word is read from then on (hot.h). Blocks that have a mapping of their own are always asked for. An allocator in front of libc's that has no
 * such function (Electric Fence, libmemusage) is not asked: libc's would look in front of a block that is none of its own.
 * jemalloc gives what malloc, calloc or realloc is asked for the same room whichever block it is, and says how much (nallocx(3)), sooner than it finds out
 * what block an address is. */

#define BLOCKS_COMPARED 64u
#define SIZES_KNOWN 4096u

static _Atomic unsigned to_compare; /* 0: no more */
static bool answers;                /* the allocator itself says how large a block is */
static uint16_t foreign_ops;        /* bits: operations whose function is another module's than malloc, as jemalloc's pvalloc is libc's */
static size_t (*room_of)(size_t size, int flags);      /* jemalloc's nallocx; NULL: it is another allocator */
static TM_ROOMY _Atomic uint16_t known_rooms[SIZES_KNOWN + 1]; /* by size; 0: not asked for yet */

struct code {
	uintptr_t low, high;
};

static struct code code_of(const struct dl_phdr_info *info) {
	struct code code = { 0, 0 };
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type != PT_LOAD || !(p->p_flags & PF_X)) continue;
		code.low = info->dlpi_addr + p->p_vaddr;
		code.high = code.low + p->p_memsz;
	}
	return code;
}

static void find_foreign(struct code code) {
	const struct {
		enum tm_op op;
		uintptr_t function;
	} aligned[] = {
		{ TM_OP_POSIX_MEMALIGN, (uintptr_t)tm_real.posix_memalign },
		{ TM_OP_ALIGNED_ALLOC, (uintptr_t)tm_real.aligned_alloc },
		{ TM_OP_MEMALIGN, (uintptr_t)tm_real.memalign },
		{ TM_OP_VALLOC, (uintptr_t)tm_real.valloc },
		{ TM_OP_PVALLOC, (uintptr_t)tm_real.pvalloc },
	};
	for (unsigned i = 0; i < sizeof aligned / sizeof aligned[0]; i++)
		if (aligned[i].function - code.low >= code.high - code.low) foreign_ops |= (uint16_t)(1u << aligned[i].op);
}

bool tm_real_is_foreign(enum tm_op op) {
	return foreign_ops >> op & 1;
}

/* jemalloc, tcmalloc, mimalloc? tcmalloc has nallocx, too, but not mallocx. */
static void find_kind(const struct dl_phdr_info *info) {
	struct tm_symbols symbols;
	if (!tm_symbols_open(&symbols, info)) return;
	bool is_jemalloc = tm_symbols_function(&symbols, "mallocx");
	if (is_jemalloc) room_of = (size_t(*)(size_t, int))tm_symbols_function(&symbols, "nallocx");
	tm_guest.maps_for_itself = is_jemalloc || tm_symbols_function(&symbols, "tc_malloc") || tm_symbols_function(&symbols, "mi_malloc");
}

/* jemalloc's operator new with an alignment calls aligned_alloc, and so us; its delete of that with a size frees the block inside. */
bool tm_real_is_unseen_new(const void *caller) {
	return room_of && tm_is_allocators(caller);
}

static void look_at_allocator(bool is_libc) {
	struct dl_phdr_info info;
	tm_ours_begin();
	if (tm_symbols_module((void *)(uintptr_t)tm_real.malloc, &info)) {
		struct code code = code_of(&info);
		find_foreign(code);
		if (!is_libc) {
			tm_guest.allocator_low = code.low;
			tm_guest.allocator_high = code.high;
			find_kind(&info);
		}
	}
	tm_ours_end();
}

static size_t room_by_size(size_t size) {
	size_t room = atomic_load_explicit(&known_rooms[size], memory_order_relaxed);
	if (TM_LIKELY(room)) return room;
	room = room_of(size, 0);
	if (room <= UINT16_MAX) atomic_store_explicit(&known_rooms[size], (uint16_t)room, memory_order_relaxed);
	return room;
}

void tm_real_attached(void) {
	bool is_libc = tm_real_is_libc();
	look_at_allocator(is_libc);
	if (is_libc) atomic_store(&to_compare, BLOCKS_COMPARED);
	answers = is_libc || is_allocators((uintptr_t)tm_real.malloc_usable_size);
}

size_t tm_real_usable_by_size(const void *addr, size_t size) {
	return room_of && size && size <= SIZES_KNOWN ? room_by_size(size) : tm_real_usable(addr);
}

static void read_chunks(void) {
	atomic_store(&tm_guest.reads_chunks, true);
	atomic_store(&tm_guest.is_usual, tm_guest.clock == TM_CLOCK_TSC);
}

size_t tm_real_usable(const void *addr) {
	if (TM_UNLIKELY(!answers)) return SIZE_MAX;
	size_t usable = tm_real.malloc_usable_size((void *)addr);
	unsigned left = atomic_load_explicit(&to_compare, memory_order_relaxed);

	if (!left || tm_chunk_is_mapping(addr)) return usable;
	if (tm_chunk_usable(addr) != usable) atomic_store(&to_compare, 0);
	else if (atomic_compare_exchange_strong(&to_compare, &left, left - 1) && left == 1) read_chunks();
	return usable;
}

/* As a program that is linked with libc finds it. NULL: nobody has it by this version. */
static void *next_of_version(const char *name) {
#if defined(__x86_64__)
	const char *version = strcmp(name, "aligned_alloc") ? "GLIBC_2.2.5" : "GLIBC_2.16";
#elif defined(__aarch64__)
	const char *version = "GLIBC_2.17";
#endif
	tm_ours_begin();
	void *found = dlvsym(RTLD_NEXT, name, version);
	tm_ours_end();
	return found;
}

/* dlsym passes by what is there by an older version alone, as glibc's own allocator for MALLOC_CHECK_ and mtrace (libc_malloc_debug.so); dlvsym passes by one
 * without versions. */
static void find_versions(void) {
	void *found = next_of_version("malloc");
	if (!found || found == (void *)(uintptr_t)tm_real.malloc || !tm_real_is_libc()) return;
#define X(result, name, arguments) \
	if ((found = next_of_version(#name))) tm_real.name = (result(*) arguments)found;
	TM_REAL_FUNCTIONS(X)
#undef X
}

bool tm_real_find(void) {
	unsigned expected = 0;
	if (tm_real_ready()) return true;
	if (!atomic_compare_exchange_strong(&finding, &expected, 1)) return expected == 2;
#define X(result, name, arguments) tm_real.name = (result(*) arguments)tm_next_symbol(#name);
	TM_REAL_FUNCTIONS(X)
#undef X
	find_versions();
	atomic_store_explicit(&finding, 2, memory_order_release);
	return true;
}
