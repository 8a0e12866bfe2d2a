/* executable.c - reads the few bytes of an ELF file that decide whether and how it can be recorded: see executable.h. */
#include "executable.h"
#include "../sanitizer.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OUR_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OUR_MACHINE EM_AARCH64
#else
#define OUR_MACHINE EM_NONE
#endif

#define HEADERS_MAX 64
#define NOTES_MAX 4096

static void read_notes(int fd, const Elf64_Phdr *ph, struct tm_executable *out) {
	char notes[NOTES_MAX];
	ssize_t n = pread(fd, notes, ph->p_filesz < sizeof notes ? ph->p_filesz : sizeof notes, (off_t)ph->p_offset);
	size_t at = 0;
	while (n > 0 && at + sizeof(Elf64_Nhdr) <= (size_t)n) {
		Elf64_Nhdr note;
		memcpy(&note, notes + at, sizeof note);
		size_t name = at + sizeof note, desc = name + ((size_t)note.n_namesz + 3) / 4 * 4;
		size_t end = desc + ((size_t)note.n_descsz + 3) / 4 * 4;
		if (end > (size_t)n) return;
		if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && !memcmp(notes + name, "GNU", 4) &&
		    note.n_descsz <= TM_BUILD_ID_MAX) {
			memcpy(out->build_id, notes + desc, note.n_descsz);
			out->build_id_size = note.n_descsz;
			return;
		}
		at = end;
	}
}

static bool interpreter_is_musl(int fd, const Elf64_Phdr *ph) {
	char name[128] = "";
	size_t n = ph->p_filesz < sizeof name - 1 ? ph->p_filesz : sizeof name - 1;
	if (pread(fd, name, n, (off_t)ph->p_offset) <= 0) return false;
	return strstr(name, "ld-musl") != NULL;
}

static void read_program_headers(int fd, const Elf64_Ehdr *header, struct tm_executable *out) {
	Elf64_Phdr ph[HEADERS_MAX];
	size_t count = header->e_phnum < HEADERS_MAX ? header->e_phnum : HEADERS_MAX;
	bool interpreter = false, dynamic = false, first = true;
	if (header->e_phentsize != sizeof ph[0]) return;
	if (pread(fd, ph, count * sizeof ph[0], (off_t)header->e_phoff) != (ssize_t)(count * sizeof ph[0])) return;
	out->class = TM_EXEC_NATIVE;
	for (size_t i = 0; i < count; i++) {
		if (ph[i].p_type == PT_INTERP) interpreter = true;
		if (ph[i].p_type == PT_DYNAMIC) dynamic = true;
		if (ph[i].p_type == PT_INTERP && interpreter_is_musl(fd, &ph[i])) out->class = TM_EXEC_MUSL;
		if (ph[i].p_type == PT_NOTE && !out->build_id_size) read_notes(fd, &ph[i], out);
		if (ph[i].p_type == PT_LOAD && first) {
			out->first_low = ph[i].p_vaddr & ~(uint64_t)(TM_SHM_PAGE - 1);
			out->first_offset = ph[i].p_offset & ~(uint64_t)(TM_SHM_PAGE - 1);
			first = false;
		}
	}
	/* A shared library has no interpreter either; it is not run as a command. A static program may be position-independent. */
	if (!interpreter && (header->e_type == ET_EXEC || dynamic)) out->class = TM_EXEC_STATIC;
}

static long read_at(int fd, void *to, size_t bytes, uint64_t offset) {
	return pread(fd, to, bytes, (off_t)offset);
}

/* As the command gets them; what it execs asks more closely (guest/exec_target.c). */
static bool raises_privileges(int fd) {
	struct stat s;
	if (fstat(fd, &s) != 0) return false;
	return ((s.st_mode & S_ISUID) && s.st_uid != getuid()) || ((s.st_mode & S_ISGID) && (s.st_mode & S_IXGRP) && s.st_gid != getgid());
}

static void classify(int fd, struct tm_executable *out) {
	Elf64_Ehdr header;
	if (pread(fd, &header, sizeof header, 0) < (ssize_t)EI_NIDENT || memcmp(header.e_ident, ELFMAG, SELFMAG)) return;
	if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_machine != OUR_MACHINE) {
		out->class = TM_EXEC_FOREIGN;
		return;
	}
	out->entry = header.e_entry;
	read_program_headers(fd, &header, out);
	if (out->class == TM_EXEC_NATIVE && raises_privileges(fd)) out->class = TM_EXEC_SETUID;
	if (out->class == TM_EXEC_NATIVE && tm_needs_sanitizer(fd, &header, read_at)) out->class = TM_EXEC_SANITIZED;
}

