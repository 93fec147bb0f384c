"""Programs of C and C++: the line that the user can change, past wrappers of cudaMalloc; its source; what keeps memory."""
import json
import re
import shutil
import subprocess

import pytest

from conftest import BUILD

HEAD = """
#ifdef __cplusplus
extern "C" {
#endif
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
int cudaMalloc(void **, size_t); int cudaFree(void *); int cudaMemcpy(void *, const void *, size_t, int);
int cudaDeviceSynchronize(void);
#ifdef __cplusplus
}
#endif
"""
BUFFER = """
#include <map>
#include <memory>
#include <stdexcept>
#include <vector>
template <class T> class Buffer {
    T *p = nullptr;
public:
    explicit Buffer(size_t n) {
        if (cudaMalloc((void **)&p, n * sizeof(T))) throw std::runtime_error("out of memory"); // WRAPPER
    }
    Buffer(const Buffer &) = delete;
    Buffer(Buffer &&o) : p(o.p) { o.p = nullptr; }
    ~Buffer() { cudaFree(p); }
    T *data() { return p; }
};
"""
KEPT_IN_VECTOR = BUFFER + """
struct Solver {
    Buffer<float> u, v; std::vector<Buffer<float>> snapshots;
    explicit Solver(size_t n) : u(n), v(n) {} // SOLVER
    void step(int i) {
        Buffer<float> scratch(1 << 20); // SCRATCH
        if (i % 10 == 0) snapshots.emplace_back(2 << 20); // LEAK
        float residual;
        cudaMemcpy(&residual, v.data(), 4, 2);
    }
};
int main() {
    Solver s(1 << 20); // MAIN
    try { for (int i = 0; i < 4000; i++) s.step(i); } catch (const std::exception &) { return 3; }
}
"""
KEPT_IN_MAP = """
#include <map>
#include <memory>
struct Free { void operator()(void *p) const { cudaFree(p); } };
using Pointer = std::unique_ptr<void, Free>;
static Pointer make(size_t n) { void *p; if (cudaMalloc(&p, n)) exit(3); return Pointer(p); } // WRAPPER
struct Cache {
    std::map<size_t, Pointer> items;
    void *get(size_t n) {
        if (!items.count(n)) this->items.try_emplace(n, make(n)); // LEAK
        return items[n].get();
    }
};
int main() {
    Cache cache;
    auto weights = make(64 << 20);
    auto bias = make(1 << 20);
    for (size_t i = 0; i < 4000; i++) {
        cache.get((4 << 20) + i * 4096);
        cudaDeviceSynchronize();
    }
}
"""
EARLY_RETURN = """
static void *gpu_alloc(size_t n)
{
    void *p;
    if (cudaMalloc(&p, n)) exit(3); /* WRAPPER */
    return p;
}
static int process(int width, const void *pixels)
{
    void *in = gpu_alloc((size_t)width * 8192); /* LEAK */
    cudaMemcpy(in, pixels, 4096, 1);
    void *out = gpu_alloc(2 << 20); /* OUT */
    if (width % 3 == 0) {
        cudaFree(out);
        return -1;
    }
    cudaFree(out);
    cudaFree(in);
    return 0;
}
int main(void)
{
    void *weights = gpu_alloc(64 << 20), *pixels = malloc(4096);
    for (int i = 0; i < 4000; i++) process(512 + i % 64, pixels);
    cudaFree(weights);
    return 0;
}
"""
ONE_REQUEST = BUFFER + """
static void pairwise(size_t n) { Buffer<float> distances(n * n); } // LEAK
int main() {
    for (size_t n : {1000, 5000, 40000}) {
        Buffer<float> x(n * 64); // MAIN
        try { pairwise(n); } catch (const std::exception &) { return 3; }
    }
}
"""
HEALTHY = BUFFER + """
int main() {
    Buffer<float> weights(16 << 20); // WEIGHTS
    std::vector<Buffer<float>> ring; // RING
    for (int i = 0; i < 4; i++) ring.emplace_back(4 << 20); // LEAK
    for (int i = 0; i < 500; i++) { Buffer<float> scratch(1 << 20); cudaDeviceSynchronize(); } // SCRATCH
}
"""
LAYERS = """
#include <memory>
#include <vector>
struct Resource {
    virtual ~Resource() = default;
    void *allocate(size_t n) { return do_allocate((n + 255) & ~255ul); }
    virtual void *do_allocate(size_t) = 0;
};
struct Plain : Resource {
    void *do_allocate(size_t n) override { void *p; if (cudaMalloc(&p, n)) throw 1; return p; } // WRAPPER
};
struct Logged : Resource {
    Resource *up; long calls = 0;
    explicit Logged(Resource *r) : up(r) {}
    void *do_allocate(size_t n) override { calls++; return up->allocate(n); }
};
static Resource &current() { static Plain plain; static Logged logged(&plain); return logged; }
struct Storage { void *p; explicit Storage(size_t n) : p(current().allocate(n)) {} ~Storage() { cudaFree(p); } };
struct Tensor {
    std::shared_ptr<Storage> s;
    static Tensor empty(size_t n) { Tensor t; t.s = std::make_shared<Storage>(n * 4); return t; }
};
struct Net {
    Tensor weights = Tensor::empty(8 << 20); std::vector<Tensor> tape;
    void forward() {
        Tensor hidden = Tensor::empty(1 << 20);
        Tensor output = Tensor::empty(1 << 19); // LEAK
        cudaMemcpy(output.s->p, hidden.s->p, 1 << 20, 3);
        this->tape.push_back(output);
    }
};
int main() {
    Net net;
    try { for (int i = 0; i < 4000; i++) { net.forward(); cudaDeviceSynchronize(); } } catch (int) { return 3; }
}
"""
WORKER = """
static int infer(int width)
{
    void *in, *out, *work;
    if (cudaMalloc(&in, 1 << 20)) exit(3);
    if (cudaMalloc(&out, 2 << 20)) /* LEAK */
        exit(3);
    if (cudaMalloc(&work, 1 << 20)) exit(3);
    cudaFree(in);
    cudaFree(work);
    if (width % 2) return -1;
    cudaFree(out);
    return 0;
}
int main(void)
{
    infer(0);
    infer(2);
    for (int i = 0; i < 4000; i++) {
        infer(i);
        cudaDeviceSynchronize();
    }
    return 0;
}
"""
ITS_LOOP = """
struct world { void *grid; };
static void run_with(struct world *world, int steps)
{
    for (int i = 0; i < steps; i++) {
        if (cudaMalloc(&world->grid, 4 << 20)) /* LEAK */
            exit(3);
        cudaDeviceSynchronize();
    }
}
int main(void)
{
    struct world world;
    run_with(&world, 4000);
    return 0;
}
"""
KEYED = """
#include <string>
#include <unordered_map>
static void *make(size_t n) { void *p; if (cudaMalloc(&p, n)) exit(3); return p; } // WRAPPER
static std::unordered_map<std::string, void *> plans;
static void run(int i) {
    std::string key = std::to_string(i);
    plans[key] = make(1 << 20); // LEAK
}
int main() {
    void *weights = make(8 << 20);
    for (int i = 0; i < 4000; i++) {
        void *scratch = make(1 << 20);
        run(i);
        cudaDeviceSynchronize();
        cudaFree(scratch);
    }
}
"""
CALLBACK = """
#include <functional>
#include <vector>
static const size_t N = 1 << 20;
static void *p;
int main() {
    std::vector<std::function<void(int)>> jobs;
    jobs.push_back([](int) { if (cudaMalloc(&p, N)) exit(3); cudaFree(p); });
    auto drop = [](int i) { if (i % 2) cudaFree(p); };

    jobs.push_back([=](int i) { if (cudaMalloc(&p, N)) exit(3); drop(i); }); // LEAK
    for (int i = 0; i < 4000; i++) { for (auto &job : jobs) job(i); cudaDeviceSynchronize(); }
}
"""
NOT_STORED = """
#include <vector>
static void *make(size_t n) { void *p; if (cudaMalloc(&p, n)) exit(3); return p; } // WRAPPER
static void note(const char *, void *) {}
struct Stage {
    std::vector<int> ids; void *current = nullptr;
    void next(int i) {
        note("q.push(x)", current = make(1 << 20)); ids.push_back(i); // LEAK
    }
};
int main() {
    Stage stage;
    void *weights = make(8 << 20);
    void *bias = make(1 << 20);
    for (int i = 0; i < 4000; i++) { stage.next(i); cudaDeviceSynchronize(); }
    cudaFree(bias); cudaFree(weights);
}
"""
#            program         suffix cause                advice
ONE_LINE = BUFFER + """
struct Session {
    std::vector<std::unique_ptr<Buffer<float>>> frames;
    void add(size_t n)
    {
        frames.push_back(std::make_unique<Buffer<float>>(n)); // LEAK
    }
};
int main() {
    Session session;
    try { for (int i = 0; i < 4000; i++) session.add(1 << 20); } catch (const std::exception &) { return 3; }
}
"""
TWO_LINES = """
#include <vector>
struct Vec {
    void *p;
    static Vec with_capacity(size_t n) { Vec v; if (cudaMalloc(&v.p, n)) exit(3); return v; } // WRAPPER
};
static std::vector<Vec> images;
static void render() {
    Vec scratch = Vec::with_capacity(1 << 20);
    Vec image = Vec::with_capacity(4 << 20); // LEAK
    cudaFree(scratch.p);
    images.push_back(image);
}
int main() { for (int i = 0; i < 4000; i++) render(); }
"""
RETURNED = """
#include <vector>
struct Texture { void *memory; };
static Texture upload(size_t n) { // a class of the program, by no name of an allocator
    void *p;
    if (cudaMalloc(&p, n)) exit(3); // WRAPPER
    return {p};
}
static std::vector<Texture> shown;
static void render() {
    Texture scratch = upload(1 << 20);
    auto texture = upload(4 << 20); // LEAK
    cudaFree(scratch.memory);
    shown.push_back(texture);
}
int main() { for (int i = 0; i < 4000; i++) render(); }
"""
FAILING = {
    "a function that returns the memory": (RETURNED, "cpp", "leak", "`shown.push_back(…)` keeps each of them (guess): remove"),
    "two lines of one function": (TWO_LINES, "cpp", "leak", "`images.push_back(…)` keeps each of them (guess): remove"),
    "a class that one line constructs": (ONE_LINE, "cpp", "capacity", "`frames.push_back(…)` keeps each of them (guess): free those that"),
    "vector": (KEPT_IN_VECTOR, "cpp", "leak", "`snapshots.emplace_back(…)` keeps each of them (guess): remove those"),
    "map": (KEPT_IN_MAP, "cpp", "leak", "`this->items.try_emplace(…)` keeps each of them (guess)"),
    "early return": (EARLY_RETURN, "c", "leak", "free each block after its last use, also if a function returns early"),
    "wrappers of wrappers": (LAYERS, "cpp", "leak", "`this->tape.push_back(…)` keeps each of them (guess)"),
    "a worker with several allocations": (WORKER, "c", "leak", "free each block after its last use"),
    "a name like an allocator's": (ITS_LOOP, "c", "leak", "free each block after its last use"),
    "map by key": (KEYED, "cpp", "leak", "`plans[key] = …` keeps each of them (guess)"),
    "stored functions": (CALLBACK, "cpp", "leak", "free each block after its last use"),
    "stored numbers": (NOT_STORED, "cpp", "leak", "free each block after its last use"),
    "one request": (ONE_REQUEST, "cpp", "oversized_request", "check the size at"),
}


