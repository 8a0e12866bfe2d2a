-- indexes.sql - made last, when every row is there. allocation_packed has none on purpose: each would cost more than the rest of the import.
CREATE INDEX IF NOT EXISTS process_by_trace ON process(trace_id);
CREATE INDEX IF NOT EXISTS thread_by_process ON thread(process_id);
CREATE INDEX IF NOT EXISTS heap_by_process ON heap(process_id, name);
CREATE INDEX IF NOT EXISTS timeline_by_heap ON timeline(process_id, heap_id, ts_ns);
CREATE INDEX IF NOT EXISTS sample_by_process ON sample(process_id, name, ts_ns);
CREATE INDEX IF NOT EXISTS snapshot_by_process ON snapshot(process_id, label, heap_id);
