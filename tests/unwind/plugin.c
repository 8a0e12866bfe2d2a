/* plugin.c - a library of the stress program, built twice with other frames: what is remembered about one is wrong for the other.
 * Both are small enough that the code lies at the same places in both. */
#ifndef FRAME_BYTES
#define FRAME_BYTES 40
#endif

#define TEXT_OF(n) #n
#define TEXT(n) TEXT_OF(n)

/* Calls its first argument with the second. Its instructions have the same length whatever the frame, so its return address is the same, too. */
#if defined(__x86_64__)
__asm__(".text\n\t.globl plugin_pass\n\t.type plugin_pass, @function\nplugin_pass:\n\t.cfi_startproc\n\t.byte 0x48, 0x81, 0xec\n\t"
	".long " TEXT(FRAME_BYTES) "+16\n\t.cfi_def_cfa_offset " TEXT(FRAME_BYTES) "+24\n\t"
	"mov %rdi, %rax\n\tmov %esi, %edi\n\tcall *%rax\n\t.byte 0x48, 0x81, 0xc4\n\t.long " TEXT(FRAME_BYTES)
	"+16\n\t.cfi_def_cfa_offset 8\n\tret\n\t.cfi_endproc\n\t.size plugin_pass, .-plugin_pass\n");
#endif

void plugin_call(void (*call)(int), int fuel);

__attribute__((noinline)) static void inner(void (*call)(int), int fuel) {
	volatile char space[FRAME_BYTES];
	space[0] = 1;
	call(fuel);
	space[1] = space[0];
}

__attribute__((visibility("default"))) void plugin_call(void (*call)(int), int fuel) {
	volatile char space[FRAME_BYTES * 2];
	space[0] = 1;
	inner(call, fuel);
	space[1] = space[0];
}
