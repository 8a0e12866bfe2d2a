/* gpu_block_rows.h - what gpu_watch.c followed, as rows, and what it proves.
 *
 * Flow:     gpu_watch.c, peak_periods.c, gpu_sites.c -> here -> gpu_block, gpu_process, gpu_site, gpu_inefficiency_total,
 *           gpu_gap_sample, peak_period
 * Fails:    into the store.
 */
#ifndef TIDEMARK_ANALYZER_GPU_BLOCK_ROWS_H
#define TIDEMARK_ANALYZER_GPU_BLOCK_ROWS_H

#include "replay.h"
#include "store.h"

/* After the replay, and after the rows of processes and heaps and gpu_memory. */
void tm_write_gpu_block_rows(struct tm_store *store, const struct tm_replay *r);

#endif
