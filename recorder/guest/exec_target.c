/* exec_target.c - reads the first bytes of the file that an exec call names, as the kernel will, to learn whether we can follow into it.
 *
 * Flow:     exec_hooks.c -> here
 * Idea:     a preloaded library reaches a program only through its dynamic loader. One without a loader, with a loader for another machine
 *           or another libc, or with more privileges than its caller cannot be recorded, and the trace must say so.
 *
 *     name -> PATH search -> open -> "#!" ? -> its interpreter, again, up to 4 levels
 *                                 -> ELF  ? -> class, machine -> PT_INTERP -> which loader
 */
#include "exec_target.h"
#include "../sanitizer.h"

#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define SCRIPT_LEVELS 4
#define HEAD_BYTES 256 /* what the kernel reads of a script's first line */

#if defined(__x86_64__)
#define OUR_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OUR_MACHINE EM_AARCH64
#endif

static void fd_link(char to[32], int fd) {
	memcpy(to, "/proc/self/fd/", 14);
	*tm_put_number(to + 14, (unsigned)fd) = 0;
}

/* --- where a name leads --- */

static bool is_runnable_file(const char *path) {
	struct stat s;

	return tm_syscall(SYS_newfstatat, AT_FDCWD, (long)path, (long)&s, 0, 0, 0) == 0 && S_ISREG(s.st_mode) &&
	       tm_syscall(SYS_faccessat, AT_FDCWD, (long)path, X_OK, 0, 0, 0) == 0;
}

/* The first file of that name in PATH, as execvp looks for it; false: none. */
static bool search_path(char found[TM_PATH_MAX], const char *name) {
	const char *at = tm_environment_value("PATH");
	size_t name_size = strlen(name) + 1;

	if (!at) at = "/bin:/usr/bin";
	for (;;) {
		size_t n = strcspn(at, ":");

		if (n + 1 + name_size <= TM_PATH_MAX) {
			memcpy(found, at, n);
			if (n > 0) found[n] = '/';
			memcpy(found + n + (n > 0), name, name_size);
			if (is_runnable_file(found)) return true;
		}
		if (!at[n]) return false;
		at += n + 1;
	}
}

/* Opens a file to be looked at, without side effects: a pipe or a device is not read. Its real path goes to target->path. */
static int open_target(struct tm_exec_target *target, int dir, const char *name, struct stat *status) {
	char link[32];
	bool itself = name[0] == 0 && dir >= 0;
	int fd, readable;

	fd_link(link, dir >= 0 ? dir : 0);
	fd = itself ? tm_raw_open(link, O_PATH) : tm_raw_openat(dir, name, O_PATH);
	if (fd < 0) return fd;
	fd_link(link, fd);
	/* `name` may lie in target->path: it is not needed after this. */
	tm_raw_readlink(link, target->path, sizeof target->path);
	if (tm_syscall(SYS_fstat, fd, (long)status, 0, 0, 0, 0) != 0 || !S_ISREG(status->st_mode)) {
		tm_raw_close(fd);
		return -1;
	}
	readable = tm_raw_open(link, O_RDONLY);
	tm_raw_close(fd);
	return readable;
}

/* --- what lies there --- */

static bool has_file_capabilities(int fd) {
	char link[32];

	fd_link(link, fd);
	return tm_syscall(SYS_geteuid, 0, 0, 0, 0, 0, 0) != 0 &&
	       tm_syscall(SYS_getxattr, (long)link, (long)"security.capability", 0, 0, 0, 0) > 0;
}

/* prctl is asked last: a filter of system calls from before the program may kill for it. */
static bool gives_privileges(int fd, const struct stat *s) {
	struct statfs mounted;
	bool by_user = (s->st_mode & S_ISUID) && s->st_uid != (uid_t)tm_syscall(SYS_getuid, 0, 0, 0, 0, 0, 0);
	bool by_group = (s->st_mode & S_ISGID) && (s->st_mode & S_IXGRP) && s->st_gid != (gid_t)tm_syscall(SYS_getgid, 0, 0, 0, 0, 0, 0);

	if (!by_user && !by_group && !has_file_capabilities(fd)) return false;
	if (tm_syscall(SYS_fstatfs, fd, (long)&mounted, 0, 0, 0, 0) == 0 && (mounted.f_flags & ST_NOSUID)) return false;
	return tm_syscall(SYS_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0, 0) != 1;
}

