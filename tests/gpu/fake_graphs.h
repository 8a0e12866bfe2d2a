/* fake_graphs.h - the part of fake_cuda.c that has to do with graphs; it stands in the middle of that file.
 *
 * Nodes have addresses of their own. What a device's graphs hold grows with a launch and stays until it is trimmed.
 */
static void work(const struct around *a, int kind, int copy_kind, uint64_t bytes, const char *name);

static struct { uint64_t address, bytes; int device; } graph_blocks[64];
static uint64_t graph_used[DEVICES_MAX], graph_reserved[DEVICES_MAX];
static int graph_block_count;

static void graph_alloc(char *parameters, const char *name) {
	uint64_t bytes, address = 0x7d0000000000 + ((uint64_t)graph_block_count << 30);
	memcpy(&bytes, parameters + 104, sizeof bytes);
	memcpy(parameters + 112, &address, sizeof address);
	graph_blocks[graph_block_count].address = address;
	graph_blocks[graph_block_count].bytes = bytes;
	graph_blocks[graph_block_count++].device = context()->device;
	say("alloc %s %llx %llu %s\n", heap_name("cuda-graph:", context()->device), (unsigned long long)address, (unsigned long long)bytes, name);
}

static bool graph_free(CUdeviceptr address, const char *name) {
	for (int i = 0; i < graph_block_count; i++) {
		if (!address || graph_blocks[i].address != address) continue;
		say("free %llx %s\n", (unsigned long long)address, name);
		graph_blocks[i].address = 0;
		return true;
	}
	return false;
}

CUresult cuGraphAddMemAllocNode(void **node, void *graph, const void *dependencies, size_t count, void *parameters) {
	struct { void **node, *graph; const void *dependencies; size_t count; void *parameters; } p = { node, graph, dependencies, count, parameters };
	struct around a;
	enter(&a, 638, "cuGraphAddMemAllocNode", &p);
	graph_alloc(parameters, "cuGraphAddMemAllocNode");
	return leave(&a, 0);
}

CUresult cuGraphAddMemFreeNode(void **node, void *graph, const void *dependencies, size_t count, CUdeviceptr address) {
	struct { void **node, *graph; const void *dependencies; size_t count; CUdeviceptr address; } p = { node, graph, dependencies, count, address };
	struct around a;
	enter(&a, 639, "cuGraphAddMemFreeNode", &p);
	graph_free(address, "cuGraphAddMemFreeNode");
	return leave(&a, 0);
}

/* CUgraphNodeParams: the kind of node, and at 16 what it has: 10 allocates, 11 frees, others do neither. */
static CUresult add_node(struct around *a, char *node) {
	uint64_t address;
	memcpy(&address, node + 16, sizeof address);
	if (*(int *)(void *)node == 10) graph_alloc(node + 16, "cuGraphAddMemAllocNode");
	if (*(int *)(void *)node == 11) graph_free(address, "cuGraphAddMemFreeNode");
	return leave(a, 0);
}

CUresult cuGraphAddNode(void **node, void *graph, const void *dependencies, size_t count, void *parameters) {
	struct { void **node, *graph; const void *dependencies; size_t count; void *parameters; } p = { node, graph, dependencies, count, parameters };
	struct around a;
	enter(&a, 712, "cuGraphAddNode", &p);
	return add_node(&a, parameters);
}

CUresult cuGraphAddNode_v2(void **node, void *graph, const void *dependencies, const void *edges, size_t count, void *parameters) {
	struct {
		void **node, *graph;
		const void *dependencies, *edges;
		size_t count;
		void *parameters;
	} p = { node, graph, dependencies, edges, count, parameters };
	struct around a;
	enter(&a, 723, "cuGraphAddNode_v2", &p);
	return add_node(&a, parameters);
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
	struct { CUdevice device; } p = { device };
	struct around a;
	enter(&a, 640, "cuDeviceGraphMemTrim", &p);
	graph_reserved[device] = graph_used[device];
	say("graphs %d %llu %llu\n", device, (unsigned long long)graph_used[device], (unsigned long long)graph_reserved[device]);
	return leave(&a, 0);
}

#ifndef WITHOUT_cuDeviceGetGraphMemAttribute
CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, void *value) {
	memcpy(value, attribute == 2 ? &graph_reserved[device] : &graph_used[device], sizeof(uint64_t));
	return attribute == 0 || attribute == 2 ? 0 : INVALID;
}
#endif

static bool per_thread_captures;

static bool is_capturing(const void *stream) {
	return stream == FAKE_CAPTURING || (stream == FAKE_PER_THREAD && per_thread_captures);
}

#ifndef WITHOUT_cuStreamIsCapturing
CUresult cuStreamIsCapturing(void *stream, int *status) {
	if (!stream) abort(); /* it cannot capture, and to ask about it breaks the capture of others */
	*status = is_capturing(stream);
	return 0;
}
#endif

CUresult cuGraphLaunch(void *graph, void *stream) {
	struct { void *graph, *stream; } p = { graph, stream };
	struct around a;
	int device = context()->device;
	enter(&a, 514, "cuGraphLaunch", &p);
	graph_used[device] = 0;
	for (int i = 0; i < graph_block_count; i++)
		if (graph_blocks[i].address && graph_blocks[i].device == device) graph_used[device] += graph_blocks[i].bytes;
	if (graph_used[device] > graph_reserved[device]) graph_reserved[device] = graph_used[device];
	say("graphs %d %llu %llu\n", device, (unsigned long long)graph_used[device], (unsigned long long)graph_reserved[device]);
	work(&a, 10, 0, 0, "first_of_graph");
	work(&a, 10, 0, 0, "second_of_graph");
	work(&a, 2, 0, 64, NULL);
	return leave(&a, 0);
}

CUresult cuGraphCreate(void **graph, unsigned flags) {
	*graph = calloc(1, 16);
	return flags ? INVALID : 0;
}

CUresult cuGraphInstantiateWithFlags(void **runs, void *graph, unsigned long long flags) {
	struct { void **runs, *graph; unsigned long long flags; } p = { runs, graph, flags };
	struct around a;
	enter(&a, 643, "cuGraphInstantiateWithFlags", &p);
	*runs = calloc(1, 16);
	return leave(&a, 0);
}

CUresult cuGraphExecDestroy(void *runs) {
	free(runs);
	return 0;
}

CUresult cuGraphDestroy(void *graph) {
	free(graph);
	return 0;
}

CUresult cuStreamCreate(void **stream, unsigned flags) {
	struct { void **stream; unsigned flags; } p = { stream, flags };
	struct around a;
	enter(&a, 124, "cuStreamCreate", &p);
	*stream = FAKE_CAPTURING;
	return leave(&a, 0);
}

CUresult cuStreamBeginCapture_v2(void *stream, int mode) {
	per_thread_captures |= stream == FAKE_PER_THREAD;
	return is_capturing(stream) && mode < 3 ? 0 : INVALID;
}

CUresult cuStreamEndCapture(void *stream, void **graph) {
	bool captured = is_capturing(stream);
	*graph = calloc(1, 16);
	if (stream == FAKE_PER_THREAD) per_thread_captures = false;
	return captured ? 0 : INVALID;
}

static int streams_gone;

int fake_cuda_streams_gone(void) {
	return streams_gone;
}

CUresult cuStreamDestroy_v2(void *stream) {
	struct { void *stream; } p = { stream };
	struct around a;
	enter(&a, 326, "cuStreamDestroy_v2", &p);
	streams_gone++;
	return leave(&a, stream ? 0 : INVALID);
}
