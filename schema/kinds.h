/* kinds.h - every code number of a trace, listed once.
 *
 * Flow:  the guest stamps ops into its ring -> the collector writes them -> the analyzer reads them by the same numbers.
 * Owns:  nothing; numbers and names only, no code that the guest would have to link.
 * Rule:  a number never changes its meaning; schema/format.md says what each one carries.
 */
#ifndef TIDEMARK_SCHEMA_KINDS_H
#define TIDEMARK_SCHEMA_KINDS_H

#include <stdint.h>

#define TM_FORMAT_MAJOR 1
#define TM_FORMAT_MINOR 4
#define TM_FILE_MAGIC "TIDEMARK"
#define TM_FILE_HEADER_BYTES 16
#define TM_CHUNK_MAGIC 0x4B434D54u
#define TM_CHUNK_HEADER_BYTES 32
#define TM_CHUNK_CRITICAL 1u
#define TM_CHUNK_RAW_MAX (1u << 26)
#define TM_ADDRESS_LIMIT (1ull << 60) /* addresses at and above it cannot be coded */

/* X(name, number) */
#define TM_CHUNK_KINDS(X) \
	X(META, 1) X(STACKS, 2) X(EVENTS, 3) X(NAMES, 4) X(END, 5) X(ACTIVITY, 6)

/* X(name, tag) */
#define TM_RECORD_TAGS(X) \
	X(INFO, 1) X(STRING, 2) X(PROCESS_START, 3) X(PROCESS_EXIT, 4) X(PROCESS_END, 5) X(THREAD_START, 6) \
	X(THREAD_END, 7) X(THREAD_NAME, 8) X(MODULE_LOAD, 9) X(MODULE_UNLOAD, 10) X(HEAP, 11) X(FRAME_MODULE, 12) \
	X(SAMPLES, 13) X(MARK, 14) X(NOTE, 15) X(LOSS, 16) X(ALERT, 17) X(NAME, 18) X(WATERMARK, 19) X(TOTALS, 20) \
	X(POOL_STATE, 21) X(OOM, 22) X(DEVICE, 23)

