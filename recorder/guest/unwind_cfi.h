/* unwind_cfi.h - what .eh_frame says about an address: how the caller's registers are found there.
 *
 * Flow:     unwind_rule.c (first sight of an address), unwind_full.c (odd frames) -> here -> the module's .eh_frame, by way of its .eh_frame_hdr
 * Owns:     nothing; reads what the loader mapped. The module cannot go while a frame of the calling thread lies in it.
 * Threads:  any, also in a signal handler: no lock, no allocation, errno untouched.
 * Fails:    false: no information about this address, or some that makes no sense or that is not understood.
 */
#ifndef TIDEMARK_GUEST_UNWIND_CFI_H
#define TIDEMARK_GUEST_UNWIND_CFI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* DWARF's numbers of the registers. */
#if defined(__x86_64__)
#define TM_CFI_REGISTERS 17u
#define TM_CFI_FP 6u
#define TM_CFI_SP 7u
#define TM_CFI_RA 16u
#elif defined(__aarch64__)
#define TM_CFI_REGISTERS 32u
#define TM_CFI_FP 29u
#define TM_CFI_SP 31u
#define TM_CFI_RA 30u
#endif

/* One function's description. */
struct tm_cfi {
	uintptr_t low, high;              /* the code it is about */
	uintptr_t object_low, object_high; /* the module: nothing outside of it is read */
	const uint8_t *initial, *initial_end; /* the program that all functions of its kind begin with */
	const uint8_t *program, *program_end;
	uint64_t code_align;
	int64_t data_align;
	uint8_t encoding; /* of addresses in the program */
	bool is_signal;   /* a signal's return trampoline: its caller was interrupted, not in a call */
};

enum tm_cfi_how {
	TM_CFI_SAME,           /* untouched; of the return address: see unwind_full.c */
	TM_CFI_UNDEFINED,
	TM_CFI_AT,             /* in memory at CFA + value */
	TM_CFI_IS,             /* CFA + value itself */
	TM_CFI_AT_EXPRESSION,  /* in memory at what the expression at `value` says; it begins with its length */
	TM_CFI_IS_EXPRESSION,
	TM_CFI_REGISTER,       /* in register `value` */
};

struct tm_cfi_rule {
	int64_t how : 8, value : 56;
};

/* The state of all registers at one address. */
struct tm_cfi_row {
	struct tm_cfi_rule cfa; /* TM_CFI_REGISTER: cfa_offset is added; or TM_CFI_IS_EXPRESSION */
	int64_t cfa_offset;
	struct tm_cfi_rule rules[TM_CFI_REGISTERS];
};

bool tm_cfi_find(uintptr_t ip, struct tm_cfi *found);
/* What both would tell of a call's last byte in the functions that call a library's constructors and destructors where it has no arrays of them, and that
 * nothing describes: _init, _fini, and __do_global_ctors_aux, which _init calls. They are told by where the library says that its _init is, and by
 * their code from its beginning to there. */
bool tm_cfi_row_of_start_files(uintptr_t ip, struct tm_cfi *cfi, struct tm_cfi_row *row);
bool tm_cfi_row_at(const struct tm_cfi *cfi, uintptr_t ip, struct tm_cfi_row *row);

/* A value as far as it is known before any frame is looked at: a constant, or a register or memory plus a constant. */
enum tm_cfi_base { TM_BASE_CONST, TM_BASE_SP, TM_BASE_FP, TM_BASE_MEMORY_SP, TM_BASE_MEMORY_FP };
struct tm_cfi_value {
	enum tm_cfi_base base;
	int64_t inner; /* of TM_BASE_MEMORY_...: what is read lies at register + inner */
	int64_t offset;
};

/* Where an expression gets its values from: registers and memory of a frame, or none (`read` NULL): then what follows from the address alone. */
struct tm_cfi_frame {
	const uintptr_t *registers;
	uint64_t known; /* bit n: registers[n] is */
	uintptr_t ip;
	bool (*read)(void *context, uintptr_t address, unsigned bytes, uintptr_t *value);
	void *context;
};
/* The expression at `at` (its length first), with *value pushed before it if `given`. */
bool tm_cfi_evaluate(const uint8_t *at, const struct tm_cfi_frame *frame, bool given, struct tm_cfi_value *value);

#endif
