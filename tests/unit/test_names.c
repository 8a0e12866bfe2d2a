/* test_names.c - the order of naming: what is asked once, what is shared, what happens when a reader dies.
 *
 * Method: this file has symbols of its own in the place of symbols.c, which name an address by a fixed rule and fault, stall or fail where
 * a test wants it. So every name, note and payload is known beforehand. Real programs are named by tests/integration/test_names.py.
 * It has a poll() of its own, too, whose milliseconds are shorter where somebody is waited for in vain.
 */
#include "recorder/collector/names.h"

#include <poll.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "recorder/collector/symbols.h"
#include "schema/records.h"

/* ---- symbols that do as they are told */

static uint64_t fault_at, fault_at_again, loop_at, stall_us, hang_at = UINT64_MAX, hang_at_again = UINT64_MAX;
static int open_error;

struct tm_symbols {
	bool lines;
	uint64_t answers;
};

int tm_symbols_open(struct tm_symbols **out, const struct tm_symbols_source *source, char *why, size_t why_size) {
	static struct tm_symbols symbols;
	symbols = (struct tm_symbols){ .lines = source->lines };
	*out = &symbols;
	snprintf(why, why_size, "%s", open_error == TM_SYMBOLS_REFUSED ? "it looks odd" : "");
	return open_error;
}

void tm_symbols_close(struct tm_symbols *s) {
	(void)s;
}

size_t tm_symbols_find(struct tm_symbols *s, uint64_t address, const struct tm_debuginfo_function **out) {
	static struct tm_debuginfo_function functions[2];
	static char name[64];
	if (address == (s->lines ? fault_at : fault_at_again)) raise(SIGSEGV);
	if (loop_at && address == loop_at) _exit(0);
	while (address == (s->lines ? hang_at : hang_at_again)) pause();
	if (stall_us) usleep((useconds_t)stall_us);
	s->answers++;
	*out = functions;
	if (address % 16 == 15) return 0; /* unknown */
	snprintf(name, sizeof name, "%s%llx.%llu", s->lines ? "line" : "symbol", (unsigned long long)address,
		 (unsigned long long)s->answers);
	functions[0] = (struct tm_debuginfo_function){ .name = "inlined", .file = "a.c", .line = address };
	functions[1] = (struct tm_debuginfo_function){ .name = name, .file = s->lines ? "b.c" : NULL, .line = s->lines ? 7 : 0 };
	if (s->lines) return 2;
	functions[0] = functions[1];
	return 1;
}

/* ---- waiting */

static int hurry = 1; /* so many times as fast as it says */
static unsigned polls_in_vain;

int poll(struct pollfd *fds, nfds_t count, int ms) {
	long long ns = ms * 1000000ll / hurry;
	struct timespec limit = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };
	int ready = ppoll(fds, count, ms < 0 ? NULL : &limit, NULL);
	if (ready == 0 && ms > 0) polls_in_vain++;
	return ready;
}

/* ---- what was written */

#define FRAMES 200000

struct text_of_id {
	char text[80];
};

static struct text_of_id *strings; /* by id */
static struct tm_function *outer;  /* by frame: the function that is not inlined */
static unsigned *chain_length;     /* by frame */
static char notes[4096];
static size_t payloads, largest, strings_seen, fail_after;

static int take(void *context, const void *payload, size_t n) {
	struct tm_cursor all = tm_cursor_over(payload, n), body;
	struct tm_function function;
	uint64_t tag;
	(void)context;
	if (fail_after && payloads + 1 == fail_after) return -77;
	payloads++;
	if (n > largest) largest = n;
	while (tm_record_next(&all, &tag, &body)) {
		if (tag == TM_RECORD_STRING) {
			struct tm_string s = tm_get_string_record(&body);
			CHECK(s.id == 100 + strings_seen++);
			snprintf(strings[s.id].text, sizeof strings[s.id].text, "%.*s", (int)s.bytes.size, s.bytes.data);
		} else if (tag == TM_RECORD_NAME) {
			struct tm_name name = tm_get_name(&body);
			CHECK(chain_length[name.frame] == 0);
			while (tm_function_next(&name.functions, &function)) {
				CHECK(!function.function || strings[function.function].text[0]); /* defined before it is used */
				outer[name.frame] = function;
				chain_length[name.frame]++;
			}
		} else if (tag == TM_RECORD_NOTE) {
			struct tm_note note = tm_get_note(&body);
			CHECK(note.ns == 55 && note.process == 3);
			snprintf(notes + strlen(notes), sizeof notes - strlen(notes), "%.*s\n", (int)note.text.size, note.text.data);
		}
		CHECK(!body.bad);
	}
	CHECK(!all.bad);
	return 0;
}

static const char *name_of(uint64_t frame) {
	return strings[outer[frame].function].text;
}

static struct tm_names_output out;