/* X(identifier, code, api name as the api column shows it). The class is the code's upper three bits. */
#define TM_OPS(X) \
	X(MALLOC, 0x00, "malloc") X(CALLOC, 0x01, "calloc") X(REALLOC_NEW, 0x02, "realloc") \
	X(REALLOCARRAY_NEW, 0x03, "reallocarray") X(POSIX_MEMALIGN, 0x04, "posix_memalign") \
	X(ALIGNED_ALLOC, 0x05, "aligned_alloc") X(MEMALIGN, 0x06, "memalign") X(VALLOC, 0x07, "valloc") \
	X(PVALLOC, 0x08, "pvalloc") X(HEAP_ALLOC, 0x09, "tidemark_heap_alloc") X(TORCH_ALLOC, 0x0A, "torch") \
	X(NVTX_ALLOC, 0x0B, "nvtx") X(ITT_ALLOC, 0x0C, "itt") X(PYTHON_ALLOC, 0x0D, "python") \
	X(CUDA_ALLOC, 0x0E, "cuMemAlloc") X(CUDA_ALLOC_PITCH, 0x0F, "cuMemAllocPitch") X(CUDA_ALLOC_MANAGED, 0x10, "cuMemAllocManaged") \
	X(CUDA_HOST_ALLOC, 0x11, "cuMemHostAlloc") X(CUDA_HOST_REGISTER, 0x12, "cuMemHostRegister") \
	X(CUDA_ALLOC_ASYNC, 0x13, "cuMemAllocAsync") X(CUDA_ALLOC_FROM_POOL, 0x14, "cuMemAllocFromPoolAsync") \
	X(CUDA_CREATE, 0x15, "cuMemCreate") X(CUDA_RESERVE, 0x16, "cuMemAddressReserve") X(CUDA_MAP, 0x17, "cuMemMap") \
	X(CUDA_ARRAY_CREATE, 0x18, "cuArrayCreate") X(CUDA_MIPMAPPED_CREATE, 0x19, "cuMipmappedArrayCreate") \
	X(CUDA_GRAPH_ALLOC, 0x1A, "cuGraphAddMemAllocNode") X(CUDA_IMPORT, 0x1B, "cuMemImportFromShareableHandle") \
	X(CUDA_IPC_OPEN, 0x1C, "cuIpcOpenMemHandle") X(CUDA_POOL_IMPORT, 0x1D, "cuMemPoolImportPointer") \
	X(CUDA_EXTERNAL, 0x1E, "cuExternalMemoryGetMappedBuffer") X(REALLOC_ALONE, 0x1F, "realloc") \
	X(FREE, 0x20, "free") X(CFREE, 0x21, "cfree") X(FREE_SIZED, 0x22, "free_sized") \
	X(FREE_ALIGNED_SIZED, 0x23, "free_aligned_sized") X(REALLOC_FREE, 0x24, "realloc") \
	X(HEAP_FREE, 0x25, "tidemark_heap_free") X(TORCH_FREE, 0x26, "torch") X(NVTX_FREE, 0x27, "nvtx") X(ITT_FREE, 0x28, "itt") \
	X(PYTHON_FREE, 0x29, "python") \
	X(CUDA_FREE, 0x2A, "cuMemFree") X(CUDA_HOST_FREE, 0x2B, "cuMemFreeHost") X(CUDA_HOST_UNREGISTER, 0x2C, "cuMemHostUnregister") \
	X(CUDA_FREE_ASYNC, 0x2D, "cuMemFreeAsync") X(CUDA_RELEASE, 0x2E, "cuMemRelease") X(CUDA_ADDRESS_FREE, 0x2F, "cuMemAddressFree") \
	X(CUDA_UNMAP, 0x30, "cuMemUnmap") X(CUDA_ARRAY_DESTROY, 0x31, "cuArrayDestroy") \
	X(CUDA_MIPMAPPED_DESTROY, 0x32, "cuMipmappedArrayDestroy") X(CUDA_GRAPH_FREE, 0x33, "cuGraphAddMemFreeNode") \
	X(CUDA_IPC_CLOSE, 0x34, "cuIpcCloseMemHandle") X(CUDA_CONTEXT_DESTROY, 0x35, "cuCtxDestroy") \
	X(CUDA_CONTEXT_RESET, 0x36, "cuDevicePrimaryCtxReset") X(CUDA_CONTEXT_RELEASE, 0x37, "cuDevicePrimaryCtxRelease") \
	X(REALLOC, 0x40, "realloc") X(REALLOCARRAY, 0x41, "reallocarray") X(PYTHON_REALLOC, 0x42, "python") \
	X(MMAP, 0x60, "mmap") X(MMAP_FILE, 0x61, "mmap") X(SBRK, 0x62, "sbrk") X(BRK, 0x63, "brk") \
	X(MUNMAP, 0x80, "munmap") X(SBRK_SHRINK, 0x81, "sbrk") X(BRK_SHRINK, 0x82, "brk") \
	X(MREMAP, 0xA0, "mremap") \
	X(MARK, 0xC0, "mark") X(SNAPSHOT, 0xC1, "snapshot") X(BASELINE, 0xC2, "baseline") X(STOP, 0xC3, "stop") \
	X(START, 0xC4, "start") X(RESET_PEAK, 0xC5, "reset_peak") \
	X(SCOPE_PUSH, 0xD0, "scope") X(SCOPE_BLOCK, 0xD1, "scope") X(SCOPE_RANGE, 0xD2, "scope") X(SCOPE_END, 0xD3, "scope_end") \
	X(SCOPE_EXCEPTION, 0xD4, "scope_end") X(STEP, 0xD5, "step") \
	X(OOM, 0xD6, "oom") X(LAUNCH, 0xD7, "launch") X(USE, 0xD8, "use")

enum tm_chunk_kind {
#define X(name, number) TM_CHUNK_##name = number,
	TM_CHUNK_KINDS(X)
#undef X
};

enum tm_record_tag {
#define X(name, tag) TM_RECORD_##name = tag,
	TM_RECORD_TAGS(X)
#undef X
};

enum tm_op {
#define X(name, code, api) TM_OP_##name = code,
	TM_OPS(X)
#undef X
};

enum tm_op_class {
	TM_CLASS_ALLOC = 0,
	TM_CLASS_FREE = 1,
	TM_CLASS_REALLOC = 2,
	TM_CLASS_MAP = 3,
	TM_CLASS_UNMAP = 4,
	TM_CLASS_REMAP = 5,
	TM_CLASS_TEXT = 6,
	TM_CLASS_RESERVED = 7, /* in a trace: damage; in a ring: control records (recorder/shm.h) */
};

#define TM_OP_CLASS(op) ((unsigned)(op) >> 5)
#define TM_OP_IS_BREAK(op) ((op) == TM_OP_SBRK || (op) == TM_OP_BRK || (op) == TM_OP_SBRK_SHRINK || (op) == TM_OP_BRK_SHRINK)

/* How many bytes a mapping of `size` bytes covers beyond them: the break moves by bytes, everything else maps whole pages. */
static inline uint64_t tm_op_spare(enum tm_op op, uint64_t size, uint64_t page_bytes) {
	return TM_OP_IS_BREAK(op) ? 0 : -size & (page_bytes - 1);
}

