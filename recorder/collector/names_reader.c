/* names_reader.c - opens a module file, or several, answers for their addresses, and ends.
 *
 * It runs in a process of its own, because libdw and libiberty are not proof against every damaged file, a file may be truncated while it
 * is mapped (SIGBUS), and debug information may need more memory than we would like to keep.
 */
#include "recorder/collector/names_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recorder/collector/names_ahead.h"
#include "recorder/collector/string_table.h"
#include "schema/records.h"

#define READER_CPU_SECONDS 300
#define SEND_BYTES (1u << 16)
#define END_LOOK_US 100
#define END_LOOKS 10000 /* then it is left */
#define PLACES_AHEAD 16u
#define NICENESS 5        /* of a reader that somebody waits for while the program runs */
#define NICENESS_AHEAD 19 /* of one whose answers are wanted at the end */

/* To whoever else wants to run: dozens that are only nice would together still take a share. And a processor where nothing else runs counts as free, so that
 * the recorder need not share the program's when it wakes. */
static void give_way(void) {
	struct sched_param none = { 0 };
	if (setpriority(PRIO_PROCESS, 0, NICENESS_AHEAD) != 0) errno = 0;
	if (sched_setscheduler(0, SCHED_IDLE, &none) != 0) errno = 0;
}

struct sender {
	int fd;
	struct tm_bytes out, message, texts; /* texts: of the message that is made */
};

/* Dies with the parent, and by its first fault, without a core file. Whether a signal from outside ends or stops the naming is the parent's to decide. */
static void settle(pid_t parent) {
	static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGXCPU, SIGPIPE };
	static const int requests[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTSTP, SIGTTIN, SIGTTOU };
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

/* One that stands still for ever must not keep open what somebody reads to its end: `tidemark record ... | less`. */
static void leave_streams(int fd) {
	int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int stream = 0; nowhere >= 0 && stream <= 2; stream++)
		if (stream != fd && stream != nowhere) dup2(nowhere, stream);
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

/* What is known of one address. */
static size_t find_functions(struct tm_symbols *symbols, uint64_t offset, const struct tm_debuginfo_function **functions) {
	size_t count = tm_symbols_find(symbols, offset, functions), first = count > 1 && is_our_header((*functions)[0].name);
	*functions += first;
	return count - first;
}

/* --- answers --- */

struct text {
	size_t at, size; /* with its length before it, in texts.bytes */
	uint64_t sent;   /* its number there, in the order of being sent; 0: not yet */
};

struct texts { /* of names and files, each once */
	struct tm_string_table numbers; /* from 1 on */
	struct tm_bytes bytes;
	struct text *all; /* by number - 1 */
	size_t capacity;
	uint64_t sent_count;
};

struct answer { /* so many of known.functions */
	size_t first, count;
};

struct function {
	uint64_t name, file, line; /* numbers of texts; 0: not known */
};

struct place { /* of an offset's answer: by number, from 1 on; 0: none */
	uint64_t offset;
	size_t number;
};

struct known { /* what was looked up */
	struct place *places; /* open addressing, at most half full */
	size_t place_mask;
	struct answer *answers;
	struct function *functions;
	size_t count, capacity, function_count, function_capacity;
	struct texts texts;
};

static void *grow(void *items, size_t *capacity, size_t needed, size_t item_bytes) {
	if (needed <= *capacity) return items;
	size_t wanted = *capacity ? 2 * *capacity : 1024;
	items = reallocarray(items, wanted < needed ? needed : wanted, item_bytes);
	if (!items) _exit(2);
	*capacity = wanted < needed ? needed : wanted;
	return items;
}

static uint64_t text_number(struct texts *t, const char *text) {
	if (!text || !*text) return 0;
	uint64_t next = t->numbers.count + 1, number = tm_string_table_id(&t->numbers, tm_text_of(text), next);
	if (t->numbers.failed) _exit(2);
	if (number != next) return number;
	t->all = grow(t->all, &t->capacity, number, sizeof *t->all);
	size_t at = t->bytes.size;
	put_text(&t->bytes, text);
	if (t->bytes.failed) _exit(2);
	t->all[number - 1] = (struct text){ at, t->bytes.size - at, 0 };
	return number;
}

