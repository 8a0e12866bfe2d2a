/* names_plan.c - what is to be looked up, in the order of the files: see names_plan.h. */
#include "recorder/collector/names_plan.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* --- files --- */

const char *tm_names_file_name(const char *path) {
	const char *slash = path ? strrchr(path, '/') : NULL;
	return slash ? slash + 1 : path ? path : "";
}

static int compare_files(const struct tm_names_module *a, const struct tm_names_module *b) {
	if (a->build_id_size != b->build_id_size) return a->build_id_size < b->build_id_size ? -1 : 1;
	if (!a->build_id_size) return strcmp(a->path ? a->path : "", b->path ? b->path : "");
	int order = memcmp(a->build_id, b->build_id, a->build_id_size);
	return order ? order : strcmp(tm_names_file_name(a->path), tm_names_file_name(b->path));
}

static int compare_modules(const void *left, const void *right) {
	const struct tm_names_module *a = *(const struct tm_names_module *const *)left, *b = *(const struct tm_names_module *const *)right;
	int order = compare_files(a, b);
	return order ? order : a->id < b->id ? -1 : a->id > b->id;
}

struct module_place { /* from a module's id to its file */
	uint64_t id, bias;
	uint32_t file;
};

static int compare_places(const void *left, const void *right) {
	const struct module_place *a = left, *b = right;
	return a->id < b->id ? -1 : a->id > b->id;
}

static struct module_place *place_modules(struct tm_names_plan *p, const struct tm_names_input *in) {
	size_t count = p->module_count = in->module_count;
	struct module_place *places = calloc(count + 1, sizeof *places);
	p->modules = calloc(count + 1, sizeof *p->modules);
	p->files = calloc(count + 1, sizeof *p->files);
	if (!places || !p->modules || !p->files) return free(places), NULL;
	for (size_t i = 0; i < count; i++) p->modules[i] = &in->modules[i];
	qsort(p->modules, count, sizeof *p->modules, compare_modules);
	for (size_t i = 0; i < count; i++) {
		if (!i || compare_files(p->modules[i - 1], p->modules[i])) p->files[p->file_count++] = i;
		places[i] = (struct module_place){ p->modules[i]->id, p->modules[i]->bias, (uint32_t)p->file_count - 1 };
	}
	qsort(places, count, sizeof *places, compare_places);
	return places;
}

/* NULL: there is no such module. Ids are mostly numbers from 1 on. */
static const struct module_place *find_place(const struct module_place *places, size_t count, uint64_t id) {
	struct module_place wanted = { .id = id };
	if (!id) return NULL;
	if (id - 1 < count && places[id - 1].id == id) return &places[id - 1];
	return bsearch(&wanted, places, count, sizeof *places, compare_places);
}

static unsigned bits_of(uint64_t value) {
	return value ? 64 - (unsigned)__builtin_clzll(value) : 0;
}

/* Its file, and its offset there. NULL: it has none. */
static const struct module_place *locate(const struct tm_names_plan *p, const struct module_place *places, const struct tm_names_frame *frame,
					 uint64_t *offset) {
	const struct module_place *place = find_place(places, p->module_count, frame->module);
	if (place) *offset = frame->address - place->bias - 1;
	return place;
}

/* --- spots --- */

#define NO_SPOT UINT32_MAX
#define SLOTS_FIRST 4096u

struct finding {
	uint32_t *of_frame; /* the spot of each frame, by its number, or NO_SPOT */
	uint32_t *slots;    /* open addressing, at most half full: number of a spot + 1; 0: empty */
	size_t slot_mask;
};

static uint32_t *slot_of(const struct tm_names_plan *p, const struct finding *f, uint64_t place) {
	size_t at = (size_t)((place ^ place >> 32) * 0x9E3779B97F4A7C15u >> 32) & f->slot_mask; /* many files have the same offsets */
	while (f->slots[at] && p->spots[f->slots[at] - 1].place != place) at = (at + 1) & f->slot_mask;
	return &f->slots[at];
}

/* Room for another spot. */
static bool make_room(struct tm_names_plan *p, struct finding *f) {
	if (p->spot_count == p->spot_capacity) {
		size_t capacity = p->spot_capacity ? 2 * p->spot_capacity : SLOTS_FIRST / 2;
		struct tm_names_spot *grown = reallocarray(p->spots, capacity, sizeof *grown);
		if (!grown) return false;
		p->spots = grown;
		p->spot_capacity = capacity;
	}
	if (2 * p->spot_count < f->slot_mask) return true;
	free(f->slots);
	f->slot_mask = f->slot_mask ? 2 * f->slot_mask + 1 : SLOTS_FIRST - 1;
	f->slots = malloc((f->slot_mask + 1) * sizeof *f->slots);
	if (f->slots) memset(f->slots, 0, (f->slot_mask + 1) * sizeof *f->slots); /* written before it is read: as tm_memory_new_table() */
	for (size_t i = 0; f->slots && i < p->spot_count; i++) *slot_of(p, f, p->spots[i].place) = (uint32_t)i + 1;
	return f->slots != NULL;
}