/* The loader that a PT_INTERP names decides, in `name`. */
static enum tm_exec_class class_of_loader(const char *name) {
	return strstr(name, "ld-musl") ? TM_EXEC_MUSL : TM_EXEC_NATIVE;
}

static enum tm_exec_class class_without_loader(const char *path) {
	const char *name = strrchr(path, '/');

	name = name ? name + 1 : path;
	if (strncmp(name, "ld-", 3) != 0) return TM_EXEC_STATIC;
	return class_of_loader(name); /* a loader run by hand: it preloads into what its arguments name */
}

static enum tm_exec_class class_of_elf(int fd, const struct tm_exec_target *target, const ElfW(Ehdr) * head, const struct stat *s) {
	if (head->e_ident[EI_CLASS] != (__SIZEOF_POINTER__ == 8 ? ELFCLASS64 : ELFCLASS32) || head->e_ident[EI_DATA] != ELFDATA2LSB ||
	    head->e_machine != OUR_MACHINE)
		return TM_EXEC_FOREIGN;
	for (unsigned i = 0; i < head->e_phnum; i++) {
		ElfW(Phdr) p;
		char loader[HEAD_BYTES];
		long n;

		if (tm_raw_pread(fd, &p, sizeof p, head->e_phoff + (uint64_t)i * head->e_phentsize) != (long)sizeof p)
			return TM_EXEC_UNKNOWN;
		if (p.p_type != PT_INTERP) continue;
		n = tm_raw_pread(fd, loader, p.p_filesz < sizeof loader ? p.p_filesz : sizeof loader - 1, p.p_offset);
		loader[n > 0 ? n : 0] = 0;
		if (class_of_loader(loader) != TM_EXEC_NATIVE) return class_of_loader(loader);
		if (gives_privileges(fd, s)) return TM_EXEC_SETUID;
		return tm_needs_sanitizer(fd, head, tm_raw_pread) ? TM_EXEC_SANITIZED : TM_EXEC_NATIVE;
	}
	return class_without_loader(target->path);
}

/* The interpreter that a script's first line names, cut out of head; NULL: it is no script. */
static char *script_interpreter(char head[HEAD_BYTES]) {
	char *name = head + 2;

	if (head[0] != '#' || head[1] != '!') return NULL;
	head[HEAD_BYTES - 1] = 0;
	name += strspn(name, " \t");
	name[strcspn(name, " \t\n")] = 0;
	return *name ? name : NULL;
}

/* One level: sets target->class, or leaves the interpreter to go on with in head and returns it. */
static char *look_at(struct tm_exec_target *target, int fd, const struct stat *s, char head[HEAD_BYTES], bool or_shell) {
	ElfW(Ehdr) elf;
	long n;

	memset(head, 0, HEAD_BYTES);
	n = tm_raw_pread(fd, head, HEAD_BYTES - 1, 0);
	if (n >= (long)sizeof elf && memcmp(head, ELFMAG, SELFMAG) == 0) {
		memcpy(&elf, head, sizeof elf);
		target->class = class_of_elf(fd, target, &elf, s);
		return NULL;
	}
	if (n >= EI_NIDENT && memcmp(head, ELFMAG, SELFMAG) == 0) {
		target->class = TM_EXEC_FOREIGN;
		return NULL;
	}
	if (n > 0 && script_interpreter(head)) return script_interpreter(head);
	return or_shell && n >= 0 ? memcpy(head, "/bin/sh", 8) : NULL;
}

void tm_exec_target_find(struct tm_exec_target *target, enum tm_exec_lookup lookup, int dir, const char *name) {
	bool search = lookup == TM_EXEC_BY_PATH_VARIABLE;
	char head[HEAD_BYTES];

	target->class = TM_EXEC_UNKNOWN;
	if (name != target->path) target->path[0] = 0;
	if (!name) return;
	if (search && name[0] && !strchr(name, '/')) {
		if (!search_path(target->path, name)) {
			target->path[0] = 0;
			return;
		}
		name = target->path;
	}
	for (int level = 0; name && level <= SCRIPT_LEVELS; level++) {
		struct stat status;
		int fd = open_target(target, level ? AT_FDCWD : dir, name, &status);

		if (fd < 0) {
			size_t n = strlen(name);
			/* No descriptor is left, or it lies out of reach: it has no better name than that which was asked for. */
			if (!target->path[0] && n < sizeof target->path) memcpy(target->path, name, n + 1);
			return;
		}
		name = look_at(target, fd, &status, head, search);
		tm_raw_close(fd);
	}
}