static int write_names(const struct tm_names_module *modules, size_t module_count, const struct tm_names_frame *frames,
		       size_t frame_count) {
	struct tm_names_input in = {
		.modules = modules, .module_count = module_count, .frame = tm_names_frame_of, .frames = frames, .frame_count = frame_count,
		.note_ns = 55, .patience_s = 2
	};
	memset(strings, 0, (3 * FRAMES) * sizeof *strings);
	memset(outer, 0, (FRAMES + 1) * sizeof *outer);
	memset(chain_length, 0, (FRAMES + 1) * sizeof *chain_length);
	notes[0] = 0;
	payloads = largest = strings_seen = 0;
	out = (struct tm_names_output){ .next_string_id = 100, .write_chunk = take };
	int error = tm_names_write(&in, &out);
	CHECK(waitpid(-1, NULL, WNOHANG) == -1); /* no reader is left behind */
	return error;
}

/* ---- tests */

static const uint8_t id_one[] = { 1, 2, 3 }, id_two[] = { 1, 2, 4 };

static void shared_work(void) {
	const struct tm_names_module modules[] = {
		{ .id = 9, .process = 3, .bias = 0x1000, .path = "/a", .build_id = id_one, .build_id_size = 3 },
		{ .id = 4, .process = 3, .bias = 0x5000, .path = "/moved/a", .build_id = id_one, .build_id_size = 3 },
		{ .id = 5, .process = 3, .bias = 0x0, .path = "/b", .build_id = id_two, .build_id_size = 3 },
		{ .id = 6, .process = 3, .bias = 0x0, .path = "/plain" },
		{ .id = 7, .process = 3, .bias = 0x100, .path = "/plain" },
	};
	const struct tm_names_frame frames[] = {
		{ 1, 9, 0x1021 }, { 2, 4, 0x5021 }, /* both are offset 0x20 of one file */
		{ 3, 9, 0x1011 },                   /* 0x10 is asked before 0x20 */
		{ 4, 5, 0x21 },   { 5, 6, 0x21 },   { 6, 7, 0x121 }, { 7, 0, 0x21 }, { 8, 77, 0x21 }, { 9, 9, 0x1010 } /* 0xf: unknown */
	};
	CHECK(write_names(modules, 5, frames, 9) == 0);
	CHECK(!strcmp(name_of(1), "line20.3") && outer[1].function == outer[2].function && chain_length[1] == 2);
	CHECK(!strcmp(name_of(3), "line10.2"));
	CHECK(!strcmp(name_of(4), "line20.1"));
	CHECK(outer[4].function == outer[5].function && outer[5].function == outer[6].function); /* the same text has one id */
	CHECK(!strcmp(strings[outer[4].file].text, "b.c") && outer[4].line == 7);
	CHECK(!chain_length[7] && !chain_length[8] && !chain_length[9]);
	CHECK(out.frames_named == 6 && out.modules_read == 3 && out.modules_refused == 0 && !*notes);
	CHECK(out.next_string_id == 100 + strings_seen && strings_seen == 6); /* inlined, a.c, b.c and three names */
}

static struct tm_names_module plain = { .id = 1, .process = 3, .path = "/a", .build_id = id_one, .build_id_size = 3 };
static struct tm_names_frame *many;

static void many_frames(void) {
	CHECK(write_names(&plain, 1, many, FRAMES) == 0);
	CHECK(out.frames_named == FRAMES && payloads > 3 && largest > 1 << 20 && largest < (1 << 20) + 4096);
	size_t wrong = 0;
	for (uint64_t i = 1; i <= FRAMES; i++) {
		char wanted[64];
		snprintf(wanted, sizeof wanted, "line%llx.%llu", (unsigned long long)(i * 16), (unsigned long long)i);
		wrong += strcmp(name_of(i), wanted) != 0;
	}
	CHECK(wrong == 0);
}

static void reader_dies(void) {
	fault_at = 150000 * 16;
	CHECK(write_names(&plain, 1, many, FRAMES) == 0);
	CHECK(!strcmp(notes, "reading debug information of '/a' ended with signal 11: the rest is named from its symbols\n"));
	CHECK(out.frames_named == FRAMES && out.modules_read == 1);
	CHECK(!strncmp(name_of(100), "line640.", 8) && chain_length[100] == 2);
	CHECK(!strncmp(name_of(150000), "symbol", 6) && chain_length[150000] == 1 && !strncmp(name_of(FRAMES), "symbol", 6));
	fault_at_again = 190000 * 16;
	CHECK(write_names(&plain, 1, many, FRAMES) == 0);
	CHECK(strstr(notes, "reading symbols of '/a' ended with signal 11: the rest has no names\n"));
	CHECK(out.frames_named < 190000 && out.frames_named > 150000 && !chain_length[190000] && !chain_length[FRAMES]);
	fault_at = fault_at_again = 0;
	loop_at = (FRAMES - 9) * 16; /* the first of those ten */
	CHECK(write_names(&plain, 1, many, 10) == 0);
	CHECK(strstr(notes, "ended with status 0: the rest has no names\n") && out.frames_named == 0);
	loop_at = 0;
}

/* ThreadSanitizer's own thread in a reader never rests: to whoever waits that is work. */
#if defined(__SANITIZE_THREAD__)
#define READERS_REST false
#else
#define READERS_REST true
#endif

