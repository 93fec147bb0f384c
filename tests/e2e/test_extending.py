"""CONTRIBUTING names the files to change for each kind of extension: one row of each kind is added in a scratch copy,
which is then built."""
import os
import re
import shutil
import subprocess

import pytest
from conftest import BUILD, ROOT

# kind in CONTRIBUTING: [(file, text there, text after the change)]
ADDED = {
    "a GPU or another name for it": [
        ("analyzer/estimate/gpus.def", 'ALIAS("t4", "t4-16g")', 'ALIAS("t4", "t4-16g")\nALIAS("tesla-zero", "t4-16g")')],
    "an optimizer, a precision or a model": [
        ("analyzer/estimate/optimizers.def", 'OPTIMIZER("adamw", ', 'OPTIMIZER("newton", 2, 0, EVEN, FUSED, 1, 2, 1, "made up")\nOPTIMIZER("adamw", ')],
    "a known holder of GPU memory": [
        ("analyzer/oom/oom_patterns.def", "HOLDER(NULL,", 'HOLDER("/new/", NULL, 1.0, "something new", "do something else")\nHOLDER(NULL,')],
    "a setting that avoids a wait or copy": [
        ("analyzer/question/library.def", 'WAIT("/transformers/trainer.py", "_run_epoch"', 'WAIT("/new/x.py", "f", "new=True")\nWAIT("/transformers/trainer.py", "_run_epoch"')],
    "a signature of a wait or copy": [
        ("analyzer/question/signature.def", 'SEEN(STR, "/torch/_tensor_str.py", NULL)', 'SEEN(STR, "/torch/_tensor_str.py", NULL)\nSEEN(STR, "/new/x.py", NULL)')],
    "a library that allocates memory": [
        ("analyzer/site/owner.def", 'PASS(NAME, "libgpuspy")', 'PASS(NAME, "libgpuspy")\nPASS(NAME, "libnew")')],
    "a rule for categories of tensors": [
        ("analyzer/category/category.def", 'DOING(ZERO, "/torch/optim/", "zero_grad")', 'DOING(ZERO, "/torch/optim/", "zero_grad")\nDOING(ZERO, "/new/", "zero")')],
    "a cause of OOMs": [
        ("analyzer/result/result.h", '    X(CAPACITY, "capacity", "capacity")', '    X(MADE_UP, "made_up", "made up") X(CAPACITY, "capacity", "capacity")'),
        ("analyzer/oom/oom_cause.c", "    INFERRED(CAPACITY, NULL,", '    INFERRED(MADE_UP, is_pinned, oom_explain_pinned, "if it is not")\n    INFERRED(CAPACITY, NULL,')],
    "a measure against OOMs": [
        ("analyzer/oom/oom_measures.c", "    {SPACE, measure_checkpoint, GUESSED, NULL},", "    {SPACE, measure_checkpoint, GUESSED, NULL},\n    {SPACE, measure_model_copies, GUESSED, NULL},")],
    "a gate of `gpuspy check`": [
        ("analyzer/check/gates.def", "GATE(OOM, ", 'GATE(NEW, "max-new", COUNT, "N", new, none, "new things", "no more than N new things")\nGATE(OOM, '),
        ("analyzer/check/measure.c", "static void explain_none(", "static void measure_new(struct checking *c)\n{\n    emit_measure(c, -1, 0, NULL);\n}\n\nstatic void explain_none(")],
    "a section of the report": [
        ("analyzer/view/sections.def", 'SECTION(MARKS, ', 'SECTION(NOVELTY, "novelty", view_text_novelty, "marks", ASK(MARKS), 9)\nSECTION(MARKS, '),
        ("analyzer/view/view_text_parts.h", "void view_text_marks(", "void view_text_novelty(const struct draw_text *v);\nvoid view_text_marks("),
        ("analyzer/view/view_text_marks.c", "void view_text_marks(", 'void view_text_novelty(const struct draw_text *v)\n{\n    fputs("news\\n", v->out);\n}\n\nvoid view_text_marks(')],
    "a CUDA call": [
        ("interpose/cuda_api.def", "GS_CALL(RT, cudaMalloc, ",
         "GS_CALL(RT, cudaMadeUp, (void **devPtr, size_t size), (devPtr, size), ALLOC(DEVICE, *devPtr, size, 0))\nGS_CALL(RT, cudaMalloc, ")],
    "a kind of effect that CUDA calls have": [
        ("interpose/acts.h", "static inline void after_mark(",
         "static inline void after_novelty(struct gs_hooked *call, uint64_t bytes)\n{\n"
         "    if (call->result == 0) gs_count(call->t, bytes, false);\n}\n\nstatic inline void after_mark("),
        ("interpose/act_signatures.h", "#define GS_ACT_MARK(", "#define GS_ACT_NOVELTY(bytes) (false, , after_novelty(call, bytes))\n#define GS_ACT_MARK("),
        ("interpose/cuda_api.def", "GS_CALL(RT, cudaMalloc, ", "GS_CALL(RT, cudaNovelty, (size_t size), (size), NOVELTY(size))\nGS_CALL(RT, cudaMalloc, ")],
}


def test_as_many_files_as_contributing_states():
    rows = re.findall(r"^\| (.+?) \| (\d+) \|", (ROOT / "CONTRIBUTING.md").read_text(), re.M)
    assert len(rows) > 30
    for kind, edits in ADDED.items():
        (files,) = {int(n) for what, n in rows if what.startswith(kind)}
        assert len({path for path, _, _ in edits}) == files, kind


@pytest.mark.skipif(bool(os.environ.get("SAN")), reason="a sanitized run")
def test_one_of_each_is_added_and_built(tmp_path):
    for part in ("analyzer", "interpose", "schema", "scripts", "fixtures/simcuda"):
        shutil.copytree(ROOT / part, tmp_path / part)
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "Makefile", tmp_path)
    for part in ("gen", "obj/analyzer", "obj/interpose", "obj/schema"):  # only what depends on the rows is compiled again
        if BUILD == ROOT / "build":  # the lists of headers have the folder's name
            shutil.copytree(BUILD / part, tmp_path / "build" / part)
    for edits in ADDED.values():
        for path, old, new in edits:
            text = (tmp_path / path).read_text()
            assert old in text, (path, old)
            (tmp_path / path).write_text(text.replace(old, new, 1))
    done = subprocess.run(["make", "-j2", "CFLAGS=-O0", "build/gpuspy", "build/libgpuspy.so"], cwd=tmp_path, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS")) and k not in ("O", "CC")})
    assert done.returncode == 0, done.stdout[-3000:]
    tool = tmp_path / "build/gpuspy"

    def answer(*words):
        return subprocess.run([tool, *words], text=True, stdout=subprocess.PIPE, check=True).stdout

    assert "newton" in answer("estimate", "--params", "1e9", "--optimizer", "newton")
    assert answer("estimate", "--params", "1e6", "--gpu", "tesla-zero")
    assert "--max-new" in answer("check", "--help") and "novelty" in answer("report", "--help")
    names = subprocess.run(["nm", "-D", tmp_path / "build/libgpuspy.so"], text=True, stdout=subprocess.PIPE, check=True).stdout
    assert " T cudaMadeUp" in names and " T cudaNovelty" in names
