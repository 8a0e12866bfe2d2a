"""What the recorder adds to the events: readings of memory, notes, the ends of threads."""
import os

from tidemark_test import main, test


def source(t, name, text):
    path = t.path(name)
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    return t.program(path, name=f"collector_{os.path.splitext(name)[0]}")


# Each mark but the first is set only when the recorder's reading after the one before may have come; the last one leaves time for its own.
MARKS = """
#include "tidemark.h"
#include <stdio.h>
#include <unistd.h>
int main(void) {
	char name[16];
	for (int i = 0; i < 10; i++) {
		snprintf(name, sizeof name, "m%d", i);
		tidemark_mark(name);
		usleep(i < 9 ? 3000 : 300000);
	}
	return 0;
}
"""


@test
def every_mark_has_a_reading(t):
    program = source(t, "marks.c", MARKS)
    for interval in ("0", "100"):
        db = t.imported(t.record([program], f"--interval={interval}"))
        marks = [row[0] for row in db.rows("select ts_ns from mark order by ts_ns")]
        t.equal(len(marks), 10, "marks")
        for name in ("rss", "rss_peak", "vms"):
            times = [row[0] for row in db.rows("select ts_ns from sample where name = ? and process_id is not null", name)]
            t.check(max(times) > marks[-1], f"{name} was read after the last mark")
            t.check(all(time > marks[0] for time in times) or interval == "100", f"{name} is read at marks only")
            t.check(len(times) <= 10 or interval == "100", f"{name} is read once a mark at most")
        t.check(db.value("select count(*) from sample where process_id is null and name = 'tool_rss'") > 0, "the recorder's own memory was read")


@test
def no_interval_no_marks_no_readings(t):
    db = t.imported(t.record(["/bin/true"], "--interval=0"))
    t.equal(db.value("select count(*) from sample"), 0, "readings")


main()
