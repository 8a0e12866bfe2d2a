/* nvml.h - what devices hold, as NVIDIA's management library tells from outside of every process.
 *
 * Flow:     gpu_records.c: a process says which devices it uses -> samples.c, on its thread: tm_nvml_read() -> samples device_used, device_used:N, ...
 * Owns:     libnvidia-ml.so.1, opened at the first need and never closed.
 * Which:    a device is known by its uuid, never by its number: a process may see fewer of them, in another order (CUDA_VISIBLE_DEVICES).
 * Threads:  the sampler's.
 * Fails:    what cannot be read is left out. In a container the library may not know our process ids: then a process' own share is unknown.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_NVML_H
#define TIDEMARK_RECORDER_COLLECTOR_NVML_H

#include <stdbool.h>
#include <stdint.h>

#define TM_NVML_UNKNOWN UINT64_MAX

struct tm_nvml_memory {
	uint64_t own_bytes, all_bytes, total_bytes; /* of the process, of all processes, of the device; TM_NVML_UNKNOWN */
};

/* NULL, or why there is no library. Opens it at the first call. */
const char *tm_nvml_open(void);
void tm_nvml_read(const uint8_t uuid[16], uint32_t pid, struct tm_nvml_memory *out);

#endif
