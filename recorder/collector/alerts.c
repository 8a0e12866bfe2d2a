/* alerts.c - rules, and who has crossed them: see alerts.h. */
#include "alerts.h"

#include "../../schema/units.h"
#include "collector.h"
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HYSTERESIS 20u /* one part in so many */

/* --- rules --- */

static const char *skip_blanks(const char *p) {
	while (*p == ' ' || *p == '\t') p++;
	return p;
}

static const char *parse_heap(struct tm_alert_rule *rule, const char *p) {
	const char *end;
	p = skip_blanks(p);
	if (*p != '(') {
		rule->quantity = TM_ALERT_LIVE;
		return p;
	}
	p = skip_blanks(p + 1);
	if (!(end = strrchr(p, ')'))) return NULL;
	rule->quantity = TM_ALERT_LIVE_HEAP;
	rule->heap = (struct tm_text){ p, (size_t)(end - p) };
	while (rule->heap.size && p[rule->heap.size - 1] == ' ') rule->heap.size--;
	return rule->heap.size ? end + 1 : NULL;
}

static const char *parse_quantity(struct tm_alert_rule *rule, const char *p) {
	static const struct {
		const char *name;
		enum tm_reading_name reading;
	} readings[] = {
		{ "rss", TM_READING_RSS }, { "pss", TM_READING_PSS }, { "swap", TM_READING_SWAP }, { "cgroup", TM_READING_CGROUP }
	};
	size_t n = strspn(p, "abcdefghijklmnopqrstuvwxyz_");
	if (n == 4 && !memcmp(p, "live", 4)) return parse_heap(rule, p + n);
	rule->quantity = TM_ALERT_DEVICE;
	if (n == 11 && !memcmp(p, "device_used", 11)) return p + n;
	rule->quantity = TM_ALERT_READING;
	for (size_t i = 0; i < sizeof readings / sizeof readings[0]; i++) {
		if (strlen(readings[i].name) != n || memcmp(p, readings[i].name, n) != 0) continue;
		rule->reading = readings[i].reading;
		return p + n;
	}
	return NULL;
}

static bool parse_value(struct tm_alert_rule *rule, const char *p) {
	char *end;
	size_t n = strlen(p);
	if (!n || *p < '0' || *p > '9') return false;
	if (p[n - 1] != '%') return tm_parse_size(p, &rule->bytes);
	rule->percent = strtod(p, &end);
	return *skip_blanks(end) == '%' && rule->percent > 0 && rule->percent <= 1000;
}

bool tm_alert_parse(struct tm_alert_rules *rules, const char *text) {
	if (rules->count == TM_ALERT_RULES_MAX) return false;
	struct tm_alert_rule *rule = &rules->all[rules->count];
	*rule = (struct tm_alert_rule){ .text = text };
	const char *p = parse_quantity(rule, skip_blanks(text));
	if (!p) return false;
	p = skip_blanks(p);
	if (*p != '<' && *p != '>') return false;
	rule->falling = *p == '<';
	rule->strict = p[1] != '=';
	if (!parse_value(rule, skip_blanks(p + (rule->strict ? 1 : 2)))) return false;
	rules->count++;
	return true;
}

/* A device's memory, and what a cgroup is charged for. What a program asks for may be more than all of it, as it need not touch that; what it has mapped may
 * be charged to another cgroup, or stand there twice; and swap is apart. */
static bool is_part_of_whole(const struct tm_alert_rule *rule) {
	return rule->quantity == TM_ALERT_DEVICE || (rule->quantity == TM_ALERT_READING && rule->reading == TM_READING_CGROUP);
}

const char *tm_alert_never(const struct tm_alert_rule *rule) {
	double back = rule->percent + rule->percent / HYSTERESIS;
	if (rule->bytes > INT64_MAX) return "nothing is that large";
	if (rule->falling && rule->strict && !rule->bytes && rule->percent <= 0) return "nothing is less than 0";
	if (!is_part_of_whole(rule)) return NULL;
	if (rule->falling) return back > 100 ? "a rule with < begins 5 % above, which is more than 100%" : NULL;
	return rule->percent > 100 || (rule->percent >= 100 && rule->strict) ? "there is 100% at most" : NULL;
}

/* --- thresholds --- */

bool tm_threshold_crossed(struct tm_threshold *t, uint64_t value) {
	if (!t->armed) {
		t->armed = t->falling ? value >= t->back : value <= t->back;
		return false;
	}
	if (t->falling ? value > t->at : value < t->at) return false;
	t->armed = false;
	return true;
}

