/* cuda_calls.h - what cuda_calls.c, cuda_work.c and cuda_activity.c know of each other. */
#ifndef TIDEMARK_GUEST_CUDA_CALLS_H
#define TIDEMARK_GUEST_CUDA_CALLS_H

#include "cupti.h"

/* All memory that devices were given lies between these. */
extern _Atomic uint64_t tm_cuda_low TM_HIDDEN, tm_cuda_high TM_HIDDEN;

/* What the pools hold from which devices hand out. Between enter and leave. */
void tm_cuda_tell_pools(struct tm_thread *t);

/* --- cuda_work.c --- */
bool tm_cuda_is_work(uint32_t id);
bool tm_cuda_is_graph(uint32_t id); /* a graph's launch */
#define TM_CUDA_PARAMETERS 96u /* of a kernel; more are asked for each time */
struct tm_cuda_kernel {
	uint32_t count; /* of parameters */
	void *function;
	uint16_t words[TM_CUDA_PARAMETERS]; /* of each parameter */
};
/* The kernel of a launch whose parameters are not known yet, or NULL; and asks the driver for them. That may allocate: not between enter and leave. */
void *tm_cuda_work_unknown(uint32_t id, const struct tm_cupti_call *call);
void tm_cuda_work_learn(void *function, struct tm_cuda_kernel *out);
/* A launch, copy or set begins: LAUNCH, and a USE for each block that it names. Between enter and leave. kernel: what was just learned of it, NULL: it was
 * known. */
void tm_cuda_work(struct tm_thread *t, uint32_t id, const struct tm_cupti_call *call, const struct tm_cuda_kernel *kernel);
/* Kernels are about to go: others may get their handles. */
void tm_cuda_work_forgets(void);

#endif
