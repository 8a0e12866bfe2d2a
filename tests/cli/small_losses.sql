-- small_losses.sql - what small_db.sql would have lost.
INSERT INTO loss(trace_id, process_id, thread_id, kind, count, bytes, reason) VALUES (1, 1, 2, 'event', 3, 96, 'ring full');
