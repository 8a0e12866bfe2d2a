# tidemark's build. `make help` lists the targets, V=1 shows the commands, BUILD=DIR puts the output elsewhere.
#
#     schema/ <- recorder/guest/      build/lib/libtidemark.so     preloaded into the traced program: libc alone
#     schema/ <- recorder/collector/  build/bin/tidemark-record    its parent: zstd, zlib, libdw, libiberty, linked in
#     schema/ <- analyzer/            build/bin/tidemark           SQLite, yajl, zstd, zlib; schema/*.sql is compiled in
#     schema/ <- analyzer/extension/  build/lib/tidemark_vtab.so   loaded by SQLite: zstd, zlib
#
# SANITIZE=address|undefined|thread instruments what can be; the guest lives in programs that are not instrumented, so it gets only
# checks that need no run-time library (undefined, as traps).

VERSION := 0.1.0
BUILD ?= build
# One name for one place, or the dependencies that were written under the one are not found under the other.
inside = $(patsubst =%,%,$(subst =$(CURDIR)/,=,=$(1)))
override BUILD := $(call inside,$(abspath $(call inside,$(if $(strip $(BUILD)),$(BUILD),build))))
ifneq ($(words $(BUILD)),1)
$(error cannot build in '$(BUILD)': make takes a name with a space for several; the place of this tree may have spaces, what BUILD adds may not)
endif
PREFIX ?= /usr/local
CC ?= gcc
CFLAGS ?= -O2 -g
FUZZ_SECONDS ?= 60

WARNINGS := -Wall -Wextra -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wwrite-strings -Werror
# valgrind 3.19 stops at what clang writes of DWARF 5.
COMMON := $(if $(findstring clang,$(CC)),-gdwarf-4) -std=gnu11 -D_GNU_SOURCE= $(WARNINGS) -MMD -MP -I. -DTM_TOOL_VERSION='"$(VERSION)"'
INSTRUMENT := $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer $(if $(filter undefined,$(SANITIZE)),-fno-sanitize-recover=all))
TRAPS := $(if $(filter undefined,$(SANITIZE)),-fsanitize=undefined -fsanitize-undefined-trap-on-error)
# A struct of two words that was just stored and is read as one vector waits until both stores are done: a fifth of an import's main thread.
WORDS := -fno-tree-slp-vectorize
# No PLT: an auditor (LD_AUDIT) that follows calls would stand between us and dlsym(RTLD_NEXT), which then looks behind the loader and not behind us.
GUEST := -fPIC -fno-plt -fvisibility=hidden -fexceptions -ftls-model=initial-exec -fno-builtin-malloc -fno-builtin-calloc -fno-builtin-realloc \
	-fno-builtin-free $(TRAPS)
# Linked in: the recorder starts half a millisecond sooner, and goes to machines that have none of them.
COLLECTOR_LIBS := -Wl,-Bstatic -ldw -lelf -lzstd -lz -lbz2 -llzma -liberty -Wl,-Bdynamic -lpthread -ldl
ANALYZER_LIBS := -lsqlite3 -lyajl -lzstd -lz -lpthread -lm -ldl

# What apt installs: to build and run, and for the tests only. yajl reads JSON of gigabytes in constant memory (analyzer/foreign_kineto.c).
BUILD_PACKAGES := gcc libc6-dev libzstd-dev zlib1g-dev libdw-dev libelf-dev libbz2-dev liblzma-dev libiberty-dev libsqlite3-dev sqlite3 libyajl-dev
# python3-torch (150 MB, a minute) is the only PyTorch that apt has; the adaptor can be tested on no other where nothing is installed by hand.
TEST_PACKAGES := python3 zstd binutils g++ clang libclang-rt-dev git gcc-12-multilib musl-tools redis-tools openmpi-bin heaptrack redis-server \
	chromium golang-1.19-go golang-src libdevel-nytprof-perl python3-torch pypy3 valgrind strace libunwind-dev g++-aarch64-linux-gnu qemu-user

