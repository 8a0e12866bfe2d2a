/* names_command.c - `tidemark-record names`: names the addresses of a finished trace.
 *
 *      trace -> names_trace.c -> names.c -> [ chunks of the trace | new NAMES chunks | END with new totals ] -> rename
 *
 * For a trace that was recorded with --names=none, and for one that is named again where debug information is at hand. The new file
 * is written beside the old one and takes its place when it is whole, so that a full disk or a kill leaves the trace as it was.
 */
#include "recorder/collector/names.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recorder/collector/names_trace.h"
#include "recorder/collector/tell.h"
#include "schema/chunk.h"
#include "schema/records.h"

#define COPY_BYTES ((size_t)1 << 20)
#define ZSTD_LEVEL 3

enum status { DONE = 0, FAILED = 1, USAGE = 2 };

struct command {
	const char *trace, *output; /* output: NULL, the trace itself */
	const char **debug_dirs;    /* room for one an argument */
	size_t debug_dir_count;
	bool debuginfod, again, force, quiet;
	int in_fd, out_fd, target_fd;
	struct stat in_info;
	char target[PATH_MAX], temporary[PATH_MAX + 16];
	struct tm_names_trace input;
	struct tm_packer packer;
	uint32_t new_chunks;
};

static const char help[] = "usage: tidemark-record names TRACE [options]\n\n"
			   "Finds function, file, line and inlined calls for the addresses of a trace that\n"
			   "have no names yet, and adds them to the trace. Programs recorded with\n"
			   "--names=none are named this way, also on another machine that has the same\n"
			   "files, and traces are named again (--again) where debug information has been\n"
			   "installed since.\n\n"
			   "options:\n"
			   "  -o, --output FILE   write the named trace to FILE; else it takes the place of\n"
			   "                      TRACE once it is whole\n"
			   "      --force         overwrite FILE\n"
			   "      --debug-dir DIR look for programs, libraries and debug files in DIR, too:\n"
			   "                      DIR/.build-id/xx/yyyy.debug, DIR/PATH and DIR/NAME of the\n"
			   "                      module; may be given several times\n"
			   "      --debuginfod    ask the servers in DEBUGINFOD_URLS; the network is never\n"
			   "                      used without this option\n"
			   "      --again         look up every address again; what is found replaces the\n"
			   "                      old name\n"
			   "  -q, --quiet         say nothing but errors\n"
			   "  -h, --help          show this\n\n"
			   "A file whose build-id differs from the one that was recorded is never used. A\n"
			   "trace that is cut stays cut: its sound part is named. One that a recorder is\n"
			   "still writing is not replaced, but may be named into another file.\n\n"
			   "Exit status: 0 done, 1 failed (the trace is left as it was), 2 usage.\n\n"
			   "examples:\n"
			   "  tidemark-record names run.tmk\n"
			   "  tidemark-record names run.tmk -o named.tmk --debug-dir /mnt --debug-dir debug\n"
			   "  export DEBUGINFOD_URLS=https://debuginfod.debian.net\n"
			   "  tidemark-record names run.tmk --again --debuginfod\n";

/* ---- options */

static int misuse(const char *what, const char *text) {
	tm_tell("names: %s%s%s%s (see tidemark-record names --help)", what, text ? " '" : "", text ? text : "", text ? "'" : "");
	return USAGE;
}

enum option_code { OPTION_DEBUG_DIR = 256, OPTION_DEBUGINFOD, OPTION_AGAIN, OPTION_FORCE };

