#!/bin/sh
# Checks the one rule of the layout: recorder -> schema <- analyzer, and nothing else. First by what the sources include, then by what the
# linked files need and export. usage: layers.sh BUILD
cd "$(dirname "$0")/.." || exit 1
build=$1

complain() { # text, then the offending lines on standard input: none is fine
	offenders=$(cat)
	[ -z "$offenders" ] || printf '%s:\n%s\n' "$1" "$offenders"
}

includes() { grep -n '^ *# *include' "$@"; }

sources() {
	includes schema/*.[ch] | grep -E '"[^"]*(recorder|analyzer|/)' | complain "schema/ includes something outside of schema/"
	grep -nE '\b(fopen|open|read|write|mmap|printf)\(' schema/*.c | complain "schema/ does input or output"
	includes recorder/*.[ch] recorder/*/*.[ch] | grep -E '"[^"]*analyzer/|[<"]sqlite3' | complain "recorder/ includes analyzer/ or SQLite"
	includes analyzer/*.[ch] | grep -E '"[^"]*recorder/|<(libunwind|elfutils|libelf|dwarf|cupti)' | complain "analyzer/ includes recorder/, libunwind, libdw or CUPTI"
	includes recorder/guest/*.[ch] | grep -E '"[^"]*collector/' | complain "the guest includes the collector"
	includes recorder/guest/*.[ch] | grep -E '"[^"]*schema/' | grep -v 'schema/kinds\.h' | complain "the guest includes more of schema/ than kinds.h"
	includes recorder/collector/*.[ch] | grep -E '"[^"]*guest/' | complain "the collector includes the guest"
}

needed() { readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; }

files() {
	needed "$build/lib/libtidemark.so" | grep -vE '^(libc\.so\.6|ld-linux.*|libdl\.so\.2|libpthread\.so\.0)$' | complain "libtidemark.so needs more than libc"
	needed "$build/bin/tidemark-record" | grep -E 'sqlite' | complain "tidemark-record links SQLite"
	needed "$build/bin/tidemark" | grep -E 'unwind|libdw|libelf|cupti' | complain "tidemark links a library of the recorder"

	# What the preloaded library puts in front of the program's own functions: the hooks and the API listed in tests/exports.txt, nothing more.
	nm -D --defined-only "$build/lib/libtidemark.so" | awk '{ sub(/@.*/, "", $NF); print $NF }' |
		grep -vxF -f tests/exports.txt | complain "libtidemark.so exports what is not in tests/exports.txt"
	for hook in $(cat tests/exports.txt); do
		nm -D --defined-only "$build/lib/libtidemark.so" | grep -qE " $hook(@.*)?$" || echo "$hook"
	done | complain "libtidemark.so lacks a hook of tests/exports.txt"
}

# What is said, by a tool that fails too, is a complaint: a variable would not survive the pipes.
complaints=$(sources 2>&1; files 2>&1)
[ -z "$complaints" ] && exit 0
printf '%s\n' "$complaints"
exit 1
