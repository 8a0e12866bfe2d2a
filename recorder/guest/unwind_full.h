/* unwind_full.h - unwinding with all registers, for what 32 bits cannot say: a frame whose CFA hangs on rbx, say, or what a signal interrupted.
 *
 * Flow:     stack.c, where unwind.c met an odd frame -> here -> unwind_cfi.c
 * Owns:     nothing.
 * Threads:  any, also in a signal handler. errno is untouched.
 * Memory:   is read where it is known to be a stack; a page of which that is not known is asked of the kernel first (struct tm_memory). So a
 *           description that is wrong leads to the end of the walk and never to a fault.
 */
#ifndef TIDEMARK_GUEST_UNWIND_FULL_H
#define TIDEMARK_GUEST_UNWIND_FULL_H

#include "guest.h"
#include "unwind_cfi.h"

/* What may be read. */
struct tm_memory {
	uintptr_t low, high; /* the live part of the thread's own stack; empty: it is on another one */
	uintptr_t page;      /* one more page that can be read: the last one asked for */
	bool left;           /* something outside of low and high was to be read */
};
#define TM_MEMORY_PAGE 4096u

bool tm_memory_ask(struct tm_memory *m, uintptr_t address); /* a system call, none in a sandbox: then false */

/* `address` is that of a word. */
static inline bool tm_memory_holds(struct tm_memory *m, uintptr_t address) {
	if (TM_LIKELY(address - m->low < m->high - m->low)) return address % 8 == 0;
	return address % 8 == 0 && tm_memory_ask(m, address);
}

/* As unwind_cfi.h's frames want it; bytes at any address. */
bool tm_memory_read(void *memory, uintptr_t address, unsigned bytes, uintptr_t *value);

struct tm_cursor {
	struct tm_memory memory;
	uintptr_t pc;
	bool in_call; /* pc is a return address; else it was interrupted there */
	bool guessed; /* the last step was: there was no description */
	uint64_t known;
	uintptr_t registers[TM_CFI_REGISTERS];
};

enum tm_step { TM_STEP_DONE, TM_STEP_END, TM_STEP_LOST };
enum tm_step tm_cursor_step(struct tm_cursor *c);

/* The caller of code that has no description, by its frame pointer if that makes sense: fp points to the caller's and the return address, not far out,
 * and a call lies in front of that address. The rule that libunwind goes by too, but for the look at the code. On aarch64 these two words do not lie at the
 * end of the frame; where the caller keeps such a pair itself, its own frame pointer tells where its stack pointer is, else the stack ends there. */
struct tm_guess {
	uintptr_t pc, sp, fp; /* the caller's */
};
/* `rules`: the table, where that can be asked, else 0; of what it knows the code is not looked at again. */
bool tm_guess_caller(struct tm_memory *m, uint64_t rules, uintptr_t sp, uintptr_t fp, struct tm_guess *caller);

/* A return address in front of which nothing is described, and that is the very beginning of a function: nobody called from there, somebody made the stack
 * so that the function is returned to (makecontext does). There the stack ends, whole; and so does that of a constructor which runs before main, in the first
 * instructions of the loader. */
bool tm_is_made_up_caller(uintptr_t pc);

/* The registers that a caller's may depend on, as they are here. */
#if defined(__x86_64__)
#define TM_CURSOR_HERE(c)                                                                                             \
	do {                                                                                                          \
		(c)->known = 1u << 3 | 1u << 6 | 1u << 7 | 0xfu << 12;                                                 \
		__asm__ volatile("leaq 0f(%%rip), %%rax\n0:\tmovq %%rax, %0\n\tmovq %%rbx, %1\n\tmovq %%rbp, %2\n\t"    \
				 "movq %%rsp, %3\n\tmovq %%r12, %4\n\tmovq %%r13, %5\n\tmovq %%r14, %6\n\tmovq %%r15, %7" \
				 : "=m"((c)->pc), "=m"((c)->registers[3]), "=m"((c)->registers[6]), "=m"((c)->registers[7]), \
				   "=m"((c)->registers[12]), "=m"((c)->registers[13]), "=m"((c)->registers[14]),              \
				   "=m"((c)->registers[15])                                                                   \
				 :                                                                                            \
				 : "rax");                                                                                    \
	} while (0)
#elif defined(__aarch64__)
#define TM_CURSOR_HERE(c)                                                                                             \
	do {                                                                                                          \
		uintptr_t *tm_r = (c)->registers, tm_pc, tm_sp;                                                         \
		(c)->known = 0xfff80000u;                                                                               \
		__asm__ volatile("adr %0, .\n\tmov %1, sp\n\tstp x19, x20, [%2, #152]\n\tstp x21, x22, [%2, #168]\n\t"     \
				 "stp x23, x24, [%2, #184]\n\tstp x25, x26, [%2, #200]\n\tstp x27, x28, [%2, #216]\n\t"     \
				 "stp x29, x30, [%2, #232]"                                                                    \
				 : "=&r"(tm_pc), "=&r"(tm_sp)                                                                  \
				 : "r"(tm_r)                                                                                   \
				 : "memory");                                                                                  \
		tm_r[31] = tm_sp;                                                                                       \
		(c)->pc = tm_pc;                                                                                        \
	} while (0)
#endif

#endif