/* The number of the spot. NO_SPOT: no memory. */
static uint32_t spot_at(struct tm_names_plan *p, struct finding *f, uint64_t place) {
	uint32_t *slot = f->slots ? slot_of(p, f, place) : NULL;
	if (slot && *slot) return *slot - 1;
	if (!make_room(p, f)) return NO_SPOT;
	p->spots[p->spot_count] = (struct tm_names_spot){ place, (uint32_t)p->spot_count, 0 };
	*slot_of(p, f, place) = (uint32_t)p->spot_count + 1;
	return (uint32_t)p->spot_count++;
}

/* The spot of each frame; `first` is a spot's own number for now. An offset that does not fit beside the number of a file is no address of one. */
static bool find_spots(struct tm_names_plan *p, struct finding *f, const struct tm_names_input *in, const struct module_place *places) {
	uint64_t offset, most = UINT64_MAX >> (64 - p->offset_bits);
	for (size_t i = 0; i < in->frame_count; i++) {
		struct tm_names_frame frame = in->frame(in->frames, i);
		const struct module_place *place = locate(p, places, &frame, &offset);
		f->of_frame[i] = NO_SPOT;
		if (!place || offset > most) continue;
		f->of_frame[i] = spot_at(p, f, (uint64_t)place->file << p->offset_bits | offset);
		if (f->of_frame[i] == NO_SPOT) return false;
		p->spots[f->of_frame[i]].count++;
		p->frame_count++;
	}
	return true;
}

/* As they came, otherwise. */
static bool bring_files_together(struct tm_names_plan *p) {
	size_t *next = calloc(p->file_count + 1, sizeof *next), start = 0; /* by file */
	struct tm_names_spot *spots = malloc(p->spot_count * sizeof *spots);
	if (!next || !spots) return free(next), free(spots), false;
	for (size_t i = 0; i < p->spot_count; i++) next[tm_names_plan_file(p, i)]++;
	for (size_t file = 0; file < p->file_count; file++) {
		size_t count = next[file];
		next[file] = start;
		start += count;
	}
	for (size_t i = 0; i < p->spot_count; i++) spots[next[tm_names_plan_file(p, i)]++] = p->spots[i];
	free(next);
	free(p->spots);
	p->spots = spots;
	return true;
}

/* The frames in the order of their spots, those of one as they came. */
static bool order_frames(struct tm_names_plan *p, const struct finding *f, const struct tm_names_input *in) {
	uint32_t *next = malloc(p->spot_count * sizeof *next), first = 0; /* by a spot's number: where its next frame stands */
	p->frames = malloc(p->frame_count * sizeof *p->frames);
	if (!next || !p->frames) return free(next), false;
	for (struct tm_names_spot *s = p->spots; s < p->spots + p->spot_count; s++) {
		next[s->first] = first;
		s->first = first;
		first += s->count;
	}
	for (size_t i = 0; i < in->frame_count; i++)
		if (f->of_frame[i] != NO_SPOT) p->frames[next[f->of_frame[i]]++] = in->frame(in->frames, i).id;
	free(next);
	return true;
}

static int compare_spots(const void *left, const void *right) {
	const struct tm_names_spot *a = left, *b = right;
	return a->place < b->place ? -1 : a->place > b->place;
}

void tm_names_plan_sort(struct tm_names_plan *p, size_t spot, size_t end) {
	qsort(p->spots + spot, end - spot, sizeof p->spots[0], compare_spots);
}

int tm_names_plan_make(struct tm_names_plan *p, const struct tm_names_input *in) {
	*p = (struct tm_names_plan){ 0 };
	if (in->frame_count >= NO_SPOT) return TM_NAMES_NO_MEMORY;
	struct module_place *places = place_modules(p, in);
	struct finding f = { .of_frame = malloc((in->frame_count + 1) * sizeof *f.of_frame) };
	p->offset_bits = 64 - bits_of(p->file_count);
	if (p->offset_bits == 64) p->offset_bits = 63;
	bool made = places && f.of_frame && find_spots(p, &f, in, places);
	if (made && p->spot_count) made = bring_files_together(p) && order_frames(p, &f, in);
	free(places);
	free(f.of_frame);
	free(f.slots);
	return made ? 0 : TM_NAMES_NO_MEMORY;
}

void tm_names_plan_release(struct tm_names_plan *p) {
	free(p->modules);
	free(p->files);
	free(p->spots);
	free(p->frames);
	*p = (struct tm_names_plan){ 0 };
}
