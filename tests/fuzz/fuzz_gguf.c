/* A hostile GGUF file. The input: 4 bytes, the size of the tensors' data; then the file up to that data. */
#include "tests/fuzz/models.h"

#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_bytes b = {data, size};
    struct model m;
    int exit_code = 0;
    char path[300];
    const uint64_t bytes = fuzz_number(&b, 4);
    snprintf(path, sizeof path, "%s/model-00001-of-00002.gguf", fuzz_folder());
    fuzz_write(path, b.at, b.left);
    FUZZ_CHECK(truncate(path, (off_t)(b.left + bytes)) == 0, "%s", path);
    bool ok = model_from_gguf("estimate", path, &m, &exit_code);
    fuzz_model(ok, exit_code, &m);
    return 0;
}

/* ---------------------------------------------------------------- seeds */

static uint8_t file[1 << 14];
static size_t at;

static void number(uint64_t n, int bytes)
{
    for (int i = 0; i < bytes; i++) file[at++] = (uint8_t)(n >> (8 * i));
}

static void text(const char *t)
{
    number(strlen(t), 8);
    memcpy(file + at, t, strlen(t));
    at += strlen(t);
}

static void begin(uint32_t data, uint32_t version, uint64_t tensors, uint64_t keys)
{
    at = 0;
    number(data, 4);
    memcpy(file + at, "GGUF", 4);
    at += 4;
    number(version, 4);
    number(tensors, 8);
    number(keys, 8);
}

static void key(const char *name, uint32_t value)
{
    text(name);
    number(4, 4);
    number(value, 4);
}

static void tensor(const char *name, uint64_t cols, uint64_t rows, uint32_t type, uint64_t offset)
{
    text(name);
    number(rows ? 2 : 1, 4);
    number(cols, 8);
    if (rows) number(rows, 8);
    number(type, 4);
    number(offset, 8);
}

void fuzz_seeds(fuzz_put put)
{
    static const char *const names[] = {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"};
    put("", 0);
    for (uint32_t version = 1; version <= 4; version++) {
        begin(0, version, 0, 0);
        put(file, at);
    }
    begin(0, 3 << 24, 0, 0);
    put(file, at);
    begin(0, 3, UINT64_MAX, UINT64_MAX);
    put(file, at);
    begin(65536, 3, 10, 11); /* a Llama with one layer */
    text("general.architecture");
    number(8, 4);
    text("llama");
    key("llama.block_count", 1);
    key("llama.embedding_length", 256);
    key("llama.attention.head_count", 4);
    key("llama.feed_forward_length", 256);
    key("llama.expert_count", 0);
    key("general.alignment", 32);
    key("general.parameter_count", 9);
    text("llama.attention.head_count_kv"); /* a list */
    number(9, 4);
    number(5, 4);
    number(2, 8);
    number(4, 4);
    number(2, 4);
    text("tokenizer.ggml.tokens");
    number(9, 4);
    number(8, 4);
    number(2, 8);
    text("a");
    text("");
    text("x.f");
    number(12, 4);
    number(0, 8);
    tensor("token_embd.weight", 256, 2, 12, 0);
    for (int i = 0; i < 7; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.0.%s.weight", names[i]);
        tensor(name, 256, 1, 14, 288 + 224u * (unsigned)i);
    }
    tensor("output_norm.weight", 256, 0, 0, 288 + 224 * 7);
    tensor("blk.0.attn_norm.weight", 256, 0, 0, 288 + 224 * 7 + 1024);
    put(file, at);
    begin(64, 3, 1, 2); /* one of two */
    key("split.count", 2);
    key("split.no", 0);
    tensor("a", 16, 0, 0, 0);
    put(file, at);
    begin(64, 2, 1, 0);
    tensor("\x1b[2J", UINT64_MAX, UINT64_MAX, 99, UINT64_MAX);
    put(file, at);
}
