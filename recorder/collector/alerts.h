/* alerts.h - thresholds that the user wants to hear of: --alert=EXPR.
 *
 * Flow:     record_options.c -> tm_alert_parse(); tally.c (live bytes, in the order of events) and samples.c (what the kernel counts) -> here -> alert
 *           and mark records in the group
 * Grammar:  QUANTITY OP VALUE, blanks anywhere between
 *           QUANTITY  rss | pss | swap | cgroup | device_used | live | live(HEAP)      of each process but for cgroup, which is of the program's
 *           OP        > | >= | < | <=
 *           VALUE     a size, or N%: of the program's cgroup limit, else of the machine's memory; device_used: of the device's
 * Once:     a crossing is told when it happens and not again before the quantity has come back by 5 % of VALUE. A rule with < begins when the
 *           quantity has been 5 % above VALUE.
 * Exact:    live is replayed, so the event that crossed is the one that is told; all others are as good as their readings (--interval).
 * Threads:  the drainer's.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_ALERTS_H
#define TIDEMARK_RECORDER_COLLECTOR_ALERTS_H

#include "../../schema/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TM_ALERT_RULES_MAX 16u

struct tm_collector;
struct tm_process;
struct tm_reading;

enum tm_alert_quantity { TM_ALERT_READING, TM_ALERT_DEVICE, TM_ALERT_LIVE, TM_ALERT_LIVE_HEAP };

struct tm_alert_rule {
	const char *text; /* as given */
	enum tm_alert_quantity quantity;
	unsigned reading;     /* TM_ALERT_READING: enum tm_reading_name */
	struct tm_text heap;  /* TM_ALERT_LIVE_HEAP */
	bool falling, strict; /* < or <=; < or > */
	double percent;       /* 0: `bytes` counts */
	uint64_t bytes;
};

struct tm_alert_rules {
	struct tm_alert_rule all[TM_ALERT_RULES_MAX];
	unsigned count;
};

struct tm_threshold { /* at: what crosses it; back: what makes it able to be crossed again */
	uint64_t at, back;
	bool falling, armed;
};

/* True: it has just been crossed. */
bool tm_threshold_crossed(struct tm_threshold *t, uint64_t value);

struct tm_alert_state { /* of a rule about readings */
	unsigned rule;
	uint32_t process, device;
	struct tm_threshold threshold;
};

struct tm_alerts {
	struct tm_alert_state *states;
	size_t count, capacity;
	uint64_t memory_bytes; /* what percentages are of */
	uint32_t met;          /* bits of the rules whose quantity has come up */
};

/* Adds a rule. false: it makes no sense, or there are too many. `text` must stay. */
bool tm_alert_parse(struct tm_alert_rules *rules, const char *text);

/* Why nothing will ever cross a rule that makes sense as it is written; NULL: something may. */
const char *tm_alert_never(const struct tm_alert_rule *rule);

void tm_alerts_start(struct tm_collector *c);
/* A process, or a heap of its own that was told, is there from now on. */
void tm_alerts_process(struct tm_collector *c, const struct tm_process *p);
void tm_alerts_heap(struct tm_collector *c, const struct tm_process *p, uint32_t heap, struct tm_text name);
/* Looks at the readings that have come; takes them into the group. */
void tm_alerts_collect(struct tm_collector *c);
/* Has what the rule is about come up at all? A heap may be named wrongly, or a reading not be had here. */
bool tm_alerts_met(const struct tm_collector *c, unsigned rule);
void tm_alerts_release(struct tm_alerts *a);

#endif
