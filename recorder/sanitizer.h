/* sanitizer.h - does an ELF file need a sanitizer's library that has a malloc of its own (libasan and its kin), or has it one preloaded?
 *
 * Such a library ends its program at the start if another one comes before it, or calls ours before it can. So nothing is preloaded into these programs. The
 * compilers link it in first of all: only the first libraries that the file needs are looked at. Where the library is linked in statically (clang's
 * way) there is nothing to find, nor to fear.
 *
 * Flow:     recorder/guest/exec_target.c, recorder/collector/executable.c; for what is preloaded guest/exec_env.c, collector/launch.c -> here
 * Failure:  what cannot be read needs none.
 */
#ifndef TIDEMARK_SANITIZER_H
#define TIDEMARK_SANITIZER_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef long tm_read_at(int fd, void *to, size_t bytes, uint64_t offset);

#define TM_SANITIZER_SEGMENTS 32u
#define TM_SANITIZER_ENTRIES 32u /* of the dynamic section, where the needed libraries come first */
#define TM_SANITIZER_LOOKED_AT 3u

static inline bool tm_is_sanitizer(const char *name) {
	static const char names[][20] = { "libasan.so",       "libtsan.so",         "liblsan.so",      "libhwasan.so",
					  "libclang_rt.asan", "libclang_rt.hwasan", "libclang_rt.tsan" };
	for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
		if (strncmp(name, names[i], strlen(names[i])) == 0) return true;
	return false;
}

/* list: a value of LD_PRELOAD. */
static inline bool tm_preloads_sanitizer(const char *list) {
	for (size_t n; (list += strspn(list, ": ")), (n = strcspn(list, ": ")) > 0; list += n) {
		const char *name = list + n;
		while (name > list && name[-1] != '/') name--;
		if (tm_is_sanitizer(name)) return true;
	}
	return false;
}

static inline uint64_t tm_sanitizer_offset(const ElfW(Phdr) * segments, unsigned count, uint64_t address) {
	for (unsigned i = 0; i < count; i++) {
		uint64_t inside = address - segments[i].p_vaddr;
		if (segments[i].p_type == PT_LOAD && inside < segments[i].p_filesz) return inside + segments[i].p_offset;
	}
	return 0;
}

static inline bool tm_needs_sanitizer(int fd, const ElfW(Ehdr) * head, tm_read_at *read_at) {
	ElfW(Phdr) segments[TM_SANITIZER_SEGMENTS];
	ElfW(Dyn) entries[TM_SANITIZER_ENTRIES];
	unsigned count = head->e_phnum < TM_SANITIZER_SEGMENTS ? head->e_phnum : TM_SANITIZER_SEGMENTS, needed = 0;
	uint64_t names[TM_SANITIZER_LOOKED_AT], texts = 0;
	long n = -1;
	if (head->e_phentsize != sizeof segments[0]) return false;
	if (read_at(fd, segments, count * sizeof segments[0], head->e_phoff) != (long)(count * sizeof segments[0])) return false;
	for (unsigned i = 0; i < count; i++)
		if (segments[i].p_type == PT_DYNAMIC) n = read_at(fd, entries, sizeof entries, segments[i].p_offset);
	for (long i = 0; i < n / (long)sizeof entries[0] && entries[i].d_tag != DT_NULL; i++) {
		if (entries[i].d_tag == DT_NEEDED && needed < TM_SANITIZER_LOOKED_AT) names[needed++] = entries[i].d_un.d_val;
		if (entries[i].d_tag == DT_STRTAB) texts = tm_sanitizer_offset(segments, count, entries[i].d_un.d_ptr);
	}
	for (unsigned i = 0; texts && i < needed; i++) {
		char name[32] = "";
		if (read_at(fd, name, sizeof name - 1, texts + names[i]) > 0 && tm_is_sanitizer(name)) return true;
	}
	return false;
}

#endif
