/* torch_hooks.c - tensors: the functions by which libc10 reports memory, under their own names.
 *
 * Flow:     libc10 -> here (record) -> the original (torch_find.c);  at the first call -> tm_torch_attach()
 * CPU:      ProfiledCPUMemoryReporter::New and Delete are called for every tensor: heap `torch.cpu`, which lies inside of `malloc`.
 * Devices:  the caching allocators report each block with its allocator's totals: heaps `torch.cuda:0` and so on, and their pool states.
 * Ours:     a thread that takes over another's state has PyTorch rebuild its lists of callbacks, twice a node of the backward pass, even where that state
 *           is the thread's own. Without callbacks that is done soon; with ours it takes memory and several times as long, which is not the program's. So
 *           what changes nothing is left out, and blocks that are asked for otherwise are not recorded.
 * Rule:     the original is called with the same arguments, whatever happens to us, but for that. Where it cannot be found the call ends here: each of them
 *           only reports.
 * Harmless: nobody but PyTorch calls these names. Arguments are plain numbers and pointers, and the names say their types, so a build with other types has
 *           other names, and does not come by here.
 */
#include "cupti.h"
#include "heaps.h"
#include "torch.h"

#include <string.h>

TM_EXPORT void _ZN3c1025ProfiledCPUMemoryReporter3NewEPvm(void *reporter, void *block, size_t size);
TM_EXPORT void _ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv(void *reporter, void *block);
TM_EXPORT void _ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE(void *block, int64_t size, int64_t allocated, int64_t reserved,
								     struct tm_torch_device device);
TM_EXPORT void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *block, int64_t size, size_t allocated, size_t reserved,
								     struct tm_torch_device device);
TM_EXPORT void _ZN2at16init_num_threadsEv(void);
TM_EXPORT void _ZN2at24set_record_function_tls_ERKNS_17RecordFunctionTLSE(const void *state);

/* The thread is inside of the original New or Delete, which tells torch.profiler the same again by reportMemoryUsageToProfiler. One that an exception ends
 * leaves it set, until the thread's next. */
static __thread bool reporting_cpu __attribute__((tls_model("initial-exec")));

/* --- heaps --- */

static uint32_t cpu_heap(void) {
	static _Atomic uint32_t number;
	uint32_t heap = atomic_load_explicit(&number, memory_order_relaxed);

	if (TM_LIKELY(heap != 0)) return heap;
	heap = tm_heap_number("torch.cpu", 9, "tensor", TM_HEAP_NUMBER_MALLOC, -1);
	atomic_store_explicit(&number, heap, memory_order_relaxed);
	return heap;
}

/* As PyTorch writes its devices; c10::DeviceType numbers them. */
static const char *const device_types[] = { "cpu",  "cuda", "mkldnn", "opengl", "opencl", "ideep", "hip",
					    "fpga", "maia", "xla",    "vulkan", "metal",  "xpu",   "mps",
					    "meta", "hpu",  "ve",     "lazy",   "ipu",    "mtia",  "privateuseone" };
#define DEVICE_TYPES ((int)(sizeof device_types / sizeof device_types[0]))

static char *put(char *to, const char *text) {
	size_t n = strlen(text);

	memcpy(to, text, n);
	return to + n;
}

static uint32_t device_heap(struct tm_torch_device device) {
	char name[64], *to = put(name, "torch.");
	unsigned index = device.index > 0 ? (unsigned)device.index : 0;

	if (device.type == TM_TORCH_CPU) return cpu_heap();
	to = put(to, device.type > 0 && device.type < DEVICE_TYPES ? device_types[device.type] : "device");
	*to++ = ':';
	if (index >= 100) *to++ = (char)('0' + index / 100);
	if (index >= 10) *to++ = (char)('0' + index / 10 % 10);
	*to++ = (char)('0' + index % 10);
	return tm_heap_number(name, (size_t)(to - name), "tensor", device.type == TM_TORCH_CUDA ? tm_cuda_device_heap((int)index) : 0, (int)index);
}

/* --- reports --- */

static inline struct tm_thread *enter(void) {
	return tm_torch_is_wanted() ? tm_hook_enter() : NULL;
}

TM_HOT void _ZN3c1025ProfiledCPUMemoryReporter3NewEPvm(void *reporter, void *block, size_t size) {
	tm_torch_reporter_new *original = TM_TORCH(reporter_new);
	struct tm_thread *t;

	tm_torch_attach(false);
	t = block && size ? enter() : NULL;
	if (t) {
		tm_emit_heap_alloc(t, TM_OP_TORCH_ALLOC, cpu_heap(), block, size, TM_FRAME);
		tm_hook_leave(t);
	}
	reporting_cpu = true;
	if (original) original(reporter, block, size);
	reporting_cpu = false;
}

TM_HOT void _ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv(void *reporter, void *block) {
	tm_torch_reporter_delete *original = TM_TORCH(reporter_delete);
	struct tm_thread *t = block ? enter() : NULL;

	if (t) {
		tm_emit_heap_free(t, TM_OP_TORCH_FREE, cpu_heap(), block);
		tm_hook_leave(t);
	}
	reporting_cpu = true;
	if (original) original(reporter, block);
	reporting_cpu = false;
}

/* A positive size is a block given out, a negative one a block taken back. */
TM_HOT static void report(void *block, int64_t size, uint64_t allocated, uint64_t reserved, struct tm_torch_device device, const void *frame) {
	struct tm_thread *t;
	uint32_t heap;

	if (device.type == TM_TORCH_CPU && reporting_cpu) return;
	tm_torch_attach(false);
	t = block && size ? enter() : NULL;
	if (!t) return;
	heap = device_heap(device);
	if (size > 0) tm_emit_heap_alloc(t, TM_OP_TORCH_ALLOC, heap, block, (uint64_t)size, frame);
	else tm_emit_heap_free(t, TM_OP_TORCH_FREE, heap, block);
	if (device.type != TM_TORCH_CPU) tm_emit_pool(t, heap, allocated, reserved);
	tm_hook_leave(t);
}

/* 1.10 to 1.13 */
void _ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE(void *block, int64_t size, int64_t allocated, int64_t reserved,
							   struct tm_torch_device device) {
	tm_torch_report_1 *original = TM_TORCH(report_1);

	report(block, size, (uint64_t)allocated, (uint64_t)reserved, device, TM_FRAME);
	if (original) original(block, size, allocated, reserved, device);
}

/* From 2.0 on */
TM_HOT void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *block, int64_t size, size_t allocated, size_t reserved,
							   struct tm_torch_device device) {
	tm_torch_report_2 *original = TM_TORCH(report_2);

	report(block, size, allocated, reserved, device, TM_FRAME);
	if (original) original(block, size, allocated, reserved, device);
}

/* Nothing of memory: `import torch` calls it when all of PyTorch is loaded and nothing of it runs yet, so that the first operator is seen, too. Each thread
 * that computes calls it once more. */
void _ZN2at16init_num_threadsEv(void) {
	tm_torch_init_num_threads *original = TM_TORCH(init_num_threads);

	if (original) original();
	tm_torch_attach(true);
}

/* Should it throw, the hooks notice that it was left (hook.c). */
void _ZN2at24set_record_function_tls_ERKNS_17RecordFunctionTLSE(const void *state) {
	tm_torch_set_record_function_tls *original = TM_TORCH(set_record_function_tls);

	tm_causes_begin();
	if (original && !tm_torch_is_set_already(state)) original(state);
	tm_causes_end();
}