/* Says the text with the answer that needs it first. How many were said: 0 or 1. */
static unsigned put_new_text(struct tm_bytes *out, struct texts *t, uint64_t number) {
	if (!number || t->all[number - 1].sent) return 0;
	struct text *text = &t->all[number - 1];
	text->sent = ++t->sent_count;
	tm_put_raw(out, t->bytes.data + text->at, text->size);
	return 1;
}

static uint64_t sent_number(const struct texts *t, uint64_t number) {
	return number ? t->all[number - 1].sent : 0;
}

static size_t place_hash(uint64_t offset) {
	return (size_t)(offset * 0x9E3779B97F4A7C15ull >> 32);
}

static struct place *place_of(const struct known *k, uint64_t offset) {
	size_t at = place_hash(offset) & k->place_mask;
	while (k->places[at].number && k->places[at].offset != offset) at = (at + 1) & k->place_mask;
	return &k->places[at];
}

static void grow_places(struct known *k) {
	struct known larger = { .place_mask = k->places ? 2 * k->place_mask + 1 : 1023 };
	larger.places = calloc(larger.place_mask + 1, sizeof *larger.places);
	if (!larger.places) _exit(2);
	for (size_t i = 0; k->places && i <= k->place_mask; i++)
		if (k->places[i].number) *place_of(&larger, k->places[i].offset) = k->places[i];
	free(k->places);
	k->places = larger.places;
	k->place_mask = larger.place_mask;
}

/* For what will be looked up soon: who asks at the end waits for thousands of answers, and memory is what they wait for. */
static void fetch_place(const struct known *k, uint64_t offset) {
	if (k->places) __builtin_prefetch(&k->places[place_hash(offset) & k->place_mask]);
}

static const struct answer *look_up(struct known *k, struct tm_symbols *symbols, uint64_t offset) {
	if (2 * k->count >= k->place_mask) grow_places(k);
	struct place *place = place_of(k, offset);
	if (place->number) return &k->answers[place->number - 1];
	*place = (struct place){ offset, k->count + 1 };
	const struct tm_debuginfo_function *functions;
	size_t count = find_functions(symbols, offset, &functions);
	k->answers = grow(k->answers, &k->capacity, k->count + 1, sizeof *k->answers);
	k->functions = grow(k->functions, &k->function_capacity, k->function_count + count, sizeof *k->functions);
	k->answers[k->count++] = (struct answer){ k->function_count, count };
	for (size_t i = 0; i < count; i++)
		k->functions[k->function_count++] = (struct function){ text_number(&k->texts, functions[i].name), text_number(&k->texts, functions[i].file),
								       functions[i].line };
	return &k->answers[k->count - 1];
}

static void put_answer(struct sender *s, struct known *k, const struct answer *a) {
	const struct function *functions = &k->functions[a->first];
	unsigned new_texts = 0;
	for (size_t i = 0; i < a->count; i++)
		new_texts += put_new_text(&s->texts, &k->texts, functions[i].name) + put_new_text(&s->texts, &k->texts, functions[i].file);
	tm_put_varint(&s->message, new_texts);
	tm_put_raw(&s->message, s->texts.data, s->texts.size);
	if (s->texts.failed) _exit(2);
	tm_bytes_clear(&s->texts);
	for (size_t i = 0; i < a->count; i++) {
		tm_put_varint(&s->message, sent_number(&k->texts, functions[i].name));
		tm_put_varint(&s->message, sent_number(&k->texts, functions[i].file));
		tm_put_varint(&s->message, functions[i].line);
	}
	end_message(s);
}

/* --- started ahead --- */

static int compare_offsets(const void *left, const void *right) {
	const uint64_t *a = left, *b = right;
	return *a < *b ? -1 : *a > *b;
}

/* The next turn of the file has its texts from the first one on. */
static void forget_sent(struct texts *t) {
	for (size_t i = 0; i < t->numbers.count; i++) t->all[i].sent = 0;
	t->sent_count = 0;
}

static void learn(struct known *k, struct tm_symbols *symbols, uint64_t *offsets, size_t n) {
	qsort(offsets, n, sizeof offsets[0], compare_offsets); /* debuginfo.h wants them so */
	for (size_t i = 0; i < n; i++) look_up(k, symbols, offsets[i]);
}

/* false: that was the end. */
static bool receive(int fd, void *to, size_t n) {
	for (size_t done = 0; done < n;) {
		ssize_t got = read(fd, (uint8_t *)to + done, n - done);
		if (got < 0 && errno == EINTR) continue;
		if (got <= 0) return false;
		done += (size_t)got;
	}
	return true;
}

