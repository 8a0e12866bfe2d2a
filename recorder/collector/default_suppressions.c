/* default_suppressions.c - reads what __lsan_default_suppressions() returns; see default_suppressions.h. */
#include "default_suppressions.h"

#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SYMBOL "__lsan_default_suppressions"
#define TABLE_MAX ((uint64_t)256 << 20) /* larger ones take long to read while events wait */
#define HEADERS_MAX 64u
#define CODE_BYTES 64u
#define TICK_NS 20000000 /* of the kernel's clock for files, and more */

struct file {
	int fd;
	Elf64_Ehdr header;
	Elf64_Phdr segments[HEADERS_MAX];
	unsigned segment_count;
	Elf64_Shdr *sections;
	unsigned section_count;
	bool failed; /* something could not be read, or there was no memory for it */
};

static bool read_at(int fd, void *to, uint64_t n, uint64_t offset) {
	return offset <= INT64_MAX && n <= INT64_MAX && pread(fd, to, n, (off_t)offset) == (ssize_t)n;
}

/* --- code --- */

static uint64_t word32(const uint8_t *p) {
	int32_t n;
	memcpy(&n, p, sizeof n);
	return (uint64_t)(int64_t)n;
}

static bool is_next(const uint8_t *code, unsigned size, const char *bytes, unsigned n) {
	return size >= n && memcmp(code, bytes, n) == 0;
}

/* Instructions of a frame's begin and end, which change no result. */
static unsigned frame_length_x86(const uint8_t *code, unsigned size) {
	static const struct {
		const char *bytes;
		unsigned n;
	} known[] = {
		{ "\xf3\x0f\x1e\xfa", 4 }, /* endbr64 */
		{ "\x55", 1 },             /* push %rbp */
		{ "\x48\x89\xe5", 3 },     /* mov %rsp, %rbp */
		{ "\x5d", 1 },             /* pop %rbp */
		{ "\xc9", 1 },             /* leave */
		{ "\x90", 1 },             /* nop */
	};
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
		if (is_next(code, size, known[i].bytes, known[i].n)) return known[i].n;
	return 0;
}

static uint64_t constant_result_x86(const uint8_t *code, unsigned size, uint64_t address) {
	uint64_t result = 0;
	for (unsigned at = 0, n; at < size; at += n) {
		const uint8_t *p = code + at;
		unsigned left = size - at;
		n = frame_length_x86(p, left);
		if (n) continue;
		if (*p == 0xc3 || is_next(p, left, "\xf3\xc3", 2)) return result;
		if (is_next(p, left, "\x48\x8d\x05", 3) && left >= 7) { /* lea offset(%rip), %rax */
			n = 7;
			result = address + at + n + word32(p + 3);
		} else if (is_next(p, left, "\x48\xc7\xc0", 3) && left >= 7) { /* mov $n, %rax */
			n = 7;
			result = word32(p + 3);
		} else if (*p == 0xb8 && left >= 5) { /* mov $n, %eax */
			n = 5;
			result = (uint32_t)word32(p + 1);
		} else if (is_next(p, left, "\x48\xb8", 2) && left >= 10) { /* movabs $n, %rax */
			n = 10;
			memcpy(&result, p + 2, sizeof result);
		} else return 0;
	}
	return 0;
}

static bool is_frame_arm(uint32_t i) {
	return (i & 0xfffff01f) == 0xd503201f    /* hints: nop, bti, paciasp, autiasp */
	       || (i & 0xffc07fff) == 0xa9807bfd /* stp x29, x30, [sp, #n]! */
	       || (i & 0xffc07fff) == 0xa8c07bfd /* ldp x29, x30, [sp], #n */
	       || i == 0x910003fd;               /* mov x29, sp */
}

