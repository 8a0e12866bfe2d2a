/* trap.h - SIGTRAP at every instruction, for the handlers of tests that look at a stack wherever its program stands.
 *
 * x86-64:   every instruction from trap_begin() to trap_end() of the calling thread, wherever it lies, is followed by the signal (the trap flag).
 * aarch64:  a breakpoint takes the place of every instruction in the range, and the handler has to put it back: trap_hit(). Each comes once. Threads may
 *           share a range: what each writes there is the same. One range at a time.
 */
#ifndef TIDEMARK_TESTS_UNWIND_TRAP_H
#define TIDEMARK_TESTS_UNWIND_TRAP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void trap_begin(const uint32_t *low, const uint32_t *high);
void trap_end(const uint32_t *low, const uint32_t *high);
void trap_hit(void *context); /* the third argument of the handler */

#ifdef __cplusplus
}
#endif
#endif
