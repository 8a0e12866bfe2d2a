/* foreign_heaptrack.c - heaptrack's interpreted text; export_heaptrack.c describes its lines.
 *
 * It does not say which block a free is of, only of which kind: so many bytes, allocated at this stack. Blocks of one kind are alike, so the one that was
 * allocated last is the one that ends: then what is freed right after its allocation is temporary for us just where it is for heaptrack. Addresses and
 * threads are unknown; times are whole milliseconds, and the events of one are put a nanosecond apart to keep their order.
 */
#include "foreign_input.h"
#include "foreign_readers.h"

#include <stdio.h>

#define VERSION_MAX 3
#define NS_A_MS 1000000ull
#define NOT_LIVE_ADDRESS (1ull << 59)

struct kind {
	uint64_t size;
	uint32_t node, top; /* top: 1 + its live block that was allocated last, 0 none */
};

struct reader {
	struct tm_foreign *f;
	struct tm_foreign_trace *t;
	struct tm_input input;
	uint32_t process, thread, heap;
	TM_ARRAY(struct tm_text) strings; /* bytes lie in the trace's table */
	TM_ARRAY(uint32_t) modules;       /* by string - 1: its module, 0 not yet */
	TM_ARRAY(uint32_t) frames;        /* by instruction - 1 */
	TM_ARRAY(uint32_t) nodes;
	TM_ARRAY(struct kind) kinds;
	TM_ARRAY(uint32_t) below; /* by block: the next older live block of its kind, or the next unused block */
	uint32_t unused;
	uint64_t version, ms, ns, page_bytes, frees_of_nothing;
	bool was_attached;
};

/* What comes before the line is sound; where no event does, there is nothing to make a database of. */
static int bad_line(struct reader *r, const char *what) {
	snprintf(r->f->damage, sizeof r->f->damage, "line %llu: %s", (unsigned long long)r->input.line, what);
	return tm_foreign_fail(r->f, "%s", r->f->damage);
}

static int no_memory(struct reader *r) {
	return tm_foreign_fail(r->f, "out of memory");
}

/* Takes one hexadecimal number and the spaces before it. */
static bool take_number(struct tm_text *rest, uint64_t *number) {
	uint64_t n = 0;
	size_t i = 0, first;
	while (i < rest->size && rest->data[i] == ' ') i++;
	for (first = i; i < rest->size && rest->data[i] != ' '; i++) {
		char c = rest->data[i];
		int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
		if (digit < 0 || n >> 60) return false;
		n = n << 4 | (uint64_t)digit;
	}
	*rest = (struct tm_text){ rest->data + i, rest->size - i };
	*number = n;
	return i > first;
}

static int take_version(struct reader *r, struct tm_text rest) {
	uint64_t tool;
	if (!take_number(&rest, &tool)) return bad_line(r, "the version is no number");
	if (!take_number(&rest, &r->version)) r->version = 0;
	if (r->version < 1 || r->version > VERSION_MAX)
		return tm_foreign_fail(r->f, "it has heaptrack file version %llu, this tidemark reads 1 to %d",
				       (unsigned long long)r->version, VERSION_MAX);
	snprintf(r->f->format, sizeof r->f->format, "heaptrack %llu", (unsigned long long)r->version);
	char text[40];
	snprintf(text, sizeof text, "heaptrack %llu.%llu.%llu", (unsigned long long)(tool >> 16), (unsigned long long)(tool >> 8 & 255),
		 (unsigned long long)(tool & 255));
	tm_foreign_info(r->t, "tool_version", tm_text_of(text));
	return 0;
}

static void take_command(struct reader *r, struct tm_text rest) {
	if (rest.size) rest = (struct tm_text){ rest.data + 1, rest.size - 1 };
	const char *space = memchr(rest.data, ' ', rest.size);
	struct tm_process_start start = { .rank = -1, .local_rank = -1, .world_size = -1, .command = rest };
	start.exe = (struct tm_text){ rest.data, space ? (size_t)(space - rest.data) : rest.size };
	if (r->process) return;
	tm_foreign_info(r->t, "command", rest);
	r->process = tm_foreign_process(r->t, &start);
}

static void make_heap(struct reader *r) {
	if (r->heap) return;
	if (!r->process) take_command(r, tm_text_of(""));
	r->thread = tm_foreign_thread(r->t, r->process, 0, tm_text_of(""));
	r->heap = tm_foreign_heap(r->t, r->process, tm_text_of("malloc"), "host", -1, 0);
}

