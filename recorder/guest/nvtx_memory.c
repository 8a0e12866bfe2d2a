/* nvtx_memory.c - NVTX's memory extension: an allocator's heaps and the regions it hands out, as explicit heaps and their blocks.
 *
 * Flow:     the extension's loader in a library of the program -> our functions in its slots -> regions.c (which heap), emit_heap.c -> ring
 * Heaps:    "nvtx:NAME", or by their address. Their memory comes from elsewhere, so it is never added to the process' totals; where it can be read by
 *           the processor it is taken to come from malloc. The handle of one that lies in memory is its address, and heaps of one name are several: each
 *           is known by its address, and resetting it takes what lies in it.
 * Regions:  NVTX tells only the address of one that goes, so we remember where each of them lies.
 * Left out: permissions, which tell nothing of who holds memory, and names of regions.
 */
#include "nvtx.h"

#include "emit.h"
#include "heaps.h"
#include "hot.h"
#include "raw.h"
#include "regions.h"

#include <string.h>

#define TYPE_VIRTUAL_ADDRESS 1u

struct range {
	size_t size;
	const void *addr;
};

struct heap_description {
	uint16_t compatibility, size;
	uint32_t reserved, usage, type;
	size_t specific_size;
	const void *specific;
	uint32_t category, message_type;
	union tm_nvtx_text message;
};

struct register_batch {
	uint16_t compatibility, size;
	uint32_t type;
	const void *heap;
	size_t count, element_size;
	const void *elements;
	const void **handles;
};

struct resize_batch {
	uint16_t compatibility, size;
	uint32_t type;
	size_t count, element_size;
	const void *elements;
};

struct unregister_batch {
	uint16_t compatibility, size;
	uint32_t reference_type;
	size_t count, element_size;
	const void *elements; /* pointers: an address, or our handle, which is the address */
};

/* --- heaps --- */

static size_t name_of(char to[TM_NAME_KEPT], const struct heap_description *d, const void *base) {
	char buffer[TM_WIDE_MAX];
	size_t n;
	const char *name = tm_nvtx_text((int32_t)d->message_type, d->message, buffer, &n);
	memcpy(to, "nvtx:", 5);
	if (name && n) {
		if (n > TM_NAME_KEPT - 5) n = TM_NAME_KEPT - 5;
		memcpy(to + 5, name, n);
		return n + 5;
	}
	memcpy(to + 5, "0x", 2);
	for (n = 0; n < 16; n++) to[7 + n] = "0123456789abcdef"[(uintptr_t)base >> (60 - 4 * n) & 15];
	return 7 + n;
}

static const struct range *range_of(const struct heap_description *d) {
	return d->type == TYPE_VIRTUAL_ADDRESS && d->specific_size >= sizeof(struct range) ? d->specific : NULL;
}

static uint32_t make_heap(const struct heap_description *d, const struct range *range) {
	const void *base = range ? range->addr : NULL;
	char name[TM_NAME_KEPT];
	size_t n = name_of(name, d, base);
	bool host = tm_is_sandboxed() || !base || tm_raw_is_readable(base);
	return tm_heap_number(name, n, "nvtx", host ? TM_HEAP_NUMBER_MALLOC : 0, -1);
}

/* Where a heap is remembered, among the regions: no region lies there. */
static const void *place_of(const void *base) {
	return (const void *)~(uintptr_t)base;
}

/* The number of a handle, and the memory that is its; that of the whole process is NULL. 0: it is none. */
static uint32_t heap_of(const void *handle, uintptr_t *low, uint64_t *bytes) {
	uint32_t heap;
	*low = 0;
	*bytes = 1ull << 63;
	if (!handle) return tm_heap_number("nvtx", 4, "nvtx", TM_HEAP_NUMBER_MALLOC, -1);
	if (tm_heap_is_handle(handle)) return tm_heap_of_handle(handle);
	heap = tm_region_heap(place_of(handle), bytes);
	*low = (uintptr_t)handle;
	return heap;
}

static void reset(struct tm_thread *t, const void *handle) {
	uintptr_t low;
	uint64_t bytes;
	uint32_t heap = heap_of(handle, &low, &bytes);
	size_t at = 0;
	for (const void *addr; heap && (addr = tm_region_forget_next(heap, low, bytes, &at));)
		tm_emit_heap_free(t, TM_OP_NVTX_FREE, heap, addr);
}