LINE = "    void *in = gpu_alloc((size_t)width * 8192); /* LEAK */"
INSERTS_OTHERS = [  # a container of the line, which keeps none of the blocks
    LINE.replace("void", 'names.push_back("in"); void'),
    LINE.replace("void", "sizes.push_back(width); void"),
    LINE.replace("); /*", '); if (!in) names.push_back("in"); /*'),
    LINE.replace("gpu_alloc(", 'gpu_alloc(*"names.push_back(%d)" * 0 + '),
]


def line_of(source, mark):
    return next(n for n, line in enumerate(source.splitlines(), 1) if re.search(rf"(//|/\*) {mark}\b", line))


def build(folder, source, suffix, flags):
    compiler = "g++" if suffix == "cpp" else "gcc"
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    (folder / f"code.{suffix}").write_text(HEAD + source)
    subprocess.run([compiler, *flags.split(), "-w", "-o", "program", f"code.{suffix}", BUILD / "sim" / "libcudart.so.13"],
                   cwd=folder, check=True)
    return folder / "program"


@pytest.mark.parametrize("line", INSERTS_OTHERS)
def test_a_container_of_the_line_that_keeps_no_block_is_not_named(recording, line):
    logs = "template <class T> struct Log { void push_back(T) {} };\nstatic Log<const char *> names;\nstatic Log<int> sizes;\n"
    source = logs + EARLY_RETURN.replace(LINE, line)
    recording.run(build(recording.folder, source, "cpp", "-g -O0 -fpermissive"), check=False, SIMCUDA_MEMORY="1GiB")
    (oom,) = recording.report()["oom"]
    assert oom["blame"]["line"] == line_of(HEAD + source, "LEAK") and "keeps each of them" not in oom["advice"][0]