static uint64_t constant_result_arm(const uint8_t *code, unsigned size, uint64_t address) {
	uint64_t registers[32] = { 0 };
	bool known[32] = { false };
	for (unsigned at = 0; at + 4 <= size; at += 4) {
		uint32_t i;
		memcpy(&i, code + at, sizeof i);
		unsigned to = i & 31, from = i >> 5 & 31;
		if (is_frame_arm(i)) continue;
		if ((i & 0xfffffc1f) == 0xd65f0000) return known[0] ? registers[0] : 0; /* ret */
		uint64_t immediate = (uint64_t)((int64_t)((uint64_t)((i >> 5 & 0x7ffff) << 2 | (i >> 29 & 3)) << 43) >> 43);
		if (to == 31) return 0;
		if ((i & 0x9f000000) == 0x90000000) registers[to] = ((address + at) & ~(uint64_t)0xfff) + immediate * 4096; /* adrp */
		else if ((i & 0x9f000000) == 0x10000000) registers[to] = address + at + immediate;                          /* adr */
		else if ((i & 0xff800000) == 0x91000000 && from != 31 && known[from])                                       /* add */
			registers[to] = registers[from] + ((uint64_t)(i >> 10 & 0xfff) << (i >> 22 & 1 ? 12 : 0));
		else return 0;
		known[to] = true;
	}
	return 0;
}

uint64_t tm_constant_result(unsigned machine, const uint8_t *code, unsigned size, uint64_t address) {
	if (machine == EM_X86_64) return constant_result_x86(code, size, address);
	return machine == EM_AARCH64 ? constant_result_arm(code, size, address) : 0;
}

/* --- files --- */

static bool read_headers(struct file *f) {
	const Elf64_Ehdr *h = &f->header;
	if (!read_at(f->fd, &f->header, sizeof f->header, 0) || memcmp(h->e_ident, ELFMAG, SELFMAG) != 0) return false;
	if (h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_ident[EI_DATA] != ELFDATA2LSB || h->e_phentsize != sizeof(Elf64_Phdr) ||
	    h->e_shentsize != sizeof(Elf64_Shdr))
		return false;
	f->segment_count = h->e_phnum < HEADERS_MAX ? h->e_phnum : HEADERS_MAX;
	f->section_count = h->e_shnum;
	if (!read_at(f->fd, f->segments, f->segment_count * sizeof f->segments[0], h->e_phoff)) return false;
	f->sections = calloc((size_t)f->section_count + 1, sizeof f->sections[0]);
	f->failed = !f->sections;
	return f->sections && read_at(f->fd, f->sections, f->section_count * sizeof f->sections[0], h->e_shoff);
}

/* Up to n bytes at an ELF virtual address that are in the file; how many. */
static uint64_t read_memory(const struct file *f, uint64_t address, void *to, uint64_t n) {
	for (unsigned i = 0; i < f->segment_count; i++) {
		const Elf64_Phdr *s = &f->segments[i];
		if (s->p_type != PT_LOAD || address < s->p_vaddr || address - s->p_vaddr >= s->p_filesz) continue;
		uint64_t skip = address - s->p_vaddr, left = s->p_filesz - skip;
		ssize_t got = s->p_offset + skip > INT64_MAX ? -1 : pread(f->fd, to, n < left ? n : left, (off_t)(s->p_offset + skip));
		return got > 0 ? (uint64_t)got : 0;
	}
	return 0;
}

static void *load(struct file *f, const Elf64_Shdr *section) {
	if (!section->sh_size || section->sh_size > TABLE_MAX) return NULL;
	char *bytes = malloc(section->sh_size);
	if (bytes && read_at(f->fd, bytes, section->sh_size, section->sh_offset)) return bytes;
	f->failed = true;
	free(bytes);
	return NULL;
}

static bool find_symbol(struct file *f, const Elf64_Shdr *table, const char *names, uint64_t size, Elf64_Sym *found) {
	/* Most programs have no such name; then their symbols need not be read. */
	if (!memmem(names, size, SYMBOL, sizeof SYMBOL)) return false;
	Elf64_Sym *symbols = load(f, table);
	bool is_found = false;
	for (uint64_t i = 0; symbols && !is_found && i < table->sh_size / sizeof *symbols; i++) {
		const Elf64_Sym *s = &symbols[i];
		if (s->st_name >= size || size - s->st_name < sizeof SYMBOL || memcmp(names + s->st_name, SYMBOL, sizeof SYMBOL) != 0)
			continue;
		is_found = s->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(s->st_info) == STT_FUNC;
		if (is_found) *found = *s;
	}
	free(symbols);
	return is_found;
}

