/* fake_nvml.c - a libnvidia-ml.so.1 without a device: two of 1 GiB, by the uuids of fake_cuda.c. Device N holds (N + 1) * 100 MiB in all.
 * Of these the process whose
 * pid is in FAKE_NVML_PID_FILE has (N + 1) * 10 MiB, in two contexts; another has the rest. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1ull << 20)

struct memory {
	unsigned long long total, free, used;
};
struct user {
	unsigned pid;
	unsigned long long bytes;
	unsigned gpu_instance, compute_instance;
};

int nvmlInit_v2(void);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
int nvmlDeviceGetMemoryInfo(void *device, struct memory *m);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct user *users);

static int numbers[2] = { 0, 1 };

int nvmlInit_v2(void) {
	return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
	for (int i = 0; i < 2; i++) {
		char text[48];
		size_t n = (size_t)sprintf(text, getenv("FAKE_NVML_MIG") ? "MIG" : "GPU");
		for (int k = 0; k < 16; k++) n += (size_t)sprintf(text + n, "%s%02x", k == 0 || k == 4 || k == 6 || k == 8 || k == 10 ? "-" : "", 0x10 + i);
		if (strcmp(text, uuid)) continue;
		*device = &numbers[i];
		return 0;
	}
	return 6;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *m) {
	int n = *(int *)device + 1;
	*m = (struct memory){ 1024 * MIB, (1024 - 100 * (unsigned)n) * MIB, 100 * (unsigned)n * MIB };
	return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct user *users) {
	int n = *(int *)device + 1;
	unsigned pid = 0;
	FILE *f = getenv("FAKE_NVML_PID_FILE") ? fopen(getenv("FAKE_NVML_PID_FILE"), "r") : NULL;
	if (f && fscanf(f, "%u", &pid) != 1) pid = 0;
	if (f) fclose(f);
	if (*count < 3) return 7;
	users[0] = (struct user){ pid, 4 * (unsigned)n * MIB, 0, 0 };
	users[1] = (struct user){ 1, 90 * (unsigned)n * MIB, 0, 0 };
	users[2] = (struct user){ pid, 6 * (unsigned)n * MIB, 0, 0 };
	*count = 3;
	return 0;
}