static int take_string(struct reader *r, struct tm_text rest) {
	uint64_t bytes;
	if (r->version >= 3) {
		if (!take_number(&rest, &bytes)) return bad_line(r, "the string's length is no number");
		if (rest.size != bytes + 1 && !(rest.size == 0 && bytes == 0)) return bad_line(r, "the string is not as long as it says");
	}
	if (rest.size) rest = (struct tm_text){ rest.data + 1, rest.size - 1 };
	uint32_t id = tm_foreign_string(r->t, rest);
	struct tm_text *kept = tm_array_push(&r->strings);
	if (!kept || !tm_array_push(&r->modules)) return no_memory(r);
	*kept = id ? r->t->strings.items[id - 1].text : tm_text_of("");
	return 0;
}

static struct tm_text string_of(const struct reader *r, uint64_t number) {
	return number ? r->strings.items[number - 1] : tm_text_of("");
}

static uint32_t module_of(struct reader *r, uint64_t string) {
	if (!string) return 0;
	uint32_t *module = &r->modules.items[string - 1];
	if (!*module) *module = tm_foreign_module(r->t, r->process, string_of(r, string));
	return *module;
}

/* ip module [function file line]...: the innermost function first. */
static int take_instruction(struct reader *r, struct tm_text rest) {
	uint64_t ip, module, function, file, line;
	struct tm_foreign_function functions[TM_FOREIGN_FUNCTIONS];
	size_t n = 0;
	make_heap(r);
	if (!take_number(&rest, &ip) || !take_number(&rest, &module)) return bad_line(r, "an instruction without address and module");
	if (module > r->strings.count) return bad_line(r, "a module that was not defined");
	while (n < TM_FOREIGN_FUNCTIONS && take_number(&rest, &function)) {
		if (!take_number(&rest, &file)) file = 0;
		if (!take_number(&rest, &line) || line > INT32_MAX) line = 0;
		if (function > r->strings.count || file > r->strings.count) return bad_line(r, "a function or file that was not defined");
		functions[n++] = (struct tm_foreign_function){ string_of(r, function), string_of(r, file), (uint32_t)line };
	}
	uint32_t *frame = tm_array_push(&r->frames);
	if (!frame) return no_memory(r);
	*frame = tm_foreign_frame(r->t, TM_FRAME_NATIVE, r->process, module_of(r, module), ip, functions, n);
	return 0;
}

static int take_node(struct reader *r, struct tm_text rest) {
	uint64_t instruction, parent;
	if (!take_number(&rest, &instruction) || !take_number(&rest, &parent))
		return bad_line(r, "a stack node without instruction and parent");
	if (!instruction || instruction > r->frames.count) return bad_line(r, "an instruction that was not defined");
	if (parent > r->nodes.count) return bad_line(r, "a stack node that was not defined");
	uint32_t *node = tm_array_push(&r->nodes);
	if (!node) return no_memory(r);
	*node = tm_foreign_node(r->t, parent ? r->nodes.items[parent - 1] : 0, r->frames.items[instruction - 1]);
	return 0;
}

static int take_kind(struct reader *r, struct tm_text rest) {
	uint64_t size, node;
	if (!take_number(&rest, &size) || !take_number(&rest, &node)) return bad_line(r, "an allocation without size and stack");
	if (node > r->nodes.count) return bad_line(r, "a stack node that was not defined");
	struct kind *kind = tm_array_push(&r->kinds);
	if (!kind) return no_memory(r);
	*kind = (struct kind){ size, node ? r->nodes.items[node - 1] : 0, 0 };
	return 0;
}

/* A nanosecond after the one before, as long as the millisecond lasts. */
static uint64_t next_ns(struct reader *r) {
	if (r->ns + 1 < (r->ms + 1) * NS_A_MS) r->ns++;
	return r->ns;
}

static struct kind *kind_of(struct reader *r, struct tm_text rest) {
	uint64_t number;
	return take_number(&rest, &number) && number < r->kinds.count ? &r->kinds.items[number] : NULL;
}

static int take_allocation(struct reader *r, struct tm_text rest) {
	struct kind *kind = kind_of(r, rest);
	if (!kind) return bad_line(r, "an allocation of a kind that was not defined");
	make_heap(r);
	uint32_t block = r->unused;
	if (block) r->unused = r->below.items[block - 1];
	else if (!tm_array_push(&r->below)) return no_memory(r);
	else block = (uint32_t)r->below.count;
	r->below.items[block - 1] = kind->top;
	kind->top = block;
	tm_foreign_allocation(r->t, r->thread, TM_FOREIGN_ALLOC, next_ns(r), r->heap, (uint64_t)block << 4, kind->size, kind->node);
	return 0;
}

