/* cuda_inject.c - libtidemark.so as the injection library of the CUDA driver: subscribes to CUPTI, and makes room where somebody else wants it.
 *
 * Flow:     injection.c names us in CUDA_INJECTION64_PATH -> the driver loads us, in the first call of cuInit() -> InitializeInjection() -> cupti_find.c
 * Nothing:  where CUDA is never used, none of this runs.
 * Room:     CUPTI serves one tool a process. One that is there already (Nsight, compute-sanitizer) keeps it. One that comes later from inside of the program
 *           (torch.profiler) calls one of the functions by which every tool begins, which are our names, too: we leave first, or do not come at all, then its
 *           call goes on. In both cases PyTorch's reporters (torch_hooks.c) go on telling its blocks, and a note says so once. With --gpu=cupti we stay:
 *           a subscription is refused by CUPTI; what would take our records, kinds or clock from us we refuse in CUPTI's place.
 * Lacking:  what CUPTI does not have, or refuses, costs what it is for; one note names all of it.
 * Unasked:  a driver that was used and never came for us is told of at the program's exit.
 * Leaving:  never cuptiFinalize(): the driver may call us in that moment. Callbacks are switched off and do nothing.
 */
#include "cuda_calls.h"
#include "hot.h"
#include "injection.h"
#include "process.h"
#include "raw.h"

#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

TM_EXPORT int InitializeInjection(void);
TM_EXPORT int cuptiSubscribe(void **subscriber, tm_cupti_callback *callback, void *user);
TM_EXPORT int cuptiSubscribe_v2(void **subscriber, tm_cupti_callback *callback, void *user, void *parameters);
TM_EXPORT int cuptiActivityRegisterCallbacks(void (*request)(uint8_t **, size_t *, size_t *), void (*completed)(void *, uint32_t, uint8_t *, size_t, size_t));
TM_EXPORT int cuptiActivityRegisterTimestampCallback(uint64_t (*function)(void));
TM_EXPORT int cuptiActivityEnable(int kind);

#define DESCRIPTORS_LOOKED_AT 256u
#define MISSING_DESCRIPTORS 16u /* so many in a row: there are no more */

enum state { STATE_NONE = 0, STATE_STARTING, STATE_RECORDING, STATE_ASIDE };
static _Atomic uint32_t state;
static void *_Atomic subscriber;
static int subscribed_pid; /* a fork's child has neither the driver nor CUPTI's threads: it must not call them, and its exit() comes by here */
static uint32_t subscribed_process;

bool tm_cuda_is_recorded(void) {
	return atomic_load_explicit(&state, memory_order_relaxed) == STATE_RECORDING;
}

bool tm_cuda_is_inherited(void) {
	return tm_guest.process != subscribed_process;
}

static void note(const char *text) {
	struct tm_thread *t = tm_hook_enter();
	if (!t) return;
	tm_emit_note(t, "gpu", text);
	tm_hook_leave(t);
}

static size_t append(char *text, size_t n, size_t room, const char *more) {
	size_t m = strlen(more);
	if (n + m >= room) return n;
	memcpy(text + n, more, m + 1);
	return n + m;
}

/* "CUPTI cannot be used: WHY; ..." */
static void note_without(const char *why) {
	char text[512];
	size_t n = append(text, append(text, 0, sizeof text, "CUPTI cannot be used: "), sizeof text - 80, why);
	append(text, n, sizeof text, "; of CUDA only what PyTorch reports is in this trace");
	note(text);
}

/* " answers N (NAME)" */
static size_t append_answer(char *text, size_t n, size_t room, int answer) {
	char digits[12];
	const char *name = NULL;
	size_t at = sizeof digits - 1;
	unsigned value = answer < 0 ? 0 : (unsigned)answer;
	digits[at] = 0;
	do digits[--at] = (char)('0' + value % 10);
	while (value /= 10);
	n = append(text, append(text, n, room, " answers "), room, digits + at);
	if (!tm_cupti.cuptiGetResultString || tm_cupti.cuptiGetResultString(answer, &name) != TM_CUPTI_OK || !name || strlen(name) > 80) return n;
	return append(text, append(text, append(text, n, room, " ("), room, name), room, ")");
}

static TM_ROOMY char lacks[2400];
static size_t lacks_bytes;

void tm_cuda_lacks(const char *function, int answer, const char *cost) {
	size_t n = append(lacks, lacks_bytes, sizeof lacks, lacks_bytes ? "; " : "CUPTI does not do all that is wanted: ");
	n = append(lacks, n, sizeof lacks, function);
	n = answer ? append_answer(lacks, n, sizeof lacks, answer) : append(lacks, n, sizeof lacks, " is missing");
	n = append(lacks, n, sizeof lacks, ", so ");
	lacks_bytes = append(lacks, n, sizeof lacks, cost);
}

/* --- on --- */