static const void *heap_register(const void *domain, const struct heap_description *d) {
	struct tm_thread *t = d && d->size >= sizeof *d ? tm_enter_to_tell() : NULL;
	const struct range *range;
	const void *handle;
	uint32_t number;
	(void)domain;
	if (!t) return NULL;
	range = range_of(d);
	number = make_heap(d, range);
	tm_heap_tell(t, number);
	handle = range && range->addr ? range->addr : tm_heap_name(number);
	if (number && handle && handle != tm_heap_name(number)) {
		reset(t, handle); /* another was here, and nobody said that it went */
		if (!tm_region_remember(place_of(handle), number, range->size)) handle = tm_heap_name(number);
	}
	tm_leave(t);
	return handle;
}

static void heap_reset(const void *domain, const void *handle) {
	struct tm_thread *t = tm_enter_to_tell();
	(void)domain;
	if (!t) return;
	reset(t, handle);
	tm_leave(t);
}

static void heap_unregister(const void *domain, const void *handle) {
	struct tm_thread *t = handle ? tm_enter_to_tell() : NULL;
	(void)domain;
	if (!t) return;
	reset(t, handle);
	tm_region_forget(place_of(handle));
	tm_leave(t);
}

/* --- regions --- */

/* Inside of a hook. A lock that could not be had says the same: so rarely that it is no reason for two notes. */
TM_COLD static void note_left_out(struct tm_thread *t) {
	static _Atomic uint32_t noted;
	if (!atomic_exchange(&noted, 1))
		tm_emit_note(t, "too-many-regions",
			     "more NVTX regions are registered at once than are followed (1,048,576): the others are not in this trace");
}

static void regions_register(const void *domain, const struct register_batch *d) {
	struct tm_thread *t = d && d->size >= sizeof *d && d->type == TYPE_VIRTUAL_ADDRESS ? tm_enter_to_tell() : NULL;
	const void *frame = TM_FRAME;
	uintptr_t low;
	uint64_t bytes;
	uint32_t heap;
	(void)domain;
	if (!t) return;
	heap = heap_of(d->heap, &low, &bytes);
	for (size_t i = 0; heap && d->elements && d->element_size >= sizeof(struct range) && i < d->count; i++) {
		const struct range *r = (const struct range *)((const char *)d->elements + i * d->element_size);
		if (d->handles) d->handles[i] = r->addr;
		if (!tm_region_remember(r->addr, heap, r->size)) note_left_out(t);
		else tm_emit_heap_alloc(t, TM_OP_NVTX_ALLOC, heap, r->addr, r->size, frame);
	}
	tm_leave(t);
}

static void regions_resize(const void *domain, const struct resize_batch *d) {
	struct tm_thread *t = d && d->size >= sizeof *d && d->type == TYPE_VIRTUAL_ADDRESS ? tm_enter_to_tell() : NULL;
	const void *frame = TM_FRAME;
	(void)domain;
	if (!t) return;
	for (size_t i = 0; d->elements && d->element_size >= sizeof(struct range) && i < d->count; i++) {
		const struct range *r = (const struct range *)((const char *)d->elements + i * d->element_size);
		uint32_t heap = tm_region_heap(r->addr, NULL);
		if (!heap) continue;
		tm_emit_heap_free(t, TM_OP_NVTX_FREE, heap, r->addr);
		tm_emit_heap_alloc(t, TM_OP_NVTX_ALLOC, heap, r->addr, r->size, frame);
	}
	tm_leave(t);
}

static void regions_unregister(const void *domain, const struct unregister_batch *d) {
	struct tm_thread *t = d && d->size >= sizeof *d ? tm_enter_to_tell() : NULL;
	(void)domain;
	if (!t) return;
	for (size_t i = 0; d->elements && d->element_size >= sizeof(void *) && i < d->count; i++) {
		const void *addr = *(const void *const *)((const char *)d->elements + i * d->element_size);
		uint32_t heap = tm_region_forget(addr);
		if (heap) tm_emit_heap_free(t, TM_OP_NVTX_FREE, heap, addr);
	}
	tm_leave(t);
}

/* NVTX's releases count the functions from 0 on; between two of them its headers counted from 1 on, and had this many slots. */
#define SLOTS_FROM_1 17u

void tm_nvtx_memory_fill(intptr_t *slots, size_t count) {
	const intptr_t functions[] = {
		(intptr_t)heap_register,    (intptr_t)heap_unregister, (intptr_t)heap_reset,
		(intptr_t)regions_register, (intptr_t)regions_resize,  (intptr_t)regions_unregister,
	};
	size_t first = count == SLOTS_FROM_1;
	for (size_t i = 0; first + i < count && i < sizeof functions / sizeof functions[0]; i++) slots[first + i] = functions[i];
}