static const struct option options[] = {
	{ "output", required_argument, NULL, 'o' },
	{ "debug-dir", required_argument, NULL, OPTION_DEBUG_DIR },
	{ "debuginfod", no_argument, NULL, OPTION_DEBUGINFOD },
	{ "again", no_argument, NULL, OPTION_AGAIN },
	{ "force", no_argument, NULL, OPTION_FORCE },
	{ "quiet", no_argument, NULL, 'q' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

static int take_trace(struct command *c, const char *path) {
	if (c->trace) return misuse("one trace at a time, this is a second one:", path);
	c->trace = path;
	return 0;
}

/* 0; USAGE; or -1: help was asked for and shown. */
static int parse(struct command *c, int argc, char **argv) {
	optind = 0; /* start anew, whatever was parsed before */
	opterr = 0;
	/* The leading - gives operands as values of 1 where they stand: with POSIXLY_CORRECT nothing behind the first one would be an option. */
	for (int taken; (taken = getopt_long(argc, argv, "-:o:qh", options, NULL)) != -1;) {
		switch (taken) {
		case 1:
			if (take_trace(c, optarg)) return USAGE;
			break;
		case 'o': c->output = optarg; break;
		case 'q': c->quiet = true; break;
		case OPTION_DEBUG_DIR: c->debug_dirs[c->debug_dir_count++] = optarg; break;
		case OPTION_DEBUGINFOD: c->debuginfod = true; break;
		case OPTION_AGAIN: c->again = true; break;
		case OPTION_FORCE: c->force = true; break;
		case 'h': fputs(help, stdout); return -1;
		case ':': return misuse("option needs a value:", argv[optind - 1]);
		default: return misuse("unknown option", argv[optind - 1]);
		}
	}
	for (; optind < argc; optind++)
		if (take_trace(c, argv[optind])) return USAGE;
	return c->trace ? 0 : misuse("no trace to name", NULL);
}

/* ---- failures: one line each */

__attribute__((format(printf, 2, 3))) static int fail(const struct command *c, const char *format, ...) {
	char why[PATH_MAX + 256];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(why, sizeof why, format, arguments);
	va_end(arguments);
	tm_tell("cannot name '%s': %s", c->trace, why);
	return FAILED;
}

static void remark(void *context, const char *text) {
	const struct command *c = context;
	if (!c->quiet) tm_tell("%s", text);
}

/* ---- input */

static int open_input(struct command *c) {
	c->in_fd = open(c->trace, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (c->in_fd < 0 || fstat(c->in_fd, &c->in_info)) return fail(c, "%s", strerror(errno));
	if (!S_ISREG(c->in_info.st_mode)) return fail(c, "it is not a regular file");
	int error = tm_names_trace_read(&c->input, c->in_fd);
	if (error == TM_CHUNK_NEWER)
		return fail(c, "its format is newer than this version (%d.%d) knows", TM_FORMAT_MAJOR, TM_FORMAT_MINOR);
	if (error == TM_CHUNK_NO_MEMORY) return fail(c, "out of memory");
	if (error) return fail(c, "it is not a tidemark trace");
	return 0;
}

/* Says where a cut trace ends. A tail that may still be of use to somebody is not thrown away in place. */
static int check_whole(const struct command *c) {
	const struct tm_names_trace *t = &c->input;
	if (!t->stop) return 0;
	if (t->stop != TM_CHUNK_SHORT && !c->output)
		return fail(c, "%s at offset %jd; to name what comes before and keep this file, choose another with -o",
			    tm_chunk_error_text(t->stop), (intmax_t)t->sound_bytes);
	if (!c->quiet)
		tm_tell("'%s' is cut at offset %jd (%s): the %jd bytes from there on are left out", c->trace, (intmax_t)t->sound_bytes,
			tm_chunk_error_text(t->stop), (intmax_t)(t->size_bytes - t->sound_bytes));
	return 0;
}

/* ---- output */

/* What a recorder is still writing is not replaced, lest the rest of the recording be lost; none begins to before we have ended. */
static int hold_target(struct command *c) {
	c->target_fd = open(c->target, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (c->target_fd < 0 || flock(c->target_fd, LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK) return 0;
	return fail(c, "a recorder is still writing '%s'%s", c->target,
		    c->output ? "" : "; name it when that has ended, or write a named copy with -o");
}

/* What ends us before the file has its name is not to leave it behind. */
static const char *volatile unfinished_file;
static const int endings[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXCPU };

static void remove_unfinished(int number) {
	if (unfinished_file) unlink(unfinished_file);
	signal(number, SIG_DFL);
	raise(number);
}

/* Creates the file; a signal that comes before we know its name waits. The descriptor, or -1 with errno. */
static int create_unfinished(char *path) {
	sigset_t held, before;
	sigemptyset(&held);
	for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
		struct sigaction now;
		sigaddset(&held, endings[i]);
		if (sigaction(endings[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL) signal(endings[i], remove_unfinished);
	}
	sigprocmask(SIG_BLOCK, &held, &before);
	int fd = mkostemps(path, 4, O_CLOEXEC), error = errno;
	if (fd >= 0) unfinished_file = path;
	sigprocmask(SIG_SETMASK, &before, NULL);
	errno = error;
	return fd;
}

/* The new file lies beside its target, which is the file itself and not a link to it. */
static int open_output(struct command *c) {
	struct stat info;
	const char *wanted = c->output ? c->output : c->trace;
	if (c->output && !c->force && !lstat(c->output, &info) && (info.st_dev != c->in_info.st_dev || info.st_ino != c->in_info.st_ino))
		return fail(c, "'%s' exists (--force overwrites it)", c->output);
	if (!realpath(wanted, c->target)) snprintf(c->target, sizeof c->target, "%s", wanted);
	if (hold_target(c)) return FAILED;
	snprintf(c->temporary, sizeof c->temporary, "%s.XXXXXX.tmp", c->target);
	c->out_fd = create_unfinished(c->temporary);
	if (c->out_fd < 0) {
		c->temporary[0] = 0;
		return fail(c, "cannot create a file beside '%s': %s", c->target, strerror(errno));
	}
	/* Root keeps a trace whose it is; nobody else can give a file away, and then it is theirs. */
	if (fchown(c->out_fd, c->in_info.st_uid, c->in_info.st_gid)) errno = 0;
	if (fchmod(c->out_fd, c->in_info.st_mode & 0777)) return fail(c, "cannot set the mode of '%s': %s", c->temporary, strerror(errno));
	return 0;
}

static int write_all(const struct command *c, const uint8_t *data, size_t n) {
	while (n) {
		ssize_t done = write(c->out_fd, data, n);
		if (done < 0 && errno == EINTR) continue;
		if (done < 0) return fail(c, "cannot write '%s': %s", c->temporary, strerror(errno));
		data += done;
		n -= (size_t)done;
	}
	return 0;
}

static int copy_chunks(const struct command *c) {
	uint8_t *buffer = malloc(COPY_BYTES);
	if (!buffer) return fail(c, "out of memory");
	int error = 0;
	for (off_t at = 0; at < c->input.end_offset && !error;) {
		size_t want = c->input.end_offset - at < (off_t)COPY_BYTES ? (size_t)(c->input.end_offset - at) : COPY_BYTES;
		ssize_t got = pread(c->in_fd, buffer, want, at);
		if (got < 0 && errno == EINTR) continue;
		if (got <= 0) error = fail(c, "cannot read at offset %jd: %s", (intmax_t)at, got ? strerror(errno) : "it became shorter");
		else error = write_all(c, buffer, (size_t)got);
		at += got;
	}
	free(buffer);
	return error;
}

static int pack_and_write(struct command *c, uint8_t kind, const void *payload, size_t n) {
	int error = tm_pack(&c->packer, kind, payload, n);
	if (error) return fail(c, "%s", tm_chunk_error_text(error));
	return write_all(c, c->packer.out.data, c->packer.out.size);
}

static int take_names(void *context, const void *payload, size_t n) {
	struct command *c = context;
	c->new_chunks++;
	return pack_and_write(c, TM_CHUNK_NAMES, payload, n);
}

/* Who imports a cut trace of few names advises to look them up, and is to know that this was done. */
static int write_looked_up(struct command *c, size_t frame_count, uint64_t named) {
	struct tm_bytes payload = TM_BYTES_INIT;
	char text[128];
	snprintf(text, sizeof text, "of %zu address%s without a name, %" PRIu64 " got one later", frame_count, frame_count == 1 ? "" : "es",
		 named);
	struct tm_note note = { .kind = tm_text_of(TM_NOTE_LOOKED_UP), .text = tm_text_of(text) };
	tm_put_note(&payload, &note);
	int error = payload.failed ? fail(c, "out of memory") : take_names(c, payload.data, payload.size);
	tm_bytes_release(&payload);
	return error;
}

/* The END chunk with the new number of chunks before it; everything else in it stays, also what a later version added. */
static int write_end(struct command *c) {
	struct tm_cursor old = tm_cursor_over(c->input.end.data, c->input.end.size), body;
	struct tm_bytes payload = TM_BYTES_INIT, changed = TM_BYTES_INIT;
	uint64_t tag;
	while (tm_record_next(&old, &tag, &body)) {
		struct tm_cursor rest = body;
		tm_bytes_clear(&changed);
		if (tag == TM_RECORD_TOTALS) {
			struct tm_totals totals = tm_get_totals(&rest);
			tm_put_varint(&changed, totals.events);
			tm_put_varint(&changed, totals.chunks + c->new_chunks);
			tm_put_varint(&changed, totals.end_ns);
		}
		tm_put_raw(&changed, rest.p, (size_t)(rest.end - rest.p));
		tm_put_varint(&payload, tag);
		tm_put_string(&payload, changed.data, changed.size);
	}
	int error = payload.failed || changed.failed ? fail(c, "out of memory")
						     : pack_and_write(c, TM_CHUNK_END, payload.data, payload.size);
	tm_bytes_release(&payload);
	tm_bytes_release(&changed);
	return error;
}

/* ---- the whole of it */

/* Frames that have a module, and no name or --again. Moved to the front of the array; returns their number. */
static size_t choose_frames(struct command *c) {
	struct tm_names_frame *frames = c->input.frames;
	size_t chosen = 0;
	for (size_t i = 0; i < c->input.frame_count; i++)
		if (frames[i].module && (c->again || !tm_names_trace_is_named(&c->input, frames[i].id))) frames[chosen++] = frames[i];
	return chosen;
}

static int write_names(struct command *c, size_t frame_count, uint64_t *named) {
	struct tm_names_input in = {
		.modules = c->input.modules,
		.module_count = c->input.module_count,
		.frame = tm_names_frame_of,
		.frames = c->input.frames,
		.frame_count = frame_count,
		.start_unix_ns = c->input.start_unix_ns,
		.debug_dirs = c->debug_dirs,
		.debug_dir_count = c->debug_dir_count,
		.debuginfod = c->debuginfod,
		.progress = !c->quiet,
	};
	struct tm_names_output out = {
		.next_string_id = c->input.next_string_id, .write_chunk = take_names, .remark = remark, .context = c
	};
	int error = tm_names_write(&in, &out);
	*named = out.frames_named;
	if (error == TM_NAMES_NO_MEMORY) return fail(c, "out of memory");
	if (!error && !c->quiet)
		fprintf(stderr, "tidemark-record: named %" PRIu64 " of %zu address%s from %" PRIu64 " file%s\n", out.frames_named,
			frame_count, frame_count == 1 ? "" : "es", out.modules_read, out.modules_read == 1 ? "" : "s");
	return error;
}

static int write_trace(struct command *c) {
	size_t frame_count = choose_frames(c);
	if (!frame_count && !c->output) {
		if (!c->quiet) tm_tell("'%s' has no address without a name", c->trace);
		return 0;
	}
	if (tm_packer_init(&c->packer, ZSTD_LEVEL)) return fail(c, "out of memory");
	c->packer.sequence = c->input.end_sequence;
	uint64_t named = 0;
	int error = open_output(c);
	if (!error) error = copy_chunks(c);
	if (!error) error = write_names(c, frame_count, &named);
	bool is_news = !c->input.end.size && !c->input.looked_up;
	if (!error && !named && !is_news && !c->output) return 0; /* nothing was found, the trace can stay as it is */
	if (!error && is_news) error = write_looked_up(c, frame_count, named);
	if (!error && c->input.end.size) error = write_end(c);
	if (error) return error;
	if (fsync(c->out_fd)) return fail(c, "cannot write '%s': %s", c->temporary, strerror(errno));
	if (rename(c->temporary, c->target)) return fail(c, "cannot rename '%s' to '%s': %s", c->temporary, c->target, strerror(errno));
	unfinished_file = NULL;
	c->temporary[0] = 0;
	return 0;
}

static void release(struct command *c) {
	if (c->temporary[0]) unlink(c->temporary);
	unfinished_file = NULL;
	if (c->in_fd >= 0) close(c->in_fd);
	if (c->out_fd >= 0) close(c->out_fd);
	if (c->target_fd >= 0) close(c->target_fd);
	tm_packer_release(&c->packer);
	tm_names_trace_release(&c->input);
	free(c->debug_dirs);
}

int tm_names_command(int argc, char **argv) {
	struct command c = { .in_fd = -1, .out_fd = -1, .target_fd = -1, .debug_dirs = calloc((size_t)argc + 1, sizeof *c.debug_dirs) };
	if (!c.debug_dirs) return fputs("tidemark-record: names: out of memory\n", stderr), FAILED;
	int status = parse(&c, argc, argv);
	if (!status) status = open_input(&c);
	if (!status) status = check_whole(&c);
	if (!status) status = write_trace(&c);
	release(&c);
	return status < 0 ? DONE : status;
}