/* What CUPTI answered last of what it refused, 0: nothing that it should know. Numbers above all that it takes are of a later version. */
static int enable_each(void *handle, uint32_t on) {
	static const uint32_t calls[] = {
#define X(name, id) id,
		TM_CUDA_CALLS(X) TM_CUDA_POOL_CALLS(X) TM_CUDA_CONTEXT_CALLS(X) TM_CUDA_UNLOAD_CALLS(X) TM_CUDA_STREAM_CALLS(X)
#undef X
#define X(name, id, kind) id,
			TM_CUDA_WORK(X)
#undef X
#define X(name, id) id,
				TM_CUDA_TAKERS(X)
#undef X
	};
	uint32_t highest = 0, lowest_refused = UINT32_MAX;
	int answer = 0;
	for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
		int rc = tm_cupti.cuptiEnableCallback(on, handle, TM_CUPTI_DOMAIN_DRIVER, calls[i]);
		if (rc == TM_CUPTI_OK && calls[i] > highest) highest = calls[i];
		if (rc != TM_CUPTI_OK && calls[i] < lowest_refused) lowest_refused = calls[i];
		if (rc != TM_CUPTI_OK) answer = rc;
	}
	return lowest_refused < highest || !highest ? answer : 0;
}

/* Each function by itself, else all of them: those that we do not know are passed by. */
static void enable(void *handle, uint32_t on) {
	int answer = tm_cupti.cuptiEnableCallback ? enable_each(handle, on) : TM_CUPTI_OK;
	if (tm_cupti.cuptiEnableCallback && !answer) return;
	if (tm_cupti.cuptiEnableDomain && tm_cupti.cuptiEnableDomain(on, handle, TM_CUPTI_DOMAIN_DRIVER) == TM_CUPTI_OK) return;
	if (on) tm_cuda_lacks("cuptiEnableCallback()", answer, "blocks and launches are not in this trace, or not all of them");
}

void tm_cuda_flush(void) {
	if (!tm_cuda_is_recorded() || tm_is_sandboxed() || tm_raw_getpid() != subscribed_pid) return;
	struct tm_thread *t = tm_hook_enter();
	if (t) {
		tm_cuda_tell_pools(t);
		tm_hook_leave(t);
	}
	if (tm_cuda_activity_fetch_last() != TM_CUPTI_OK) note("CUPTI does not give its last records back (cuptiActivityFlushAll): they are not in this trace");
}

/* NULL, or why we do not record. */
static const char *subscribe(void) {
	static char text[200];
	void *handle = NULL;
	const char *why = tm_cupti_find();
	if (why) return why;
	int rc = tm_cupti.cuptiSubscribe(&handle, tm_cuda_call, NULL);
	if (rc == TM_CUPTI_MULTIPLE_SUBSCRIBERS) return "another tool uses CUPTI";
	if (rc != TM_CUPTI_OK) {
		size_t n = append_answer(text, append(text, 0, sizeof text, "cuptiSubscribe()"), sizeof text, rc);
		if (rc == TM_CUPTI_NOT_INITIALIZED) append(text, n, sizeof text, ", as where the driver is older than it needs (TIDEMARK_CUPTI names another)");
		return text;
	}
	atomic_store(&subscriber, handle);
	return NULL;
}

static void start(void) {
	const char *why = subscribe();
	struct tm_thread *t;
	if (why) {
		atomic_store(&state, STATE_ASIDE);
		note_without(why);
		return;
	}
	t = tm_hook_enter();
	if (t) {
		tm_cupti_find_code(t);
		tm_hook_leave(t);
	}
	subscribed_pid = tm_raw_getpid();
	subscribed_process = tm_guest.process;
	tm_ours_begin();
	enable(atomic_load(&subscriber), 1);
	if (!tm_cupti.cuptiGetDeviceId && !tm_cupti.cuCtxGetDevice) tm_cuda_lacks("cuptiGetDeviceId()", 0, "every block is taken to be of device 0");
	if (!tm_cupti.cuptiGetStreamIdEx) tm_cuda_lacks("cuptiGetStreamIdEx()", 0, "blocks have no stream");
	tm_cuda_activity_start();
	if (!tm_cupti.cuptiActivityFlushAll) tm_cuda_lacks("cuptiActivityFlushAll()", 0, "the last records of this process may not be in this trace");
	atexit(tm_cuda_flush);
	tm_ours_end();
	atomic_store(&state, STATE_RECORDING);
	if (lacks_bytes) note(lacks);
}

/* The driver does not mind what it returns; 1 is what NVIDIA's examples return. */
int InitializeInjection(void) {
	uint32_t none = STATE_NONE;
	int error = errno;
	if (tm_guest.epoch && tm_guest.shm->gpu != TM_GPU_OFF && atomic_compare_exchange_strong(&state, &none, STATE_STARTING)) start();
	errno = error;
	return 1;
}

/* --- nobody came for us --- */

