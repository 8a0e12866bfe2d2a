/* inefficient.c - programs that hold memory of a device in vain, each in one way, and beside each one that does not: inefficient KIND bad|good
 *
 * What a device does in each of them is counted in the test. Waits are so long that a busy machine does not change what they prove.
 */
#define _GNU_SOURCE
#include "fake.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define WAIT_US 200000
#define SIZE 4096

static CUdeviceptr other; /* what other work uses */

static void use(CUdeviceptr p) {
	void *parameters[] = { &p };
	cuLaunchKernel((void *)"kernel,8", 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
}

static void other_work(void) {
	for (int i = 0; i < 5; i++) use(other);
	usleep(WAIT_US);
}

__attribute__((noinline)) static CUdeviceptr subject(void) {
	CUdeviceptr p = 0;
	cuMemAlloc_v2(&p, SIZE);
	return p;
}

static void leaked(bool bad) {
	CUdeviceptr p = subject();
	use(p);
	if (!bad) cuMemFree_v2(p);
}

static void never_used(bool bad) {
	CUdeviceptr p = subject();
	other_work();
	if (!bad) use(p);
	cuMemFree_v2(p);
}

static void allocated_early(bool bad) {
	CUdeviceptr p = bad ? subject() : 0;
	other_work();
	if (!bad) p = subject();
	use(p);
	cuMemFree_v2(p);
}

static void freed_late(bool bad) {
	CUdeviceptr p = subject();
	use(p);
	if (!bad) cuMemFree_v2(p);
	other_work();
	if (bad) cuMemFree_v2(p);
}

static void idle(bool bad) {
	CUdeviceptr p = subject();
	use(p);
	if (bad) other_work();
	for (int i = 0; i < 20; i++) use(p);
	cuMemFree_v2(p);
}

/* A thousand, of which ten are quick enough on any machine; against one that is used as often. */
static void churn(bool bad) {
	CUdeviceptr p = bad ? 0 : subject();
	for (int i = 0; i < 1000; i++) {
		if (bad) p = subject();
		use(p);
		if (bad) cuMemFree_v2(p);
	}
	if (!bad) cuMemFree_v2(p);
}

/* Twelve one after the other against twelve at a time. */
static void redundant(bool bad) {
	CUdeviceptr p[12];
	for (int i = 0; i < 12; i++) {
		p[i] = subject();
		use(p[i]);
		if (bad) cuMemFree_v2(p[i]);
	}
	for (int i = 0; !bad && i < 12; i++) cuMemFree_v2(p[i]);
}

int main(int argc, char **argv) {
	static const struct { const char *name; void (*run)(bool); } kinds[] = {
		{ "leaked", leaked }, { "never_used", never_used }, { "allocated_early", allocated_early }, { "freed_late", freed_late },
		{ "idle", idle }, { "churn", churn }, { "redundant", redundant },
	};
	if (argc < 3 || cuInit(0)) return 1;
	cuMemAlloc_v2(&other, 64);
	use(other);
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
		if (!strcmp(argv[1], kinds[i].name)) kinds[i].run(!strcmp(argv[2], "bad"));
	use(other);
	cuMemFree_v2(other);
	return 0;
}