static int take_free(struct reader *r, struct tm_text rest) {
	struct kind *kind = kind_of(r, rest);
	if (!kind) return bad_line(r, "a free of a kind that was not defined");
	make_heap(r);
	uint32_t block = kind->top;
	uint64_t address = block ? (uint64_t)block << 4 : NOT_LIVE_ADDRESS;
	if (block) {
		kind->top = r->below.items[block - 1];
		r->below.items[block - 1] = r->unused;
		r->unused = block;
	}
	tm_foreign_release_of(r->t, r->thread, TM_FOREIGN_FREE, next_ns(r), r->heap, address);
	return 0;
}

static int take_time(struct reader *r, struct tm_text rest) {
	uint64_t ms;
	if (!take_number(&rest, &ms) || ms > UINT32_MAX * 100ull) return bad_line(r, "a time that is no number");
	if (ms < r->ms) return bad_line(r, "the clock goes backwards");
	r->ms = ms;
	if (ms * NS_A_MS > r->ns) r->ns = ms * NS_A_MS;
	return 0;
}

static int take_resident(struct reader *r, struct tm_text rest) {
	uint64_t pages;
	if (!take_number(&rest, &pages) || pages > 1ull << 40) return bad_line(r, "resident pages that are no number");
	make_heap(r);
	tm_foreign_sample(r->t, r->process, r->ns, "rss", pages * r->page_bytes);
	return 0;
}

static int take_system(struct reader *r, struct tm_text rest) {
	uint64_t bytes;
	if (take_number(&rest, &bytes) && bytes && bytes <= 1u << 24) r->page_bytes = bytes;
	return 0;
}

static int take_line(struct reader *r, struct tm_text line) {
	if (!line.size) return 0;
	struct tm_text rest = { line.data + 1, line.size - 1 };
	switch (line.data[0]) {
	case 'v': return take_version(r, rest);
	case 'X': return take_command(r, rest), 0;
	case 'I': return take_system(r, rest);
	case 's': return take_string(r, rest);
	case 'i': return take_instruction(r, rest);
	case 't': return take_node(r, rest);
	case 'a': return take_kind(r, rest);
	case '+': return take_allocation(r, rest);
	case '-': return take_free(r, rest);
	case 'c': return take_time(r, rest);
	case 'R': return take_resident(r, rest);
	case 'A': return r->was_attached = true, 0;
	case 'S': /* a suppression of heaptrack's */
	case '#': return 0;
	case 'x':
	case 'm': return tm_foreign_fail(r->f, "it is heaptrack's raw recording: 'heaptrack --interpret' makes of it what can be read");
	default: return bad_line(r, "it begins with no letter of heaptrack's");
	}
}

/* Of the file, before the line read last; of a compressed one those that were read. */
static uint64_t bytes_before(const struct tm_input *i, struct tm_text line) {
	if (i->codec != TM_INPUT_PLAIN) return i->read_bytes;
	return i->given_bytes - (i->ahead_filled - i->ahead_at) - line.size - 1;
}

static int read_lines(struct reader *r) {
	struct tm_text line;
	int rc = 0;
	while (!rc && !r->t->failed && tm_input_line(&r->input, &line)) rc = take_line(r, line);
	if (r->t->failed || (rc && !(r->f->damage[0] && r->heap))) return -1;
	if (!r->version) return tm_foreign_fail(r->f, "its first line gives no version");
	make_heap(r);
	r->f->cut_reason = rc ? r->f->damage : r->input.cut;
	r->f->sound_bytes = rc ? bytes_before(&r->input, line) : r->input.read_bytes;
	r->f->hides_addresses = true;
	if (r->was_attached)
		tm_foreign_note(r->t, r->process,
				tm_text_of("heaptrack was attached to the running program: what was allocated before is not there"));
	tm_foreign_note(
		r->t, r->process,
		tm_text_of(
			"heaptrack knows neither threads nor which of several equal blocks was freed (the youngest is taken), and its times are whole "
			"milliseconds"));
	return 0;
}

int tm_foreign_read_heaptrack(struct tm_foreign *f, struct tm_foreign_trace *t, const char *path) {
	struct reader r = { .f = f, .t = t, .page_bytes = 4096 };
	int rc = tm_input_open(&r.input, path, f->error, sizeof f->error);
	if (!rc) rc = read_lines(&r);
	if (!rc) rc = tm_foreign_trace_finish(t, r.ns);
	tm_input_release(&r.input);
	tm_array_release(&r.strings);
	tm_array_release(&r.modules);
	tm_array_release(&r.frames);
	tm_array_release(&r.nodes);
	tm_array_release(&r.kinds);
	tm_array_release(&r.below);
	return rc;
}