/* The link of a scope_block: its function's frame address, and above that which call of a function it is. */
#define TM_BLOCK_FRAME_BITS 48u
#define TM_BLOCK_FRAME_MASK ((1ull << TM_BLOCK_FRAME_BITS) - 1)
#define TM_PUSH_APART 1u /* link of a scope_push: only an end of its own category, or of what is not apart, closes it */
#define TM_OP_IS_ALIGNED(op) ((op) >= TM_OP_POSIX_MEMALIGN && (op) <= TM_OP_PVALLOC) /* with an alignment that was asked for */
#define TM_OP_IS_SCOPE(op) (((unsigned)(op) & 0xF0u) == 0xD0u) /* of the text class: carries key, link and category, too */
#define TM_OP_IS_DRIVERS(op) ((op) >= TM_OP_CUDA_ALLOC && (op) <= TM_OP_CUDA_EXTERNAL) /* a function of the CUDA driver that gives memory */
#define TM_OP_IS_GPU(op) ((op) >= TM_OP_OOM && (op) <= TM_OP_USE) /* of these, what is about a device and opens or closes nothing */

/* What opened a scope: X(identifier, number, the text of the category column). Numbers from TM_SCOPE_CATEGORY_OWN on are a process's own (NVTX domains). */
#define TM_SCOPE_CATEGORIES(X) \
	X(USER, 1, "user") X(PYTHON, 2, "python") X(NVTX, 3, "nvtx") X(ITT, 4, "itt") X(TORCH_OP, 5, "torch.op") \
	X(TORCH_BACKWARD, 6, "torch.backward") X(TORCH_SCRIPT, 7, "torch.script") X(TORCH_USER, 8, "torch.user")
#define TM_SCOPE_CATEGORY_OWN 16u

enum tm_scope_category {
#define X(name, number, text) TM_SCOPE_##name = number,
	TM_SCOPE_CATEGORIES(X)
#undef X
};

enum tm_activity_kind {
	TM_ACTIVITY_KERNEL = 1,
	TM_ACTIVITY_MEMCPY = 2,
	TM_ACTIVITY_MEMSET = 3,
	TM_ACTIVITY_OVERHEAD = 4, /* time that driver or profiling interface took for themselves */
	TM_ACTIVITY_CALL = 5,     /* a call of the driver's memory functions, on the host */
	TM_ACTIVITY_MEMORY = 6,   /* what the driver says about an allocation or release */
};
enum tm_activity_direction {
	TM_DIRECTION_NONE = 0,
	TM_DIRECTION_H2D = 1,
	TM_DIRECTION_D2H = 2,
	TM_DIRECTION_D2D = 3,
	TM_DIRECTION_P2P = 4,
	TM_DIRECTION_H2H = 5,
	TM_DIRECTION_ALLOC = 8, /* of TM_ACTIVITY_MEMORY */
	TM_DIRECTION_RELEASE = 9,
};

/* The direction that CUPTI's CUpti_ActivityMemcpyKind means; Nsight Systems stores the same numbers, and three more for pages of managed memory. */
static inline unsigned tm_direction_of_copy(int64_t kind) {
	switch (kind) {
	case 1:
	case 3:
	case 11: return TM_DIRECTION_H2D;
	case 2:
	case 4:
	case 12: return TM_DIRECTION_D2H;
	case 5:
	case 6:
	case 7:
	case 8:
	case 13: return TM_DIRECTION_D2D;
	case 9: return TM_DIRECTION_H2H;
	case 10: return TM_DIRECTION_P2P;
	default: return TM_DIRECTION_NONE;
	}
}

enum tm_end_kind { TM_END_UNKNOWN = 0, TM_END_EXIT = 1, TM_END_SIGNAL = 2, TM_END_EXEC = 3 };
enum tm_process_flag { TM_PROCESS_FORKED = 1, TM_PROCESS_EXECED = 2, TM_PROCESS_UNRECORDED = 4 };
enum tm_frame_kind { TM_FRAME_UNKNOWN = 0, TM_FRAME_NATIVE = 1, TM_FRAME_PYTHON = 2, TM_FRAME_KERNEL = 3 };

#define TM_NOTE_WORLD "world" /* kinds of notes that format.md explains, beside `suppressions` */
#define TM_NOTE_STOPPED_BY_SIZE "max-size"
#define TM_NOTE_BYPASSED "bypassed" /* some allocations of the process are not recorded, their frees may be */
#define TM_NOTE_OTHER_MALLOC "static-allocator" /* the program has a malloc of its own */
#define TM_NOTE_STILL_RUNNING "still-running"
#define TM_NOTE_LOOKED_UP "looked-up" /* by `tidemark-record names`, in a trace that is cut: what has no name then has none there */
#define TM_NOTE_NO_CLOCK "no-clock" /* by the guest: from here on nothing is recorded of this process */

#endif
