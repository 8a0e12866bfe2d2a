/* process_info.c - a process introduces itself: who it is, what it was called with, which rank it has, what cannot be seen in it.
 *
 * Flow:     hook.c, first thread of a process -> tm_process_announce() -> PROCESS, INFO and NOTE records -> collector
 * Threads:  once a process (a fork's child again), from the thread with its first event.
 * Privacy:  of the environment only the variables by which launchers number their processes are read.
 */
#include "../launcher_names.h"
#include "elf_symbols.h"
#include "process.h"
#include "raw.h"

#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#define COMMAND_MAX 65536u
#define COMMAND_CUT "[arguments cut here]"

/* Which one counts is the collector's choice. The job is the trace's, and not a process's. */
static const char *const rank_variables[] = { TM_RANK_VARIABLES,  TM_LOCAL_RANK_VARIABLES, TM_WORLD_SIZE_VARIABLES,
					      TM_WORLD_VARIABLES, TM_TORCHRUN_VARIABLE,    TM_STEP_VARIABLES };

static void emit_info(struct tm_thread *t, enum tm_info_key key, const char *text, size_t n) {
	tm_emit_control(t, TM_CTL_INFO, 0, key, NULL, 0, text, n);
}

static void announce_exe(struct tm_thread *t) {
	const char *path = tm_program_path();

	if (*path) emit_info(t, TM_INFO_EXE, path, strlen(path));
}

/* --args=drop. What the image was started as: a child that it forks later may have been given a title, which holds arguments as well. */
static void announce_first_argument(struct tm_thread *t) {
	static TM_ROOMY char first[TM_PATH_MAX];

	if (!first[0]) tm_raw_read_whole("/proc/self/cmdline", first, sizeof first);
	first[sizeof first - 1] = 0;
	if (first[0]) emit_info(t, TM_INFO_COMMAND, first, strlen(first));
}

/* What /proc/self/cmdline shows, where it lies as the kernel put it; nothing: not known here. */
static const char *command_line;
static size_t command_line_bytes;

void tm_process_arguments(int count, char **arguments, char **environment) {
	if (count < 1 || !environment || !environment[0] || getauxval(AT_BASE) == 0) return;
	for (int i = 0; i < count; i++) {
		const char *next = i + 1 < count ? arguments[i + 1] : environment[0];

		if (!arguments[i] || arguments[i] + strlen(arguments[i]) + 1 != next || next - arguments[0] > (ptrdiff_t)COMMAND_MAX)
			return;
	}
	command_line = arguments[0];
	command_line_bytes = (size_t)(environment[0] - arguments[0]);
}

/* A forked child may have been given a title meanwhile, anywhere: /proc shows that. */
static void announce_command(struct tm_thread *t) {
	size_t room = COMMAND_MAX + sizeof COMMAND_CUT, n;
	char *command;

	if (command_line_bytes && !tm_guest.parent_process) {
		emit_info(t, TM_INFO_COMMAND, command_line, command_line_bytes - 1);
		return;
	}
	command = tm_raw_map(room);
	if (!command) return;
	n = tm_raw_read_whole("/proc/self/cmdline", command, COMMAND_MAX + 1);
	if (n > COMMAND_MAX) {
		memcpy(command + COMMAND_MAX - sizeof COMMAND_CUT, "\0" COMMAND_CUT, sizeof COMMAND_CUT);
		n = COMMAND_MAX;
	} else if (n > 0 && command[n - 1] == 0) {
		n--;
	}
	if (n > 0) emit_info(t, TM_INFO_COMMAND, command, n);
	tm_raw_unmap(command, room);
}

static bool is_rank_variable(const char *string) {
	size_t n = strcspn(string, "=");

	for (size_t i = 0; i < sizeof rank_variables / sizeof *rank_variables; i++)
		if (strlen(rank_variables[i]) == n && memcmp(rank_variables[i], string, n) == 0) return true;
	return false;
}

static void announce_ranks(struct tm_thread *t) {
	for (char **at = tm_environment(); at && *at; at++)
		if (is_rank_variable(*at)) emit_info(t, TM_INFO_ENV, *at, strnlen(*at, TM_RING_TEXT_MAX));
}