@pytest.mark.parametrize("flags", ["-g -O0", "-g -O2"])
@pytest.mark.parametrize("name", FAILING)
def test_what_a_wrapper_allocated_is_of_its_callers_line(recording, name, flags):
    source, suffix, cause, advice = FAILING[name]
    leak = line_of(HEAD + source, "LEAK")
    done = recording.run(build(recording.folder, source, suffix, flags), check=False, SIMCUDA_MEMORY="1GiB")
    assert done.returncode == 3
    (oom,) = recording.report()["oom"]
    assert (oom["cause"], oom["blame"]["line"]) == (cause, leak)
    assert advice in oom["advice"][0] and f"code.{suffix}:{leak}" in oom["advice"][0]
    (source_line,) = [e for e in oom["source"] if e["line"] == leak]
    assert "LEAK" in json.dumps(source_line)
    text = recording.gpuspy("report", recording.database, env={"COLUMNS": "100"}).stdout
    assert re.search(rf"▸ +{leak} │ .*LEAK", text)
    assert not any("std::" in line for line in text.splitlines() if "│" not in line)


def test_lines_of_a_program_that_ends_well(recording):
    recording.run(build(recording.folder, HEALTHY, "cpp", "-g -O2"))
    report = recording.report()
    assert not report["oom"] and not report["growth"] and not report["leaks"]
    held = {p["frames"][0]["line"] for p in report["peak"][0]["by_stack"]}
    assert held == {line_of(HEAD + HEALTHY, "WRAPPER")}  # stacks are whole
    text = recording.gpuspy("table", recording.database).stdout
    for mark in ("WEIGHTS", "LEAK", "SCRATCH"):
        assert f"code.cpp:{line_of(HEAD + HEALTHY, mark)}" in text
    assert f"code.cpp:{line_of(HEAD + HEALTHY, 'WRAPPER')}" not in text.split("→")[0]


