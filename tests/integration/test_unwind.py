"""Stacks are right: each one that the guest's unwinder takes incrementally is compared, frame by frame, with one that another unwinder takes anew.

Method: tests/unwind/ holds a library (sampler.c) that takes the stack twice at every malloc, calloc and realloc, with the guest's own sources and with libunwind's
cursor, and compares. A random program (stress.cc) makes every kind of stack, counts what it made and must have made enough of each; and the library is
preloaded into real programs. On aarch64 the same runs under qemu's user emulation, the oracle is libgcc's. The comparison is proved by breaking the unwinder.
"""
import array
import glob
import os
import re
import shutil
import tempfile

from tidemark_test import ROOT, main, test

WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wpointer-arith", "-Wwrite-strings", "-Werror"]
C = ["-std=gnu11", "-D_GNU_SOURCE=", *WARNINGS, "-O2", "-g", "-fPIC"]
GUEST = [*C, "-fvisibility=hidden", "-fexceptions", "-ftls-model=initial-exec", "-fno-builtin-malloc", "-fno-builtin-calloc", "-fno-builtin-realloc", "-fno-builtin-free"]
CROSS = "aarch64-linux-gnu-"
FRAMED, UNFRAMED = ["-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer"], ["-fomit-frame-pointer"]
EMULATOR = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]


def unwinder(root):
    return sorted(glob.glob(os.path.join(root, "recorder/guest/unwind*.c"))) + [os.path.join(root, "recorder/guest", name) for name in ("stack.c", "shared_rules.c")]


BUILT = tempfile.TemporaryDirectory(prefix="tidemark-unwind-")  # what tests share, for this run alone: no stale one can be taken for a fresh one


def built_once(t, name, *command):
    """The file that the command makes, which ends with -o; of the same name it is the same."""
    path = os.path.join(BUILT.name, name)
    if not os.path.exists(path):
        t.run([*command, path + ".part"], status=0)
        os.rename(path + ".part", path)
    return path


def build_sampler(t, directory, root=ROOT, prefix=""):
    """The sampler of the sources below `root`."""
    t.need(prefix + "gcc")
    if not prefix and t.run(["gcc", "-E", "-include", "libunwind.h", "-xc", "/dev/null"]).status != 0:
        t.skip("libunwind-dev is not installed")
    os.makedirs(directory, exist_ok=True)
    library = os.path.join(directory, "libsampler.so")
    tolerant = [] if root == ROOT else ["-Wno-error"]
    oracle = ["-lgcc_s"] if prefix else ["-lunwind"]
    command = [prefix + "gcc", *GUEST, *tolerant, "-I", root, "-shared", "-Wl,-z,defs", os.path.join(root, "tests/unwind/sampler.c"),
               os.path.join(root, "recorder/guest/syscall.c"), *unwinder(root), *oracle, "-ldl", "-lpthread", "-o"]
    if root == ROOT:
        shutil.copy(built_once(t, prefix + "libsampler.so", *command), library)
    else:
        t.run([*command, library], status=0)
    return library


def build_stress(t, directory, prefix="", flags=()):
    """The random program and its libraries, beside the sampler. With flags it is built with these, and what is not C++ of its own is a library."""
    t.need(prefix + "g++")
    out = lambda name: os.path.join(directory, name)
    here = lambda name: os.path.join(ROOT, "tests/unwind", name)
    gcc, gxx = prefix + "gcc", prefix + "g++"
    for name in ("stress_code", "trap"):
        t.run([gcc, *C, "-c", "-o", out(name + ".o"), here(name + ".c")], status=0)
    code = [out("stress_code.o"), out("trap.o")]
    if flags:
        t.run([gcc, "-shared", "-o", out("libstress_code.so"), *code, "-L", directory, "-lsampler"], status=0)
        code = ["-L", directory, "-lstress_code"]
    compiled = flags or ([] if prefix else UNFRAMED)
    stress = built_once(t, prefix + "stress" + "".join(compiled) + ".o", gxx, "-std=gnu++17", *WARNINGS, "-O2", "-g1", *compiled, "-c", here("stress.cc"), "-o")
    t.run([gxx, "-o", out("stress"), stress, *code, "-L", directory, "-lsampler", "-Wl,-rpath,$ORIGIN", "-lpthread", "-ldl"], status=0)
    # qemu's user emulation hands out rising addresses; the loader asks for the one that a library was linked for.
    place = ["-Wl,-Ttext-segment=0x6f00000000"] if prefix else []
    for name, frame in (("plugin_a.so", 40), ("plugin_b.so", 56)):
        t.run([gcc, *C, "-shared", *place, f"-DFRAME_BYTES={frame}", "-o", out(name), here("plugin.c")], status=0)
    return out("stress")


