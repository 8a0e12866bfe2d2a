/* report_page.h - puts the report together: report/page.html with its parts filled in.
 *
 * Owns:     nothing; the page grows in the caller's bytes.
 * Fails:    with one line on standard error and an exit status.
 */
#ifndef TIDEMARK_ANALYZER_REPORT_PAGE_H
#define TIDEMARK_ANALYZER_REPORT_PAGE_H

#include "report.h"

/* Appends the whole page, at most about TM_REPORT_FILE_BYTES of it: where it would be more, fewer call stacks are followed. */
int tm_report_page(struct tm_report *r, struct tm_bytes *out);

#endif
