/* attach_self.c - a program that a launcher started with our library preloaded, but without a collector above it, starts its own.
 *
 * Flow:     our constructor (hook.c) -> tm_attach_self() -> tidemark-record --attach=PID -> its session path, through a pipe -> attach.c
 *
 *     program --clone--> between --clone--> tidemark-record
 *        |                  |
 *        '-- reaps it       '-- exits at once, so that the collector belongs to init and not to the program
 *
 * The trap: the program must never meet a child that it did not make. The clone has no exit signal, so there is no SIGCHLD and wait(-1)
 *           passes it by; but a clone becomes an ordinary child when it execs, hence the one in between. Where orphans come back to the
 *           program (it is its container's init, or a subreaper) it would hang in wait(-1) until the collector ends, which waits for
 *           the program: there we do not start one.
 * Late:     a program may also load us itself, as the tool that a variable of an earlier recording names (injection.c): nobody has asked for a recording then.
 * Fails:    false, and the program runs unrecorded; with TIDEMARK_VERBOSE set, a line on standard error says why.
 */
#include "elf_symbols.h"
#include "process.h"
#include "raw.h"

#include <errno.h>
#include <gnu/libc-version.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RECORDER "tidemark-record"
#define ANSWER_LIMIT_MS 5000
#define SESSION_FD 3
#define OPTIONS_MAX 64
#define OPTIONS_BYTES 4096u

/* Programs that start others on many nodes, and the shells around them: they would collide with what they start (srun has rank 0 too). And our own
 * tools, which would have a trace of themselves among those that they are to read. */
/* clang-format off */
static const char *const launchers[] = {
	"srun", "mpirun", "mpiexec", "orterun", "orted", "prterun", "prted", "hydra_pmi_proxy", "hydra_bstrap_proxy",
	"sh", "bash", "dash", "zsh", "ksh", "ksh93", "mksh", "csh", "bsd-csh", "tcsh", "fish", "env",
	"tidemark", RECORDER,
};
/* clang-format on */

/* What the collector's process is made of, prepared before it is cloned. */
struct start {
	char recorder[TM_PATH_MAX];
	char attach[32], session_fd[32], options[OPTIONS_BYTES];
	char *arguments[OPTIONS_MAX + 4];
	char **environment; /* ours without what would preload us into the collector */
	size_t environment_bytes;
	int answer[2]; /* the pipe of its answer */
};

bool tm_give_up(const char *why) {
	static const char before[] = "tidemark: this process is not recorded: ";
	char line[256];
	size_t n = strnlen(why, sizeof line - sizeof before - 1);

	if (!tm_environment_value("TIDEMARK_VERBOSE")) return false;
	memcpy(line, before, sizeof before - 1);
	memcpy(line + sizeof before - 1, why, n);
	line[sizeof before - 1 + n] = '\n';
	tm_syscall(SYS_write, 2, (long)line, (long)(sizeof before + n), 0, 0, 0);
	return false;
}

/* --- is it for us to start one? --- */

/* By the program's file: "mpiexec.hydra" is mpiexec too. */
static bool is_launcher(void) {
	const char *path = tm_program_path(), *name = strrchr(path, '/');

	name = name ? name + 1 : path;
	for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
		size_t n = strlen(launchers[i]);

		if (strncmp(name, launchers[i], n) == 0 && (name[n] == 0 || name[n] == '.')) return true;
	}
	return false;
}

/* What is preloaded lies in the loader's list before all that the program needs, so before libc; what dlopen loads comes last. */
static bool is_preloaded(void) {
	struct dl_phdr_info libc;

	if (!tm_symbols_module((void *)(uintptr_t)gnu_get_libc_version, &libc)) return true;
	for (const struct link_map *m = _r_debug.r_map; m; m = m->l_next) {
		if (m->l_ld == _DYNAMIC) return true;
		if (m->l_addr == libc.dlpi_addr) return false;
	}
	return false;
}

static bool inherits_orphans(void) {
	int subreaper = 0;

	tm_syscall(SYS_prctl, PR_GET_CHILD_SUBREAPER, (long)&subreaper, 0, 0, 0, 0);
	return subreaper || tm_raw_getpid() == 1;
}

