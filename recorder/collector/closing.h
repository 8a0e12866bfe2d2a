/* closing.h - what is written and said when the program has ended: names, totals, the summary.
 *
 * Flow:     record_main.c, when everything is drained -> here -> NAMES and END chunks; five lines on standard error
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_CLOSING_H
#define TIDEMARK_RECORDER_COLLECTOR_CLOSING_H

#include <stdint.h>

struct tm_collector;

/* Counts the events that --max-size had no room for; once the encoder is stopped. */
void tm_closing_write_left_out(struct tm_collector *c);
/* Resolves the recorded addresses, and writes their names once all events are written. Of what was collected it reads the frames and the modules: the rest may
 * be given back meanwhile. first_string_id: from here on ids of strings are free. */
void tm_closing_write_names(struct tm_collector *c, uint64_t first_string_id);
/* The last chunk. */
void tm_closing_write_end(struct tm_collector *c);
void tm_closing_print_summary(struct tm_collector *c);
/* Says that the trace could not be written, or that it was removed, if so. */
void tm_closing_print_failure(struct tm_collector *c);

#endif