/* --- another malloc in front of ours --- */

static const char *other_allocator; /* the object whose malloc the program calls instead of ours; NULL: ours is called */
static const char *other_function, *other_functions_object; /* the same of another function of malloc's family, where malloc is ours */
static bool looked_for_allocator;

struct search {
	const char *name;
	void *found;
};

/* In the loader's order of search. Its own answer (dlsym) would be the program's mere entry for malloc, where a position-dependent program takes malloc's
 * address. */
static int find_first(struct dl_phdr_info *info, size_t size, void *search) {
	struct tm_symbols symbols;
	struct search *s = search;
	(void)size;

	if (tm_symbols_open(&symbols, info)) s->found = tm_symbols_function(&symbols, s->name);
	return s->found != NULL;
}

/* The object that has the function in front of ours; NULL: none. */
static const char *who_is_in_front(const char *name) {
	struct search s = { name, NULL };
	struct dl_phdr_info info;

	dl_iterate_phdr(find_first, &s);
	if (!s.found || (uintptr_t)s.found - tm_guest.text_low < tm_guest.text_high - tm_guest.text_low) return NULL;
	if (!tm_symbols_module(s.found, &info)) return "another object";
	if (info.dlpi_name[0]) return info.dlpi_name;
	/* The loader calls it by its first argument, and a program may write anything there. */
	return *tm_program_path() ? tm_program_path() : "the program";
}

/* Once an image: its forked children know the answer, and must not ask the loader, whose lock another thread may have held when they
 * were born. */
const char *tm_other_allocator(void) {
	static const char *const others[] = { "calloc", "realloc", "free", "posix_memalign", "aligned_alloc", "memalign" };

	if (looked_for_allocator || !tm_loader_enter()) return other_allocator;
	looked_for_allocator = true;
	tm_ours_begin();
	other_allocator = who_is_in_front("malloc");
	for (unsigned i = 0; i < sizeof others / sizeof *others && !other_allocator && !other_function; i++) {
		other_functions_object = who_is_in_front(others[i]);
		if (other_functions_object) other_function = others[i];
	}
	tm_ours_end();
	tm_loader_leave();
	return other_allocator;
}

static size_t put(char *to, size_t at, size_t size, const char *text) {
	size_t n = strnlen(text, size - at);

	memcpy(to + at, text, n);
	return at + n;
}

static void note_other_allocator(struct tm_thread *t) {
	static const char kind[] = TM_NOTE_OTHER_MALLOC,
			  after[] = ", in front of tidemark's: of what goes through it only what it passes on is in this trace";
	const char *function = tm_other_allocator() ? "malloc" : other_function;
	char text[512];
	size_t n = sizeof kind, room = sizeof text - sizeof after;

	if (!function) return;
	memcpy(text, kind, sizeof kind);
	n = put(text, n, room, "the program's ");
	n = put(text, n, room, function);
	n = put(text, n, room, " is defined in ");
	n = put(text, n, room, other_allocator ? other_allocator : other_functions_object);
	n = put(text, n, sizeof text, after);
	tm_emit_control(t, TM_CTL_NOTE, 0, true, NULL, 0, text, n);
}

/* The first number in the target of a symbolic link; 0: there is none, or no such link. */
static uint64_t number_in_link(const char *path) {
	char target[64];
	const char *at = target;
	uint64_t number = 0;

	if (tm_raw_readlink(path, target, sizeof target) <= 0) return 0;
	at += strcspn(at, "0123456789");
	while (*at >= '0' && *at <= '9') number = number * 10 + (uint64_t)(*at++ - '0');
	return number;
}

/* In a pid namespace of its own the process is known to the collector by another pid, which a /proc of the collector's tells. */
void tm_process_announce(struct tm_thread *t) {
	uint64_t namespace = number_in_link("/proc/self/ns/pid");
	uint64_t words[4] = {
		number_in_link("/proc/self"),
		(uint64_t)tm_syscall(SYS_getppid, 0, 0, 0, 0, 0, 0),
		tm_guest.parent_process,
		(tm_guest.parent_process ? TM_PROCESS_FORKED : TM_PROCESS_EXECED) | namespace << 32,
	};

	tm_emit_control(t, TM_CTL_PROCESS, 0, 0, words, 4, NULL, 0);
	announce_exe(t);
	if (tm_guest.shm->args) announce_command(t);
	else announce_first_argument(t);
	announce_ranks(t);
	note_other_allocator(t);
}