/* --- what to run --- */

static bool is_program(const char *path) {
	return tm_syscall(SYS_faccessat, AT_FDCWD, (long)path, X_OK, 0, 0, 0) == 0;
}

/* ../bin/ beside our lib/, or our own directory; TIDEMARK_RECORD says otherwise. */
static bool find_recorder(char path[TM_PATH_MAX]) {
	static const char *const places[] = { "/../bin/" RECORDER, "/" RECORDER };
	const char *given = tm_environment_value("TIDEMARK_RECORD"), *own = tm_own_path(), *slash = strrchr(own, '/');
	size_t n = slash ? (size_t)(slash - own) : 0;

	if (given) {
		n = strlen(given);
		if (n >= TM_PATH_MAX) return false;
		memcpy(path, given, n + 1);
		return is_program(path);
	}
	for (size_t i = 0; slash && i < sizeof places / sizeof *places; i++) {
		if (n + strlen(places[i]) >= TM_PATH_MAX) continue;
		memcpy(path, own, n);
		strcpy(path + n, places[i]);
		if (is_program(path)) return true;
	}
	return false;
}

static void put_option(char to[32], const char *name, unsigned value) {
	strcpy(to, name);
	*tm_put_number(to + strlen(name), value) = 0;
}

/* TIDEMARK_OPTIONS, split at blanks. */
static bool prepare_arguments(struct start *s) {
	const char *options = tm_environment_value(TM_OPTIONS_ENV);
	char *at = s->options;
	size_t count = 0;

	put_option(s->attach, "--attach=", (unsigned)tm_raw_getpid());
	put_option(s->session_fd, "--session-fd=", SESSION_FD);
	s->arguments[count++] = (char *)RECORDER;
	s->arguments[count++] = s->attach;
	s->arguments[count++] = s->session_fd;
	if (options && strlen(options) >= OPTIONS_BYTES) return false;
	strcpy(at, options ? options : "");
	while (*(at += strspn(at, " \t\n"))) {
		size_t n = strcspn(at, " \t\n");

		if (count >= OPTIONS_MAX + 3) return false;
		s->arguments[count++] = at;
		at += n;
		if (*at) *at++ = 0;
	}
	s->arguments[count] = NULL;
	return true;
}

static bool names(const char *string, const char *variable) {
	size_t n = strlen(variable);

	return strncmp(string, variable, n) == 0 && string[n] == '=';
}

static bool prepare_environment(struct start *s) {
	size_t count = 0, kept = 0;

	while (environ && environ[count]) count++;
	s->environment_bytes = (count + 1) * sizeof(char *);
	s->environment = tm_raw_map(s->environment_bytes);
	if (!s->environment) return false;
	for (size_t i = 0; i < count; i++)
		if (!names(environ[i], "LD_PRELOAD") && !names(environ[i], TM_SESSION_ENV)) s->environment[kept++] = environ[i];
	return true;
}

/* --- the processes; only system calls from here on, since the clones share nothing that libc knows of --- */

static _Noreturn void leave(int status) {
	for (;;) tm_syscall(SYS_exit_group, status, 0, 0, 0, 0, 0);
}

/* Makes `to` a copy of fd that an exec keeps. */
static void place(int fd, int to) {
	if (fd == to) tm_syscall(SYS_fcntl, fd, F_SETFD, 0, 0, 0, 0);
	else tm_syscall(SYS_dup3, fd, to, 0, 0, 0, 0);
}

/* The collector keeps nothing of the program's but the answer pipe and standard error, which it lets go of, too, where it has nothing to say: an inherited
 * pipe would never see its end. */
static void drop_descriptors(int answer) {
	int null;

	/* Away from the low numbers, which the program may have had closed. */
	answer = (int)tm_syscall(SYS_fcntl, answer, F_DUPFD_CLOEXEC, SESSION_FD + 1, 0, 0, 0);
	null = tm_raw_open("/dev/null", O_RDWR);
	if (null >= 0) {
		place(null, 0);
		place(null, 1);
	}
	place(answer, SESSION_FD);
	if (tm_syscall(SYS_close_range, SESSION_FD + 1, ~0u, 0, 0, 0, 0) < 0)
		for (int fd = SESSION_FD + 1; fd < 1024; fd++) tm_raw_close(fd);
}

