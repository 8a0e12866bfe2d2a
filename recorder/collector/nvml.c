/* nvml.c - asks libnvidia-ml.so.1: see nvml.h. Its structures are declared here as its version 11 has them; later ones are other functions. */
#include "nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROCESSES_MAX 4096u
#define NOT_KNOWN UINT64_MAX /* NVML_VALUE_NOT_AVAILABLE */

struct memory {
	unsigned long long total, free, used;
};
struct user {
	unsigned pid;
	unsigned long long bytes;
	unsigned gpu_instance, compute_instance;
};

static struct {
	bool tried;
	const char *why; /* it cannot be used */
	int (*handle_by_uuid)(const char *, void **);
	int (*memory_info)(void *, struct memory *);
	int (*processes)(void *, unsigned *, struct user *);
} nvml;

static void find(void *place, void *library, const char *name, const char *older) {
	void *function = dlsym(library, name);
	if (!function && older) function = dlsym(library, older);
	memcpy(place, &function, sizeof function);
}

static const char *open_library(void) {
	int (*init)(void);
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library) return "libnvidia-ml.so.1 was not found";
	find(&init, library, "nvmlInit_v2", "nvmlInit");
	find(&nvml.handle_by_uuid, library, "nvmlDeviceGetHandleByUUID", NULL);
	find(&nvml.memory_info, library, "nvmlDeviceGetMemoryInfo", NULL);
	find(&nvml.processes, library, "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2");
	if (!init || !nvml.handle_by_uuid || !nvml.memory_info) return "libnvidia-ml.so.1 lacks functions";
	return init() == 0 ? NULL : "libnvidia-ml.so.1 does not start";
}

const char *tm_nvml_open(void) {
	if (!nvml.tried) nvml.why = open_library();
	nvml.tried = true;
	return nvml.why;
}

/* "GPU-00112233-4455-6677-8899-aabbccddeeff"; of a part of a device (MIG), which the driver tells as a device of its own, "MIG-...". */
static void write_uuid(const char *kind, const uint8_t uuid[16], char text[48]) {
	size_t n = (size_t)sprintf(text, "%s", kind);
	for (unsigned i = 0; i < 16; i++) n += (size_t)sprintf(text + n, "%s%02x", i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

static bool find_device(const uint8_t uuid[16], void **device) {
	char text[48];
	write_uuid("GPU", uuid, text);
	if (nvml.handle_by_uuid(text, device) == 0) return true;
	write_uuid("MIG", uuid, text);
	return nvml.handle_by_uuid(text, device) == 0;
}

/* A process that has several contexts on the device stands there more than once. */
static uint64_t bytes_of(void *device, uint32_t pid) {
	static struct user *users;
	unsigned count = PROCESSES_MAX;
	uint64_t bytes = NOT_KNOWN;
	if (!users) users = malloc(PROCESSES_MAX * sizeof *users);
	if (!users || !nvml.processes || nvml.processes(device, &count, users) != 0) return NOT_KNOWN;
	for (unsigned i = 0; i < count && i < PROCESSES_MAX; i++)
		if (users[i].pid == pid && users[i].bytes != NOT_KNOWN) bytes = (bytes == NOT_KNOWN ? 0 : bytes) + users[i].bytes;
	return bytes;
}

void tm_nvml_read(const uint8_t uuid[16], uint32_t pid, struct tm_nvml_memory *out) {
	void *device = NULL;
	struct memory m;
	*out = (struct tm_nvml_memory){ TM_NVML_UNKNOWN, TM_NVML_UNKNOWN, TM_NVML_UNKNOWN };
	if (tm_nvml_open() || !find_device(uuid, &device)) return;
	if (nvml.memory_info(device, &m) == 0) {
		out->all_bytes = m.used;
		out->total_bytes = m.total;
	}
	out->own_bytes = bytes_of(device, pid);
}
