/* own_memory.c - a small allocator of ours, see own_memory.h.
 *
 * A block is a power of two and starts with a header that says which; freed blocks of a size are a stack (Treiber's), whose head carries
 * a count in its upper bits, so that a head that was taken and put back meanwhile is noticed. Alignment beyond 16 wastes, it hardly occurs.
 * What was never cut into pieces cannot be written yet: the kernel counts what can be among the program's data (RLIMIT_DATA).
 */
#include "own_memory.h"

#include "attach.h"
#include "sample.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define HEADER_BYTES 16u
#define SMALLEST_SHIFT 5u
#define CLASSES 20u
#define STEP_BYTES (1u << 20) /* so much more can be written at a time */

struct header { /* right in front of the block's bytes */
	uint32_t start; /* offset of the whole piece in the mapping */
	uint32_t shift; /* its size is 1 << shift */
	uint64_t size;  /* asked for */
};
_Static_assert(sizeof(struct header) == HEADER_BYTES, "keeps blocks aligned to 16");

static _Atomic uint32_t used_bytes;
static _Atomic uint32_t ready_bytes; /* can be written */
static _Atomic bool looks_sampled;   /* what is cut is marked as if it held samples (sample.h) */
static _Atomic uint64_t free_pieces[CLASSES]; /* count << 32 | offset + 1 of the first free piece; 0 is none */

static uint8_t *the_base(void) {
	uint8_t *base = atomic_load_explicit(&tm_guest.own_base, memory_order_acquire), *expected = TM_OWN_NOWHERE;
	if (base != TM_OWN_NOWHERE) return base;
	if (tm_is_sandboxed() || !tm_has_room(TM_OWN_BYTES)) return NULL;
	long memory = tm_syscall(SYS_mmap, 0, TM_OWN_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory < 0) return NULL;
	if (atomic_compare_exchange_strong(&tm_guest.own_base, &expected, (uint8_t *)memory)) return (uint8_t *)memory;
	tm_syscall(SYS_munmap, memory, TM_OWN_BYTES, 0, 0, 0, 0);
	return expected;
}

/* Only what was ever cut: to the hooks a page of ours looks like all of the program's whose numbers end alike, and what is freed there takes longer. */
void tm_own_is_never_passed(void) {
	atomic_store(&looks_sampled, true);
	tm_sample_suspect(tm_guest.own_base, atomic_load(&used_bytes));
}

static bool pop_piece(uint8_t *base, unsigned class, uint32_t *offset) {
	uint64_t head = atomic_load(&free_pieces[class]);
	while ((uint32_t)head) {
		uint32_t first = (uint32_t)head - 1;
		uint32_t next = *(_Atomic uint32_t *)(base + first);
		uint64_t changed = ((head >> 32) + 1) << 32 | next;
		if (atomic_compare_exchange_weak(&free_pieces[class], &head, changed)) {
			*offset = first;
			return true;
		}
	}
	return false;
}

static void push_piece(uint8_t *base, unsigned class, uint32_t offset) {
	uint64_t head = atomic_load(&free_pieces[class]), changed;
	do {
		*(_Atomic uint32_t *)(base + offset) = (uint32_t)head;
		changed = ((head >> 32) + 1) << 32 | (offset + 1);
	} while (!atomic_compare_exchange_weak(&free_pieces[class], &head, changed));
}

static bool make_ready(uint8_t *base, uint32_t bytes) {
	uint32_t ready = atomic_load(&ready_bytes), end = (bytes + STEP_BYTES - 1) & ~(STEP_BYTES - 1);
	if (bytes <= ready) return true;
	if (tm_is_sandboxed() || tm_syscall(SYS_mprotect, (long)base + ready, end - ready, PROT_READ | PROT_WRITE, 0, 0, 0) < 0) return false;
	while (ready < end && !atomic_compare_exchange_weak(&ready_bytes, &ready, end)) continue;
	return true;
}

static bool cut_piece(uint8_t *base, uint32_t bytes, uint32_t *offset) {
	uint32_t used = atomic_load(&used_bytes);
	do {
		if (bytes > TM_OWN_BYTES - used || !make_ready(base, used + bytes)) return false;
	} while (!atomic_compare_exchange_weak(&used_bytes, &used, used + bytes));
	if (atomic_load(&looks_sampled)) tm_sample_suspect(base + used, bytes);
	*offset = used;
	return true;
}

static unsigned shift_for(size_t bytes) {
	unsigned shift = 64 - (unsigned)__builtin_clzll(bytes - 1); /* bytes are more than a header's */
	return shift < SMALLEST_SHIFT ? SMALLEST_SHIFT : shift;
}

TM_HOT void *tm_own_alloc(size_t alignment, size_t size) {
	uint8_t *base = the_base();
	uint32_t offset;
	if (alignment < 16) alignment = 16;
	if (!base || size > TM_OWN_BYTES || alignment > TM_OWN_BYTES) return NULL;
	unsigned shift = shift_for(size + HEADER_BYTES + (alignment > 16 ? alignment : 0)), class = shift - SMALLEST_SHIFT;
	if (class >= CLASSES) return NULL;
	if (!pop_piece(base, class, &offset) && !cut_piece(base, 1u << shift, &offset)) return NULL;
	uintptr_t block = ((uintptr_t)base + offset + HEADER_BYTES + alignment - 1) & ~(uintptr_t)(alignment - 1);
	((struct header *)block)[-1] = (struct header){ offset, shift, size };
	return memset((void *)block, 0, size);
}

TM_HOT void tm_own_free(void *p) {
	struct header h = ((struct header *)p)[-1];
	push_piece(atomic_load(&tm_guest.own_base), h.shift - SMALLEST_SHIFT, h.start);
}

size_t tm_own_size(const void *p) {
	return ((const struct header *)p)[-1].size;
}

void *tm_own_realloc(void *p, size_t size) {
	size_t old = tm_own_size(p);
	void *moved = tm_own_alloc(16, size);
	if (!moved) return NULL;
	memcpy(moved, p, old < size ? old : size);
	tm_own_free(p);
	return moved;
}
