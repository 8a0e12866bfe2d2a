/* plugin.c - a library of the stress program, built twice with other frames: what is remembered about one is wrong for the other.
 * Both are small enough that the code lies at the same places in both. */
#ifndef FRAME_BYTES
#define FRAME_BYTES 40
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
