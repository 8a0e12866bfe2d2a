/* code_word.c - see code_word.h. Instructions as gcc and clang write them, with and without a frame pointer, a mark for indirect branches, and a linker that
 * knew where the runtime lies; another instruction is not understood.
 */
#include "code_word.h"

#include "elf_symbols.h"

#include <string.h>

#define READER_BYTES_MAX 48u

#if defined(__x86_64__)

/* What a function that compilers make of `return runtime.finalizing != 0` or `return runtime.current` has done so far. */
struct reader {
	const struct dl_phdr_info *info;
	const uint8_t *code;
	unsigned holder;   /* a register, with */
	uintptr_t address; /* this in it, */
	uintptr_t word;    /* or what lies there; 0: neither yet */
	unsigned loads;
	bool is_compared, is_set, is_wide; /* with 0; al says how; and all of eax */
};

static bool passes_over(struct reader *r, const char *instruction) {
	size_t n = strlen(instruction);

	if (memcmp(r->code, instruction, n) != 0) return false;
	r->code += n;
	return true;
}

/* Of an instruction whose operand lies in memory: where. Relative to the instruction pointer, which is behind `more` bytes that follow, or to what the holder
 * holds: the runtime's address, which stands in the global offset table if the linker did not know it. That holds something else while the loader is about to
 * relocate the module. 0: another operand. `at` is behind the byte that says which. */
static uintptr_t operand_of(struct reader *r, uint8_t mode, const uint8_t **at, unsigned more) {
	bool is_short = mode >> 6 == 1, is_near = (mode & 0xc7) == 5; /* [HOLDER + 8 bits]     [rip + 32 bits] */
	int32_t offset = 0;

	if (!is_short && !is_near && (mode >> 6 != 2 || (mode & 7) == 4)) return 0;
	if (is_short) offset = (int8_t) * *at;
	else memcpy(&offset, *at, sizeof offset);
	*at += is_short ? 1 : sizeof offset;
	if (is_near) return r->word || r->address ? 0 : (uintptr_t)*at + more + (uintptr_t)(intptr_t)offset;
	if ((mode & 7) != r->holder) return 0;
	if (r->address) return r->address + (uintptr_t)(intptr_t)offset;
	return r->word && r->word % 8 == 0 && tm_symbols_is_in(r->info, r->word) ? *(const uintptr_t *)r->word + (uintptr_t)(intptr_t)offset
										 : 0;
}

/* lea HOLDER, [...]     mov HOLDER, [...]     cmp qword [...], 0 */
static bool takes_word(struct reader *r) {
	bool points = memcmp(r->code, "\x48\x8d", 2) == 0, loads = memcmp(r->code, "\x48\x8b", 2) == 0;
	bool compares = memcmp(r->code, "\x48\x83", 2) == 0 && (r->code[2] & 0x38) == 0x38;
	uint8_t mode = r->code[2];
	const uint8_t *at = r->code + 3;
	uintptr_t operand = points || loads || compares ? operand_of(r, mode, &at, compares) : 0;

	if (!operand || r->is_compared || r->loads == 2 || (compares && *at++ != 0)) return false;
	if (!compares) r->holder = mode >> 3 & 7;
	if (!compares && r->holder == 0) r->is_wide = false;
	r->address = points ? operand : 0;
	r->word = points ? 0 : operand;
	r->loads += !points;
	r->is_compared = compares;
	r->code = at;
	return true;
}

/* test HOLDER, HOLDER */
static bool tests_word(struct reader *r) {
	if (memcmp(r->code, "\x48\x85", 2) != 0 || !r->word || r->code[2] != (0xc0 | r->holder << 3 | r->holder)) return false;
	r->code += 3;
	return r->is_compared = true;
}

static bool sets_result(struct reader *r) {
	if (!r->is_compared && passes_over(r, "\x31\xc0"))
		return r->is_wide = (!r->word && !r->address) || r->holder != 0;                     /* xor eax, eax */
	if (r->is_compared && !r->is_set && passes_over(r, "\x0f\x95\xc0")) return r->is_set = true; /* setne al */
	if (r->is_set && passes_over(r, "\x0f\xb6\xc0")) return r->is_wide = true;                   /* movzx eax, al */
	return false;
}