/* --- our own file --- */

static _Atomic(const char *) own_path; /* NULL: not asked for yet */

const char *tm_own_path(void) {
	static TM_ROOMY char mapped[TM_PATH_MAX];
	struct dl_phdr_info info;
	const char *path = atomic_load_explicit(&own_path, memory_order_acquire);

	if (path) return path;
	path = "";
	tm_ours_begin();
	if (tm_symbols_module((void *)(uintptr_t)tm_own_path, &info) && info.dlpi_name) {
		/* The loader keeps its text as long as it keeps us. */
		if (info.dlpi_name[0] == '/' && strnlen(info.dlpi_name, TM_PATH_MAX) < TM_PATH_MAX) path = info.dlpi_name;
		else if (tm_mapped_path((uintptr_t)tm_own_path, mapped, sizeof mapped)) path = mapped;
	}
	tm_ours_end();
	atomic_store_explicit(&own_path, path, memory_order_release);
	return path;
}

static const char *hexadecimal(const char *at, uintptr_t *value) {
	for (*value = 0;; at++) {
		if (*at >= '0' && *at <= '9') *value = *value * 16 + (uintptr_t)(*at - '0');
		else if (*at >= 'a' && *at <= 'f') *value = *value * 16 + (uintptr_t)(*at - 'a' + 10);
		else return at;
	}
}

/* The kernel writes the end of a line that stands in a path as \\012. */
static void copy_path(char *to, const char *path) {
	static const char escaped[] = "\\012";
	size_t n = sizeof escaped - 1;

	while (*path) {
		bool ends_line = strncmp(path, escaped, n) == 0;

		*to++ = ends_line ? '\n' : *path;
		path += ends_line ? n : 1;
	}
	*to = 0;
}

/* One line of /proc/self/maps: low-high flags offset device inode path. */
static bool line_names(const char *line, uintptr_t address, char *to, size_t size) {
	uintptr_t low, high;
	const char *at = hexadecimal(line, &low);

	if (*at != '-') return false;
	hexadecimal(at + 1, &high);
	at = strchr(at, '/');
	if (address < low || address >= high || !at || strlen(at) >= size) return false;
	copy_path(to, at);
	return true;
}

bool tm_mapped_path(uintptr_t address, char *to, size_t size) {
	size_t room = 4 * TM_PATH_MAX, used = 0;
	char *text = tm_raw_map(room);
	int fd = text ? tm_raw_open("/proc/self/maps", O_RDONLY) : -1;
	bool found = false;
	long n;

	while (fd >= 0 && !found && (n = tm_raw_read(fd, text + used, room - 1 - used)) > 0) {
		char *line = text, *end;

		used += (size_t)n;
		text[used] = 0;
		while (!found && (end = strchr(line, '\n'))) {
			*end = 0;
			found = line_names(line, address, to, size);
			line = end + 1;
		}
		used -= (size_t)(line - text);
		memmove(text, line, used);
	}
	if (fd >= 0) tm_raw_close(fd);
	if (text) tm_raw_unmap(text, room);
	return found;
}

/* What the kernel was told to run is the loader where that is run by hand (ld.so PROGRAM): then no loader was mapped beside it.
 * Found once: a process that lives for a millisecond asks three times, and a forked child could not find it where the file has been removed meanwhile, or lies
 * outside of its root. */
const char *tm_program_path(void) {
	static TM_ROOMY char path[TM_PATH_MAX];
	static _Atomic bool is_known;

	if (atomic_load_explicit(&is_known, memory_order_acquire)) return path;
	if (getauxval(AT_BASE) != 0 || !tm_mapped_path(getauxval(AT_PHDR), path, sizeof path))
		tm_raw_readlink("/proc/self/exe", path, sizeof path);
	if (*path) atomic_store_explicit(&is_known, true, memory_order_release);
	return path;
}
