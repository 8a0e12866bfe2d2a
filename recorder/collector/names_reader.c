/* names_reader.c - opens one module file, answers for its addresses, and ends.
 *
 * It runs in a process of its own, because libdw and libiberty are not proof against every damaged file, a file may be truncated while it
 * is mapped (SIGBUS), and debug information may need more memory than we would like to keep.
 */
#include "recorder/collector/names_reader.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "schema/wire.h"

#define READER_CPU_SECONDS 300
#define SEND_BYTES (1u << 16)

struct sender {
	int fd;
	struct tm_bytes out, message;
};

/* Dies with the parent, and by its first fault, without a core file. Whether a signal from outside ends the naming is the parent's to decide. */
static void settle(pid_t parent) {
	static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGXCPU, SIGPIPE };
	static const int requests[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM };
	struct rlimit no_core = { 0, 0 }, cpu = { READER_CPU_SECONDS, READER_CPU_SECONDS };
	sigset_t none;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent) _exit(1);
	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) signal(faults[i], SIG_DFL);
	for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) signal(requests[i], SIG_IGN);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setrlimit(RLIMIT_CORE, &no_core);
	setrlimit(RLIMIT_CPU, &cpu);
}

static void send_all(struct sender *s) {
	if (s->out.failed || s->message.failed) _exit(2);
	for (size_t sent = 0; sent < s->out.size;) {
		ssize_t n = write(s->fd, s->out.data + sent, s->out.size - sent);
		if (n < 0 && errno == EINTR) continue;
		if (n <= 0) _exit(2);
		sent += (size_t)n;
	}
	tm_bytes_clear(&s->out);
}

static void end_message(struct sender *s) {
	tm_put_string(&s->out, s->message.data, s->message.size);
	tm_bytes_clear(&s->message);
	if (s->out.size >= SEND_BYTES || s->message.failed) send_all(s);
}

static void put_text(struct tm_bytes *out, const char *text) {
	tm_put_string(out, text, text ? strlen(text) : 0);
}

static void put_opening(struct sender *s, int error, const char *remark) {
	tm_put_varint(&s->message, (uint64_t)-error);
	put_text(&s->message, remark);
	end_message(s);
	send_all(s);
}

static void put_answer(struct sender *s, const struct tm_debuginfo_function *functions, size_t count) {
	for (size_t i = 0; i < count; i++) {
		put_text(&s->message, functions[i].name);
		put_text(&s->message, functions[i].file);
		tm_put_varint(&s->message, functions[i].line);
	}
	end_message(s);
}

/* What the trace shall say about a file that was not opened. A module without a path ([vdso] and the like) is nothing to speak of. */
static void explain(char *text, size_t size, int error, const char *path, const char *why) {
	*text = 0;
	if (error == TM_SYMBOLS_NO_MEMORY) snprintf(text, size, "no names for '%s': out of memory", path);
	else if (error == TM_SYMBOLS_REFUSED) snprintf(text, size, "no names for '%s': %s", path, why);
	else if (error == TM_SYMBOLS_MISSING && *path == '/') snprintf(text, size, "no names for '%s': the file does not exist", path);
	else if (!error && *why) snprintf(text, size, "debug information for '%s': %s", path, why);
}

/* Each different path once. */
static const char **list_paths(const struct tm_names_job *job, size_t *count) {
	const char **paths = calloc(job->module_count, sizeof *paths);
	*count = 0;
	for (size_t i = 0; paths && i < job->module_count; i++) {
		const char *path = job->modules[i]->path;
		bool known = !path || !*path;
		for (size_t k = 0; k < *count && !known; k++) known = !strcmp(paths[k], path);
		if (!known) paths[(*count)++] = path;
	}
	return paths;
}

static int open_file(const struct tm_names_job *job, struct tm_symbols **symbols, char *text, size_t text_size) {
	const struct tm_names_module *module = job->modules[0];
	char why[400];
	struct tm_symbols_source source = {
		.build_id = module->build_id,
		.build_id_size = module->build_id_size,
		.loaded_unix_ns = job->in->start_unix_ns ? job->in->start_unix_ns + module->load_ns : 0,
		.debug_dirs = job->in->debug_dirs,
		.debug_dir_count = job->in->debug_dir_count,
		.debuginfod = job->in->debuginfod,
		.lines = job->lines,
	};
	const char **paths = list_paths(job, &source.path_count);
	if (!paths) return TM_SYMBOLS_NO_MEMORY;
	source.paths = paths;
	int error = tm_symbols_open(symbols, &source, why, sizeof why);
	explain(text, text_size, error, source.path_count ? paths[0] : "", why);
	free(paths);
	return error;
}

/* tidemark.h's own function around the call into the recorder is always inlined, and no frame: the program's call of it is the innermost one. */
static bool is_our_header(const char *function) {
	static const char name[] = "tidemark_heap_alloc";
	return function && !strncmp(function, name, sizeof name - 1) && (!function[sizeof name - 1] || function[sizeof name - 1] == '(');
}

_Noreturn void tm_names_reader_run(const struct tm_names_job *job, pid_t parent) {
	struct sender sender = { .fd = job->fd };
	struct tm_symbols *symbols;
	const struct tm_debuginfo_function *functions;
	char text[1024];
	settle(parent);
	int error = open_file(job, &symbols, text, sizeof text);
	put_opening(&sender, error, text);
	for (size_t i = 0; i < job->work_count && !error; i++) {
		if (i && job->work[i].offset == job->work[i - 1].offset) continue;
		size_t count = tm_symbols_find(symbols, job->work[i].offset, &functions);
		bool ours = count > 1 && is_our_header(functions[0].name);
		put_answer(&sender, functions + ours, count - ours);
	}
	send_all(&sender);
	_exit(0);
}
