/* live_names.c - names of functions while the trace has none yet; see live_names.h. */
#include "live_names.h"

#include "recorder_path.h"
#include "wrappers.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUTWARD_MAX 64u        /* wrappers around wrappers */
#define REQUEST_MAX 16384u     /* bytes; longer ones are not asked */
#define ANSWER_MAX (16u << 20) /* bytes; more is no answer */

extern char **environ;

void tm_live_names_init(struct tm_live_names *n, const struct tm_live *live) {
	*n = (struct tm_live_names){ .live = live, .fd = -1 };
}

static void hang_up(struct tm_live_names *n) {
	if (n->fd < 0) return;
	close(n->fd); /* it reads the end of its requests */
	n->fd = -1;
	kill(n->pid, SIGKILL);
	while (waitpid(n->pid, NULL, 0) < 0 && errno == EINTR) continue;
}

void tm_live_names_release(struct tm_live_names *n) {
	hang_up(n);
	for (size_t i = 0; i < n->names.count; i++) {
		free(n->names.items[i].function);
		free(n->names.items[i].file);
	}
	tm_array_release(&n->names);
	tm_array_release(&n->asked);
	tm_array_release(&n->python);
	tm_bytes_release(&n->out);
	tm_bytes_release(&n->in);
}

/* --- the process --- */

static bool spawn_reader(struct tm_live_names *n, int theirs) {
	char path[PATH_MAX], name[] = TM_RECORDER, command[] = "names-lookup";
	char *arguments[] = { name, command, NULL };
	posix_spawn_file_actions_t actions;
	if (posix_spawn_file_actions_init(&actions) != 0) return false;
	int rc = posix_spawn_file_actions_adddup2(&actions, theirs, 0);
	if (!rc) rc = posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
	if (!rc) rc = tm_recorder_beside(path) ? posix_spawn(&n->pid, path, &actions, NULL, arguments, environ) : ENOENT;
	if (rc) rc = posix_spawnp(&n->pid, TM_RECORDER, &actions, NULL, arguments, environ);
	posix_spawn_file_actions_destroy(&actions);
	return rc == 0;
}

static void start(struct tm_live_names *n) {
	int ends[2];
	n->tried = true;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
	bool started = spawn_reader(n, ends[1]);
	close(ends[1]);
	if (started) n->fd = ends[0];
	else close(ends[0]);
}

/* --- requests --- */

static bool put_request(struct tm_live_names *n, uint32_t frame) {
	const struct tm_catalog *c = &n->live->catalog;
	const struct tm_catalog_frame *f = &c->frames.items[frame - 1];
	if (f->kind != TM_FRAME_NATIVE || !f->module || !c->modules.items[f->module - 1].defined) return false;
	const struct tm_catalog_module *m = &c->modules.items[f->module - 1];
	if (!m->path.size || *m->path.data != '/') return false;
	if (!n->tried) start(n);
	if (n->fd < 0 || m->path.size + m->build_id.size > REQUEST_MAX - 64) return false;
	uint32_t *asked = tm_array_push(&n->asked);
	if (!asked) return false;
	*asked = frame;
	size_t at = n->out.size;
	tm_put_u32(&n->out, 0);
	tm_put_string(&n->out, m->build_id.data, m->build_id.size);
	tm_put_string(&n->out, m->path.data, m->path.size);
	tm_put_varint(&n->out, f->address - m->bias - 1);
	if (n->out.failed) return false;
	uint32_t size = (uint32_t)(n->out.size - at - sizeof size);
	memcpy(n->out.data + at, &size, sizeof size);
	return true;
}

static bool is_wrapper(struct tm_text function) {
	return tm_is_wrapper(function) || tm_is_operator_new(function) || tm_is_inlined_allocator(function);
}

/* One function of a frame, innermost first; false: the one to show is known. */
static bool take_function(struct tm_live_name *name, struct tm_text function, struct tm_text file, uint64_t line) {
	if (function.size && is_wrapper(function)) {
		name->state = TM_NAME_WRAPPER;
		return true;
	}
	if (!function.size) return true;
	name->function = strndup(function.data, function.size);
	name->file = file.size ? strndup(file.data, file.size) : NULL;
	name->line = line > INT32_MAX ? 0 : (uint32_t)line;
	name->state = name->function ? TM_NAME_KNOWN : TM_NAME_UNKNOWN;
	return false;
}

/* Of a frame that nobody knows the name of, its module may: as an import has it. */
static enum tm_name_state nameless(const struct tm_live_names *n, uint32_t frame) {
	const struct tm_catalog *c = &n->live->catalog;
	const struct tm_catalog_frame *f = &c->frames.items[frame - 1];
	bool is_native = f->kind == TM_FRAME_NATIVE && f->module;
	return is_native && tm_is_wrapper_module(c->modules.items[f->module - 1].path) ? TM_NAME_WRAPPER : TM_NAME_UNKNOWN;
}