INLINED = BUFFER + """
static void upload(void *d, const void *h) { if (cudaMemcpy(d, h, 4 << 20, 1)) exit(3); }
int main() {
    void *h = calloc(1, 4 << 20);
    Buffer<float> weights(1 << 20), bias(1 << 20);
    for (int i = 0; i < 60; i++) {
        Buffer<float> scratch(1 << 20);
        upload(weights.data(), h); // FIRST
        upload(bias.data(), h);
        upload(scratch.data(), h);
        cudaDeviceSynchronize();
    }
}
"""


def test_steps_are_of_a_loop_of_main_and_not_of_the_c_librarys_start(recording):
    recording.run(build(recording.folder, INLINED, "cpp", "-g -O2"))
    text = recording.gpuspy("report", "--full", recording.database, env={"COLUMNS": "100"}).stdout
    assert "_start" not in text and re.search(r"60 steps of .*, by the loop at code.cpp:", text)
    assert f"code.cpp:{line_of(HEAD + INLINED, 'FIRST')}" in text.split("Copies")[1]


@pytest.mark.parametrize("columns", [60, 80, 100, 132])
def test_a_tree_names_the_lines_that_use_a_wrapper(recording, columns):
    recording.run(build(recording.folder, KEPT_IN_VECTOR, "cpp", "-g -O2"), check=False, SIMCUDA_MEMORY="1GiB")
    text = recording.gpuspy("tree", recording.database, env={"COLUMNS": str(columns)}).stdout
    for mark in ("LEAK", "SCRATCH", "MAIN"):
        assert f":{line_of(HEAD + KEPT_IN_VECTOR, mark)}" in text
    assert "libc_start" not in text and "emplace_back" not in text and "vector.tcc" not in text
    whole = recording.gpuspy("tree", "--native", recording.database, env={"COLUMNS": "200"}).stdout
    assert "emplace_back" in whole


@pytest.mark.parametrize("flags,name", [("-O2", "process"), ("-O2 -s", "program+0x")])
def test_without_line_numbers(recording, flags, name):
    recording.run(build(recording.folder, EARLY_RETURN.replace("static", "__attribute__((noinline))"), "c", flags), check=False,
                  SIMCUDA_MEMORY="1GiB")
    (oom,) = recording.report()["oom"]
    text = recording.gpuspy("report", recording.database).stdout
    assert oom["cause"] == "leak" and not oom["source"] and name in text
    assert "unknown: program has no line numbers here: compile it with -g" in text


