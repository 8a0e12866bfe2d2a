/* report_text.h - the parts of the report that are text in the page, there before any script runs.
 *
 * Flow:     report_page.c meets the name of a part in report/page.html -> one of these appends it to r's page
 * Each returns 0 or an exit status after saying what failed.
 */
#ifndef TIDEMARK_ANALYZER_REPORT_TEXT_H
#define TIDEMARK_ANALYZER_REPORT_TEXT_H

#include "report.h"

/* report_verdict.c */
int tm_report_title(struct tm_report *r, struct tm_bytes *out);
int tm_report_head(struct tm_report *r, struct tm_bytes *out);
int tm_report_verdict(struct tm_report *r, struct tm_bytes *out);
int tm_report_times(struct tm_report *r, struct tm_bytes *out); /* which instant they count from */
/* report_scopes.c */
int tm_report_scopes(struct tm_report *r, struct tm_bytes *out);
/* report_tables.c */
int tm_report_leaks(struct tm_report *r, struct tm_bytes *out);
int tm_report_steps(struct tm_report *r, struct tm_bytes *out);
int tm_report_sizes(struct tm_report *r, struct tm_bytes *out);
int tm_report_lifetimes(struct tm_report *r, struct tm_bytes *out);
int tm_report_heaps(struct tm_report *r, struct tm_bytes *out);
int tm_report_ooms(struct tm_report *r, struct tm_bytes *out);
int tm_report_lost(struct tm_report *r, struct tm_bytes *out);

#endif