/* The words behind a request's head; *offsets grows to hold them. */
static bool receive_words(int fd, uint64_t **offsets, size_t *capacity, size_t n) {
	if (n > *capacity) {
		uint64_t *grown = reallocarray(*offsets, n, sizeof *grown);
		if (!grown) _exit(2);
		*offsets = grown;
		*capacity = n;
	}
	return receive(fd, *offsets, n * sizeof **offsets);
}

struct served { /* a file */
	struct tm_symbols *symbols; /* NULL: it could not be opened, for this reason: */
	int error;
	char *remark;
	struct known known;
	uint64_t *asked; /* offsets to answer for */
	size_t asked_count;
};

struct serving {
	struct sender sender;
	struct served *files;
	size_t count, capacity;
	size_t *order, order_count, order_capacity; /* of the files that were asked for */
};

static void open_served(struct serving *s, const void *request, size_t n) {
	struct tm_cursor c = tm_cursor_over(request, n);
	uint64_t loaded_unix_ns = tm_get_varint(&c);
	struct tm_text build_id = tm_get_string(&c), path = tm_get_string(&c);
	char *file = strndup(path.data ? path.data : "", path.size), text[1024] = "";
	struct tm_names_module module = { .path = file, .build_id = (const uint8_t *)build_id.data, .build_id_size = build_id.size };
	const struct tm_names_module *modules[] = { &module };
	struct tm_names_input in = { .module_count = 1, .start_unix_ns = loaded_unix_ns };
	struct tm_names_job job = { .in = &in, .modules = modules, .module_count = 1, .lines = true };
	struct served opened = { .error = TM_SYMBOLS_NO_MEMORY };
	if (file) opened.error = open_file(&job, &opened.symbols, text, sizeof text);
	if (opened.error) opened.symbols = NULL;
	opened.remark = strdup(text);
	free(file);
	s->files = grow(s->files, &s->capacity, s->count + 1, sizeof *s->files);
	s->files[s->count++] = opened;
}

/* Answers later; the offsets are the file's from now on. */
static void keep_asked(struct serving *s, size_t file, uint64_t *offsets, size_t n) {
	s->files[file].asked = offsets;
	s->files[file].asked_count = n;
	s->order = grow(s->order, &s->order_capacity, s->order_count + 1, sizeof *s->order);
	s->order[s->order_count++] = file;
}

/* At once; offsets come sorted, as debuginfo.h wants them. */
static void tell(struct sender *s, struct served *f, const uint64_t *offsets, size_t n) {
	put_opening(s, f->error, f->remark);
	for (size_t i = 0; i < n && f->symbols; i++) put_answer(s, &f->known, look_up(&f->known, f->symbols, offsets[i]));
	send_all(s);
}

static void answer(struct sender *s, struct served *f) {
	forget_sent(&f->known.texts);
	put_opening(s, f->error, f->remark);
	for (size_t i = 0; i < f->asked_count && f->symbols; i++) {
		if (i + PLACES_AHEAD < f->asked_count) fetch_place(&f->known, f->asked[i + PLACES_AHEAD]);
		put_answer(s, &f->known, look_up(&f->known, f->symbols, f->asked[i]));
	}
}

_Noreturn void tm_names_reader_serve(int fd) {
	struct serving s = { .sender = { .fd = fd } };
	uint64_t head[TM_AHEAD_HEAD_WORDS], *words = NULL;
	size_t capacity = 0;
	settle(getppid());
	leave_streams(fd);
	give_way();
	for (;;) {
		if (!receive(fd, head, sizeof head)) _exit(0);
		if (head[0] == TM_AHEAD_GO) break;
		uint64_t kind = head[0], file = head[1], n = head[2];
		if (!receive_words(fd, &words, &capacity, kind == TM_AHEAD_OPEN ? (n + 7) / 8 : n)) _exit(0);
		if (kind == TM_AHEAD_OPEN) {
			open_served(&s, words, n);
			continue;
		}
		if (file >= s.count) _exit(2);
		if (kind == TM_AHEAD_LEARN && s.files[file].symbols) learn(&s.files[file].known, s.files[file].symbols, words, n);
		if (kind == TM_AHEAD_TELL) tell(&s.sender, &s.files[file], words, n);
		if (kind != TM_AHEAD_ANSWER) continue;
		keep_asked(&s, file, words, n);
		words = NULL;
		capacity = 0;
	}
	for (size_t i = 0; i < s.order_count; i++) answer(&s.sender, &s.files[s.order[i]]);
	send_all(&s.sender);
	_exit(0);
}

