/* trap.c - see trap.h. */
#include "trap.h"

#if defined(__x86_64__)
/* Every instruction has its description, since every one is stopped at. */
#define SWITCH(name, operation) \
	__asm__(".text\n\t.globl " name "\n\t.type " name ", @function\n" name ":\n\t.cfi_startproc\n\tpushfq\n\t.cfi_adjust_cfa_offset 8\n\t" operation \
		", (%rsp)\n\tpopfq\n\t.cfi_adjust_cfa_offset -8\n\tret\n\t.cfi_endproc\n\t.size " name ", .-" name "\n")
SWITCH("trap_begin", "orq $0x100");
SWITCH("trap_end", "andq $~0x100");

void trap_hit(void *context) {
	(void)context;
}
#else
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define BREAKPOINT 0xd4200000u
#define INSTRUCTIONS_MAX 512u

static pthread_mutex_t taking = PTHREAD_MUTEX_INITIALIZER;
static const uint32_t *range;
static uint32_t code[INSTRUCTIONS_MAX];

static void take(const uint32_t *low, const uint32_t *high) {
	uintptr_t from = (uintptr_t)low & ~4095ul, to = ((uintptr_t)high + 4095) & ~4095ul;
	pthread_mutex_lock(&taking);
	if (range != low) {
		if (high - low > INSTRUCTIONS_MAX || mprotect((void *)from, to - from, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) abort();
		memcpy(code, low, (size_t)((const char *)high - (const char *)low));
		range = low;
	}
	pthread_mutex_unlock(&taking);
}

static void put(const uint32_t *at, uint32_t instruction) {
	__atomic_store_n((uint32_t *)at, instruction, __ATOMIC_RELAXED);
	__builtin___clear_cache((char *)at, (char *)(at + 1));
}

void trap_begin(const uint32_t *low, const uint32_t *high) {
	take(low, high);
	for (const uint32_t *at = low; at < high; at++) put(at, BREAKPOINT);
}

void trap_end(const uint32_t *low, const uint32_t *high) {
	for (const uint32_t *at = low; at < high; at++) put(at, code[at - low]);
}

void trap_hit(void *context) {
	const uint32_t *at = (const uint32_t *)((ucontext_t *)context)->uc_mcontext.pc;
	if ((uintptr_t)at - (uintptr_t)range < sizeof code) put(at, code[at - range]);
}
#endif
