/* module_table.c - the modules of every process: see module_table.h. */
#include "module_table.h"

#include "collector.h"
#include "executable.h"
#include "memory.h"
#include "symbols.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Index of the first loaded module that ends above addr. */
static size_t position(const struct tm_collector *c, const struct tm_loaded_modules *l, uint64_t addr) {
	size_t low = 0, high = l->count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (c->modules.all[l->ids[middle] - 1].high > addr) high = middle;
		else low = middle + 1;
	}
	return low;
}

uint32_t tm_module_at(const struct tm_collector *c, const struct tm_process *p, uint64_t pc) {
	size_t at = position(c, &p->modules, pc - 1);
	if (at == p->modules.count) return 0;
	uint32_t id = p->modules.ids[at];
	return c->modules.all[id - 1].low <= pc - 1 ? id : 0;
}

static void new_epoch(struct tm_collector *c, struct tm_process *p) {
	p->modules.epoch = ++c->modules.last_epoch;
}

/* Takes out what overlaps [low, high). */
static void unload_range(struct tm_collector *c, struct tm_process *p, uint64_t ticks, uint64_t low, uint64_t high) {
	struct tm_loaded_modules *l = &p->modules;
	size_t at = position(c, l, low), end = at;
	for (; end < l->count && c->modules.all[l->ids[end] - 1].low < high; end++) {
		struct tm_meta *meta = tm_group_add(c->group, TM_RECORD_MODULE_UNLOAD);
		meta->module_unload = (struct tm_module_unload){ l->ids[end], ticks };
	}
	if (end == at) return;
	memmove(l->ids + at, l->ids + end, (l->count - end) * sizeof l->ids[0]);
	l->count -= end - at;
	new_epoch(c, p);
}

void tm_module_unloaded(struct tm_collector *c, struct tm_process *p, uint64_t ticks, uint64_t low, uint64_t size) {
	unload_range(c, p, ticks, low, low + size < low ? UINT64_MAX : low + size);
}

static bool names_libc(const char *path) {
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	return !strncmp(name, "libc.so", 7) || !strncmp(name, "libc-2.", 7) || !strncmp(name, "libpthread", 10) ||
	       !strncmp(name, "ld-musl", 7);
}