static void take_answer(struct tm_live_names *n, struct tm_cursor *c) {
	if (n->answered == n->asked.count) return;
	uint32_t frame = n->asked.items[n->answered++];
	struct tm_live_name *name = &n->names.items[frame - 1];
	name->state = nameless(n, frame);
	while (c->p < c->end && !c->bad) {
		struct tm_text function = tm_get_string(c), file = tm_get_string(c);
		uint64_t line = tm_get_varint(c);
		if (!c->bad && !take_function(name, function, file, line)) return;
	}
}

static void take_answers(struct tm_live_names *n) {
	size_t done = 0;
	uint32_t size;
	while (n->in.size - done >= sizeof size) {
		memcpy(&size, n->in.data + done, sizeof size);
		if (size > ANSWER_MAX) {
			hang_up(n);
			return;
		}
		if (n->in.size - done - sizeof size < size) break;
		struct tm_cursor c = tm_cursor_over(n->in.data + done + sizeof size, size);
		take_answer(n, &c);
		done += sizeof size + size;
	}
	n->in.size -= done;
	if (done && n->in.size) memmove(n->in.data, n->in.data + done, n->in.size);
}

static bool send_requests(struct tm_live_names *n) {
	size_t done = 0;
	ssize_t sent = 1;
	while (done < n->out.size && sent > 0) {
		sent = send(n->fd, n->out.data + done, n->out.size - done, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent > 0) done += (size_t)sent;
	}
	n->out.size -= done;
	if (done && n->out.size) memmove(n->out.data, n->out.data + done, n->out.size);
	return sent > 0 || errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

static bool receive_answers(struct tm_live_names *n) {
	for (;;) {
		if (!tm_bytes_reserve(&n->in, 65536)) return false;
		ssize_t got = recv(n->fd, n->in.data + n->in.size, 65536, MSG_DONTWAIT);
		if (got == 0) return false;
		if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
		n->in.size += (size_t)got;
	}
}

void tm_live_names_talk(struct tm_live_names *n) {
	if (n->fd < 0) return;
	bool listens = send_requests(n) && receive_answers(n);
	take_answers(n);
	if (!listens) hang_up(n);
}

bool tm_live_names_waiting(const struct tm_live_names *n) {
	return n->fd >= 0 && n->answered < n->asked.count;
}

/* --- sites --- */

/* What the trace says itself. */
static bool take_own_name(struct tm_live_names *n, struct tm_live_name *name, uint32_t frame) {
	const struct tm_catalog *c = &n->live->catalog;
	const struct tm_catalog_frame *f = &c->frames.items[frame - 1];
	static const struct tm_text none = { "", 0 };
	for (uint32_t i = 0; i < f->function_count; i++) {
		const struct tm_catalog_function *one = &c->functions.items[f->functions + i];
		struct tm_text function = one->name ? c->strings.items[one->name - 1] : none;
		if (!take_function(name, function, one->file ? c->strings.items[one->file - 1] : none, one->line)) break;
	}
	return name->state != TM_NAME_NEW;
}

static const struct tm_live_name *name_of(struct tm_live_names *n, uint32_t frame) {
	struct tm_live_name *name = &n->names.items[frame - 1];
	const struct tm_catalog_frame *f = &n->live->catalog.frames.items[frame - 1];
	bool early = f->kind == TM_FRAME_NATIVE && !f->module; /* its module may be told later */
	if (name->state == TM_NAME_NEW && !take_own_name(n, name, frame) && !early)
		name->state = put_request(n, frame) ? TM_NAME_ASKED : nameless(n, frame);
	return name;
}

/* Which Python frame is innermost: parents come before their nodes. */
static bool follow_nodes(struct tm_live_names *n) {
	const struct tm_catalog *c = &n->live->catalog;
	size_t i = n->python.count;
	if (!tm_array_extend(&n->names, c->frames.count) || !tm_array_extend(&n->python, c->nodes.count)) return false;
	for (; i < c->nodes.count; i++) {
		const struct tm_catalog_node *node = &c->nodes.items[i];
		bool is_python = c->frames.items[node->frame - 1].kind == TM_FRAME_PYTHON;
		n->python.items[i] = is_python ? node->frame : node->parent ? n->python.items[node->parent - 1] : 0;
	}
	return true;
}

bool tm_live_site(struct tm_live_names *n, uint32_t node, uint32_t *frame, const struct tm_live_name **name) {
	const struct tm_catalog *c = &n->live->catalog;
	if (!follow_nodes(n)) return false;
	*frame = n->python.items[node - 1];
	if (*frame) {
		*name = name_of(n, *frame);
		return true;
	}
	uint32_t at = node;
	for (unsigned i = 0; i < OUTWARD_MAX; i++) {
		*frame = c->nodes.items[at - 1].frame;
		*name = name_of(n, *frame);
		if ((*name)->state != TM_NAME_WRAPPER) return true;
		at = c->nodes.items[at - 1].parent;
		if (!at) break;
	}
	*frame = c->nodes.items[node - 1].frame; /* of wrappers alone the innermost, as an import has it */
	*name = name_of(n, *frame);
	return true;
}
