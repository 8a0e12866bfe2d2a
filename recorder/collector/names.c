/* names.c - resolves the addresses of a recording, module by module, and writes them as NAMES chunks.
 *
 *      frames -> names_plan.c: what to look up, file by file -> a child for each file ==pipe==> names -> strings, ids -> payloads
 *                                                               (names_reader.c)
 *
 * What one file must answer stands together, so that one file is open at a time and each address is looked up once, however many processes loaded the file.
 *
 * Full payloads are packed and written by a thread, one at a time, while answers go on becoming the next: the user waits for all of it. There is no such thread
 * while we fork.
 *
 * The child keeps the recorder safe from damaged files and its memory from theirs. When a child dies over an address, a second one
 * continues from the symbol table alone; when that dies too, the rest of the file stays without names. Both are noted in the trace.
 */
#include "recorder/collector/names.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "recorder/collector/names_ahead.h"
#include "recorder/collector/names_plan.h"
#include "recorder/collector/names_reader.h"
#include "recorder/collector/names_stream.h"
#include "recorder/collector/own_thread.h"
#include "recorder/collector/string_table.h"
#include "schema/records.h"

#define PAYLOAD_BYTES (1u << 20)
#define BEHIND_BYTES (1u << 16) /* less is written sooner than a thread for it is started */
#define STARVED_MS 100
#define LOOK_MS 1000
#define PATIENCE_S 30 /* so long a file may keep its reader waiting without any work: a disk that has to wake, a server that is slow */
#define PATIENCE_WITH_DEBUGINFOD_S 120 /* its client has a limit of its own, of 90 s */
#define PATIENCE_LEFT_S 1 /* when one was given up: others may lie in the same place */

struct progress {
	bool wanted, terminal, shown;
	uint64_t start_ns, last_ns;
};

/* A payload on its way out. */
struct writing {
	struct tm_bytes payload;
	pthread_t thread;
	bool runs;
	int error; /* of the thread, once it has ended */
};

/* The texts that a reader has named of the file that it answers for. */
struct heard {
	uint64_t *texts; /* string ids, in the order of their coming */
	size_t text_count, text_capacity;
};

struct naming {
	const struct tm_names_input *in;
	struct tm_names_output *out;
	struct tm_names_plan plan;
	struct tm_string_table strings;
	struct heard heard;
	struct tm_bytes payload;
	struct writing writing;
	struct progress progress;
	size_t named; /* frames that are done with */
	unsigned patience_s;
	int error;
};

struct tm_names_frame tm_names_frame_of(const void *frames, size_t number) {
	return ((const struct tm_names_frame *)frames)[number];
}

/* ---- what goes into the trace */

static void *write_payload(void *argument) {
	struct naming *n = argument;
	n->writing.error = n->out->write_chunk(n->out->context, n->writing.payload.data, n->writing.payload.size);
	return NULL;
}

/* Of what is on its way. */
static int wait_for_writing(struct naming *n) {
	if (n->writing.runs) pthread_join(n->writing.thread, NULL);
	n->writing.runs = false;
	return n->writing.error;
}

static int flush(struct naming *n) {
	int error = wait_for_writing(n);
	if (error || !n->payload.size) return error;
	struct tm_bytes written = n->writing.payload;
	n->writing.payload = n->payload;
	n->payload = written;
	tm_bytes_clear(&n->payload);
	n->writing.runs = n->writing.payload.size >= BEHIND_BYTES && tm_own_thread_start(&n->writing.thread, write_payload, n);
	if (!n->writing.runs) write_payload(n);
	return n->writing.runs ? 0 : n->writing.error;
}

static uint64_t string_id(struct naming *n, struct tm_text text) {
	if (!text.size) return 0;
	uint64_t next = n->out->next_string_id, id = tm_string_table_id(&n->strings, text, next);
	if (id != next) return id;
	tm_put_string_record(&n->payload, id, text);
	n->out->next_string_id++;
	return id;
}

static void put_note(struct naming *n, const struct tm_names_module *module, const char *text) {
	struct tm_note note = { module->process, n->in->note_ns, tm_text_of("names"), tm_text_of(text) };
	if (n->out->remark) n->out->remark(n->out->context, text);
	else tm_put_note(&n->payload, &note);
}