static struct tm_threshold threshold_of(const struct tm_alert_rule *rule, uint64_t whole_bytes) {
	uint64_t bytes = rule->percent > 0 ? (uint64_t)(rule->percent / 100 * (double)whole_bytes) : rule->bytes, band = bytes / HYSTERESIS;
	struct tm_threshold t = { .falling = rule->falling, .armed = !rule->falling };
	if (rule->falling) {
		t.at = bytes - (rule->strict && bytes);
		t.back = bytes + band;
	} else {
		t.at = bytes + rule->strict;
		t.back = bytes - band;
	}
	return t;
}

/* --- what percentages are of --- */

static uint64_t read_limit(const char *path) {
	unsigned long long bytes = 0;
	FILE *f = fopen(path, "re");
	if (!f) return UINT64_MAX;
	if (fscanf(f, "%llu", &bytes) != 1) bytes = 0; /* "max" */
	fclose(f);
	return bytes ? bytes : UINT64_MAX;
}

/* The least limit of the cgroup and those around it. */
static uint64_t cgroup_limit(const char *usage_path) {
	char path[4352], directory[4096];
	uint64_t least = UINT64_MAX;
	snprintf(directory, sizeof directory, "%s", usage_path);
	const char *file = strstr(usage_path, "usage_in_bytes") ? "memory.limit_in_bytes" : "memory.max";
	for (char *slash; (slash = strrchr(directory, '/')) && slash != directory && strcmp(directory, "/sys/fs/cgroup") != 0;) {
		*slash = 0;
		snprintf(path, sizeof path, "%s/%s", directory, file);
		uint64_t limit = read_limit(path);
		if (limit < least) least = limit;
	}
	return least;
}

void tm_alerts_start(struct tm_collector *c) {
	if (!c->options.alerts.count) return;
	uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t limit = c->sampler.cgroup_path[0] ? cgroup_limit(c->sampler.cgroup_path) : UINT64_MAX;
	c->alerts.memory_bytes = limit < machine ? limit : machine;
	for (unsigned i = 0; i < c->options.alerts.count; i++)
		c->sampler.pss_wanted |= c->options.alerts.all[i].quantity == TM_ALERT_READING &&
					 c->options.alerts.all[i].reading == TM_READING_PSS;
}

/* --- telling --- */

static void tell_one(struct tm_collector *c, const struct tm_alert_rule *rule, uint32_t process, uint64_t time, bool is_ns) {
	char name[256];
	int n = snprintf(name, sizeof name, "alert: %s", rule->text);
	struct tm_meta *mark = tm_group_add(c->group, TM_RECORD_MARK);
	mark->mark.is_ns = is_ns;
	mark->mark.record = (struct tm_mark){ .process = process, .ns = time };
	mark->mark.record.name = tm_group_text(c->group, name, n < (int)sizeof name ? (size_t)n : sizeof name - 1);
}

/* One of no process marks all that run. */
static void tell(struct tm_collector *c, unsigned number, uint32_t process, uint64_t time, bool is_ns, uint64_t value) {
	const struct tm_alert_rule *rule = &c->options.alerts.all[number];
	struct tm_meta *alert = tm_group_add(c->group, TM_RECORD_ALERT);
	alert->alert.is_ns = is_ns;
	alert->alert.record = (struct tm_alert){ process, time, tm_text_of(rule->text), value };
	if (process) tell_one(c, rule, process, time, is_ns);
	for (size_t i = 0; !process && i < c->processes.open_count; i++) {
		const struct tm_process *p = c->processes.open[i];
		if (p->id && !p->dead) tell_one(c, rule, p->id, time, is_ns);
	}
	char why[200];
	snprintf(why, sizeof why, "alert: %s", rule->text);
	tm_dumps_ask(c, why, true);
}

/* What is freed at the very moment of a mark is live at the mark; so it is made right after. */
static void live_crossed(void *context, uint32_t process, unsigned rule, uint64_t ns, uint64_t value) {
	const struct tm_collector *c = context;
	tell(context, rule, process, ns + c->options.alerts.all[rule].falling, true, value);
}

