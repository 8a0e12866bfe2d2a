/* patience.c - the watermark without those who stand still: see patience.h. */
#include "patience.h"

#include "collector.h"
#include "drain.h"

bool tm_stands_still(const struct tm_ring_view *r, uint64_t now_ns) {
	return r->busy && r->tail == r->head && now_ns - r->quiet_since_ns > TM_PATIENCE_NS;
}

uint64_t tm_patient_ticks(const struct tm_collector *c, uint64_t now_ticks, uint32_t used) {
	uint64_t before = c->patient_ticks > c->watermark_ticks ? c->patient_ticks : c->watermark_ticks;
	if (tm_time_map_ns(&c->timebase.map, now_ticks) - tm_time_map_ns(&c->timebase.map, c->watermark_ticks) < TM_PATIENCE_NS)
		return before;
	uint64_t now_ns = tm_monotonic_ns(), patient = now_ticks;
	for (uint32_t i = 0; i < used; i++) {
		const struct tm_ring_view *r = &c->rings[i];
		uint64_t safe = r->claimed && !tm_stands_still(r, now_ns) ? tm_drain_safe_until(r, now_ticks) : now_ticks;
		if (safe < patient) patient = safe;
	}
	return patient > before ? patient : before;
}