/* A text that the reader will name by its number from now on. */
static void take_text(struct naming *n, struct tm_text text) {
	struct heard *h = &n->heard;
	if (h->text_count == h->text_capacity) {
		size_t capacity = h->text_capacity ? 2 * h->text_capacity : 1024;
		uint64_t *grown = reallocarray(h->texts, capacity, sizeof *grown);
		if (!grown) {
			n->error = TM_NAMES_NO_MEMORY;
			return;
		}
		h->texts = grown;
		h->text_capacity = capacity;
	}
	h->texts[h->text_count++] = string_id(n, text);
}

/* Of the text with this number; a reader that a damaged file has led astray may name others. */
static uint64_t text_id(const struct naming *n, uint64_t number) {
	return number && number <= n->heard.text_count ? n->heard.texts[number - 1] : 0;
}

/* One answer of the reader: the functions of one address, for every frame that has it. */
static void take_answer(struct naming *n, size_t spot, struct tm_cursor answer) {
	struct tm_function functions[TM_DEBUGINFO_MAX_CHAIN];
	size_t count = 0;
	for (uint64_t texts = tm_get_varint(&answer); texts && !answer.bad && !n->error; texts--) take_text(n, tm_get_string(&answer));
	while (answer.p < answer.end && count < TM_DEBUGINFO_MAX_CHAIN) {
		uint64_t function = text_id(n, tm_get_varint(&answer)), file = text_id(n, tm_get_varint(&answer)), line = tm_get_varint(&answer);
		functions[count++] = (struct tm_function){ function, file, line };
	}
	if (!count) return;
	const struct tm_names_spot *s = &n->plan.spots[spot];
	const uint64_t *frames = n->plan.frames + s->first;
	for (size_t i = 0; i < s->count; i++) tm_put_name(&n->payload, frames[i], functions, count);
	n->out->frames_named += s->count;
}

/* ---- the progress line */

