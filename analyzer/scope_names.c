/* scope_names.c - the names of scopes: one number for each text, one group for each name, category and process; see scopes.h. */
#include "scopes.h"

struct tm_text tm_scope_text(const struct tm_scopes *x, uint32_t string) {
	return string ? x->catalog->strings.items[string - 1] : (struct tm_text){ "", 0 };
}

static uint64_t hash_of(struct tm_text t) {
	uint64_t h = 0xCBF29CE484222325ull;
	for (size_t i = 0; i < t.size; i++) h = (h ^ (unsigned char)t.data[i]) * 0x100000001B3ull;
	return h;
}

static bool same_text(struct tm_text a, struct tm_text b) {
	return a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}

static uint32_t look_up(struct tm_scopes *x, uint32_t string) {
	struct tm_text text = tm_scope_text(x, string);
	uint64_t hash = hash_of(text);
	for (uint64_t probe = 0;; probe++) {
		uint64_t *found = tm_id_map_put(&x->texts, hash, probe);
		if (!found) {
			x->failed = true;
			return string;
		}
		if (!*found) *found = string;
		if (same_text(tm_scope_text(x, (uint32_t)*found), text)) return (uint32_t)*found;
	}
}

uint32_t tm_scope_canonical(struct tm_scopes *x, uint32_t string) {
	if (!string) return 0;
	uint32_t *known = &x->canonical[string - 1];
	if (!*known) *known = look_up(x, string);
	return *known;
}

static bool is_word(const struct tm_scopes *x, uint32_t string, const char *word) {
	return same_text(tm_scope_text(x, string), tm_text_of(word));
}

size_t tm_scope_group_of(struct tm_scopes *x, uint32_t process, uint32_t name, uint32_t category) {
	name = tm_scope_canonical(x, name);
	category = tm_scope_canonical(x, category);
	uint64_t *index = tm_id_map_put(&x->group_ids, (uint64_t)process << 32 | category, name);
	if (index && *index) return *index - 1;
	struct tm_scope_group *g = index ? tm_array_push(&x->groups) : NULL;
	if (!g) {
		x->failed = true;
		return SIZE_MAX;
	}
	*index = x->groups.count;
	*g = (struct tm_scope_group){ .process = process,
				      .name = name,
				      .category = category,
				      .is_forward = is_word(x, category, "torch.op"),
				      .is_backward = is_word(x, category, "torch.backward") };
	return x->groups.count - 1;
}