void tm_alerts_process(struct tm_collector *c, const struct tm_process *p) {
	static const char *const names[] = { [TM_TALLY_MALLOC] = "malloc", [TM_TALLY_MMAP] = "mmap", [TM_TALLY_MMAP_FILE] = "mmap-file" };
	for (unsigned i = 0; i < c->options.alerts.count; i++) {
		const struct tm_alert_rule *rule = &c->options.alerts.all[i];
		struct tm_tally_watch watch = { .rule = i, .threshold = threshold_of(rule, c->alerts.memory_bytes) };
		watch.of_process = rule->quantity == TM_ALERT_LIVE;
		bool known = watch.of_process;
		for (unsigned heap = TM_TALLY_MALLOC; rule->quantity == TM_ALERT_LIVE_HEAP && !known && heap <= TM_TALLY_MMAP_FILE;
		     heap++) {
			watch.heap = (enum tm_tally_default)heap;
			known = strlen(names[heap]) == rule->heap.size && !memcmp(names[heap], rule->heap.data, rule->heap.size);
		}
		if (!known) continue;
		c->alerts.met |= 1u << i;
		tm_tally_watch(c->tally, p->id, watch, live_crossed, c);
	}
}

void tm_alerts_heap(struct tm_collector *c, const struct tm_process *p, uint32_t heap, struct tm_text name) {
	for (unsigned i = 0; i < c->options.alerts.count; i++) {
		const struct tm_alert_rule *rule = &c->options.alerts.all[i];
		if (rule->quantity != TM_ALERT_LIVE_HEAP || rule->heap.size != name.size ||
		    memcmp(rule->heap.data, name.data, name.size) != 0)
			continue;
		struct tm_tally_watch watch = {
			.rule = i, .heap = TM_TALLY_OWN, .id = heap, .threshold = threshold_of(rule, c->alerts.memory_bytes)
		};
		c->alerts.met |= 1u << i;
		tm_tally_watch(c->tally, p->id, watch, live_crossed, c);
	}
}

/* --- readings --- */

static struct tm_alert_state *state_of(struct tm_alerts *a, const struct tm_alert_rule *rule, unsigned number, uint32_t process,
				       uint32_t device, uint64_t whole_bytes) {
	for (size_t i = 0; i < a->count; i++) {
		struct tm_alert_state *s = &a->states[i];
		if (s->rule == number && s->process == process && s->device == device) return s;
	}
	a->states = tm_memory_grow(a->states, &a->capacity, a->count + 1, sizeof a->states[0]);
	a->states[a->count] = (struct tm_alert_state){ number, process, device, threshold_of(rule, whole_bytes) };
	return &a->states[a->count++];
}

static void look_at(struct tm_collector *c, const struct tm_reading *r) {
	for (unsigned i = 0; i < c->options.alerts.count; i++) {
		const struct tm_alert_rule *rule = &c->options.alerts.all[i];
		uint64_t value = 0, whole = c->alerts.memory_bytes;
		bool known = rule->quantity == TM_ALERT_READING && !r->device.number_plus_1 && r->known >> rule->reading & 1;
		if (known) value = r->values[rule->reading];
		if (rule->quantity == TM_ALERT_DEVICE && r->device.number_plus_1 && r->device.own_bytes != UINT64_MAX) {
			value = r->device.own_bytes;
			whole = r->device.total_bytes;
			known = rule->percent <= 0 || whole != UINT64_MAX;
		}
		if (!known) continue;
		c->alerts.met |= 1u << i;
		struct tm_alert_state *s = state_of(&c->alerts, rule, i, (uint32_t)r->process, r->device.number_plus_1, whole);
		if (tm_threshold_crossed(&s->threshold, value)) tell(c, i, (uint32_t)r->process, r->ns, false, value);
	}
}

void tm_alerts_collect(struct tm_collector *c) {
	size_t before = c->group->meta_count;
	tm_sampler_collect(&c->sampler, c->group);
	if (!c->options.alerts.count) return;
	for (size_t i = before, end = c->group->meta_count; i < end; i++) {
		if (c->group->meta[i].tag != TM_RECORD_SAMPLES) continue;
		struct tm_reading reading = c->group->meta[i].samples; /* telling makes the array grow */
		look_at(c, &reading);
	}
}

bool tm_alerts_met(const struct tm_collector *c, unsigned rule) {
	return c->alerts.met >> rule & 1;
}

void tm_alerts_release(struct tm_alerts *a) {
	free(a->states); /* what has been met is asked for behind this */
	a->states = NULL;
	a->count = a->capacity = 0;
}