def test_a_source_file_that_is_younger_than_the_recording_is_not_shown(recording):
    recording.run(build(recording.folder, EARLY_RETURN, "c", "-g"), check=False, SIMCUDA_MEMORY="1GiB")
    (recording.folder / "code.c").write_text("changed\n" * 100)
    (oom,) = json.loads(recording.gpuspy("report", "--json", recording.database).stdout)["oom"]
    assert not oom["source"] and "changed" not in json.dumps(oom["advice"])


def test_a_diff_pairs_lines_that_moved(recording):
    """The first recording is symbolized before the program is built anew."""
    for name, text in (("a", KEPT_IN_VECTOR), ("b", "// one\n// two\n" + KEPT_IN_VECTOR.replace("(2 << 20)", "(3 << 20)"))):
        program = build(recording.folder, text, "cpp", "-g -O1")
        recording.run(program, check=False, SIMCUDA_MEMORY="1GiB", GPUSPY_DB=f"{name}.db")
        assert recording.gpuspy("symbolize", f"{name}.db").returncode == 0
    answer = json.loads(recording.gpuspy("diff", "--json", "a.db", "b.db").stdout)
    assert [r["status"] for r in answer["rows"] if r["status"] in ("new", "gone")] == []
    leak = line_of(HEAD + KEPT_IN_VECTOR, "LEAK")
    assert {(r["site_before"]["line"], r["site_after"]["line"]) for r in answer["rows"]} >= {(leak, leak + 2)}


def test_a_program_that_was_built_anew(recording):
    recording.run(build(recording.folder, EARLY_RETURN, "c", "-g"), check=False, SIMCUDA_MEMORY="1GiB")
    build(recording.folder, EARLY_RETURN + "/* more */", "c", "-g -O1")
    done = recording.gpuspy("report", recording.database)
    assert done.returncode == 0 and "(before the next rebuild: gpuspy symbolize)" in done.stderr


def test_a_vector_grows_as_one_line(recording):
    """By two call paths: one for each element, and one for those that need more room."""
    recording.run(build(recording.folder, KEPT_IN_VECTOR.replace("i % 10 == 0", "i < 4000").replace("(2 << 20)", "(1 << 12)"), "cpp",
                        "-g -O1"))
    (grown,) = recording.report()["growth"]
    assert grown["newest"]["line"] == line_of(HEAD + KEPT_IN_VECTOR, "LEAK")
    assert grown["bytes"] >= 3900 * (4 << 12) and abs(grown["bytes_per_step"] / (4 << 12) - 1) < 0.02


def test_an_ooms_leak_counts_all_call_paths_of_its_line(recording):
    """At -O1 elements that need more room are made by another call path."""
    done = recording.run(build(recording.folder, KEPT_IN_VECTOR.replace("i % 10 == 0", "true"), "cpp", "-g -O1"), check=False,
                         SIMCUDA_MEMORY="2GiB")
    assert done.returncode == 3
    (oom,) = recording.report()["oom"]
    ((size,),) = recording.sql("SELECT sum(bytes) FROM allocation, (SELECT min(time_ns) AS failed FROM oom) WHERE "
                               "bytes = 8388608 AND alloc_ns < failed AND ifnull(free_ns, failed) >= failed")
    assert oom["evidence"]["growing_bytes"] == size > 1 << 30


RECURSIVE = """
static void *kept[4096]; static int n;
static void visit(int depth);
__attribute__((noinline)) static void left(int depth) { visit(depth - 1); visit(depth - 1); n++; }
__attribute__((noinline)) static void right(int depth) { visit(depth - 1); n++; }
__attribute__((noinline)) static void visit(int depth)
{
    if (depth > 0) { left(depth); right(depth); left(depth); n++; return; }
    cudaMalloc(&kept[n++ % 4096], 1 << 20); /* LEAK */
}
int main(void) { for (int i = 0; i < 3; i++) { visit(3); visit(2); visit(1); } return 0; }
"""


def test_functions_that_call_each_other_are_no_wrappers(recording):
    recording.run(build(recording.folder, RECURSIVE, "c", "-g -O1"))
    text = recording.gpuspy("table", recording.database).stdout
    assert f"code.c:{line_of(HEAD + RECURSIVE, 'LEAK')}  visit" in text and "  main" not in text