/* endbr64     push rbp     mov rbp, rsp     pop rbp */
static bool is_frame_of(struct reader *r) {
	return passes_over(r, "\xf3\x0f\x1e\xfa") || passes_over(r, "\x55") || passes_over(r, "\x48\x89\xe5") || passes_over(r, "\x5d");
}

uintptr_t tm_code_word(const struct dl_phdr_info *info, uintptr_t function, bool is_not_0) {
	struct reader r = { .info = info, .code = (const uint8_t *)function };
	const uint8_t *end = r.code + READER_BYTES_MAX - 8; /* no instruction here is longer than that */

	if (!tm_symbols_is_in(info, function) || !tm_symbols_is_in(info, function + READER_BYTES_MAX - 1)) return 0;
	while (*r.code != 0xc3) {
		if (r.code >= end) return 0;
		if (!is_frame_of(&r) && !takes_word(&r) && !tests_word(&r) && !sets_result(&r)) return 0;
	}
	if (is_not_0 ? !r.is_set || !r.is_wide : r.is_compared || !r.word || r.holder != 0) return 0;
	return r.word % 8 == 0 && tm_symbols_is_in(info, r.word) ? r.word : 0;
}

/* sub rsp, 8     add rsp, 8     push rax     pop rcx: what lines the stack up for a call */
static bool is_room_of(struct reader *r) {
	return passes_over(r, "\x48\x83\xec\x08") || passes_over(r, "\x48\x83\xc4\x08") || passes_over(r, "\x50") || passes_over(r, "\x59");
}

static int32_t relative_at(const uint8_t *code) {
	int32_t value;
	memcpy(&value, code, sizeof value);
	return value;
}

/* mov rax, fs:[a]     mov rax, [rip + a]; mov rax, fs:[rax]     lea rdi, [rip + a]; call __tls_get_addr; mov rax, [rax] */
static uintptr_t takes_thread_word(struct reader *r) {
	extern void *__tls_get_addr(void *);
	uintptr_t self, end;
	const uint8_t *code = r->code;

	__asm__("mov %%fs:0, %0" : "=r"(self));
	if (passes_over(r, "\x64\x48\x8b\x04\x25")) {
		r->code += 4;
		return self + (uintptr_t)(intptr_t)relative_at(code + 5);
	}
	if (passes_over(r, "\x48\x8b\x05")) {
		end = (uintptr_t)(r->code += 4);
		return passes_over(r, "\x64\x48\x8b") && *r->code++ == 0
			       ? self + *(const uintptr_t *)(end + (uintptr_t)(intptr_t)relative_at(code + 3))
			       : 0;
	}
	if (!passes_over(r, "\x66\x48\x8d\x3d")) return 0;
	end = (uintptr_t)(r->code += 4);
	if (!passes_over(r, "\x66\x66\x48\xe8") && !passes_over(r, "\x66\x48\xff\x15")) return 0;
	r->code += 4;
	return passes_over(r, "\x48\x8b") && *r->code++ == 0
		       ? (uintptr_t)__tls_get_addr((void *)(end + (uintptr_t)(intptr_t)relative_at(code + 4)))
		       : 0;
}

uintptr_t tm_code_thread_word(uintptr_t function) {
	struct reader r = { .code = (const uint8_t *)function };
	const uint8_t *end = r.code + READER_BYTES_MAX;

	while (*r.code != 0xc3) {
		if (r.code >= end) return 0;
		if (is_frame_of(&r) || is_room_of(&r)) continue;
		if (r.word || !(r.word = takes_thread_word(&r))) return 0;
	}
	return r.word;
}

#else

uintptr_t tm_code_thread_word(uintptr_t function) {
	(void)function;
	return 0;
}

uintptr_t tm_code_word(const struct dl_phdr_info *info, uintptr_t function, bool is_not_0) {
	(void)info;
	(void)function;
	(void)is_not_0;
	return 0;
}

#endif
