/* torch.h - PyTorch in the traced process: its functions by name, and what the adaptor's files know of each other.
 *
 * Flow:     libc10 -> torch_hooks.c (tensors) -> emit_heap.c -> ring;  libtorch_cpu -> torch_scopes.c (operators) -> scope.h -> ring
 * Idea:     libc10 tells a reporter of every CPU tensor and of every block of a device's caching allocator, through functions that it exports and calls
 *           through the loader: ours come first, note the block and call the original. Operators come by at::addGlobalCallback. The program is not changed.
 * Owns:     pointers to PyTorch's functions (torch_find.c).
 * Threads:  any.
 * Failure:  a function that is not found is not called; what is missing then is said once, in a note.
 * Versions: 1.13 to 2.13 were tried; the layouts that matter are looked at when PyTorch is there (torch_scopes.c), never assumed by version.
 */
#ifndef TIDEMARK_GUEST_TORCH_H
#define TIDEMARK_GUEST_TORCH_H

#include "guest.h"

/* c10::Device, passed by value. */
struct tm_torch_device {
	int8_t type, index;
};
#define TM_TORCH_CPU 0
#define TM_TORCH_CUDA 1

/* at::RecordFunctionCallback up to its list of scope kinds, and more zeros than any version has flags behind it. */
struct tm_torch_callback {
	void *(*start)(void **context, const void *function);
	void (*end)(const void *function, void *context);
	double probability;
	uint8_t scopes[64];
};

/* X(identifier, result, arguments, symbol) */
#define TM_TORCH_FUNCTIONS(X) \
	X(reporter_new, void, (void *, void *, size_t), "_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm") \
	X(reporter_delete, void, (void *, void *), "_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv") \
	X(report_1, void, (void *, int64_t, int64_t, int64_t, struct tm_torch_device), \
	  "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE") \
	X(report_2, void, (void *, int64_t, size_t, size_t, struct tm_torch_device), \
	  "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE") \
	X(init_num_threads, void, (void), "_ZN2at16init_num_threadsEv") \
	X(set_record_function_tls, void, (const void *), "_ZN2at24set_record_function_tls_ERKNS_17RecordFunctionTLSE") \
	X(get_record_function_tls, const void *, (void), "_ZN2at24get_record_function_tls_Ev") \
	X(enable_record_function, void, (bool), "_ZN2at20enableRecordFunctionEb") \
	X(add_global_callback, uint64_t, (struct tm_torch_callback), "_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE") \
	X(function_name, const char *, (const void *), "_ZNK2at14RecordFunction4nameEv") \
	X(function_construct, void, (void *, uint8_t), "_ZN2at14RecordFunctionC1ENS_11RecordScopeE") \
	X(function_destroy, void, (void *), "_ZN2at14RecordFunctionD1Ev") \
	X(thread_id, uint64_t, (void), "_ZN2at14RecordFunction15currentThreadIdEv")

#define X(name, result, arguments, symbol) typedef result tm_torch_##name arguments;
TM_TORCH_FUNCTIONS(X)
#undef X

enum tm_torch_function {
#define X(name, result, arguments, symbol) TM_TORCH_##name,
	TM_TORCH_FUNCTIONS(X)
#undef X
		TM_TORCH_FUNCTION_COUNT
};

/* --- torch_find.c --- */

/* PyTorch's own function, or NULL. Asks the loader's list at the first call, and again only when modules were added since. */
void *tm_torch_find(enum tm_torch_function which);
#define TM_TORCH(name) ((tm_torch_##name *)tm_torch_find(TM_TORCH_##name))
void tm_torch_forget(void); /* after a dlclose: look again */
/* The process leaves: notes a libc10 whose reports could not be seen. Between enter and leave of a hook. */
void tm_torch_note_unseen(struct tm_thread *t);

/* --- torch_scopes.c --- */

/* Once a process, from a call of PyTorch's outside of everything of ours: has its operators reported. `complete`: libtorch_cpu is there for certain. */
void tm_torch_attach(bool complete);

/* The calling thread's callbacks and switch (at::RecordFunctionTLS) are what `state` says: to set them so changes nothing. */
bool tm_torch_is_set_already(const void *state);

static inline bool tm_torch_is_wanted(void) {
	return tm_guest.shm && tm_guest.shm->torch;
}

#endif