static bool is_same_file(const char *path, const char *other) {
	struct stat a, b;
	return stat(path, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* What a path leads to for the process, where it has another root or other mounts than we have and ours leads to another file; else the path as it is. Of a
 * process that has ended nobody knows. */
static const char *reach(const struct tm_process *p, const char *path, char rooted[PATH_MAX]) {
	char root[64], mounts[64];
	struct stat file;
	snprintf(root, sizeof root, "/proc/%u/root", p->system_pid);
	snprintf(mounts, sizeof mounts, "/proc/%u/ns/mnt", p->system_pid);
	if (*path != '/' || tm_symbols_own_path(path) || stat(path, &file) != 0) return path;
	if (is_same_file(root, "/") && is_same_file(mounts, "/proc/self/ns/mnt")) return path;
	if (snprintf(rooted, PATH_MAX, "%s%s", root, path) >= PATH_MAX) return path;
	return stat(rooted, &file) != 0 || is_same_file(rooted, path) ? path : rooted;
}

/* Leaks that the program knows about. */
static void note_suppressions(struct tm_collector *c, const struct tm_process *p, const struct tm_module *m, const char *path) {
	const struct tm_default_suppressions *known = tm_default_suppressions_of(&c->modules.suppressions, path);
	char text[1024];
	if (known->text) tm_group_add_note(c->group, p->id, m->load_ticks, "suppressions", known->text);
	else if (known->found) {
		snprintf(
			text, sizeof text,
			"what __lsan_default_suppressions of '%s' returns is no constant, so it is not known; a file for --suppressions is needed",
			m->path);
		tm_group_add_note(c->group, p->id, m->load_ticks, "suppressions-unread", text);
	}
}

static void describe(struct tm_collector *c, struct tm_process *p, struct tm_module *m) {
	struct tm_executable file;
	char rooted[PATH_MAX];
	bool is_exe = p->exe && !strcmp(m->path, p->exe);
	m->is_libc = names_libc(m->path);
	if (!is_exe && m->build_id_size) return;
	const char *path = reach(p, m->path, rooted);
	if (is_exe) {
		tm_executable_read(path, &file);
		if (file.entry) m->entry = m->bias + file.entry;
		note_suppressions(c, p, m, path);
	}
	if (m->build_id_size || path == m->path) return;
	/* Nothing else would keep names from being those of our file, now or later. */
	free(m->path);
	m->path = tm_memory_copy_text(path, strlen(path));
}

static void write_module(struct tm_collector *c, uint32_t id) {
	const struct tm_module *m = &c->modules.all[id - 1];
	struct tm_meta *meta = tm_group_add(c->group, TM_RECORD_MODULE_LOAD);
	meta->module_load = (struct tm_module_load){
		.id = id,
		.process = m->process,
		.bias = m->bias,
		.low = m->low,
		.size_bytes = m->high - m->low,
		.ns = m->load_ticks,
		.path = tm_group_text(c->group, m->path, strlen(m->path)),
		.build_id = tm_group_text(c->group, (const char *)m->build_id, m->build_id_size),
	};
}

void tm_module_loaded(struct tm_collector *c, struct tm_process *p, uint64_t ticks, uint64_t before_ns, uint64_t bias, uint64_t low, uint64_t size,
		      const char *path, size_t path_bytes, const void *build_id, size_t build_id_size) {
	struct tm_module_table *t = &c->modules;
	struct tm_loaded_modules *l = &p->modules;
	uint64_t high = low + size < low ? UINT64_MAX : low + size;
	if (high == low) return;
	unload_range(c, p, ticks, low, high);
	t->all = tm_memory_grow(t->all, &t->capacity, t->count + 1, sizeof t->all[0]);
	struct tm_module *m = &t->all[t->count++];
	*m = (struct tm_module){ .process = p->id, .low = low, .high = high, .bias = bias, .load_ticks = ticks };
	m->path = tm_memory_copy_text(path, path_bytes);
	m->build_id = (uint8_t *)tm_memory_copy_text(build_id, build_id_size);
	m->build_id_size = build_id_size;
	describe(c, p, m);
	uint32_t id = (uint32_t)t->count;
	size_t at = position(c, l, low);
	l->ids = tm_memory_grow(l->ids, &l->capacity, l->count + 1, sizeof l->ids[0]);
	memmove(l->ids + at + 1, l->ids + at, (l->count - at) * sizeof l->ids[0]);
	l->ids[at] = id;
	l->count++;
	write_module(c, id);
	tm_stack_tree_module_known(c, p, id, before_ns);
	/* A cached path may name a frame without a module that is not this one. */
	new_epoch(c, p);
}

/* One line of /proc/PID/maps whose range holds unknown frames that are new becomes a module, if it maps a file for execution. */
static void take_maps_line(struct tm_collector *c, struct tm_process *p, char *line) {
	uint64_t low, high, offset;
	char permissions[5], rooted[PATH_MAX], *path = strchr(line, '/');
	struct tm_executable file;
	if (!path || sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64, &low, &high, permissions, &offset) != 4) return;
	path[strcspn(path, "\n")] = 0;
	if (permissions[2] != 'x' || tm_module_at(c, p, low + 1) || !tm_stack_tree_has_new_unknown(&c->stacks, p->id, low, high)) return;
	tm_executable_read(reach(p, path, rooted), &file);
	uint64_t bias = low - offset + file.first_offset - file.first_low;
	tm_module_loaded(c, p, tm_timebase_ticks(&c->timebase), UINT64_MAX, bias, low, high - low, path, strlen(path), file.build_id,
			 file.build_id_size);
}

void tm_module_look_up_maps(struct tm_collector *c, struct tm_process *p) {
	char name[64], line[8192];
	snprintf(name, sizeof name, "/proc/%u/maps", p->system_pid);
	FILE *f = fopen(name, "re");
	while (f && fgets(line, sizeof line, f)) take_maps_line(c, p, line);
	if (f) fclose(f);
	tm_stack_tree_looked_up(&c->stacks, p->id);
}

void tm_modules_release(struct tm_module_table *t) {
	for (size_t i = 0; i < t->count; i++) {
		free(t->all[i].path);
		free(t->all[i].build_id);
	}
	free(t->all);
	tm_default_suppressions_release(&t->suppressions);
	*t = (struct tm_module_table){ 0 };
}