static bool find_function(struct file *f, Elf64_Sym *found) {
	bool is_found = false;
	for (unsigned i = 0; i < f->section_count && !is_found; i++) {
		const Elf64_Shdr *table = &f->sections[i];
		if ((table->sh_type != SHT_SYMTAB && table->sh_type != SHT_DYNSYM) || table->sh_link >= f->section_count) continue;
		char *names = load(f, &f->sections[table->sh_link]);
		is_found = names && find_symbol(f, table, names, f->sections[table->sh_link].sh_size, found);
		free(names);
	}
	return is_found;
}

static char *text_at(struct file *f, uint64_t address) {
	char *text = malloc(TM_DEFAULT_SUPPRESSIONS_MAX);
	uint64_t n = text && address ? read_memory(f, address, text, TM_DEFAULT_SUPPRESSIONS_MAX) : 0;
	const char *end = n ? memchr(text, 0, n) : NULL;
	char *kept = end ? realloc(text, (size_t)(end - text) + 1) : NULL;
	if (kept) return kept;
	f->failed |= !text || end;
	free(text);
	return NULL;
}

static void read_file(struct file *f, struct tm_default_suppressions *out) {
	Elf64_Sym function;
	if (!read_headers(f) || !find_function(f, &function)) return;
	uint8_t code[CODE_BYTES];
	uint64_t n = read_memory(f, function.st_value, code, function.st_size < CODE_BYTES ? function.st_size : CODE_BYTES);
	out->found = true;
	out->text = text_at(f, tm_constant_result(f->header.e_machine, code, (unsigned)n, function.st_value));
}

/* --- what is kept --- */

static bool same_time(const struct timespec *a, const struct timespec *b) {
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool is_unchanged(const struct stat *then, const struct stat *now) {
	return then->st_ino == now->st_ino && then->st_dev == now->st_dev && then->st_size == now->st_size && same_time(&then->st_mtim, &now->st_mtim) &&
	       same_time(&then->st_ctim, &now->st_ctim);
}

/* A file that was written to just now may be written to again without a change of its times, which are those of the kernel's last tick. */
static bool is_settled(const struct stat *file) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	int64_t age_ns = (now.tv_sec - file->st_ctim.tv_sec) * 1000000000 + (now.tv_nsec - file->st_ctim.tv_nsec);
	return age_ns > TICK_NS || age_ns < -TICK_NS;
}

static unsigned place_of(const struct tm_default_suppressions_table *t, const struct stat *file) {
	unsigned oldest = 0;
	for (unsigned i = 0; i < TM_DEFAULT_SUPPRESSIONS_KEPT; i++) {
		if (is_unchanged(&t->kept[i].file, file)) return i;
		if (t->kept[i].asked < t->kept[oldest].asked) oldest = i;
	}
	return oldest;
}

const struct tm_default_suppressions *tm_default_suppressions_of(struct tm_default_suppressions_table *t, const char *path) {
	static const struct tm_default_suppressions nothing;
	struct file f = { .fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK) };
	struct stat now;
	if (f.fd < 0) return &nothing;
	if (fstat(f.fd, &now) != 0 || !S_ISREG(now.st_mode)) {
		close(f.fd);
		return &nothing;
	}
	unsigned place = place_of(t, &now);
	struct tm_default_suppressions *known = &t->kept[place].known;
	t->kept[place].asked = ++t->calls;
	if (!is_unchanged(&t->kept[place].file, &now)) {
		free(known->text);
		*known = nothing;
		read_file(&f, known);
		free(f.sections);
		t->reads++;
		t->kept[place].file = f.failed || !is_settled(&now) ? (struct stat){ 0 } : now;
	}
	close(f.fd);
	return known;
}

void tm_default_suppressions_release(struct tm_default_suppressions_table *t) {
	for (unsigned i = 0; i < TM_DEFAULT_SUPPRESSIONS_KEPT; i++) free(t->kept[i].known.text);
	*t = (struct tm_default_suppressions_table){ 0 };
}
