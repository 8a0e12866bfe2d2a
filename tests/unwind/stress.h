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
void stress_pivoted(int fuel, bool below); /* x86-64 only */
void stress_aligned(int fuel, unsigned n);
unsigned stress_interruptible(unsigned n);
void stress_trap(bool on); /* on: from here every instruction ends in SIGTRAP, where the machine can do that */
void *stress_make_code(bool frame_pointer);

#ifdef __cplusplus
}
#endif
#endif
