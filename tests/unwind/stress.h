/* stress.h - what the stress program has in C and assembly, see stress_code.c. */
#ifndef TIDEMARK_TESTS_UNWIND_STRESS_H
#define TIDEMARK_TESTS_UNWIND_STRESS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void stress_node(int fuel); /* calls on: a random node of the tree */

void stress_rbp_general(int fuel, uint64_t value);
void stress_frame_pointers(int fuel);
void stress_pass(void (*to)(int), int fuel); /* as tm_test_pass(), but the program's */
#if defined(__x86_64__)
void stress_pivoted(int fuel, uint64_t choices);
void stress_pivoted_aligned(int fuel, uint64_t choices);
void stress_pivoted_in_plain(int fuel, uint64_t choices);
void stress_pivoted_in_ours(int unused, uint64_t choices); /* one bit a call: the frame pointer */
void stress_pass_framed(void (*to)(int), int fuel);
void *stress_make_pivoted_code(void); /* calls its first argument with 0, then with 1 and its caller's frame pointer */
void stress_call_with_fp(void (*code)(void (*to)(int)), void (*to)(int)); /* calls code(to); no description tells of its frame pointer */
void stress_gap(int fuel, unsigned choices);
void stress_gap_framed(int fuel, unsigned choices);
void stress_gap_late(int choices);
/* Calls pass(to, fuel) some times, replace(), and pass(to, fuel) again from another place. */
struct stress_replacing {
	void (*pass)(void (*to)(int), int fuel); /* replace() sets the next one */
	void (*replace)(struct stress_replacing *r);
	void (*to)(int);
	long fuel;
	void *library;
};
void stress_replaced(struct stress_replacing *r);
#endif
void stress_aligned(int fuel, unsigned n);
unsigned stress_interruptible(unsigned n); /* the same, called by code that signals may interrupt, too */
unsigned stress_interrupted(unsigned n);
void stress_trap(bool on); /* SIGTRAP at every instruction of these (trap.h) */
void *stress_make_code(bool frame_pointer); /* without a description */

#ifdef __cplusplus
}
#endif
#endif