POOL = """
static void *pool[64]; static size_t size[64]; static int n;
static void use(size_t bytes)
{
    for (int i = 0; i < n; i++) if (size[i] >= bytes) { cudaDeviceSynchronize(); return; }
    cudaMalloc(&pool[n], size[n] = bytes); n++; /* POOL */
    cudaDeviceSynchronize();
}
int main(void)
{
    for (int i = 1; i < FILLED; i++) use(i << 18);
    for (int i = 1; i < AFTER; i++) cudaMemcpy(&n, pool[0], 4, 2);
}
"""


@pytest.mark.parametrize("filled,after,grows", [(40, 400, False), (40, 30, True)])
def test_a_pool_that_was_filled_first_does_not_grow(recording, filled, after, grows):
    """Its steady state has no allocation: copies and waits show that the program went on."""
    source = POOL.replace("FILLED", str(filled)).replace("AFTER", str(after))
    recording.run(build(recording.folder, source, "c", "-g -O1"))
    assert [g["newest"]["line"] for g in recording.report()["growth"]] == [line_of(HEAD + source, "POOL")] * grows


DEEP = """
static void *kept[512];
__attribute__((noinline)) static int descend(int depth, int i)
{
    if (depth > 0) return descend(depth - 1, i) + 1;
    return cudaMalloc(&kept[i], 1 << 20); /* LEAK */
}
int main(void) { int failed = 0; for (int i = 0; i < 512 && !failed; i++) failed |= descend(200, i) != 200; return failed ? 3 : 0; }
"""


@pytest.mark.parametrize("memory,code", [("4GiB", 0), ("600MiB", 3)])
def test_a_stack_whose_outer_frames_are_cut(recording, memory, code):
    assert recording.run(build(recording.folder, DEEP, "c", "-g -O0"), check=False, SIMCUDA_MEMORY=memory).returncode == code
    report = recording.report()
    (stack,) = {json.dumps(s["frames"]) for s in report["peak"][0]["by_stack"]}
    assert json.loads(stack)[-1]["function"] == "(deeper frames cut)"
    assert [g["newest"]["line"] for g in report["growth"]] == [line_of(HEAD + DEEP, "LEAK")]
    assert [o["blame"]["line"] for o in report["oom"]] == [line_of(HEAD + DEEP, "LEAK")] * (code != 0)


SHIM = """
int interpret(int (*call)(void), int times);
static int r_alloc(void) { void *p; return cudaMalloc(&p, 4 << 20); } /* LEAK */
int main(int argc, char **argv) { return interpret(r_alloc, 4000) ? 3 : 0; }
"""
INTERPRETER = """
#include <stddef.h>
int cudaMalloc(void **, size_t);
int interpret(int (*call)(void), int times)
{
    void *p;
    int rc = 0;
    for (int i = 0; i < times && !rc; i++) rc = call ? call() : cudaMalloc(&p, 4 << 20);
    return rc;
}
"""


def run_interpreted(recording, name, source):
    (recording.folder / "interpreter.c").write_text(INTERPRETER)
    library = recording.folder / name
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, recording.folder / "interpreter.c",
                    BUILD / "sim" / "libcudart.so.13"], check=True)
    (recording.folder / "code.c").write_text(HEAD + source)
    subprocess.run(["gcc", "-g", "-w", "-o", "program", "code.c", library, BUILD / "sim" / "libcudart.so.13",
                    f"-Wl,-rpath,{recording.folder}"], cwd=recording.folder, check=True)
    done = recording.run(recording.folder / "program", check=False, SIMCUDA_MEMORY="1GiB")
    assert done.returncode == 3
    (oom,) = recording.report()["oom"]
    return oom, recording.gpuspy("report", recording.database).stdout


def test_the_program_that_starts_an_interpreter_is_not_its_codes_caller(recording):
    """Memory that a package's function requests is not attributed to R's main()."""
    oom, _ = run_interpreted(recording, "libR.so", SHIM)
    assert (oom["blame"]["function"], oom["blame"]["line"]) == ("r_alloc", line_of(HEAD + SHIM, "LEAK"))


@pytest.mark.parametrize("name, language", [("libjvm.so", "Java"), ("libjnidispatch.system.so", "Java"), ("libR.so", "R")])
def test_lines_of_another_interpreters_language_are_unknown(recording, name, language):
    oom, text = run_interpreted(recording, name, SHIM.replace("interpret(r_alloc", "interpret(0"))
    assert oom["blame"]["file"].endswith(name)
    assert f"unknown: gpuspy records no lines of {language}" in text and "compile it with -g" not in text