def compare(t, stacks, prefix="", emulator=(), flags=(), env=()):
    build_sampler(t, t.dir, prefix=prefix)
    seed = os.environ.get("TM_TEST_SEED")
    done = t.run([*emulator, build_stress(t, t.dir, prefix, flags), str(stacks), *([seed] if seed else [])], env={"TM_TEST_REPORT": "", **dict(env)})
    print(done.text, done.errors, sep="")
    if t.sanitized and "\n0 wrong, 0 with a wrong mark of a cut; a feature is too rare" in done.text:
        return  # such a build is too slow for signals that come by the clock
    first = re.search(r"^(?:different|not the truth|marked|not marked)[^\n]*\n(?: [^\n]*\n)*", done.errors, re.M)
    seen = " /".join(re.sub(r"/\S*/", "", first[0] if first else done.errors[-500:]).split("\n"))
    t.equal(done.status, 0, f"status of the comparison (TM_TEST_SEED repeats a seed); {seen[:900]}")


# All addresses of a page share one place in the table of rules, so that rules give way all the time.
CROWDED = ("unwind_rule.h", "0x9e3779b97f4bull /* odd */", "0x100001ull")



def compare_by_frame_pointers(t, stacks, prefix="", emulator=()):
    """--stacks=fp: of a program with frame pointers, where it must be right; and of one without, which it must survive, and mark."""
    compare(t, stacks, prefix, emulator, FRAMED, {"TM_TEST_STACKS": "framed"})
    compare(t, stacks // 4, prefix, emulator, UNFRAMED, {"TM_TEST_STACKS": "unframed"})


# What is broken: the file, what stands there, and what instead (and more such changes). Each has to be noticed. Not among them is what only spares work
# or memory: that remembered frames inside of the present one are not compared, that a stack whose places do not rise is not remembered, which frames are
# marked as framed without need. And four that no random program of ours would surely see: that a rule of the quick walk is plain (where one by the frame pointer leads
# to the same place, what it read matters only later), and that an interrupted frame is not met by a call (the same return address at the same place as was
# interrupted there), that a route does not lead beyond the depth
# limit, and that a frame that becomes framed has its pair remembered.
# Nor would it see these of routes, where everything else on the way is looked at: that the innermost address is, that the rest of a long one is and is its own,
# that what it knows of frame pointers elsewhere is its own, and where the one at its end lies, whose value is compared; and that a cut is inside of what stays.
# Nor these of known stacks, whose words are compared all the same: that the place is the one where it was, that a stack of a coroutine is none, and that
# one with an interrupted frame is none.
BREAKS = {
    # what is remembered of the last stack
    "return addresses are not looked at again": ("unwind.h", "TM_UNWIND_PC_MASK) != pc[k])", "TM_UNWIND_PC_MASK) * 0 * pc[k])"),
    "other words are not looked at again": ("unwind.h", " && TM_UNWIND_WORD(c->slot) == c->value) c++;", ") c++;"),
    "pairs: words below return addresses are not looked at again": ("unwind.c", "tm_unwind_unchanged_pairs(t->sps + low, t->pairs + low, n - low)",
                                                                     "tm_unwind_unchanged(t->sps + low, t->pcs + low, n - low)"),
    "pairs: eight at once": ("unwind.h", "~tm_unwind_same_pairs(slot, pair);", "~tm_unwind_same_pairs(slot, pair) & 0xcccccccc;"),
    "pairs: one at once": ("unwind.h", "TM_UNWIND_WORD(*slot) == pair->pc && TM_UNWIND_WORD(*slot - 8) == pair->next", "TM_UNWIND_WORD(*slot) == pair->pc"),
    "pairs are looked at though a frame outside of them changed": ("unwind.c", "if (outer == low) outer +=", "outer = low +"),
    "a whole stack is the same wherever it ends": ("unwind.h", "valid == t->depth && t->sps[valid - 1] == slot && tm_unwind_is_met", "valid == t->depth && tm_unwind_is_met",
                                                    "unwind_usual.h", "n == t->depth && t->sps[n - 1] == slot", "n == t->depth"),
    "a part of a stack is the same as all": ("unwind.h", "return valid == t->depth && t->sps", "return t->sps", "unwind_usual.h", "n == t->depth && t->sps", "t->sps"),
    "a whole stack is the same whatever the frame pointer": ("unwind.h", "t->sps[valid - 1] == slot && tm_unwind_is_met(t, valid - 1, fp, &until)",
                                                             "t->sps[valid - 1] == slot && ((void)fp, (void)until, true)"),
    "a frame pointer is not compared": ("unwind.h", "if (c->value != fp) return false;", ""),
    "a frame pointer is not compared with what the frame itself uses": ("unwind.h", "if (c->until > i) continue;", "if (c->until >= i) continue;"),
    "a frame pointer is not compared with a framed frame's": ("unwind.c", "return t->pairs[i].next == fp;", "return true;"),
    # what a walk remembers
    "the place below a frame of ours is the next one's": ("unwind.c", "user < t->capacity && t->sps[at] == slot)", "user < t->capacity)"),
    "a plain frame's use of a frame pointer is forgotten": ("unwind.c", "t->framed[at] = 1;\n\telse use_fp(w, user);", "t->framed[at] = 1;"),
    "a frame is framed whatever its frame pointer's place": ("unwind.c", "w->fp_source.slot == slot - 8 && user", "user"),
    "a frame that was met needs no frame pointer": ("unwind.c", "if (until != NO_FRAME && !w->met_is_framed) use_fp(w, until + NUMBER_MAX);", ""),
    "a frame that was met is framed whatever its frame pointer's place": ("unwind.c", "until == met && w->fp_source.slot == w->t->sps[met] - 8", "until == met"),
    "an aligned frame's end is not looked at again": ("unwind.c", "check_word(w, at, WORD(at));", ""),
    "an aligned frame's use of a frame pointer is forgotten": ("unwind.c", "use_fp(w, innermost(w));\n\tcheck_word(w, at, WORD(at));", "check_word(w, at, WORD(at));"),
    "what a signal interrupted is not looked at again": ("unwind.c", "put_check(w, (struct tm_check){ sp + TM_SIGNAL_SP, WORD(sp + TM_SIGNAL_SP), w->fresh, TM_CHECK_INTERRUPTED });", ""),
    "what a signal interrupted is met wherever it stood": ("unwind.c", "w->fresh, TM_CHECK_INTERRUPTED", "innermost(w), innermost(w)",
                                                          "unwind.c", "w->in_call != is_interrupted(t, known - 1) && ", ""),
    "a module's rules are taken for another's": ("shared_rules.c", "(uint64_t)(number + 1) << PLACE_BITS", "(uint64_t)1 << PLACE_BITS"),
    "a signal's frame is taken for a call": ("unwind.c", "w->in_call = false;", ""),
    "a guess is not marked": ("unwind.c", "w->guess = innermost(w);", ""),
    "a guess's frame pointer is not looked at again": ("unwind.c", "use_fp(w, innermost(w));\n\tw->guess", "w->guess"),
    "a cut that went is still marked": ("unwind.c", "if (t->cut_frame >= keep) t->cut_frame = NO_FRAME;\n\tif (w->guess", "if (w->guess"),
    "frames of ours are not looked at again": ("unwind.c", "check_word(w, w->slot, WORD(w->slot));\n\t\t\tif (tm_unwind_is_main_wrapper", "if (tm_unwind_is_main_wrapper"),
    "another stack's frames are remembered": ("unwind.c", "w->forget || w->memory.left ? 0", "w->forget ? 0"),
    "a cut at the depth limit is overlooked": ("unwind.c", "if (TM_UNLIKELY(met != NO_FRAME && !fits(t, met + 1 + w.fresh, limit))) {", "if (0) {"),
    # the quick walks
    "quick walk: framed frames are overlooked": ("unwind.c", "if (valid > t->framed_low && t->framed[valid - 1]) return true;", ""),
    "quick walk: goes beyond the frame that it is to meet": ("unwind.c", "if (TM_UNLIKELY(at != met)) return TM_UNWIND_NOT_QUICK;", ""),
    "quick walk: overlooks that a frame pointer is needed": ("unwind.c", "if (t->checks[*checks - 1].until < valid) return true;", ";"),
    "quick walk: any entry is the address's": ("unwind.c", "~0ull << TM_RULE_BITS | 7;", "7;", *CROWDED),
    "quick walk: a stack that was cut at the limit": ("unwind.c", "if (TM_UNLIKELY(t->truncated)) return TM_UNWIND_NOT_QUICK;\n\tstruct tm_route *r", "struct tm_route *r",
                                                   "unwind.c", "if (TM_UNLIKELY(t->truncated)) return TM_UNWIND_NOT_QUICK;\n\tuint64_t route", "uint64_t route",
                                                   "unwind_usual.h", " || t->truncated", ""),
    "quick walk: more frames than the limit": ("unwind.c", "if (TM_UNLIKELY((met - slot) / 8 > t->capacity - valid)) return unwind_quickly_with_fp(t, valid, slot, route);", ""),
    "quick walk with frame pointers: goes beyond": ("unwind.c", "while (slot != met) {\n\t\tif (TM_UNLIKELY(slot > met || at <= least))",
                                                    "while (slot < met) {\n\t\tif (TM_UNLIKELY(at <= least))"),
    "quick walk with frame pointers: a plain frame's use is forgotten": ("unwind.c", "if (outer % 8 || !remember_fp(&fp, 2 * t->capacity - at))", "if (outer % 8)"),
    "quick walk with frame pointers: it is not compared": ("unwind.c", "if (!is_met(t, valid - 1, fp->value, &until)) return false;",
                                                           "(void)is_met(t, valid - 1, fp->value, &until);"),
    "quick walk with frame pointers: the met frame's use is forgotten": ("unwind.c", "if (until != NO_FRAME && !*met_is_framed && !remember_fp(fp, until + NUMBER_MAX)) return false;", ""),
    "quick walk with frame pointers: the met frame is framed": ("unwind.c", "until == valid - 1 && fp->at == t->sps[valid - 1] - 8", "until == valid - 1"),
    "quick walk with frame pointers: framed whatever its place": ("unwind.c", "rule == framed && fp.at == slot - 8", "rule == framed"),
    "framed frames: any rule is theirs": ("unwind.c", "tm_rule_tag(hash)) != framed)) {\n\t\t\tif ((atomic_load_explicit(&set[1], memory_order_relaxed) ^ tm_rule_tag(hash)) != framed) break;",
                                         "tm_rule_tag(hash)) >> TM_RULE_BITS)) {\n\t\t\tif ((atomic_load_explicit(&set[1], memory_order_relaxed) ^ tm_rule_tag(hash)) >> TM_RULE_BITS) break;"),
    "framed frames: the one that was met keeps its mark": ("unwind.c", "if (t->framed_low < keep || met_is_framed) t->framed[keep - 1] = met_is_framed;", ""),
    "framed frames: those of the last stack are taken for new ones": ("unwind.c", "memcpy(t->framed + keep, t->framed + 2 * t->capacity - (t->depth - keep), t->depth - keep);", ""),
    # routes
    "routes outlive the library": ("unwind.c", "t->rules_version = version;\n\tforget_routes(t);", "t->rules_version = version;"),
    "a route is gone whatever lies on it": ("unwind_route.h", " && tm_route_holds_four(r->pcs, r->offsets, slot);", ";"),
    "a route: the outer two of four are not looked at": ("unwind_route.h", "return !(TM_CHANGED(0) | TM_CHANGED(1)) && ", "return "),
    "a route: the inner two of four are not looked at": ("unwind_route.h", " && !(TM_CHANGED(2) | TM_CHANGED(3));", ";"),
    "a route that was forgotten leads nowhere, on and on": ("unwind_learn.h", "if (r->pc) r->pc = r->worth = 0;", "if (r->span) r->span = r->worth = 0;",
                                                          "unwind_route.h", "#define TM_ROUTES_BITS 11u", "#define TM_ROUTES_BITS 4u"),
    "a route leads anywhere": ("unwind_route.h", "return r->span == span && ", "return r->span && ", "unwind_route.h", "TM_ROUTE_FACTOR ^ span << 24", "TM_ROUTE_FACTOR"),
    "a route: frame pointers are not looked at": ("unwind_route.h", "if (TM_UNWIND_WORD(place - 8) != outer - 8) return false;", ""),
    "a route: the frame pointer at its end comes from nowhere": ("unwind.c", "fp.source = source_of_route(r->fp_source);", "fp.source = TM_CHECK_TOP;"),
    "a route: frames are not framed": ("unwind_route.h", "uint64_t bits = framed >> i & 0xff;", "uint64_t bits = 0 * framed;"),
    "a route: whoever learned it knew of all frame pointers": ("unwind_learn.h", "\t\t\tr->framed |= TM_ROUTE_USES;\n", ""),
    "a route: frame pointers that lie elsewhere are not looked at": ("unwind_route.h", "if (TM_UNWIND_WORD(tm_route_use_at(&u->uses[i], slot)) != slot + ",
                                                                     "if (u->uses[i].at == 0xffff && TM_UNWIND_WORD(tm_route_use_at(&u->uses[i], slot)) != slot + "),
    "a route: frame pointers that lie elsewhere are forgotten": ("unwind.c", "if (r->framed & TM_ROUTE_USES) take_uses(", "if (!r) take_uses("),
    "a route: frame pointers that lie elsewhere are used by the innermost frame": ("unwind.c", "source_of_route(use->source), use->user }", "source_of_route(use->source), 0 }"),
    # the expected routes
    "expected: checks about frames that go are overlooked": ("unwind_usual.h", "beyond->frame != TM_CHECK_END || ", ""),
    "expected: framed frames are compared without the words below": ("unwind_usual.h", "if (TM_UNLIKELY(n > t->framed_low)) {", "if (0) {"),
    "expected: a route with frame pointers is gone as one without": ("unwind_usual.h", "r->framed || depth", "depth"),
    # stacks that are known as a whole
    "known: its words are not looked at again": ("unwind_known.h", "return false;\n\t\ti +=", "i = i;\n\t\ti +="),
    "known: the frames that it shares are not looked at again": ("unwind_known.h", "for (; frame < end; frame += ", "for (; end < frame; frame += "),
    "known: other words are not looked at again": ("unwind_known.c", "put_word_about(&w, c->slot, c->value,", "put_word_about(&w, slot, values[0],"),
    "known: frame pointers are not looked at again": ("unwind_known.c", "put_word_about(&w, t->sps[i] - 8, t->pairs[i].next,", "put_word_about(&w, slot, values[0],"),
    "known: cut as it is": ("unwind_known.c", " && has_end", ""),
    "known: numbers go on": ("unwind_known.c", "TM_RING_LEARN | TM_RING_LEARN_FIRST : TM_RING_LEARN", "TM_RING_LEARN : TM_RING_LEARN"),
    "known: restored without its checks": ("unwind_known.c", "tm_unwind_set_check_count(t, k->check_count);", "tm_unwind_set_check_count(t, 0);"),
    "known: restored without framed frames": ("unwind_known.c", "restore_framed(t, k, values", "if (!k) restore_framed(t, k, values"),
    "known: restored without the framed frames that it shares": ("unwind_known.c", "i < k->trunk_depth && k->trunk->by_pairs && is_framed_in(k->trunk, i);", "0;"),
    "known: restored to other places": ("unwind_known.c", "t->sps[k->depth - 1 - i] = place_in(k, i);", ""),
    "known: outlives the library": ("unwind_known.h", "if (!*all && atomic_load_explicit(&tm_versions.rules, memory_order_acquire) != t->rules_version) return NULL;", "",
                                    "unwind.c", "forget_routes(t);\n\ttm_known_forget(t);", "forget_routes(t);"),
    # rules, and libraries that go
    "rules: any entry is the address's": ("unwind_rule.h", "return second >> TM_RULE_BITS ? 0 : (uint32_t)second;", "return (uint32_t)second & TM_RULE_MASK;", *CROWDED),
    "rules: any first entry is the address's": ("unwind_rule.h", "if (TM_LIKELY(!(first >> TM_RULE_BITS))) return (uint32_t)first;", "if (first & TM_RULE_MASK) return (uint32_t)first & TM_RULE_MASK;", *CROWDED),
    "a module's rules are taken over for its neighbours": ("shared_rules.c", "tm_rule_keep(base + (uintptr_t)(entry >> TM_RULE_BITS), rule);",
                                                           "tm_rule_keep(base + (uintptr_t)(entry >> TM_RULE_BITS) + 0x1000, rule);"),
    "rules outlive their library": ("unwind_rule.c", "atomic_store_explicit(&entries[i], 0, memory_order_relaxed)", "(void)0"),
    "rules are looked up and kept while a library goes": ("unwind_rule.h", "(((version)&0xff) != 0)", "((version) == UINT32_MAX)"),
    "stacks outlive the library": ("unwind_usual.h", "if (TM_UNLIKELY(atomic_load_explicit(&tm_versions.rules, memory_order_acquire) != t->rules_version))", "if (t->by_frame_pointers)"),
}

# Of a program with frame pointers. Not among them is which word is remembered below a frame, and that a trunk is shared by stacks of the same words: else less is known.
BREAKS_OF_FRAMED = {
    "known: pairs that are shared are not looked at again": ("unwind_known.h", "| *passed_over++) != TM_KNOWN_ALL_SAME", "| *passed_over++) > TM_KNOWN_ALL_SAME"),
    "known: return addresses of shared pairs are not looked at again": ("unwind_known.h", "| *passed_over++) != TM_KNOWN_ALL_SAME", "| *passed_over++ | 0xcccc) != TM_KNOWN_ALL_SAME"),
    "known: words below shared frames are not looked at again": ("unwind_known.h", "| *passed_over++) != TM_KNOWN_ALL_SAME", "| *passed_over++ | 0x3333) != TM_KNOWN_ALL_SAME"),
    "known: words below its own frames are not looked at again": BREAKS["known: frame pointers are not looked at again"],
    "known: restored without the framed frames that it shares": BREAKS["known: restored without the framed frames that it shares"],
}
# The same by frame pointers. Not among them is that a mark goes when its frame does: it is always the outermost one's; and that what is known goes when a library
# does: a chain of pairs is what it is, whose code they ever belong to.
BREAKS_BY_FRAME_POINTERS = {
    "pairs are not compared": BREAKS["pairs: words below return addresses are not looked at again"],
    "pairs: a whole stack is the same wherever it ends": BREAKS["a whole stack is the same wherever it ends"],
    "pairs: one more than those that hold": ("unwind.h", "(uint32_t)__builtin_ctz(changed) / 4;", "(uint32_t)__builtin_ctz(changed) / 4 + 1;"),
    "pairs: the last ones are not compared": ("unwind.h", "if (slot > last) {", "if (slot > last) {\n\t\t\t\treturn n;"),
    "pairs: a chain that goes past the frame that stays meets it": ("unwind_pairs.c", "return next != met || all % 8 ?", "return all % 8 ?"),
    "pairs: what is met is none": ("unwind.c", "w.met_is_framed = met != NO_FRAME;", ""),
    "pairs: frames are not marked": ("stack.c", "if (t->by_frame_pointers) tm_unwind_mark_all_framed(t);", ""),
    "pairs: frames of ours are not looked at again": ("unwind.c", "check_word(&w, pair + 8, WORD(pair + 8));\n\t\t\tif (tm_unwind_is_main", "if (tm_unwind_is_main"),
    "pairs: a stack is cut again where it meets one that was not": ("unwind.c", "if (met != NO_FRAME) w.cut = false;", ""),
    "pairs: no stack is cut": ("unwind.c", "w.cut = true; /* wherever", "/* wherever"),
    "pairs: no known stack is cut": ("unwind_known.c", "(t->cut_frame == UINT32_MAX ? 0 : TM_RING_CUT)", "0"),
    "pairs: a known stack is restored as whole": ("unwind_known.c", "tm_known_is_cut(k) ? 0 : UINT32_MAX", "UINT32_MAX"),
}


@test
def places_to_break(t):
    """What the long test breaks on purpose stands once in the sources."""
    for name, places in (*BREAKS.items(), *BREAKS_OF_FRAMED.items(), *BREAKS_BY_FRAME_POINTERS.items()):
        for file, old, _ in zip(*[iter(places)] * 3):
            with open(os.path.join(ROOT, "recorder/guest", file), encoding="utf-8") as source:
                t.equal(source.read().count(old), 1, f"places in {file} for: {name}")


def check_noticed(t, stress, name, stacks, breaks=BREAKS, env=()):
    """The stress program with a sampler of broken sources."""
    root = tempfile.mkdtemp(prefix=re.sub(r"\W", "_", name), dir=t.dir)
    for part in ("recorder", "schema", "tests/unwind"):
        shutil.copytree(os.path.join(ROOT, part), os.path.join(root, part))
    for file, old, new in zip(*[iter(breaks[name])] * 3):
        path = os.path.join(root, "recorder/guest", file)
        with open(path, encoding="utf-8") as source:
            text = source.read()
        with open(path, "w", encoding="utf-8") as source:
            source.write(text.replace(old, new))
    for file in (stress, *glob.glob(os.path.join(os.path.dirname(stress), "plugin_*.so")), *glob.glob(os.path.join(os.path.dirname(stress), "libstress_code.so"))):
        shutil.copy(file, root)
    build_sampler(t, root, root)
    for some in (stacks // 150, stacks // 7, stacks):  # most are noticed soon
        done = t.run([os.path.join(root, "stress"), str(some)], env={"TM_TEST_REPORT": "", **dict(env)})
        last = (done.text.splitlines() or ["?"])[-1]
        # A status of 1 is the comparison's; a crash of the broken unwinder is noticed, too.
        if done.status == 1 and not last.startswith("0 wrong, 0 with") or done.status >= 128 or done.status < 0:
            print(f"{name}: {last}, status {done.status}, of {some} stacks")
            return
    t.check(False, f"not noticed: {name}")


@test
def random_stacks(t):
    compare(t, 60_000)
    compare(t, 40_000, flags=FRAMED)
    check_noticed(t, t.path("stress"), "return addresses are not looked at again", 5_000)


@test
def frame_pointers(t):
    compare_by_frame_pointers(t, 40_000)


@test(long=True)
def ten_million_random_stacks(t):
    compare(t, 10_000_000)
    compare(t, 2_000_000, flags=FRAMED)
    compare_by_frame_pointers(t, 2_000_000)


@test(long=True)
def notices_every_broken_unwinder(t):
    build_sampler(t, t.dir)
    stress = build_stress(t, t.dir)
    for name in BREAKS:
        check_noticed(t, stress, name, 3_000_000)
    stress = build_stress(t, t.dir, flags=FRAMED)
    for name in BREAKS_OF_FRAMED:
        check_noticed(t, stress, name, 3_000_000, BREAKS_OF_FRAMED)
    for name in BREAKS_BY_FRAME_POINTERS:
        check_noticed(t, stress, name, 3_000_000, BREAKS_BY_FRAME_POINTERS, {"TM_TEST_STACKS": "framed"})


def hostile(t, stacks, prefix="", emulator=()):
    t.need(prefix + "gcc")
    t.run([prefix + "gcc", *C, "-fexceptions", "-I", ROOT, "-o", t.path("hostile"), os.path.join(ROOT, "tests/unwind/hostile.c"), os.path.join(ROOT, "tests/unwind/trap.c"), *unwinder(ROOT), "-lpthread"], status=0)
    done = t.run([*emulator, t.path("hostile"), str(stacks)])
    print(done.text, done.errors, sep="")
    t.equal(done.status, 0, "status")


@test
def deep_code_without_tables(t):
    """What is once known of a call in code that nothing describes is not asked of the system, frame by frame, at each event: beyond the depth limit whole stacks are walked anew."""
    t.need("strace")
    program, calls = t.program("undescribed.c", "-O0", "-fno-builtin", "-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"), t.path("calls")
    db = t.imported(t.record(["strace", "-f", "-e", "trace=futex", "-o", calls, program, "1500", "2"], "--max-depth=1024"))
    blocks = "from allocation where process_id = (select max(id) from process where exe like '%/undescribed%') and size_bytes"
    t.equal(db.row(f"select count(*), count(free_ns) {blocks} between 1 and 1501"), (3002, 3002), "blocks")
    for size in (1, 2, 478, 479, 480, 1500, 1501):
        texts = db.rows(f"select text from stack_text where stack_id in (select stack_id {blocks} = ?)", size)
        t.equal({text.count("descend") for (text,) in texts}, {min(1502 - size, 1024)}, f"frames of descend() above a block of {size} bytes")
    with open(calls, encoding="ascii") as file:
        asked = sum("futex(" in line for line in file)
    t.check(asked < 3 * 3002, f"{asked} questions about memory")


@test
def memory_that_is_no_stack(t):
    hostile(t, 20_000)


@test
def aarch64(t):
    t.need(EMULATOR[0])
    compare(t, 1_000, CROSS, EMULATOR)
    hostile(t, 1_000, CROSS, EMULATOR)


@test(long=True)
def aarch64_long(t):
    t.need(EMULATOR[0])
    compare(t, 1_000_000, CROSS, EMULATOR)
    compare_by_frame_pointers(t, 100_000, CROSS, EMULATOR)
    hostile(t, 40_000, CROSS, EMULATOR)


# --- real programs

JSON = "import json; d = [{'a': [i, str(i)]} for i in range(%d)]; json.loads(json.dumps(d))"
SQL = "with recursive c(x) as (select 1 union all select x + 1 from c where x < %d) select count(distinct hex(x * 7919 %% 10007)) from c"


def compare_real(t, times):
    """Returns how many stacks were compared."""
    report, rules = t.path("report"), t.path("rules")
    sampler = build_sampler(t, t.dir)
    source = t.path("program.cc")
    with open(source, "w", encoding="utf-8") as file:
        headers = ["iostream", "functional", "regex", "map", "string", "vector"] if times > 1 else ["memory"]
        file.write("".join(f"#include <{name}>\n" for name in headers) + "int main() { return *std::unique_ptr<int>(new int); }\n")
    threads = t.path("threads")
    t.run(["g++", "-O2", "-g", "-pthread", "-o", threads, os.path.join(ROOT, "tests/unwind/exceptions.cc")], status=0)
    total = 0
    for command in (["sqlite3", ":memory:", SQL % (1000 * times)], ["git", "-C", ROOT, "log", "--stat", f"-{30 * times}"],
                    ["python3", "-S", "-c", JSON % (60 * times)], ["g++", "-fsyntax-only", source, source], [threads, str(40 * times)]):
        if not shutil.which(command[0]) or command[0] == "git" and not os.path.isdir(os.path.join(ROOT, ".git")):
            continue
        open(report, "w").close()
        done = t.run(command, env={"LD_PRELOAD": sampler, "TM_TEST_REPORT": report, "TM_TEST_RULES": rules, "PYTHONMALLOC": "malloc"})
        t.equal(done.status, 0, f"status of {command[0]}: {done.errors[-3000:]}")
        with open(report, encoding="ascii") as file:
            processes = [dict(zip(line.split()[::2], map(int, line.split()[1::2]))) for line in file]
        total_of = lambda key, processes=processes: sum(p[key] for p in processes)
        print(f"{os.path.basename(command[0])}: {len(processes)} processes, {total_of('stacks')} stacks of {total_of('frames') / max(total_of('stacks'), 1):.1f} frames, "
              f"{total_of('fresh') / max(total_of('stacks'), 1):.1f} new, {total_of('cut')} cut, {total_of('wrong')} wrong")
        if total_of("wrong") + total_of("wrong_cut"):
            print(done.errors)
        t.check(total_of("stacks") > 1000, f"{command[0]} was not looked at")
        t.equal((total_of("wrong"), total_of("wrong_cut"), total_of("beyond")), (0, 0, 0), f"stacks of {command[0]} that are wrong, or wrongly marked, or beyond what the oracle sees")
        total += total_of("stacks")
    print(f"{total} stacks, {check_shared(t, rules)} rules shared")
    return total


def check_shared(t, rules):
    """The programs, each at other addresses than the last, left their rules for each other (struct tm_shared_rules in recorder/shm.h): in the table and, most of them,
    in a list of their module."""
    with open(rules, "rb") as file:
        modules, table = array.array("I", file.read(1024 * 64)), array.array("Q", file.read(16 << 16))
        blocks, lists = [array.array("Q", file.read(4096)) for _ in range(512)], array.array("I", file.read(4 * 1024))
    t.check(sum(state == 2 for state in modules[::16]) > 10 and not any(state == 1 for state in modules[::16]), f"modules: {list(modules[::16])}")
    count, listed, distinct = sum(entry != 0 for entry in table), 0, 0
    for number in filter(None, lists):
        entries = []
        while number:
            head, *rules_of_block = blocks[number - 1]
            entries += rules_of_block[:head & 0xffffffff]
            number = head >> 32
        distinct += len({entry >> 28 for entry in entries})
        listed += len(entries)
    # Threads and processes at work at one time list a rule twice, now and then: the more of them wait for a processor, the more often.
    t.check(distinct > 0.85 * listed, f"{listed} rules in lists, {distinct} different ones")
    t.check(count > 1000 and 0.9 * count < distinct < 1.05 * count, f"{count} rules are shared, {distinct} in lists")
    return count


@test
def real_programs(t):
    compare_real(t, 1)


@test(long=True)
def a_million_stacks_of_real_programs(t):
    t.check(compare_real(t, 120) >= 1_000_000, "fewer than a million stacks")


main()
