/* Hostile safetensors files: one file, or an index of two, beside a config.json. The input: a byte that chooses the
 * files, 4 bytes with the size of the data, 2 with the size of the config, the config, the rest. */
#include "tests/fuzz/models.h"

#include <unistd.h>

enum { RAW = 1, CONFIG = 2, INDEX = 4 };

static char *inside(const char *name)
{
    static char path[4][300];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", fuzz_folder(), name);
    return path[turn];
}

/* Writes the header after its length, and makes the file larger by the size of the data. */
static void write_tensors(const char *path, const uint8_t *header, size_t n, uint64_t data)
{
    uint8_t length[8];
    FILE *f = fopen(path, "wbe");
    FUZZ_CHECK(f, "%s", path);
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)n >> (8 * i));
    fwrite(length, 1, 8, f);
    fwrite(header, 1, n, f);
    fflush(f);
    FUZZ_CHECK(ftruncate(fileno(f), (off_t)(8 + n + data)) == 0, "%s", path);
    fclose(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_bytes b = {data, size};
    struct model m;
    int exit_code = 0;
    size_t n;
    const uint8_t how = fuzz_u8(&b);
    const uint64_t bytes = fuzz_number(&b, 4), config_bytes = fuzz_number(&b, 2);
    const void *config = fuzz_part(&b, config_bytes, &n);
    const char *path = inside("model.safetensors");
    unlink(inside("config.json"));
    if (how & CONFIG) fuzz_write(inside("config.json"), config, n);
    if (how & INDEX) {
        static const char one[] = "{\"a.0.w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}";
        write_tensors(inside("1.safetensors"), (const uint8_t *)one, sizeof one - 1, 24);
        path = inside("model.safetensors.index.json");
        fuzz_write(path, b.at, b.left);
    } else if (how & RAW) {
        fuzz_write(path, b.at, b.left);
    } else {
        write_tensors(path, b.at, b.left, bytes);
    }
    bool ok = model_from_safetensors("estimate", path, &m, &exit_code);
    fuzz_model(ok, exit_code, &m);
    return 0;
}

static void seed(fuzz_put put, uint8_t how, uint32_t data, const char *config, const char *header)
{
    static uint8_t bytes[1 << 16];
    const size_t c = strlen(config), h = strlen(header);
    bytes[0] = how;
    for (int i = 0; i < 4; i++) bytes[1 + i] = (uint8_t)(data >> (8 * i));
    bytes[5] = (uint8_t)c;
    bytes[6] = (uint8_t)(c >> 8);
    memcpy(bytes + 7, config, c);
    memcpy(bytes + 7 + c, header, h);
    put(bytes, 7 + c + h);
}

void fuzz_seeds(fuzz_put put)
{
#define T(name, type, shape, from, to) \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]}"
    seed(put, 0, 0, "", "{}");
    seed(put, 0, 0, "", "");
    seed(put, RAW, 0, "", "\xff\xff\xff\xff\xff\xff\xff\x7f{");
    seed(put, RAW, 0, "", "\3\0\0\0");
    seed(put, 0, 24, "", "{\"__metadata__\":{\"format\":\"pt\"}," T("a", "F32", "[2,3]", "0", "24") "}");
    seed(put, 0, 24, "", "{" T("a", "F32", "[2,3]", "0", "24") "," T("a", "F32", "[2,3]", "0", "24") "}");
    seed(put, CONFIG, 1024,
         "{\"model_type\":\"llama\",\"hidden_size\":8,\"num_attention_heads\":2,\"intermediate_size\":8,"
         "\"num_hidden_layers\":1,\"vocab_size\":16,\"tie_word_embeddings\":true}",
         "{" T("model.embed_tokens.weight", "BF16", "[16,8]", "0",
               "256") "," T("lm_head.weight", "BF16", "[16,8]", "256",
                            "512") "," T("model.layers.0.self_attn.q_proj.weight", "F32", "[16,8]", "512", "1024") "}");
    seed(put, CONFIG, 84, "{\"quantization_config\":{\"bits\":4},\"model_type\":\"x\"}",
         "{" T("l.0.q.qweight", "I32", "[1,8]", "0", "32") "," T("l.0.q.scales", "F16", "[1,8]", "32", "48") "," T(
             "l.0.q.qzeros", "I32", "[1,1]", "48", "52") "," T("l.0.q.g_idx", "I32", "[8]", "52", "84") "}");
    seed(put, 0, 20, "",
         "{" T("h.0.w.weight", "U8", "[8,1]", "0", "8") "," T("h.0.w.weight.absmax", "F32", "[1]", "8", "12") "," T(
             "h.1.experts.gate_up_proj_blocks", "U8", "[2,1,1,2]", "12", "16") "," T("h.1.experts.gate_up_proj_scales",
                                                                                     "U8", "[2,1,2]", "16", "20") "}");
    seed(put, 0, 0, "", "{" T("\\u001b[31m\\ud83d\\ude00\\u0000", "F32", "[0,9223372036854775807]", "0", "0") "}");
    seed(put, 0, 0, "",
         "{" T("z", "F4", "[18446744073709551615,18446744073709551615]", "0", "18446744073709551615") "}");
    seed(put, 0, 3, "",
         "{" T("f", "F6_E2M3", "[4]", "0", "3") ",\"x\":[[[[{\"y\":null,\"z\":[true,false,-1.5e9]}]]]]}");
    seed(put, INDEX, 0, "", "{\"metadata\":{\"total_size\":24},\"weight_map\":{\"a.0.w\":\"1.safetensors\"}}");
    seed(put, INDEX, 0, "", "{\"weight_map\":{\"a.0.w\":\"../1.safetensors\",\"b\":\"2.safetensors\"}}");
#undef T
}
