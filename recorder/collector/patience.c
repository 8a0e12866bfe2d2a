/* patience.c - watermarks, with and without those who stand still: see patience.h. */
#include "patience.h"

#include "collector.h"
#include "drain.h"

bool tm_stands_still(const struct tm_ring_view *r, uint64_t now_ns) {
	return r->busy && r->tail == r->head && now_ns - r->quiet_since_ns > TM_PATIENCE_NS;
}

/* now_ns 0: who stands still is waited for. */
static uint64_t least_of(const struct tm_collector *c, const struct tm_ring_view *one, uint64_t now_ns, uint64_t now_ticks, uint32_t used) {
	uint64_t watermark = now_ticks;
	for (uint32_t i = 0; i < used; i++) {
		const struct tm_ring_view *r = &c->rings[i];
		if (!r->claimed || r == one || (now_ns && tm_stands_still(r, now_ns))) continue;
		uint64_t safe = tm_drain_safe_until(r, now_ticks);
		if (safe < watermark) watermark = safe;
	}
	return watermark;
}

uint64_t tm_watermark_without(const struct tm_collector *c, const struct tm_ring_view *one, uint64_t now_ticks, uint32_t used) {
	return least_of(c, one, 0, now_ticks, used);
}

uint64_t tm_patient_ticks(const struct tm_collector *c, uint64_t now_ticks, uint32_t used) {
	uint64_t before = c->patient_ticks > c->watermark_ticks ? c->patient_ticks : c->watermark_ticks;
	if (tm_time_map_ns(&c->timebase.map, now_ticks) - tm_time_map_ns(&c->timebase.map, c->watermark_ticks) < TM_PATIENCE_NS)
		return before;
	uint64_t patient = least_of(c, NULL, tm_monotonic_ns(), now_ticks, used);
	return patient > before ? patient : before;
}
