/* gpu_sites.c - libraries on a stack; see gpu_sites.h. */
#include "gpu_sites.h"

#include "../schema/gpu_libraries.h"

#include <ctype.h>
#include <string.h>

struct library {
	const char *name, *module, *function;
};

#define X(name, module, function) { name, module, function },
static const struct library libraries[] = { TM_GPU_LIBRARIES(X) }, allocators[] = { TM_GPU_ALLOCATORS(X) },
			    frameworks[] = { TM_GPU_FRAMEWORKS(X) };
#undef X

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* A frame of the trace: where it lies, and the function there. */
struct place {
	struct tm_text module, function; /* module: its file name; either may be empty */
};

static bool begins(struct tm_text t, const char *prefix) {
	size_t n = strlen(prefix);
	return t.size >= n && memcmp(t.data, prefix, n) == 0;
}

static bool has_word(struct tm_text t, const char *word) {
	size_t n = strlen(word);
	for (const char *p = t.data; t.size >= n && p <= t.data + t.size - n; p++)
		if (memcmp(p, word, n) == 0 && (p == t.data || !isalnum((unsigned char)p[-1]))) return true;
	return false;
}

static const char *find(const struct library *list, size_t n, const struct place *at) {
	for (size_t i = 0; i < n; i++) {
		if (*list[i].module && !begins(at->module, list[i].module)) continue;
		if (*list[i].function && !has_word(at->function, list[i].function)) continue;
		return list[i].name;
	}
	return NULL;
}

static struct place place_of(const struct tm_catalog *c, const struct tm_stack_row *row) {
	struct place at = { { "", 0 }, { "", 0 } };
	uint32_t frame = c->nodes.items[row->node - 1].frame;
	if (!frame || frame > c->frames.count) return at;
	const struct tm_catalog_frame *f = &c->frames.items[frame - 1];
	uint32_t name = tm_frame_function_name(c, f, row->function);
	if (f->kind != TM_FRAME_NATIVE) return at;
	if (name && name <= c->strings.count) at.function = c->strings.items[name - 1];
	if (f->module && f->module <= c->modules.count) at.module = c->modules.items[f->module - 1].path;
	for (size_t i = at.module.size; i > 0; i--)
		if (at.module.data[i - 1] == '/') return (struct place){ { at.module.data + i, at.module.size - i }, at.function };
	return at;
}

const char *tm_gpu_library(const struct tm_stack_ids *stacks, uint32_t stack, bool in_allocator) {
	const char *framework = NULL;
	if (!stack) return NULL;
	struct tm_stack_row row = tm_stack_find(stacks, stack);
	do {
		struct place at = place_of(stacks->catalog, &row);
		const char *found = find(libraries, COUNT(libraries), &at);
		if (!found && !in_allocator) found = find(allocators, COUNT(allocators), &at);
		if (found) return found;
		if (!framework) framework = find(frameworks, COUNT(frameworks), &at);
	} while (tm_stack_outward(stacks, &row));
	return framework;
}
