/* nvtx.h - NVTX version 3 as its loaders know it: what is passed between them and a tool. Names and numbers are those of NVIDIA's public headers.
 *
 * Flow:     nvtx.c (ranges, marks, names), nvtx_memory.c (heaps and regions)
 * Sizes:    structures may be longer than here (later versions append), and say how long they are: what is not there is not read.
 */
#ifndef TIDEMARK_GUEST_NVTX_H
#define TIDEMARK_GUEST_NVTX_H

#include "injection.h"
#include "kept_texts.h"

#include <wchar.h>

#define TM_NVTX_EXPORT_CALLBACKS 1u

enum tm_nvtx_module { TM_NVTX_CORE = 1, TM_NVTX_CORE2 = 5 };
enum tm_nvtx_message { TM_NVTX_ASCII = 1, TM_NVTX_WIDE = 2, TM_NVTX_REGISTERED = 3 };

union tm_nvtx_text {
	const char *ascii;
	const wchar_t *wide;
	const void *registered;
};

struct tm_nvtx_attributes {
	uint16_t version, size;
	uint32_t category;
	int32_t color_type;
	uint32_t color;
	int32_t payload_type, reserved;
	uint64_t payload;
	int32_t message_type;
	union tm_nvtx_text message;
};

struct tm_nvtx_callbacks {
	size_t size;
	int (*get_table)(uint32_t module, void ****table, unsigned *size); /* an array of places where functions go */
};

struct tm_nvtx_segment {
	size_t id, slot_count;
	intptr_t *slots;
};

struct tm_nvtx_extension {
	uint16_t version, size, module, compatibility;
	size_t segment_count;
	struct tm_nvtx_segment *segments;
	intptr_t (*get_export)(uint32_t id);
	const void *info;
};

#define TM_NVTX_EXTENSION_MEMORY 1u
#define TM_NVTX_EXTENSION_PAYLOAD 2u
#define TM_NVTX_NO_LEVEL (-2) /* the depth of a range that nobody counts */

/* The text of a message, NULL: none. A wide one becomes UTF-8 in `buffer`. */
const char *tm_nvtx_text(int32_t type, union tm_nvtx_text text, char buffer[TM_WIDE_MAX], size_t *n);
/* "nvtx", or with a domain's name behind it. */
uint32_t tm_nvtx_category(const void *domain);

/* --- nvtx_memory.c --- */
void tm_nvtx_memory_fill(intptr_t *slots, size_t count);

#endif
