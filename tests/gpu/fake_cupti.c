/* fake_cupti.c - a libcupti.so without a device: one subscriber, callbacks that can be switched on one by one, records in buffers that the subscriber gives.
 *
 * Records are written field by field at the places that NVIDIA's headers give them, in the sizes of CUDA 13, or with FAKE_CUPTI_OLD in those of
 * 11.2; FAKE_CUPTI_LONG adds
 * bytes behind each. Built with -DWITHOUT_x, the function x is missing.
 */
#define _GNU_SOURCE
#include "fake.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define IDS 1024

typedef void callback(void *user, int domain, uint32_t id, const struct fake_call *call);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static callback *subscriber;
static void *subscriber_data;
static bool enabled[IDS], kinds[256];
static uint64_t (*timestamp)(void);
static void (*request)(uint8_t **, size_t *, size_t *);
static void (*completed)(void *, uint32_t, uint8_t *, size_t, size_t);
static uint8_t *buffer;
static size_t buffer_size, buffer_used;
static bool dropped_told, has_ended, empty_buffers; /* it need not empty them */
static pid_t owner;

int cuptiSubscribe(void **handle, callback *function, void *user);
int cuptiUnsubscribe(void *handle);
int cuptiEnableCallback(uint32_t on, void *handle, int domain, uint32_t id);
int cuptiEnableDomain(uint32_t on, void *handle, int domain);
int cuptiGetStreamIdEx(void *context, void *stream, uint8_t per_thread, uint32_t *number);
int cuptiGetResultString(int result, const char **name);
int cuptiGetDeviceId(void *context, uint32_t *device);
int cuptiGetTimestamp(uint64_t *ns);
int cuptiActivityRegisterCallbacks(void (*r)(uint8_t **, size_t *, size_t *), void (*c)(void *, uint32_t, uint8_t *, size_t, size_t));
int cuptiActivityRegisterTimestampCallback(uint64_t (*function)(void));
int cuptiActivityEnable(int kind);
int cuptiActivitySetAttribute(int which, size_t *bytes, void *value);
int cuptiActivityDisable(int kind);
int cuptiActivityFlushAll(uint32_t flag);
int cuptiActivityGetNextRecord(uint8_t *data, size_t valid, uint8_t **record);
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *count);

static long setting(const char *name) {
	const char *value = getenv(name);
	return value ? atol(value) : 0;
}