objects = $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard $(1)))
SCHEMA_OBJECTS := $(call objects,schema/*.c)
GUEST_OBJECTS := $(call objects,recorder/guest/*.c)
COLLECTOR_OBJECTS := $(call objects,recorder/collector/*.c)
ANALYZER_OBJECTS := $(call objects,analyzer/*.c) $(BUILD)/obj/gen/sql.o $(BUILD)/obj/gen/page.o
UNIT_TESTS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/unit/test_*.c))
FUZZ_REPLAYS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/fuzz/fuzz_*.c))
BENCHES := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/bench/*.c) tests/integration/big_trace.c)
TEST_PROGRAMS := $(UNIT_TESTS) $(FUZZ_REPLAYS) $(patsubst %.c,$(BUILD)/%,$(wildcard tests/integration/*.c))
# What reads a trace, once more, for a library.
EXTENSION_OBJECTS := $(patsubst %.c,$(BUILD)/obj/pic/%.o,analyzer/extension/tidemark_vtab.c analyzer/reader.c analyzer/catalog.c analyzer/stacks_ahead.c analyzer/id_map.c $(wildcard schema/*.c))
OUTPUTS := $(BUILD)/bin/tidemark $(BUILD)/bin/tidemark-record $(BUILD)/lib/libtidemark.so $(BUILD)/lib/tidemark_vtab.so
# `make -j deps check`: nothing is compiled before what it needs is installed.
FIRST := $(filter deps,$(MAKECMDGOALS))

Q := $(if $(filter 1,$(V)),,@)
say = @$(if $(Q),printf '  %-5s %s\n' $(1) $@;) mkdir -p $(@D)

.PHONY: all deps demo check check-long gpu-kit check-gpu bench fuzz fuzz-run asan ubsan tsan layers format-check format install uninstall clean help test-programs
.DELETE_ON_ERROR:

all: $(OUTPUTS) ## build everything (the default)

$(BUILD)/obj/recorder/guest/bytes.o: GUEST += -fno-builtin
$(BUILD)/obj/recorder/guest/%.o: recorder/guest/%.c Makefile | $(FIRST)
	$(call say,CC)
	$(Q)$(CC) $(COMMON) $(CFLAGS) $(GUEST) -c $< -o $@

$(BUILD)/obj/pic/%.o: %.c Makefile | $(FIRST)
	$(call say,CC)
	$(Q)$(CC) $(COMMON) $(CFLAGS) -fPIC -fvisibility=hidden -c $< -o $@

$(BUILD)/obj/%.o: %.c Makefile | $(FIRST)
	$(call say,CC)
	$(Q)$(CC) $(COMMON) $(WORDS) $(CFLAGS) $(INSTRUMENT) -c $< -o $@

# schema/NAME.sql as a C string tm_NAME_sql.
$(BUILD)/gen/sql.c: $(wildcard schema/*.sql) Makefile
	$(call say,GEN)
	$(Q)for name in $(basename $(notdir $(filter %.sql,$^))); do \
		printf 'extern const char tm_%s_sql[];\nconst char tm_%s_sql[] = ""\n' $$name $$name; \
		sed -e 's/[\\"]/\\&/g' -e 's/.*/\t"&\\n"/' schema/$$name.sql; echo ';'; done > $@

# report/NAME.EXT as a C string tm_NAME_EXT: the parts of the page that `tidemark report` writes. The scripts are our own and use no library: what the page
# draws is areas, lines and rectangles on a canvas, for which d3 (258 KB, in Debian's node-d3) would add four times the page's own size.
$(BUILD)/gen/page.c: $(wildcard report/*.html report/*.css report/*.js) Makefile
	$(call say,GEN)
	$(Q)for file in $(filter report/%,$^); do name=$$(basename $$file | tr . _); \
		printf 'extern const char tm_%s[];\nconst char tm_%s[] = ""\n' $$name $$name; \
		sed -e 's/[\\"]/\\&/g' -e 's/.*/\t"&\\n"/' $$file; echo ';'; done > $@

$(BUILD)/obj/gen/%.o: $(BUILD)/gen/%.c | $(FIRST)
	$(call say,CC)
	$(Q)$(CC) $(COMMON) $(CFLAGS) $(INSTRUMENT) -c $< -o $@

$(BUILD)/lib/libtidemark.so: $(GUEST_OBJECTS) recorder/guest/layout.ld
	$(call say,LINK)
	$(Q)$(CC) $(CFLAGS) -shared -Wl,-T,recorder/guest/layout.ld -Wl,-z,defs -Wl,-z,relro -Wl,--as-needed -Wl,-soname=libtidemark.so \
		-o $@ $(GUEST_OBJECTS) -ldl -lpthread

$(BUILD)/lib/tidemark_vtab.so: $(EXTENSION_OBJECTS)
	$(call say,LINK)
	$(Q)$(CC) $(CFLAGS) -shared -Wl,-z,defs -Wl,-z,relro -o $@ $^ -lzstd -lz -lpthread

$(BUILD)/bin/tidemark-record: $(COLLECTOR_OBJECTS) $(SCHEMA_OBJECTS)
	$(call say,LINK)
	$(Q)$(CC) $(CFLAGS) $(INSTRUMENT) $(LDFLAGS) -o $@ $^ $(COLLECTOR_LIBS)

$(BUILD)/bin/tidemark: $(ANALYZER_OBJECTS) $(SCHEMA_OBJECTS)
	$(call say,LINK)
	$(Q)$(CC) $(CFLAGS) $(INSTRUMENT) $(LDFLAGS) -o $@ $^ $(ANALYZER_LIBS)

# A test links the side that its includes name, without its main().
$(BUILD)/obj/collector.a: $(filter-out %main.o,$(COLLECTOR_OBJECTS))
$(BUILD)/obj/analyzer.a: $(filter-out %main.o,$(ANALYZER_OBJECTS))
$(BUILD)/obj/schema.a: $(SCHEMA_OBJECTS)
$(BUILD)/obj/%.a:
	$(call say,AR)
	$(Q)rm -f $@; ar rcs $@ $^

includes = $(shell grep -q '^\#include "[./]*$(2)/' $(1) && echo yes)
define test_program
$(BUILD)/$(1): $(BUILD)/obj/$(1).o $(2) $(if $(call includes,$(1).c,recorder/collector),$(BUILD)/obj/collector.a) \
		$(if $(call includes,$(1).c,analyzer),$(BUILD)/obj/analyzer.a) $(BUILD)/obj/schema.a
	$$(call say,LINK)
	$$(Q)$$(CC) $$(CFLAGS) $$(INSTRUMENT) $(3) $$(LDFLAGS) -o $$@ $$^ \
		$(if $(call includes,$(1).c,recorder/collector),$(COLLECTOR_LIBS)) $(ANALYZER_LIBS)
endef
$(foreach test,$(wildcard tests/unit/test_*.c tests/integration/*.c tests/bench/*.c),$(eval $(call test_program,$(test:.c=),)))
# With FUZZ=1 (make fuzz) libFuzzer brings main(), else replay.c does and runs the corpus once.
$(foreach test,$(wildcard tests/fuzz/fuzz_*.c),$(eval \
	$(call test_program,$(test:.c=),$(if $(FUZZ),,$(BUILD)/obj/tests/fuzz/replay.o),$(if $(FUZZ),-fsanitize=fuzzer))))

test-programs: $(TEST_PROGRAMS) ## build the unit tests, and run none

deps: ## install what is missing, with apt: `make deps demo`, `make deps check`
	@.ci/install-packages "$(BUILD_PACKAGES)" "$(if $(filter check check-long asan ubsan tsan fuzz bench,$(MAKECMDGOALS)),$(TEST_PACKAGES))"

demo: all ## record a real program, import it, print the answers
	@fixtures/demo.sh $(BUILD)

check: all test-programs $(BENCHES) ## run the tests (under 10 minutes); ONLY=PATTERN runs some, CC=clang BUILD=build/clang tests what clang makes
	@python3 tests/run.py --build=$(BUILD) $(if $(ONLY),--only='$(ONLY)')

check-long: all test-programs ## the same, with the tests that take long
	@python3 tests/run.py --build=$(BUILD) --long $(if $(ONLY),--only='$(ONLY)')

asan: ## run the tests with AddressSanitizer
	@$(MAKE) BUILD=$(BUILD)/asan SANITIZE=address check
ubsan: ## run the tests with UndefinedBehaviorSanitizer
	@$(MAKE) BUILD=$(BUILD)/ubsan SANITIZE=undefined check
tsan: ## run the tests with ThreadSanitizer
	@$(MAKE) BUILD=$(BUILD)/tsan SANITIZE=thread check

fuzz: ## let libFuzzer (clang) look for bad traces, FUZZ_SECONDS=60 for each target
	@$(MAKE) BUILD=$(BUILD)/fuzz CC=clang SANITIZE=fuzzer-no-link,address,undefined FUZZ=1 fuzz-run
fuzz-run: $(FUZZ_REPLAYS) ## the second step of fuzz, in a build for libFuzzer
	@for target in $(notdir $(FUZZ_REPLAYS)); do mkdir -p $(BUILD)/corpus/$$target && \
		$(BUILD)/tests/fuzz/$$target -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=4096 -close_fd_mask=2 -artifact_prefix=$(BUILD)/$$target- \
			$(BUILD)/corpus/$$target tests/fuzz/corpus/$$target || exit 1; done

bench: all $(BENCHES) ## what recording and import cost, beside other tools; ONLY=PATTERN, ROUNDS=5, RESULTS=PAGE
	@python3 tests/bench/run.py $(BUILD) $(if $(ONLY),--only='$(ONLY)') $(if $(ROUNDS),--rounds=$(ROUNDS)) $(if $(RESULTS),--results='$(RESULTS)')

# For a machine that has a GPU, a compiler and PyTorch, but none of our libraries and no network: everything but libc is linked in here.
CARRIED_LIBS := -Wl,-Bstatic -lsqlite3 -lyajl_s -lzstd -lz -Wl,-Bdynamic -lpthread -lm -ldl
gpu-kit: all ## put tools that need nothing but libc into BUILD/gpu-kit, for make check-gpu elsewhere
	$(Q)install -d $(BUILD)/gpu-kit/bin $(BUILD)/gpu-kit/lib
	$(Q)$(CC) $(CFLAGS) -o $(BUILD)/gpu-kit/bin/tidemark $(ANALYZER_OBJECTS) $(SCHEMA_OBJECTS) $(CARRIED_LIBS)
	$(Q)install -m 755 $(BUILD)/bin/tidemark-record $(BUILD)/gpu-kit/bin
	$(Q)install -m 755 $(BUILD)/lib/libtidemark.so $(BUILD)/gpu-kit/lib
	$(Q)install -m 644 recorder/tidemark.py $(BUILD)/gpu-kit
	$(Q)strip $(BUILD)/gpu-kit/bin/*

check-gpu: ## on a machine with a GPU: compare with PyTorch's and the driver's own figures; ONLY='PART...'. Uses BUILD/gpu-kit where it is, else builds
	$(Q)test -x $(BUILD)/gpu-kit/bin/tidemark || $(MAKE) gpu-kit || { echo 'no libraries to build with: make gpu-kit elsewhere, and bring $(BUILD)/gpu-kit here'; exit 1; }
	@python3 tests/gpu/check_gpu.py $(BUILD)/gpu-kit --out=$(BUILD)/gpu-results $(addprefix --only=,$(ONLY)) || [ $$? = 77 ]

layers: all ## check that recorder -> schema <- analyzer, and nothing else
	@tests/layers.sh $(BUILD)

# Lines that a change touches, and no others: tables are laid out by hand.
BASE ?= HEAD
format-check: ## compare the C lines that differ from BASE=HEAD with .clang-format
	@command -v clang-format >/dev/null || { echo "format-check: clang-format is not installed (Debian: clang-format)" >&2; exit 2; }
	@diff=$$(git clang-format --diff --extensions=c,h $(BASE)) || [ "$$diff" ] || exit 2; \
		case "$$diff" in *"diff --git"*) echo "$$diff"; exit 1;; *) echo "$$diff";; esac

format: ## rewrite the C lines that differ from BASE=HEAD in the style of .clang-format
	@git clang-format --force --extensions=c,h $(BASE)

space := $(subst ,, )
destination = $(patsubst %,$(subst $(space),\ ,$(DESTDIR)$(PREFIX))/%,$(1))
INSTALLED := bin/tidemark bin/tidemark-record lib/libtidemark.so lib/tidemark_vtab.so include/tidemark.h share/tidemark/tidemark.py share/man/man1/tidemark.1 share/man/man1/tidemark-record.1 \
	share/bash-completion/completions/tidemark share/bash-completion/completions/tidemark-record

install: all ## install under PREFIX (/usr/local), below DESTDIR if given; the tree may be moved afterwards
	install -d $(call destination,$(sort $(dir $(INSTALLED))))
	install -m 755 $(BUILD)/bin/tidemark $(BUILD)/bin/tidemark-record $(call destination,bin)
	install -m 755 $(BUILD)/lib/libtidemark.so $(BUILD)/lib/tidemark_vtab.so $(call destination,lib)
	install -m 644 recorder/tidemark.h $(call destination,include)
	install -m 644 recorder/tidemark.py $(call destination,share/tidemark)
	install -m 644 analyzer/tidemark.1 recorder/tidemark-record.1 $(call destination,share/man/man1)
	install -m 644 analyzer/tidemark.bash $(call destination,share/bash-completion/completions/tidemark)
	ln -sf tidemark $(call destination,share/bash-completion/completions/tidemark-record)

uninstall: ## remove what install put under PREFIX
	rm -f $(call destination,$(INSTALLED))

clean: ## remove the build output
	rm -rf $(BUILD)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

-include $(wildcard $(BUILD)/obj/*/*.d $(BUILD)/obj/*/*/*.d $(BUILD)/obj/*/*/*/*.d)