void tm_executable_read(const char *path, struct tm_executable *out) {
	memset(out, 0, sizeof *out);
	out->class = TM_EXEC_UNKNOWN;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0) return;
	classify(fd, out);
	close(fd);
}

/* The interpreter named by a `#!` line. */
static bool script_interpreter(const char *path, char *interpreter, size_t bytes) {
	char line[PATH_MAX];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0) return false;
	ssize_t n = read(fd, line, sizeof line - 1);
	close(fd);
	if (n < 3 || line[0] != '#' || line[1] != '!') return false;
	line[n] = 0;
	char *start = line + 2 + strspn(line + 2, " \t");
	start[strcspn(start, " \t\n")] = 0;
	return *start && (size_t)snprintf(interpreter, bytes, "%s", start) < bytes;
}

void tm_executable_read_command(const char *path, struct tm_executable *out) {
	char current[PATH_MAX], next[PATH_MAX];
	snprintf(current, sizeof current, "%s", path);
	for (int i = 0; i < 5 && script_interpreter(current, next, sizeof next); i++) memcpy(current, next, sizeof current);
	tm_executable_read(current, out);
	const char *name = strrchr(realpath(current, next) ? next : current, '/');
	name = name ? name + 1 : current;
	/* A loader run by hand: it preloads into what its arguments name. */
	if (out->class == TM_EXEC_STATIC && strncmp(name, "ld-", 3) == 0)
		out->class = strstr(name, "ld-musl") ? TM_EXEC_MUSL : TM_EXEC_NATIVE;
}

/* 0, or -1 with errno: exec would fail with that, too. */
static int can_be_run(const char *path) {
	struct stat file;
	char interpreter[PATH_MAX];
	if (access(path, X_OK) != 0 || stat(path, &file) != 0) return -1;
	if (S_ISREG(file.st_mode)) return script_interpreter(path, interpreter, sizeof interpreter) ? access(interpreter, X_OK) : 0;
	errno = EACCES;
	return -1;
}

int tm_executable_find(const char *command, char *path, size_t path_bytes) {
	bool is_denied = false;
	errno = ENOENT;
	if (!*command) return -1; /* it would be every directory of PATH */
	errno = ENAMETOOLONG;
	if (strchr(command, '/')) return (size_t)snprintf(path, path_bytes, "%s", command) < path_bytes ? can_be_run(path) : -1;
	const char *directories = getenv("PATH");
	if (!directories) directories = "/bin:/usr/bin";
	for (const char *p = directories;; p++) {
		size_t n = strcspn(p, ":");
		int length = n ? snprintf(path, path_bytes, "%.*s/%s", (int)n, p, command) : snprintf(path, path_bytes, "%s", command);
		if (length > 0 && (size_t)length < path_bytes) {
			if (can_be_run(path) == 0) return 0;
			is_denied |= errno == EACCES;
		}
		p += n;
		if (*p) continue;
		errno = is_denied ? EACCES : ENOENT;
		return -1;
	}
}

const char *tm_exec_class_reason(enum tm_exec_class class) {
	switch (class) {
	case TM_EXEC_STATIC: return "it is statically linked";
	case TM_EXEC_FOREIGN: return "it is built for another word size or machine";
	case TM_EXEC_MUSL: return "it uses another C library (musl)";
	case TM_EXEC_SETUID: return "it runs with raised privileges, for which the loader preloads nothing";
	case TM_EXEC_SANITIZED:
		return "it is built with a sanitizer, or one is preloaded, which has a malloc of its own and bears no other";
	case TM_EXEC_CONFINED: return "it was forked when the program had restricted its system calls (seccomp)";
	case TM_EXEC_UNKNOWN: return "it could not be read";
	case TM_EXEC_UNSEEN: return "it was spawned by a relative path from a directory that could not be followed";
	case TM_EXEC_FILTERED: return "it runs behind a filter of system calls (seccomp) that kills for calls of tidemark's";
	case TM_EXEC_NATIVE: break;
	}
	return "it did not load the recording library";
}