static void nothing(int number) {
	(void)number;
}

/* A file that keeps its reader waiting for ever; the next one may lie beside it. One that works, if slowly, is waited for. */
static void reader_hangs(void) {
	static const struct tm_names_module two[] = {
		{ .id = 1, .process = 3, .path = "/a", .build_id = id_one, .build_id_size = 3 },
		{ .id = 2, .process = 3, .path = "/b", .build_id = id_two, .build_id_size = 3 },
	};
	const struct tm_names_frame frames[] = { { 1, 1, 0x21 }, { 2, 1, 0x31 }, { 3, 2, 0x31 }, { 4, 2, 0x41 } };
	hang_at = 0x30;
	hurry = 4;
	polls_in_vain = 0;
	struct itimerval soon = { .it_value = { .tv_usec = 75000 } }, never = { .it_value = { 0 } };
	struct sigaction interrupt = { .sa_handler = nothing };
	sigaction(SIGALRM, &interrupt, NULL);
	setitimer(ITIMER_REAL, &soon, NULL); /* a signal that comes meanwhile changes nothing */
	CHECK(write_names(two, 2, frames, 4) == 0);
	setitimer(ITIMER_REAL, &never, NULL);
	CHECK(!strcmp(notes, "reading debug information of '/a' stood still for 2 s: the rest is named from its symbols\n"
			     "reading debug information of '/b' stood still for 1 s: the rest is named from its symbols\n"));
	CHECK(polls_in_vain >= 3); /* of a second each */
	CHECK(!strcmp(name_of(2), "symbol30.2") && !strcmp(name_of(4), "symbol40.2") && out.frames_named == 4 && out.modules_read == 2);
	hang_at_again = 0x40;
	CHECK(write_names(two, 2, frames, 4) == 0 && out.frames_named == 2);
	CHECK(strstr(notes, "reading symbols of '/b' stood still for 1 s: the rest has no names\n"));
	hang_at = hang_at_again = UINT64_MAX;
	stall_us = 75000;
	CHECK(write_names(two, 1, many, 10) == 0 && out.frames_named == 10 && !*notes);
	stall_us = 0;
	hurry = 1;
}

static void refused_files(void) {
	static const struct {
		int error;
		const char *path, *note;
	} cases[] = {
		{ TM_SYMBOLS_MISSING, "/a", "no names for '/a': the file does not exist\n" },
		{ TM_SYMBOLS_MISSING, "[vdso]", "" },
		{ TM_SYMBOLS_REFUSED, "/a", "no names for '/a': it looks odd\n" },
		{ TM_SYMBOLS_NO_MEMORY, "/a", "no names for '/a': out of memory\n" },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct tm_names_module module = plain;
		module.path = cases[i].path;
		open_error = cases[i].error;
		CHECK(write_names(&module, 1, many, 10) == 0);
		CHECK(!strcmp(notes, cases[i].note) && out.modules_refused == (*cases[i].note != 0) && !out.frames_named &&
		      !out.modules_read);
	}
	open_error = 0;
}

static void failing_writes(void) {
	for (fail_after = 1; fail_after <= 4; fail_after++)
		CHECK(write_names(&plain, 1, many, FRAMES) == -77 && payloads == fail_after - 1);
	fail_after = 0;
}

/* Standard error is no terminal here: whole lines, the first after a second. */
static void progress(void) {
	struct tm_names_input in = { .modules = &plain, .module_count = 1, .frame = tm_names_frame_of, .frames = many, .frame_count = 20000, .progress = true };
	char text[4096] = "";
	FILE *file = tmpfile();
	int saved = dup(STDERR_FILENO);
	stall_us = 20;
	out = (struct tm_names_output){ .next_string_id = 100, .write_chunk = take };
	memset(chain_length, 0, (FRAMES + 1) * sizeof *chain_length);
	strings_seen = 0;
	dup2(fileno(file), STDERR_FILENO);
	CHECK(tm_names_write(&in, &out) == 0);
	dup2(saved, STDERR_FILENO);
	close(saved);
	rewind(file);
	text[fread(text, 1, sizeof text - 1, file)] = 0;
	fclose(file);
	stall_us = 0;
	CHECK(strstr(text, "tidemark-record: naming addresses: ") && strstr(text, " of 20000 (") && strstr(text, " a second, now in a\n"));
}

int main(void) {
	strings = calloc(3 * FRAMES, sizeof *strings);
	outer = calloc(FRAMES + 1, sizeof *outer);
	chain_length = calloc(FRAMES + 1, sizeof *chain_length);
	many = calloc(FRAMES, sizeof *many);
	for (uint64_t i = 0; i < FRAMES; i++) many[FRAMES - 1 - i] = (struct tm_names_frame){ i + 1, 1, (i + 1) * 16 + 1 };
	shared_work();
	many_frames();
	reader_dies();
	if (READERS_REST) reader_hangs();
	refused_files();
	failing_writes();
	progress();
	free(strings);
	free(outer);
	free(chain_length);
	free(many);
	return check_report("test_names");
}
