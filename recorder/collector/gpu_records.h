/* gpu_records.h - what rings tell about devices: activities, devices, the names of the driver's functions.
 *
 * Flow:     controls.c, drain.c -> here -> the group's activities and records; nvml.h learns which devices there are
 * Hostile:  times that run backwards make an activity that is left out; a slot or a function that does not exist, one without a name.
 * Threads:  the drainer's.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_GPU_RECORDS_H
#define TIDEMARK_RECORDER_COLLECTOR_GPU_RECORDS_H

#include <stddef.h>
#include <stdint.h>

struct tm_collector;
struct tm_process;
struct tm_ring_view;

/* x and numbers as shm.h's ACTIVITY has them. */
void tm_gpu_take_activity(struct tm_collector *c, struct tm_ring_view *r, uint32_t x, const uint64_t *numbers, const char *name, size_t name_bytes);
void tm_gpu_take_device(struct tm_collector *c, struct tm_process *p, uint32_t uuid_bytes, const uint64_t *numbers, const char *text, size_t text_bytes);
/* String id of the function that the driver gives this callback id, or that an op stands for; 0: there is none. */
uint32_t tm_gpu_function_text(struct tm_collector *c, unsigned id);
uint32_t tm_gpu_op_text(struct tm_collector *c, uint64_t op);

#endif
