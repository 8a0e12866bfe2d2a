/* nvtx_memory.c - NVTX's memory extension: an allocator's heaps and the regions it hands out, as explicit heaps and their blocks.
 *
 * Flow:     the extension's loader in a library of the program -> our functions in its slots -> regions.c (which heap), emit_heap.c -> ring
 * Heaps:    "nvtx:NAME", or by their address. Their memory comes from elsewhere, so it is never added to the process' totals; where it can be read by
 *           the processor it is taken to come from malloc.
 * Regions:  NVTX tells only the address of one that goes, so we remember where each of them lies.
 * Left out: permissions, and names of regions.
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

static uint32_t make_heap(const struct heap_description *d) {
	const struct range *range = d->type == TYPE_VIRTUAL_ADDRESS && d->specific_size >= sizeof *range ? d->specific : NULL;
	const void *base = range ? range->addr : NULL;
	char name[TM_NAME_KEPT];
	size_t n = name_of(name, d, base);
	bool host = tm_is_sandboxed() || !base || tm_raw_is_readable(base);
	return tm_heap_number(name, n, "nvtx", host ? TM_HEAP_NUMBER_MALLOC : 0, -1);
}

static const void *heap_register(const void *domain, const struct heap_description *d) {
	struct tm_thread *t = d && d->size >= sizeof *d ? tm_enter() : NULL;
	uint32_t number;
	(void)domain;
	if (!t) return NULL;
	number = make_heap(d);
	if (number) tm_heap_tell(t, number);
	tm_leave(t);
	return tm_heap_name(number);
}

/* The number of a handle; that of the whole process is NULL. 0: it is none. */
static uint32_t heap_of(const void *handle) {
	if (!handle) return tm_heap_number("nvtx", 4, "nvtx", TM_HEAP_NUMBER_MALLOC, -1);
	return tm_heap_is_handle(handle) ? tm_heap_of_handle(handle) : 0;
}

static void heap_reset(const void *domain, const void *handle) {
	struct tm_thread *t = tm_enter();
	uint32_t heap;
	size_t at = 0;
	(void)domain;
	if (!t) return;
	heap = heap_of(handle);
	for (const void *addr; heap && (addr = tm_region_forget_next(heap, &at));) tm_emit_heap_free(t, TM_OP_NVTX_FREE, heap, addr);
	tm_leave(t);
}

/* --- regions --- */

static void regions_register(const void *domain, const struct register_batch *d) {
	struct tm_thread *t = d && d->size >= sizeof *d && d->type == TYPE_VIRTUAL_ADDRESS ? tm_enter() : NULL;
	const void *frame = TM_FRAME;
	uint32_t heap;
	(void)domain;
	if (!t) return;
	heap = heap_of(d->heap);
	for (size_t i = 0; heap && d->elements && d->element_size >= sizeof(struct range) && i < d->count; i++) {
		const struct range *r = (const struct range *)((const char *)d->elements + i * d->element_size);
		if (d->handles) d->handles[i] = r->addr;
		if (tm_region_remember(r->addr, heap)) tm_emit_heap_alloc(t, TM_OP_NVTX_ALLOC, heap, r->addr, r->size, frame);
	}
	tm_leave(t);
}

static void regions_resize(const void *domain, const struct resize_batch *d) {
	struct tm_thread *t = d && d->size >= sizeof *d && d->type == TYPE_VIRTUAL_ADDRESS ? tm_enter() : NULL;
	const void *frame = TM_FRAME;
	(void)domain;
	if (!t) return;
	for (size_t i = 0; d->elements && d->element_size >= sizeof(struct range) && i < d->count; i++) {
		const struct range *r = (const struct range *)((const char *)d->elements + i * d->element_size);
		uint32_t heap = tm_region_heap(r->addr);
		if (!heap) continue;
		tm_emit_heap_free(t, TM_OP_NVTX_FREE, heap, r->addr);
		tm_emit_heap_alloc(t, TM_OP_NVTX_ALLOC, heap, r->addr, r->size, frame);
	}
	tm_leave(t);
}

static void regions_unregister(const void *domain, const struct unregister_batch *d) {
	struct tm_thread *t = d && d->size >= sizeof *d ? tm_enter() : NULL;
	(void)domain;
	if (!t) return;
	for (size_t i = 0; d->elements && d->element_size >= sizeof(void *) && i < d->count; i++) {
		const void *addr = *(const void *const *)((const char *)d->elements + i * d->element_size);
		uint32_t heap = tm_region_forget(addr);
		if (heap) tm_emit_heap_free(t, TM_OP_NVTX_FREE, heap, addr);
	}
	tm_leave(t);
}

void tm_nvtx_memory_fill(intptr_t *slots, size_t count) {
	const intptr_t functions[] = {
		(intptr_t)heap_register,    (intptr_t)heap_reset, /* unregister: what is in it goes */
		(intptr_t)heap_reset,       (intptr_t)regions_register,
		(intptr_t)regions_resize,   (intptr_t)regions_unregister,
	};
	for (size_t i = 0; i < count && i < sizeof functions / sizeof functions[0]; i++) slots[i] = functions[i];
}
