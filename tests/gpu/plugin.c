/* plugin.c - a library that uses the driver: loaded, called and closed by host.c. Its function has the name WHO. */
#include "fake.h"

void WHO(uint64_t bytes);

void WHO(uint64_t bytes) {
	CUdeviceptr p, q;
	if (cuInit(0)) return;
	cuMemAlloc_v2(&p, bytes);
	cuMemAlloc_v2(&q, bytes + 1);
	cuMemFree_v2(p);
}