/* --- asked while the program runs --- */

static void put_function(struct tm_bytes *out, const struct tm_debuginfo_function *f) {
	put_text(out, f->name);
	put_text(out, f->file);
	tm_put_varint(out, f->line);
}

struct opened { /* a file that was asked about */
	char *path;
	uint8_t *build_id;
	size_t build_id_size;
	struct tm_symbols *symbols; /* NULL: it could not be opened */
};

static void open_for(struct opened *o, const char *path, struct tm_text build_id) {
	char why[400];
	const char *paths[] = { path };
	*o = (struct opened){ .path = strdup(path), .build_id = malloc(build_id.size + 1), .build_id_size = build_id.size };
	if (!o->path || !o->build_id) _exit(2);
	memcpy(o->build_id, build_id.data, build_id.size);
	struct tm_symbols_source source = {
		.paths = paths, .path_count = 1, .build_id = o->build_id, .build_id_size = build_id.size, .lines = true
	};
	if (tm_symbols_open(&o->symbols, &source, why, sizeof why) != 0) o->symbols = NULL;
}

/* Beyond so many files nothing is known: they stay open. */
static struct tm_symbols *symbols_of(struct opened *all, size_t *count, const char *path, struct tm_text build_id) {
	for (size_t i = 0; i < *count; i++)
		if (!strcmp(all[i].path, path) && all[i].build_id_size == build_id.size && !memcmp(all[i].build_id, build_id.data, build_id.size))
			return all[i].symbols;
	if (*count == TM_LOOKUP_FILES_MAX) return NULL;
	open_for(&all[*count], path, build_id);
	return all[(*count)++].symbols;
}

_Noreturn void tm_names_reader_look_up(int fd) {
	struct sender sender = { .fd = fd };
	static struct opened all[TM_LOOKUP_FILES_MAX];
	size_t count = 0;
	uint32_t size;
	settle(getppid());
	if (setpriority(PRIO_PROCESS, 0, NICENESS) != 0) errno = 0;
	while (receive(fd, &size, sizeof size) && size <= TM_LOOKUP_REQUEST_MAX) {
		static uint8_t request[TM_LOOKUP_REQUEST_MAX];
		if (!receive(fd, request, size)) break;
		struct tm_cursor c = tm_cursor_over(request, size);
		struct tm_text build_id = tm_get_string(&c), text = tm_get_string(&c);
		uint64_t offset = tm_get_varint(&c);
		char *path = c.bad ? NULL : strndup(text.data, text.size);
		struct tm_symbols *symbols = path ? symbols_of(all, &count, path, build_id) : NULL;
		const struct tm_debuginfo_function *functions;
		size_t functions_found = symbols ? find_functions(symbols, offset, &functions) : 0;
		for (size_t i = 0; i < functions_found; i++) put_function(&sender.message, &functions[i]);
		free(path);
		uint32_t answered = (uint32_t)sender.message.size;
		tm_put_raw(&sender.out, &answered, sizeof answered);
		tm_put_raw(&sender.out, sender.message.data, sender.message.size);
		tm_bytes_clear(&sender.message);
		send_all(&sender);
	}
	_exit(0);
}

_Noreturn void tm_names_reader_run(const struct tm_names_job *job, pid_t parent) {
	struct sender sender = { .fd = job->fd };
	struct known known = { .count = 0 };
	struct tm_symbols *symbols;
	char text[1024];
	settle(parent);
	if (!job->in->debuginfod) leave_streams(job->fd); /* its client may show how far it is */
	int error = open_file(job, &symbols, text, sizeof text);
	put_opening(&sender, error, text);
	send_all(&sender);
	for (size_t i = 0; i < job->offset_count && !error; i++) put_answer(&sender, &known, look_up(&known, symbols, job->offsets[i]));
	send_all(&sender);
	_exit(0);
}

void tm_names_reader_kill(pid_t reader) {
	kill(reader, SIGKILL);
	for (unsigned looks = 0; looks < END_LOOKS; looks++) {
		pid_t ended = waitpid(reader, NULL, WNOHANG);
		if (ended == reader || (ended < 0 && errno != EINTR)) return;
		usleep(END_LOOK_US);
	}
}