static int is_driver(struct dl_phdr_info *info, size_t size, void *context) {
	const char *slash = strrchr(info->dlpi_name, '/');
	(void)size;
	(void)context;
	return strncmp(slash ? slash + 1 : info->dlpi_name, "libcuda.so", 10) == 0;
}

/* The driver has its devices open from cuInit() on. */
static bool driver_is_in_use(void) {
	static const char device[] = "/nvidia-uvm";
	char link[] = "/proc/self/fd/000", path[256];
	for (unsigned fd = 0, missing = 0; fd < DESCRIPTORS_LOOKED_AT && missing < MISSING_DESCRIPTORS; fd++) {
		char *digits = link + sizeof "/proc/self/fd/" - 1;
		unsigned n = 0;
		if (fd >= 100) digits[n++] = (char)('0' + fd / 100);
		if (fd >= 10) digits[n++] = (char)('0' + fd / 10 % 10);
		digits[n++] = (char)('0' + fd % 10);
		digits[n] = 0;
		long length = tm_raw_readlink(link, path, sizeof path);
		missing = length < 0 ? missing + 1 : 0;
		if (length >= (long)sizeof device - 1 && memcmp(path + length - (sizeof device - 1), device, sizeof device - 1) == 0)
			return true;
	}
	return false;
}

void tm_cuda_note_unasked(struct tm_thread *t) {
	static const char text[] =
		"the CUDA driver was used, and did not ask for us (a debugger runs the program, or it took CUDA_INJECTION64_PATH out of its"
		" environment?): of CUDA only what PyTorch reports is in this trace";
	bool loaded;
	if (!tm_injection_names_us_to_cuda() || atomic_load(&state) != STATE_NONE || tm_is_sandboxed() || !tm_loader_enter()) return;
	tm_ours_begin();
	loaded = dl_iterate_phdr(is_driver, NULL) != 0;
	tm_ours_end();
	tm_loader_leave();
	if (loaded && driver_is_in_use()) tm_emit_note(t, "gpu", text);
}

/* --- another tool comes --- */

/* Leaves CUPTI to the program, for good. Before the driver has started us nothing is to be left, and we are not to come: what the program has said
 * to CUPTI by then would not outlast it. false: we stay, and so the program's call must not reach CUPTI. */
static bool step_aside(void) {
	static const char text[] =
		"CUPTI is used by the program itself from here on (torch.profiler?): of CUDA only what PyTorch reports is in this trace; --gpu=cupti keeps it";
	uint32_t none = STATE_NONE, recording = STATE_RECORDING;
	if (tm_is_ours() || !tm_guest.epoch || tm_guest.shm->gpu == TM_GPU_OFF) return true;
	if (tm_guest.shm->gpu != TM_GPU_AUTO) return !tm_cuda_is_recorded();
	if (atomic_compare_exchange_strong(&state, &none, STATE_ASIDE)) {
		note(text);
		return true;
	}
	if (tm_is_sandboxed() || tm_raw_getpid() != subscribed_pid) return true;
	if (!atomic_compare_exchange_strong(&state, &recording, STATE_STARTING)) return true;
	if (tm_cupti.cuptiActivityFlushAll) tm_cupti.cuptiActivityFlushAll(1);
	tm_ours_begin();
	tm_cuda_activity_stop();
	enable(atomic_load(&subscriber), 0);
	bool left = tm_cupti.cuptiUnsubscribe && tm_cupti.cuptiUnsubscribe(atomic_load(&subscriber)) == TM_CUPTI_OK;
	tm_ours_end();
	atomic_store(&state, STATE_ASIDE);
	if (!left) note("CUPTI cannot be left to the program (cuptiUnsubscribe), which may be refused what it asks of it: --gpu=off leaves CUPTI alone");
	note(text);
	return true;
}

/* Of two subscribers CUPTI itself refuses the second, where it takes but one. */
#define HANDED_ON(name, is_refused, parameters, arguments) \
	int name parameters { \
		int(*original) parameters; \
		void *function = tm_cupti_original(#name); \
		if (!step_aside() && is_refused) return TM_CUPTI_MULTIPLE_SUBSCRIBERS; \
		memcpy(&original, &function, sizeof original); \
		return original ? original arguments : TM_CUPTI_NOT_INITIALIZED; \
	}
HANDED_ON(cuptiSubscribe, false, (void **handle, tm_cupti_callback *callback, void *user), (handle, callback, user))
HANDED_ON(cuptiSubscribe_v2, false, (void **handle, tm_cupti_callback *callback, void *user, void *parameters), (handle, callback, user, parameters))
HANDED_ON(cuptiActivityRegisterCallbacks, true,
	  (void (*request)(uint8_t **, size_t *, size_t *), void (*completed)(void *, uint32_t, uint8_t *, size_t, size_t)), (request, completed))
HANDED_ON(cuptiActivityRegisterTimestampCallback, true, (uint64_t(*function_of_theirs)(void)), (function_of_theirs))
HANDED_ON(cuptiActivityEnable, true, (int kind), (kind))
