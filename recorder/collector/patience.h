/* patience.h - how long figures wait for a thread that stands still in the middle of an event.
 *
 * Why:      such a thread (its signal handler sleeps, its process is stopped, or under a debugger) holds the watermark for as long as it stands there.
 *           The trace can wait for it, since its reader sorts; alerts, tidemark_stats() and the closing figures of all other threads cannot.
 * Says:     the watermark, as if those that have stood still for TM_PATIENCE_NS had nothing more to tell. When one goes on, its event comes late, and
 *           figures of its process are approximate from there on (tally.h).
 * Threads:  the drainer's.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_PATIENCE_H
#define TIDEMARK_RECORDER_COLLECTOR_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

#define TM_PATIENCE_NS 1000000000u

struct tm_collector;
struct tm_ring_view;

/* As the last pass saw the ring. */
bool tm_stands_still(const struct tm_ring_view *r, uint64_t now_ns);
/* The watermark of all rings but one; NULL: of all. `used`: so many rings are looked at. */
uint64_t tm_watermark_without(const struct tm_collector *c, const struct tm_ring_view *one, uint64_t now_ticks, uint32_t used);
/* At least the watermark, and never less than before. `used`: so many rings are looked at, which a pass has read up to their heads. */
uint64_t tm_patient_ticks(const struct tm_collector *c, uint64_t now_ticks, uint32_t used);

#endif
