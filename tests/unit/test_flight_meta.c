/* test_flight_meta.c - recorder/collector/flight_meta.c: what stays of notes and losses when the chunks that told them are dropped. */
#include "../../recorder/collector/flight_meta.h"

#include "check.h"

#include <stdio.h>

static size_t count_of(const struct tm_bytes *records, uint64_t wanted, const char *kind) {
	struct tm_cursor all = tm_cursor_over(records->data, records->size), body;
	uint64_t tag;
	size_t n = 0;
	while (tm_record_next(&all, &tag, &body)) n += tag == wanted && (!kind || tm_is_note(tm_get_note(&body).kind, kind));
	return n;
}

/* More notes than there is room for, and one behind them that readers go by. */
static void test_notes(struct tm_flight_meta *m, struct tm_flight_set *set) {
	struct tm_bytes b = TM_BYTES_INIT;
	char text[120];
	for (int i = 0; i < 5000; i++) {
		snprintf(text, sizeof text, "%099d", i);
		tm_put_note(&b, &(struct tm_note){
					.process = 1, .ns = (uint64_t)i, .kind = tm_text_of("not-recordable"), .text = tm_text_of(text) });
	}
	tm_put_note(&b, &(struct tm_note){ .process = 1, .ns = 5000, .kind = tm_text_of(TM_NOTE_BYPASSED), .text = tm_text_of(text) });
	CHECK(tm_flight_meta_records(m, set, tm_cursor_over(b.data, b.size)) == 0);
	size_t kept = count_of(&m->head, TM_RECORD_NOTE, "not-recordable");
	CHECK(kept > 2000 && kept < 2600); /* of some 115 bytes in 256 KiB */
	CHECK(kept + m->talk_left_out == 5000);
	CHECK(count_of(&m->head, TM_RECORD_NOTE, TM_NOTE_BYPASSED) == 1);
	tm_bytes_release(&b);
}

static void put_loss(struct tm_bytes *b, uint64_t process, const char *kind) {
	tm_put_loss(b,
		    &(struct tm_loss){
			    .process = process, .ns = 1, .kind = tm_text_of(kind), .count = 2, .bytes = 30, .reason = tm_text_of("why") });
}

/* Each process has its own; of those beyond the bound the recording has one of each kind. */
static void test_losses(struct tm_flight_meta *m, struct tm_flight_set *set) {
	struct tm_bytes b = TM_BYTES_INIT;
	for (int round = 0; round < 2; round++)
		for (uint64_t p = 1; p <= TM_FLIGHT_LOSSES + 10; p++) put_loss(&b, p, "ring-full");
	put_loss(&b, 1, "records");
	put_loss(&b, 2, "records");
	CHECK(tm_flight_meta_records(m, set, tm_cursor_over(b.data, b.size)) == 0);
	CHECK(m->loss_count == TM_FLIGHT_LOSSES + 2);
	uint64_t all = 0;
	for (size_t i = 0; i < m->loss_count; i++) {
		const struct tm_flight_loss *l = &m->losses[i];
		uint64_t wanted = i < TM_FLIGHT_LOSSES ? 4 : i == TM_FLIGHT_LOSSES ? 40 : 4;
		CHECK(l->process == (i < TM_FLIGHT_LOSSES ? i + 1 : 0) && l->count == wanted && l->bytes == 15 * wanted);
		CHECK(!strcmp(l->kind, i == TM_FLIGHT_LOSSES + 1 ? "records" : "ring-full"));
		all += l->count;
	}
	CHECK(all == 2 * (2 * (TM_FLIGHT_LOSSES + 10) + 2));
	tm_bytes_release(&b);
}

int main(void) {
	struct tm_flight_meta m = { 0 };
	struct tm_flight_set *set = tm_flight_set_new(SIZE_MAX);
	test_notes(&m, set);
	test_losses(&m, set);
	tm_flight_meta_release(&m);
	tm_flight_set_free(set);
	return check_report("flight_meta");
}