static uint64_t now_ns(void) {
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void start_progress(struct naming *n) {
	n->progress = (struct progress){ .wanted = n->in->progress, .terminal = isatty(STDERR_FILENO), .start_ns = now_ns() };
}

/* From the first second on: a line that rewrites itself on a terminal; elsewhere a line now and every 10 seconds. */
static void show_progress(struct naming *n, const struct tm_names_module *module) {
	struct progress *p = &n->progress;
	uint64_t now = now_ns(), elapsed_ns = now - p->start_ns;
	uint64_t wait_ns = !p->shown ? 1000000000 : p->terminal ? 200000000 : 10000000000;
	if (!p->wanted || now - (p->shown ? p->last_ns : p->start_ns) < wait_ns) return;
	const char *slash = module->path ? strrchr(module->path, '/') : NULL;
	fprintf(stderr, "%stidemark-record: naming addresses: %zu of %zu (%zu%%), %.0f a second, now in %s%s", p->terminal ? "\r" : "",
		n->named, n->plan.frame_count, n->named * 100 / n->plan.frame_count, (double)n->named * 1e9 / (double)elapsed_ns, slash ? slash + 1 : "-",
		p->terminal ? "\033[K" : "\n");
	p->shown = true;
	p->last_ns = now;
}

static void end_progress(struct naming *n) {
	if (n->progress.shown && n->progress.terminal) fputs("\r\033[K", stderr);
}

/* ---- one file */

struct file_work {
	size_t first_module, module_end; /* in plan.modules */
	size_t at, end;                  /* in plan.spots: what is still to answer */
	size_t frame_count;              /* of all of them */
	bool answered;                   /* the reader has said whether it could open the file */
	bool opened;
	bool told;    /* and it is written */
	bool starved; /* the reader that was started ahead got no processor */
	bool stuck;   /* a reader of our own neither answers nor works */
	struct tm_ahead_reader *ahead; /* the reader that was started ahead, if it was asked: the file is this turn of its stream */
	size_t turn;
	bool again; /* the second reader of this file, after the first one died */
};

/* The first message: whether the file was opened, and what there is to say about it. */
static void take_opening(struct naming *n, struct file_work *file, struct tm_cursor message) {
	uint64_t error = tm_get_varint(&message);
	struct tm_text why = tm_get_string(&message);
	file->answered = true;
	file->opened = !error;
	if (file->again || file->told || (error && file->ahead)) return; /* another reader will say it */
	file->told = true;
	if (!error) n->out->modules_read++;
	else n->out->modules_refused += why.size != 0;
	if (!why.size) return;
	char text[1024];
	snprintf(text, sizeof text, "%.*s", (int)why.size, why.data);
	put_note(n, n->plan.modules[file->first_module], text);
}

static void take_message(struct naming *n, struct file_work *file, const struct tm_names_message *m) {
	if (m->is_opening) {
		take_opening(n, file, m->content);
		return;
	}
	take_answer(n, file->at, m->content);
	n->named += n->plan.spots[file->at++].count;
	if (n->payload.failed) n->error = TM_NAMES_NO_MEMORY;
	if (!n->error && n->payload.size >= PAYLOAD_BYTES) n->error = flush(n);
}

/* Nothing more comes about the file. */
static bool is_heard(const struct file_work *file) {
	return file->at == file->end || (file->answered && !file->opened);
}

/* Passes over what is said of files that somebody else has read since. */
static void take_messages(struct naming *n, struct file_work *file, struct tm_names_stream *s, size_t turn) {
	struct tm_names_message m;
	while (!n->error && !is_heard(file) && tm_names_stream_next(s, &m))
		if (m.turn == turn) take_message(n, file, &m);
}

static uint64_t cpu_ns(clockid_t process) {
	struct timespec used = { 0, 0 };
	clock_gettime(process, &used);
	return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

/* Waits until a reader that gives way to everything else that runs answers, or takes more of what it is asked. True: it hardly gets a processor. */
static bool is_starved(const struct tm_ahead_reader *r, int wait_ms) {
	struct pollfd ready = { .fd = r->stream.fd, .events = (short)(POLLIN | (r->out.size ? POLLOUT : 0)) };
	clockid_t clock;
	if (clock_getcpuclockid(r->pid, &clock) != 0) return false;
	for (;;) {
		uint64_t before = cpu_ns(clock);
		int count = poll(&ready, 1, wait_ms);
		if (count < 0 && errno == EINTR) continue;
		if (count != 0) return false;
		if (!wait_ms || cpu_ns(clock) - before < (uint64_t)wait_ms * 1000000 / 4) return true;
	}
}

/* Waits for an answer of one that takes what processor it needs. True: none has come, nor has it worked, for as long as a file may keep it waiting. Looked at
 * one by one: where we were stopped for a while, so was it. */
static bool is_stuck(pid_t reader, int fd, unsigned patience_s) {
	struct pollfd answer = { .fd = fd, .events = POLLIN };
	clockid_t clock;
	if (clock_getcpuclockid(reader, &clock) != 0) return false;
	uint64_t worked_ns = cpu_ns(clock);
	for (unsigned idle_s = 0; idle_s < patience_s;) {
		int ready = poll(&answer, 1, LOOK_MS);
		if (ready < 0 && errno == EINTR) continue; /* to read now would be to wait without a limit */
		if (ready != 0) return false;
		uint64_t now_ns = cpu_ns(clock);
		idle_s = now_ns != worked_ns ? 0 : idle_s + 1;
		worked_ns = now_ns;
	}
	return true;
}

/* More of what it says. False: it has ended, or there is no memory. */
static bool receive(struct naming *n, const struct file_work *file, struct tm_names_stream *s) {
	ssize_t got = tm_names_stream_receive(s);
	if (got < 0) n->error = TM_NAMES_NO_MEMORY;
	if (got > 0) show_progress(n, n->plan.modules[file->first_module]);
	return got > 0;
}

/* To its last answer, not to its end: a large one takes its time to give back its memory. */
static void listen_to_own(struct naming *n, struct file_work *file, pid_t reader, struct tm_names_stream *s) {
	for (;;) {
		take_messages(n, file, s, 0);
		if (n->error || is_heard(file)) return;
		file->stuck = is_stuck(reader, s->fd, n->patience_s);
		if (file->stuck || !receive(n, file, s)) return;
	}
}

static bool has_answers(int fd) {
	struct pollfd answers = { .fd = fd, .events = POLLIN };
	return poll(&answers, 1, 0) > 0;
}

/* It answers when it has been asked for all; and before it takes that it may have to get rid of what it was asked while the program ran. */
static void listen_ahead(struct naming *n, struct file_work *file, int wait_ms) {
	struct tm_ahead_reader *r = file->ahead;
	for (;;) {
		take_messages(n, file, &r->stream, file->turn);
		if (n->error || is_heard(file)) return;
		file->starved = is_starved(r, wait_ms);
		if (file->starved || (r->out.size && !tm_names_ahead_send(r))) return;
		if (has_answers(r->stream.fd) && !receive(n, file, &r->stream)) return;
	}
}

/* What the file is asked for. NULL: out of memory. */
static uint64_t *list_offsets(const struct naming *n, const struct file_work *file) {
	uint64_t *offsets = malloc((file->end - file->at + 1) * sizeof *offsets);
	for (size_t i = file->at; offsets && i < file->end; i++) offsets[i - file->at] = tm_names_plan_offset(&n->plan, i);
	return offsets;
}

/* Sorted: a damaged file may kill one over an address, and debuginfo.h wants them so. */
static pid_t start_reader(struct naming *n, const struct file_work *file, struct tm_names_stream *s) {
	int ends[2];
	tm_names_plan_sort(&n->plan, file->at, file->end);
	n->error = wait_for_writing(n);
	if (n->error || pipe(ends)) return -1;
	struct tm_names_job job = {
		.in = n->in,
		.modules = n->plan.modules + file->first_module,
		.module_count = file->module_end - file->first_module,
		.lines = !file->again,
		.fd = ends[1],
	};
	uint64_t *offsets = list_offsets(n, file);
	job.offsets = offsets;
	job.offset_count = file->end - file->at;
	pid_t parent = getpid(), child = offsets ? fork() : -1;
	if (child == 0) {
		close(ends[0]);
		tm_names_reader_run(&job, parent);
	}
	free(offsets);
	close(ends[1]);
	s->fd = ends[0];
	if (child > 0 && tm_names_stream_expect(s, job.offset_count) == SIZE_MAX) n->error = TM_NAMES_NO_MEMORY;
	return child;
}

static void how_it_ended(pid_t child, char text[64]) {
	int status = 0;
	pid_t ended;
	do ended = waitpid(child, &status, 0);
	while (ended < 0 && errno == EINTR);
	if (ended == child && WIFSIGNALED(status)) snprintf(text, 64, "ended with signal %d", WTERMSIG(status));
	else snprintf(text, 64, "ended with status %d", ended == child ? WEXITSTATUS(status) : -1);
}

/* A reader that is asked now works while others are listened to. */
static void ask_ahead(struct naming *n, struct file_work *file) {
	uint64_t *offsets = n->in->ahead ? list_offsets(n, file) : NULL;
	if (!offsets) return;
	file->ahead = tm_names_ahead_ask(n->in->ahead, n->plan.modules[file->first_module], offsets, file->end - file->at, &file->turn, &file->told);
	free(offsets);
}

/* It has said what it had to say, or is not listened to any more. */
static void end_or_reap(struct naming *n, const struct file_work *file, pid_t child, char ending[64]) {
	snprintf(ending, 64, "stood still for %u s", n->patience_s);
	if (n->error || file->stuck || file->at == file->end) tm_names_reader_kill(child);
	else how_it_ended(child, ending);
	if (file->stuck) n->patience_s = PATIENCE_LEFT_S;
}

/* Runs one reader. true: it got to the end of the file's work, or the file cannot be opened. */
static bool read_file(struct naming *n, struct file_work *file) {
	char ending[64], text[512];
	struct tm_names_stream stream = { .fd = -1 };
	const struct tm_names_module *module = n->plan.modules[file->first_module];
	file->answered = file->opened = false;
	n->heard.text_count = 0;
	pid_t child = start_reader(n, file, &stream);
	if (child > 0) {
		if (!n->error) listen_to_own(n, file, child, &stream);
		end_or_reap(n, file, child, ending);
	}
	tm_names_stream_release(&stream);
	if (n->error || is_heard(file)) return true;
	if (child < 0) {
		snprintf(text, sizeof text, "no names for '%s': cannot start a process: %s", module->path, strerror(errno));
		put_note(n, module, text);
		return true;
	}
	snprintf(text, sizeof text, "reading %s of '%s' %s: %s", file->again ? "symbols" : "debug information", module->path,
		 ending, file->again ? "the rest has no names" : "the rest is named from its symbols");
	put_note(n, module, text);
	return false;
}

static void name_anew(struct naming *n, struct file_work *file) {
	if (read_file(n, file)) return;
	file->again = true;
	read_file(n, file);
}

/* Has a file read anew, as its reader hardly gets a processor. false: the file is gone or was replaced since; then spots stand again as that reader was asked
 * for them. */
static bool read_instead(struct naming *n, struct file_work *file) {
	struct heard heard = n->heard;
	struct file_work other = *file;
	struct tm_names_spot *spots = n->plan.spots + file->at, *asked = malloc((file->end - file->at) * sizeof *asked);
	if (!asked) {
		n->error = TM_NAMES_NO_MEMORY;
		return true;
	}
	memcpy(asked, spots, (file->end - file->at) * sizeof *asked);
	n->heard = (struct heard){ 0 };
	name_anew(n, &other);
	free(n->heard.texts);
	n->heard = heard;
	bool gone = !other.opened && !n->error;
	if (gone) memcpy(spots, asked, (file->end - file->at) * sizeof *asked);
	else *file = other;
	free(asked);
	return !gone;
}

/* From the reader that was started ahead. False: the rest of the file is to be read anew, as if there were none. */
static bool name_ahead(struct naming *n, struct file_work *file) {
	struct tm_ahead_reader *r = file->ahead;
	if (r->stream.fd < 0) return false;
	n->heard.text_count = 0;
	listen_ahead(n, file, r->late ? 0 : STARVED_MS);
	if (file->starved && !n->error) {
		r->late = true;
		if (read_instead(n, file)) return true;
		listen_ahead(n, file, (int)n->patience_s * 1000);
	}
	return n->error || file->at == file->end;
}

static void name_file(struct naming *n, struct file_work *file) {
	if (file->ahead && name_ahead(n, file)) return;
	file->ahead = NULL;
	name_anew(n, file);
}

/* The files that there is work for, in the order of the work. */
static struct file_work *list_files(const struct naming *n, size_t *count) {
	const struct tm_names_plan *p = &n->plan;
	struct file_work *files = calloc(p->file_count + 1, sizeof *files);
	*count = 0;
	for (size_t at = 0, end; files && at < p->spot_count; at = end) {
		size_t file = tm_names_plan_file(p, at), frame_count = 0;
		for (end = at; end < p->spot_count && tm_names_plan_file(p, end) == file; end++) frame_count += p->spots[end].count;
		files[(*count)++] = (struct file_work){ .first_module = p->files[file],
							.module_end = file + 1 < p->file_count ? p->files[file + 1] : p->module_count,
							.at = at,
							.end = end,
							.frame_count = frame_count };
	}
	return files;
}

/* What has most work first: the other readers are at theirs meanwhile. */
static int by_work(const void *left, const void *right) {
	const struct file_work *a = left, *b = right;
	size_t work_a = a->end - a->at, work_b = b->end - b->at;
	return work_a != work_b ? (work_a < work_b ? 1 : -1) : a->at < b->at ? -1 : a->at > b->at;
}

static int name_files(struct naming *n) {
	size_t count;
	struct file_work *files = list_files(n, &count);
	if (!files) return TM_NAMES_NO_MEMORY;
	qsort(files, count, sizeof *files, by_work);
	for (size_t i = 0; i < count; i++) ask_ahead(n, &files[i]);
	if (n->in->ahead) tm_names_ahead_go(n->in->ahead);
	for (size_t i = 0; i < count && !n->error; i++) {
		size_t named = n->named + files[i].frame_count;
		name_file(n, &files[i]);
		n->named = named;
	}
	free(files);
	return n->error;
}

int tm_names_write(const struct tm_names_input *in, struct tm_names_output *out) {
	struct naming n = { .in = in, .out = out, .patience_s = in->debuginfod ? PATIENCE_WITH_DEBUGINFOD_S : PATIENCE_S };
	if (in->patience_s) n.patience_s = in->patience_s;
	out->frames_named = out->modules_read = out->modules_refused = 0;
	n.error = tm_names_plan_make(&n.plan, in);
	start_progress(&n);
	if (!n.error) n.error = name_files(&n);
	end_progress(&n);
	if (!n.error) n.error = flush(&n);
	int error = wait_for_writing(&n);
	if (!n.error) n.error = error;
	if (!n.error && (n.strings.failed || n.payload.failed)) n.error = TM_NAMES_NO_MEMORY;
	tm_string_table_release(&n.strings);
	tm_bytes_release(&n.payload);
	tm_bytes_release(&n.writing.payload);
	free(n.heard.texts);
	tm_names_plan_release(&n.plan);
	return n.error;
}