static uint64_t realtime(void) {
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t now(void) {
	const char *clock = getenv("FAKE_CUPTI_CLOCK");
	static uint64_t began;
	if (!began) began = realtime();
	if (clock && !strcmp(clock, "drift")) return 77000000000u + 3 * (realtime() - began);
	return timestamp ? timestamp() : realtime();
}

/* A setting names the functions that do not do what they are asked. */
static bool refuses(const char *function) {
	static const char *names;
	if (!names) names = getenv("FAKE_CUPTI_REFUSES") ? getenv("FAKE_CUPTI_REFUSES") : "";
	const char *at = *names ? strstr(names, function) : NULL;
	return at && (at[strlen(function)] == ',' || !at[strlen(function)]);
}

/* --- records --- */

static size_t size_of(int kind) {
	bool old = setting("FAKE_CUPTI_OLD");
	size_t n = 64;
	switch (kind) {
	case 1: n = old ? 64 : 96; break;
	case 2: n = old ? 64 : 88; break;
	case 10: n = old ? 144 : 216; break;
	case 17: n = old ? 40 : 56; break;
	case 22: n = old ? 80 : 112; break;
	}
	return n + (size_t)setting("FAKE_CUPTI_LONG") / 8 * 8;
}

static void complete(void) {
	uint8_t *full = buffer;
	size_t size = buffer_size, written = buffer_used, used = written;
	buffer = NULL;
	if (!full || !completed) return;
	if (setting("FAKE_CUPTI_CUT") == 1) used -= 80;
	if (setting("FAKE_CUPTI_EMPTY")) used = 0;
	memset(full + used, 0, written - used); /* whoever gets a buffer back empties what is said to be used of it */
	pthread_mutex_unlock(&lock);
	if (setting("FAKE_CUPTI_EMPTY")) {
		completed(NULL, 0, NULL, 0, 0);
		completed(NULL, 0, full, 0, 0);
	}
	completed(NULL, 0, full, size, used);
	pthread_mutex_lock(&lock);
}

/* Each record carries its length in front, where only we look: the subscriber must not know sizes. */
static uint8_t *new_record(int kind) {
	size_t n = size_of(kind), most;
	if (!kinds[kind & 0xff] && kind < 200) return NULL;
	if (buffer && buffer_used + n + 8 > buffer_size) complete();
	if (!buffer) {
		if (!request) return NULL;
		pthread_mutex_unlock(&lock);
		uint8_t *fresh = NULL;
		size_t size = 0;
		request(&fresh, &size, &most);
		pthread_mutex_lock(&lock);
		if (!fresh || size < n + 8) return NULL;
		for (size_t i = 0; empty_buffers && i < size && i < 1 << 18; i++)
			if (fresh[i]) abort();
		buffer = fresh;
		buffer_size = size;
		buffer_used = 0;
	}
	uint8_t *record = buffer + buffer_used + 8;
	uint64_t length = n;
	memcpy(record - 8, &length, 8);
	if (!empty_buffers) memset(record, 0, n);
	buffer_used += n + 8;
	memcpy(record, &kind, 4);
	return record;
}

static void put(uint8_t *record, size_t at, uint64_t value, size_t bytes) {
	memcpy(record + at, &value, bytes);
}

static void odd_record(void) {
	if (setting("FAKE_CUPTI_ODD")) new_record(250);
}

static void on_work(const struct fake_work *w) {
	if (!completed) return;
	pthread_mutex_lock(&lock);
	odd_record();
	uint8_t *r = new_record(w->kind);
	uint64_t start = now(), end = start + 1000;
	if (r) {
		put(r, 16, setting("FAKE_CUPTI_UNTIMED") == w->kind || !w->end ? 0 : start, 8);
		put(r, 24, !w->end ? 0 : setting("FAKE_CUPTI_REVERSED") == w->kind ? start - 1 : end, 8);
	}
	if (r && w->kind == 10) {
		put(r, 40, (uint64_t)w->device, 4);
		put(r, 48, w->stream, 4);
		put(r, 92, w->correlation, 4);
		put(r, 104, (uintptr_t)w->name, 8);
	} else if (r) {
		put(r, 4, (uint64_t)w->copy_kind, w->kind == 2 ? 4 : 1);
		put(r, 8, w->bytes, 8);
		put(r, 32, (uint64_t)w->device, 4);
		put(r, 40, w->stream, 4);
		put(r, w->kind == 22 ? 60 : 44, w->correlation, 4);
	}
	r = w->kind == 10 ? new_record(17) : NULL;
	if (r) {
		put(r, 4, 5u << 16, 4);
		put(r, 24, start, 8);
		put(r, 32, end, 8);
	}
	pthread_mutex_unlock(&lock);
}

static void on_call(uint32_t id, struct fake_call *call) {
	if (subscriber && id < IDS && enabled[id]) subscriber(subscriber_data, 1, id, call);
}

/* exit() has begun, and the subscriber's handlers have run. */
static void on_left(void) {
	has_ended = true;
	if (!setting("FAKE_CUPTI_LATE")) return;
	pthread_mutex_lock(&lock);
	complete();
	pthread_mutex_unlock(&lock);
}

static const struct fake_hooks our_hooks = { on_call, on_work, on_left };

/* --- the interface --- */

int cuptiSubscribe(void **handle, callback *function, void *user) {
	if (refuses(__func__)) return 7;
	if (setting("FAKE_CUPTI_NEWER")) return 15;
	if (setting("FAKE_CUPTI_BUSY") || subscriber) return 39;
	owner = getpid();
	subscriber_data = user;
	subscriber = function;
	*handle = &subscriber;
	fake_cuda_hook(&our_hooks);
	return 0;
}

#ifndef WITHOUT_cuptiUnsubscribe
int cuptiUnsubscribe(void *handle) {
	if (refuses(__func__)) return 7;
	if (handle != &subscriber) return 1;
	subscriber = NULL;
	return 0;
}
#endif

#ifndef WITHOUT_cuptiEnableDomain
int cuptiEnableDomain(uint32_t on, void *handle, int domain) {
	if (refuses(__func__)) return 7;
	if (handle != &subscriber || domain != 1) return 1;
	for (int i = 0; i < IDS; i++) enabled[i] = on != 0;
	return 0;
}
#endif

#ifndef WITHOUT_cuptiEnableCallback
int cuptiEnableCallback(uint32_t on, void *handle, int domain, uint32_t id) {
	if (refuses(__func__)) return 7;
	if (handle != &subscriber || domain != 1 || id >= IDS) return 1;
	if (id == (uint32_t)setting("FAKE_CUPTI_REFUSES_ID")) return 7;
	enabled[id] = on != 0;
	return 0;
}
#endif

#ifndef WITHOUT_cuptiGetStreamIdEx
/* 7 is the stream that has no name, 8 a thread's own; the others are numbered by their names, and by how many were destroyed before. */
int cuptiGetStreamIdEx(void *context, void *stream, uint8_t per_thread, uint32_t *number) {
	(void)context;
	if (refuses(__func__)) return 7;
	*number = stream ? 100 + (uint32_t)(uintptr_t)stream + 1000 * (uint32_t)fake_cuda_streams_gone() : per_thread ? 8 : 7;
	return 0;
}
#endif

#ifndef WITHOUT_cuptiGetResultString
int cuptiGetResultString(int result, const char **name) {
	*name = result == 7 ? "CUPTI_ERROR_INVALID_OPERATION" : result == 15 ? "CUPTI_ERROR_NOT_INITIALIZED" : NULL;
	return *name ? 0 : 1;
}
#endif

#ifndef WITHOUT_cuptiGetDeviceId
int cuptiGetDeviceId(void *context, uint32_t *device) {
	if (refuses(__func__)) return 7;
	if (getpid() != owner) abort(); /* the real one may wait for a lock that another thread held at the fork */
	*device = (uint32_t)fake_cuda_device(context);
	return 0;
}
#endif

#ifndef WITHOUT_cuptiGetTimestamp
int cuptiGetTimestamp(uint64_t *ns) {
	if (refuses(__func__)) return 7;
	*ns = now();
	return 0;
}
#endif

#ifndef WITHOUT_cuptiActivityRegisterCallbacks
/* A thread of its own gives back the buffers that are full. */
static void *give_full_ones(void *nothing) {
	struct timespec t = { 0, 10000000 };
	(void)nothing;
	for (;;) {
		nanosleep(&t, NULL);
		pthread_mutex_lock(&lock);
		if (buffer_used >= (size_t)setting("FAKE_CUPTI_FULL") && !setting("FAKE_CUPTI_LATE")) complete();
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

int cuptiActivityRegisterCallbacks(void (*r)(uint8_t **, size_t *, size_t *), void (*c)(void *, uint32_t, uint8_t *, size_t, size_t)) {
	static bool running;
	pthread_t thread;
	if (refuses(__func__)) return 7;
	owner = getpid();
	request = r;
	completed = c;
	fake_cuda_hook(&our_hooks);
	if (setting("FAKE_CUPTI_FULL") && !running) running = pthread_create(&thread, NULL, give_full_ones, NULL) == 0;
	return 0;
}
#endif

#ifndef WITHOUT_cuptiActivityRegisterTimestampCallback
int cuptiActivityRegisterTimestampCallback(uint64_t (*function)(void)) {
	if (refuses(__func__)) return 7;
	if (getenv("FAKE_CUPTI_CLOCK")) return 27;
	if (!function) return 1;
	timestamp = function;
	return 0;
}
#endif

#ifndef WITHOUT_cuptiActivitySetAttribute
int cuptiActivitySetAttribute(int which, size_t *bytes, void *value) {
	if (refuses(__func__)) return 7;
	if (which != 5 || *bytes != 1) return 1;
	empty_buffers = *(uint8_t *)value != 0;
	return 0;
}
#endif

#ifndef WITHOUT_cuptiActivityEnable
int cuptiActivityEnable(int kind) {
	if (refuses(__func__)) return 7;
	if (kind == setting("FAKE_CUPTI_REFUSES_KIND")) return 21;
	kinds[kind & 0xff] = true;
	return 0;
}
#endif

#ifndef WITHOUT_cuptiActivityDisable
int cuptiActivityDisable(int kind) {
	if (refuses(__func__)) return 7;
	kinds[kind & 0xff] = false;
	return 0;
}
#endif

#ifndef WITHOUT_cuptiActivityFlushAll
int cuptiActivityFlushAll(uint32_t flag) {
	if (refuses(__func__)) return 7;
	(void)flag;
	if (getpid() != owner || has_ended) abort(); /* the real one would wait for a thread that is not there */
	if (setting("FAKE_CUPTI_LATE")) return 0;
	pthread_mutex_lock(&lock);
	complete();
	pthread_mutex_unlock(&lock);
	return 0;
}
#endif

#ifndef WITHOUT_cuptiActivityGetNextRecord
int cuptiActivityGetNextRecord(uint8_t *data, size_t valid, uint8_t **record) {
	if (refuses(__func__)) return 7;
	uint64_t length = 0;
	uint8_t *next = data + 8;
	if (*record) {
		memcpy(&length, *record - 8, 8);
		next = *record + length + 8;
	}
	if (setting("FAKE_CUPTI_CUT") == 2 && *record) next = *record; /* for ever */
	if (next >= data + valid) return 12;
	*record = next;
	return 0;
}
#endif

#ifndef WITHOUT_cuptiActivityGetNumDroppedRecords
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *count) {
	if (refuses(__func__)) return 7;
	(void)context;
	(void)stream;
	*count = dropped_told ? 0 : (size_t)setting("FAKE_CUPTI_DROPPED");
	dropped_told = true;
	return 0;
}
#endif
