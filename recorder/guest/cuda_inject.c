/* cuda_inject.c - libtidemark.so as the injection library of the CUDA driver: subscribes to CUPTI, and makes room where somebody else wants it.
 *
 * Flow:     injection.c names us in CUDA_INJECTION64_PATH -> the driver loads us, in the first call of cuInit() -> InitializeInjection() -> cupti_find.c
 * Nothing:  where CUDA is never used, none of this runs.
 * Room:     CUPTI serves one tool a process. One that is there already (Nsight, compute-sanitizer) keeps it. One that comes later from inside of the program
 *           (torch.profiler) calls cuptiSubscribe or cuptiActivityRegisterCallbacks, which are our names, too: we leave first, then its call goes on. In both
 *           cases PyTorch's reporters (torch_hooks.c) go on telling its blocks, and a note says so once. With --gpu=cupti we stay.
 * Leaving:  never cuptiFinalize(): the driver may call us in that moment. Callbacks are switched off and do nothing.
 */
#include "cupti.h"
#include "hot.h"
#include "raw.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

TM_EXPORT int InitializeInjection(void);
TM_EXPORT int cuptiSubscribe(void **subscriber, tm_cupti_callback *callback, void *user);
TM_EXPORT int cuptiSubscribe_v2(void **subscriber, tm_cupti_callback *callback, void *user, void *parameters);
TM_EXPORT int cuptiActivityRegisterCallbacks(void (*request)(uint8_t **, size_t *, size_t *), void (*completed)(void *, uint32_t, uint8_t *, size_t, size_t));

#define NOT_INITIALIZED 15 /* CUPTI's word for it */

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

/* "CUPTI cannot be used: WHY; ..." */
static void note_without(const char *why) {
	static const char before[] = "CUPTI cannot be used: ", after[] = "; of CUDA only what PyTorch reports is in this trace";
	char text[512];
	size_t n = strnlen(why, sizeof text - sizeof before - sizeof after);
	memcpy(text, before, sizeof before - 1);
	memcpy(text + sizeof before - 1, why, n);
	memcpy(text + sizeof before - 1 + n, after, sizeof after);
	note(text);
}

/* --- on --- */

static void enable(void *handle, uint32_t on) {
	static const uint32_t calls[] = {
#define X(name, id) id,
		TM_CUDA_CALLS(X)
#undef X
#define X(name, id, kind) id,
			TM_CUDA_WORK(X)
#undef X
#define X(name, id) id,
				TM_CUDA_TAKERS(X)
#undef X
	};
	for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) tm_cupti.cuptiEnableCallback(on, handle, TM_CUPTI_DOMAIN_DRIVER, calls[i]);
}

void tm_cuda_flush(void) {
	if (!tm_cuda_is_recorded() || tm_is_sandboxed() || tm_raw_getpid() != subscribed_pid || !tm_cupti.cuptiActivityFlushAll) return;
	tm_cupti.cuptiActivityFlushAll(1); /* also buffers that are not full */
}

/* NULL, or why we do not record. */
static const char *subscribe(void) {
	static char code[] = "cuptiSubscribe() answers    ";
	void *handle = NULL;
	const char *why = tm_cupti_find();
	if (why) return why;
	int rc = tm_cupti.cuptiSubscribe(&handle, tm_cuda_call, NULL);
	if (rc == TM_CUPTI_MULTIPLE_SUBSCRIBERS) return "another tool uses CUPTI";
	if (rc != TM_CUPTI_OK) {
		for (int i = 0, n = rc; i < 3 && n; i++, n /= 10) code[sizeof code - 2 - i] = (char)('0' + n % 10);
		return code;
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
	tm_cuda_activity_start();
	atexit(tm_cuda_flush);
	tm_ours_end();
	atomic_store(&state, STATE_RECORDING);
}

/* The driver does not mind what it returns; 1 is what NVIDIA's examples return. */
int InitializeInjection(void) {
	uint32_t none = STATE_NONE;
	int error = errno;
	if (tm_guest.epoch && tm_guest.shm->gpu != TM_GPU_OFF && atomic_compare_exchange_strong(&state, &none, STATE_STARTING)) start();
	errno = error;
	return 1;
}

/* --- another tool comes --- */

static void step_aside(void) {
	uint32_t recording = STATE_RECORDING;
	if (tm_is_ours() || !tm_guest.epoch || tm_guest.shm->gpu != TM_GPU_AUTO) return;
	if (tm_is_sandboxed() || tm_raw_getpid() != subscribed_pid) return;
	if (!atomic_compare_exchange_strong(&state, &recording, STATE_STARTING)) return;
	if (tm_cupti.cuptiActivityFlushAll) tm_cupti.cuptiActivityFlushAll(1);
	tm_ours_begin();
	tm_cuda_activity_stop();
	enable(atomic_load(&subscriber), 0);
	tm_cupti.cuptiUnsubscribe(atomic_load(&subscriber));
	tm_ours_end();
	atomic_store(&state, STATE_ASIDE);
	note("CUPTI is used by the program itself from here on (torch.profiler?): of CUDA only what PyTorch reports is in this trace; --gpu=cupti keeps it");
}

int cuptiSubscribe(void **handle, tm_cupti_callback *callback, void *user) {
	int (*original)(void **, tm_cupti_callback *, void *);
	void *function = tm_cupti_original("cuptiSubscribe");
	step_aside();
	memcpy(&original, &function, sizeof original);
	return original ? original(handle, callback, user) : NOT_INITIALIZED;
}

int cuptiSubscribe_v2(void **handle, tm_cupti_callback *callback, void *user, void *parameters) {
	int (*original)(void **, tm_cupti_callback *, void *, void *);
	void *function = tm_cupti_original("cuptiSubscribe_v2");
	step_aside();
	memcpy(&original, &function, sizeof original);
	return original ? original(handle, callback, user, parameters) : NOT_INITIALIZED;
}

int cuptiActivityRegisterCallbacks(void (*request)(uint8_t **, size_t *, size_t *), void (*completed)(void *, uint32_t, uint8_t *, size_t, size_t)) {
	int (*original)(void (*)(uint8_t **, size_t *, size_t *), void (*)(void *, uint32_t, uint8_t *, size_t, size_t));
	void *function = tm_cupti_original("cuptiActivityRegisterCallbacks");
	step_aside();
	memcpy(&original, &function, sizeof original);
	return original ? original(request, completed) : NOT_INITIALIZED;
}
