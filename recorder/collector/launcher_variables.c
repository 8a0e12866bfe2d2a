/* launcher_variables.c - what is taken of an environment: see launcher_variables.h. */
#include "launcher_variables.h"

#include "../launcher_names.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const rank_names[] = { TM_RANK_VARIABLES, NULL };
static const char *const local_rank_names[] = { TM_LOCAL_RANK_VARIABLES, NULL };
static const char *const world_size_names[] = { TM_WORLD_SIZE_VARIABLES, NULL };
static const char *const world_names[] = { TM_WORLD_VARIABLES, NULL };
static const char *const torchrun_names[] = { TM_TORCHRUN_VARIABLE, "RANK", "LOCAL_RANK", "WORLD_SIZE", NULL };
static const char *const job_names[] = { TM_JOB_VARIABLES, NULL };
static const char *const step_names[] = { TM_STEP_VARIABLES, NULL };
static const char *const of_step_names[] = { TM_OF_STEP_VARIABLES, NULL };

/* The place of the name in the list, from 1; 0: not in it, or an earlier one has been seen. */
static uint8_t better_place(const char *const *names, const char *name, size_t n, uint8_t now) {
	for (uint8_t i = 0; names[i] && (!now || i + 1 < now); i++)
		if (strlen(names[i]) == n && !memcmp(names[i], name, n)) return (uint8_t)(i + 1);
	return 0;
}

static void take_number(const char *const *names, const char *name, size_t name_bytes, const char *value, int64_t *out, uint8_t *place) {
	char *end;
	uint8_t better = better_place(names, name, name_bytes, *place);
	if (!better || *value < '0' || *value > '9') return;
	long long n = strtoll(value, &end, 10);
	if (*end) return;
	*out = n;
	*place = better;
}

static void take_text(const char *const *names, const char *name, size_t name_bytes, const char *value, char *out, size_t out_bytes,
		      uint8_t *place) {
	uint8_t better = better_place(names, name, name_bytes, *place);
	if (!better || !*value || strlen(value) >= out_bytes) return;
	strcpy(out, value);
	*place = better;
}

static void prefer(int64_t known, int64_t *out, uint8_t *place) {
	if (known < 0) return;
	*out = known;
	*place = 1;
}

static void take_torchrun(struct tm_launcher *l, const char *name, size_t name_bytes, const char *value) {
	int64_t *const numbers[] = { &l->torchrun.rank, &l->torchrun.local_rank, &l->torchrun.world_size };
	uint8_t none = 0, place = better_place(torchrun_names, name, name_bytes, 0);
	if (place == 1) take_text(torchrun_names, name, name_bytes, value, l->torchrun.run, sizeof l->torchrun.run, &none);
	else if (place) take_number(torchrun_names, name, name_bytes, value, numbers[place - 2], &none);
	if (!place || !l->torchrun.run[0]) return;
	prefer(l->torchrun.rank, &l->rank, &l->rank_place);
	prefer(l->torchrun.local_rank, &l->local_rank, &l->local_rank_place);
	prefer(l->torchrun.world_size, &l->world_size, &l->world_size_place);
}

static void take_numbers(struct tm_launcher *l, const char *name, size_t name_bytes, const char *value) {
	take_number(rank_names, name, name_bytes, value, &l->rank, &l->rank_place);
	take_number(local_rank_names, name, name_bytes, value, &l->local_rank, &l->local_rank_place);
	take_number(world_size_names, name, name_bytes, value, &l->world_size, &l->world_size_place);
}

/* False: it is no number of a step's. */
static bool keep_of_step(struct tm_launcher *l, const char *name, size_t name_bytes, const char *value) {
	uint8_t place = better_place(of_step_names, name, name_bytes, 0);
	if (place && strlen(value) < sizeof l->of_step[0]) strcpy(l->of_step[place - 1], value);
	return place;
}

static void take_step(struct tm_launcher *l, const char *name, size_t name_bytes, const char *value) {
	take_text(step_names, name, name_bytes, value, l->step, sizeof l->step, &l->step_place);
	if (!l->step[0]) return;
	for (unsigned i = 0; of_step_names[i]; i++) take_numbers(l, of_step_names[i], strlen(of_step_names[i]), l->of_step[i]);
}

void tm_launcher_take(struct tm_launcher *l, const char *assignment, size_t n) {
	char value[TM_WORLD_NAME_MAX];
	const char *equals = memchr(assignment, '=', n);
	if (!equals) return;
	size_t name_bytes = (size_t)(equals - assignment), value_bytes = n - name_bytes - 1;
	if (value_bytes >= sizeof value) return;
	memcpy(value, equals + 1, value_bytes);
	value[value_bytes] = 0;
	if (!keep_of_step(l, assignment, name_bytes, value)) take_numbers(l, assignment, name_bytes, value);
	take_text(job_names, assignment, name_bytes, value, l->job, sizeof l->job, &l->job_place);
	take_step(l, assignment, name_bytes, value);
	take_text(world_names, assignment, name_bytes, value, l->world, sizeof l->world, &l->world_place);
	take_torchrun(l, assignment, name_bytes, value);
}

void tm_launcher_world(const struct tm_launcher *l, const struct tm_launcher *trace, char *out) {
	bool is_worker = l->torchrun.run[0], has_name = is_worker && strcmp(l->torchrun.run, "none") != 0;
	*out = 0;
	if (has_name) strcpy(out, l->torchrun.run);
	else if (l->world[0]) strcpy(out, l->world);
	else if (trace->step[0]) sprintf(out, "%s.%s", trace->job, trace->step);
	if (*out && is_worker && !has_name)
		strcat(out, "/torchrun"); /* the launcher counts the torchruns themselves in a world of that name */
}

void tm_launcher_of_environment(struct tm_launcher *l) {
	*l = (struct tm_launcher)TM_LAUNCHER_NONE;
	for (char **p = environ; p && *p; p++) tm_launcher_take(l, *p, strlen(*p));
}