static _Noreturn void become_collector(const struct start *s) {
	uint64_t no_signals = 0;

	tm_syscall(SYS_setsid, 0, 0, 0, 0, 0, 0); /* the terminal's Ctrl-C is for the program */
	tm_syscall(SYS_rt_sigprocmask, SIG_SETMASK, (long)&no_signals, 0, sizeof no_signals, 0, 0);
	drop_descriptors(s->answer[1]);
	tm_syscall(SYS_execve, (long)s->recorder, (long)s->arguments, (long)s->environment, 0, 0, 0);
	leave(127);
}

static long clone_without_signal(void) {
	return tm_syscall(SYS_clone, 0, 0, 0, 0, 0, 0);
}

static bool run_collector(const struct start *s) {
	long between = clone_without_signal();
	int status = 0;

	if (between < 0) return false;
	if (between == 0) {
		long collector = clone_without_signal();

		if (collector == 0) become_collector(s);
		leave(collector < 0);
	}
	while (tm_syscall(SYS_wait4, between, (long)&status, __WALL, 0, 0, 0) == -EINTR) continue;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static long milliseconds(void) {
	return (long)(tm_clock_ns(CLOCK_MONOTONIC) / 1000000);
}

/* One line from the pipe, without its end; false: none came in time, or it does not fit. */
static bool read_answer(int fd, char answer[256]) {
	long until = milliseconds() + ANSWER_LIMIT_MS, left;
	size_t n = 0;

	while ((left = until - milliseconds()) > 0 && n < 255) {
		struct pollfd poll_for = { .fd = fd, .events = POLLIN };
		struct timespec limit = { left / 1000, left % 1000 * 1000000 };
		long rc = tm_syscall(SYS_ppoll, (long)&poll_for, 1, (long)&limit, 0, 8, 0);

		if (rc == -EINTR) continue;
		if (rc <= 0 || tm_raw_read(fd, answer + n, 1) != 1) return false;
		if (answer[n] == '\n') {
			answer[n] = 0;
			return n > 0;
		}
		n++;
	}
	return false;
}

/* Prepares, starts, asks. The caller releases what `s` owns. */
static bool start_collector(struct start *s, char session_path[256]) {
	bool answered;

	if (!find_recorder(s->recorder))
		return tm_give_up("cannot find " RECORDER " beside libtidemark.so (set TIDEMARK_RECORD to its path)");
	if (!prepare_arguments(s)) return tm_give_up(TM_OPTIONS_ENV " is too long");
	if (!prepare_environment(s)) return tm_give_up("out of memory");
	if (tm_syscall(SYS_pipe2, (long)s->answer, O_CLOEXEC, 0, 0, 0, 0) != 0) return tm_give_up("cannot make a pipe");
	answered = run_collector(s);
	tm_raw_close(s->answer[1]);
	if (!answered) tm_give_up("cannot start a process");
	else if (!(answered = read_answer(s->answer[0], session_path))) tm_give_up(RECORDER " did not start");
	tm_raw_close(s->answer[0]);
	return answered;
}

bool tm_attach_self(char session_path[256]) {
	struct start *s;
	int error = errno;
	bool started;

	if (is_launcher()) return tm_give_up("launchers, shells and tidemark itself are passed by");
	if (!is_preloaded()) return tm_give_up("libtidemark.so is not preloaded, but was loaded later");
	if (inherits_orphans()) return tm_give_up("it is the parent of all orphans here; start it with `tidemark record`");
	s = tm_raw_map(sizeof *s);
	if (!s) return tm_give_up("out of memory");
	tm_ours_begin();
	started = start_collector(s, session_path);
	if (started) tm_environment_set(TM_SESSION_ENV, session_path);
	tm_ours_end();
	if (s->environment) tm_raw_unmap(s->environment, s->environment_bytes);
	tm_raw_unmap(s, sizeof *s);
	errno = error;
	return started;
}
