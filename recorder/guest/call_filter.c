/* call_filter.c - see call_filter.h.
 *
 * Method: as linux/Documentation/userspace-api/seccomp_filter.rst and linux/filter.h have it: an accumulator, an index register, sixteen words of memory; jumps
 *         go forward only, so every filter ends.
 */
#include "call_filter.h"

#include "raw.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define OUR_ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

/* What attach.c, process_info.c, modules.c and the hooks ask for; the calls that a program can hardly start without are there, too. */
static const struct seccomp_data calls[] = {
	{ .nr = SYS_openat, .args = { (uint32_t)AT_FDCWD, 0, O_RDWR | O_CLOEXEC } },
	{ .nr = SYS_fstat, .args = { 3 } },
	{ .nr = SYS_mmap, .args = { 0, TM_SHM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, 3 } },
	{ .nr = SYS_mmap, .args = { 0, TM_SHM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, (uint64_t)-1 } },
	{ .nr = SYS_mremap, .args = { 0, TM_SHM_PAGE, 2 * TM_SHM_PAGE, MREMAP_MAYMOVE } },
	{ .nr = SYS_munmap, .args = { 0, TM_SHM_PAGE } },
	{ .nr = SYS_mprotect, .args = { 0, TM_SHM_PAGE, PROT_READ | PROT_WRITE } },
	{ .nr = SYS_madvise, .args = { 0, TM_SHM_PAGE, MADV_DONTDUMP } },
	{ .nr = SYS_madvise, .args = { 0, TM_SHM_PAGE, MADV_WIPEONFORK } },
	{ .nr = SYS_madvise, .args = { 0, TM_SHM_PAGE, TM_RAW_POPULATE_WRITE } },
	{ .nr = SYS_read, .args = { 3 } },
	{ .nr = SYS_pread64, .args = { 3 } },
	{ .nr = SYS_close, .args = { 3 } },
	{ .nr = SYS_newfstatat, .args = { (uint32_t)AT_FDCWD } },
	{ .nr = SYS_readlinkat, .args = { (uint32_t)AT_FDCWD } },
	{ .nr = SYS_getpid },
	{ .nr = SYS_getppid },
	{ .nr = SYS_gettid },
	{ .nr = SYS_rt_sigprocmask },
	{ .nr = SYS_prlimit64, .args = { 0, RLIMIT_AS } },
	{ .nr = SYS_futex, .args = { 0, FUTEX_WAKE, 1 } },
};

static uint32_t computed(uint16_t operation, uint32_t a, uint32_t operand) {
	switch (operation) {
	case BPF_ADD: return a + operand;
	case BPF_SUB: return a - operand;
	case BPF_MUL: return a * operand;
	case BPF_DIV: return operand ? a / operand : 0;
	case BPF_AND: return a & operand;
	case BPF_OR: return a | operand;
	case BPF_XOR: return a ^ operand;
	case BPF_LSH: return operand < 32 ? a << operand : 0;
	case BPF_RSH: return operand < 32 ? a >> operand : 0;
	default: return -a; /* BPF_NEG */
	}
}

static bool is_taken(uint16_t comparison, uint32_t a, uint32_t operand) {
	switch (comparison) {
	case BPF_JEQ: return a == operand;
	case BPF_JGT: return a > operand;
	case BPF_JGE: return a >= operand;
	default: return (a & operand) != 0; /* BPF_JSET */
	}
}

/* The accumulator or the index register is loaded, and nothing else in between: the word of the call at an offset, a number, or a word of memory. */
static uint32_t loaded(const struct sock_filter *at, const struct seccomp_data *call, const uint32_t memory[BPF_MEMWORDS]) {
	uint32_t word = 0;
	switch (BPF_MODE(at->code)) {
	case BPF_ABS:
		if (at->k <= sizeof *call - sizeof word) memcpy(&word, (const uint8_t *)call + at->k, sizeof word);
		return word;
	case BPF_MEM: return at->k < BPF_MEMWORDS ? memory[at->k] : 0;
	case BPF_LEN: return sizeof *call;
	default: return at->k; /* BPF_IMM */
	}
}

/* SECCOMP_RET_...; of what the kernel would not have accepted SECCOMP_RET_ALLOW. */
static uint32_t answer(const struct sock_fprog *filter, const struct seccomp_data *call) {
	uint32_t a = 0, x = 0, memory[BPF_MEMWORDS] = { 0 };
	for (size_t i = 0; i < filter->len; i++) {
		const struct sock_filter *at = &filter->filter[i];
		uint32_t operand = BPF_SRC(at->code) == BPF_X ? x : at->k;
		switch (BPF_CLASS(at->code)) {
		case BPF_LD: a = loaded(at, call, memory); break;
		case BPF_LDX: x = loaded(at, call, memory); break;
		case BPF_ST:
		case BPF_STX:
			if (at->k < BPF_MEMWORDS) memory[at->k] = BPF_CLASS(at->code) == BPF_ST ? a : x;
			break;
		case BPF_ALU: a = computed(BPF_OP(at->code), a, operand); break;
		case BPF_JMP:
			if (BPF_OP(at->code) == BPF_JA) i += at->k;
			else i += is_taken(BPF_OP(at->code), a, operand) ? at->jt : at->jf;
			break;
		case BPF_RET: return BPF_RVAL(at->code) == BPF_A ? a : at->k;
		default: /* BPF_MISC */
			if (BPF_MISCOP(at->code) == BPF_TAX) x = a;
			else a = x;
		}
	}
	return SECCOMP_RET_ALLOW;
}

bool tm_filter_kills_for_us(const struct sock_fprog *filter) {
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
		struct seccomp_data call = calls[i];
		call.arch = OUR_ARCHITECTURE;
		uint32_t action = answer(filter, &call) & SECCOMP_RET_ACTION_FULL;
		if (action == SECCOMP_RET_KILL_PROCESS || action == SECCOMP_RET_KILL_THREAD || action == SECCOMP_RET_TRAP) return true;
	}
	return false;
}
